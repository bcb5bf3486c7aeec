"""Jobs that a run left for an operator, in buried queues and in `unrouted`."""

from typing import Any
from urllib.parse import quote

import pika

from rabbitdelay.core.settle.republish import REASON
from rabbitdelay.core.topology.topology import Topology
from rabbitdelay.private_broker import PrivateBroker
from tests.faults.putter import TOPICS
from tests.faults.worker import FRAGILE_TOPIC, SLOW_TOPIC
from tests.support.brokers.management import Management


def parked_jobs(broker: PrivateBroker, namespace: str) -> dict[str, str]:
    """Remove all parked jobs from their queues; return the place and reason of each, by id."""
    topology = Topology(namespace)
    names = [topology.unrouted, *map(topology.buried_queue, (*TOPICS, FRAGILE_TOPIC, SLOW_TOPIC))]
    present = set(Management(broker.management_url).names("queues", quote(namespace)))
    with pika.BlockingConnection(pika.URLParameters(broker.url)) as connection:
        channel = connection.channel()
        found: dict[str, str] = {}
        for name in present.intersection(names):
            while (properties := channel.basic_get(name, auto_ack=True)[1]) is not None:
                found[str(properties.message_id)] = f"{name}: {_reason(properties.headers or {})}"
    return found


def _reason(headers: dict[str, Any]) -> str:
    """Return why a job was parked, as recorded by this library or by the broker."""
    deaths = headers.get("x-death") or [{}]
    return str(headers.get(REASON) or deaths[0].get("reason", "not routed"))
