"""Snapshots of the tombstones: one consumer writes them, and no consumer trusts a broken one.

Old snapshots are removed, like old segments of the log.
"""

import json
import signal
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, replace
from functools import partial

import pytest

from rabbitdelay import Client
from rabbitdelay.core.deletes import snapshots
from rabbitdelay.core.deletes.records import Delete, Fence, encode
from rabbitdelay.core.deletes.snapshots import (
    Anchor,
    Reading,
    Trailer,
    Writing,
    is_piece,
    read_trailer,
)
from rabbitdelay.core.deletes.tombstones import Tombstones
from rabbitdelay.core.topology import topology
from rabbitdelay.core.topology.topology import Topology
from rabbitdelay.engine.consume.subscription import Subscription
from rabbitdelay.engine.delete_log import fence, log_upkeep, record_reader
from rabbitdelay.engine.delete_log.log_start import LogStart
from rabbitdelay.engine.delete_log.reader import LogReader
from rabbitdelay.engine.deletes import snapshot_reader, snapshot_writer
from tests.conftest import ClientFactory
from tests.support.brokers import streams
from tests.support.jobs.delete_load import COMPACTOR
from tests.support.patience import patience, wait_until
from tests.support.programs.script import Process

NOT_TRUSTED = "snapshot: not used ("
IN_THE_LOG = 300


@pytest.fixture
def names(namespace: str) -> Topology:
    return Topology(namespace)


@pytest.fixture
def _slow_log(monkeypatch: pytest.MonkeyPatch) -> None:
    """Deliver one record of the log to a starting consumer, and the rest after it looked for one.

    Normally the consumer reads both at once, and continues with the one that is read first.
    """
    read, snapshot_read = LogReader.read, LogStart._snapshot_read

    def read_later(log_reader: LogReader) -> None:
        snapshot = log_reader._start._snapshot_reader
        if snapshot is None or snapshot._done is None:
            read(log_reader)

    def read_on(start: LogStart, reading: Reading | None) -> None:
        snapshot_read(start, reading)
        start._record_reader.acknowledge()

    monkeypatch.setattr(LogReader, "read", read_later)
    monkeypatch.setattr(LogStart, "_snapshot_read", read_on)
    monkeypatch.setattr(record_reader, "PREFETCH", 1)
    monkeypatch.setattr(fence, "PATIENCE_SECONDS", 2.0)
    monkeypatch.setattr(snapshot_reader, "PATIENCE_SECONDS", 1.0)


def delete_singly(client: Client, ids: list[str]) -> None:
    """Delete each id with a record of its own."""
    with ThreadPoolExecutor(16) as pool:
        list(pool.map(client.delete, ids))


def knows(client: Client, id: str) -> bool:
    """Return whether a client's consumer knows that a job was deleted."""
    log_reader = client._log_reader()
    with log_reader.known.locked() as following:
        return following.tombstones.kills("t", id, "", 1) is not None


def snapshot_ms(client: Client) -> int:
    """Return the time of the last snapshot that a client knows of; 0 if it knows none."""
    return client.tombstones().snapshot_ms or 0


# Writing snapshots


