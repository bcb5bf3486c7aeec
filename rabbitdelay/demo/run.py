"""The performance: from an empty machine to a histogram of lateness."""

import time
from collections.abc import Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

from rich.console import Console

from rabbitdelay import address
from rabbitdelay.core.parked.buried import Choice
from rabbitdelay.core.topology import ladder
from rabbitdelay.core.topology.setup import setup
from rabbitdelay.core.topology.topology import Topology
from rabbitdelay.demo import broker as theatre
from rabbitdelay.demo.display import Stage
from rabbitdelay.demo.orders import KICKED_AFTER_SECONDS, TOPIC, Mishap, Order, orders
from rabbitdelay.demo.scoreboard import Scoreboard
from rabbitdelay.demo.shop import Customers, Shop
from rabbitdelay.demo.summary import summary
from rabbitdelay.sync.administration import Administrator
from rabbitdelay.sync.blocking import connected
from rabbitdelay.sync.buried import BuriedQueue
from rabbitdelay.sync.client import Client

PATIENCE_SECONDS = 10.0
"""How long after the last due time a job that has not come counts as lost."""
_LOOK_SECONDS = 0.2
_PASSED_MS = 500
"""How long after its old time a job counts as one that has not come."""


def perform(console: Console, directory: Path | None, *, keep: bool) -> bool:
    """Play it; say whether all was as it must be."""
    stage = Stage(console)
    stage.raise_curtain()
    with theatre.opened(stage, directory, keep=keep) as broker:
        evening = Evening(stage, broker.url)
        evening.prepare()
        evening.play()
        evening.sum_up()
        theatre.say_where(stage, broker, keep=keep)
    return evening.scoreboard.is_clean


class Evening:
    """One performance on one broker."""

    def __init__(
        self,
        stage: Stage,
        url: str,
        story: Iterable[Order] = orders(),
        namespace: str = "rabbitdelay",
    ) -> None:
        self._stage = stage
        self._url = url
        self._addresses = address.parse_all(url)
        self._topology = Topology(namespace)
        self._orders = {order.id: order for order in story}
        self.scoreboard = Scoreboard(
            {order.id: order.arrivals for order in self._orders.values() if order.arrivals}
        )
        self.dropped = 0
        """How many jobs the worker did not run, because they were deleted or rescheduled."""
        self._to_kick: dict[str, float] = {}
        """Buried jobs, and when they are kicked."""
        self._kicks: list[Future[None]] = []
        self._called_off_ms: dict[str, int] = {}
        """Jobs that are not to come, and when they would have: until that has passed."""

    def prepare(self) -> None:
        """Make the queues, so that the story does not have to wait for them."""
        holds = [self._topology.hold(hop) for hop in self._hops()]
        parts = [*holds, *self._topology.topic(TOPIC)]
        with (
            self._stage.preparing("making its queues"),
            connected(self._addresses) as connection,
        ):
            administrator = Administrator(connection)
            flush = administrator.flush_name()
            conversation = setup(
                self._topology, parts, with_base=True, may_declare=True, flush=flush
            )
            if administrator.set_up(conversation):
                administrator.settle()
        self._stage.done(f"{len(holds)} hold queues and topic {TOPIC} are there")

    def play(self) -> None:
        """Let the customers order and the worker work, until all has arrived."""
        namespace = self._topology.namespace
        shop = Shop(self._url, namespace, self._orders)
        client = Client(self._url, namespace=namespace, settle_seconds=0)  # the queues are there
        with client, shop.at_work(), self._stage.playing():
            customers = Customers(client, self._orders.values())
            with customers.shopping(self._stage.ordered, self._changed):
                self._watch(shop)
            self.dropped = shop.dropped

    def sum_up(self) -> None:
        """End with the histogram."""
        self._stage.say("")
        for line in summary(self.scoreboard, self.dropped):
            self._stage.say(line)

    def _watch(self, shop: Shop) -> None:
        last_due = max(order.last_due_seconds for order in self._orders.values())
        deadline = time.monotonic() + last_due + PATIENCE_SECONDS
        with ThreadPoolExecutor(1) as somebody, connected(self._addresses) as connection:
            administrator = Administrator(connection)
            while self._is_awaiting and time.monotonic() < deadline:
                self._stage.show(self.scoreboard, self._holding(administrator))
                self._take(shop)
                self._let_kick(somebody)
                self._see_who_kept_away()
            self._take(shop)  # whatever comes twice comes about now
        for kick in self._kicks:
            kick.result()

    def _take(self, shop: Shop) -> None:
        for arrival in shop.arrivals(_LOOK_SECONDS):
            self.scoreboard.add(arrival)
            order = self._orders.get(arrival.id)
            self._stage.arrived(order, arrival)
            if order and order.mishap is Mishap.BURIED and self.scoreboard.times(order.id) == 1:
                self._to_kick[order.id] = time.monotonic() + KICKED_AFTER_SECONDS

    @property
    def _is_awaiting(self) -> bool:
        return bool(self.scoreboard.lost or self._called_off_ms)

    def _changed(self, order: Order, due_ms: int) -> None:
        """A job is deleted or rescheduled; on the thread of the customers."""
        self.scoreboard.call_off(order.id, due_ms)
        self._called_off_ms[order.id] = due_ms
        self._stage.changed(order)

    def _see_who_kept_away(self) -> None:
        now_ms = time.time_ns() / 1_000_000
        passed = [
            name
            for name, due_ms in list(self._called_off_ms.items())
            if due_ms + _PASSED_MS < now_ms
        ]
        for name in passed:
            due_ms = self._called_off_ms.pop(name)
            if self.scoreboard.kept_away(name):
                self._stage.kept_away(self._orders[name], due_ms)

    def _let_kick(self, somebody: ThreadPoolExecutor) -> None:
        """Kick what is due, and show what arrives meanwhile: it takes a second or two."""
        due = [name for name, at in self._to_kick.items() if at <= time.monotonic()]
        for name in due:
            del self._to_kick[name]
            self._kicks.append(somebody.submit(self._kick, name))

    def _kick(self, name: str) -> None:
        with connected(self._addresses) as connection:
            buried = BuriedQueue(connection, self._topology, TOPIC)
            found = buried.look(Choice(name), limit=1)
            if found:  # it is ready before the kick is over, which looks for more of that name
                self._stage.kicked(self._orders[name], found[0].grave.reason)
            if not found or not buried.kick(Choice(name)).sent:
                self._to_kick[name] = time.monotonic()

    def _holding(self, administrator: Administrator) -> dict[str, int]:
        counts = {
            hop.label: administrator.count(self._topology.hold_queue(hop)) for hop in self._hops()
        }
        return {label: count.ready if count else 0 for label, count in counts.items()}

    def _hops(self) -> list[ladder.Hop]:
        """The hold queues of all orders, from the shortest to the longest."""
        delays = {order.delay_ms for order in self._orders.values()}
        delays |= {order.last_delay_ms for order in self._orders.values()}
        hops = {hop for delay in delays for hop in ladder.hops(ladder.to_digits(delay))}
        return sorted(hops, key=lambda hop: hop.hold_ms)
