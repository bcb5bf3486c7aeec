"""`rabbitdelay buried`: listing, showing, kicking and dropping jobs."""

import json
import os
import signal
import subprocess
import time
from base64 import b64decode
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import pika
import pika.exceptions
import pytest

from tests.acceptance.conftest import CommandLine
from tests.support.brokers.receiver import Receiver
from tests.support.brokers.suite_broker import SharedBroker
from tests.support.patience import patience, wait_until
from tests.support.programs.background import background

pytestmark = pytest.mark.usefixtures("nothing_set")

Bury = Callable[..., None]
FAILED = {
    "rd-attempt": 3,
    "rd-reason": "attempt 3 of 3 failed",
    "rd-error": "no such order\x1b[31m\nline 2",
    "rd-error-type": "LookupError",
}


@pytest.fixture
def bury(rabbitdelay: CommandLine, broker_url: str, namespace: str) -> Bury:
    """Bury jobs of topic `mail`, 4 min 12 s ago."""
    rabbitdelay("topology", "apply", "--topic", "mail")

    def run(*ids: str, body: bytes = b'{"order": 42}', **headers: object) -> None:
        when_ms = time.time_ns() // 1_000_000 - 252_000
        named = FAILED | {"rd-buried": when_ms} | {f"rd-{key}": headers[key] for key in headers}
        with pika.BlockingConnection(pika.URLParameters(broker_url)) as connection:
            channel = connection.channel()
            channel.confirm_delivery()
            for name in ids:
                properties = pika.BasicProperties(
                    "application/json", message_id=name, headers=named, delivery_mode=2
                )
                channel.basic_publish(f"{namespace}.v1.buried", "mail", body, properties)

    return run


@pytest.fixture
def ready(broker_url: str, namespace: str) -> Iterator[Receiver]:
    """The jobs of topic `mail` that become ready."""
    with Receiver(broker_url, f"{namespace}.v1.ready.mail") as receiver:
        yield receiver


def test_list_shows_times_and_reasons_and_removes_nothing(
    rabbitdelay: CommandLine, bury: Bury
) -> None:
    bury("a")
    for _ in range(2):
        lines = rabbitdelay("buried", "list", "mail").stdout.splitlines()
        assert lines[0].split() == ["id", "attempts", "buried", "why"]
        assert lines[1].split()[:2] == ["a", "3"]
        assert "4m1" in lines[1]
        why = "attempt 3 of 3 failed; LookupError: no such order·[31m·line 2"
        assert lines[1].endswith(f" ago  {why}")
        assert lines[-1] == "1 of 1 buried job"


def test_list_prints_json(rabbitdelay: CommandLine, bury: Bury) -> None:
    bury("a", "b", "c")
    listed = json.loads(rabbitdelay("buried", "list", "mail", "--limit", "2", "--json").stdout)
    assert (listed["total"], len(listed["jobs"])) == (3, 2)
    first = listed["jobs"][0]
    assert (first["attempts"], first["reason"]) == (3, "attempt 3 of 3 failed")
    assert first["error_type"] == "LookupError"
    chosen = json.loads(rabbitdelay("buried", "list", "mail", "--id", "c", "--json").stdout)
    assert [job["id"] for job in chosen["jobs"]] == ["c"]


def test_show_prints_every_property_of_a_job(rabbitdelay: CommandLine, bury: Bury) -> None:
    bury("a", ttr=60_000)
    bury("b")
    result = rabbitdelay("buried", "show", "mail", "a")
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    assert lines[0] == f"{'id':16}a"
    assert f"{'why':16}attempt 3 of 3 failed" in lines
    error = lines.index(f"{'last error':16}LookupError: no such order·[31m")
    assert lines[error + 1] == f"{'':16}line 2"
    assert f"{'':16}rd-ttr 60000" in lines
    assert lines[-4:] == ["body, 13 bytes", "  {", '    "order": 42', "  }"]
    assert "b" not in [line[16:] for line in lines]


def test_show_prints_the_traceback_line_by_line(rabbitdelay: CommandLine, bury: Bury) -> None:
    text = 'Traceback (most recent call last):\n  File "a.py", line 1, in close\nLookupError: 42'
    bury("a", traceback=text)
    shown = rabbitdelay("buried", "show", "mail", "a").stdout
    indented = [f"{'':16}{line}" for line in text.splitlines()[1:]]
    assert "\n".join([f"{'traceback':16}Traceback (most recent call last):", *indented]) in shown
    assert "rd-traceback" not in shown
    (job,) = json.loads(rabbitdelay("buried", "show", "mail", "a", "--json").stdout)
    assert job["traceback"] == text


