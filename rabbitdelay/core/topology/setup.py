"""Setup: finding out which queues are missing, and declaring them, as a conversation.

`setup` is a generator. It yields rounds of commands for the broker and receives their answers, so
that it is written once and each front end drives it with its own I/O. The commands of a round do
not depend on each other's answers and are sent together, because a round trip may take seconds.
Declarations and flushes are executed in the given order. A front end answers

    Inspect      with the number of messages, or None if the queue or exchange does not exist
    Declare      with None; a refusal is thrown into the generator as one of our errors
    Flush        with None, once the flush queue has been declared
    Announce     with None, once the broker has confirmed it
    Enter        with None, once this client is counted among those that are creating queues
    Leave        with None, once this client is no longer counted
    CountMakers  with their number, or None if there has never been one
    PollAfter    with None, after that time
    Remove       with None, once it is deleted; only the removal of a namespace sends it

Why Flush: a quorum queue is not yet safe against kill -9 when its declare has been answered. The
broker registers the queue's log in a table, `names.dets`, and dets keeps what is written to it in
memory until the table has not been used for 0.5 s, for up to 3 s. A crash before that leaves the
queue, but not its log: all confirmed messages are gone. dets writes everything to its file before
it looks up a name that is not in memory, and ra, which owns the table, looks up the name of each
new queue before registering it (ra_directory:register_name in ra 2.0 to 3.1, update_cache in
dets.erl). So once another new quorum queue has been declared, all earlier ones are registered on
disk. The flush queue is that other queue, and is deleted at once. On brokers with Mnesia the flush
also saves classic queues; without it a crash loses 1 in 10 of them.

Why Enter and Leave: the broker shows a queue before its log is registered. A client that finds such
a queue, or declares one that another client has begun to create, would flush too early. So clients
that create queues ("makers") consume the queue `making`, which has no messages, until they have
flushed, and other clients wait until it has no consumers. The broker removes the consumer of a
client that dies.

Why Announce: the client may have died before its flush, and older clients do not flush. So a
message is published to `settling` before a queue is created, and stays there for STABILISING_MS. A
client that finds it flushes, too.

Streams cannot be flushed. The first stream of a broker starts the stream coordinator, whose log is
registered in a table of its own. If that log is lost, no stream can be declared any more. So the
first puts of a namespace wait STABILISE_SECONDS, once. The queue `young`, which expires by itself,
tells all clients to wait.
"""

import re
from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import partial

from rabbitdelay import duration
from rabbitdelay.core.amqp import reply_codes
from rabbitdelay.core.topology.objects import Binding, Declaration, Exchange, Part, Queue
from rabbitdelay.core.topology.topology import RETENTION_MARGIN_MS, Topology
from rabbitdelay.errors import (
    NamespaceMissing,
    PermissionRefused,
    TopologyConflict,
    TopologyMissing,
)

STABILISE_SECONDS = 3.0
"""Age that a queue must have before its confirms can be trusted, if it cannot be flushed."""
FLUSHED_BY_DECLARING = ((3, 10), (4, 3))
"""First and last RabbitMQ version on which queues were measured to be safe after a flush."""
POLL_SECONDS = 0.05
POLLS = 16
"""Maximum number of checks whether other clients are still creating queues."""
MADE_AT_ONCE = 8
"""Number of queues declared per announcement, which must not expire before the last is safe."""


@dataclass(frozen=True, slots=True)
class Inspect:
    """Ask whether a queue or an exchange exists."""

    declaration: Queue | Exchange


@dataclass(frozen=True, slots=True)
class Declare:
    """Declare an object; has no effect if it exists with the same arguments."""

    declaration: Declaration


@dataclass(frozen=True, slots=True)
class Announce:
    """Announce to all clients that queues are about to be created."""

    exchange: str
    queues: int = 1
    """Number of queues, for display."""


@dataclass(frozen=True, slots=True)
class Flush:
    """Declare a new queue, so that all earlier ones are registered on disk, and delete it."""

    queue: Queue


@dataclass(frozen=True, slots=True)
class Enter:
    """Count this client as a maker until it leaves or dies."""

    queue: Queue


@dataclass(frozen=True, slots=True)
class Leave:
    """Stop counting this client as a maker."""

    queue: Queue


@dataclass(frozen=True, slots=True)
class CountMakers:
    """Return the number of clients that are creating queues."""

    queue: Queue


