"""Jobs that a run has left for a person: in buried queues and in `unrouted`."""

from urllib.parse import quote

import pika

from rabbitdelay.broker import PrivateBroker
from rabbitdelay.core.topology import Topology
from tests.faults.putter import TOPICS
from tests.faults.worker import FRAGILE_TOPIC, SLOW_TOPIC
from tests.support.management import Management


def parked_ids(broker: PrivateBroker, namespace: str) -> set[str]:
    """Return the ids of all parked jobs, and take them out of their queues."""
    topology = Topology(namespace)
    names = [topology.unrouted, *map(topology.buried_queue, (*TOPICS, FRAGILE_TOPIC, SLOW_TOPIC))]
    present = set(Management(broker.management_url).names("queues", quote(namespace)))
    with pika.BlockingConnection(pika.URLParameters(broker.url)) as connection:
        channel = connection.channel()
        found: set[str] = set()
        for name in present.intersection(names):
            while (properties := channel.basic_get(name, auto_ack=True)[1]) is not None:
                found.add(str(properties.message_id))
    return found
