"""`rabbitdelay stats`: the number of jobs by state, printed once or refreshed."""

import json
import os
import signal
import socket
import subprocess
import threading
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, Self
from urllib.parse import urlsplit

import pika
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

from rabbitdelay.cli.commands.stats import _picture
from rabbitdelay.core.administration.counts import HoldCount, Statistics, TopicCounts
from rabbitdelay.core.topology import ladder
from tests.acceptance.conftest import CommandLine
from tests.support.patience import patience, wait_until
from tests.support.programs.background import background

pytestmark = pytest.mark.usefixtures("nothing_set")

NO_MANAGEMENT = ("--management-url", "http://127.0.0.1:1")


@pytest.fixture
def delayed(rabbitdelay: CommandLine) -> None:
    """Five jobs in three hold queues, and one that is ready."""
    lines = [json.dumps({"delay": delay}) for delay in ("30m", "30m", "30m", "1h", "7d", "0")]
    assert rabbitdelay("put", "mail", "--file", "-", input="\n".join(lines)).exit_code == 0


@pytest.mark.usefixtures("delayed")
@pytest.mark.parametrize("management", [(), NO_MANAGEMENT], ids=["management", "amqp"])
def test_hold_queues_with_jobs_are_drawn_as_bars(
    rabbitdelay: CommandLine, management: tuple[str, ...]
) -> None:
    result = rabbitdelay(*management, "stats", "mail")
    assert result.exit_code == 0
    lines = [line.split() for line in result.stdout.splitlines()]
    assert lines[0] == ["topic", "ready", "reserved", "buried", "consumers"]
    assert [*lines[1][:2], *lines[1][3:]] == ["mail", "1", "0", "0"]
    assert lines[3] == ["5", "delayed", "jobs", "of", "all", "topics"]
    assert [[line[0], line[1], line[-1]] for line in lines[5:8]] == [
        ["30m", "31m", "3"],
        ["1h", "2h", "1"],
        ["7d", "8d", "1"],
    ]
    assert len(lines[5][2]) == 44
    assert len(lines[6][2]) == 15


@pytest.mark.usefixtures("delayed")
def test_stats_prints_json(rabbitdelay: CommandLine, namespace: str) -> None:
    told = json.loads(rabbitdelay("stats", "--json").stdout)
    assert [topic["topic"] for topic in told["topics"]] == ["mail"]
    assert told["delayed_jobs"] == 5
    assert told["hold_queues"][0] == {
        "hold_queue": f"{namespace}.v1.hold.30m",
        "hold_ms": 1_800_000,
        "due_within_ms": 1_860_000,
        "jobs": 3,
    }
    assert (told["unrouted"], told["management_error"]) == (0, None)


@pytest.mark.usefixtures("delayed")
def test_without_the_management_api_topics_must_be_named(rabbitdelay: CommandLine) -> None:
    result = rabbitdelay(*NO_MANAGEMENT, "stats")
    assert result.exit_code == 0
    assert result.stdout.startswith("the topics are unknown\n\n5 delayed jobs of all topics\n")
    assert "only named topics are counted" in result.stdout
    assert "rabbitmq-plugins enable rabbitmq_management" in result.stdout


def test_unrouted_jobs_are_reported_with_a_hint(
    rabbitdelay: CommandLine, broker_url: str, namespace: str
) -> None:
    rabbitdelay("topology", "apply")
    assert "unrouted" not in rabbitdelay("stats").stdout
    with pika.BlockingConnection(pika.URLParameters(broker_url)) as connection:
        connection.channel().basic_publish(f"{namespace}.v1.ready", "strange", b"?")
    hint = "1 job could not be routed: see `rabbitdelay unrouted list`"
    wait_until(lambda: hint in rabbitdelay("stats").stdout)


def test_a_missing_topic_exits_with_3(rabbitdelay: CommandLine) -> None:
    rabbitdelay("put", "mail")
    result = rabbitdelay("stats", "mail", "nothing")
    assert result.exit_code == 3
    assert result.stdout.endswith("\nno such topic: nothing\n")
    told = rabbitdelay("stats", "nothing", "--json")
    assert told.exit_code == 3
    assert json.loads(told.stdout)["missing_topics"] == ["nothing"]