@pytest.mark.usefixtures("_slow_log")
@pytest.mark.usefixtures("existing_namespace")
def test_one_of_three_consumers_writes_a_snapshot_and_the_next_starts_with_it(
    make_client: ClientFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(snapshot_writer, "SNAPSHOT_EVERY", 500)
    consumers = [make_client() for _ in range(3)]
    for client in consumers:
        client._log_reader()
    delete_singly(consumers[0], [f"single-{n}" for n in range(400)])
    consumers[0].delete_many(f"packed-{n}" for n in range(1_000))
    consumers[0].pause("paused")
    wait_until(lambda: all(map(snapshot_ms, consumers)), seconds=60)
    wait_until(lambda: has_recent_snapshot(consumers[0]), seconds=30)
    consumers[0].delete("behind")
    starting = make_client()
    assert knows(starting, "behind")
    assert knows(starting, "single-0")
    assert knows(starting, "packed-999")
    assert not knows(starting, "unknown")
    stats = starting.tombstones()
    assert stats.count == 1_401
    assert stats.paused == ("paused",)
    assert stats.records < 400, "only records after the snapshot are read"


def has_recent_snapshot(client: Client) -> bool:
    """Return whether the latest snapshot covers nearly the whole log, so that no other is due."""
    log_reader = client._log_reader()
    return log_reader.known.following.since_snapshot < snapshot_writer.SNAPSHOT_EVERY


@pytest.mark.usefixtures("existing_namespace")
def test_exactly_one_of_three_consumers_writes_a_snapshot(
    make_client: ClientFactory,
    broker_url: str,
    names: Topology,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(snapshot_writer, "SNAPSHOT_EVERY", 500)
    consumers = [make_client() for _ in range(3)]
    for client in consumers:
        client._log_reader()
    consumers[0].delete_many(f"packed-{n}" for n in range(900))
    wait_until(lambda: all(map(snapshot_ms, consumers)), seconds=60)
    time.sleep(2 * log_upkeep.SWEEP_SECONDS)  # another would be asked for by then
    (trailer,) = streams.trailers(broker_url, names.snapshots)
    assert read_trailer(trailer).count == 900


@pytest.mark.usefixtures("existing_namespace")
def test_another_consumer_writes_snapshots_when_the_chosen_one_is_killed(
    make_client: ClientFactory,
    broker_url: str,
    namespace: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(snapshot_writer, "SNAPSHOT_EVERY", 500)
    monkeypatch.setattr(snapshot_writer, "ASK_AGAIN_SECONDS", 1.0)
    arguments = (broker_url, namespace, "500")
    with Process(COMPACTOR, *arguments) as chosen, Process(COMPACTOR, *arguments) as stopped:
        chosen.wait_for("ready", seconds=60)
        stopped.wait_for("ready", seconds=60)
        client = make_client()
        client._log_reader()
        client.delete_many(f"first-{n}" for n in range(600))
        wait_until(lambda: snapshot_ms(client) > 0, seconds=60)
        first_ms = snapshot_ms(client)
        for process in (chosen, stopped):
            process.signal(signal.SIGKILL)
            process.wait()
    client.delete_many(f"second-{n}" for n in range(1_300))
    wait_until(lambda: snapshot_ms(client) > first_ms, seconds=60)
    newest = read_trailer(streams.trailers(broker_url, Topology(namespace).snapshots)[-1])
    assert newest.count == 1_900
    assert newest.time_ms > first_ms


@pytest.mark.usefixtures("_slow_log")
def test_a_snapshot_of_several_segments_is_read(
    make_client: ClientFactory,
    broker_url: str,
    names: Topology,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A stream uses up a position at each new segment, so the first piece is farther away."""
    monkeypatch.setattr(snapshot_writer, "SNAPSHOT_EVERY", 3_000)
    monkeypatch.setattr(snapshots, "PIECE_BYTES", 4_000)
    for module in (snapshots, topology):
        monkeypatch.setattr(module, "LOG_SEGMENT_BYTES", 12_000)
    client = make_client()
    client.put("t")  # creates the namespace
    client._log_reader()
    delete_singly(client, [f"single-{n}" for n in range(IN_THE_LOG)])
    client.delete_many(f"packed-{n}" for n in range(3_000))
    wait_until(lambda: snapshot_ms(client) > 0, seconds=60)
    positions = [position for position, _ in streams.read_stream(broker_url, names.snapshots)]
    assert len(positions) > 25
    assert positions[-1] - positions[0] > len(positions), "the positions must have gaps"
    starting = make_client()
    assert knows(starting, "packed-2999")
    assert starting.tombstones().count == 3_000 + IN_THE_LOG
    assert starting.tombstones().records < 20


# Reading snapshots


class Snapshot:
    """A handmade snapshot, which marks one more job as deleted than the log does."""

    def __init__(self, anchor: Anchor) -> None:
        known = Tombstones()
        known.add(Delete(tuple(f"log-{n}" for n in range(IN_THE_LOG)), now_ms()))
        known.add(Delete(("trap",), now_ms()))
        writing = Writing(known, anchor, "0123456789abcdef", now_ms())
        self.pieces: list[bytes] = []
        while (piece := writing.next_piece()) is not None:
            self.pieces.append(piece)
        self.trailer = writing.trailer()

    def with_trailer(self, **changes: object) -> list[bytes]:
        """Return the snapshot with another trailer, whose checksum is valid."""
        changed: Trailer = replace(read_trailer(self.trailer), **changes)  # type: ignore[arg-type]
        fields = asdict(changed)
        body = {"trailer": fields, "checksum": snapshots._checksum(fields)}
        return [*self.pieces, json.dumps(body).encode()]


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def damaged(body: bytes) -> bytes:
    """Return the body with one byte in the middle changed."""
    middle = len(body) // 2
    return body[:middle] + bytes([body[middle] ^ 1]) + body[middle + 1 :]


BROKEN: dict[str, Callable[[Snapshot], list[bytes]]] = {
    "a damaged piece": lambda it: [damaged(it.pieces[0]), *it.pieces[1:], it.trailer],
    "a missing piece": lambda it: [*it.pieces[1:], it.trailer],
    "the last piece is missing": lambda it: [*it.pieces[:-1], it.trailer],
    "pieces in disorder": lambda it: [*reversed(it.pieces), it.trailer],
    "no pieces": lambda it: [it.trailer],
    "a damaged trailer": lambda it: [*it.pieces, damaged(it.trailer)],
    "another digest": lambda it: it.with_trailer(digest="00" * 16),
    "another version": lambda it: it.with_trailer(version=99),
    "garbage at the end": lambda it: [*it.pieces, it.trailer, b"garbage"],
    "nothing but garbage": lambda _: [b"\x00", b"{}", b"[]"],
}


@pytest.fixture
def written(
    client: Client, broker_url: str, names: Topology, monkeypatch: pytest.MonkeyPatch
) -> Snapshot:
    """A log without a snapshot, and a snapshot that fits it."""
    monkeypatch.setattr(snapshots, "PIECE_BYTES", 4_000)
    delete_singly(client, ["log-0"])  # creates the stream
    ids = [f"log-{n}" for n in range(1, IN_THE_LOG)]
    streams.append_records(broker_url, names.tombstones, [Delete((one,), now_ms()) for one in ids])
    streams.append_records(broker_url, names.tombstones, [Fence("anchor")])
    anchor = encode(Fence("anchor"))
    position, body = streams.read_stream(broker_url, names.tombstones, last=anchor)[-1]
    snapshot = Snapshot(Anchor.of(position, body))
    assert len(snapshot.pieces) > 2
    return snapshot


@pytest.fixture
def starting(make_client: ClientFactory, client: Client) -> Client:
    """A client that has not read anything."""
    client._log_reader()  # all streams exist afterwards
    return make_client()


@pytest.mark.usefixtures("_slow_log")
@pytest.mark.usefixtures("existing_namespace")
def test_a_handmade_snapshot_is_trusted(
    written: Snapshot,
    starting: Client,
    broker_url: str,
    names: Topology,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Otherwise the tests of broken ones would show nothing. One connection suffices to read it."""
    streams.append(broker_url, names.snapshots, [*written.pieces, written.trailer])
    assert knows(starting, "trap")
    assert knows(starting, "log-299")
    assert starting.tombstones().records < 10
    for error in ("CHANNEL_ERROR", "unknown delivery tag"):
        assert error not in caplog.text


@pytest.mark.usefixtures("_slow_log")
@pytest.mark.parametrize("how", BROKEN)
@pytest.mark.usefixtures("existing_namespace")
def test_a_broken_snapshot_is_not_trusted(
    written: Snapshot,
    starting: Client,
    broker_url: str,
    names: Topology,
    caplog: pytest.LogCaptureFixture,
    *,
    how: str,
) -> None:
    """The consumer falls back to the log, logs that, and knows every delete."""
    streams.append(broker_url, names.snapshots, BROKEN[how](written))
    assert starting.tombstones().count == IN_THE_LOG
    assert starting.tombstones().records > IN_THE_LOG
    assert not knows(starting, "trap")
    wait_until(lambda: NOT_TRUSTED in caplog.text, seconds=30, what="the consumer logs it")


@pytest.mark.usefixtures("_slow_log")
@pytest.mark.usefixtures("existing_namespace")
def test_an_unfinished_snapshot_is_ignored(
    written: Snapshot, starting: Client, broker_url: str, names: Topology
) -> None:
    """Pieces without a trailer: their writer has died, or is still writing."""
    streams.append(broker_url, names.snapshots, written.pieces)
    assert starting.tombstones().count == IN_THE_LOG
    assert starting.tombstones().records > IN_THE_LOG
    assert not knows(starting, "trap")


@pytest.mark.usefixtures("_slow_log")
@pytest.mark.parametrize("position", [0, 7, 1_000_000])
@pytest.mark.usefixtures("existing_namespace")
def test_a_snapshot_of_another_log_is_used_and_the_log_read_from_its_beginning(
    written: Snapshot, starting: Client, broker_url: str, names: Topology, position: int
) -> None:
    """The stream was deleted: the snapshot's deletes are valid, but not its position in the log."""
    other = written.with_trailer(position=position, fingerprint="00" * 8)
    streams.append(broker_url, names.snapshots, other)
    streams.append_records(broker_url, names.tombstones, [Delete(("behind",), now_ms())])
    wait_until(lambda: starting._log_reader().is_current, seconds=60)
    for name in ("log-0", "log-299", "behind"):
        assert knows(starting, name)
    assert starting.tombstones().records >= IN_THE_LOG, "the log must be read from its beginning"


def leave_only_a_snapshot(
    client: Client, broker_url: str, names: Topology, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Write a snapshot of 600 deletes and delete the log; no other snapshot is written later."""
    monkeypatch.setattr(snapshot_writer, "SNAPSHOT_EVERY", 500)
    client._log_reader()
    client.delete_many(f"old-{n}" for n in range(600))
    wait_until(lambda: snapshot_ms(client) > 0, seconds=60)
    client.close()
    streams.delete_queue(broker_url, names.tombstones)
    monkeypatch.setattr(snapshot_writer, "SNAPSHOT_EVERY", 1_000_000)


@pytest.mark.usefixtures("_slow_log")
@pytest.mark.usefixtures("existing_namespace")
def test_a_log_deleted_while_no_consumer_ran_is_restored_from_its_snapshot(
    make_client: ClientFactory,
    broker_url: str,
    names: Topology,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Consumers that start then know the snapshot's deletes, which are written to the new log."""
    leave_only_a_snapshot(make_client(), broker_url, names, monkeypatch)
    writer = make_client()
    delete_singly(writer, [f"new-{n}" for n in range(IN_THE_LOG)])
    second = make_client()
    second._log_reader()
    wait_until(lambda: second._log_reader().is_current, seconds=60)
    assert second.tombstones().count == 600 + IN_THE_LOG
    streams.delete_queue(broker_url, names.snapshots)
    third = make_client()
    assert third.tombstones().count == 600 + IN_THE_LOG


@pytest.mark.usefixtures("_slow_log")
@pytest.mark.parametrize("opens_after_seconds", [0.0, 0.3])
@pytest.mark.usefixtures("existing_namespace")
def test_a_snapshot_that_arrives_while_the_log_is_opened_loses_no_records(
    make_client: ClientFactory,
    broker_url: str,
    names: Topology,
    monkeypatch: pytest.MonkeyPatch,
    opens_after_seconds: float,
) -> None:
    """Records of the log read before the snapshot takes effect are read again."""
    leave_only_a_snapshot(make_client(), broker_url, names, monkeypatch)
    delete_singly(make_client(), [f"new-{n}" for n in range(50)])
    made, snapshot_read = Subscription._made, LogStart._snapshot_read

    def made_later(subscription: Subscription, round_: int, error: Exception | None) -> None:
        seconds = opens_after_seconds if subscription.queue == names.tombstones else 0.0
        subscription._consumer.call_later(seconds, partial(made, subscription, round_, error))

    def read_later(start: LogStart, reading: Reading | None) -> None:
        assert reading is not None
        start._consumer.call_later(0.6, partial(snapshot_read, start, reading))

    monkeypatch.setattr(Subscription, "_made", made_later)
    monkeypatch.setattr(LogStart, "_snapshot_read", read_later)
    starting = make_client()
    starting._log_reader()
    wait_until(lambda: starting._log_reader().is_current, seconds=60)
    assert [n for n in range(50) if not knows(starting, f"new-{n}")] == []
    assert starting.tombstones().count == 650


# Retention


def test_old_segments_of_the_log_are_removed(
    make_client: ClientFactory,
    broker_url: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Records are written until the first position of the log rises."""
    monkeypatch.setattr(topology, "LOG_SEGMENT_BYTES", 20_000)
    monkeypatch.setattr(topology, "RETENTION_MARGIN_MS", 1_000)
    client = make_client(max_delay=1)
    client.put("t")  # creates the namespace
    log = client.topology.tombstones
    written = 1_000
    delete_singly(client, [f"first-{n}" for n in range(written)])
    began = time.monotonic()
    batch = 0
    while (there := streams.read_log(broker_url, log))[0][0] == 0:
        assert time.monotonic() < began + patience(60), "no segment is removed"
        batch += 1
        delete_singly(client, [f"later-{batch}-{n}" for n in range(300)])
        written += 300
    with capsys.disabled():
        counts = f"{written} deletes, {len(there)} records"
        print(f"\n{counts}, from {there[0][0]} on", end=" ")  # noqa: T201 - asked for
    assert len(there) < written
    last = f"later-{batch}-299" if batch else "first-999"
    assert last.encode() in b"".join(body for _, body in there)


def test_old_snapshots_are_removed(
    make_client: ClientFactory,
    broker_url: str,
    names: Topology,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The newest one stays, and a starting consumer uses it."""
    monkeypatch.setattr(topology, "LOG_SEGMENT_BYTES", 20_000)
    monkeypatch.setattr(snapshots, "LOG_SEGMENT_BYTES", 20_000)
    monkeypatch.setattr(topology, "SNAPSHOT_AGE_MS", 1_000)
    monkeypatch.setattr(snapshot_writer, "SNAPSHOT_EVERY", 400)
    monkeypatch.setattr(snapshot_writer, "ASK_AGAIN_SECONDS", 0.5)
    client = make_client()
    client.put("t")  # creates the namespace
    client._log_reader()
    take_snapshot(client)
    deadline = time.monotonic() + patience(90)
    while not (there := streams.read_stream(broker_url, names.snapshots)) or there[0][0] == 0:
        assert time.monotonic() < deadline, "no snapshot is removed"
        take_snapshot(client)
    newest = read_trailer(there[-1][1])
    assert sum(is_piece(body) for _, body in there) >= newest.pieces
    assert make_client().tombstones().count == client.tombstones().count


def take_snapshot(client: Client) -> None:
    """Delete enough ids to make a snapshot due, and wait for it."""
    before_ms = snapshot_ms(client)
    client.delete_many(f"packed-{n}" for n in range(500))
    wait_until(lambda: snapshot_ms(client) > before_ms, seconds=60)
