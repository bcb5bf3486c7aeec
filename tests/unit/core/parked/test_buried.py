"""Buried jobs: reading their headers, and the route back."""

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from rabbitdelay.core.amqp import field_table
from rabbitdelay.core.amqp.field_table import Encoded, Timestamp
from rabbitdelay.core.jobs.envelope import Message
from rabbitdelay.core.parked.buried import BuriedJob
from rabbitdelay.core.parked.parked_job import Choice, Ids, with_original_bytes
from rabbitdelay.core.topology.topology import Topology

TOPOLOGY = Topology()
NOW_MS = 1_800_000_000_000


def buried(**headers: Any) -> BuriedJob:  # noqa: ANN401 - AMQP values
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return BuriedJob(Message(b"body", named, "id-1"), "mail")


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
    assert one.reason == "attempt 3 of 3 failed"
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
    assert BuriedJob(message, "mail").job is None


def test_time_and_reason_are_read_from_the_broker_s_record() -> None:
    """The newest of the broker's records comes first."""
    died = Timestamp(NOW_MS // 1000)
    older = Timestamp(NOW_MS // 1000 - 60)
    deaths = [
        {"reason": "delivery_limit", "queue": TOPOLOGY.ready_queue("mail"), "time": died},
        {"reason": "expired", "queue": f"{TOPOLOGY.prefix}hold.1m", "time": older},
    ]
    one = buried(x_death=deaths)
    assert one.buried_ms == NOW_MS
    assert "delivery limit" in one.reason
    assert one.last_error is None


@pytest.mark.parametrize("wrong", ["soon", -1, None, [], {}, 1.5])
def test_headers_of_the_wrong_type_read_as_none(wrong: object) -> None:
    one = buried(rd_attempt=wrong, rd_put=wrong, rd_due=wrong, rd_buried=wrong, x_death=wrong)
    assert (one.attempt, one.put_ms, one.due_ms, one.buried_ms) == (None, None, None, None)
    assert one.reason == "unknown"


@pytest.mark.parametrize("deaths", [["?"], [{}], [{"time": "now"}]])
def test_a_malformed_x_death_is_ignored(deaths: list[object]) -> None:
    assert buried(x_death=deaths).buried_ms is None


def choice(ids: Ids, where: Callable[[BuriedJob], bool] | None = None) -> Choice[BuriedJob]:
    return Choice(ids, where)


def test_a_choice_selects_by_ids_and_a_filter() -> None:
    everything: Choice[BuriedJob] = Choice()
    assert everything.takes(buried())
    assert choice("id-1").takes(buried())
    assert not choice("id-2").takes(buried())
    assert not choice("").takes(buried())
    assert choice(["id-1", "id-2"]).takes(buried())
    assert not choice(()).takes(buried())
    assert not choice("id-1", lambda job: job.topic != "mail").takes(buried())


def test_an_id_does_not_match_a_part_of_itself() -> None:
    assert not choice("an id-1").takes(buried())


def test_times_are_datetimes_where_there_are_such() -> None:
    one = buried(rd_put=NOW_MS, rd_due=1 << 62, rd_buried=NOW_MS + 1_500)
    assert one.put == datetime.fromtimestamp(NOW_MS / 1000, UTC)
    assert one.due is None, "no calendar has it"
    assert one.buried is not None
    assert (one.buried - one.put).total_seconds() == 1.5
    assert buried().buried is None


def test_a_body_is_read_by_its_content_type() -> None:
    job = BuriedJob(Message(b'{"n": 1}', {}, "a", "application/json"), "mail")
    assert (job.body, job.payload) == ({"n": 1}, b'{"n": 1}')
    assert buried().body == b"body"


def test_a_header_that_a_copy_keeps_has_its_original_bytes() -> None:
    original = {"f": Encoded(b"f\x3f\x00\x00\x00"), "n": Encoded(b"b\x01"), "gone": Encoded(b"V")}
    message = Message(b"", field_table.decode_each(original))
    copy = replace(message, headers={"f": message.headers["f"], "n": 2, "new": "x"})
    assert with_original_bytes(copy, message, original).headers == {
        "f": Encoded(b"f\x3f\x00\x00\x00"),
        "n": 2,
        "new": "x",
    }
