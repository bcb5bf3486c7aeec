"""Setup: finding out which queues are missing, and making them, as a conversation.

`setup` is a generator: it yields rounds of commands for the broker and is sent their answers, so
that it is written once and every front drives it with its own I/O. The commands of a round do not
depend on each other's answers and go out together, because a wire may take a second each way.
Declarations are made in the given order. A front answers

    Inspect    with the number of messages, or None when there is no such queue or exchange
    Declare    with None; a refusal is thrown into the generator as one of our errors
    Announce   with None, once the broker has confirmed it
    Remove     with None; no setup asks for it

Why Announce: a queue is not safe in its first seconds. Messages confirmed into a quorum queue that
is younger than 2 s (3.10) or 1 s (4.3) are gone after kill -9 and restart: the queue is there, its
log is not. On 3.10 a classic queue may be gone itself (1 of 10 killed right after the confirm): its
record had not reached the disk. So a put through a new queue returns only when the queue has
settled. A client knows what it made itself; the announcement, a message that lives SETTLING_MS in
the `settling` queue, tells all others. It is confirmed before the queue is made, so whoever finds
the queue finds it.
"""

from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import dataclass

from rabbitdelay import duration
from rabbitdelay.core import replies
from rabbitdelay.core.topology import (
    RETENTION_MARGIN_MS,
    Binding,
    Declaration,
    Exchange,
    Part,
    Queue,
    Topology,
)
from rabbitdelay.errors import (
    NamespaceMissing,
    PermissionRefused,
    TopologyConflict,
    TopologyMissing,
)

SETTLE_SECONDS = 3.0
"""How old a queue must be before a confirm from it counts."""
MADE_AT_ONCE = 8
"""Queues made after one announcement, which must outlive the settling of the last of them."""


@dataclass(frozen=True, slots=True)
class Inspect:
    """Ask whether a queue or an exchange is there."""

    declaration: Queue | Exchange


@dataclass(frozen=True, slots=True)
class Declare:
    """Make it; nothing happens when it is there already with the same arguments."""

    declaration: Declaration


@dataclass(frozen=True, slots=True)
class Announce:
    """Tell all clients that queues are about to be made."""

    exchange: str
    queues: int = 1
    """The number of queues, for display."""


@dataclass(frozen=True, slots=True)
class Remove:
    """Delete it, with what is in it; nothing happens when it is not there."""

    declaration: Queue | Exchange


Command = Inspect | Declare | Announce | Remove
Round = tuple[Command, ...]
Answers = tuple[int | None, ...]
Conversation = Generator[Round, Answers, bool]


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
) -> Conversation:
    """Make sure that these parts are there; return whether one of them may not have settled.

    A user whom the broker does not let declare goes on if everything is there. `on_refused` is told
    of that refusal; given as `refusal` to later setups, it keeps them from trying again. Without
    `may_found` a namespace that does not exist is an error. Without its streams a base can be made
    while the leader of one of them does not answer.
    """
    base = topology.base(with_streams=with_streams) if with_base else ()
    wanted = (*base, *(part.queue for part in parts))
    if with_base and not may_found:
        yield from require_namespace(topology)
    if not may_declare:
        return (yield from _find(topology, wanted))
    if refusal is None:
        try:
            return (yield from _make(topology, base, parts))
        except PermissionRefused as error:
            refusal = error
        on_refused(refusal)
    if missing := (yield from _missing(wanted)):
        command = f"{_command(topology)} apply{_options(topology, missing)}"
        raise replies.may_not_declare(refusal, missing, command)
    return (yield from _find(topology, wanted))


def require_namespace(topology: Topology) -> Generator[Round, Answers, None]:
    """Look for the exchange that is made first in a namespace.

    Raises:
        NamespaceMissing: There is none.
    """
    (found,) = yield (Inspect(Exchange(topology.unrouted, "fanout")),)
    if found is None:
        raise NamespaceMissing(
            f"there is no namespace {topology.namespace} on this broker: check its spelling "
            "(`rabbitdelay namespaces` lists those that exist); a namespace is made by its first "
            "put, by a worker, or by `rabbitdelay topology apply`"
        )


def find(parts: Sequence[Part]) -> Generator[Round, Answers, tuple[Part, ...]]:
    """Return those of these parts whose queues are there."""
    answers = yield tuple(Inspect(part.queue) for part in parts)
    return tuple(part for part, count in zip(parts, answers, strict=True) if count is not None)


def _find(topology: Topology, wanted: Sequence[Declaration]) -> Conversation:
    """Return whether something may not have settled; raise when something is missing."""
    if missing := (yield from _missing(wanted)):
        options = _options(topology, missing)
        raise TopologyMissing(
            f"missing on the broker, and this client may not declare: {', '.join(missing)}. "
            f"Import what `{_command(topology)} export{options}` prints, "
            "or use a client with declare=True"
        )
    return bool((yield (Inspect(Queue(topology.settling)),))[0])


def _missing(declarations: Iterable[Declaration]) -> Generator[Round, Answers, list[str]]:
    """Return what is not there, in words; bindings cannot be looked for."""
    wanted = [item for item in declarations if not isinstance(item, Binding)]
    answers = yield tuple(map(Inspect, wanted))
    return [
        f"{type(item).__name__.lower()} {item.name}"
        for item, count in zip(wanted, answers, strict=True)
        if count is None
    ]


def _make(
    topology: Topology, base: Sequence[Declaration], parts: Sequence[Part]
) -> Generator[Round, Answers, bool]:
    # Declaring does not tell making from finding: ask first.
    asked = tuple(part.queue for part in parts if not part.is_stream)
    answers = yield from _checked((*map(Declare, base), *map(Inspect, asked)))
    counts = zip(asked, answers[len(base) :], strict=True)
    new = {queue.name for queue, count in counts if count is None}
    # This comes after the queues were found: their announcement was there before them.
    announced = Inspect(Queue(topology.settling))
    unsettled = bool(new)
    for start in range(0, max(len(parts), 1), MADE_AT_ONCE):
        some = parts[start : start + MADE_AT_ONCE]
        if count := sum(part.queue.name in new for part in some):
            yield (Announce(topology.settling, count),)
        declares = (Declare(item) for part in some for item in part.declarations)
        unsettled |= bool((yield from _checked((*declares, announced)))[-1])
    return unsettled


def _checked(commands: Round) -> Generator[Round, Answers, Answers]:
    """Yield a round. A log that was made for another max_delay is not to be mixed with this one."""
    try:
        return (yield commands)
    except TopologyConflict as error:
        kept_seconds = replies.retention_seconds(str(error))
        if kept_seconds is None:
            raise
        max_delay = duration.describe(int(kept_seconds * 1000) - RETENTION_MARGIN_MS)
        raise TopologyConflict(
            f"this namespace was made with max_delay {max_delay}, for which its log of deletes is "
            "kept, and that cannot change: all its clients and workers must be given the same, or "
            "another namespace"
        ) from None


def _command(topology: Topology) -> str:
    return f"rabbitdelay --namespace {topology.namespace} topology"


def _options(topology: Topology, missing: Iterable[str]) -> str:
    """Return the options that select what is missing."""
    options = {
        f"queue {topology.prefix}hold.": "--delay",
        f"queue {topology.prefix}ready.": "--topic",
    }
    chosen = [
        f" {option} {name.removeprefix(prefix)}"
        for name in missing
        for prefix, option in options.items()
        if name.startswith(prefix)
    ]
    return "".join(chosen)
