"""A namespace that does not exist, `rabbitdelay namespaces`, and `rabbitdelay topology remove`."""

import json
from collections.abc import Callable

import pytest

from rabbitdelay import Client
from tests.acceptance.conftest import CommandLine
from tests.conftest import ClientFactory, TopicsFactory, WorkerFactory
from tests.support.brokers.suite_broker import SharedBroker
from tests.support.jobs.worker_thread import working
from tests.support.patience import patience, wait_until

pytestmark = pytest.mark.usefixtures("nothing_set")

NO_MANAGEMENT = ("--management-url", "http://127.0.0.1:1")
PRINTED = '{"id": "x", "topic": "mail", "token": "ab", "put": "2026-01-01T00:00:00Z"}'
COMMANDS = [
    ("delete", "x"),
    ("delete", "--from", "-"),
    ("reschedule", "-", "--delay", "1h"),
    ("pause", "mail"),
    ("resume", "mail"),
    ("purge", "mail", "--yes"),
    ("pop", "mail", "--wait", "1h"),
    ("stats",),
    ("stats", "--watch"),
    ("stats", "mail"),
    ("topics",),
    ("topics", "mail"),
    ("tombstones",),
    ("buried", "list", "mail"),
    ("buried", "show", "mail", "x"),
    ("buried", "kick", "mail", "--all"),
    ("buried", "drop", "mail", "--all", "--yes"),
    ("unrouted", "list"),
    ("unrouted", "retry"),
    ("unrouted", "drop", "--all", "--yes"),
    ("topology", "remove", "--yes"),
]


@pytest.fixture
def made(shared_broker: SharedBroker) -> Callable[[str], list[str]]:
    """Return the names of all queues and exchanges of a namespace."""
    management = shared_broker.management

    def names(namespace: str) -> list[str]:
        kinds = ("queues", "exchanges")
        return [name for kind in kinds for name in management.names(kind, f"{namespace}.")]

    return names


@pytest.mark.parametrize("arguments", COMMANDS, ids=" ".join)
def test_a_command_in_a_missing_namespace_fails_and_creates_nothing(
    rabbitdelay: CommandLine,
    make_topics: TopicsFactory,
    namespace: str,
    made: Callable[[str], list[str]],
    arguments: tuple[str, ...],
) -> None:
    """The error suggests the similar name."""
    make_topics("mail")
    misspelt = f"{namespace[:4]}{namespace[5]}{namespace[4]}{namespace[6:]}x"
    told = rabbitdelay("--namespace", misspelt, *arguments, input=PRINTED)
    assert told.exit_code == 1, told.output
    assert told.stdout == ""
    assert f"there is no namespace {misspelt}" in told.stderr
    assert f"did you mean {namespace}" in told.stderr
    assert made(misspelt) == []


@pytest.mark.parametrize(("command", "code"), [("verify", 3), ("doctor", 0)])
def test_a_check_of_a_missing_namespace_suggests_a_similar_name(
    *,
    rabbitdelay: CommandLine,
    make_topics: TopicsFactory,
    namespace: str,
    made: Callable[[str], list[str]],
    command: str,
    code: int,
) -> None:
    make_topics("mail")
    arguments = ("topology", command) if command == "verify" else (command,)
    told = rabbitdelay("--namespace", f"{namespace}x", *arguments)
    assert told.exit_code == code, told.output
    assert f"note: there is no namespace {namespace}x on this broker: did you mean" in told.stderr
    assert namespace in told.stderr.split("did you mean")[1]
    assert made(f"{namespace}x") == []


def test_without_the_management_api_no_name_is_suggested(rabbitdelay: CommandLine) -> None:
    told = rabbitdelay(*NO_MANAGEMENT, "delete", "x")
    assert told.exit_code == 1
    assert "there is no namespace" in told.stderr
    assert "check --namespace" in told.stderr


def test_a_pop_creates_no_topic(
    rabbitdelay: CommandLine,
    make_topics: TopicsFactory,
    namespace: str,
    made: Callable[[str], list[str]],
) -> None:
    make_topics("mail")
    before = sorted(made(namespace))
    told = rabbitdelay("pop", "mial", "mail", "--wait", "600ms")
    assert told.exit_code == 3
    assert told.stderr == "no job received (no such topic: mial)\n"
    assert sorted(made(namespace)) == before


def test_put_consume_and_apply_create_a_namespace(
    rabbitdelay: CommandLine, namespace: str, made: Callable[[str], list[str]]
) -> None:
    for number, arguments in enumerate(
        [("put", "mail"), ("consume", "mail", "--print", "--until-empty"), ("topology", "apply")]
    ):
        name = f"{namespace}-{number}"
        assert rabbitdelay("--namespace", name, *arguments).exit_code == 0
        assert made(name)
        assert rabbitdelay("--namespace", name, "delete", "x").exit_code == 0
        removed = rabbitdelay("--namespace", name, "topology", "remove", "--yes", "--force")
        assert removed.exit_code == 0
        assert made(name) == []


# namespaces


