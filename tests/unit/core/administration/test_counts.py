"""Counts of jobs, read from the management API's list of queues."""

from typing import Any

from rabbitdelay.core.administration.counts import HoldCount, Statistics, read_listing
from rabbitdelay.core.topology import ladder
from rabbitdelay.core.topology.topology import Topology

TOPOLOGY = Topology()


def hop(delay_ms: int) -> ladder.Hop:
    (found,) = ladder.hops(ladder.to_digits(delay_ms))
    return found


def test_a_listing_has_the_topics_hops_and_counts_of_its_queues() -> None:
    ready, hold = TOPOLOGY.ready_queue("mail"), TOPOLOGY.hold_queue(hop(60_000))
    rows: list[dict[str, Any]] = [
        {"name": ready, "messages_unacknowledged": 3, "messages_dlx": 0},
        {"name": hold, "messages_unacknowledged": None, "messages_dlx": 5},
        {"name": TOPOLOGY.unrouted},
    ]
    listing = read_listing(TOPOLOGY, rows)
    assert (listing.topics, listing.hops) == (("mail",), (hop(60_000),))
    assert (listing.reserved, listing.dead_lettering) == ({ready: 3}, {hold: 5})


def test_jobs_in_a_hold_queue_are_due_within_it_and_the_lower_levels() -> None:
    """A job in `hold.2h` may have up to 59 minutes and 59.99 seconds of lower levels to go."""
    assert HoldCount(hop(2 * 3_600_000), 1).due_within_ms == 3 * 3_600_000
    assert HoldCount(hop(90), 1).due_within_ms == 90


def test_delayed_jobs_are_those_of_all_hold_queues() -> None:
    delayed = (HoldCount(hop(90), 2), HoldCount(hop(60_000), 3))
    assert Statistics((), (), delayed, unrouted=7).delayed_jobs == 5
