"""Setup: the commands that are sent to the broker, and their order."""

from dataclasses import dataclass, field

import pytest

from rabbitdelay.core.topology import ladder
from rabbitdelay.core.topology.objects import Binding, Part, Queue
from rabbitdelay.core.topology.routes import Routes
from rabbitdelay.core.topology.setup import (
    POLL_SECONDS,
    POLLS,
    Announce,
    Command,
    Conversation,
    CountMakers,
    Declare,
    Enter,
    Flush,
    Inspect,
    Leave,
    PollAfter,
    find,
    is_flushed_by_declaring,
)
from rabbitdelay.core.topology.topology import Topology
from rabbitdelay.errors import (
    NamespaceMissing,
    PermissionRefused,
    TopologyConflict,
    TopologyMissing,
)

TOPOLOGY = Topology("ns")
KEPT_FOR_A_DAY = (
    "inequivalent arg 'x-max-age' for queue 'ns.tombstones' in vhost '/': received '2D' but "
    "current is '1D'"
)
HALF_HOUR_MS = 30 * ladder.MINUTE_MS


@dataclass
class Broker:
    """The state of a broker, as far as a conversation can see it."""

    there: set[str] = field(default_factory=set)
    announced: int = 0
    asked: list[Command] = field(default_factory=list)
    rounds: int = 0
    refuses: bool = False
    """Whether this user may not declare."""
    makers: int = 0
    leaving: int = 0
    """Number of other creating clients that finish during the next pause."""
    paused: float = 0.0

    def talk(self, conversation: Conversation) -> bool:
        answers: tuple[int | None, ...] | None = None
        while True:
            try:
                commands = conversation.send(answers)  # type: ignore[arg-type] # the first is None
            except StopIteration as stop:
                return bool(stop.value)
            self.rounds += 1
            self.asked += commands
            if self.refuses and any(isinstance(one, Declare | Announce) for one in commands):
                refused = PermissionRefused("the broker says 403")
                answers = tuple(map(self.answer, conversation.throw(refused)))
            else:
                answers = tuple(map(self.answer, commands))

    def answer(self, command: Command) -> int | None:
        match command:
            case Inspect(declaration):
                found = declaration.name in self.there
                is_announced_there = declaration.name == TOPOLOGY.stabilising
                return (self.announced if is_announced_there else 0) if found else None
            case Declare(declaration):
                if not isinstance(declaration, Binding):
                    self.there.add(declaration.name)
            case Announce():
                self.announced += 1
            case Enter():
                self.makers += 1
            case Leave():
                self.makers -= 1
            case CountMakers():
                return self.makers
            case PollAfter(seconds):
                self.paused += seconds
                self.makers -= self.leaving
                self.leaving = 0
        return None


def put_through(
    routes: Routes,
    broker: Broker,
    delay_ms: int,
    topic: str,
    *,
    now: float,
    flush: str | None = "random",
) -> float:
    """Do what a front end does for a put; return the time from which a confirm can be trusted."""
    route = routes.route(delay_ms)
    if not routes.is_known(route, topic):
        parts = routes.parts(route, topic)
        unstable = broker.talk(routes.set_up(parts, flush=flush))
        routes.learn(parts, unstable=unstable, now=now)
    return routes.safe_at(route, topic)


def new_routes(*, may_declare: bool = True, stabilise_seconds: float | None = 3.0) -> Routes:
    return Routes(TOPOLOGY, may_declare=may_declare, stabilise_seconds=stabilise_seconds)


def flushing_routes(*, may_declare: bool = True) -> Routes:
    return new_routes(may_declare=may_declare, stabilise_seconds=None)


def test_a_queue_is_announced_before_it_is_declared() -> None:
    broker = Broker()
    put_through(new_routes(), broker, HALF_HOUR_MS, "a", now=100.0)
    hold = TOPOLOGY.hold_queue(ladder.hops(ladder.to_digits(HALF_HOUR_MS))[0])
    asked = [
        (type(command), getattr(getattr(command, "declaration", None), "name", ""))
        for command in broker.asked
    ]
    announced = next(index for index, (kind, _) in enumerate(asked) if kind is Announce)
    assert asked.index((Inspect, hold)) < announced < asked.index((Declare, hold))


