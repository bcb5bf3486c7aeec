"""Measure the time from the return of a delete until a worker in another process knows of it.

A handler polls `job.deleted` of its job, which is deleted while it runs. Every job is checked
against the same state when it is delivered.
"""

import multiprocessing
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection as Pipe

from benchmarks.measuring import BODY, TOPIC
from rabbitdelay import Client, Job, JobSpec, ReservedJob, Worker

LOOK_SECONDS = 0.0002
LOAD_TOPIC = "load"
LOAD_PER_SECOND = 1_000
LOAD_AT_ONCE = 10


def propagation_ms(url: str, client: Client, count: int) -> list[float]:
    """Delete `count` jobs one after another, each while its handler runs.

    A value is negative if the worker knew of the delete before it returned.
    """
    with _process(_watch, url, client.topology.namespace) as pipe:
        client.put_many(JobSpec(TOPIC, BODY) for _ in range(count))
        return [_propagate(client, pipe) for _ in range(count)]


def _propagate(client: Client, pipe: Pipe) -> float:
    client.delete(pipe.recv())
    returned = time.monotonic()  # one clock for all processes
    known: float = pipe.recv()
    return (known - returned) * 1000


def _watch(url: str, namespace: str, pipe: Pipe) -> None:
    worker = Worker(url, namespace=namespace, stabilise_seconds=0)

    @worker.handler(TOPIC, concurrency=1)
    def watch(job: ReservedJob) -> None:
        pipe.send(job.id)
        while not job.deleted:
            time.sleep(LOOK_SECONDS)
        pipe.send(time.monotonic())

    @worker.handler(LOAD_TOPIC)
    def work(job: Job) -> None:
        """Do nothing."""

    worker.run()


@contextmanager
def load(url: str, namespace: str) -> Iterator[None]:
    """Put 1,000 jobs a second for the same worker from another process, inside the block."""
    with _process(_put, url, namespace) as pipe:
        pipe.recv()  # the process has started putting
        yield


def _put(url: str, namespace: str, pipe: Pipe) -> None:
    with Client(url, namespace=namespace, stabilise_seconds=0) as client:
        client.put(LOAD_TOPIC, BODY)
        pipe.send(None)
        began, count = time.monotonic(), 0
        while True:
            client.put_many(JobSpec(LOAD_TOPIC, BODY) for _ in range(LOAD_AT_ONCE))
            count += LOAD_AT_ONCE
            time.sleep(max(0.0, began + count / LOAD_PER_SECOND - time.monotonic()))


@contextmanager
def _process(target: Callable[[str, str, Pipe], None], url: str, namespace: str) -> Iterator[Pipe]:
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=target, args=(url, namespace, theirs))
    process.start()
    try:
        yield ours
    finally:
        process.kill()
        process.join()
