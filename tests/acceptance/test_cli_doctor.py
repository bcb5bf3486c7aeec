"""`rabbitdelay doctor`: every kind of finding, on a broker in which something is broken."""

import json
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from urllib.parse import quote, urlsplit

import pika
import pytest
from click.testing import CliRunner, Result
from pika.adapters.blocking_connection import BlockingChannel

from rabbitdelay.cli import root
from rabbitdelay.core.doctor.broker_checks import DEAD_LETTER_LINE
from rabbitdelay.engine.administration import management_api
from rabbitdelay.private_broker import PrivateBroker
from rabbitdelay.private_broker.installation import configuration
from tests.acceptance.conftest import CommandLine
from tests.conftest import PrivateBrokerFactory
from tests.support.brokers.suite_broker import SharedBroker
from tests.support.patience import wait_until

pytestmark = pytest.mark.usefixtures("nothing_set")
NO_MANAGEMENT = ("--management-url", "http://127.0.0.1:1")
Findings = dict[str, dict[str, str]]
Examine = Callable[..., Findings]


def findings(result: Result) -> Findings:
    """Return the findings by name."""
    assert result.exit_code in (0, 3), result.output
    return {found["name"]: found for found in json.loads(result.stdout)}


@pytest.fixture
def applied(rabbitdelay: CommandLine) -> None:
    """Create the namespace, with a topic and a hold queue."""
    done = rabbitdelay("topology", "apply", "--topic", "mail", "--delay", "100ms")
    assert done.exit_code == 0


@pytest.fixture
def examine(rabbitdelay: CommandLine, request: pytest.FixtureRequest) -> Examine:
    """Run the doctor in a namespace that exists; `options` precede the command."""
    request.getfixturevalue("applied")

    def run(*options: str) -> Findings:
        return findings(rabbitdelay(*options, "doctor", "--json"))

    return run


@pytest.fixture
def change(broker_url: str) -> Callable[[Callable[[BlockingChannel], object]], None]:
    """Change the broker over a connection of the test's own."""

    def run(work: Callable[[BlockingChannel], object]) -> None:
        with pika.BlockingConnection(pika.URLParameters(broker_url)) as connection:
            work(connection.channel())

    return run


# A healthy broker


def test_a_healthy_namespace_has_no_problem(rabbitdelay: CommandLine, examine: Examine) -> None:
    wait_until(lambda: rabbitdelay("doctor").exit_code == 0, what="counts of new queues")
    found = examine()
    assert {name for name, one in found.items() if one["status"] == "problem"} == set()
    well = ("version", "management API", "feature flags", "max message size", "alarms", "clock")
    also = ("permissions", "policies", "topology", "delete log", "unrouted jobs", "buried jobs")
    assert {found[name]["status"] for name in (*well, *also, "dead-lettering")} == {"ok"}


@pytest.mark.usefixtures("applied")
def test_the_table_starts_with_problems_and_shows_all_checks_on_request(
    rabbitdelay: CommandLine,
) -> None:
    short, long = rabbitdelay("doctor"), rabbitdelay("doctor", "--all")
    assert "version" not in short.stdout
    assert "RabbitMQ " in long.stdout
    states = [line.split()[0] for line in long.stdout.splitlines() if line[:1].isalpha()]
    order = ["problem", "warning", "unknown", "ok"]
    assert states == sorted(states, key=order.index)
    assert "→ start a worker for the topic" in short.stdout


def test_invisible_settings_are_unknown_and_name_the_line_to_set(
    examine: Examine,
) -> None:
    found = examine()
    assert found["dead-letter retry"]["status"] == "unknown"
    assert "cannot be seen from here" in found["dead-letter retry"]["reason"]
    assert DEAD_LETTER_LINE in found["dead-letter retry"]["fix"]
    assert found["consumer timeout"]["status"] == "unknown"


