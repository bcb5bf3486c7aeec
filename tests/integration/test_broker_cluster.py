"""A private cluster: starting, losing a node, and restarting it."""

from itertools import takewhile

import pika
import pytest

from rabbitdelay.private_broker.node.readiness import running_nodes
from tests.conftest import PrivateBrokerFactory
from tests.support.patience import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]

QUORUM = {"x-queue-type": "quorum", "x-quorum-initial-group-size": 3}


def publish(url: str, body: bytes) -> None:
    with pika.BlockingConnection(pika.URLParameters(url)) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        channel.queue_declare("votes", durable=True, arguments=QUORUM)
        channel.basic_publish("", "votes", body, pika.BasicProperties(delivery_mode=2))


def is_published(url: str, body: bytes) -> bool:
    """Publish; return False if it is refused: 3.10 nacks while the queue has no leader."""
    try:
        publish(url, body)
    except pika.exceptions.NackError:
        return False
    return True


def take_all(url: str) -> list[bytes]:
    with pika.BlockingConnection(pika.URLParameters(url)) as connection:
        channel = connection.channel()
        deliveries = channel.consume("votes", auto_ack=True, inactivity_timeout=1.0)
        return [body for _, _, body in takewhile(lambda delivery: delivery[0], deliveries) if body]


def test_a_cluster_of_three_continues_without_one_of_its_nodes(
    start_private_broker: PrivateBrokerFactory,
) -> None:
    broker = start_private_broker(nodes=3)
    first, second, third = broker.nodes
    assert running_nodes(third.layout.management_port) == 3
    publish(first.url, b"all three")

    first.kill()
    assert broker.url == second.url
    wait_until(lambda: is_published(second.url, b"two of three"), what="a new leader")
    assert take_all(third.url) == [b"all three", b"two of three"]

    first.start()
    wait_until(lambda: running_nodes(second.layout.management_port) == 3, seconds=30)
    publish(second.url, b"three again")
    assert take_all(first.url) == [b"three again"]


def test_a_stopped_cluster_starts_again_with_its_data(
    start_private_broker: PrivateBrokerFactory,
) -> None:
    broker = start_private_broker(nodes=3)
    publish(broker.url, b"kept")
    assert broker.stop()
    assert broker.start()
    assert running_nodes(broker.nodes[0].layout.management_port) == 3
    assert take_all(broker.nodes[2].url) == [b"kept"]