@pytest.mark.usefixtures("existing_namespace")
def test_an_empty_namespace_has_no_jobs(rabbitdelay: CommandLine) -> None:
    assert rabbitdelay("stats").stdout == "no topics\n\n0 delayed jobs of all topics\n"


@pytest.mark.parametrize("arguments", [("--interval", "1s"), ("--watch", "--interval", "1ms")])
def test_an_invalid_interval_exits_with_2(
    rabbitdelay: CommandLine, arguments: tuple[str, ...]
) -> None:
    assert rabbitdelay("stats", *arguments).exit_code == 2


def test_an_unreachable_broker_exits_with_4(rabbitdelay: CommandLine) -> None:
    for arguments in ((), ("--watch",)):
        assert rabbitdelay("--url", "amqp://127.0.0.1:1", "stats", *arguments).exit_code == 4


@pytest.fixture
def line(broker_url: str) -> Iterator["Line"]:
    with Line(broker_url) as line:
        yield line


@pytest.fixture
def watching(
    program: list[str], options: list[str], rabbitdelay: CommandLine, line: "Line"
) -> Iterator[subprocess.Popen[str]]:
    """`stats --watch` without the management API, ten times a second, as JSON."""
    rabbitdelay("topology", "apply", "--topic", "mail")
    arguments = ["stats", "mail", "--watch", "--json", "--interval", "100ms"]
    command = [*program, *options, "--url", line.url, *NO_MANAGEMENT, *arguments]
    with background(subprocess.Popen(command, stdout=subprocess.PIPE, text=True)) as process:
        try:
            yield process
        finally:
            process.kill()


def test_watching_shows_new_jobs_and_exits_with_0(
    rabbitdelay: CommandLine, watching: subprocess.Popen[str]
) -> None:
    """Missing hold queues are queried in turns, so a new one appears a little later."""
    assert watching.stdout is not None
    assert look(watching)["delayed_jobs"] == 0
    rabbitdelay("put", "mail", "--delay", "3h")
    wait_until(lambda: look(watching)["delayed_jobs"] == 1)
    rabbitdelay("put", "mail")
    wait_until(lambda: look(watching)["topics"][0]["ready"] == 1)
    os.kill(watching.pid, signal.SIGINT)
    watching.stdout.read()
    assert watching.wait(patience(10)) == 0


def test_watching_shows_the_busiest_topics_first(
    rabbitdelay: CommandLine, options: list[str], program: list[str]
) -> None:
    for topic, count in (("a-quiet", 0), ("b-some", 1), ("c-busy", 3)):
        rabbitdelay("topology", "apply", "--topic", topic)
        for _ in range(count):
            rabbitdelay("put", topic)
    with background(
        subprocess.Popen(
            [*program, *options, "stats", "--watch", "--interval", "100ms"],
            env=os.environ | {"PYTHONUNBUFFERED": "1"},
            stdout=subprocess.PIPE,
            text=True,
        )
    ) as process:
        assert process.stdout is not None
        lines = list[str]()
        while len(lines) < 3:
            words = process.stdout.readline().split()
            lines += [words[0]] if words and words[0][:2] in ("a-", "b-", "c-") else []
        process.send_signal(signal.SIGINT)
        process.stdout.read()
    assert lines == ["c-busy", "b-some", "a-quiet"]


def test_watching_continues_when_the_broker_is_back(
    watching: subprocess.Popen[str], line: "Line"
) -> None:
    assert "topics" in look(watching)
    line.cut()
    wait_until(lambda: "error" in look(watching))
    told = look(watching)["error"]
    assert told.startswith("no connection, trying again: ")
    assert "cannot connect" in told
    line.mend()
    wait_until(lambda: "topics" in look(watching))


def test_jobs_that_the_broker_cannot_dead_letter_are_counted(
    rabbitdelay: CommandLine, broker_url: str, namespace: str
) -> None:
    """AMQP does not count them in any queue. Here the exchange of the next level is missing."""
    rabbitdelay("topology", "apply", "--topic", "mail", "--delay", "100ms")
    with pika.BlockingConnection(pika.URLParameters(broker_url)) as connection:
        connection.channel().exchange_delete(f"{namespace}.v1.level.cs")
        connection.channel().basic_publish(
            f"{namespace}.v1.hold.100ms", "0.0.0.0.0.0.1.0.mail", b""
        )

    def now() -> dict[str, Any]:
        found: dict[str, Any] = json.loads(rabbitdelay("stats", "--json").stdout)
        return found

    wait_until(lambda: now()["dead_lettering_jobs"] == 1, seconds=20)
    assert now()["delayed_jobs"] == 0
    assert "1 job on the way between queues" in rabbitdelay("stats").stdout
    assert (
        json.loads(rabbitdelay(*NO_MANAGEMENT, "stats", "mail", "--json").stdout)[
            "dead_lettering_jobs"
        ]
        is None
    )


