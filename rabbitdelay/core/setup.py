"""Setup: finding out which queues are missing, and making them, as a conversation.

`setup` is a generator: it yields rounds of commands for the broker and is sent their answers, so
that it is written once and every front drives it with its own I/O. The commands of a round do not
depend on each other's answers and go out together, because a wire may take a second each way.
Declarations are made in the given order. A front answers

    Inspect    with the number of messages, or None when there is no such queue or exchange
    Declare    with None; a refusal is thrown into the generator as one of our errors
    Announce   with None, once the broker has confirmed it

Why Announce: a queue is not safe in its first seconds. Messages confirmed into a quorum queue that
is younger than 2 s (3.10) or 1 s (4.3) are gone after kill -9 and restart: the queue is there, its
log is not. On 3.10 a classic queue may be gone itself (1 of 10 killed right after the confirm): its
record had not reached the disk. So a put through a new queue returns only when the queue has
settled. A client knows what it made itself; the announcement, a message that lives SETTLING_MS in
the `settling` queue, tells all others. It is confirmed before the queue is made, so whoever finds
the queue finds it.
"""

from collections.abc import Generator, Iterable, Sequence
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
from rabbitdelay.errors import PermissionRefused, TopologyConflict, TopologyMissing

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


Command = Inspect | Declare | Announce
Round = tuple[Command, ...]
Answers = tuple[int | None, ...]
Conversation = Generator[Round, Answers, bool]


def setup(
    topology: Topology,
    parts: Sequence[Part],
    *,
    with_base: bool,
    may_declare: bool,
    with_streams: bool = True,
) -> Conversation:
    """Make sure that these parts are there; return whether one of them may not have settled.

    Without its streams a base can be made while the leader of one of them does not answer.
    """
    base = topology.base(with_streams=with_streams) if with_base else ()
    if may_declare:
        try:
            return (yield from _make(topology, base, parts))
        except PermissionRefused as error:
            raise replies.may_not_declare(error) from None
    yield from _look(topology, (*base, *(part.queue for part in parts)))
    return bool((yield (Inspect(Queue(topology.settling)),))[0])


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


def _look(
    topology: Topology, declarations: Iterable[Declaration]
) -> Generator[Round, Answers, None]:
    wanted = [item for item in declarations if not isinstance(item, Binding)]
    answers = yield tuple(map(Inspect, wanted))
    missing = [
        f"{type(item).__name__.lower()} {item.name}"
        for item, count in zip(wanted, answers, strict=True)
        if count is None
    ]
    if missing:
        raise TopologyMissing(
            f"missing on the broker, and this client may not declare: {', '.join(missing)}. "
            f"Import what `{_export_command(topology, missing)}` prints, "
            "or use a client with declare=True"
        )


def _export_command(topology: Topology, missing: Iterable[str]) -> str:
    """The command that prints the definitions of what is missing."""
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
    return f"rabbitdelay --namespace {topology.namespace} topology export{''.join(chosen)}"
