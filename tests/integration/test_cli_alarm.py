"""During a memory alarm every command ends within its own timeout, including its exit."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import pytest

from rabbitdelay import BrokerBlocked, Client, JobSpec, OutcomeUnknown
from rabbitdelay.private_broker import PrivateBroker
from rabbitdelay.private_broker.node.server_node import ServerNode
from tests.support import fronts
from tests.support.fronts import front_named
from tests.support.patience import patience, wait_until

pytestmark = pytest.mark.timeout(300)

TIMEOUT_SECONDS = 4.0
SLACK_SECONDS = patience(3)
"""Seconds beyond the timeout and the start of Python; less than one on a quiet machine."""
COMMANDS_AT_A_TIME = 4
READY_JOBS = 20
"""More than all tests take: none can be put during the alarm."""
WAIT_SECONDS = 1.0
TOPIC = "mail"


@pytest.fixture(scope="module")
def broker() -> Iterator[PrivateBroker]:
    """A broker in a memory alarm, with jobs in every state."""
    with PrivateBroker.temporary() as broker:
        with Client(broker.url, stabilise_seconds=0) as client:
            client.put(TOPIC, id="bury")
            buried = client.pop(TOPIC, wait=patience(10))
            assert buried is not None
            buried.bury("as the test wants it")
            client.put(TOPIC, delay=3_600)
            client.put_many(JobSpec(TOPIC) for _ in range(READY_JOBS))
        node = broker.nodes[0]
        assert isinstance(node, ServerNode)
        node.control("set_vm_memory_high_watermark", "0.00001")
        wait_until(lambda: is_blocked(broker.url), seconds=20)
        yield broker


def is_blocked(url: str) -> bool:
    client = Client(url, stabilise_seconds=0)
    try:
        client.delete("nothing", timeout=patience(0.3))
    except BrokerBlocked:
        return True
    except OutcomeUnknown:  # a busy machine may need longer
        return False
    finally:
        client.close(0)
    return False


def run(broker: PrivateBroker, *arguments: str) -> tuple[subprocess.CompletedProcess[str], float]:
    """Run the command line; return the result, and the seconds beyond the start of Python."""
    _, start_seconds = timed(broker, "explain", "1s")
    done, seconds = timed(broker, *arguments)
    return done, seconds - start_seconds


def timed(broker: PrivateBroker, *arguments: str) -> tuple[subprocess.CompletedProcess[str], float]:
    """Run the command line; return the result, and the seconds that it took."""
    management = broker.management_url
    environment = os.environ | {
        "RABBITDELAY_URL": broker.url,
        "RABBITDELAY_MANAGEMENT_URL": management,
        "RABBITDELAY_STABILISE_SECONDS": "0",
        "RABBITDELAY_TIMEOUT": f"{TIMEOUT_SECONDS:g}",
    }
    began = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-m", "rabbitdelay", *arguments],
        env=environment,
        capture_output=True,
        text=True,
        timeout=patience(120),
        check=False,
    )
    return done, time.monotonic() - began


CODES: dict[tuple[str, ...], set[int]] = {
    ("put", TOPIC, "x"): {5},
    ("put", TOPIC, "x", "--delay", "1h"): {5},
    ("put", "new-topic", "x"): {5},
    ("put", TOPIC, "x", "--id", "x", "--replace"): {5},
    ("delete", "x"): {5},
    ("pause", TOPIC): {5},
    ("resume", TOPIC): {5},
    ("purge", TOPIC, "--yes"): {5},
    ("pop", TOPIC): {0, 1},
    ("pop", TOPIC, "--exec", "false"): {1},
    ("stats",): {0},
    ("topics",): {0},
    ("tombstones",): {0, 1},
    ("buried", "list", TOPIC): {0},
    ("buried", "show", TOPIC, "bury"): {0},
    ("buried", "kick", TOPIC, "--all"): {1, 5},
    ("unrouted", "list"): {0},
    ("unrouted", "retry"): {3},
    ("topology", "verify"): {0},
    ("topology", "apply", "--topic", "another-topic"): {5},
    ("topology", "remove", "--yes"): {3},
    ("namespaces",): {0},
}
"""The exit codes that each command may have."""


@dataclass(frozen=True)
class Outcome:
    """The end of a command, and the seconds that it took beyond the start of Python."""

    code: int
    stderr: str
    seconds: float

    def is_in_time(self, codes: set[int]) -> bool:
        return self.code in codes and self.seconds < TIMEOUT_SECONDS + SLACK_SECONDS


@pytest.fixture(scope="module")
def outcomes(broker: PrivateBroker) -> dict[tuple[str, ...], Outcome]:
    """The outcomes of all commands, several of which run at a time: they wait most of the time."""
    starts = [("explain", "1s")] * COMMANDS_AT_A_TIME
    with ThreadPoolExecutor(COMMANDS_AT_A_TIME) as pool:
        started = [pool.submit(timed, broker, *arguments) for arguments in starts]
        ran = {arguments: pool.submit(timed, broker, *arguments) for arguments in CODES}
    start_seconds = max(start.result()[1] for start in started)
    ends = {arguments: one.result() for arguments, one in ran.items()}
    return {
        arguments: Outcome(done.returncode, done.stderr, seconds - start_seconds)
        for arguments, (done, seconds) in ends.items()
    }


@pytest.mark.parametrize("arguments", CODES, ids=" ".join)
def test_a_command_ends_within_its_timeout(
    broker: PrivateBroker,
    outcomes: dict[tuple[str, ...], Outcome],
    arguments: tuple[str, ...],
) -> None:
    """A busy machine may be late once; a command that waits too long is late every time."""
    outcome, codes = outcomes[arguments], CODES[arguments]
    if not outcome.is_in_time(codes):
        done, seconds = run(broker, *arguments)
        outcome = Outcome(done.returncode, done.stderr, seconds)
    assert outcome.is_in_time(codes), outcome
    assert "Traceback" not in outcome.stderr


def test_the_wait_of_a_pop_starts_after_the_log_is_read(broker: PrivateBroker) -> None:
    """Nothing can be written during an alarm, so reading the log takes longer."""
    done, seconds = run(broker, "--timeout", "20s", "pop", TOPIC, "--wait", f"{WAIT_SECONDS:g}")
    assert done.returncode == 0, done.stderr
    assert seconds < 20 + WAIT_SECONDS + SLACK_SECONDS


def test_a_consumer_ends_at_once(broker: PrivateBroker) -> None:
    """The consumer handles a job, which needs no publish."""
    arguments = ("consume", TOPIC, "--print", "--max-jobs", "1", "--grace", "1s")
    done, _ = run(broker, *arguments)
    assert done.returncode == 0, done.stderr
    assert TOPIC in done.stdout


def test_a_consumer_without_jobs_ends_at_a_signal(broker: PrivateBroker) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "rabbitdelay", "consume", "empty", "--print", "--grace", "1s"],
        env=os.environ | {"RABBITDELAY_URL": broker.url},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    time.sleep(patience(1))  # it must end, whatever it is doing by then
    process.send_signal(signal.SIGTERM)
    began = time.monotonic()
    process.communicate(timeout=patience(60))
    assert time.monotonic() - began < 1 + SLACK_SECONDS


@pytest.mark.parametrize("name", fronts.NAMES)
@pytest.mark.parametrize("pops", [False, True], ids=["put", "pop"])
def test_a_client_closes_at_once(broker: PrivateBroker, name: str, *, pops: bool) -> None:
    """The broker does not answer what it does not read."""
    with front_named(name) as front:
        client = front.client(broker.url, stabilise_seconds=0, timeout=patience(30))
        with pytest.raises(BrokerBlocked):
            client.put(TOPIC, timeout=1)
        if pops:
            with pytest.raises(BrokerBlocked):
                client.delete("x", timeout=0.5)
            job = client.pop(TOPIC, wait=patience(20))
            assert job is not None
            job.finish()
        began = time.monotonic()
        client.close()
        assert time.monotonic() - began < SLACK_SECONDS