@settings(max_examples=30)
@given(
    topics=st.integers(0, 60),
    holds=st.sets(st.sampled_from(ladder.EVERY_HOP)),
    unlisted=st.sampled_from([None, "it does not answer " * 20]),
)
@pytest.mark.usefixtures("existing_namespace")
def test_the_output_fits_a_small_terminal(
    topics: int, holds: set[ladder.Hop], unlisted: str | None
) -> None:
    """This includes the title and the cursor. Every delayed job is in a bar or in the last line."""
    counts = sorted(holds, key=lambda hop: hop.hold_ms)
    delayed = tuple(HoldCount(hop, 10**6 + number) for number, hop in enumerate(counts))
    names = [f"topic-{'x' * 150}-{number}" for number in range(topics)]
    now = Statistics(
        tuple(TopicCounts(name, 1, 1, 1, 1, paused=True) for name in names),
        ("gone",) if unlisted else (),
        delayed,
        7 if unlisted else 0,
        12 if unlisted else None,
        management_error=unlisted,
        deletes_error=unlisted,
    )
    console = Console(width=80, height=24, force_terminal=True, _environ={})
    lines = console.render_lines(_picture(now, console), pad=False)
    assert len(lines) <= 24 - 3
    text = "\n".join("".join(segment.text for segment in line) for line in lines)
    bars = [line.split() for line in text.splitlines() if "█" in line]
    rest = [line.split() for line in text.splitlines() if "more hold queue" in line]
    shown = sum(int(bar[-1].replace(",", "")) for bar in bars)
    folded = sum(int(line[-2].replace(",", "")) for line in rest)
    assert shown + folded == now.delayed_jobs
    assert len(bars) + sum(int(line[2]) for line in rest) == len(delayed)


@given(delay_ms=st.integers(1, ladder.MAX_DELAY_MS))
def test_due_within_is_the_longest_remaining_delay(delay_ms: int) -> None:
    hops = ladder.hops(ladder.to_digits(delay_ms))
    for position, hop in enumerate(hops):
        left_ms = sum(later.hold_ms for later in hops[position:])
        assert hop.hold_ms <= left_ms <= HoldCount(hop, 1).due_within_ms


def look(watching: subprocess.Popen[str]) -> dict[str, Any]:
    """Return the next line of a `stats --watch` process."""
    assert watching.stdout is not None
    line: dict[str, Any] = json.loads(watching.stdout.readline())
    return line


class Line:
    """A proxy to the broker that a test can cut and restore."""

    def __init__(self, url: str) -> None:
        self._parts = urlsplit(url)
        self._sockets: list[socket.socket] = []
        self._port = 0

    def __enter__(self) -> Self:
        self.mend()
        return self

    def __exit__(self, *_: object) -> None:
        self.cut()

    @property
    def url(self) -> str:
        """The URL of the broker through the proxy."""
        user = self._parts.netloc.rpartition("@")[0]
        return self._parts._replace(netloc=f"{user}@127.0.0.1:{self._port}").geturl()

    def mend(self) -> None:
        """Pass connections on."""
        listener = socket.create_server(("127.0.0.1", self._port))
        self._port = listener.getsockname()[1]
        self._sockets = [listener]
        threading.Thread(target=self._accept, args=(listener,), daemon=True).start()

    def cut(self) -> None:
        """Close all connections, and refuse new ones."""
        for one in self._sockets:
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()

    def _accept(self, listener: socket.socket) -> None:
        with suppress(OSError):
            while True:
                inner, _ = listener.accept()
                outer = socket.create_connection((self._parts.hostname, self._parts.port or 5672))
                self._sockets += [inner, outer]
                for pair in ((inner, outer), (outer, inner)):
                    pair[0].setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                    threading.Thread(target=_pump, args=pair, daemon=True).start()


def _pump(source: socket.socket, sink: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(65_536):
            sink.sendall(data)
        sink.shutdown(socket.SHUT_RDWR)