def test_namespaces_are_listed_with_their_jobs(
    rabbitdelay: CommandLine, client: Client, namespace: str
) -> None:
    client.put("mail", delay=3_600)
    client.put("mail")
    client.put("sms")

    def listed() -> dict[str, object]:
        found = json.loads(rabbitdelay("namespaces", "--json").stdout)
        return next(one for one in found if one["namespace"] == namespace)

    jobs = {"delayed": 1, "ready": 2, "reserved": 0, "buried": 0, "unrouted": 0}
    expected = {"topics": 2, "jobs": jobs | {"dead_lettering": 0}, "consumers": 0}
    what = f"{expected} in namespaces"  # the counts of the management API are some seconds old
    wait_until(lambda: listed() == {"namespace": namespace} | expected, seconds=20, what=what)
    table = rabbitdelay("namespaces").stdout
    assert namespace in table
    assert max(map(len, table.splitlines())) <= 100


def test_namespaces_need_the_management_api(rabbitdelay: CommandLine) -> None:
    told = rabbitdelay(*NO_MANAGEMENT, "namespaces")
    assert told.exit_code == 4
    assert "management API" in told.stderr


# topology remove


def test_an_empty_namespace_is_removed_completely(
    *,
    rabbitdelay: CommandLine,
    make_topics: TopicsFactory,
    make_client: ClientFactory,
    namespace: str,
    made: Callable[[str], list[str]],
    shared_broker: SharedBroker,
) -> None:
    """Queues of other applications are not touched, and the namespace can be created again."""
    make_topics("mail", "sms")
    vhost, other = "%2F", f"{namespace}.of-another-application"
    shared_broker.management.put(f"queues/{vhost}/{other}", {"durable": True})
    there = sorted(made(namespace))
    planned = json.loads(rabbitdelay("topology", "remove", "--dry-run", "--json").stdout)
    assert (planned["removed"], sorted(planned["queues"] + planned["exchanges"])) == (
        False,
        sorted(name for name in there if name != other),
    )
    assert sorted(made(namespace)) == there
    asked = rabbitdelay("topology", "remove", input="n\n")
    assert asked.exit_code == 3
    assert "nothing was removed" in asked.stderr
    assert sorted(made(namespace)) == there
    assert rabbitdelay("topology", "remove", input="y\n").exit_code == 0
    assert made(namespace) == [other]
    assert rabbitdelay("topology", "remove", "--yes").exit_code == 1
    client = make_client()
    client.put("mail", id="again")
    popped = client.pop("mail", wait=patience(10))
    assert popped is not None
    popped.finish()


@pytest.mark.parametrize("where", ["delayed", "ready", "buried", "unrouted"])
def test_a_namespace_with_jobs_is_removed_only_by_force(
    *,
    rabbitdelay: CommandLine,
    client: Client,
    namespace: str,
    made: Callable[[str], list[str]],
    shared_broker: SharedBroker,
    where: str,
) -> None:
    client.put("mail", delay=3_600 if where == "delayed" else 0)
    if where == "buried":
        popped = client.pop("mail", wait=patience(10))
        assert popped is not None
        popped.bury("as the test wants it")
    elif where == "unrouted":
        topology = client.topology
        bindings = f"bindings/%2F/e/{topology.ready_exchange}/q/{topology.ready_queue('sms')}"
        client.put("sms", delay=0)
        key = shared_broker.management.get(bindings)[0]["properties_key"]
        shared_broker.management.remove(f"{bindings}/{key}")
        client.put("sms")
    client.close()
    for option in ("--yes", "--dry-run"):
        told = rabbitdelay("topology", "remove", option)
        assert told.exit_code == 3
        assert f"1 {where}" in told.stderr
        assert "--force" in told.stderr
        assert made(namespace)
    assert f"queue {namespace}.v1.ready.mail\n" in told.stdout, "a dry run lists it all the same"
    assert "would remove" not in told.stdout
    told = rabbitdelay("topology", "remove", "--dry-run", "--force")
    assert (told.exit_code, told.stderr) == (0, "")
    assert told.stdout.splitlines()[-1].startswith(f"would remove namespace {namespace} (")
    told = rabbitdelay("topology", "remove", "--force", "--yes", "--json")
    assert told.exit_code == 0
    assert json.loads(told.stdout)["jobs"][where] == 1
    assert made(namespace) == []


def test_a_namespace_with_a_worker_is_not_removed(
    rabbitdelay: CommandLine, make_worker: WorkerFactory, namespace: str
) -> None:
    worker = make_worker()
    worker.handler("mail")(print)

    def told() -> str:
        return rabbitdelay("topology", "remove", "--dry-run").stderr

    with working(worker):
        wait_until(lambda: "1 consumer;" in told(), seconds=20)
    wait_until(lambda: told() == "", seconds=20)
    assert rabbitdelay("--namespace", namespace, "topology", "remove", "--yes").exit_code == 0


def test_remove_needs_the_management_api(rabbitdelay: CommandLine) -> None:
    assert rabbitdelay(*NO_MANAGEMENT, "topology", "remove", "--yes").exit_code == 4
