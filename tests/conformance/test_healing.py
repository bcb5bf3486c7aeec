"""Queues that were deleted: jobs parked in `unrouted` are sent on, and never early."""

import time
from functools import partial

from rabbitdelay import Client
from tests.conftest import ClientFactory, ReceiverFactory
from tests.support.brokers import SharedBroker
from tests.support.waiting import wait_until
from tests.support.working import cut, publishing

DELAY = 3.0


def parked(client: Client, shared: SharedBroker) -> int:
    """How many jobs are in `unrouted`."""
    queue = f"queues/%2F/{client.topology.unrouted}"
    return int(shared.management.get(queue).get("messages") or 0)


def test_a_client_whose_clock_is_ahead_sends_no_parked_job_on_early(
    make_client: ClientFactory, shared_broker: SharedBroker, receive: ReceiverFactory
) -> None:
    """The hold queue is deleted. By the clock of the client that reconnects, the job is late."""
    behind = make_client(clock=lambda: time.time() - 3_600)
    behind.put("t", id="first", delay=DELAY)
    receiver = receive("t")
    receiver.wait_for("first")
    shared_broker.management.delete("queues", f"{behind.topology.prefix}hold.3s")
    put_at = time.time()
    behind.put("t", id="job", delay=DELAY)
    wait_until(lambda: parked(behind, shared_broker) == 1, seconds=20)
    other = make_client()
    other.put("other")
    wait_until(partial(cut, publishing(other)))
    receiver.wait_for("job", seconds=20)
    (received,) = (one for one in receiver.messages if one.id == "job")
    assert received.received_ms / 1000 - put_at >= DELAY