def test_setup_takes_few_rounds_however_much_is_missing() -> None:
    """A round costs a round trip: 1 to ask, 1 to announce, 1 to declare up to eight queues."""
    broker = Broker()
    put_through(new_routes(), broker, 11 * ladder.DAY_MS + 7 * HALF_HOUR_MS + 990, "a", now=0)
    assert broker.rounds == 3
    broker.rounds = 0
    put_through(new_routes(), broker, ladder.HOUR_MS, "a", now=0)
    assert broker.rounds == 3  # the hold queue of 1h is new
    broker.rounds = 0
    put_through(new_routes(), broker, ladder.HOUR_MS, "a", now=0)
    assert broker.rounds == 2


def test_each_group_is_declared_before_its_announcement_expires() -> None:
    broker, routes = Broker(), new_routes()
    parts = [TOPOLOGY.hold(hop) for hop in ladder.EVERY_HOP]
    broker.talk(routes.set_up(parts))
    queues = {part.queue.name for part in parts}
    unannounced = 0
    for command in broker.asked:
        if isinstance(command, Announce):
            unannounced = command.queues
        elif isinstance(command, Declare) and isinstance(command.declaration, Queue):
            unannounced -= command.declaration.name in queues
            assert unannounced >= 0
    assert broker.announced == -(-(len(parts) + 2) // 8)  # the streams are among the first eight


def test_a_confirm_through_a_new_queue_is_trusted_after_a_wait() -> None:
    broker, routes = Broker(), new_routes()
    assert put_through(routes, broker, HALF_HOUR_MS, "a", now=100.0) == 103.0
    routes.forget_stable(104.0)
    assert put_through(routes, broker, HALF_HOUR_MS, "a", now=104.0) == 0.0


def test_another_client_learns_that_a_queue_is_new() -> None:
    """The client that finds a queue just created by another client waits as well."""
    broker = Broker()
    put_through(new_routes(), broker, HALF_HOUR_MS, "a", now=100.0)
    assert put_through(new_routes(), broker, HALF_HOUR_MS, "a", now=100.5) == 103.5
    broker.announced = 0  # the announcements have expired
    assert put_through(new_routes(), broker, HALF_HOUR_MS, "a", now=120.0) == 0.0


def test_known_queues_are_not_looked_up_again() -> None:
    broker, routes = Broker(), new_routes()
    put_through(routes, broker, HALF_HOUR_MS, "a", now=0)
    broker.asked.clear()
    put_through(routes, broker, HALF_HOUR_MS, "a", now=1)
    assert broker.asked == []
    put_through(routes, broker, 2 * HALF_HOUR_MS, "a", now=2)
    declared = [c.declaration for c in broker.asked if isinstance(c, Declare)]
    assert {getattr(d, "name", "ns.v1.hold.1h") for d in declared} == {"ns.v1.hold.1h"}


def test_after_a_lost_connection_everything_is_looked_up_again() -> None:
    broker, routes = Broker(), new_routes()
    put_through(routes, broker, 0, "a", now=0)
    first = len(broker.asked)
    routes.forget()
    broker.asked.clear()
    put_through(routes, broker, 0, "a", now=1)
    assert len(broker.asked) >= first - 2  # everything except the announcements


def test_a_route_is_known_when_all_its_queues_are() -> None:
    routes = new_routes()
    route = routes.route(90 * ladder.MINUTE_MS)
    *parts, ready = routes.parts(route, "a")
    assert route.hold_queues == ("ns.v1.hold.1h", "ns.v1.hold.30m")
    assert not routes.is_known(route, "a")
    routes.learn(parts, unstable=False, now=0.0)
    assert not routes.is_known(route, "a")
    routes.learn([ready], unstable=False, now=0.0)
    assert routes.is_known(route, "a")
    assert routes.is_known(routes.route(ladder.HOUR_MS), "a")  # it shares its queues
    assert not routes.is_known(route, "b")
    assert not routes.is_known(routes.route(ladder.MINUTE_MS), "a")


def test_the_base_is_declared_first() -> None:
    """The base contains the exchanges that the other queues are bound to."""
    routes = new_routes()
    assert not routes.are_made(())
    routes.learn([TOPOLOGY.responses("a")], unstable=False, now=0.0)
    assert routes.are_made(())
    assert routes.are_made([TOPOLOGY.responses("a")])
    assert not routes.are_made([TOPOLOGY.responses("a"), TOPOLOGY.responses("b")])


def test_a_queue_beside_the_ladder_is_declared_like_any_other() -> None:
    broker, routes, part = Broker(), new_routes(), TOPOLOGY.responses("a")
    routes.learn([TOPOLOGY.responses("another")], unstable=False, now=0.0)
    unstable = broker.talk(routes.set_up([part]))
    routes.learn([part], unstable=unstable, now=100.0)
    assert part.queue.name in broker.there
    assert routes.safe_at_queue(part.queue.name) == 103.0
    assert routes.safe_at_queue("another") == 0.0


def test_only_newly_learned_queues_may_be_unsafe() -> None:
    routes = new_routes()
    old, new = TOPOLOGY.topic("a")
    routes.learn([old], unstable=False, now=100.0)
    routes.learn([old, new], unstable=True, now=200.0)
    assert routes.safe_at_queue(old.queue.name) == 0.0
    assert routes.safe_at_queue(new.queue.name) == 203.0


def test_a_route_is_safe_when_its_newest_queue_is() -> None:
    routes = new_routes()
    route = routes.route(90 * ladder.MINUTE_MS)
    hour, half, *topic = routes.parts(route, "a")
    for parts, safe_at in ((topic, 103.0), ([half], 113.0), ([hour], 123.0)):
        routes.learn(parts, unstable=True, now=safe_at - 3.0)
        assert routes.safe_at(route, "a") == safe_at


def test_only_entries_of_safe_queues_are_dropped() -> None:
    routes = new_routes()
    old, new = TOPOLOGY.topic("a")
    routes.learn([old], unstable=True, now=100.0)
    routes.learn([new], unstable=True, now=102.0)
    routes.forget_stable(103.0)
    assert routes.safe_at_queue(old.queue.name) == 0.0
    assert routes.safe_at_queue(new.queue.name) == 105.0
    assert routes.safe_at(routes.route(0), "a") == 105.0


def test_a_client_that_may_not_declare_lists_everything_missing() -> None:
    broker = Broker()
    with pytest.raises(TopologyMissing) as caught:
        put_through(new_routes(may_declare=False), broker, HALF_HOUR_MS, "a", now=0)
    assert "topology export --delay 30m --topic a`" in str(caught.value)
    for name in ("ns.v1.hold.30m", "ns.v1.ready.a", "ns.v1.level.m", "ns.v1.unrouted"):
        assert name in str(caught.value)
    assert all(isinstance(command, Inspect) for command in broker.asked)


def test_classic_queues_are_unsafe_at_first_too() -> None:
    """On 3.10 a kill right after the declaration can lose the queue itself."""
    routes = Routes(Topology("ns", "classic"), may_declare=True, stabilise_seconds=3.0)
    assert put_through(routes, Broker(), HALF_HOUR_MS, "a", now=100.0) == 103.0


def test_the_cache_of_routes_is_bounded() -> None:
    routes = new_routes()
    for delay_ms in range(0, 250_000, 10):
        routes.route(delay_ms)
    assert len(routes._routes) <= 10_000


# A user who may not declare


def created_by_another() -> Broker:
    broker = Broker()
    put_through(new_routes(), broker, HALF_HOUR_MS, "a", now=0)
    broker.announced, broker.refuses = 0, True
    broker.asked.clear()
    return broker


def declares(broker: Broker) -> int:
    return sum(isinstance(command, Declare) for command in broker.asked)


def test_a_refused_user_continues_when_nothing_is_missing() -> None:
    broker, routes = created_by_another(), new_routes()
    assert put_through(routes, broker, HALF_HOUR_MS, "a", now=0) == 0.0
    assert routes.is_known(routes.route(HALF_HOUR_MS), "a")


def test_a_refused_user_waits_for_a_new_queue() -> None:
    broker = created_by_another()
    broker.announced = 1
    assert put_through(new_routes(), broker, HALF_HOUR_MS, "a", now=100.0) == 103.0


def test_a_refused_user_is_told_what_is_missing() -> None:
    broker = created_by_another()
    with pytest.raises(PermissionRefused, match="the broker says 403") as caught:
        put_through(new_routes(), broker, HALF_HOUR_MS, "b", now=0)
    text = str(caught.value)
    assert "queue ns.v1.ready.b" in text
    assert "`rabbitdelay --namespace ns topology apply --topic b`" in text
    assert "configure" in text
    assert "declare=True" not in text


def test_a_refused_user_does_not_declare_again_on_this_connection() -> None:
    """Each refusal closes a channel and is logged by the broker; an announcement delays others."""
    broker, routes = created_by_another(), new_routes()
    put_through(routes, broker, HALF_HOUR_MS, "a", now=0)
    broker.asked.clear()
    broker.there |= {TOPOLOGY.ready_queue("b"), TOPOLOGY.buried_queue("b")}
    put_through(routes, broker, HALF_HOUR_MS, "b", now=0)
    assert declares(broker) == 0
    with pytest.raises(PermissionRefused):
        put_through(routes, broker, HALF_HOUR_MS, "c", now=0)
    assert {type(command) for command in broker.asked} == {Inspect}
    routes.forget()
    put_through(routes, broker, HALF_HOUR_MS, "b", now=0)
    assert declares(broker) > 0


# A namespace that does not exist


@pytest.mark.parametrize("may_declare", [True, False])
def test_a_missing_namespace_is_an_error_unless_it_may_be_created(
    may_declare: bool,  # noqa: FBT001 - a parameter of the test
) -> None:
    broker, routes = Broker(), new_routes(may_declare=may_declare)
    with pytest.raises(NamespaceMissing, match="there is no namespace ns"):
        broker.talk(routes.set_up([TOPOLOGY.log()], may_found=False))
    assert broker.there == set()


def test_a_missing_log_is_declared_again() -> None:
    broker = Broker()
    put_through(new_routes(), broker, 0, "a", now=0)
    broker.there.remove(TOPOLOGY.tombstones)
    broker.talk(new_routes().set_up([TOPOLOGY.log()], may_found=False))
    assert TOPOLOGY.tombstones in broker.there


def test_find_declares_nothing() -> None:
    broker = Broker({TOPOLOGY.ready_queue("a")})
    buried, ready = TOPOLOGY.topic("a")
    found: list[Part] = []

    def conversation() -> Conversation:
        found.extend((yield from find([buried, ready])))
        return False

    broker.talk(conversation())
    assert found == [ready]
    assert all(isinstance(command, Inspect) for command in broker.asked)


# Flushing


def used_namespace() -> Broker:
    """Return a broker with an old namespace that has no queues of topics or delays."""
    broker = Broker()
    put_through(flushing_routes(), broker, 0, "a", now=0)
    broker.announced = 0
    broker.there.remove(TOPOLOGY.young.name)  # it has expired
    broker.asked.clear()
    broker.rounds = 0
    return broker


def test_new_queues_are_flushed_and_trusted_at_once() -> None:
    broker = used_namespace()
    assert put_through(flushing_routes(), broker, HALF_HOUR_MS, "b", now=100.0) == 0.0
    kinds = [type(command) for command in broker.asked]
    last = max(index for index, kind in enumerate(kinds) if kind is Declare)
    assert kinds.count(Flush) == 1
    assert kinds.index(Announce) < kinds.index(Enter) < last < kinds.index(Flush)
    assert kinds.index(Flush) < kinds.index(Leave) < kinds.index(CountMakers)
    assert broker.makers == 0


def test_a_flush_takes_two_more_rounds() -> None:
    """Ask, announce, declare and flush; then leave, and check for other makers."""
    broker = used_namespace()
    put_through(flushing_routes(), broker, HALF_HOUR_MS, "a", now=0)
    assert broker.rounds == 5


def test_no_flush_queue_is_declared_twice() -> None:
    """The broker finds a name that it has just seen in memory, and then writes nothing to disk."""
    broker = used_namespace()
    parts = [TOPOLOGY.hold(hop) for hop in ladder.EVERY_HOP]
    assert not broker.talk(flushing_routes().set_up(parts, flush="random"))
    names = [command.queue.name for command in broker.asked if isinstance(command, Flush)]
    assert len(set(names)) == len(names) >= len(parts) // 8
    assert all(name.startswith("ns.v1.flush.random.") for name in names)


def test_existing_queues_are_not_flushed() -> None:
    broker = used_namespace()
    assert put_through(flushing_routes(), broker, 0, "a", now=0) == 0.0
    assert not any(isinstance(command, Announce | Enter | Flush) for command in broker.asked)


def test_a_queue_that_was_announced_is_flushed_again() -> None:
    """The client that announced it may have died before its flush."""
    broker = used_namespace()
    broker.announced = 1
    assert put_through(flushing_routes(), broker, 0, "a", now=0) == 0.0
    assert isinstance(broker.asked[-1], Flush)
    assert broker.paused == 0


def test_a_client_waits_for_another_maker_and_flushes_its_queues() -> None:
    broker = used_namespace()
    broker.makers = broker.leaving = 1
    assert put_through(flushing_routes(), broker, 0, "a", now=0) == 0.0
    assert broker.paused == POLL_SECONDS
    assert isinstance(broker.asked[-1], Flush)


def test_two_makers_of_the_same_queues_wait_for_each_other() -> None:
    """A declare is answered before the queue is up if another client has begun to create it."""
    broker = used_namespace()
    broker.makers = broker.leaving = 1
    assert put_through(flushing_routes(), broker, HALF_HOUR_MS, "b", now=0) == 0.0
    assert [type(command) for command in broker.asked].count(Flush) == 2
    assert broker.paused == POLL_SECONDS


@pytest.mark.parametrize("may_declare", [True, False])
def test_a_queue_is_unsafe_while_another_maker_does_not_finish(*, may_declare: bool) -> None:
    broker = used_namespace()
    broker.makers = 1
    routes = flushing_routes(may_declare=may_declare)
    assert put_through(routes, broker, 0, "a", now=100.0) == 103.0
    assert broker.paused == pytest.approx(POLLS * POLL_SECONDS)
    assert broker.paused < 1


def test_a_client_that_may_not_declare_waits_but_does_not_flush() -> None:
    broker = used_namespace()
    broker.makers = broker.leaving = broker.announced = 1
    assert put_through(flushing_routes(may_declare=False), broker, 0, "a", now=0) == 0.0
    assert not any(isinstance(command, Flush) for command in broker.asked)


def test_the_first_puts_of_a_namespace_wait_for_its_streams() -> None:
    """All clients wait, on all queues, until the stream coordinator is safe."""
    broker, routes = Broker(), flushing_routes()
    assert put_through(routes, broker, HALF_HOUR_MS, "a", now=100.0) == 103.0
    declared = [c.declaration for c in broker.asked if isinstance(c, Declare)]
    assert declared.index(TOPOLOGY.young) < declared.index(TOPOLOGY.log().queue)
    assert put_through(routes, broker, ladder.HOUR_MS, "b", now=101.0) == 103.0
    assert routes.safe_at_queue("another") == 103.0
    for may_declare in (True, False):
        other = flushing_routes(may_declare=may_declare)
        assert put_through(other, broker, HALF_HOUR_MS, "a", now=101.0) == 104.0
    routes.forget_stable(103.0)
    assert put_through(routes, broker, 90 * ladder.MINUTE_MS, "c", now=104.0) == 0.0


def test_declaring_only_a_stream_does_not_wait_for_makers() -> None:
    broker = used_namespace()
    broker.makers = 1
    assert not broker.talk(flushing_routes().set_up([TOPOLOGY.log()], flush="random"))
    assert broker.paused == 0


def test_new_queues_are_unsafe_on_an_unknown_broker_version() -> None:
    broker = used_namespace()
    assert put_through(flushing_routes(), broker, 10, "a", now=100.0, flush=None) == 103.0
    assert not any(isinstance(command, Flush | Enter) for command in broker.asked)
    assert broker.announced == 1


def test_a_configured_wait_replaces_the_flush() -> None:
    broker, routes = used_namespace(), new_routes(stabilise_seconds=7.0)
    assert put_through(routes, broker, HALF_HOUR_MS, "a", now=100.0) == 107.0
    assert not any(isinstance(command, Flush | Enter) for command in broker.asked)


@pytest.mark.parametrize(
    ("version", "is_flushed"),
    [
        ("3.9.29", False),
        ("3.10.8", True),
        ("3.13.7", True),
        ("4.0.5", True),
        ("4.3.6", True),
        ("4.3.0-rc.1", True),
        ("4.4.0", False),
        ("5.0.0", False),
        ("", False),
        ("unknown", False),
    ],
)
def test_only_measured_broker_versions_are_flushed(version: str, *, is_flushed: bool) -> None:
    assert is_flushed_by_declaring(version) == is_flushed


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (KEPT_FOR_A_DAY, "max_delay"),
        ("inequivalent arg 'x-queue-type' for queue 'ns.tombstones'", "x-queue-type"),
    ],
)
def test_a_conflict_with_the_log_names_its_max_delay_and_others_are_passed_on(
    text: str, shown: str
) -> None:
    routes = Routes(TOPOLOGY, may_declare=True)
    parts = routes.parts(routes.route(0), "t")
    conversation = routes.set_up(parts, flush=None)
    next(conversation)
    with pytest.raises(TopologyConflict, match=shown):
        conversation.throw(TopologyConflict(text))
