"""`rabbitdelay purge`, `pause`, `resume` and `tombstones`: operations on whole topics."""

import json
from datetime import UTC, datetime, timedelta

import pika
import pytest

from rabbitdelay import Client
from tests.acceptance.conftest import CommandLine
from tests.support.patience import wait_until

pytestmark = pytest.mark.usefixtures("nothing_set")


def test_purge_asks_first(rabbitdelay: CommandLine) -> None:
    rabbitdelay("put", "mail")
    refused = rabbitdelay("purge", "mail", input="n\n")
    assert (refused.exit_code, refused.stdout) == (3, "")
    assert "Purge mail: 1 ready, 0 buried, all delayed, for good?" in refused.stderr
    assert refused.stderr.endswith("nothing was purged\n")
    refused = rabbitdelay("purge", "mail", input="")
    assert (refused.exit_code, refused.stdout) == (2, "")
    agreed = rabbitdelay("purge", "mail", input="y\n")
    now, later = "1 ready or buried job removed now", "delayed jobs are dropped when they are due"
    assert (agreed.exit_code, agreed.stdout) == (0, f"purge of mail recorded: {now}, {later}\n")
    assert rabbitdelay("pop", "mail").exit_code == 3


def test_purge_drops_delayed_jobs_when_they_are_due(rabbitdelay: CommandLine) -> None:
    rabbitdelay("put", "mail", "old", "--delay", "3s")
    rabbitdelay("put", "other", "its")
    purged = rabbitdelay("purge", "mail", "--yes", "--json")
    assert json.loads(purged.stdout) == {"topic": "mail", "recorded": True, "gone": 0}
    rabbitdelay("put", "mail", "new")
    ready = '"ready": 2'
    wait_until(
        lambda: ready in rabbitdelay("topics", "mail", "--json").stdout, what="both jobs are ready"
    )
    popped = rabbitdelay("pop", "mail", "other", "--max", "9").stdout.split()
    assert sorted(popped) == ["its", "new"]


@pytest.mark.usefixtures("existing_namespace")
def test_purge_of_an_unknown_topic_exits_with_3(rabbitdelay: CommandLine) -> None:
    result = rabbitdelay("purge", "nothing", "--yes")
    assert (result.exit_code, result.stderr) == (3, "no such topic: nothing\n")


def test_no_job_of_a_paused_topic_is_handed_out(rabbitdelay: CommandLine) -> None:
    for topic in ("mail", "other"):
        rabbitdelay("put", topic, topic)
    assert rabbitdelay("pause", "mail", "other").stdout == "paused mail, other\n"
    assert rabbitdelay("pop", "mail", "other").exit_code == 3
    resumed = rabbitdelay("resume", "mail", "--json")
    assert json.loads(resumed.stdout) == {"resumed": ["mail"]}
    assert rabbitdelay("pop", "mail", "other", "--max", "9").stdout == "mail\n"


def test_an_unknown_topic_is_paused_with_a_note(rabbitdelay: CommandLine) -> None:
    rabbitdelay("put", "mail")
    result = rabbitdelay("pause", "mail", "mial", "--json")
    assert result.exit_code == 0
    assert json.loads(result.stdout) == {"paused": ["mail", "mial"]}
    assert result.stderr == "note: nothing was ever put to mial\n"


def test_topics_and_stats_show_paused_topics(rabbitdelay: CommandLine) -> None:
    for topic in ("mail", "other"):
        rabbitdelay("put", topic)
    rabbitdelay("pause", "mail")
    for command in ("topics", "stats"):
        lines = [line.split() for line in rabbitdelay(command).stdout.splitlines()[:3]]
        assert lines[0] == ["topic", "ready", "reserved", "buried", "consumers", "state"]
        assert [(line[0], line[-1]) for line in lines[1:]] == [("mail", "paused"), ("other", "0")]
    told = json.loads(rabbitdelay("stats", "mail", "other", "--json").stdout)
    assert [topic["paused"] for topic in told["topics"]] == [True, False]