@dataclass(frozen=True, slots=True)
class PollAfter:
    """Wait before the next round, which asks again."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Remove:
    """Delete an object with its messages; has no effect if it does not exist."""

    declaration: Queue | Exchange


Command = Inspect | Declare | Flush | Announce | Enter | Leave | CountMakers | PollAfter | Remove
Round = tuple[Command, ...]
Answers = tuple[int | None, ...]
Conversation = Generator[Round, Answers, bool]


def is_flushed_by_declaring(version: str) -> bool:
    """Whether a declare flushes earlier queues on a broker of this version, such as `4.3.6`."""
    numbers = re.match(r"(\d+)\.(\d+)", version)
    if numbers is None:
        return False
    first, last = FLUSHED_BY_DECLARING
    return first <= (int(numbers[1]), int(numbers[2])) <= last


def setup(
    topology: Topology,
    parts: Sequence[Part],
    *,
    with_base: bool,
    may_declare: bool,
    may_found: bool = True,
    refusal: PermissionRefused | None = None,
    with_streams: bool = True,
    on_refused: Callable[[PermissionRefused], None] = lambda _: None,
    flush: str | None = None,
) -> Conversation:
    """Make sure that these parts exist; return whether a crash may lose one of them.

    A user who may not declare can continue if nothing is missing.

    Args:
        topology: The names and arguments of the namespace.
        parts: The queues, with the bindings and exchanges that lead to them.
        with_base: Whether to declare the base of the namespace as well.
        may_declare: Whether the client declares what is missing.
        may_found: Whether to create a namespace that does not exist, instead of raising an error.
        refusal: An earlier refusal to declare, so that the client does not provoke it again.
        with_streams: Whether to declare streams, which waits for their leaders.
        on_refused: Called with the first refusal to declare.
        flush: A random name for flush queues; None if a queue is safe only after STABILISE_SECONDS.
    """
    base = topology.base(with_streams=with_streams) if with_base else ()
    wanted = (*base, *(part.queue for part in parts))
    if with_base and not may_found:
        yield from require_namespace(topology)
    look = partial(_find, topology, wanted, with_base=with_base, is_flushed=flush is not None)
    if not may_declare:
        return (yield from look())
    if refusal is None:
        maker = _Maker(topology, parts, flush, with_base=with_base, with_streams=with_streams)
        try:
            return (yield from maker.make())
        except PermissionRefused as error:
            refusal = error
        on_refused(refusal)
    if missing := (yield from _missing(wanted)):
        command = f"{_command(topology)} apply{selecting(topology, _names(missing))}"
        raise reply_codes.may_not_declare(refusal, missing, command)
    return (yield from look())


def require_namespace(topology: Topology) -> Generator[Round, Answers, None]:
    """Check that the first exchange of a namespace exists.

    Raises:
        NamespaceMissing: The namespace does not exist.
    """
    (found,) = yield (Inspect(Exchange(topology.unrouted, "fanout")),)
    if found is None:
        raise namespace_missing(topology)


def namespace_missing(topology: Topology) -> NamespaceMissing:
    """Return the error for a namespace that does not exist."""
    return NamespaceMissing(
        f"there is no namespace {topology.namespace} on this broker: check its spelling "
        "(`rabbitdelay namespaces` lists those that exist); a namespace is created by its "
        "first put, by a worker, or by `rabbitdelay topology apply`"
    )


def find(parts: Sequence[Part]) -> Generator[Round, Answers, tuple[Part, ...]]:
    """Return the parts whose queues exist."""
    answers = yield tuple(Inspect(part.queue) for part in parts)
    return tuple(part for part, count in zip(parts, answers, strict=True) if count is not None)


def _find(
    topology: Topology, wanted: Sequence[Declaration], *, with_base: bool, is_flushed: bool
) -> Conversation:
    """Return whether a crash may lose one of the objects.

    Raise TopologyMissing if one is missing.
    """
    if missing := (yield from _missing(wanted)):
        options = selecting(topology, _names(missing))
        raise TopologyMissing(
            f"missing on the broker, and this client may not declare: {', '.join(missing)}. "
            f"Import the output of `{_command(topology)} export{options}`, "
            "or use a client with declare=True"
        )
    if not is_flushed:
        return bool((yield (Inspect(Queue(topology.stabilising)),))[0])
    others, young = yield from _wait_for_makers(topology)
    return others is _Others.STAYED or (with_base and young)


def _missing(declarations: Iterable[Declaration]) -> Generator[Round, Answers, list[str]]:
    """Return the names of the objects that are missing; bindings cannot be checked."""
    wanted = [item for item in declarations if not isinstance(item, Binding)]
    answers = yield tuple(map(Inspect, wanted))
    return [
        f"{type(item).__name__.lower()} {item.name}"
        for item, count in zip(wanted, answers, strict=True)
        if count is None
    ]


class _Others(Enum):
    """Whether other clients were creating queues, and whether they finished during the wait."""

    NONE = "none"
    LEFT = "left"
    STAYED = "stayed"


class _Maker:
    """Creates what is missing.

    Queues are created in groups, each of which is announced and flushed.
    """

    def __init__(
        self,
        topology: Topology,
        parts: Sequence[Part],
        flush: str | None,
        *,
        with_base: bool,
        with_streams: bool,
    ) -> None:
        self._topology = topology
        self._parts = parts
        self._flush = flush
        self._base = topology.base(with_streams=False) if with_base else ()
        log, snapshots, _ = topology.deletion()
        self._streams = (log, snapshots) if with_base and with_streams else ()
        self._flushes = 0

    def make(self) -> Generator[Round, Answers, bool]:
        """Create everything; return whether a crash may lose something."""
        # The answer to a declare does not tell whether the queue is new, so ask first.
        asked = tuple(part.queue for part in self._parts if not part.is_stream)
        streams = tuple(part.queue for part in self._streams)
        questions = (*map(Inspect, asked), *map(Inspect, streams))
        answers = (yield from _checked((*map(Declare, self._base), *questions)))[len(self._base) :]
        counts = zip((*asked, *streams), answers, strict=True)
        new = {queue.name for queue, count in counts if count is None}
        announced = yield from self._make_all(new)
        if self._flush is None:
            return bool(announced or new.intersection(queue.name for queue in asked))
        return (yield from self._is_unsafe(announced, are_queues=bool(asked)))

    def _make_all(self, new: set[str]) -> Generator[Round, Answers, int | None]:
        """Create the streams and all parts; return the number of announcements that still matter.

        They are counted after the queues were found, because an announcement precedes its queue.
        After a flush none matters.
        """
        announced: int | None = 0
        items = [*self._streams, *self._parts]
        are_streams_new = any(part.queue.name in new for part in self._streams)
        first = (Declare(self._topology.young),) if are_streams_new else ()
        for start in range(0, max(len(items), 1), MADE_AT_ONCE):
            some = items[start : start + MADE_AT_ONCE]
            count = sum(part.queue.name in new and not part.is_stream for part in some)
            declares = tuple(Declare(item) for part in some for item in part.declarations)
            announced = yield from self._make_some((*first, *declares), count)
            first = ()
        return announced

    def _make_some(self, declares: Round, new: int) -> Generator[Round, Answers, int | None]:
        making, stabilising = self._topology.making, self._topology.stabilising
        if not new:
            return (yield from _checked((*declares, Inspect(Queue(stabilising)))))[-1]
        if self._flush is None:
            yield (Announce(stabilising, new),)
            return (yield from _checked((*declares, Inspect(Queue(stabilising)))))[-1]
        yield (Announce(stabilising, new), Enter(making))
        yield from _checked((*declares, self._next_flush()))
        yield (Leave(making),)
        return 0

    def _is_unsafe(
        self, announced: int | None, *, are_queues: bool
    ) -> Generator[Round, Answers, bool]:
        """Wait for other makers, and flush the queues that they have created."""
        if not are_queues:
            return bool(self._base) and (yield (Inspect(self._topology.young),))[0] is not None
        others, young = yield from _wait_for_makers(self._topology)
        if others is _Others.LEFT or announced:
            yield (self._next_flush(),)
        return others is _Others.STAYED or (bool(self._base) and young)

    def _next_flush(self) -> Flush:
        """Return a flush with a new name, because a name works only once."""
        self._flushes += 1
        return Flush(self._topology.flush_queue(f"{self._flush}.{self._flushes}"))


def _wait_for_makers(topology: Topology) -> Generator[Round, Answers, tuple[_Others, bool]]:
    """Wait for a limited time until no other client is creating queues.

    Return also whether the streams of the namespace may have been created just now.
    """
    makers, young = yield (CountMakers(topology.making), Inspect(topology.young))
    others = _Others.STAYED if makers else _Others.NONE
    for _ in range(POLLS if makers else 0):
        yield (PollAfter(POLL_SECONDS),)
        (makers,) = yield (CountMakers(topology.making),)
        if not makers:
            others = _Others.LEFT
            break
    return others, young is not None


def _checked(commands: Round) -> Generator[Round, Answers, Answers]:
    """Yield a round. Explain the conflict when the log was created for another max_delay."""
    try:
        return (yield commands)
    except TopologyConflict as error:
        kept_seconds = reply_codes.retention_seconds(str(error))
        if kept_seconds is None:
            raise
        max_delay = duration.describe(int(kept_seconds * 1000) - RETENTION_MARGIN_MS)
        raise TopologyConflict(
            f"this namespace was created with max_delay {max_delay}, which cannot change because "
            "its log of deletes is kept for that long: give all its clients and workers this "
            "max_delay, or use another namespace"
        ) from None


def _command(topology: Topology) -> str:
    return f"rabbitdelay --namespace {topology.namespace} topology"


def selecting(topology: Topology, names: Iterable[str]) -> str:
    """Return the command line options that select these queues and exchanges."""
    options = {
        f"{topology.prefix}hold.": "--delay",
        f"{topology.prefix}ready.": "--topic",
        f"{topology.prefix}buried.": "--topic",
    }
    chosen = [
        f" {option} {name.removeprefix(prefix)}"
        for name in names
        for prefix, option in options.items()
        if name.startswith(prefix)
    ]
    return "".join(dict.fromkeys(chosen))


def _names(missing: Iterable[str]) -> list[str]:
    return [text.split(" ", 1)[1] for text in missing]