def test_show_prints_every_job_with_the_id(rabbitdelay: CommandLine, bury: Bury) -> None:
    bury("a", "a", body=b"\xff\x00")
    shown = json.loads(rabbitdelay("buried", "show", "mail", "a", "--json").stdout)
    assert [job["id"] for job in shown] == ["a", "a"]
    assert shown[0]["body_text"] is None
    assert b64decode(shown[0]["body_base64"]) == b"\xff\x00"
    assert shown[0]["headers"]["rd-reason"] == "attempt 3 of 3 failed"
    text = rabbitdelay("buried", "show", "mail", "a").stdout
    assert text.count("0000  ff 00 ") == 2


def test_strange_messages_are_listed_and_shown(rabbitdelay: CommandLine, bury: Bury) -> None:
    bury("a", attempt="?", due=1 << 60, buried="?", reason=7, error=["x"])
    assert "unknown" in rabbitdelay("buried", "list", "mail").stdout
    for arguments in (["show", "mail", "a"], ["show", "mail", "a", "--json"]):
        result = rabbitdelay("buried", *arguments)
        assert result.exit_code == 0
        assert "1152921504606846976 ms since 1970" in result.stdout


def test_kick_makes_jobs_ready_again(rabbitdelay: CommandLine, bury: Bury, ready: Receiver) -> None:
    bury("a", "b", "c")
    assert rabbitdelay("buried", "kick", "mail", "--id", "b").stdout == "1 job kicked\n"
    one = rabbitdelay("buried", "kick", "mail", "--all", "--limit", "1", "--json")
    assert json.loads(one.stdout) == {"kicked": 1, "stayed": 0, "dropped_deleted": 0}
    assert rabbitdelay("buried", "kick", "mail", "--all").stdout == "1 job kicked\n"
    ready.wait_for("a", "b", "c")
    assert {message.headers["rd-attempt"] for message in ready.messages} == {1}
    assert _total(rabbitdelay) == 0


def test_deleted_jobs_are_neither_shown_nor_kicked(
    rabbitdelay: CommandLine, bury: Bury, ready: Receiver
) -> None:
    bury("a", "b", "c", "d")
    rabbitdelay("delete", "a", "c")
    shown = rabbitdelay("buried", "show", "mail", "a")
    assert (shown.exit_code, shown.stdout) == (3, "")
    told = ["1 deleted job dropped", "no job a is buried in topic mail"]
    assert shown.stderr.splitlines() == told
    listed = rabbitdelay("buried", "list", "mail")
    assert [line.split()[0] for line in listed.stdout.splitlines()[1:3]] == ["b", "d"]
    assert listed.stdout.endswith("\n2 of 2 buried jobs\n")
    assert listed.stderr == "1 deleted job dropped\n"
    rabbitdelay("delete", "b")
    kicked = rabbitdelay("buried", "kick", "mail", "--all", "--json")
    assert json.loads(kicked.stdout) == {"kicked": 1, "stayed": 0, "dropped_deleted": 1}
    ready.wait_for("d")
    assert _total(rabbitdelay) == 0


def test_a_kick_of_deleted_jobs_alone_exits_with_3(rabbitdelay: CommandLine, bury: Bury) -> None:
    bury("a")
    rabbitdelay("delete", "a")
    kicked = rabbitdelay("buried", "kick", "mail", "--all")
    assert (kicked.exit_code, kicked.stdout) == (3, "0 jobs kicked\n")
    assert kicked.stderr == "1 deleted job dropped\n"


def test_an_interrupted_kick_loses_nothing(
    rabbitdelay: CommandLine,
    options: list[str],
    program: list[str],
    bury: Bury,
    *,
    shared_broker: SharedBroker,
    namespace: str,
) -> None:
    """The ready queue refuses two thirds of the jobs, so the signal comes before the kick ends."""
    ids = [f"j{number}" for number in range(300)]
    bury(*ids)
    queue = f"{namespace}.v1.ready.mail"
    command = [*program, *options, "buried", "kick", "mail", "--all"]
    with room_in(queue, shared_broker, namespace) as ready_count:
        before = ready_count()
        with background(subprocess.Popen(command, stderr=subprocess.PIPE, text=True)) as process:
            assert process.stderr is not None
            wait_until(lambda: ready_count() > before)
            os.kill(process.pid, signal.SIGINT)
            told = process.stderr.read()
            assert process.wait(patience(10)) == 130
    assert "may still be buried too" in told
    with Receiver(shared_broker.url, queue) as ready:
        ready.wait_for_count(int(told.removeprefix("interrupted: ").split()[0]))
        wait_until(lambda: _total(rabbitdelay) + len(ready.ids.keys() & set(ids)) >= len(ids))
        listed = json.loads(
            rabbitdelay("buried", "list", "mail", "--limit", "300", "--json").stdout
        )
        assert {job["id"] for job in listed["jobs"]} | (ready.ids.keys() & set(ids)) == set(ids)


