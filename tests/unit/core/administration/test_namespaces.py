"""Namespaces: found by their queues, suggested for a misspelling, and removed."""

from collections.abc import Generator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rabbitdelay.core.administration.namespaces import (
    JobCounts,
    Removal,
    count_jobs,
    exists,
    listed,
    missing_text,
    near,
    removal,
    remove,
)
from rabbitdelay.core.topology.objects import Exchange, Queue
from rabbitdelay.core.topology.setup import Answers, Command, Inspect, Remove, Round
from rabbitdelay.core.topology.topology import Topology
from rabbitdelay.errors import NamespaceInUse

SHOP = Topology("shop")
NAMES = st.from_regex(r"[A-Za-z0-9_-]{1,40}", fullmatch=True)


def row(name: str, ready: int = 0, **others: int) -> dict[str, Any]:
    return {"name": name, "messages_ready": ready, "type": "topic", **others}


def queues(topology: Topology = SHOP) -> list[dict[str, Any]]:
    return [
        row(topology.unrouted, 1),
        row(topology.stabilising, 7),
        row(topology.tombstones, 900),
        row(topology.snapshots, 9),
        row(topology.compaction, 1),
        row(f"{topology.prefix}hold.30m", 2),
        row(f"{topology.prefix}hold.1s", 3, messages_dlx=4),
        row(topology.ready_queue("a.b"), 5, messages_unacknowledged=6, consumers=2),
        row(topology.buried_queue("a.b"), 8),
        row(topology.reply_queue("x"), 1),
    ]


class Broker:
    """Answers a conversation about queues, and records what is removed."""

    def __init__(self, counts: dict[str, int]) -> None:
        self.counts = counts
        self.removed: list[str] = []

    def run(self, conversation: Generator[Round, Answers, Any]) -> Any:  # noqa: ANN401
        try:
            commands = next(conversation)
            while True:
                commands = conversation.send(tuple(map(self._answer, commands)))
        except StopIteration as stop:
            return stop.value

    def _answer(self, command: Command) -> int | None:
        match command:
            case Inspect(Queue(name)):
                return self.counts.get(name, 0)
            case Inspect(Exchange(name)):
                return self.counts.get(name)
            case Remove(declaration):
                self.removed.append(declaration.name)
        return None


def test_a_namespace_is_listed_with_its_jobs() -> None:
    others = [row("shop.orders", 5), row("x.v1.ready.t", 5), row("amq.gen-1")]
    (found,) = listed([*queues(), *others])
    assert (found.namespace, found.topics, found.consumers) == ("shop", 1, 2)
    assert found.jobs == JobCounts(
        delayed=5, ready=5, reserved=6, buried=8, unrouted=1, dead_lettering=4
    )
    assert found.jobs.total == 29


def test_counts_that_are_not_available_yet_are_zero() -> None:
    (found,) = listed([{"name": SHOP.unrouted}, {"name": SHOP.ready_queue("t")}])
    assert found.jobs == JobCounts()


@given(st.sets(NAMES, max_size=5))
def test_every_namespace_is_found_once(names: set[str]) -> None:
    rows = [one for name in names for one in queues(Topology(name))]
    assert [found.namespace for found in listed(rows)] == sorted(names)


@pytest.mark.parametrize("typed", ["shpo", "Shop", "shopp", "sho"])
def test_a_similar_name_is_suggested(typed: str) -> None:
    assert near(typed, ["warehouse", "shop"]) == ["shop"]
    assert "did you mean shop?" in missing_text(Topology(typed), ["warehouse", "shop"])


def test_a_dissimilar_name_is_not_suggested() -> None:
    assert near("billing", ["warehouse", "shop"]) == []
    assert "rabbitdelay namespaces" in missing_text(Topology("billing"), ["warehouse"])
    assert "which has none yet" in missing_text(Topology("billing"), [])
    assert "check --namespace" in missing_text(Topology("billing"), None)


def test_a_namespace_exists_when_its_first_exchange_does() -> None:
    assert Broker({SHOP.unrouted: 0}).run(exists(SHOP)) is True
    assert Broker({}).run(exists(SHOP)) is False


def test_only_objects_of_the_namespace_are_removed() -> None:
    others = [row("shop.orders"), row("shop.v10.ready.t"), row("shop2.v1.ready.t")]
    plan = removal(SHOP, [*queues(), *others], [row(SHOP.unrouted), *others, row("shop.v1.ready")])
    assert {queue.name for queue in plan.queues} == {one["name"] for one in queues()}
    assert [exchange.name for exchange in plan.exchanges] == ["shop.v1.ready", SHOP.unrouted]


def test_unrouted_is_removed_last() -> None:
    plan = removal(SHOP, queues(), [row(SHOP.unrouted), row(SHOP.ready_exchange)])
    broker = Broker({})
    broker.run(remove(SHOP, plan, with_jobs=False))
    names = [queue.name for queue in plan.queues]
    assert names[-1] == SHOP.unrouted
    assert broker.removed == [*names, SHOP.ready_exchange, SHOP.unrouted]


def test_only_queues_of_jobs_are_counted() -> None:
    plan = removal(SHOP, queues(), [])
    counts = {one["name"]: 10 for one in queues()}
    counted = Broker(counts).run(count_jobs(SHOP, plan))
    assert counted.jobs == JobCounts(
        delayed=20, ready=10, reserved=6, buried=10, unrouted=10, dead_lettering=4
    )


@pytest.mark.parametrize(
    ("jobs", "consumers", "text"),
    [
        (JobCounts(delayed=1), 0, "1 delayed"),
        (JobCounts(ready=1, dead_lettering=2), 0, "1 ready, 2 dead-lettering"),
        (JobCounts(reserved=3), 0, "3 reserved"),
        (JobCounts(buried=1_000), 0, "1,000 buried"),
        (JobCounts(unrouted=1), 0, "1 unrouted"),
        (JobCounts(), 2, "no jobs, 2 consumers"),
    ],
)
def test_a_namespace_in_use_is_not_removed(jobs: JobCounts, consumers: int, text: str) -> None:
    plan = Removal("shop", (), (), jobs, consumers)
    with pytest.raises(NamespaceInUse, match=text):
        plan.check()


def test_an_empty_namespace_may_be_removed() -> None:
    Removal("shop", (), ()).check()


def test_removal_stops_at_a_job_that_arrived_meanwhile() -> None:
    plan, late = removal(SHOP, queues(), []), SHOP.unrouted
    broker = Broker({late: 2, SHOP.tombstones: 50})
    with pytest.raises(
        NamespaceInUse, match=rf"2 jobs arrived in {late}.* 9 of 10 queues are gone"
    ):
        broker.run(remove(SHOP, plan, with_jobs=False))
    assert late not in broker.removed
    broker = Broker({late: 2})
    broker.run(remove(SHOP, plan, with_jobs=True))
    assert late in broker.removed
