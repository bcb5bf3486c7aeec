"""The programs of docs/wire-format.md: any AMQP client can put and take jobs."""

import json
import os
import random
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Literal

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel

from rabbitdelay import Client
from rabbitdelay.core.jobs import envelope
from rabbitdelay.core.topology import ladder
from rabbitdelay.core.topology.topology import Topology
from rabbitdelay.models import JSON
from tests.support.brokers.receiver import Receiver
from tests.support.patience import patience, wait_until
from tests.support.programs import nodejs

EXAMPLES = nodejs.REPOSITORY / "examples" / "plain_amqp"
TOPIC = "order.close"
DELAY_MS = 230  # two hops: 200ms, 30ms
RETRY_DELAY_MS = 1_000  # chosen by the consumers after the first attempt
PROGRAM_SECONDS = patience(20)

Language = Literal["pika", "node"]
LANGUAGES: tuple[Language, ...] = ("pika", "node")
ProgramsOf = Callable[[Language], "Programs"]

DIGITS = {
    "pika": """
import json, sys, putter

print(json.dumps([putter.digits(delay) for delay in json.load(sys.stdin)]))
""",
    "node": """
const delays = JSON.parse(require("fs").readFileSync(0));
console.log(JSON.stringify(delays.map(require("./putter.js").digits)));
""",
}
FAILING_CONSUMER = {
    "pika": """
import sys, consumer

def handle(job):
    raise RuntimeError("as the test wants it")

consumer.consume(sys.argv[1], 1, handle)
""",
    "node": """
require("./consumer.js").consume(process.argv[1], 1, async () => {
  throw new Error("as the test wants it");
});
""",
}


@dataclass(frozen=True, slots=True)
class Programs:
    """The programs of one language, for one namespace."""

    language: Language
    environment: dict[str, str]

    def put(self, delay_ms: int, *, count: int = 1) -> list[str]:
        """Run the putter, and return the ids that it prints."""
        return self.run_file("putter", TOPIC, delay_ms, count).splitlines()

    def take(self, *, count: int = 1) -> list[dict[str, Any]]:
        """Run the consumer until it has settled `count` jobs; return the jobs that it prints."""
        return _lines_of_json(self.run_file("consumer", TOPIC, count))

    def fail_one_job(self) -> None:
        """Run the consumer for one job, with a handler that raises."""
        self.run_code(FAILING_CONSUMER[self.language], TOPIC)

    def run_file(self, name: str, *arguments: object) -> str:
        interpreter, suffix = self._pick((sys.executable, "py"), ("node", "js"))
        return self._run([interpreter, f"{name}.{suffix}"], arguments)

    def run_code(self, code: str, *arguments: object, given: str = "") -> str:
        interpreter, option = self._pick((sys.executable, "-c"), ("node", "-e"))
        return self._run([interpreter, option, code], arguments, given)

    def _pick(self, pika_: tuple[str, str], node_: tuple[str, str]) -> tuple[str, str]:
        return pika_ if self.language == "pika" else node_

    def _run(self, command: list[str], arguments: tuple[object, ...], given: str = "") -> str:
        done = subprocess.run(
            [*command, *map(str, arguments)],
            cwd=EXAMPLES,
            env=os.environ | self.environment,
            input=given,
            capture_output=True,
            text=True,
            timeout=PROGRAM_SECONDS,
            check=False,
        )
        if done.returncode:
            raise ProgramFailed(done.stderr)
        return done.stdout


class ProgramFailed(Exception):
    """A program ended with an exit code other than 0; the message is its standard error."""


