"""`rabbitdelay topology`: show, apply, export and verify on a real broker."""

import json
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from urllib.request import Request, urlopen

import pika
import pytest
from click.testing import CliRunner

from rabbitdelay import Client
from rabbitdelay.cli import root
from tests.acceptance.conftest import CommandLine
from tests.support.brokers.receiver import Receiver
from tests.support.brokers.suite_broker import SharedBroker
from tests.support.patience import patience, wait_until

pytestmark = pytest.mark.usefixtures("nothing_set")

NO_MANAGEMENT = ("--management-url", "http://127.0.0.1:1")
HOLD_QUEUES = 208
LEVELS = ("y", "mo", "d", "h", "m", "s", "ds", "cs")


@pytest.fixture
def change(broker_url: str) -> Callable[[Callable[..., None]], None]:
    """Change the broker over a connection of the test's own."""

    def run(action: Callable[..., None]) -> None:
        with pika.BlockingConnection(pika.URLParameters(broker_url)) as connection:
            action(connection.channel())

    return run


def test_show_needs_no_broker() -> None:
    text = CliRunner().invoke(root, ["topology", "show"]).stdout
    assert "rabbitdelay.v1.hold.1m … 59m" in text
    assert max(map(len, text.splitlines())) <= 80


def test_show_prints_json() -> None:
    shown = json.loads(CliRunner().invoke(root, ["topology", "show", "--json"]).stdout)
    assert [level["name"] for level in shown["levels"]] == list(LEVELS)
    assert len(shown["queues"]) == HOLD_QUEUES + 5


def test_apply_creates_missing_queues_once(rabbitdelay: CommandLine) -> None:
    arguments = ("topology", "apply", "--topic", "mail", "--delay", "1h30m", "--json")
    first, second = (json.loads(rabbitdelay(*arguments).stdout) for _ in range(2))
    assert (first["queues"], first["made"]) == (4, 4)
    assert (second["queues"], second["made"]) == (4, 0)
    assert rabbitdelay("topology", "verify", "--topic", "mail", "--delay", "1h30m").exit_code == 0


@pytest.mark.slow
def test_apply_creates_every_quorum_queue(shared_broker: SharedBroker, namespace: str) -> None:
    options = ["--url", shared_broker.url, "--namespace", namespace]
    options += ["--management-url", shared_broker.management.url]
    made = CliRunner().invoke(root, [*options, "topology", "apply", "--all", "--topic", "mail"])
    assert made.exit_code == 0, made.output
    assert f"new queues: {HOLD_QUEUES + 2} of {HOLD_QUEUES + 2}" in made.stdout
    verified = CliRunner().invoke(root, [*options, "topology", "verify", "--all"])
    assert verified.exit_code == 0, verified.output


def test_apply_waits_as_long_as_new_queues_stabilise(broker_url: str, namespace: str) -> None:
    options = ["--url", broker_url, "--namespace", namespace, "--stabilise-seconds", "1.5"]
    arguments = ["topology", "apply", "--topic", "mail", "--delay", "200ms"]
    began = time.monotonic()
    assert CliRunner().invoke(root, [*options, *arguments]).exit_code == 0
    assert time.monotonic() - began >= 1.5


def test_an_export_imports_and_jobs_flow_without_declaring(
    shared_broker: SharedBroker, namespace: str
) -> None:
    options = ["--url", shared_broker.url, "--namespace", namespace]
    arguments = ["topology", "export", "--topic", "mail", "--delay", "200ms"]
    exported = CliRunner().invoke(root, [*options, *arguments])
    _import(shared_broker, exported.stdout)
    with (
        Client(shared_broker.url, namespace=namespace, declare=False) as client,
        Receiver(shared_broker.url, client.topology.ready_queue("mail")) as receiver,
    ):
        client.put("mail", {"n": 1}, delay=0.2, id="a")
        receiver.wait_for("a")


def test_export_is_for_the_vhost_of_the_url() -> None:
    arguments = ["--url", "amqp://localhost/shop", "topology", "export"]
    exported = json.loads(CliRunner().invoke(root, arguments).stdout)
    assert {item["vhost"] for section in exported.values() for item in section} == {"shop"}


@pytest.mark.parametrize("way", [(), NO_MANAGEMENT], ids=["management", "amqp"])
def test_verify_finds_a_missing_queue(
    rabbitdelay: CommandLine, namespace: str, change: Callable[..., None], way: tuple[str, ...]
) -> None:
    rabbitdelay("topology", "apply", "--topic", "mail")
    queue = f"{namespace}.v1.buried.mail"
    change(lambda channel: channel.queue_delete(queue))
    result = rabbitdelay(*way, "topology", "verify", "--topic", "mail", "--json")
    assert result.exit_code == 3
    states = {(one["kind"], one["name"]): one["state"] for one in json.loads(result.stdout)}
    assert states["queue", queue] == "missing"
    assert states["queue", f"{namespace}.v1.ready.mail"] == "ok"
    assert rabbitdelay("topics", "mail").exit_code == 0, "verify makes nothing"


