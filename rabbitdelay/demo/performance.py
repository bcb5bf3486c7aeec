"""The performance: from an empty machine to a histogram of lateness."""

import time
from pathlib import Path

from rich.console import Console

from rabbitdelay import address
from rabbitdelay.core import ladder
from rabbitdelay.core.buried import Choice
from rabbitdelay.core.setup import setup
from rabbitdelay.core.topology import Topology
from rabbitdelay.demo import theatre
from rabbitdelay.demo.scoreboard import Scoreboard
from rabbitdelay.demo.shop import Customers, Shop
from rabbitdelay.demo.stage import Stage
from rabbitdelay.demo.story import KICKED_AFTER_SECONDS, TOPIC, Mishap, orders
from rabbitdelay.demo.summary import summary
from rabbitdelay.sync.administration import Administrator
from rabbitdelay.sync.blocking import connected
from rabbitdelay.sync.buried import BuriedQueue
from rabbitdelay.sync.client import Client

PATIENCE_SECONDS = 10.0
"""How long after the last due time a job that has not come counts as lost."""
_LOOK_SECONDS = 0.2


def perform(console: Console, directory: Path | None, *, keep: bool) -> bool:
    """Play it; say whether nothing was early, lost or doubled."""
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

    def __init__(self, stage: Stage, url: str) -> None:
        self._stage = stage
        self._url = url
        self._addresses = address.parse_all(url)
        self._topology = Topology()
        self._orders = {order.id: order for order in orders()}
        self.scoreboard = Scoreboard(
            {order.id: order.mishap.arrivals for order in self._orders.values()}
        )
        self._to_kick: dict[str, float] = {}
        """Buried jobs, and when they are kicked."""

    def prepare(self) -> None:
        """Make the queues and let them settle, so that the story does not have to wait for it."""
        parts = [self._topology.hold(hop) for hop in self._hops()]
        conversation = setup(
            self._topology, [*parts, *self._topology.topic(TOPIC)], with_base=True, may_declare=True
        )
        with (
            self._stage.preparing("making its queues; new queues settle for 3 s, once"),
            connected(self._addresses) as connection,
        ):
            administrator = Administrator(connection)
            if administrator.run(conversation):
                administrator.settle()
        self._stage.done(f"{len(parts)} hold queues and topic {TOPIC} are there, and have settled")

    def play(self) -> None:
        """Let the customers order and the worker work, until all has arrived."""
        shop = Shop(self._url, self._orders)
        with Client(self._url) as client, shop.at_work(), self._stage.playing():
            customers = Customers(client, self._orders.values())
            with customers.shopping(self._stage.ordered):
                self._watch(shop)

    def sum_up(self) -> None:
        """End with the histogram."""
        self._stage.say("")
        for line in summary(self.scoreboard):
            self._stage.say(line)

    def _watch(self, shop: Shop) -> None:
        last_due = max(order.placed_seconds + order.delay_ms / 1000 for order in orders())
        deadline = time.monotonic() + last_due + PATIENCE_SECONDS
        with connected(self._addresses) as connection:
            administrator = Administrator(connection)
            while self.scoreboard.lost and time.monotonic() < deadline:
                self._stage.show(self.scoreboard, self._holding(administrator))
                self._take(shop)
                self._kick(BuriedQueue(connection, self._topology, TOPIC))
            self._take(shop)  # whatever comes twice comes about now

    def _take(self, shop: Shop) -> None:
        for arrival in shop.arrivals(_LOOK_SECONDS):
            self.scoreboard.add(arrival)
            order = self._orders.get(arrival.id)
            self._stage.arrived(order, arrival)
            if order and order.mishap is Mishap.BURIED and self.scoreboard.times(order.id) == 1:
                self._to_kick[order.id] = time.monotonic() + KICKED_AFTER_SECONDS

    def _kick(self, buried: BuriedQueue) -> None:
        due = [name for name, at in self._to_kick.items() if at <= time.monotonic()]
        for name in due:
            found = buried.look(Choice(name), limit=1)
            if found and buried.kick(Choice(name)).sent:
                del self._to_kick[name]
                self._stage.kicked(self._orders[name], found[0].grave.reason)

    def _holding(self, administrator: Administrator) -> dict[str, int]:
        counts = {
            hop.label: administrator.count(self._topology.hold_queue(hop)) for hop in self._hops()
        }
        return {label: count.ready if count else 0 for label, count in counts.items()}

    def _hops(self) -> list[ladder.Hop]:
        """The hold queues of all orders, from the shortest to the longest."""
        delays = {order.delay_ms for order in self._orders.values()}
        hops = {hop for delay in delays for hop in ladder.hops(ladder.to_digits(delay))}
        return sorted(hops, key=lambda hop: hop.hold_ms)
