"""Handlers in separate processes: they are killed at their TTR, and may die in any way."""

import logging
import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from rabbitdelay import Client, InvalidConfiguration, Job, NoResponse, Response, Worker
from rabbitdelay.core.work.stats import WorkerCounts
from rabbitdelay.executors.processes.process_handle import HandlerProcess, describe_exit
from rabbitdelay.executors.processes.process_messages import Ready
from tests.support.brokers.suite_broker import SharedBroker
from tests.support.client_options import CLIENT_OPTIONS, WORKER_OPTIONS
from tests.support.jobs.connections import cut_worker
from tests.support.jobs.worker_thread import working
from tests.support.patience import patience, wait_until
from tests.support.programs import process_handlers
from tests.support.programs.script import ROOT

TOPIC = "work"
HANDLERS: list[Callable[..., Any]] = [
    process_handlers.describe,
    process_handlers.die,
    process_handlers.end_fork,
    process_handlers.fail,
    process_handlers.finish_and_hang,
    process_handlers.give_lock,
    process_handlers.give_pid,
    process_handlers.give_pid_later,
    process_handlers.hand_back_once,
    process_handlers.hang,
    process_handlers.settle,
    process_handlers.settle_in_block,
    process_handlers.touch_often,
    process_handlers.touch_too_late,
]
"""Each handles the topic named after it."""


@dataclass(frozen=True)
class Running:
    """A worker that runs all handlers, and a client that puts jobs for it."""

    worker: Worker
    client: Client

    @property
    def counts(self) -> WorkerCounts:
        return self.worker.stats().counts

    def counts_before(self) -> WorkerCounts:
        """Return the counts when no job runs: a response precedes the count of its job."""
        wait_until(lambda: self.worker.stats().running == 0)
        return self.counts

    def put(self, handler: Callable[..., Any], body: object = None, **options: Any) -> Job:  # noqa: ANN401 - passed on
        return self.client.put(handler.__name__, body, **options)

    def ask(self, handler: Callable[..., Any], body: object = None, **options: Any) -> Any:  # noqa: ANN401 - any value
        """Put a job, and return its handler's return value."""
        job = self.put(handler, body, reply=True, **options)
        response = self.client.response(job, wait=patience(20))
        assert isinstance(response, Response)
        return response.body


def new_worker(url: str, namespace: str, **options: Any) -> Worker:  # noqa: ANN401 - passed on
    settings = WORKER_OPTIONS | {"pool": "process", "grace": 10.0} | options
    return Worker(url, namespace=namespace, **settings)


@pytest.fixture(scope="module")
def work(shared_broker: SharedBroker) -> Iterator[Running]:
    """One worker for most tests of this file, because starting processes takes most of the time."""
    namespace = f"t{secrets.token_hex(4)}"
    worker = new_worker(shared_broker.url, namespace, concurrency=2)
    for function in HANDLERS:
        worker.handler(function.__name__, backoff=0.05)(function)
    worker.handler("outlive_ttr", auto_touch=True)(process_handlers.outlive_ttr)
    client = Client(shared_broker.url, namespace=namespace, **CLIENT_OPTIONS)
    with client, working(worker):
        yield Running(worker, client)
    shared_broker.management.delete_namespace(namespace)


def is_running(pid: int) -> bool:
    """Return whether a process runs; a zombie, which no process has reaped yet, does not."""
    try:
        states = [
            path.read_text().rpartition(") ")[2][0]
            for path in Path(f"/proc/{pid}/task").glob("*/stat")
        ]
    except OSError:
        return is_running(pid)  # one of its threads ended meanwhile
    return any(state not in "ZX" for state in states)


def lines(path: Path) -> list[list[str]]:
    return [line.split() for line in path.read_text().splitlines()] if path.exists() else []


def wait_for_lines(path: Path, count: int, seconds: float = 20) -> list[list[str]]:
    wait_until(lambda: len(lines(path)) >= count, seconds=seconds, what=f"{count} lines of {path}")
    return lines(path)


def test_a_handler_gets_its_job_in_a_process_of_its_own(work: Running) -> None:
    found = work.ask(process_handlers.describe, {"number": 7}, id="seven", ttr=30)
    assert found["number"] == 7
    assert found["id"] == "seven"
    assert found["redeliveries"] == 0
    assert 0 <= found["lateness"] < patience(10)
    assert 0 < found["time_left"] <= 30
    assert {"rd-due", "rd-token", "rd-ttr"} <= set(found["headers"])
    assert found["pid"] != os.getpid()


