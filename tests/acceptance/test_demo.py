"""`rabbitdelay demo` completes without a terminal, and leaves no process or file behind."""

import os
import re
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pika
import pytest

from rabbitdelay import Client
from rabbitdelay.cli.output.console import output
from rabbitdelay.core.deletes.records import Delete, Fence, Keep, Record, decode, encode
from rabbitdelay.core.topology.topology import Topology
from rabbitdelay.demo import broker as demo_broker
from rabbitdelay.demo import demonstration
from rabbitdelay.demo.demonstration import Demo
from rabbitdelay.demo.display import Display
from rabbitdelay.demo.orders import NEW_DELAY_MS, Change, Order
from rabbitdelay.demo.shop import Shop
from rabbitdelay.executors.reserved_job import ReservedJob
from rabbitdelay.private_broker import PrivateBroker
from tests.support.patience import patience, wait_until
from tests.support.programs.background import background


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """An environment whose temporary files are in a folder of the test."""
    return {**os.environ, "TMPDIR": str(tmp_path)}


def test_the_demo_runs_to_its_end(
    program: list[str], environment: dict[str, str], tmp_path: Path
) -> None:
    began = time.monotonic()
    result = subprocess.run(
        [*program, "demo"],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=patience(60),
    )
    assert result.returncode == 0, result.stdout + result.stderr
    assert time.monotonic() - began < patience(50)
    assert "✔ 0 early, 0 lost, 0 run twice, 0 run at a cancelled time" in result.stdout
    assert "Lateness of the 106 arrivals" in result.stdout
    assert_in_order(
        result.stdout,
        *("hangs: redelivered after 2 s", "Niklaus, a compass.*not paid: closed"),
    )
    assert_in_order(
        result.stdout,
        *("fails: attempt 1", "fails: attempt 2", "Donald, an organ.*not paid: closed"),
    )
    assert_in_order(
        result.stdout,
        *("buried, until kicked", "there is no such moon.*now kicked", "Margaret, a moon.*closed"),
    )
    assert_in_order(
        result.stdout,
        *("Hedy, a radio: close in 3 s", "Hedy, a radio: gets more time", r"Hedy.* — .*: no run"),
        "Hedy, a radio +5 s .*not paid: closed",
    )
    assert_in_order(
        result.stdout,
        *("Katherine, a map: close in 5 s", "paid; its job is deleted", r"Kath.* — .*: no run"),
    )
    assert len(re.findall("^Katherine", result.stdout, re.MULTILINE)) == 1
    assert "2 deleted or rescheduled jobs were dropped" in result.stdout
    assert re.search(r"p50 \d+ ms, p99 \d+ ms, max \d+ ms", result.stdout)
    assert re.search(r"management UI +http://127.0.0.1:\d+/ +\(guest, guest\)", result.stdout)
    assert "\x1b" not in result.stdout, "control characters without a terminal"
    assert processes_in(tmp_path) == []
    assert list(tmp_path.iterdir()) == []


SHORT_STORY = (
    Order("paid", "Paid", 2_000, paid=True, placed_seconds=0.0, change=Change.DELETED),
    Order("moved", "Moved", 2_000, paid=False, placed_seconds=0.0, change=Change.RESCHEDULED),
    Order("other", "Other", 2_000, paid=False, placed_seconds=0.0),
)


def test_the_deleted_job_never_runs_and_the_rescheduled_one_only_at_its_new_time(
    broker_url: str, namespace: str, runs: list[ReservedJob]
) -> None:
    """Checked by the handler's calls and the records in the broker."""
    demo = Demo(Display(output()), broker_url, SHORT_STORY, namespace)
    demo.prepare()
    demo.run()
    assert demo.scoreboard.is_clean
    assert demo.dropped == 2
    other, moved = runs
    assert (other.id, moved.id) == ("other", "moved")
    assert moved.due_ms - moved.put_ms == NEW_DELAY_MS
    assert moved.due_ms - other.due_ms > NEW_DELAY_MS - SHORT_STORY[1].delay_ms
    kinds = [type(record) for record in log_of(broker_url, namespace)]
    assert (kinds.count(Keep), kinds.count(Delete)) == (1, 1)


@pytest.mark.usefixtures("runs")
def test_the_demo_fails_if_deletes_have_no_effect(
    broker_url: str,
    namespace: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(Client, "delete", Mock())
    monkeypatch.setattr(Client, "reschedule", Mock())
    demo = Demo(Display(output()), broker_url, SHORT_STORY, namespace)
    demo.prepare()
    with monkeypatch.context() as patch:
        patch.setattr(demonstration, "PATIENCE_SECONDS", 0.0)
        demo.run()
    assert demo.scoreboard.revived == 2
    assert not demo.scoreboard.is_clean
    assert demo.dropped == 0
    assert "no run" not in capsys.readouterr().out


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> list[ReservedJob]:
    """The jobs that the shop's handler is called with, in order."""
    called: list[ReservedJob] = []
    close = Shop._close

    def note(shop: Shop, job: ReservedJob) -> None:
        called.append(job)
        close(shop, job)

    monkeypatch.setattr(Shop, "_close", note)
    return called


def log_of(broker_url: str, namespace: str) -> list[Record]:
    """Return all records in the log of deletes, up to a fence."""
    name = Topology(namespace).tombstones
    with pika.BlockingConnection(pika.URLParameters(broker_url)) as connection:
        channel = connection.channel()
        channel.basic_publish(name, "", encode(Fence("the end")))
        channel.basic_qos(prefetch_count=100)
        found = []
        deliveries: Iterator[Any] = channel.consume(name, arguments={"x-stream-offset": "first"})
        for method, _, body in deliveries:
            channel.basic_ack(method.delivery_tag)
            found.append(decode(body))
            if found[-1] == Fence("the end"):
                return found
    raise AssertionError("the fence is missing from the log")


def test_the_demo_says_how_to_find_a_kept_broker(capsys: pytest.CaptureFixture[str]) -> None:
    broker = Mock(spec=PrivateBroker, directory=Path("/tmp/an other"), url="amqp://x")  # noqa: S108 - not made
    demo_broker.show_addresses(Display(output()), broker, keep=True)
    text = capsys.readouterr().out
    assert "export RABBITDELAY_BROKER_DIR='/tmp/an other'" in text
    assert "rabbitdelay broker stop --dir '/tmp/an other'" in text


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_demo_leaves_nothing_behind(
    program: list[str], environment: dict[str, str], tmp_path: Path, number: signal.Signals
) -> None:
    with background(
        subprocess.Popen(
            [*program, "demo"], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
    ) as process:
        wait_until(lambda: processes_in(tmp_path), what="the broker starts")
        process.send_signal(number)
        _, err = process.communicate(timeout=patience(20))
    assert (process.returncode, err) == (130, b"interrupted\n")
    assert processes_in(tmp_path) == []
    assert list(tmp_path.iterdir()) == []


def assert_in_order(text: str, *patterns: str) -> None:
    assert re.search("(?s)" + ".*".join(f"(?-s:{one})" for one in patterns), text), text


def processes_in(folder: Path) -> list[str]:
    """Return the broker processes that were started for this folder."""
    mark = f"RABBITDELAY_BROKER_PROCESS={folder}".encode()
    return [
        entry.name
        for entry in Path("/proc").iterdir()
        if entry.name.isdigit() and mark in _environment(entry)
    ]


def _environment(process: Path) -> bytes:
    try:
        return process.joinpath("environ").read_bytes()
    except OSError:
        return b""
