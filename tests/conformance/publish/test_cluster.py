"""A cluster of three nodes: a put survives the loss of any one node."""

from datetime import timedelta

import pytest

from rabbitdelay.core.topology.topology import Topology
from tests.conftest import PrivateBrokerFactory
from tests.support.brokers.receiver import Receiver
from tests.support.fronts import Front
from tests.support.jobs.putters import putting
from tests.support.patience import patience, wait_until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


def test_puts_continue_when_a_node_is_killed(
    front: Front, start_private_broker: PrivateBrokerFactory, namespace: str
) -> None:
    """The killed node is the one that the client is connected to, and leads some of the queues."""
    broker = start_private_broker(nodes=3)
    urls = ",".join(node.url for node in broker.nodes)
    delay = timedelta(seconds=2.25)
    with front.client(urls, namespace=namespace, timeout=patience(20)) as client:
        client.put("t", delay=delay)
        with putting(client, "t", delay, threads=4) as putters:
            wait_until(lambda: len(putters.returned) > 200, seconds=30)
            broker.nodes[0].kill()
            before = len(putters.returned)
            wait_until(lambda: len(putters.returned) > before + 500, seconds=60, what="more puts")
            broker.nodes[0].start()
    with Receiver(broker.nodes[1].url, Topology(namespace).ready_queue("t")) as receiver:
        receiver.wait_for(*(job.id for job in putters.returned), seconds=60)
        assert min(message.lateness_ms for message in receiver.messages) >= 0
    assert not putters.unknown, "two of three nodes are a quorum, so every put must return"
