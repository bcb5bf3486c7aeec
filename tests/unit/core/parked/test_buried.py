"""Buried jobs: reading their headers, the route back, and how their bodies are displayed."""

from datetime import UTC, datetime
from typing import Any

import pytest

from rabbitdelay.cli.output import body_lines, moment, plain
from rabbitdelay.core.jobs.envelope import Message
from rabbitdelay.core.parked.buried import Buried, Choice, way_back
from rabbitdelay.core.topology.topology import Topology

TOPOLOGY = Topology()
NOW_MS = 1_800_000_000_000


def buried(**headers: Any) -> Buried:  # noqa: ANN401 - AMQP values
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return Buried("mail", Message(b"body", named, "id-1"))


def test_headers_written_by_a_consumer_are_read() -> None:
    one = buried(
        rd_attempt=3,
        rd_put=NOW_MS - 60_000,
        rd_due=NOW_MS,
        rd_buried=NOW_MS + 1_000,
        rd_reason="attempt 3 of 3 failed",
        rd_error="no such order",
        rd_error_type="LookupError",
    )
    assert (one.attempt, one.put_ms, one.due_ms) == (3, NOW_MS - 60_000, NOW_MS)
    assert one.buried_ms == NOW_MS + 1_000
    assert one.grave.reason == "attempt 3 of 3 failed"
    assert one.last_error == "LookupError: no such order"


def test_a_buried_message_decodes_to_its_job() -> None:
    job = buried(rd_put=NOW_MS - 60_000, rd_due=NOW_MS, rd_token="t1", rd_attempt=3).job  # noqa: S106 - of a job
    assert job is not None
    assert (job.topic, job.id, job.token) == ("mail", "id-1", "t1")
    assert (job.put_ms, job.due_ms) == (NOW_MS - 60_000, NOW_MS)


def test_a_message_without_times_counts_as_put_before_every_delete() -> None:
    job = buried().job
    assert job is not None
    assert (job.put_ms, job.due_ms) == (0, 0)


@pytest.mark.parametrize(
    "message",
    [
        Message(b"", {"rd-version": 99}, "id-1"),
        Message(b"", {"rd-due": "soon"}, "id-1"),
        Message(b"", {}, "x" * 201),
    ],
)
def test_an_invalid_message_has_no_job(message: Message) -> None:
    assert Buried("mail", message).job is None


def test_time_and_reason_are_read_from_the_broker_s_record() -> None:
    """The newest of the broker's records comes first."""
    died = datetime.fromtimestamp(NOW_MS / 1000, UTC)
    older = datetime.fromtimestamp(NOW_MS / 1000 - 60, UTC)
    deaths = [
        {"reason": "delivery_limit", "queue": TOPOLOGY.ready_queue("mail"), "time": died},
        {"reason": "expired", "queue": f"{TOPOLOGY.prefix}hold.1m", "time": older},
    ]
    one = buried(x_death=deaths)
    assert one.buried_ms == NOW_MS
    assert "delivery limit" in one.grave.reason
    assert one.last_error is None


@pytest.mark.parametrize("wrong", ["soon", -1, None, [], {}, 1.5])
def test_headers_of_the_wrong_type_read_as_none(wrong: object) -> None:
    one = buried(rd_attempt=wrong, rd_put=wrong, rd_due=wrong, rd_buried=wrong, x_death=wrong)
    assert (one.attempt, one.put_ms, one.due_ms, one.buried_ms) == (None, None, None, None)
    assert one.grave.reason == "unknown"


@pytest.mark.parametrize("deaths", [["?"], [{}], [{"time": "now"}]])
def test_a_malformed_x_death_is_ignored(deaths: list[object]) -> None:
    assert buried(x_death=deaths).buried_ms is None


def test_a_kicked_job_goes_straight_to_ready() -> None:
    way = way_back(TOPOLOGY, "a.b")
    assert (way.exchange, way.routing_key) == (TOPOLOGY.ready_exchange, "0.0.0.0.0.0.0.0.a.b")
    assert way.parts == TOPOLOGY.topic("a.b")


def test_a_choice_selects_by_id() -> None:
    assert Choice().takes(buried())
    assert Choice("id-1").takes(buried())
    assert not Choice("id-2").takes(buried())
    assert not Choice("").takes(buried())


@pytest.mark.parametrize(
    ("body", "lines"),
    [
        (b"", []),
        (b'{"a": [1, 0.5]}', ["{", '  "a": [', "    1,", "    0.5", "  ]", "}"]),
        ('"ü"'.encode(), ['"ü"']),
        (b"[1.10]", ["[1.10]"]),  # laid out it would be another text
        (b"[NaN]", ["[NaN]"]),
        (b"[" * 100_000, ["[" * 100_000]),
        (b"one\ttwo\r\nthree", ["one two", "three"]),
        ("a\x9b31mred".encode(), ["a·31mred"]),
        (b"\x1b[31m", ["0000  1b 5b 33 31 6d" + " " * 35 + "·[31m"]),
        (b"\xff" * 17, [f"0000  {'ff ' * 16} {'·' * 16}", f"0010  ff{' ' * 47}·"]),
    ],
    ids=lambda value: repr(value)[:20],
)
def test_a_body_is_displayed_by_its_content_type(body: bytes, lines: list[str]) -> None:
    assert body_lines(body) == lines


def test_a_long_body_in_hex_is_truncated() -> None:
    lines = body_lines(b"\x00" * 1_000)
    assert len(lines) == 17
    assert lines[-1] == "… and 744 bytes more"


def test_header_values_are_displayed_as_json() -> None:
    value = {"when": datetime.fromtimestamp(0, UTC), "raw": b"\xff", "text": b"a", "deep": [{1: 2}]}
    assert plain(value) == {
        "when": "1970-01-01T00:00:00.000Z",
        "raw": "ff",
        "text": "a",
        "deep": [{"1": 2}],
    }


def test_a_time_beyond_all_calendars_is_displayed() -> None:
    assert moment(1 << 60) == "1152921504606846976 ms since 1970"