def test_a_log_that_cannot_be_read_is_reported(
    rabbitdelay: CommandLine, broker_url: str, namespace: str
) -> None:
    """The counts are shown all the same, but the paused topics are unknown."""
    rabbitdelay("put", "mail")
    with pika.BlockingConnection(pika.URLParameters(broker_url)) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        channel.basic_publish(f"{namespace}.tombstones", "", b'{"version": 99}')
    result = rabbitdelay("topics", "--json")
    assert result.exit_code == 0
    assert [topic["paused"] for topic in json.loads(result.stdout)] == [None]
    assert result.stderr.startswith("note: paused topics are unknown: ")
    assert "paused topics are unknown: " in rabbitdelay("stats").stdout
    failed = rabbitdelay("tombstones")
    assert (failed.exit_code, failed.stdout) == (1, "")
    assert failed.stderr.startswith("error: ")
    listed = rabbitdelay("buried", "list", "mail")
    assert listed.exit_code == 0
    assert listed.stderr.startswith("note: deleted jobs may be among them: ")
    assert rabbitdelay("buried", "kick", "mail", "--all").exit_code == 1


def test_read_only_commands_create_nothing(
    rabbitdelay: CommandLine, broker_url: str, namespace: str
) -> None:
    """A missing namespace stays missing, and so does a missing log."""
    for command in ("topics", "stats", "tombstones"):
        assert rabbitdelay(command).exit_code == 1
    with pika.BlockingConnection(pika.URLParameters(broker_url)) as connection:
        connection.channel().exchange_declare(f"{namespace}.v1.unrouted", "fanout", durable=True)
    for command in ("topics", "stats", "tombstones"):
        assert rabbitdelay(command).exit_code == 0
    with pika.BlockingConnection(pika.URLParameters(broker_url)) as connection:
        channel = connection.channel()
        with pytest.raises(pika.exceptions.ChannelClosedByBroker, match="NOT_FOUND"):
            channel.queue_declare(f"{namespace}.tombstones", passive=True)


# tombstones


@pytest.mark.usefixtures("existing_namespace")
def test_tombstones_shows_counts_and_paused_topics(
    rabbitdelay: CommandLine, broker_url: str, namespace: str
) -> None:
    with Client(broker_url, namespace=namespace, stabilise_seconds=0) as client:
        client.delete_many(f"id-{number}" for number in range(1_500))
        client.pause("mail")
    told = json.loads(rabbitdelay("tombstones", "--json").stdout)
    assert told["count"] == 1_500
    assert told["memory_bytes"] > 1_500 * 10
    age = datetime.now(UTC) - datetime.fromisoformat(told["oldest"])
    assert timedelta() < age < timedelta(minutes=1)
    assert (told["snapshot"], told["paused"]) == (None, ["mail"])
    lines = dict(line.split("  ", 1) for line in rabbitdelay("tombstones").stdout.splitlines())
    assert lines["tombstones"].strip() == "1,500"
    assert lines["oldest delete"].endswith(" ago)")
    assert lines["paused topics"] == "mail"


@pytest.mark.usefixtures("existing_namespace")
def test_tombstones_of_an_empty_log_are_zero(rabbitdelay: CommandLine) -> None:
    told = json.loads(rabbitdelay("tombstones", "--json").stdout)
    assert (told["count"], told["oldest"], told["paused"]) == (0, None, [])


@pytest.mark.usefixtures("existing_namespace")
def test_tombstones_says_that_it_reads_a_long_log(
    rabbitdelay: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    rabbitdelay("delete", "a")
    monkeypatch.setattr("rabbitdelay.cli.deletes.LOOK_SECONDS", 0.0)
    monkeypatch.setattr("rabbitdelay.cli.deletes.QUIET_SECONDS", 0.0)
    result = rabbitdelay("tombstones")
    assert result.exit_code == 0
    assert result.stderr.startswith("reading the log of deletes, ")
    assert len(result.stderr.splitlines()) == 1