@pytest.mark.usefixtures("applied")
def test_strict_counts_warnings_and_unknowns(rabbitdelay: CommandLine) -> None:
    wait_until(lambda: rabbitdelay("doctor").exit_code == 0, what="counts of new queues")
    assert rabbitdelay("doctor", "--strict").exit_code == 3


@pytest.mark.usefixtures("applied")
def test_a_ttr_above_the_default_of_the_broker_is_a_warning(rabbitdelay: CommandLine) -> None:
    found = findings(rabbitdelay("doctor", "--json", "--ttr", "2h"))["consumer timeout"]
    assert found["status"] == "warning"
    assert found["fix"].endswith("consumer_timeout = 14400000")


def test_an_unreachable_broker_exits_with_4() -> None:
    result = CliRunner().invoke(root, ["--url", "amqp://127.0.0.1:1", "doctor"])
    assert result.exit_code == 4
    assert result.stdout == ""


# Problems of a namespace


def test_a_missing_namespace_is_a_warning_and_is_not_created(
    rabbitdelay: CommandLine, shared_broker: SharedBroker, namespace: str
) -> None:
    for options in ((), NO_MANAGEMENT):
        found = findings(rabbitdelay(*options, "doctor", "--json"))
        assert found["topology"]["status"] == "warning"
        assert f"namespace {namespace} does not exist" in found["topology"]["reason"]
    assert shared_broker.management.names("queues", namespace) == []
    assert shared_broker.management.names("exchanges", namespace) == []


def test_without_the_management_api_some_checks_are_unknown(
    rabbitdelay: CommandLine, examine: Examine
) -> None:
    found = examine(*NO_MANAGEMENT)
    assert "plugin may be off" in found["management API"]["reason"]
    unknown = {name for name, one in found.items() if one["status"] == "unknown"}
    needing = {"management API", "feature flags", "nodes", "queue members", "clock", "policies"}
    assert unknown >= needing | {"buried jobs", "consumers", "dead-lettering", "topology"}
    assert found["delete log"]["status"] == found["permissions"]["status"] == "ok"
    assert rabbitdelay(*NO_MANAGEMENT, "doctor").exit_code == 0


@pytest.mark.parametrize(
    ("kind", "definition"),
    [("policies", {"message-ttl": 600_000}), ("operator-policies", {"max-length": 1_000_000})],
)
def test_a_policy_that_changes_jobs_is_a_problem(
    examine: Examine,
    shared_broker: SharedBroker,
    namespace: str,
    kind: str,
    definition: Mapping[str, object],
) -> None:
    (key,) = definition
    with set_policy(shared_broker, namespace, kind, definition):
        wait_until(lambda: examine()["policies"]["status"] == "problem")
        assert f"sets {key}" in examine()["policies"]["reason"]
        assert namespace in examine()["policies"]["fix"]


def test_missing_and_different_parts_are_problems(
    examine: Examine, change: Callable[..., None], namespace: str
) -> None:
    ready, key = f"{namespace}.v1.ready", "*.*.*.*.*.*.*.*.mail"
    change(lambda channel: channel.queue_unbind(f"{ready}.mail", ready, key))
    assert f"missing: {ready} → {ready}.mail" in examine()["topology"]["reason"]
    hold = f"{namespace}.v1.hold.100ms"
    change(lambda channel: channel.queue_bind(f"{ready}.mail", ready, key))
    change(lambda channel: channel.queue_delete(hold))
    change(lambda channel: channel.queue_declare(hold, durable=True))
    change(lambda channel: channel.queue_bind(hold, hold))
    change(lambda channel: channel.queue_bind(hold, f"{namespace}.v1.level.ds", "*.*.*.*.*.*.1.#"))
    assert "other arguments" in examine()["topology"]["reason"]


@pytest.mark.parametrize("way", [(), NO_MANAGEMENT], ids=["api", "amqp"])
def test_a_missing_log_of_deletes_is_a_problem(
    examine: Examine, change: Callable[..., None], namespace: str, way: tuple[str, ...]
) -> None:
    change(lambda channel: channel.queue_delete(f"{namespace}.tombstones"))
    found = examine(*way)["delete log"]
    assert found["status"] == "problem"
    assert f"{namespace}.tombstones" in found["reason"]


