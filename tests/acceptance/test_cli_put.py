"""`rabbitdelay put`: one job, or many from a file, and the messages that arrive."""

import json
import os
import pty
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from click.testing import CliRunner

from rabbitdelay.cli import root
from tests.acceptance.conftest import CommandLine
from tests.support.brokers.receiver import Received, Receiver
from tests.support.patience import patience
from tests.support.programs.background import background

pytestmark = pytest.mark.usefixtures("nothing_set")

Receive = Callable[[int], list[Received]]


@pytest.fixture
def receive(broker_url: str, namespace: str) -> Iterator[Receive]:
    """Wait for `count` jobs of the topic orderclose."""
    with ExitStack() as stack:

        def start(count: int) -> list[Received]:
            queue = f"{namespace}.v1.ready.orderclose"
            return stack.enter_context(Receiver(broker_url, queue)).wait_for_count(count)

        yield start


@pytest.mark.parametrize(
    ("body", "content_type"),
    [
        ('{"order":  42}', "application/json"),
        ("42", "application/json"),
        ("hello", "text/plain; charset=utf-8"),
        ("NaN", "text/plain; charset=utf-8"),
        ("grün", "text/plain; charset=utf-8"),
        ("", "text/plain; charset=utf-8"),
    ],
)
def test_a_body_arrives_unchanged(
    rabbitdelay: CommandLine,
    receive: Receive,
    body: str,
    content_type: str,
) -> None:
    assert rabbitdelay("put", "orderclose", body).exit_code == 0
    (received,) = receive(1)
    assert received.body == body.encode()
    assert received.properties.content_type == content_type


def test_a_missing_body_is_null(rabbitdelay: CommandLine, receive: Receive) -> None:
    assert rabbitdelay("put", "orderclose").exit_code == 0
    (received,) = receive(1)
    assert (received.body, received.properties.content_type) == (b"null", "application/json")


def test_a_body_from_stdin_may_be_any_bytes(rabbitdelay: CommandLine, receive: Receive) -> None:
    assert rabbitdelay("put", "orderclose", "-", input=b"\xff\x00").exit_code == 0
    (received,) = receive(1)
    assert received.body == b"\xff\x00"
    assert received.properties.content_type == "application/octet-stream"


def test_every_option_arrives(rabbitdelay: CommandLine, receive: Receive) -> None:
    result = rabbitdelay(
        *("put", "orderclose", "<a/>", "--delay", "250ms", "--ttr", "2m", "--id", "close-42"),
        *("--max-attempts", "3", "--callback", "https://example.org/", "--content-type"),
        *("text/xml", "--backoff", "2s", "--backoff-max", "1m", "--reply-to", "answers", "--json"),
        *("--header", "trace-id=a=b", "--header", "empty="),
    )
    job = json.loads(result.stdout)
    (received,) = receive(1)
    assert received.id == job["id"] == "close-42"
    assert received.properties.content_type == "text/xml"
    assert received.headers["rd-ttr"] == job["ttr_ms"] == 120_000
    assert received.headers["rd-max-attempts"] == 3
    assert received.headers["rd-callback"] == "https://example.org/"
    assert received.headers["rd-backoff"] == 2_000
    assert received.headers["rd-backoff-max"] == 60_000
    assert received.properties.reply_to == "answers"
    assert job["headers"] == {"trace-id": "a=b", "empty": ""}
    assert job["headers"].items() <= received.headers.items()
    assert received.headers["rd-due"] - received.headers["rd-put"] == 250
    assert received.lateness_ms >= 0


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--header", "trace-id"], "'trace-id' is not NAME=VALUE"),
        (["--header", "a=1", "--header", "a=2"], "header 'a' is given twice"),
        (["--header", "rd-due=1"], "header 'rd-due' is reserved"),
        (["--header", "x-a=1"], "header 'x-a' is reserved"),
        (["--header", "a=1", "--file", "-"], "--header cannot be combined with --file"),
    ],
)
def test_an_invalid_header_is_refused(
    rabbitdelay: CommandLine, arguments: list[str], told: str
) -> None:
    result = rabbitdelay("put", "orderclose", *arguments)
    assert result.exit_code == 2
    assert told in result.stderr


def test_headers_are_kept_by_reschedule_and_read_from_a_file(
    rabbitdelay: CommandLine, receive: Receive
) -> None:
    put = rabbitdelay("put", "orderclose", "--delay", "1h", "--header", "n=1", "--json").stdout
    assert rabbitdelay("reschedule", "-", "--delay", "0", input=put.encode()).exit_code == 0
    line = b'{"topic": "orderclose", "headers": {"n": [2]}}'
    assert rabbitdelay("put", "--file", "-", input=line).exit_code == 0
    assert [received.headers["n"] for received in receive(2)] == ["1", [2]]


def test_a_terminal_shows_that_a_file_waits_for_confirms(
    options: list[str], program: list[str], tmp_path: Path
) -> None:
    """New queues stabilise in this test, so the confirms take 3 s."""
    file = tmp_path / "jobs.jsonl"
    file.write_text('{"topic": "mail"}\n\n' * 3)
    stabilising = [*options, "--stabilise-seconds", "3"]
    ours, theirs = pty.openpty()
    with background(
        subprocess.Popen(
            [*program, *stabilising, "put", "--file", str(file)],
            env=os.environ | {"TERM": "xterm", "COLUMNS": "200"},
            stdout=subprocess.PIPE,
            stderr=theirs,
        )
    ) as process:
        os.close(theirs)
        shown = b""
        while b"0 of 3 confirmed, waiting for the broker's confirm" not in shown:
            shown += os.read(ours, 4096)
        assert process.stdout is not None
        assert process.stdout.read() == b"3 jobs confirmed\n"
        assert process.wait(patience(20)) == 0
    os.close(ours)


