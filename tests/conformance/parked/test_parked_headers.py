"""Headers of any type survive a kick and a retry: byte for byte, but for those that are removed.

That holds on a connection that the application lends, too.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from struct import pack
from typing import Any

import pytest

from rabbitdelay import Client
from rabbitdelay.core.amqp import field_table
from rabbitdelay.core.amqp.field_table import Encoded, ScaledInteger, Timestamp
from rabbitdelay.core.jobs.envelope import Message
from tests.conftest import TopicsFactory
from tests.support import fronts
from tests.support.brokers.messages import publish_frames
from tests.support.fronts import Front, front_named
from tests.support.jobs.looker import Looker
from tests.support.jobs.popped_jobs import pop
from tests.support.patience import wait_until

OURS = ("rd-", "x-")
DEEP = 200
"""Nesting depth: more than this library reads, and less than RabbitMQ accepts."""
HEADERS: dict[str, Any] = {
    "f": Encoded(b"f" + pack(">f", 0.5)),
    "d": Encoded(b"d" + pack(">d", 0.1)),
    "when": Encoded(b"T" + pack(">Q", 2**63)),
    "price": Encoded(b"D" + pack(">Bi", 2, -999)),
    "void": Encoded(b"V"),
    "byte": Encoded(b"b\xff"),
    "unsigned byte": Encoded(b"B\xff"),
    "short": Encoded(b"s\xff\xfe"),
    "unsigned short": Encoded(b"u\xff\xfe"),
    "int": Encoded(b"I\xff\xff\xff\xfe"),
    "unsigned int": Encoded(b"i\xff\xff\xff\xfe"),
    "long": Encoded(b"l" + pack(">q", -(2**63))),
    "true": Encoded(b"t\x01"),
    "raw": Encoded(b"x" + pack(">I", 3) + b"\x00\xff\xfe"),
    "not UTF-8": Encoded(b"S" + pack(">I", 2) + b"\xff\xfe"),
    "\udcff": "a name that is not UTF-8",
    "table": {"half": 0.5, "deeper": {"list": [None, True, Timestamp(2**40), {"x": b"\x00"}]}},
    "list": [0.25, "ä", ScaledInteger(255, 1)],
    "empty": {},
}
BROKERS: dict[str, Any] = {
    "x-death": [{"queue": "elsewhere", "reason": "expired", "count": 1, "time": Timestamp(2**40)}],
    "x-first-death-queue": "elsewhere",
}


def too_deep() -> dict[str, Any]:
    """Return a header that is nested too deep for this library to read."""
    nested: dict[str, Any] = {}
    for _ in range(DEEP):
        nested = {"a": nested}
    return {"deep": nested}


def original(headers: dict[str, Any]) -> dict[str, Encoded]:
    """Return headers as their bytes."""
    encoded = field_table.encode(headers)
    return field_table.split(encoded, 0, len(encoded))


@pytest.fixture(params=fronts.WITH_LENT)
def front(request: pytest.FixtureRequest) -> Iterator[Front]:
    """Each front end in turn."""
    with front_named(request.param) as front:
        yield front


@pytest.fixture
def look(broker_url: str, namespace: str) -> Iterator[Callable[[str], Looker]]:
    """Readers of a topic's ready queue that leave its messages in it."""
    with ExitStack() as stack:

        def run(topic: str) -> Looker:
            client = Client(broker_url, namespace=namespace, declare=False)
            queue = stack.enter_context(client).topology.ready_queue(topic)
            return stack.enter_context(Looker(client, queue))

        yield run


@pytest.mark.parametrize("more", [{}, too_deep()], ids=["readable", "nested too deep"])
def test_a_kicked_job_has_the_bytes_of_its_headers(
    *,
    client: Client,
    make_topics: TopicsFactory,
    broker_url: str,
    look: Callable[[str], Looker],
    more: dict[str, Any],
) -> None:
    make_topics("t")
    theirs = HEADERS | more
    grave = {"rd-reason": "failed", "rd-buried": 1, "rd-error": "x", "rd-attempt": 7}
    messages = [Message(b"body", BROKERS | theirs | grave, "a", "text/plain", 2**63)]
    publish_frames(broker_url, client.topology.buried_queue("t"), messages)
    jobs = client.buried("t")
    wait_until(lambda: jobs.count() == 1)
    (listed,) = jobs.list()
    (shown,) = jobs.show("a")
    assert (shown.id, shown.headers["f"]) == ("a", 0.5)
    assert (listed.reason, listed.attempt, listed.body) == ("failed", 7, "body")
    assert listed.headers["f"] == 0.5
    assert listed.headers["when"] == Timestamp(2**63)
    assert listed.headers["price"] == ScaledInteger(2, -999)
    assert listed.headers["table"] == HEADERS["table"]
    assert listed.message.timestamp_s == 2**63
    assert jobs.kick().sent == 1
    looker = look("t")
    wait_until(lambda: len(looker.originals) == 1)
    (kicked,) = looker.originals
    ours = {name for name in kicked.headers if name.startswith("rd-")}
    assert ours == {"rd-attempt", "rd-due"}
    assert {n: v for n, v in kicked.headers.items() if n not in ours} == original(theirs)
    assert (kicked.message_id, kicked.timestamp_s, kicked.body) == ("a", 2**63, b"body")
    assert jobs.count() == 0


def test_a_released_job_has_the_values_of_its_headers(
    *,
    client: Client,
    make_topics: TopicsFactory,
    broker_url: str,
    look: Callable[[str], Looker],
) -> None:
    """A copy of a job that was reserved has equal values, but an integer may have another size."""
    make_topics("t")
    messages = [Message(b"body", HEADERS, "a", "text/plain", 2**63)]
    publish_frames(broker_url, client.topology.ready_queue("t"), messages)
    job = pop(client, "t")
    received = job.headers
    assert (job.id, received["f"], received["when"]) == ("a", 0.5, Timestamp(2**63))
    job.release(delay=0.01)
    (again,) = look("t").wait_for(1)
    assert {n: v for n, v in again.headers.items() if not n.startswith(OURS)} == received
    assert (again.message_id, again.timestamp_s, again.body) == ("a", 2**63, b"body")


def test_a_job_that_is_sent_on_has_the_bytes_of_its_headers(
    *,
    client: Client,
    make_topics: TopicsFactory,
    broker_url: str,
    look: Callable[[str], Looker],
) -> None:
    make_topics()
    theirs = HEADERS | too_deep()
    messages = [Message(b"body", BROKERS | theirs, "a")]
    key = "0.0.0.0.0.0.0.0.gone"
    publish_frames(broker_url, key, messages, exchange=client.topology.ready_exchange)
    jobs = client.unrouted()
    wait_until(lambda: jobs.count() == 1)
    (listed,) = jobs.list()
    (shown,) = jobs.show("a")
    assert (shown.id, shown.headers["f"]) == ("a", 0.5)
    assert (listed.topic, listed.why, listed.headers["f"]) == ("gone", "no ready queue", 0.5)
    assert jobs.retry().sent == 1
    looker = look("gone")
    wait_until(lambda: len(looker.originals) == 1)
    assert looker.originals[0].headers == original(theirs)
    assert jobs.count() == 0
