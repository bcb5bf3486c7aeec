"""The programs of docs/wire-format.md that delete jobs and honour deletes."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel

from rabbitdelay import Client
from rabbitdelay.core.topology.topology import Topology
from tests.support.jobs.popped_jobs import take
from tests.support.patience import patience, wait_until
from tests.support.programs import nodejs

EXAMPLES = nodejs.REPOSITORY / "examples" / "plain_amqp"
TOPIC = "order.close"
PROGRAM_SECONDS = patience(20)
MANY = 3_000


class Programs:
    """Runs the programs for one namespace."""

    def __init__(self, url: str, namespace: str) -> None:
        settings = {"RABBITDELAY_URL": url, "RABBITDELAY_NAMESPACE": namespace}
        self._environment = os.environ | settings | {"PYTHONDONTWRITEBYTECODE": "1"}

    def delete(self, *arguments: object) -> None:
        with self.start("deleter", *arguments) as program:
            _, errors = program.communicate(timeout=PROGRAM_SECONDS)
        assert program.returncode == 0, errors

    def run(self, count: int) -> list[Any]:
        """Run the consumer until it has settled `count` jobs; return the bodies of those it ran."""
        with self.start("careful_consumer", TOPIC, count) as program:
            output, errors = program.communicate(timeout=PROGRAM_SECONDS)
        assert program.returncode == 0, errors
        return [json.loads(line)["body"] for line in output.splitlines()]

    @contextmanager
    def start(self, name: str, *arguments: object) -> Iterator[subprocess.Popen[str]]:
        with subprocess.Popen(
            [sys.executable, f"{name}.py", *map(str, arguments)],
            cwd=EXAMPLES,
            env=self._environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as program:
            try:
                yield program
            finally:
                program.kill()


@pytest.fixture
def programs(broker_url: str, namespace: str) -> Programs:
    return Programs(broker_url, namespace)


@pytest.fixture
def client(broker_url: str, namespace: str) -> Iterator[Client]:
    with Client(broker_url, namespace=namespace, stabilise_seconds=0) as client:
        yield client


@pytest.fixture
def channel(broker_url: str) -> Iterator[BlockingChannel]:
    with pika.BlockingConnection(pika.URLParameters(broker_url)) as connection:
        yield connection.channel()


@pytest.fixture
def topology(namespace: str) -> Topology:
    return Topology(namespace)


def test_a_job_deleted_by_a_plain_program_is_not_run(programs: Programs, client: Client) -> None:
    """This holds for the plain consumer and for rabbitdelay, which reads the same records."""
    for _ in ("for the plain consumer", "for rabbitdelay"):
        client.put(TOPIC, "by id", id="by-id")
        exactly = client.put(TOPIC, "by token", id="by-token")
        client.put(TOPIC, "its twin", id="by-token")
    programs.delete("by-id", "unknown")
    programs.delete("--job", exactly.id, exactly.token, exactly.due_ms)
    client.put(TOPIC, "again", id="by-id")
    client.put(TOPIC, "other", id="other")
    first = ["by token", "its twin", "its twin"]
    assert programs.run(5) == first[:2]
    assert sorted(job.body for job in take(client, 3, TOPIC)) == ["again", first[2], "other"]


def test_a_job_deleted_by_rabbitdelay_is_not_run_by_a_plain_program(
    programs: Programs, client: Client
) -> None:
    client.put(TOPIC, "deleted", id="a")
    client.delete("a")
    client.delete(client.put(TOPIC, "deleted exactly", id="b"))
    client.reschedule(client.put(TOPIC, "rescheduled", id="c"), delay=0.5)
    client.put(TOPIC, "replaced", id="d")
    client.replace(TOPIC, "in its place", id="d")
    client.put(TOPIC, "alive", id="e")
    assert sorted(programs.run(7)) == ["alive", "in its place", "rescheduled"]


def test_a_purged_job_is_not_run_by_a_plain_program(programs: Programs, client: Client) -> None:
    client.put(TOPIC, "delayed when purged", delay=1)
    client.purge(TOPIC)
    client.put(TOPIC, "put later")
    assert programs.run(2) == ["put later"]


def test_the_consumer_runs_no_job_before_it_has_read_the_whole_log(
    programs: Programs, client: Client, channel: BlockingChannel, topology: Topology
) -> None:
    client.put(TOPIC, "deleted", id="deleted")
    client.put(TOPIC, "alive", id="alive")
    for number in range(MANY):
        body = json.dumps({"delete": [f"other-{number}"], "time": 1}).encode()
        channel.basic_publish(topology.tombstones, "", body)
    client.delete("deleted")
    assert programs.run(2) == ["alive"]


def test_the_consumer_takes_no_job_while_its_topic_is_paused(
    programs: Programs, client: Client, channel: BlockingChannel, topology: Topology
) -> None:
    ready = topology.ready_queue(TOPIC)
    client.put(TOPIC, "before")
    with programs.start("careful_consumer", TOPIC, 2) as program:
        assert program.stdout is not None
        assert json.loads(program.stdout.readline())["body"] == "before"
        client.pause(TOPIC)
        wait_until(lambda: count_consumers(channel, ready) == 0, what="the consumer is gone")
        client.put(TOPIC, "after")
        wait_until(lambda: count_ready(channel, ready) == 1, what="the job is ready")
        assert count_consumers(channel, ready) == 0
        client.resume(TOPIC)
        output, errors = program.communicate(timeout=PROGRAM_SECONDS)
    assert program.returncode == 0, errors
    assert json.loads(output)["body"] == "after"


@pytest.mark.parametrize("trouble", ["the stream is deleted", "a record is too new"])
def test_the_consumer_stops_when_it_cannot_read_the_log(
    programs: Programs, client: Client, channel: BlockingChannel, topology: Topology, trouble: str
) -> None:
    client.put(TOPIC, "before")
    ready = topology.ready_queue(TOPIC)
    with programs.start("careful_consumer", TOPIC, 2) as program:
        assert program.stdout is not None
        assert json.loads(program.stdout.readline())["body"] == "before"
        if trouble == "the stream is deleted":
            channel.queue_delete(topology.tombstones)
        else:
            channel.basic_publish(topology.tombstones, "", b'{"version": 2, "delete": []}')
        output, errors = program.communicate(timeout=PROGRAM_SECONDS)
    assert program.returncode == 1
    assert ("CutOff" if "deleted" in trouble else "TooNew") in errors
    client.put(TOPIC, "after")
    wait_until(lambda: count_ready(channel, ready) == 1, what="the job is left in its queue")
    assert output == ""


def test_the_deleter_fails_without_a_log(programs: Programs) -> None:
    with programs.start("deleter", "order-17") as program:
        _, errors = program.communicate(timeout=PROGRAM_SECONDS)
    assert program.returncode == 1
    assert "no queue" in errors


def count_ready(channel: BlockingChannel, queue: str) -> int:
    return int(channel.queue_declare(queue, passive=True).method.message_count)


def count_consumers(channel: BlockingChannel, queue: str) -> int:
    return int(channel.queue_declare(queue, passive=True).method.consumer_count)