def _lines_of_json(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


@pytest.fixture(scope="session")
def node_modules() -> str:
    """The folder in which node finds amqplib."""
    nodejs.find_node()
    return str(nodejs.install_packages(EXAMPLES / "package-lock.json"))


@pytest.fixture
def programs(broker_url: str, namespace: str, node_modules: str) -> ProgramsOf:
    """Return the programs of a language, for the test's namespace."""
    environment = {
        "RABBITDELAY_URL": broker_url,
        "RABBITDELAY_NAMESPACE": namespace,
        "NODE_PATH": node_modules,
        "PYTHONPATH": str(EXAMPLES),
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    return lambda language: Programs(language, environment)


@pytest.fixture
def topology(namespace: str) -> Topology:
    return Topology(namespace)


@pytest.fixture
def channel(broker_url: str) -> Iterator[BlockingChannel]:
    with pika.BlockingConnection(pika.URLParameters(broker_url)) as connection:
        yield connection.channel()


@pytest.fixture
def made(broker_url: str, namespace: str) -> None:
    """The topic and the hold queues for the delays used here, as `topology apply` creates them."""
    delays = [timedelta(milliseconds=delay_ms) for delay_ms in (DELAY_MS, RETRY_DELAY_MS)]
    client = Client(broker_url, namespace=namespace, stabilise_seconds=0)
    client.topology.apply(topics=TOPIC, delays=delays)


def _count(channel: BlockingChannel, queue: str) -> int:
    return channel.queue_declare(queue, passive=True).method.message_count or 0


# Digits


def _delays_with_every_rounding_edge() -> list[int]:
    edges = [0, 10, 100, 60_000, 3_600_000, ladder.MAX_DELAY_MS]
    edges += [level.hold_ms(digit) for level in ladder.LEVELS for digit in (1, level.highest_digit)]
    near = [edge + step for edge in edges for step in (-1_000, -101, -11, -10, -9, -1, 0, 1, 11)]
    drawn = [int(ladder.MAX_DELAY_MS ** random.Random(seed).random()) for seed in range(300)]
    return [delay for delay in near + drawn if 0 <= delay <= ladder.MAX_DELAY_MS]


@pytest.mark.parametrize("language", LANGUAGES)
def test_the_putters_compute_the_same_digits_as_rabbitdelay(
    programs: ProgramsOf, language: Language
) -> None:
    delays = _delays_with_every_rounding_edge()
    computed = programs(language).run_code(DIGITS[language], given=json.dumps(delays))
    expected = [list(ladder.to_digits(delay)) for delay in delays]
    assert dict(zip(delays, json.loads(computed), strict=True)) == dict(
        zip(delays, expected, strict=True)
    )


@pytest.mark.parametrize("delay_ms", [-1, ladder.MAX_DELAY_MS + 1])
@pytest.mark.parametrize("language", LANGUAGES)
def test_the_putters_refuse_delays_out_of_bounds(
    programs: ProgramsOf, language: Language, delay_ms: int
) -> None:
    with pytest.raises(ProgramFailed, match=f"0 to {ladder.MAX_DELAY_MS} ms, not {delay_ms}"):
        programs(language).put(delay_ms)


# Putting and taking


@pytest.mark.usefixtures("made")
@pytest.mark.parametrize(("putter", "consumer"), [("pika", "node"), ("node", "pika")])
def test_a_job_put_in_one_language_is_taken_in_the_other(
    programs: ProgramsOf, putter: Language, consumer: Language
) -> None:
    ids = programs(putter).put(DELAY_MS, count=5)
    jobs = programs(consumer).take(count=5)
    assert {job["id"]: job["body"] for job in jobs} == {
        job_id: {"number": number} for number, job_id in enumerate(ids)
    }
    assert {job["topic"] for job in jobs} == {TOPIC}
    assert all(0 <= job["lateness_ms"] < patience(5) * 1000 for job in jobs)


@pytest.mark.parametrize("consumer", LANGUAGES)
def test_a_job_put_by_the_client_is_taken_by_any_consumer(
    programs: ProgramsOf,
    broker_url: str,
    namespace: str,
    consumer: Language,
) -> None:
    with Client(broker_url, namespace=namespace, stabilise_seconds=0) as client:
        client.put(TOPIC, {"order": 42}, delay=DELAY_MS / 1000, id="order-42")
        client.put(TOPIC, "text: ä", id="text")
    jobs = programs(consumer).take(count=2)
    assert {job["id"]: job["body"] for job in jobs} == {
        "order-42": {"order": 42},
        "text": "text: ä",
    }


@pytest.mark.usefixtures("made")
@pytest.mark.parametrize("delay_ms", [0, DELAY_MS])
@pytest.mark.parametrize("putter", LANGUAGES)
def test_a_job_put_by_a_plain_putter_is_valid_and_not_early(
    programs: ProgramsOf,
    broker_url: str,
    topology: Topology,
    putter: Language,
    delay_ms: int,
) -> None:
    (job_id,) = programs(putter).put(delay_ms)
    with Receiver(broker_url, topology.ready_queue(TOPIC)) as receiver:
        (received,) = receiver.wait_for_count(1)
    properties = received.properties
    job = envelope.decode(
        envelope.Message(
            received.body,
            received.headers,
            properties.message_id,
            properties.content_type,
            properties.timestamp,
        ),
        topic=TOPIC,
        now_ms=0,
        random_hex="",
    )
    assert (job.id, job.body, job.content_type) == (job_id, {"number": 0}, JSON)
    assert (job.due_ms - job.put_ms, job.ttr_ms, job.attempt) == (delay_ms, 60_000, 1)
    assert received.lateness_ms >= 0
    assert properties.delivery_mode == 2
    written = envelope.fresh_headers(received.headers) | {"rd-attempt": 1}
    assert written == envelope.encode(job).headers


@pytest.mark.usefixtures("made")
@pytest.mark.parametrize("consumer", LANGUAGES)
def test_a_message_without_headers_is_a_job(
    programs: ProgramsOf,
    channel: BlockingChannel,
    topology: Topology,
    consumer: Language,
) -> None:
    channel.basic_publish(topology.ready_exchange, f"0.0.0.0.0.0.0.0.{TOPIC}", b"hello")
    (job,) = programs(consumer).take()
    assert (job["body"], job["attempt"], job["lateness_ms"]) == ("hello", 1, 0)


# Failures


@pytest.mark.usefixtures("made")
@pytest.mark.parametrize("language", LANGUAGES)
def test_a_failed_job_is_put_again_as_a_fresh_copy(
    programs: ProgramsOf,
    broker_url: str,
    topology: Topology,
    language: Language,
) -> None:
    """The copy has one pass through the hold queue in its headers, although the job made two."""
    (job_id,) = programs(language).put(RETRY_DELAY_MS)
    programs(language).fail_one_job()
    with Receiver(broker_url, topology.ready_queue(TOPIC)) as receiver:
        (received,) = receiver.wait_for_count(1)
    headers = received.headers
    assert (received.id, headers["rd-attempt"]) == (job_id, 2)
    assert headers["rd-due"] - headers["rd-put"] >= 2 * RETRY_DELAY_MS
    assert received.lateness_ms >= 0
    assert [death["count"] for death in headers["x-death"]] == [1]


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_job_whose_last_attempt_fails_is_buried(
    programs: ProgramsOf,
    channel: BlockingChannel,
    broker_url: str,
    topology: Topology,
    language: Language,
) -> None:
    with Client(broker_url, namespace=topology.namespace, stabilise_seconds=0) as client:
        client.put(TOPIC, max_attempts=1)
    programs(language).fail_one_job()
    _wait_for_count(channel, topology.buried_queue(TOPIC), 1)


@pytest.mark.usefixtures("made")
@pytest.mark.parametrize("headers", [{"rd-due": "tomorrow"}, {"rd-version": 2}], ids=str)
@pytest.mark.parametrize("language", LANGUAGES)
def test_a_message_that_cannot_be_decoded_is_buried(
    programs: ProgramsOf,
    channel: BlockingChannel,
    topology: Topology,
    language: Language,
    headers: dict[str, Any],
) -> None:
    channel.basic_publish(
        topology.ready_exchange,
        f"0.0.0.0.0.0.0.0.{TOPIC}",
        b"{}",
        pika.BasicProperties(headers=headers),
    )
    assert programs(language).take() == []
    _wait_for_count(channel, topology.buried_queue(TOPIC), 1)


@pytest.mark.usefixtures("made")
@pytest.mark.parametrize("language", LANGUAGES)
def test_a_job_whose_hold_queue_is_missing_is_parked_in_unrouted(
    programs: ProgramsOf,
    channel: BlockingChannel,
    topology: Topology,
    language: Language,
) -> None:
    programs(language).put(1_800_000)
    _wait_for_count(channel, topology.unrouted, 1)


@pytest.mark.parametrize("program", ["putter", "consumer"])
@pytest.mark.parametrize("language", LANGUAGES)
def test_the_error_names_a_topic_that_does_not_exist(
    programs: ProgramsOf, topology: Topology, language: Language, program: str
) -> None:
    with pytest.raises(ProgramFailed, match=f"no queue '{topology.ready_queue(TOPIC)}'"):
        programs(language).run_file(program, TOPIC, 1)


def _wait_for_count(channel: BlockingChannel, queue: str, count: int) -> None:
    wait_until(lambda: _count(channel, queue) == count, what=f"{count} in {queue}")
