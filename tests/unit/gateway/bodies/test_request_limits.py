"""A request has bounded numbers of everything, whatever its size is.

While the gateway reads a request, it serves no other client: no request may take seconds to read.
"""

import pytest

from rabbitdelay.gateway.bodies import put_requests, raw_json, reader
from rabbitdelay.gateway.bodies.fields import MAX_TOPICS, Request
from rabbitdelay.gateway.bodies.put_requests import MAX_JOBS, NDJSON
from rabbitdelay.gateway.bodies.raw_json import MAX_MEMBERS
from rabbitdelay.gateway.bodies.requests import (
    MAX_IDS,
    MAX_LEASES,
    ChoiceRequest,
    DeleteRequest,
    FinishRequest,
    PopRequest,
)
from rabbitdelay.gateway.problems import InvalidRequest, MalformedRequest
from rabbitdelay.gateway.seeds.members import Members
from rabbitdelay.models import JSON

JOB = b'{"topic":"a"}'


def array(member: str, element: bytes, count: int) -> bytes:
    return b'{"%b":[%b]}' % (member.encode(), b",".join([element] * count))


def an_object(count: int) -> bytes:
    return b"{%b}" % b",".join(b'"a%d":1' % number for number in range(count))


@pytest.mark.parametrize(
    ("model", "member", "most"),
    [
        (DeleteRequest, "ids", MAX_IDS),
        (ChoiceRequest, "ids", MAX_IDS),
        (FinishRequest, "leases", MAX_LEASES),
        (PopRequest, "topics", MAX_TOPICS),
    ],
)
def test_a_list_has_a_maximum(model: type[Request], member: str, most: int) -> None:
    reader.read(model, array(member, b'"a"', most))
    for element in (b'"a"', b"1"):
        with pytest.raises(InvalidRequest, match=f"{member}: .*at most {most} items"):
            reader.read(model, array(member, element, most + 1))


def test_a_batch_has_a_maximum() -> None:
    assert len(put_requests.read_many(JSON, array("jobs", JOB, MAX_JOBS))) == MAX_JOBS
    assert len(put_requests.read_many(NDJSON, b"\n".join([JOB] * MAX_JOBS))) == MAX_JOBS
    for content_type, content in (
        (JSON, array("jobs", JOB, MAX_JOBS + 1)),
        (NDJSON, b"\n".join([JOB] * (MAX_JOBS + 1))),
    ):
        with pytest.raises(InvalidRequest, match="more than 10,000"):
            put_requests.read_many(content_type, content)


def test_an_object_has_a_maximum_of_members() -> None:
    assert len(raw_json.members(an_object(MAX_MEMBERS))) == MAX_MEMBERS
    with pytest.raises(MalformedRequest, match="more than 1,000 members"):
        raw_json.members(an_object(MAX_MEMBERS + 1))
    with pytest.raises(MalformedRequest, match="more than 1,000 members"):
        raw_json.value(an_object(MAX_MEMBERS + 1).decode())


def test_the_body_of_a_job_has_no_such_maximum() -> None:
    body = an_object(MAX_MEMBERS + 1)
    put = put_requests.read_put(JSON, {}, b'{"topic":"a","body":%b}' % body)
    assert put.spec.body == body


@pytest.mark.parametrize("depth", [900, 950, 990, 1_000, 2_000, 100_000])
@pytest.mark.parametrize("member", ["body", "headers", "id", "unknown"])
def test_nesting_is_refused_wherever_it_is_too_deep(depth: int, member: str) -> None:
    """A value may fit into the stack when it is found, and no longer when it is read."""
    content = f'{{"topic":"a","{member}":{"[" * depth}{"]" * depth}}}'.encode()
    try:
        put_requests.read_put(JSON, {}, content)
    except (MalformedRequest, InvalidRequest):
        return
    assert member == "body"


def test_an_error_does_not_repeat_a_long_name() -> None:
    name = b"a" * 1_000_000
    with pytest.raises(MalformedRequest) as refused:
        raw_json.members(b'{"%b":1,"%b":1}' % (name, name))
    assert len(str(refused.value)) < 200
    with pytest.raises(InvalidRequest) as invalid:
        put_requests.read_put(JSON, {}, b'{"topic":"a","%b":1}' % name)
    assert len(str(invalid.value)) < 200


def test_the_earlier_protocols_have_a_maximum_of_topics() -> None:
    topics = ",".join(f"t{number}" for number in range(MAX_TOPICS))
    assert len(Members.of(f'{{"topic":"{topics}"}}'.encode()).topics()) == MAX_TOPICS
    with pytest.raises(InvalidRequest, match="more than 100"):
        Members.of(f'{{"topic":"{topics},x"}}'.encode()).topics()
