"""Handlers that another process can import, and that record what they do in a file."""

import asyncio
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from rabbitdelay import Bury, LeaseLost, NotAJob, ReservedJob, Retry
from tests.support.patience import patience

TOUCHED_TTR_SECONDS = 4
"""Longer than a busy machine delays a touch."""


class Order(BaseModel):
    """A body that is validated."""

    number: int


class Refused(Exception):
    """An exception that a handler defines itself, and that can be pickled."""


class Odd(Exception):
    """An exception that can be pickled but not unpickled: its __init__ gets only the text."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(f"{code} {text}")


class OddBury(Bury):
    """A `Bury` that cannot be pickled."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.file = sys.stderr


class OddRetry(Retry):
    """A `Retry` that cannot be pickled."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason, delay=0.05)
        self.file = sys.stderr


def note(path: str, *words: object) -> None:
    """Append a whole line to a file."""
    with Path(path).open("a") as file:
        file.write(" ".join(map(str, words)) + "\n")


def give_pid(_body: Any) -> int:  # noqa: ANN401 - any body
    return os.getpid()


def give_headers(_body: Any, job: ReservedJob) -> list[str]:  # noqa: ANN401 - any body
    return sorted(job.headers)


def describe(order: Order, job: ReservedJob) -> dict[str, Any]:
    return {
        "number": order.number,
        "id": job.id,
        "lateness": job.lateness,
        "redeliveries": job.redeliveries,
        "headers": sorted(job.message_headers),
        "time_left": job.time_left,
        "pid": os.getpid(),
    }


async def give_pid_later(_body: Any) -> list[int]:  # noqa: ANN401 - any body
    await asyncio.sleep(0.01)
    return [os.getpid(), id(asyncio.get_running_loop())]


def hang(path: str, job: ReservedJob) -> None:
    """Hang at first, with a child process that does not end by itself either."""
    is_first = job.attempt == 1 and job.redeliveries == 0
    grandchild = subprocess.Popen(["sleep", "600"]) if is_first else None
    note(path, job.attempt, os.getpid(), grandchild.pid if grandchild else "")
    if is_first:
        time.sleep(600)


def die(how: str, job: ReservedJob) -> str:
    """Die on the first attempt."""
    if job.attempt == 1 and how == "exit":
        os._exit(3)
    if job.attempt == 1 and how == "fork":  # the fork keeps this process's files open
        multiprocessing.get_context("fork").Process(target=time.sleep, args=(600,)).start()
        os._exit(4)
    if job.attempt == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return how


def fail(how: str, job: ReservedJob) -> str:
    """Fail on the first attempt."""
    if job.attempt == 1:
        raise _FAILURES[how]
    return how


_FAILURES = {
    "refused": Refused("no money"),
    "odd": Odd(7, "went wrong"),
    "exit": SystemExit("enough"),
    "retry": Retry("not yet", delay=0.05),
    "odd retry": OddRetry("not yet"),
    "bury": Bury("never"),
    "odd bury": OddBury("never"),
    "not a job": NotAJob("nonsense"),
}


def give_lock(_body: Any) -> threading.Lock:  # noqa: ANN401 - any body
    return threading.Lock()


def touch_often(_body: Any, job: ReservedJob) -> bool:  # noqa: ANN401 - any body
    """Run longer than the job's TTR; return whether every touch restored the time left."""
    restored, began = True, time.monotonic()
    while time.monotonic() - began < TOUCHED_TTR_SECONDS + 0.5:
        time.sleep(0.5)
        before = job.time_left
        job.touch()
        restored &= 0 < before < job.time_left
    return restored


def outlive_ttr(_body: Any, job: ReservedJob) -> float:  # noqa: ANN401 - any body
    """Run longer than the job's TTR, and return the time left then."""
    time.sleep(TOUCHED_TTR_SECONDS + 0.5)
    return job.time_left


def settle(verb: str, job: ReservedJob) -> str:
    """Settle the job from inside, and check that touching it afterwards is refused."""
    if job.attempt == 2:
        return "released"
    match verb:
        case "finish":
            job.finish()
        case "release":
            job.release(0.05)
        case _:
            job.bury("no")
    try:
        job.touch()
    except LeaseLost:
        job.on_lost(lambda: None)
        return verb
    raise AssertionError("a settled job could be touched")


def hand_back_once(path: str, job: ReservedJob) -> None:
    """Hand the job back at its first delivery."""
    note(path, job.attempt, job.redeliveries)
    if job.redeliveries == 0:
        job.hand_back()


def settle_in_block(path: str, job: ReservedJob) -> None:
    with job:
        note(path, job.attempt, job.time_left > 0)
    note(path, job.attempt, job.time_left > 0)


def touch_too_late(path: str, job: ReservedJob) -> None:
    """Leave a thread behind that touches the job until a touch is refused."""

    def go_on() -> None:
        try:
            while True:
                job.touch()
                time.sleep(0.01)
        except LeaseLost as error:
            note(path, error)

    threading.Thread(target=go_on).start()


def finish_and_hang(path: str, job: ReservedJob) -> None:
    note(path, os.getpid())
    job.finish()
    time.sleep(600)


def end_fork(_body: Any) -> int | None:  # noqa: ANN401 - any body
    """Start a forked process, end it with SIGTERM, and return its exit code."""
    process = multiprocessing.get_context("fork").Process(target=time.sleep, args=(600,))
    process.start()
    process.terminate()
    process.join(patience(10))
    return process.exitcode


def tell_max_attempts(job: ReservedJob) -> int | None:
    return job.max_attempts


def raise_one(kind: str) -> None:
    if kind == "odd":
        raise Odd(7, "seven")
    raise Refused("no")
