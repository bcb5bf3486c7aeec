"""The shop: customers that put, delete and reschedule jobs, and a worker that processes them."""

import queue
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from datetime import timedelta
from functools import partial
from operator import itemgetter

from rabbitdelay.demo.orders import NEW_DELAY_MS, TOPIC, TTR_SECONDS, Change, Mishap, Order
from rabbitdelay.demo.scoreboard import Arrival
from rabbitdelay.errors import Bury
from rabbitdelay.executors.reserved_job import ReservedJob
from rabbitdelay.models import Job
from rabbitdelay.sync.client import Client
from rabbitdelay.sync.worker import Worker

_CONCURRENCY = 20
_BACKOFF_SECONDS = 0.5
_POLL_SECONDS = 0.05

Act = Callable[[], None]
OnOrder = Callable[[Order], None]
OnChange = Callable[[Order, int], None]
"""Called with the order and the previous due time of its job, in milliseconds since 1970."""


class Shop:
    """The shop's worker, which closes unpaid orders and simulates failures."""

    def __init__(self, url: str, namespace: str, orders: Mapping[str, Order]) -> None:
        self._orders = orders
        self._arrivals: queue.SimpleQueue[Arrival] = queue.SimpleQueue()
        self._seen: Counter[str] = Counter()
        self._worker = Worker(url, namespace=namespace, concurrency=_CONCURRENCY, grace=1)
        self._worker.handler(TOPIC, backoff=_BACKOFF_SECONDS)(self._close)

    @contextmanager
    def working(self) -> Iterator[None]:
        """Run the worker inside the block, and raise its error at the end."""
        with ThreadPoolExecutor(1, "worker") as pool:
            running = pool.submit(self._worker.run)
            try:
                yield
            finally:
                self._worker.stop()
            running.result()

    @property
    def dropped(self) -> int:
        """Number of jobs that were dropped because they were deleted or rescheduled."""
        return self._worker.stats().counts.deleted

    def arrivals(self, seconds: float) -> Iterator[Arrival]:
        """Yield the arrivals of the next `seconds`."""
        end = time.monotonic() + seconds
        try:
            while True:
                yield self._arrivals.get(timeout=max(0.0, end - time.monotonic()))
        except queue.Empty:
            return

    def _close(self, job: ReservedJob) -> None:
        """Handle a job: close the order unless it is paid."""
        received_ms = time.time_ns() / 1_000_000
        self._seen[job.id] += 1
        outcome, act = self._plan(job)
        self._arrivals.put(Arrival(job.id, job.due_ms, received_ms, outcome))
        act()

    def _plan(self, job: ReservedJob) -> tuple[str, Callable[[], None]]:
        """Return the outcome to show and the function that causes it."""
        order, attempt = self._orders.get(job.id), job.attempt
        if order is None:
            return "unknown order", _nothing
        match order.mishap:
            case Mishap.HANGS if attempt == 1:
                return f"hangs: redelivered after {TTR_SECONDS} s", partial(_hang, job)
            case Mishap.FAILS_TWICE if attempt < order.mishap.arrivals:
                return f"fails: attempt {attempt}", _fail
            case Mishap.BURIED if self._seen[job.id] == 1:
                return "buried, until kicked", _bury
        return "paid: kept" if order.paid else "not paid: closed", _nothing


def _nothing() -> None:
    """Do nothing more: the order is closed or paid."""


def _hang(job: ReservedJob) -> None:
    while job.time_left:
        time.sleep(_POLL_SECONDS)


def _fail() -> None:
    raise ConnectionError("the payment service does not respond")


def _bury() -> None:
    raise Bury("there is no such moon")


class Customers:
    """Customers that place, pay and extend their orders at fixed times, on their own thread."""

    def __init__(self, client: Client, orders: Iterable[Order]) -> None:
        self._client = client
        self._orders = orders
        self._puts: dict[str, Future[Job]] = {}
        self._stop = threading.Event()

    @contextmanager
    def shopping(self, on_order: OnOrder, on_change: OnChange) -> Iterator[None]:
        """Run the customers inside the block, and raise their error at the end."""
        with ThreadPoolExecutor(1, "customers") as pool:
            acting = pool.submit(self._act_all, self._acts(on_order, on_change))
            try:
                yield
            finally:
                self._stop.set()
            acting.result()
            for put in self._puts.values():
                put.result()

    def _acts(self, on_order: OnOrder, on_change: OnChange) -> list[tuple[float, Act]]:
        acts = [
            (order.placed_seconds, partial(self._place, order, on_order)) for order in self._orders
        ]
        acts += [
            (
                order.placed_seconds + order.change.after_seconds,
                partial(self._change, order, on_change),
            )
            for order in self._orders
            if order.change is not Change.NONE
        ]
        return sorted(acts, key=itemgetter(0))

    def _act_all(self, acts: list[tuple[float, Act]]) -> None:
        start = time.monotonic()
        for seconds, act in acts:
            if self._stop.wait(max(0.0, start + seconds - time.monotonic())):
                break
            act()

    def _place(self, order: Order, on_order: OnOrder) -> None:
        on_order(order)
        delay = timedelta(milliseconds=order.delay_ms)
        self._puts[order.id] = self._client.put_nowait(
            TOPIC, {"order": order.label}, delay=delay, ttr=TTR_SECONDS, id=order.id
        )

    def _change(self, order: Order, on_change: OnChange) -> None:
        job = self._puts[order.id].result()
        if order.change is Change.DELETED:
            self._client.delete(job.id)
        else:
            self._client.reschedule(job, delay=timedelta(milliseconds=NEW_DELAY_MS))
        on_change(order, job.due_ms)
