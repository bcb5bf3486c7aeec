"""`rabbitdelay topics`: the number of jobs of each topic, by state."""

import json

import pika
import pytest

from tests.acceptance.conftest import CommandLine
from tests.support.patience import wait_until

pytestmark = pytest.mark.usefixtures("nothing_set")

NO_MANAGEMENT = ("--management-url", "http://127.0.0.1:1")


def test_all_topics_are_listed(rabbitdelay: CommandLine) -> None:
    for topic in ("mail", "mail", "orderclose"):
        rabbitdelay("put", topic)
    lines = [line.split() for line in rabbitdelay("topics").stdout.splitlines()]
    assert lines[0] == ["topic", "ready", "reserved", "buried", "consumers"]
    assert [(line[0], line[1]) for line in lines[1:]] == [("mail", "2"), ("orderclose", "1")]


def test_reserved_and_buried_jobs_and_consumers_are_counted(
    rabbitdelay: CommandLine, broker_url: str, namespace: str
) -> None:
    for _ in range(3):
        rabbitdelay("put", "mail")
    with pika.BlockingConnection(pika.URLParameters(broker_url)) as connection:
        channel = connection.channel()
        method, _, _ = channel.basic_get(f"{namespace}.v1.ready.mail")
        assert method is not None
        channel.basic_nack(method.delivery_tag or 0, requeue=False)
        channel.basic_qos(prefetch_count=1)
        channel.basic_consume(f"{namespace}.v1.ready.mail", lambda *_: None)
        expected = {"topic": "mail", "ready": 1, "reserved": 1, "buried": 1, "consumers": 1}
        expected["paused"] = False
        # The management API counts reserved jobs every 5 s.
        wait_until(lambda: json.loads(rabbitdelay("topics", "--json").stdout) == [expected])


def test_named_topics_need_no_management_api(rabbitdelay: CommandLine) -> None:
    """The number of reserved jobs is then unknown, and shown as `?`."""
    rabbitdelay("put", "mail")
    result = rabbitdelay(*NO_MANAGEMENT, "topics", "mail")
    assert result.exit_code == 0
    assert result.stdout.splitlines()[1].split() == ["mail", "1", "?", "0", "0"]


@pytest.mark.usefixtures("existing_namespace")
def test_the_error_without_names_and_management_api_says_what_to_do(
    rabbitdelay: CommandLine,
) -> None:
    result = rabbitdelay(*NO_MANAGEMENT, "topics")
    assert result.exit_code == 4
    assert "rabbitmq-plugins enable rabbitmq_management" in result.stderr
    assert "name the topics" in result.stderr


def test_a_missing_topic_exits_with_3(rabbitdelay: CommandLine) -> None:
    rabbitdelay("put", "mail")
    result = rabbitdelay("topics", "mail", "nothing", "--json")
    assert result.exit_code == 3
    assert result.stderr == "no such topic: nothing\n"
    assert [topic["topic"] for topic in json.loads(result.stdout)] == ["mail"]


def test_nothing_is_printed_if_every_named_topic_is_missing(
    rabbitdelay: CommandLine,
) -> None:
    rabbitdelay("put", "mail")
    result = rabbitdelay("topics", "nothing")
    assert (result.exit_code, result.stdout) == (3, "")
    assert result.stderr == "no such topic: nothing\n"


def test_a_missing_ready_queue_is_shown(
    rabbitdelay: CommandLine, broker_url: str, namespace: str
) -> None:
    rabbitdelay("put", "mail")
    with pika.BlockingConnection(pika.URLParameters(broker_url)) as connection:
        connection.channel().queue_delete(f"{namespace}.v1.ready.mail")
    line = rabbitdelay("topics").stdout.splitlines()[1]
    assert line.split() == ["mail", "missing", "?", "0", "0"]


@pytest.mark.usefixtures("existing_namespace")
def test_an_empty_namespace_has_no_topics(rabbitdelay: CommandLine, namespace: str) -> None:
    assert rabbitdelay("topics").stdout == f"no topics in namespace {namespace}\n"