def test_a_process_is_reused_and_ends_with_its_worker(
    broker_url: str, namespace: str, client: Client
) -> None:
    worker = new_worker(broker_url, namespace, concurrency=1)
    worker.handler("give_pid")(process_handlers.give_pid)
    with working(worker):
        work = Running(worker, client)
        pids = {work.ask(process_handlers.give_pid) for _ in range(3)}
        assert len(pids) == 1
        (pid,) = pids
        assert os.getsid(pid) == pid, "it is a session leader"
    assert not is_running(pid)


def test_coroutine_functions_run_on_one_loop(work: Running) -> None:
    first, second = (work.ask(process_handlers.give_pid_later) for _ in range(2))
    assert first == second
    assert first[0] != os.getpid()


def test_an_invalid_body_is_buried(work: Running) -> None:
    with pytest.raises(NoResponse, match="number"):
        work.ask(process_handlers.describe, {"number": "many"})


def test_a_handler_may_use_multiprocessing(work: Running) -> None:
    assert work.ask(process_handlers.end_fork) == -signal.SIGTERM


# TTR


def test_a_handlers_process_is_killed_with_its_children_at_the_ttr(
    work: Running, tmp_path: Path
) -> None:
    """The job is given back at once, and the worker continues with another process."""
    notes, before = tmp_path / "notes", work.counts_before()
    began = time.monotonic()
    work.put(process_handlers.hang, str(notes), ttr=2)
    _, pid, grandchild = wait_for_lines(notes, 1)[0]
    assert is_running(int(grandchild))
    attempt, another_pid = wait_for_lines(notes, 2)[1]
    assert attempt == "2"
    assert 2 <= time.monotonic() - began < patience(15)
    assert another_pid != pid
    wait_until(lambda: not is_running(int(pid)) and not is_running(int(grandchild)))
    wait_until(lambda: work.counts.finished == before.finished + 1)
    wait_until(lambda: work.worker.stats().lost_threads == 0)
    assert work.counts.timed_out == before.timed_out + 1


def test_the_process_of_a_job_lost_with_its_connection_is_killed(
    work: Running, tmp_path: Path
) -> None:
    """Another consumer may have the job by then; here another process runs it."""
    notes = tmp_path / "notes"
    work.put(process_handlers.hang, str(notes), ttr=60)
    _, pid, grandchild = wait_for_lines(notes, 1)[0]
    cut_worker(work.worker)
    wait_until(lambda: not is_running(int(pid)) and not is_running(int(grandchild)))
    attempt, another_pid = wait_for_lines(notes, 2)[1]
    assert attempt == "1"
    assert another_pid != pid


def test_a_worker_runs_other_jobs_while_a_handler_hangs(work: Running, tmp_path: Path) -> None:
    notes = tmp_path / "notes"
    work.put(process_handlers.hang, str(notes), ttr=5)
    pid = int(wait_for_lines(notes, 1)[0][1])
    assert work.ask(process_handlers.give_pid) != pid
    assert is_running(pid)
    wait_for_lines(notes, 2)


def test_touch_restarts_the_ttr(work: Running) -> None:
    before = work.counts_before()
    assert work.ask(process_handlers.touch_often, ttr=process_handlers.TOUCHED_TTR_SECONDS) is True
    assert work.counts.timed_out == before.timed_out


def test_auto_touch_is_seen_in_the_process(work: Running) -> None:
    """The worker knows the time left, because it renews the TTR."""
    assert work.ask(process_handlers.outlive_ttr, ttr=process_handlers.TOUCHED_TTR_SECONDS) > 0


# Deaths and failures


@pytest.mark.parametrize(
    ("how", "text"),
    [
        ("kill", "the handler process died: signal 9 (SIGKILL)"),
        ("exit", "the handler process died: exit code 3"),
        ("fork", "the handler process died: exit code 4"),
    ],
)
def test_a_process_that_dies_is_a_failed_attempt(
    work: Running, caplog: pytest.LogCaptureFixture, how: str, text: str
) -> None:
    assert work.ask(process_handlers.die, how) == how
    assert text in caplog.text


def test_an_idle_process_that_dies_is_replaced(work: Running) -> None:
    before, pid = work.counts_before(), work.ask(process_handlers.give_pid)
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: not is_running(pid))
    assert work.ask(process_handlers.give_pid) != pid
    assert work.counts.released == before.released


