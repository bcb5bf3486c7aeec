"""Setup: which questions are asked of the broker, and in which order."""

from dataclasses import dataclass, field

import pytest

from rabbitdelay.core import ladder
from rabbitdelay.core.routes import Routes
from rabbitdelay.core.setup import Announce, Command, Conversation, Declare, Inspect, find
from rabbitdelay.core.topology import Binding, Part, Queue, Topology
from rabbitdelay.errors import NamespaceMissing, PermissionRefused, TopologyMissing

TOPOLOGY = Topology("ns")
HALF_HOUR_MS = 30 * ladder.MINUTE_MS


@dataclass
class Broker:
    """What is there, as far as a conversation can see it."""

    there: set[str] = field(default_factory=set)
    announced: int = 0
    asked: list[Command] = field(default_factory=list)
    rounds: int = 0
    refuses: bool = False
    """Whether this user may not declare."""

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
                settling = declaration.name == TOPOLOGY.settling
                return (self.announced if settling else 0) if found else None
            case Declare(declaration):
                if not isinstance(declaration, Binding):
                    self.there.add(declaration.name)
            case Announce():
                self.announced += 1
        return None


def put_through(routes: Routes, broker: Broker, delay_ms: int, topic: str, now: float) -> float:
    """Do what a front does for a put; return when it may be trusted."""
    route = routes.route(delay_ms)
    if not routes.is_known(route, topic):
        parts = routes.parts(route, topic)
        unsettled = broker.talk(routes.set_up(parts))
        routes.learn(parts, unsettled=unsettled, now=now)
    return routes.safe_at(route, topic)


def new_routes(*, may_declare: bool = True) -> Routes:
    return Routes(TOPOLOGY, may_declare=may_declare, settle_seconds=3.0)


def test_a_queue_is_announced_before_it_is_made() -> None:
    broker = Broker()
    put_through(new_routes(), broker, HALF_HOUR_MS, "a", now=100.0)
    hold = TOPOLOGY.hold_queue(ladder.hops(ladder.to_digits(HALF_HOUR_MS))[0])
    asked = [
        (type(command), getattr(getattr(command, "declaration", None), "name", ""))
        for command in broker.asked
    ]
    announced = next(index for index, (kind, _) in enumerate(asked) if kind is Announce)
    assert asked.index((Inspect, hold)) < announced < asked.index((Declare, hold))


def test_a_setup_takes_few_rounds_however_much_is_missing() -> None:
    """Each round costs a round trip: 1 to ask, 1 to announce, 1 to make up to eight queues."""
    broker = Broker()
    put_through(new_routes(), broker, 11 * ladder.DAY_MS + 7 * HALF_HOUR_MS + 990, "a", now=0)
    assert broker.rounds == 3
    broker.rounds = 0
    put_through(new_routes(), broker, ladder.HOUR_MS, "a", now=0)
    assert broker.rounds == 3  # the hold queue of 1h is new
    broker.rounds = 0
    put_through(new_routes(), broker, ladder.HOUR_MS, "a", now=0)
    assert broker.rounds == 2


