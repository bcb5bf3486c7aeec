"""`rabbitdelay unrouted`: listing, retrying and dropping jobs."""

import json
from collections.abc import Callable

import pika
import pytest

from tests.acceptance.conftest import CommandLine
from tests.support.brokers.receiver import Receiver
from tests.support.patience import wait_until

pytestmark = pytest.mark.usefixtures("nothing_set")

Park = Callable[..., None]


@pytest.fixture
def park(rabbitdelay: CommandLine, broker_url: str, namespace: str) -> Park:
    """Put jobs, delete their topic before they are due, and wait until they are parked."""

    def run(topic: str, *ids: str) -> None:
        before = _total(rabbitdelay)
        lines = [
            json.dumps({"topic": topic, "id": name, "body": {"id": name}, "delay": "2s"})
            for name in ids
        ]
        rabbitdelay("put", "--file", "-", input="\n".join(lines))
        with pika.BlockingConnection(pika.URLParameters(broker_url)) as connection:
            connection.channel().queue_delete(f"{namespace}.v1.ready.{topic}")
        wait_until(lambda: _total(rabbitdelay) == before + len(ids))

    return run


def test_list_shows_jobs_and_reasons_and_removes_nothing(
    rabbitdelay: CommandLine, park: Park
) -> None:
    park("gone", "a")
    for _ in range(2):
        lines = rabbitdelay("unrouted", "list").stdout.splitlines()
        assert lines[0].split() == ["id", "topic", "due", "why", "body"]
        assert lines[1].split()[:2] == ["a", "gone"]
        assert "no ready queue" in lines[1]
        assert '{"id":"a"}' in lines[1]
        assert lines[-1] == "1 of 1 unrouted job"
        assert all(line == line.rstrip() for line in lines)


def test_list_prints_json(rabbitdelay: CommandLine, park: Park) -> None:
    park("gone", "a", "b", "c")
    listed = json.loads(rabbitdelay("unrouted", "list", "--limit", "2", "--json").stdout)
    assert listed["total"] == 3
    assert [job["topic"] for job in listed["jobs"]] == ["gone", "gone"]
    assert listed["jobs"][0]["routing_key"] == "0.0.0.0.0.2.0.0.gone"


def test_retry_delivers_jobs_with_their_body_and_id(
    rabbitdelay: CommandLine, park: Park, broker_url: str, namespace: str
) -> None:
    park("gone", "a", "b")
    result = rabbitdelay("unrouted", "retry")
    assert (result.exit_code, result.stdout) == (0, "2 jobs sent on, 0 stay\n")
    with Receiver(broker_url, f"{namespace}.v1.ready.gone") as receiver:
        receiver.wait_for("a", "b")
    assert {one.id: json.loads(one.body) for one in receiver.messages} == {
        "a": {"id": "a"},
        "b": {"id": "b"},
    }
    assert _total(rabbitdelay) == 0


def test_control_characters_in_a_body_do_not_reach_the_terminal(
    rabbitdelay: CommandLine, broker_url: str, namespace: str
) -> None:
    rabbitdelay("topology", "apply")
    with pika.BlockingConnection(pika.URLParameters(broker_url)) as connection:
        connection.channel().basic_publish(f"{namespace}.v1.ready", "strange", b"\x1b[31m[red]")
    wait_until(lambda: _total(rabbitdelay) == 1)
    assert "·[31m[red]" in rabbitdelay("unrouted", "list").stdout


def test_retry_reports_messages_that_stay(
    rabbitdelay: CommandLine, broker_url: str, namespace: str
) -> None:
    rabbitdelay("topology", "apply")
    with pika.BlockingConnection(pika.URLParameters(broker_url)) as connection:
        connection.channel().basic_publish(f"{namespace}.v1.ready", "strange", b"?")
    wait_until(lambda: _total(rabbitdelay) == 1)
    result = rabbitdelay("unrouted", "retry", "--json")
    assert result.exit_code == 3
    assert json.loads(result.stdout) == {"sent": 0, "stayed": 1}
    assert result.stderr == "stays: without an id: not a routing key of ours\n"


def test_drop_asks_for_confirmation(rabbitdelay: CommandLine, park: Park) -> None:
    park("gone", "a", "b")
    refused = rabbitdelay("unrouted", "drop", "--all", input="n\n")
    assert (refused.exit_code, refused.stdout) == (3, "0 jobs dropped\n")
    assert "Drop 2 jobs for good?" in refused.stderr
    agreed = rabbitdelay("unrouted", "drop", "--topic", "gone", input="y\n")
    assert (agreed.exit_code, agreed.stdout) == (0, "2 jobs dropped\n")
    assert _total(rabbitdelay) == 0


def test_drop_without_a_terminal_to_ask_on_exits_with_2(
    rabbitdelay: CommandLine, park: Park
) -> None:
    park("gone", "a")
    result = rabbitdelay("unrouted", "drop", "--all", input="")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "Drop 1 job for good?" in result.stderr
    assert "use --yes" in result.stderr
    assert _total(rabbitdelay) == 1


def test_a_single_job_is_counted_in_the_singular(rabbitdelay: CommandLine, park: Park) -> None:
    park("gone", "a")
    assert rabbitdelay("unrouted", "retry").stdout == "1 job sent on, 0 stay\n"


def test_drop_of_one_id_without_asking(rabbitdelay: CommandLine, park: Park) -> None:
    park("gone", "a", "b")
    assert rabbitdelay("unrouted", "drop", "--id", "a", "--yes").exit_code == 0
    listed = json.loads(rabbitdelay("unrouted", "list", "--json").stdout)
    assert [job["id"] for job in listed["jobs"]] == ["b"]


def test_an_empty_queue_exits_with_3(rabbitdelay: CommandLine) -> None:
    rabbitdelay("topology", "apply")
    assert rabbitdelay("unrouted", "list").stdout == "0 of 0 unrouted jobs\n"
    assert rabbitdelay("unrouted", "list", "--id", "a").exit_code == 3
    assert rabbitdelay("unrouted", "retry").exit_code == 3
    assert rabbitdelay("unrouted", "drop", "--all").exit_code == 3


def test_a_missing_namespace_exits_with_1(rabbitdelay: CommandLine) -> None:
    result = rabbitdelay("unrouted", "list")
    assert result.exit_code == 1
    assert "there is no namespace" in result.stderr


def _total(rabbitdelay: CommandLine) -> int:
    result = rabbitdelay("unrouted", "list", "--json")
    return int(json.loads(result.stdout)["total"]) if result.exit_code == 0 else 0
