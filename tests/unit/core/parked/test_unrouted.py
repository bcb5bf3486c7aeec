"""Unrouted jobs: parsed, explained, and routed onward with the rest of their delay."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rabbitdelay.core.jobs.envelope import Message
from rabbitdelay.core.parked.unrouted import UnroutedJob, missing_queue, read, way_on
from rabbitdelay.core.topology import ladder
from rabbitdelay.core.topology.topology import Topology

DUES = st.none() | st.integers(-1, 1 << 47) | st.just("soon")
TOPOLOGY = Topology()
DEATH = {"reason": "expired", "count": 1, "exchange": ""}


def found(
    key: str,
    exchange: str = TOPOLOGY.ready_exchange,
    **headers: Any,  # noqa: ANN401 - AMQP values
) -> UnroutedJob:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return read(TOPOLOGY, exchange, key, Message(b"body", named, "id-1"))


def death(*queues: str) -> list[dict[str, Any]]:
    return [{**DEATH, "queue": f"{TOPOLOGY.prefix}{queue}"} for queue in queues]


def test_a_job_whose_topic_was_deleted_goes_to_ready() -> None:
    one = found("0.0.0.0.30.0.0.0.mail", x_death=death("hold.30m"))
    assert (one.topic, one.why) == ("mail", "no ready queue")


def test_a_job_whose_next_hold_queue_was_deleted_continues_there() -> None:
    one = found("0.0.0.1.30.0.0.0.mail", x_death=death("hold.1h"))
    assert one.why == "no hold queue 30m"


def test_a_job_to_bury_continues_to_the_buried_queue() -> None:
    one = found("mail", TOPOLOGY.buried_exchange, x_death=death("ready.mail"))
    assert one.why == "no buried queue"
    way = way_on(TOPOLOGY, one)
    assert way is not None
    assert (way.exchange, way.routing_key) == (TOPOLOGY.buried_exchange, "mail")
    assert way.parts == TOPOLOGY.topic("mail")


@pytest.mark.parametrize(
    "key", ["", "mail", "0.0.0.0.0.0.0.0.", "0.0.0.0.99.0.0.0.mail", "0.0.0.0.0.0.0.0.no spaces"]
)
def test_an_unparsable_message_has_no_route_onward(key: str) -> None:
    one = found(key)
    assert one.topic is None
    assert one.why == "not a routing key of ours"
    assert way_on(TOPOLOGY, one) is None


def test_a_delay_out_of_range_has_no_route_onward() -> None:
    assert way_on(TOPOLOGY, found("9.11.29.23.59.59.9.9.mail", TOPOLOGY.prefix)) is None


@given(delay_ms=st.integers(0, ladder.MAX_DELAY_MS), passed=st.integers(0, 8), due=DUES)
def test_a_job_continues_with_the_remaining_delay_whatever_the_clocks_say(
    delay_ms: int, passed: int, due: object
) -> None:
    hops = ladder.hops(ladder.to_digits(delay_ms))
    deaths = death(*(f"hold.{hop.label}" for hop in hops[:passed]))
    key = ladder.routing_key(ladder.to_digits(delay_ms), "mail")
    way = way_on(TOPOLOGY, found(key, rd_due=due, x_death=deaths))
    assert way is not None
    parsed = ladder.parse_routing_key(way.routing_key)
    assert parsed is not None
    digits, topic = parsed
    assert topic == "mail"
    left_ms = sum(hop.hold_ms for hop in hops[passed:])
    assert ladder.to_delay_ms(digits) == ladder.round_up(left_ms)
    assert way.exchange == TOPOLOGY.entrance(digits)
    assert way.parts == TOPOLOGY.path(digits, "mail")


@pytest.mark.parametrize(
    ("exchange", "key", "deaths", "missing"),
    [
        (TOPOLOGY.buried_exchange, "mail", ("ready.mail",), "buried.mail"),
        (TOPOLOGY.ready_exchange, "0.0.0.1.30.0.0.0.mail", ("hold.1h",), "hold.30m"),
        (TOPOLOGY.ready_exchange, "0.0.0.0.30.0.0.0.mail", ("hold.30m",), "ready.mail"),
    ],
)
def test_the_queue_that_was_missing_is_named(
    exchange: str, key: str, deaths: tuple[str, ...], missing: str
) -> None:
    one = found(key, exchange, x_death=death(*deaths))
    assert missing_queue(TOPOLOGY, one) == f"{TOPOLOGY.prefix}{missing}"


def test_the_repr_of_an_unrouted_job_has_no_body_and_no_headers() -> None:
    one = found("0.0.0.0.30.0.0.0.mail", x_death=death("hold.30m"), note="hunter2")
    assert repr(one) == "UnroutedJob(topic='mail', id='id-1', why='no ready queue')"
