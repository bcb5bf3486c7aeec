"""A cluster of three: a put survives the loss of any one node."""

import threading

import pytest

from rabbitdelay import Client, OutcomeUnknown
from rabbitdelay.core.topology import Topology
from rabbitdelay.models import Job
from tests.conftest import PrivateBrokerFactory
from tests.support.receiver import Receiver
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


def test_puts_go_on_when_a_node_is_killed(
    start_private_broker: PrivateBrokerFactory, namespace: str
) -> None:
    """The node that the client is connected to dies, and so does its share of the leaders."""
    broker = start_private_broker(nodes=3)
    urls = ",".join(node.url for node in broker.nodes)
    returned: list[Job] = []
    unknown: list[OutcomeUnknown] = []
    stop = threading.Event()

    def put_until_stopped(client: Client) -> None:
        while not stop.is_set():
            try:
                returned.append(client.put("t", delay=2.25))
            except OutcomeUnknown as error:
                unknown.append(error)

    with Client(urls, namespace=namespace, timeout=20) as client:
        client.put("t", delay=2.25)
        threads = [threading.Thread(target=put_until_stopped, args=(client,)) for _ in range(4)]
        for thread in threads:
            thread.start()
        wait_until(lambda: len(returned) > 200, seconds=30)
        broker.nodes[0].kill()
        before = len(returned)
        wait_until(lambda: len(returned) > before + 500, seconds=60, what="puts go on")
        broker.nodes[0].start()
        stop.set()
        for thread in threads:
            thread.join(30)
    with Receiver(broker.nodes[1].url, Topology(namespace).ready_queue("t")) as receiver:
        receiver.wait_for(*(job.id for job in returned), seconds=60)
        assert min(message.lateness_ms for message in receiver.messages) >= 0
    assert not unknown, "two of three nodes are a quorum: no put should give up"