ROOM = 100


@contextmanager
def room_in(queue: str, broker: SharedBroker, namespace: str) -> Iterator[Callable[[], int]]:
    """Limit a queue to `ROOM` messages; yield a function that counts its messages."""
    policy = f"policies/%2F/{namespace}"
    definition = {"max-length": 2 * ROOM, "overflow": "reject-publish"}
    pattern = f"^{queue.replace('.', '[.]')}$"
    broker.management.put(policy, {"pattern": pattern, "definition": definition})
    with pika.BlockingConnection(pika.URLParameters(broker.url)) as connection:
        channel = connection.channel()
        channel.confirm_delivery()

        def count() -> int:
            return int(channel.queue_declare(queue, passive=True).method.message_count)

        with suppress(pika.exceptions.NackError):  # a policy takes effect after a moment
            while True:
                channel.basic_publish("", queue, b"full")
        for _ in range(count() - ROOM):
            channel.basic_get(queue, auto_ack=True)
        try:
            yield count
        finally:
            broker.management.remove(policy)


def test_drop_asks_for_confirmation(rabbitdelay: CommandLine, bury: Bury) -> None:
    bury("a", "b")
    refused = rabbitdelay("buried", "drop", "mail", "--all", input="n\n")
    assert (refused.exit_code, refused.stdout) == (3, "0 jobs dropped\n")
    assert "Drop 2 jobs for good?" in refused.stderr
    refused = rabbitdelay("buried", "drop", "mail", "--all", input="")
    assert (refused.exit_code, refused.stdout) == (2, "")
    assert _total(rabbitdelay) == 2
    agreed = rabbitdelay("buried", "drop", "mail", "--id", "a", input="y\n")
    assert (agreed.exit_code, agreed.stdout) == (0, "1 job dropped\n")
    every = rabbitdelay("buried", "drop", "mail", "--all", "--yes", "--json")
    assert json.loads(every.stdout) == {"dropped": 1}
    assert _total(rabbitdelay) == 0


@pytest.mark.parametrize(
    "arguments",
    [
        ("list", "mail", "--id", "x"),
        ("show", "mail", "x"),
        ("kick", "mail", "--id", "x"),
        ("drop", "mail", "--id", "x"),
    ],
)
def test_a_missing_job_exits_with_3(
    rabbitdelay: CommandLine, bury: Bury, arguments: tuple[str, ...]
) -> None:
    bury("a")
    assert rabbitdelay("buried", *arguments).exit_code == 3
    assert _total(rabbitdelay) == 1


@pytest.mark.usefixtures("existing_namespace")
def test_a_missing_topic_exits_with_3(rabbitdelay: CommandLine) -> None:
    for arguments in (["list", "x"], ["show", "x", "a"], ["kick", "x", "--all"]):
        result = rabbitdelay("buried", *arguments)
        assert (result.exit_code, result.stdout) == (3, "")
        assert result.stderr.startswith("no such topic: x ")


def test_an_empty_queue_is_listed(rabbitdelay: CommandLine) -> None:
    rabbitdelay("topology", "apply", "--topic", "mail")
    result = rabbitdelay("buried", "list", "mail")
    assert (result.exit_code, result.stdout) == (0, "0 of 0 buried jobs\n")


@pytest.mark.parametrize("command", ["kick", "drop"])
def test_kick_and_drop_require_an_id_or_all(rabbitdelay: CommandLine, command: str) -> None:
    for arguments in ((), ("--id", "a", "--all")):
        result = rabbitdelay("buried", command, "mail", *arguments)
        assert result.exit_code == 2
        assert "give either --id or --all" in result.stderr


def _total(rabbitdelay: CommandLine) -> int:
    result = rabbitdelay("buried", "list", "mail", "--limit", "1", "--json")
    return int(json.loads(result.stdout)["total"])