@pytest.mark.parametrize(
    ("how", "error_type", "text"),
    [
        ("refused", "Refused", "no money"),
        ("odd", "HandlerRaised", "Odd: 7 went wrong"),
        ("exit", "SystemExit", "enough"),
    ],
)
def test_an_exception_in_a_process_is_reported_by_the_worker(
    work: Running, caplog: pytest.LogCaptureFixture, how: str, error_type: str, text: str
) -> None:
    assert work.ask(process_handlers.fail, how) == how
    (record,) = (one.__dict__ for one in caplog.records if one.name == "rabbitdelay.worker")
    assert (record["error_type"], record["error"]) == (error_type, text)
    assert "in the handler process:" in caplog.text
    assert "raise _FAILURES[how]" in caplog.text


@pytest.mark.parametrize("how", ["retry", "odd retry"])
def test_a_retry_requested_in_a_process_is_reported_by_the_worker(
    work: Running, caplog: pytest.LogCaptureFixture, how: str
) -> None:
    caplog.set_level(logging.INFO, "rabbitdelay.worker")
    assert work.ask(process_handlers.fail, how) == how
    requested = [one for one in caplog.records if hasattr(one, "retry_in_ms")]
    assert [(one.levelname, one.reason) for one in requested] == [("INFO", "not yet")]  # type: ignore[attr-defined]
    assert "Traceback" not in caplog.text


@pytest.mark.parametrize(
    ("how", "reason"), [("bury", "never"), ("odd bury", "never"), ("not a job", "nonsense")]
)
def test_exceptions_that_bury_a_job_work_in_processes(work: Running, how: str, reason: str) -> None:
    with pytest.raises(NoResponse, match=reason):
        work.ask(process_handlers.fail, how)


def test_a_job_whose_return_value_cannot_be_pickled_is_finished(work: Running) -> None:
    """A wait for its response raises the reason."""
    before = work.counts_before()
    with pytest.raises(NoResponse, match="a lock cannot be sent to the worker: cannot pickle"):
        work.ask(process_handlers.give_lock)
    wait_until(lambda: work.counts.finished == before.finished + 1)


# Settling in the process


@pytest.mark.parametrize(
    ("verb", "finished", "released", "buried"),
    [("finish", 1, 0, 0), ("release", 1, 1, 0), ("bury", 0, 0, 1)],
)
def test_a_handler_settles_its_job_in_its_process(
    work: Running, verb: str, finished: int, released: int, buried: int
) -> None:
    before = work.counts_before()
    work.put(process_handlers.settle, verb)
    wait_until(lambda: work.counts.finished == before.finished + finished)
    wait_until(lambda: work.counts.buried == before.buried + buried)
    assert work.counts.released == before.released + released


def test_a_handler_hands_its_job_back_in_its_process(work: Running, tmp_path: Path) -> None:
    notes, before = tmp_path / "notes", work.counts_before()
    work.put(process_handlers.hand_back_once, str(notes))
    assert wait_for_lines(notes, 2) == [["1", "0"], ["1", "1"]]
    wait_until(lambda: work.counts.finished == before.finished + 1)


def test_a_job_is_a_context_manager_in_a_process(work: Running, tmp_path: Path) -> None:
    notes, before = tmp_path / "notes", work.counts_before()
    work.put(process_handlers.settle_in_block, str(notes))
    assert wait_for_lines(notes, 2) == [["1", "True"], ["1", "False"]]
    wait_until(lambda: work.counts.finished == before.finished + 1)


def test_a_lost_job_cannot_kill_the_handler_of_the_next() -> None:
    child, first, second = HandlerProcess([]), object(), object()
    assert child.has_message(patience(20))
    assert child.receive() == Ready()
    child.set_work(second)
    child.kill_if_running(first)
    assert not child.has_message(0.2)
    child.kill_if_running(second)
    assert child.has_message(patience(5))
    assert describe_exit(child.end()) == "signal 9 (SIGKILL)"


def test_a_thread_left_behind_by_a_handler_is_refused(work: Running, tmp_path: Path) -> None:
    """The thread cannot touch the next job by mistake."""
    notes = tmp_path / "notes"
    work.put(process_handlers.touch_too_late, str(notes), id="first")
    assert "the handler of job first has ended" in " ".join(wait_for_lines(notes, 1)[0])


def test_a_handler_that_continues_after_finishing_its_job_is_killed_at_the_ttr(
    work: Running, tmp_path: Path
) -> None:
    notes, before = tmp_path / "notes", work.counts_before()
    work.put(process_handlers.finish_and_hang, str(notes), ttr=2)
    pid = int(wait_for_lines(notes, 1)[0][0])
    wait_until(lambda: not is_running(pid))
    wait_until(lambda: work.counts.finished == before.finished + 1)


# Handlers that cannot be imported


def no_name() -> Callable[[Any], None]:
    def nested(_body: Any) -> None:  # noqa: ANN401 - any body
        pass

    return nested


