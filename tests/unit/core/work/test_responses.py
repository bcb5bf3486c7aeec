"""Responses: a return value as a message, and back, and its targets."""

from typing import Any

import pytest
from pydantic import BaseModel

from rabbitdelay.core.jobs.envelope import Message
from rabbitdelay.core.publish.outbox import Target
from rabbitdelay.core.settle.failure import Failure
from rabbitdelay.core.topology.topology import Topology
from rabbitdelay.core.work import responses
from rabbitdelay.core.work.reply_queues import ReplyQueues
from rabbitdelay.core.work.responses import Response
from rabbitdelay.errors import InvalidJob, NoResponse
from rabbitdelay.models import Job

TOPOLOGY = Topology("ns")
NONE_ELSE = ReplyQueues.of(TOPOLOGY)


class Receipt(BaseModel):
    total: int


def job(reply_to: str | None = None) -> Job:
    return Job("orders", "job-1", "token", 0, 0, 60_000, b"{}", attempt=3, reply_to=reply_to)


@pytest.mark.parametrize(
    ("value", "body", "content_type"),
    [
        (None, None, "application/json"),
        ({"a": [1, 2.5, True]}, {"a": [1, 2.5, True]}, "application/json"),
        (Receipt(total=3), {"total": 3}, "application/json"),
        ("grüße", "grüße", "text/plain; charset=utf-8"),
        (b"\xff", b"\xff", "application/octet-stream"),
    ],
)
def test_a_return_value_round_trips(value: object, body: object, content_type: str) -> None:
    message = responses.of_value(job(), value)
    assert message.headers == {"rd-token": "token", "rd-attempt": 3}
    assert (message.message_id, message.correlation_id) == ("job-1", "job-1")
    read = responses.read(message)
    assert read == Response("job-1", message.body, content_type)
    assert isinstance(read, Response)
    assert read.body == body


def test_a_return_value_that_is_not_json_is_refused() -> None:
    with pytest.raises(InvalidJob, match="not JSON-serializable"):
        responses.of_value(job(), object())


def test_a_return_value_may_be_larger_than_a_job() -> None:
    """The broker's limit applies, not that of put."""
    assert len(responses.of_value(job(), b"x" * (2 << 20)).body) == 2 << 20
    with pytest.raises(InvalidJob, match="at most 16,777,216 bytes"):
        responses.of_value(job(), b"x" * ((16 << 20) + 1))


@pytest.mark.parametrize(
    ("failure", "says", "headers"),
    [
        (None, "no response of job job-1: paid", {}),
        (
            Failure("ValueError", "bad"),
            "no response of job job-1: paid: bad",
            {"rd-error": "bad", "rd-error-type": "ValueError"},
        ),
    ],
)
def test_a_failure_round_trips(failure: Failure | None, says: str, headers: dict[str, Any]) -> None:
    message = responses.of_failure(job(), "paid", failure)
    common = {"rd-token": "token", "rd-attempt": 3, "rd-reason": "paid"}
    assert message.headers == common | headers
    assert (message.message_id, message.correlation_id) == ("job-1", "job-1")
    assert (message.body, message.content_type) == (b"null", "application/json")
    read = responses.read(message)
    assert isinstance(read, NoResponse)
    assert str(read) == says


def test_a_long_reason_is_truncated() -> None:
    assert len(responses.of_failure(job(), "x" * 5_000).headers["rd-reason"]) == 1_000


def test_a_foreign_response_is_read() -> None:
    """A consumer in another language may respond with only a body and a correlation id."""
    read = responses.read(Message(b"ok", {}, correlation_id="job-1"))
    assert read == Response("job-1", b"ok", "application/octet-stream")
    assert responses.read(Message(b"ok", {})) == Response("", b"ok", "application/octet-stream")


def test_a_response_does_not_show_its_body() -> None:
    assert "4111" not in repr(Response("job-1", b"4111", "text/plain"))


def test_a_job_without_reply_to_has_no_target() -> None:
    assert responses.targets(TOPOLOGY, NONE_ELSE, job(), keep=False) == []


def test_a_queue_of_the_namespace_is_reached_through_its_exchange() -> None:
    queue = TOPOLOGY.reply_queue("client-1")
    assert responses.targets(TOPOLOGY, NONE_ELSE, job(queue), keep=False) == [
        Target("ns.v1.responses", "ns.v1.replies.client-1")
    ]


@pytest.mark.parametrize("queue", ["answers", "amq.rabbitmq.reply-to.abc", "ns2.v1.replies.x"])
def test_another_queue_is_reached_by_name_if_allowed(queue: str) -> None:
    assert responses.targets(TOPOLOGY, NONE_ELSE, job(queue), keep=False) == []
    allowed = ReplyQueues.of(TOPOLOGY, [queue])
    assert responses.targets(TOPOLOGY, allowed, job(queue), keep=False) == [Target("", queue)]


def test_kept_responses_are_sent_in_addition_to_reply_to() -> None:
    part = TOPOLOGY.responses("orders")
    kept = Target("ns.v1.responses", "ns.v1.responses.orders", part, waits_until_stable=False)
    allowed = ReplyQueues.of(TOPOLOGY, ["q"])
    assert responses.targets(TOPOLOGY, allowed, job(), keep=True) == [kept]
    assert responses.targets(TOPOLOGY, allowed, job("q"), keep=True) == [Target("", "q"), kept]
    assert responses.targets(TOPOLOGY, allowed, job("r"), keep=True) == [kept]
