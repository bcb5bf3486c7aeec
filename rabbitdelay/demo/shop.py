"""The shop: the customers, who put jobs, and the worker, who receives them."""

import queue
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from datetime import timedelta
from functools import partial

from rabbitdelay.demo.scoreboard import Arrival
from rabbitdelay.demo.story import TOPIC, TTR_SECONDS, Mishap, Order
from rabbitdelay.errors import Bury
from rabbitdelay.models import Job
from rabbitdelay.sync.client import Client
from rabbitdelay.sync.reserved import ReservedJob
from rabbitdelay.sync.worker import Worker

_CONCURRENCY = 20
_BACKOFF_SECONDS = 0.5
_LOOK_SECONDS = 0.05


class Shop:
    """The shop's worker: closes orders that were not paid, and has its mishaps."""

    def __init__(self, url: str, orders: Mapping[str, Order]) -> None:
        self._orders = orders
        self._arrivals: queue.SimpleQueue[Arrival] = queue.SimpleQueue()
        self._seen: Counter[str] = Counter()
        self._worker = Worker(url, concurrency=_CONCURRENCY, grace=1)
        self._worker.handler(TOPIC, backoff=_BACKOFF_SECONDS)(self._close)

    @contextmanager
    def at_work(self) -> Iterator[None]:
        """Work while inside; what went wrong is raised at the end."""
        with ThreadPoolExecutor(1, "worker") as pool:
            working = pool.submit(self._worker.run)
            try:
                yield
            finally:
                self._worker.stop()
            working.result()

    def arrivals(self, seconds: float) -> Iterator[Arrival]:
        """What arrives within so many seconds."""
        end = time.monotonic() + seconds
        try:
            while True:
                yield self._arrivals.get(timeout=max(0.0, end - time.monotonic()))
        except queue.Empty:
            return

    def _close(self, job: ReservedJob) -> None:
        """The handler: close the order, unless it is paid."""
        received_ms = time.time_ns() / 1_000_000
        self._seen[job.id] += 1
        then, act = self._plan(job)
        self._arrivals.put(Arrival(job.id, job.due_ms, received_ms, then))
        act()

    def _plan(self, job: ReservedJob) -> tuple[str, Callable[[], None]]:
        """What the audience is told, and what is done."""
        order, attempt = self._orders.get(job.id), job.attempt
        if order is None:
            return "nobody ordered this", _nothing
        match order.mishap:
            case Mishap.HANGS if attempt == 1:
                return f"hangs: goes back after {TTR_SECONDS} s", partial(_hang, job)
            case Mishap.FAILS_TWICE if attempt < order.mishap.arrivals:
                return f"fails: attempt {attempt}", _fail
            case Mishap.BURIED if self._seen[job.id] == 1:
                return "buried, until kicked", _bury
        return "paid: kept" if order.paid else "not paid: closed", _nothing


def _nothing() -> None:
    """The order is closed, or it is paid."""


def _hang(job: ReservedJob) -> None:
    while job.time_left:
        time.sleep(_LOOK_SECONDS)


def _fail() -> None:
    raise ConnectionError("the payment service does not answer")


def _bury() -> None:
    raise Bury("there is no such moon")


class Customers:
    """Place their orders at their times, on a thread of their own."""

    def __init__(self, client: Client, orders: Iterable[Order]) -> None:
        self._client = client
        self._orders = orders
        self._stop = threading.Event()

    @contextmanager
    def shopping(self, on_order: Callable[[Order], None]) -> Iterator[None]:
        """Place orders while inside; what went wrong is raised at the end."""
        with ThreadPoolExecutor(1, "customers") as pool:
            placing = pool.submit(self._place_all, on_order)
            try:
                yield
            finally:
                self._stop.set()
            for put in placing.result():
                put.result()

    def _place_all(self, on_order: Callable[[Order], None]) -> list[Future[Job]]:
        start = time.monotonic()
        puts: list[Future[Job]] = []
        for order in self._orders:
            if self._stop.wait(max(0.0, start + order.placed_seconds - time.monotonic())):
                break
            on_order(order)
            puts.append(self._place(order))
        return puts

    def _place(self, order: Order) -> Future[Job]:
        delay = timedelta(milliseconds=order.delay_ms)
        body = {"order": order.who}
        return self._client.put_nowait(TOPIC, body, delay=delay, ttr=TTR_SECONDS, id=order.id)
