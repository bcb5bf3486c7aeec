"""Forged snapshots: workers start and deletes hold, whatever is written into the stream."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from rabbitdelay import Client
from rabbitdelay.core.deletes import snapshots
from rabbitdelay.core.deletes.snapshots import Anchor, Writing
from rabbitdelay.core.deletes.tombstone_table import MAX_MS
from rabbitdelay.core.deletes.tombstones import Tombstones
from rabbitdelay.core.topology.topology import Topology
from tests.conftest import WorkerFactory
from tests.support.brokers import streams
from tests.support.jobs.deletes import noting
from tests.support.jobs.worker_thread import working
from tests.support.patience import wait_until

NO_ANCHOR = Anchor(0, "00" * 8)


def with_fields(**changes: object) -> list[bytes]:
    """Return an empty snapshot with these fields in its trailer and a valid checksum."""
    writing = Writing(Tombstones(), NO_ANCHOR, "0123456789abcdef", 1_731_500_000_000)
    pieces = [piece for piece in iter(writing.next_piece, None) if piece is not None]
    fields: dict[str, Any] = json.loads(writing.trailer())["trailer"] | changes
    trailer = {"trailer": fields, "checksum": snapshots._checksum(fields)}
    return [*pieces, json.dumps(trailer).encode()]


FORGED: dict[str, Callable[[], list[bytes]]] = {
    "a position of 2^63": lambda: with_fields(position=1 << 63),
    "the highest position": lambda: with_fields(position=(1 << 63) - 1),
    "a text for a position": lambda: with_fields(position="first"),
    "purges that are a list": lambda: with_fields(purges=["t"]),
    "a purge at a text": lambda: with_fields(purges={"t": "now"}),
    "a floor that is a text": lambda: with_fields(floor_ms="0"),
    "a floor at the end of time": lambda: with_fields(floor_ms=MAX_MS),
    "a pause that cannot be resumed": lambda: with_fields(switches={"t": [1 << 62, True]}),
    "two hundred million buckets": lambda: with_fields(buckets=200_000_000),
    "more pieces than there are": lambda: with_fields(pieces=(1 << 32) - 1),
    "a number of pieces that is none": lambda: with_fields(pieces=[]),
}


@pytest.mark.parametrize("what", FORGED)
def test_a_worker_starts_beside_a_forged_snapshot(
    client: Client,
    make_worker: WorkerFactory,
    broker_url: str,
    namespace: str,
    *,
    what: str,
) -> None:
    """The worker reads the log instead: live jobs run, and deleted ones do not."""
    client.put("t", id="deleted")
    client.delete("deleted")
    client.tombstones()  # all streams exist afterwards
    client.put("t", id="lives")
    streams.append(broker_url, Topology(namespace).snapshots, FORGED[what]())
    worker = make_worker()
    seen = noting(worker)
    with working(worker):
        wait_until(lambda: "lives" in seen, seconds=40, what="the worker runs the job")
    assert seen == ["lives"]