def test_put_says_that_it_reads_jobs_from_the_terminal(
    options: list[str], program: list[str]
) -> None:
    ours, theirs = pty.openpty()
    with background(
        subprocess.Popen(
            [*program, *options, "put", "mail", "--file", "-"],
            stdin=theirs,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
    ) as process:
        os.close(theirs)
        assert process.stderr is not None
        assert b"reading jobs from the terminal" in process.stderr.readline()
        os.write(ours, b"{}\n\x04")
        assert process.stdout is not None
        assert process.stdout.read() == b"1 job confirmed\n"
        assert process.wait(patience(20)) == 0
    os.close(ours)


def test_a_job_is_put_for_a_time_with_a_zone(rabbitdelay: CommandLine, receive: Receive) -> None:
    due = datetime.now(UTC) + timedelta(seconds=1)
    assert rabbitdelay("put", "orderclose", "--at", due.isoformat()).exit_code == 0
    (received,) = receive(1)
    assert received.received_ms >= due.timestamp() * 1000


def test_put_prints_the_job(rabbitdelay: CommandLine) -> None:
    text = rabbitdelay("put", "orderclose", "--id", "a", "--delay", "30m").stdout
    assert text.startswith("put a to orderclose, due 20")
    assert text.endswith("Z (in 30m)\n")


def test_a_body_that_is_too_large_is_refused(rabbitdelay: CommandLine) -> None:
    result = rabbitdelay("put", "orderclose", "-", input=b"x" * (1024 * 1024 + 1))
    assert result.exit_code == 2
    assert "body must be at most" in result.stderr


def test_many_jobs_are_put_from_a_file(
    rabbitdelay: CommandLine, receive: Receive, tmp_path: Path
) -> None:
    """TOPIC applies to lines without a topic; empty lines are skipped."""
    file = tmp_path / "jobs.jsonl"
    lines = [json.dumps({"id": f"job-{n}", "body": {"n": n}, "delay": "100ms"}) for n in range(50)]
    file.write_text("\n\n".join(lines) + "\n")
    result = rabbitdelay("put", "orderclose", "--file", str(file))
    assert (result.exit_code, result.stdout) == (0, "50 jobs confirmed\n")
    assert {one.id for one in receive(50)} == {f"job-{n}" for n in range(50)}


def test_many_jobs_are_put_from_stdin(rabbitdelay: CommandLine) -> None:
    lines = '{"topic": "mail", "body": 1}\n{"topic": "report", "delay": 90}\n'
    result = rabbitdelay("put", "--file", "-", "--json", input=lines)
    assert json.loads(result.stdout) == {"confirmed": 2}


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("{", "not JSON"),
        ("[1]", "not a JSON object"),
        ('{"delay": "soon"}', "delay: invalid duration 'soon'"),
        ('{"at": "2027-01-01T00:00:00"}', "at: "),
        ('{"delay": "20y"}', "delay must be at most 9 years"),
        ('{"topic": "no spaces"}', "topic 'no spaces' may only contain"),
        ('{"colour": "red"}', "colour: "),
    ],
)
def test_an_invalid_line_is_named(rabbitdelay: CommandLine, line: str, reason: str) -> None:
    """Jobs before the line are confirmed, and jobs after it are not sent."""
    lines = f'{{"id": "a"}}\n\n{{"id": "b"}}\n{line}\n{{"id": "c"}}\n'
    result = rabbitdelay("put", "orderclose", "--file", "-", input=lines)
    assert result.exit_code == 2
    assert result.stderr.startswith(f"error: line 4: {reason}")
    assert "; confirmed: line 1-3; not confirmed: line 4; nothing after line 4" in result.stderr


def test_a_line_without_a_topic_needs_a_default(rabbitdelay: CommandLine) -> None:
    result = rabbitdelay("put", "--file", "-", input='{"body": 1}\n')
    assert result.exit_code == 2
    assert "line 1: topic: " in result.stderr


def test_options_of_one_job_are_refused_with_a_file(rabbitdelay: CommandLine) -> None:
    result = rabbitdelay("put", "orderclose", "--file", "-", "--max-attempts", "3", input="")
    assert result.exit_code == 2
    assert "--max-attempts cannot be combined with --file" in result.stderr


def test_the_first_put_of_a_quorum_namespace_waits_for_it_to_stabilise(
    broker_url: str, namespace: str
) -> None:
    """The put is confirmed after 3 s. Without a terminal it prints no note about that."""
    options = ["--url", broker_url, "--namespace", namespace]
    result = CliRunner().invoke(root, [*options, "put", "orderclose", "--id", "a"])
    assert result.exit_code == 0, result.output
    assert result.stderr == ""


def test_a_negative_delay_means_now(
    rabbitdelay: CommandLine, receive: Receive, tmp_path: Path
) -> None:
    put = rabbitdelay("put", "orderclose", "--delay", "-5", "--json")
    assert put.exit_code == 0, put.output
    told = json.loads(put.stdout)
    assert (told["due"], told["attempt"]) == (told["put"], 1)
    file = tmp_path / "jobs.jsonl"
    file.write_text('{"topic": "orderclose", "delay": "-1h"}\n{"topic": "orderclose", "delay": -3}')
    assert rabbitdelay("put", "--file", str(file)).exit_code == 0
    assert len(receive(3)) == 3
