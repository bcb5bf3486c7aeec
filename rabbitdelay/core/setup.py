"""Setup: finding out which queues are missing, and making them, as a conversation.

`setup` is a generator: it yields what to ask of the broker and is sent the answer, so that it is
written once and every front drives it with its own I/O. A front answers

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
from rabbitdelay.errors import TopologyConflict, TopologyMissing

SETTLE_SECONDS = 3.0
"""How old a queue must be before a confirm from it counts."""


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
    """Tell all clients that a queue is about to be made."""

    exchange: str


Command = Inspect | Declare | Announce
Conversation = Generator[Command, int | None, bool]


def setup(
    topology: Topology, parts: Sequence[Part], *, with_base: bool, may_declare: bool
) -> Conversation:
    """Make sure that these parts are there; return whether one of them may not have settled."""
    if may_declare:
        yield from _make(topology, parts, with_base=with_base)
    else:
        base = topology.base() if with_base else ()
        yield from _look(topology, (*base, *(part.queue for part in parts)))
    announced = yield Inspect(Queue(topology.settling))
    return bool(announced)


def _make(
    topology: Topology, parts: Iterable[Part], *, with_base: bool
) -> Generator[Command, int | None, None]:
    for declaration in topology.base() if with_base else ():
        yield from _declare(declaration)
    for part in parts:
        # Declaring does not tell making from finding: ask first.
        if not part.is_stream and (yield Inspect(part.queue)) is None:
            yield Announce(topology.settling)
        for declaration in part.declarations:
            yield from _declare(declaration)


def _declare(declaration: Declaration) -> Generator[Command, int | None, None]:
    """Make it. A log that was made for another max_delay is not to be mixed with this one."""
    try:
        yield Declare(declaration)
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
) -> Generator[Command, int | None, None]:
    missing: list[str] = []
    for declaration in declarations:
        if not isinstance(declaration, Binding) and (yield Inspect(declaration)) is None:
            missing.append(  # noqa: PERF401 - a comprehension cannot yield
                f"{type(declaration).__name__.lower()} {declaration.name}"
            )
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