@pytest.mark.parametrize("way", [(), NO_MANAGEMENT], ids=["management", "amqp"])
def test_verify_finds_a_different_argument(
    rabbitdelay: CommandLine, namespace: str, change: Callable[..., None], way: tuple[str, ...]
) -> None:
    rabbitdelay("topology", "apply")
    queue = f"{namespace}.v1.hold.1m"
    change(
        lambda channel: channel.queue_declare(
            queue, durable=True, arguments={"x-queue-type": "classic", "x-message-ttl": 61_000}
        )
    )
    result = rabbitdelay(*way, "topology", "verify", "--delay", "1m")
    assert result.exit_code == 3
    (line,) = [line for line in result.stdout.splitlines() if line.startswith("different")]
    assert queue in line
    assert "61000" in line


def test_verify_finds_a_missing_binding(
    rabbitdelay: CommandLine, namespace: str, change: Callable[..., None]
) -> None:
    """The command checks everything in the namespace, without options that name it."""
    rabbitdelay("put", "mail", "--delay", "30m")
    ready, key = f"{namespace}.v1.ready", "*.*.*.*.*.*.*.*.mail"
    change(lambda channel: channel.queue_unbind(f"{ready}.mail", ready, key))
    result = rabbitdelay("topology", "verify")
    assert result.exit_code == 3
    assert f"{ready} → {ready}.mail [{key}]" in result.stdout


def test_verify_over_amqp_says_that_bindings_are_not_checked(rabbitdelay: CommandLine) -> None:
    rabbitdelay("topology", "apply")
    result = rabbitdelay(*NO_MANAGEMENT, "topology", "verify")
    assert result.exit_code == 0
    assert "bindings and policies were not checked" in result.stderr
    assert "unchecked" in result.stdout


POLICIES = {
    "message-ttl": 600_000,
    "expires": 600_000,
    "max-length": 1_000_000,
    "max-length-bytes": 10**9,
    "delivery-limit": 50,
    "overflow": "reject-publish",
    "dead-letter-exchange": "amq.fanout",
    "dead-letter-routing-key": "elsewhere",
    "dead-letter-strategy": "at-most-once",
    "max-age": "1h",
    "alternate-exchange": "amq.fanout",
}
OPERATOR_POLICIES = ("message-ttl", "expires", "max-length", "max-length-bytes", "delivery-limit")


def test_verify_fails_on_every_policy_that_makes_jobs_early_or_lost(
    rabbitdelay: CommandLine, shared_broker: SharedBroker, namespace: str
) -> None:
    rabbitdelay("topology", "apply", "--topic", "mail", "--delay", "1s")
    assert rabbitdelay("topology", "verify").exit_code == 0
    for key, value in POLICIES.items():
        with policy(shared_broker, namespace, "policies", {key: value}):
            await_policy_check(rabbitdelay, namespace, f"sets {key} to {value}")
    await_policy_check(rabbitdelay, namespace, None)


def test_verify_fails_on_operator_policies(
    rabbitdelay: CommandLine, shared_broker: SharedBroker, namespace: str
) -> None:
    rabbitdelay("topology", "apply", "--topic", "mail", "--delay", "1s")
    for key in OPERATOR_POLICIES:
        with policy(shared_broker, namespace, "operator-policies", {key: POLICIES[key]}):
            await_policy_check(rabbitdelay, f"{namespace} (operator policy)", f"sets {key} to")


def test_verify_accepts_a_policy_that_changes_no_job(
    rabbitdelay: CommandLine, shared_broker: SharedBroker, namespace: str
) -> None:
    rabbitdelay("topology", "apply")
    definition = {"queue-leader-locator": "balanced"}
    with policy(shared_broker, namespace, "policies", definition):
        assert rabbitdelay("topology", "verify").exit_code == 0


@contextmanager
def policy(
    broker: SharedBroker, namespace: str, kind: str, definition: Mapping[str, object]
) -> Iterator[None]:
    """Set a policy for everything in the namespace, under the namespace's own name."""
    applies_to = "all" if kind == "policies" else "queues"
    body = {"pattern": f"^{namespace}\\.", "definition": definition, "apply-to": applies_to}
    path = f"{kind}/%2F/{namespace}"
    broker.management.put(path, body)
    try:
        yield
    finally:
        broker.management.remove(path)


def await_policy_check(rabbitdelay: CommandLine, name: str, detail: str | None) -> None:
    """Wait until `verify` reports the policy, or no policy at all: queues learn of it later."""

    def is_reported() -> bool:
        result = rabbitdelay("topology", "verify")
        if detail is None:
            return result.exit_code == 0
        lines = [line for line in result.stdout.splitlines() if line.startswith("different")]
        return result.exit_code == 3 and any(name in one and detail in one for one in lines)

    wait_until(is_reported)


def test_verify_creates_nothing(
    rabbitdelay: CommandLine, shared_broker: SharedBroker, namespace: str
) -> None:
    for way in ((), NO_MANAGEMENT):
        result = rabbitdelay(*way, "topology", "verify", "--delay", "1h30m", "--topic", "mail")
        assert result.exit_code == 3
    assert shared_broker.management.names("queues", namespace) == []
    assert shared_broker.management.names("exchanges", namespace) == []


def _import(broker: SharedBroker, definitions: str) -> None:
    request = Request(  # noqa: S310 - always http
        f"{broker.management.url}api/definitions",
        data=definitions.encode(),
        headers={
            "Authorization": "Basic Z3Vlc3Q6Z3Vlc3Q=",
            "Content-Type": "application/json",
        },
    )
    with urlopen(request, timeout=patience(10)):  # noqa: S310 - always http
        pass