@pytest.mark.parametrize("function", [lambda _body: None, no_name(), Path("a").with_name])
def test_a_function_without_a_name_of_its_own_is_refused(
    broker_url: str, namespace: str, function: Callable[..., Any]
) -> None:
    worker = new_worker(broker_url, namespace)
    worker.handler(TOPIC)(function)
    with pytest.raises(InvalidConfiguration, match="at the top level of a module"):
        worker.run()


# Programs

SCRIPT = """
import os, sys, time
from pydantic import BaseModel
from rabbitdelay import Worker
from tests.support.programs.process_handlers import note

SETUP
url, namespace, notes = sys.argv[1:]
worker = Worker(url, namespace=namespace, pool="process", stabilise_seconds=0, grace=20)

class Answer(BaseModel):
    pid: int
    attempt: int

@worker.handler("work")
def work(body, job):
    note(notes, "began", os.getpid())
    while body == "wait" and not os.path.exists(notes + ".go"):
        time.sleep(0.01)
    note(notes, "done", os.getpid())
    return Answer(pid=os.getpid(), attempt=job.attempt)

if GUARD:
    worker.run()
"""
GUARD = '__name__ == "__main__"'


@contextmanager
def program(
    tmp_path: Path, url: str, namespace: str, setup: str = "", guard: str = GUARD
) -> Iterator[subprocess.Popen[str]]:
    """Run a script with a worker, in its own process group."""
    script = tmp_path / "script.py"
    script.write_text(SCRIPT.replace("SETUP", setup).replace("GUARD", guard))
    with subprocess.Popen(
        [sys.executable, str(script), url, namespace, str(tmp_path / "notes")],
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def test_a_ttr_does_not_include_the_start_of_a_process(
    broker_url: str, namespace: str, client: Client, tmp_path: Path
) -> None:
    """Importing the modules of its handlers takes longer than the TTR of its jobs."""
    with program(tmp_path, broker_url, namespace, setup="time.sleep(3)"):
        client.put(TOPIC, "wait")
        wait_for_lines(tmp_path / "notes", 1)  # the process that was started first is busy
        response = client.response(client.put(TOPIC, ttr=2, reply=True), wait=patience(30))
        assert response is not None
        assert response.body["attempt"] == 1


def test_signals_to_all_processes_leave_handlers_their_grace_period(
    broker_url: str, namespace: str, client: Client, tmp_path: Path
) -> None:
    """Ctrl-C goes to the terminal's process group, and systemd's SIGTERM to every process."""
    notes = tmp_path / "notes"
    with program(tmp_path, broker_url, namespace) as process:
        client.put(TOPIC, "wait")
        pid = int(wait_for_lines(notes, 1)[0][1])
        os.kill(pid, signal.SIGTERM)
        os.kill(pid, signal.SIGINT)
        os.killpg(process.pid, signal.SIGINT)
        (tmp_path / "notes.go").touch()
        assert process.wait(patience(20)) == 0
    assert lines(notes) == [["began", str(pid)], ["done", str(pid)]]
    assert not is_running(pid)


def test_no_process_outlives_a_killed_worker(
    broker_url: str, namespace: str, client: Client, tmp_path: Path
) -> None:
    notes = tmp_path / "notes"
    with program(tmp_path, broker_url, namespace) as process:
        client.put(TOPIC, "wait")
        response = client.response(client.put(TOPIC, reply=True), wait=patience(20))
        assert response is not None
        idle_pid = response.body["pid"]
        pids = {int(line[1]) for line in wait_for_lines(notes, 3)}
        assert len(pids) == 2
        assert idle_pid in pids
        process.kill()
        wait_until(lambda: not any(map(is_running, pids)), seconds=10, what="both processes ended")


def test_a_script_that_runs_its_worker_when_imported_gets_an_error(
    broker_url: str, namespace: str, tmp_path: Path
) -> None:
    with program(tmp_path, broker_url, namespace, guard="True") as process:
        _, stderr = process.communicate(timeout=patience(30))
        assert process.returncode == 1
    assert 'it must call run() under `if __name__ == "__main__":`' in stderr


def test_a_handler_that_cannot_be_imported_is_refused(
    broker_url: str, namespace: str, tmp_path: Path
) -> None:
    """A script passed with -c has no file to import."""
    code = SCRIPT.replace("SETUP", "").replace("GUARD", "True")
    command = [sys.executable, "-c", code, broker_url, namespace, str(tmp_path / "notes")]
    done = subprocess.run(
        command,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=patience(30),
        check=False,
    )
    assert done.returncode == 1
    assert "a handler cannot be imported in another process" in done.stderr
