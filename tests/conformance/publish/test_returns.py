"""Jobs that the broker returns as unroutable, because no queue is left on their way.

The broker returns the whole message. Headers that a client library cannot decode must not cost the
connection, and a job that is returned must not count as published.
"""

from collections.abc import Callable, Iterator
from struct import pack
from typing import Any

import pika
import pytest

from rabbitdelay import Client, JobRefused
from rabbitdelay.core.amqp.field_table import Encoded
from rabbitdelay.core.jobs.envelope import Message
from tests.conftest import TopicsFactory
from tests.support import fronts
from tests.support.brokers.messages import publish_frames
from tests.support.fronts import Front, front_named
from tests.support.jobs.connections import publisher_connector
from tests.support.jobs.popped_jobs import pop
from tests.support.patience import wait_until

LATE: dict[str, Any] = {"when": Encoded(b"T" + pack(">Q", 2**63)), "rd-token": "token"}


def deep(depth: int) -> Encoded:
    """Return the bytes of a table in tables."""
    content = b""
    for _ in range(depth):
        content = b"\x01aF" + pack(">I", len(content)) + content
    return Encoded(b"F" + pack(">I", len(content)) + content)


DEEP = {"deep": deep(2_000), "rd-token": "token"}
"""Nested deeper than Python's recursion limit."""
PLAIN = {"rd-token": "token"}


@pytest.fixture(params=fronts.WITH_LENT)
def front(request: pytest.FixtureRequest) -> Iterator[Front]:
    """Each front end in turn."""
    with front_named(request.param) as front:
        yield front


@pytest.fixture
def unroute(client: Client, broker_url: str, make_topics: TopicsFactory) -> Callable[[], object]:
    """Remove every route of the topic's jobs, which the client knows as existing.

    Return the client's publishing connection.
    """
    make_topics("t")
    client.put("t", id="first")
    pop(client).finish()

    def remove() -> object:
        with pika.BlockingConnection(pika.URLParameters(broker_url)) as connection:
            channel, topology = connection.channel(), client.topology
            key = "*.*.*.*.*.*.*.*.t"
            channel.queue_unbind(topology.ready_queue("t"), topology.ready_exchange, key)
            channel.queue_delete(topology.unrouted)
        return publisher_connector(client).connection

    return remove


def test_a_released_job_that_is_returned_is_published_again(
    client: Client, broker_url: str, unroute: Callable[[], object]
) -> None:
    ready = client.topology.ready_queue("t")
    publish_frames(broker_url, ready, [Message(b"body", LATE, "a", "text/plain", 2**63)])
    job = pop(client)
    connection = unroute()
    with pytest.raises(JobRefused, match="NO_ROUTE"):
        job.release(delay=0)
    again = pop(client)
    assert (again.id, again.attempt, again.headers) == ("a", 2, job.headers)
    assert publisher_connector(client).connection is connection


@pytest.mark.parametrize("headers", [PLAIN, LATE, DEEP], ids=["plain", "timestamp", "nesting"])
def test_a_kicked_job_that_is_returned_stays_buried(
    client: Client, broker_url: str, unroute: Callable[[], object], headers: dict[str, Any]
) -> None:
    buried = client.buried("t")
    messages = [Message(b"body", headers, "a")]
    publish_frames(broker_url, client.topology.buried_queue("t"), messages)
    wait_until(lambda: buried.count() == 1)
    connection = unroute()
    assert buried.kick().sent == 0
    wait_until(lambda: buried.count() == 1)
    assert buried.kick().sent == 1
    assert buried.count() == 0
    assert publisher_connector(client).connection is connection


def test_a_put_that_is_returned_raises(client: Client, unroute: Callable[[], object]) -> None:
    connection = unroute()
    with pytest.raises(JobRefused, match="NO_ROUTE"):
        client.put("t", id="b", headers={"f": 0.5, "deep": {"a": [{}]}})
    client.put("t", id="b")
    assert publisher_connector(client).connection is connection