def test_unrouted_and_buried_jobs_and_jobs_without_a_worker_are_found(
    rabbitdelay: CommandLine, examine: Examine, change: Callable[..., None], namespace: str
) -> None:
    ready = f"{namespace}.v1.ready"
    change(lambda channel: channel.basic_publish(ready, "0.0.0.0.0.0.0.0.gone", b""))
    change(lambda channel: channel.basic_publish(f"{namespace}.v1.buried", "mail", b""))
    assert rabbitdelay("put", "mail").exit_code == 0
    wait_until(lambda: examine()["unrouted jobs"]["status"] == "problem")
    assert "1 job" in examine()["unrouted jobs"]["reason"]
    wait_until(lambda: examine()["buried jobs"]["status"] == "warning")
    wait_until(lambda: "mail (1 ready)" in examine()["consumers"]["reason"])
    assert rabbitdelay("doctor").exit_code == 3


def test_jobs_stuck_between_queues_are_a_problem(
    examine: Examine, change: Callable[..., None], namespace: str
) -> None:
    """AMQP does not count them in any queue. Here the exchange of the next level is missing."""
    hold = f"{namespace}.v1.hold.100ms"
    change(lambda channel: channel.exchange_delete(f"{namespace}.v1.level.cs"))
    change(lambda channel: channel.basic_publish(hold, "0.0.0.0.0.0.1.0.mail", b""))
    wait_until(lambda: examine()["dead-lettering"]["status"] == "problem", seconds=30)
    found = examine()["dead-lettering"]
    assert f"1 job stuck on the way out of {hold}" in found["reason"]


