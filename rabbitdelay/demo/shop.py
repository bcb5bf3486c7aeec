"""The shop: the customers, who put jobs, and the worker, who receives them."""

import queue
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from datetime import timedelta

from pika.adapters.blocking_connection import BlockingChannel
from pika.spec import Basic, BasicProperties

from rabbitdelay.address import Address
from rabbitdelay.core.topology import Topology
from rabbitdelay.demo.scoreboard import Arrival
from rabbitdelay.demo.story import TOPIC, Order
from rabbitdelay.models import Job
from rabbitdelay.sync.blocking import connected
from rabbitdelay.sync.client import Client

_PREFETCH = 200
_LOOK_SECONDS = 0.05


class Worker:
    """Receives the jobs that are due, on a thread of its own."""

    def __init__(self, addresses: Sequence[Address], topology: Topology) -> None:
        self._addresses = addresses
        self._queue_name = topology.ready_queue(TOPIC)
        self._arrivals: queue.SimpleQueue[Arrival] = queue.SimpleQueue()
        self._stop = threading.Event()

    @contextmanager
    def at_work(self) -> Iterator[None]:
        """Receive while inside; what went wrong is raised at the end."""
        with ThreadPoolExecutor(1, "worker") as pool:
            working = pool.submit(self._work)
            try:
                yield
            finally:
                self._stop.set()
            working.result()

    def arrivals(self, seconds: float) -> Iterator[Arrival]:
        """What arrives within so many seconds."""
        end = time.monotonic() + seconds
        try:
            while True:
                yield self._arrivals.get(timeout=max(0.0, end - time.monotonic()))
        except queue.Empty:
            return

    def _work(self) -> None:
        # A plain consumer of the ready queue: the consumer layer comes with the next issue.
        with connected(self._addresses) as connection:
            channel = connection.channel()
            channel.basic_qos(prefetch_count=_PREFETCH)
            channel.basic_consume(self._queue_name, self._receive)
            while not self._stop.is_set():
                connection.sleep(_LOOK_SECONDS)

    def _receive(
        self,
        channel: BlockingChannel,
        method: Basic.Deliver,
        properties: BasicProperties,
        _body: bytes,
    ) -> None:
        received_ms = time.time_ns() / 1_000_000
        due_ms = float((properties.headers or {}).get("rd-due", 0))
        self._arrivals.put(Arrival(properties.message_id or "", due_ms, received_ms))
        channel.basic_ack(method.delivery_tag or 0)


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
        return self._client.put_nowait(TOPIC, {"order": order.who}, delay=delay, id=order.id)
