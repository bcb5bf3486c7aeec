"""Run the demo, from starting a broker to a histogram of lateness."""

import time
from collections.abc import Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

from rich.console import Console

from rabbitdelay.core.topology import ladder
from rabbitdelay.demo import broker as demo_broker
from rabbitdelay.demo.display import Display
from rabbitdelay.demo.orders import KICKED_AFTER_SECONDS, TOPIC, Mishap, Order, orders
from rabbitdelay.demo.scoreboard import Scoreboard
from rabbitdelay.demo.shop import Customers, Shop
from rabbitdelay.demo.summary import summary
from rabbitdelay.sync.client import Client

PATIENCE_SECONDS = 10.0
"""Seconds after the last due time until a missing job counts as lost."""
_POLL_SECONDS = 0.2
_PASSED_MS = 500
"""Milliseconds after a cancelled time until the job counts as not run at that time."""


def run_demo(console: Console, directory: Path | None, *, keep: bool) -> bool:
    """Run the demo; return whether all jobs behaved as expected."""
    display = Display(console)
    display.show_title()
    with demo_broker.opened(display, directory, keep=keep) as broker:
        demo = Demo(display, broker.url)
        demo.prepare()
        demo.run()
        demo.sum_up()
        demo_broker.show_addresses(display, broker, keep=keep)
    return demo.scoreboard.is_clean


class Demo:
    """One run of the demo on one broker."""

    def __init__(
        self,
        display: Display,
        url: str,
        story: Iterable[Order] = orders(),
        namespace: str = "rabbitdelay",
    ) -> None:
        self._display = display
        self._url = url
        self._namespace = namespace
        self._orders = {order.id: order for order in story}
        self.scoreboard = Scoreboard(
            {order.id: order.arrivals for order in self._orders.values() if order.arrivals}
        )
        self.dropped = 0
        """Number of jobs that the worker dropped because they were deleted or rescheduled."""
        self._to_kick: dict[str, float] = {}
        """Monotonic kick time of each buried job, by id."""
        self._kicks: list[Future[None]] = []
        self._cancelled_ms: dict[str, int] = {}
        """Cancelled due times that have not passed yet, in milliseconds since 1970, by job id."""

    def prepare(self) -> None:
        """Declare the queues, so that the demo does not wait for them later."""
        hops = self._hops()
        delays = [hop.hold_ms / 1000 for hop in hops]
        with (
            self._display.preparing("declaring the queues"),
            Client(self._url, namespace=self._namespace) as client,
        ):
            client.topology.apply(topics=TOPIC, delays=delays)
        self._display.done(f"declared {len(hops)} hold queues and topic {TOPIC}")

    def run(self) -> None:
        """Run the customers and the worker until all jobs have arrived."""
        shop = Shop(self._url, self._namespace, self._orders)
        # The queues exist, and need no time to stabilise.
        client = Client(self._url, namespace=self._namespace, stabilise_seconds=0)
        with client, shop.working(), self._display.playing():
            customers = Customers(client, self._orders.values())
            with customers.shopping(self._display.ordered, self._changed):
                self._watch(shop, client)
            self.dropped = shop.dropped

    def sum_up(self) -> None:
        """Show the histogram."""
        self._display.line("")
        for line in summary(self.scoreboard, self.dropped):
            self._display.line(line)

    def _watch(self, shop: Shop, client: Client) -> None:
        last_due = max(order.last_due_seconds for order in self._orders.values())
        deadline = time.monotonic() + last_due + PATIENCE_SECONDS
        with ThreadPoolExecutor(1) as executor:
            while self._is_awaiting and time.monotonic() < deadline:
                self._display.update(self.scoreboard, self._hold_counts(client))
                self._show_arrivals(shop)
                self._start_kicks(executor, client)
                self._check_cancelled_times()
            self._show_arrivals(shop)  # duplicates arrive around this time
        for kick in self._kicks:
            kick.result()

    def _show_arrivals(self, shop: Shop) -> None:
        for arrival in shop.arrivals(_POLL_SECONDS):
            self.scoreboard.add(arrival)
            order = self._orders.get(arrival.id)
            self._display.arrived(order, arrival)
            if order and order.mishap is Mishap.BURIED and self.scoreboard.times(order.id) == 1:
                self._to_kick[order.id] = time.monotonic() + KICKED_AFTER_SECONDS

    @property
    def _is_awaiting(self) -> bool:
        return bool(self.scoreboard.lost or self._cancelled_ms)

    def _changed(self, order: Order, due_ms: int) -> None:
        """Record that a job was deleted or rescheduled; called on the customers' thread."""
        self.scoreboard.cancel(order.id, due_ms)
        self._cancelled_ms[order.id] = due_ms
        self._display.changed(order)

    def _check_cancelled_times(self) -> None:
        now_ms = time.time_ns() / 1_000_000
        passed = [
            name
            for name, due_ms in list(self._cancelled_ms.items())
            if due_ms + _PASSED_MS < now_ms
        ]
        for name in passed:
            due_ms = self._cancelled_ms.pop(name)
            if self.scoreboard.did_not_run(name):
                self._display.did_not_run(self._orders[name], due_ms)

    def _start_kicks(self, executor: ThreadPoolExecutor, client: Client) -> None:
        """Kick due jobs on another thread, because a kick takes a second or two."""
        due = [name for name, at in self._to_kick.items() if at <= time.monotonic()]
        for name in due:
            del self._to_kick[name]
            self._kicks.append(executor.submit(self._kick, client, name))

    def _kick(self, client: Client, name: str) -> None:
        buried = client.buried(TOPIC)
        found = buried.show(name)
        if found:  # it is ready before the kick is over, which looks for more of that name
            self._display.kicked(self._orders[name], found[0].reason)
        if not found or not buried.kick(id=name).sent:
            self._to_kick[name] = time.monotonic()

    def _hold_counts(self, client: Client) -> dict[str, int]:
        counts = {hold.hop.label: hold.jobs for hold in client.stats(TOPIC).delayed}
        return {hop.label: counts.get(hop.label, 0) for hop in self._hops()}

    def _hops(self) -> list[ladder.Hop]:
        """The hold queues of all orders, from the shortest to the longest."""
        delays = {order.delay_ms for order in self._orders.values()}
        delays |= {order.last_delay_ms for order in self._orders.values()}
        hops = {hop for delay in delays for hop in ladder.hops(ladder.to_digits(delay))}
        return sorted(hops, key=lambda hop: hop.hold_ms)