def test_queues_are_announced_in_groups_that_are_made_before_the_announcement_expires() -> None:
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
    assert broker.announced == -(-len(parts) // 8)


def test_a_put_through_a_new_queue_is_trusted_after_it_settled() -> None:
    broker, routes = Broker(), new_routes()
    assert put_through(routes, broker, HALF_HOUR_MS, "a", now=100.0) == 103.0
    routes.forget_settled(104.0)
    assert put_through(routes, broker, HALF_HOUR_MS, "a", now=104.0) == 0.0


def test_another_client_learns_that_a_queue_is_new() -> None:
    """The one that finds the queue made just now by somebody else waits as well."""
    broker = Broker()
    put_through(new_routes(), broker, HALF_HOUR_MS, "a", now=100.0)
    assert put_through(new_routes(), broker, HALF_HOUR_MS, "a", now=100.5) == 103.5
    broker.announced = 0  # the announcements have expired
    assert put_through(new_routes(), broker, HALF_HOUR_MS, "a", now=120.0) == 0.0


def test_what_is_known_is_not_asked_again() -> None:
    broker, routes = Broker(), new_routes()
    put_through(routes, broker, HALF_HOUR_MS, "a", now=0)
    broker.asked.clear()
    put_through(routes, broker, HALF_HOUR_MS, "a", now=1)
    assert broker.asked == []
    put_through(routes, broker, 2 * HALF_HOUR_MS, "a", now=2)
    declared = [c.declaration for c in broker.asked if isinstance(c, Declare)]
    assert {getattr(d, "name", "ns.v1.hold.1h") for d in declared} == {"ns.v1.hold.1h"}


def test_after_a_lost_connection_everything_is_asked_again() -> None:
    broker, routes = Broker(), new_routes()
    put_through(routes, broker, 0, "a", now=0)
    first = len(broker.asked)
    routes.forget()
    broker.asked.clear()
    put_through(routes, broker, 0, "a", now=1)
    assert len(broker.asked) >= first - 2  # all but the announcements


def test_a_route_is_known_when_all_of_it_is() -> None:
    routes = new_routes()
    route = routes.route(90 * ladder.MINUTE_MS)
    *parts, ready = routes.parts(route, "a")
    assert route.hold_queues == ("ns.v1.hold.1h", "ns.v1.hold.30m")
    assert not routes.is_known(route, "a")
    routes.learn(parts, unsettled=False, now=0.0)
    assert not routes.is_known(route, "a")
    routes.learn([ready], unsettled=False, now=0.0)
    assert routes.is_known(route, "a")
    assert routes.is_known(routes.route(ladder.HOUR_MS), "a")  # it shares its queues
    assert not routes.is_known(route, "b")
    assert not routes.is_known(routes.route(ladder.MINUTE_MS), "a")


def test_nothing_is_made_before_the_base_is() -> None:
    """What leads to the queues of others is among it."""
    routes = new_routes()
    assert not routes.are_made(())
    routes.learn([TOPOLOGY.responses("a")], unsettled=False, now=0.0)
    assert routes.are_made(())
    assert routes.are_made([TOPOLOGY.responses("a")])
    assert not routes.are_made([TOPOLOGY.responses("a"), TOPOLOGY.responses("b")])


def test_a_queue_beside_the_ladder_is_made_and_settles_like_any_other() -> None:
    broker, routes, part = Broker(), new_routes(), TOPOLOGY.responses("a")
    unsettled = broker.talk(routes.set_up([part]))
    routes.learn([part], unsettled=unsettled, now=100.0)
    assert part.queue.name in broker.there
    assert TOPOLOGY.responses_exchange in broker.there
    assert routes.safe_at_queue(part.queue.name) == 103.0
    assert routes.safe_at_queue("another") == 0.0


def test_only_what_was_learned_just_now_may_be_unsettled() -> None:
    routes = new_routes()
    old, new = TOPOLOGY.topic("a")
    routes.learn([old], unsettled=False, now=100.0)
    routes.learn([old, new], unsettled=True, now=200.0)
    assert routes.safe_at_queue(old.queue.name) == 0.0
    assert routes.safe_at_queue(new.queue.name) == 203.0


def test_the_youngest_queue_on_the_way_counts() -> None:
    routes = new_routes()
    route = routes.route(90 * ladder.MINUTE_MS)
    hour, half, *topic = routes.parts(route, "a")
    for parts, safe_at in ((topic, 103.0), ([half], 113.0), ([hour], 123.0)):
        routes.learn(parts, unsettled=True, now=safe_at - 3.0)
        assert routes.safe_at(route, "a") == safe_at


def test_what_has_settled_is_forgotten_and_the_rest_is_not() -> None:
    routes = new_routes()
    old, new = TOPOLOGY.topic("a")
    routes.learn([old], unsettled=True, now=100.0)
    routes.learn([new], unsettled=True, now=102.0)
    routes.forget_settled(103.0)
    assert routes.safe_at_queue(old.queue.name) == 0.0
    assert routes.safe_at_queue(new.queue.name) == 105.0
    assert routes.safe_at(routes.route(0), "a") == 105.0


def test_a_client_that_may_not_declare_says_all_that_is_missing() -> None:
    broker = Broker()
    with pytest.raises(TopologyMissing) as caught:
        put_through(new_routes(may_declare=False), broker, HALF_HOUR_MS, "a", now=0)
    assert "topology export --delay 30m --topic a`" in str(caught.value)
    for name in ("ns.v1.hold.30m", "ns.v1.ready.a", "ns.v1.level.m", "ns.v1.unrouted"):
        assert name in str(caught.value)
    assert all(isinstance(command, Inspect) for command in broker.asked)


def test_classic_queues_settle_too() -> None:
    """On 3.10 the queue itself may be gone when the broker is killed right after it was made."""
    routes = Routes(Topology("ns", "classic"), may_declare=True, settle_seconds=3.0)
    assert put_through(routes, Broker(), HALF_HOUR_MS, "a", now=100.0) == 103.0


def test_many_different_delays_do_not_pile_up() -> None:
    routes = new_routes()
    for delay_ms in range(0, 250_000, 10):
        routes.route(delay_ms)
    assert len(routes._routes) <= 10_000


# A user who may not declare


def made_by_another() -> Broker:
    broker = Broker()
    put_through(new_routes(), broker, HALF_HOUR_MS, "a", now=0)
    broker.announced, broker.refuses = 0, True
    broker.asked.clear()
    return broker


def declares(broker: Broker) -> int:
    return sum(isinstance(command, Declare) for command in broker.asked)


def test_a_refused_user_goes_on_when_everything_is_there() -> None:
    broker, routes = made_by_another(), new_routes()
    assert put_through(routes, broker, HALF_HOUR_MS, "a", now=0) == 0.0
    assert routes.is_known(routes.route(HALF_HOUR_MS), "a")


def test_a_refused_user_waits_for_a_queue_that_was_made_just_now() -> None:
    broker = made_by_another()
    broker.announced = 1
    assert put_through(new_routes(), broker, HALF_HOUR_MS, "a", now=100.0) == 103.0


def test_a_refused_user_is_told_what_is_missing() -> None:
    broker = made_by_another()
    with pytest.raises(PermissionRefused, match="the broker says 403") as caught:
        put_through(new_routes(), broker, HALF_HOUR_MS, "b", now=0)
    text = str(caught.value)
    assert "queue ns.v1.ready.b" in text
    assert "`rabbitdelay --namespace ns topology apply --topic b`" in text
    assert "configure" in text
    assert "declare=True" not in text


def test_a_refused_user_only_looks_until_the_next_connection() -> None:
    """Each refusal closes a channel and is in the broker's log; an announcement delays others."""
    broker, routes = made_by_another(), new_routes()
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
def test_a_missing_namespace_is_an_error_unless_it_may_be_founded(
    may_declare: bool,  # noqa: FBT001 - a parameter of the test
) -> None:
    broker, routes = Broker(), new_routes(may_declare=may_declare)
    with pytest.raises(NamespaceMissing, match="there is no namespace ns"):
        broker.talk(routes.set_up([TOPOLOGY.log()], may_found=False))
    assert broker.there == set()


def test_the_log_of_an_existing_namespace_is_made_again() -> None:
    broker = Broker()
    put_through(new_routes(), broker, 0, "a", now=0)
    broker.there.remove(TOPOLOGY.tombstones)
    broker.talk(new_routes().set_up([TOPOLOGY.log()], may_found=False))
    assert TOPOLOGY.tombstones in broker.there


def test_finding_makes_nothing() -> None:
    broker = Broker({TOPOLOGY.ready_queue("a")})
    buried, ready = TOPOLOGY.topic("a")
    found: list[Part] = []

    def conversation() -> Conversation:
        found.extend((yield from find([buried, ready])))
        return False

    broker.talk(conversation())
    assert found == [ready]
    assert all(isinstance(command, Inspect) for command in broker.asked)