def test_a_wrong_clock_is_a_problem(examine: Examine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(management_api, "unix_seconds", lambda: time.time() + 3_600)
    found = examine()["clock"]
    assert found["status"] == "problem"
    assert "ahead of the broker" in found["reason"]


# Users


@pytest.mark.usefixtures("applied")
def test_the_permissions_of_a_user_are_tested(
    rabbitdelay: CommandLine, shared_broker: SharedBroker, namespace: str
) -> None:
    own = f"^{namespace}\\."
    api = shared_broker.management
    with user(shared_broker, namespace) as (url, grant):
        grant(configure=own, write=own, read=own)
        assert permissions(rabbitdelay, url) == ("ok", f"{namespace} may configure, write and read")
        grant(configure="^$", write=own, read="^$")
        status, reason = permissions(rabbitdelay, url)
        assert status == "warning"
        assert "it needs declare=False and it cannot consume" in reason
        grant(configure="^$", write="^$", read=own)
        assert permissions(rabbitdelay, url)[0] == "problem"
        api.put(f"users/{namespace}", {"password": namespace, "tags": "management"})
        found = findings(rabbitdelay("--url", url, "doctor", "--json"))
        assert found["policies"]["status"] == "ok"
        assert "needs a user with the monitoring tag" in found["nodes"]["reason"]


def permissions(rabbitdelay: CommandLine, url: str) -> tuple[str, str]:
    found = findings(rabbitdelay("--url", url, "doctor", "--json"))["permissions"]
    return found["status"], found["reason"]


@contextmanager
def user(broker: SharedBroker, name: str) -> Iterator[tuple[str, Callable[..., None]]]:
    """Add a user without tags; yield its URL and a function that changes its permissions."""
    api = broker.management
    api.put(f"users/{name}", {"password": name, "tags": ""})

    def grant(**patterns: str) -> None:
        api.put(f"permissions/{quote('/', safe='')}/{name}", patterns)

    try:
        yield f"amqp://{name}:{name}@{urlsplit(broker.url).netloc.rpartition('@')[2]}/", grant
    finally:
        api.remove(f"users/{name}")


@contextmanager
def set_policy(
    broker: SharedBroker, namespace: str, kind: str, definition: Mapping[str, object]
) -> Iterator[None]:
    """Set a policy for every queue of the namespace, under the namespace's own name."""
    body = {"pattern": f"^{namespace}\\.", "definition": definition, "apply-to": "queues"}
    broker.management.put(f"{kind}/%2F/{namespace}", body)
    try:
        yield
    finally:
        broker.management.remove(f"{kind}/%2F/{namespace}")


# A private broker, whose settings can be read from its node


def examine_private(broker: PrivateBroker, *options: str) -> Findings:
    return findings(CliRunner().invoke(root, ["--url", broker.url, "doctor", "--json", *options]))


def private(monkeypatch: pytest.MonkeyPatch, broker: PrivateBroker) -> PrivateBroker:
    """Set the environment of the broker, with a namespace that does not wait for new queues."""
    monkeypatch.setenv("RABBITDELAY_BROKER_DIR", str(broker.directory))
    applied = ["--url", broker.url, "--stabilise-seconds", "0", "topology", "apply"]
    assert CliRunner().invoke(root, applied).exit_code == 0
    return broker


def test_the_settings_of_a_private_broker_are_read_from_its_node(
    start_private_broker: PrivateBrokerFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = {"consumer_timeout": "90000", "max_message_size": "65536"}
    broker = private(monkeypatch, start_private_broker(extra_config=config))
    found = examine_private(broker, "--ttr", "30s")
    assert found["dead-letter retry"] == {
        "name": "dead-letter retry",
        "status": "ok",
        "reason": "after 5s",
        "fix": "",
    }
    assert found["consumer timeout"]["status"] == "ok"
    assert found["max message size"]["status"] == "problem"
    too_long = examine_private(broker, "--ttr", "2m")["consumer timeout"]
    assert too_long["status"] == "problem"
    assert "1m30s, not longer than the longest ttr of 2m" in too_long["reason"]
    monkeypatch.setenv("RABBITDELAY_BROKER_DIR", "/nonexistent")
    by_trying = examine_private(broker)["max message size"]
    assert by_trying["status"] == "problem", "a message of that size is refused"


def test_a_dead_letter_retry_after_three_minutes_is_a_problem(
    start_private_broker: PrivateBrokerFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(configuration, "DEAD_LETTER_RETRY_MS", 180_000)
    found = examine_private(private(monkeypatch, start_private_broker()))["dead-letter retry"]
    assert found["status"] == "problem"
    assert "3m" in found["reason"]
    assert DEAD_LETTER_LINE in found["fix"]


def test_an_alarm_is_a_problem_with_and_without_the_management_api(
    start_private_broker: PrivateBrokerFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = private(monkeypatch, start_private_broker())
    node = broker.nodes[0]
    node.control("set_vm_memory_high_watermark", "0.00001")

    def alarm(*options: str) -> dict[str, Any]:
        arguments = ["--url", broker.url, *options, "doctor", "--json"]
        return findings(CliRunner().invoke(root, arguments))["alarms"]

    wait_until(lambda: alarm()["status"] == "problem")
    assert alarm(*NO_MANAGEMENT)["status"] == "problem"
    assert "puts wait" in alarm(*NO_MANAGEMENT)["reason"]
    node.control("set_vm_memory_high_watermark", "0.8")
    wait_until(lambda: alarm()["status"] == "ok")


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_a_cluster_that_has_lost_a_node_has_problems(
    start_private_broker: PrivateBrokerFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = private(monkeypatch, start_private_broker(nodes=3))
    found = examine_private(broker)
    assert found["nodes"]["status"] == "ok"
    assert found["queue members"]["status"] == "ok"
    broker.nodes[0].kill()
    wait_until(lambda: examine_private(broker)["nodes"]["status"] == "problem", seconds=30)
    assert broker.nodes[0].name in examine_private(broker)["nodes"]["reason"]
