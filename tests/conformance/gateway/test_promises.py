"""The promises of the client, kept over HTTP as well."""

import threading
import time
from datetime import UTC, datetime, timedelta

import pytest

from rabbitdelay import Client, InvalidJob, JobSpec, LeaseLost
from tests.support.jobs.popped_jobs import pop
from tests.support.patience import patience, wait_until

TTR_SECONDS = 1.0


def is_empty(client: Client, topic: str = "t", wait: float = 0.5) -> bool:
    """Whether no job of a topic becomes ready for a while."""
    return client.pop(topic, wait=wait) is None


# Put


def test_a_job_arrives_with_its_properties(client: Client) -> None:
    put = client.put("t", {"order": 42}, ttr=30, id="close-42", headers={"tenant": "a"})
    job = pop(client)
    assert (job.id, job.topic, job.body, job.attempt) == ("close-42", "t", {"order": 42}, 1)
    assert (job.ttr, job.headers) == (timedelta(seconds=30), {"tenant": "a"})
    assert abs(job.due - put.due) < timedelta(milliseconds=1)
    assert 0 < job.time_left <= 30
    job.finish()
    assert is_empty(client)


@pytest.mark.parametrize(
    "body",
    [
        None,
        0,
        "text, also ünïcode 🐇",
        [],
        {"a": {"b": [1, 2.5, None, True]}},
        9_007_199_254_740_993,
        -(1 << 63),
        {"": 'quotes " and \\ and \x07'},
    ],
)
def test_a_body_arrives_as_it_was_put(client: Client, body: object) -> None:
    client.put("t", body)
    job = pop(client)
    assert job.body == body
    job.finish()


@pytest.mark.parametrize("delay", [0.3, timedelta(milliseconds=300)])
def test_a_delayed_job_is_never_early(client: Client, delay: float | timedelta) -> None:
    began = time.monotonic()
    client.put("t", delay=delay)
    job = pop(client)
    assert time.monotonic() - began >= 0.3
    job.finish()


def test_a_job_is_put_for_a_time(client: Client) -> None:
    due = datetime.now(UTC) + timedelta(seconds=0.5)
    client.put("t", "later", at=due)
    client.put("t", "now", at=due - timedelta(days=1))
    first, second = pop(client), pop(client)
    assert (first.body, second.body) == ("now", "later")
    assert datetime.now(UTC) >= due
    first.finish()
    second.finish()


def test_many_jobs_are_put_at_once(client: Client) -> None:
    assert client.put_many(JobSpec("t", n) for n in range(50)) == 50
    bodies = list[int]()
    while len(bodies) < 50:
        job = pop(client)
        bodies.append(job.body)
        job.finish()
    assert sorted(bodies) == list(range(50))
    assert is_empty(client)


def test_topics_do_not_get_each_others_jobs(client: Client) -> None:
    client.put("a.b", 1)
    client.put("b", 2)
    for topic, body in (("b", 2), ("a.b", 1)):
        job = pop(client, topic)
        assert job.body == body
        job.finish()
    assert is_empty(client, "a.b")


def test_replace_leaves_only_the_newest_job(client: Client) -> None:
    client.put("t", 1, id="x")
    client.replace("t", 2, id="x", delay=0.2)
    client.replace("t", 3, id="x", delay=0.4)
    job = pop(client)
    assert job.body == 3
    job.finish()
    assert is_empty(client)


@pytest.mark.parametrize(
    ("topic", "options"),
    [
        ("no spaces", {}),
        ("", {}),
        ("t", {"ttr": 0.5}),
        ("t", {"ttr": 100_000}),
        ("t", {"delay": 1e12}),
        ("t", {"id": ""}),
        ("t", {"id": "x" * 201}),
        ("t", {"max_attempts": 0}),
    ],
)
def test_an_invalid_job_is_refused(client: Client, topic: str, options: dict[str, object]) -> None:
    with pytest.raises(InvalidJob):
        client.put(topic, **options)  # type: ignore[arg-type]


# Pop


def test_a_pop_of_several_topics_gets_jobs_of_each(client: Client) -> None:
    for topic in ("a", "b"):
        client.put(topic, topic)
    found = {pop(client, ["a", "b", "c"]).body for _ in range(2)}  # type: ignore[arg-type]
    assert found == {"a", "b"}


def test_a_pop_returns_several_jobs(client: Client) -> None:
    for n in range(5):
        client.put("t", n)
    found = client.pop("t", max=3, wait=patience(5))
    rest = [pop(client) for _ in range(5 - len(found))]
    assert sorted(job.body for job in (*found, *rest)) == list(range(5))
    for job in (*found, *rest):
        job.finish()


def test_a_waiting_pop_gets_a_job_that_is_put_later(client: Client) -> None:
    """Also the first job of a topic and of a namespace."""
    timer = threading.Timer(0.3, client.put, ["t", "later"])
    timer.start()
    job = pop(client)
    assert job.body == "later"
    job.finish()
    timer.join()


def test_a_pop_without_a_job_waits_for_its_time(client: Client) -> None:
    client.put("other")
    began = time.monotonic()
    assert client.pop("t", wait=0.5) is None
    assert 0.4 < time.monotonic() - began < patience(5)


# The ttr and the attempts


def test_a_job_that_is_not_settled_within_its_ttr_is_handed_out_again(client: Client) -> None:
    client.put("t", ttr=TTR_SECONDS)
    first = pop(client)
    second = pop(client)
    assert (second.id, second.attempt) == (first.id, 2)
    for settle in (first.finish, first.release, first.touch):
        with pytest.raises(LeaseLost):
            settle()
    second.finish()
    assert is_empty(client)


def test_touch_restarts_the_ttr(client: Client) -> None:
    client.put("t", ttr=TTR_SECONDS)
    job = pop(client)
    began = time.monotonic()
    while time.monotonic() - began < 2 * TTR_SECONDS:
        job.touch()
        assert client.pop("t", wait=TTR_SECONDS / 4) is None
    job.finish()
    assert is_empty(client, wait=1.5 * TTR_SECONDS)


def test_a_released_job_comes_back_with_its_next_attempt(client: Client) -> None:
    client.put("t", "again")
    for attempt in (1, 2, 3):
        job = pop(client)
        assert (job.body, job.attempt) == ("again", attempt)
        job.release(0)
    pop(client).finish()


def test_a_job_is_released_with_a_delay(client: Client) -> None:
    client.put("t")
    first = pop(client)
    began = time.monotonic()
    first.release(0.5)
    pop(client).finish()
    assert time.monotonic() - began >= 0.5


def test_a_job_without_attempts_left_is_buried(client: Client) -> None:
    client.put("t", max_attempts=2)
    for _ in range(2):
        pop(client).release(0)
    wait_until(lambda: client.buried("t").count() == 1)
    assert is_empty(client)


def test_a_finished_job_cannot_be_settled_again(client: Client) -> None:
    client.put("t")
    job = pop(client)
    job.finish()
    for settle in (job.finish, job.release, job.touch):
        with pytest.raises(LeaseLost):
            settle()


# Bury and kick


def test_a_buried_job_is_kept_with_its_reason_until_it_is_kicked(client: Client) -> None:
    client.put("t", "wrong", id="x")
    pop(client).release(0)
    pop(client).bury("no such address")
    (buried,) = client.buried("t").list()
    assert (buried.id, buried.reason, buried.attempt) == ("x", "no such address", 2)
    assert is_empty(client)
    client.buried("t").kick()
    job = pop(client)
    assert (job.id, job.body, job.attempt) == ("x", "wrong", 1)
    job.finish()
    assert client.buried("t").count() == 0


def test_a_single_buried_job_is_kicked_or_dropped(client: Client) -> None:
    for name in ("a", "b", "c"):
        client.put("t", id=name)
        pop(client).bury("no")
    client.buried("t").kick(id="b")
    job = pop(client)
    assert job.id == "b"
    job.finish()
    assert client.buried("t").drop(id="a") == 1
    assert [one.id for one in client.buried("t").list()] == ["c"]


# Delete, in every state


def test_a_delayed_job_is_deleted(client: Client) -> None:
    client.put("t", delay=0.3, id="dies")
    client.put("t", delay=0.3, id="lives")
    client.delete("dies")
    job = pop(client)
    assert job.id == "lives"
    job.finish()
    assert is_empty(client)


def test_a_ready_job_is_deleted(client: Client) -> None:
    client.put("t", id="dies")
    client.put("t", id="lives")
    client.delete("dies")
    job = pop(client)
    assert job.id == "lives"
    job.finish()
    assert is_empty(client)


def test_a_reserved_job_that_is_deleted_does_not_come_back(client: Client) -> None:
    client.put("t", id="x")
    job = pop(client)
    client.delete("x")
    job.release(0)
    assert is_empty(client)


def test_a_job_that_waits_for_its_retry_is_deleted(client: Client) -> None:
    client.put("t", id="x")
    pop(client).release(0.3)
    client.delete("x")
    assert is_empty(client)


def test_a_buried_job_that_is_deleted_cannot_be_kicked(client: Client) -> None:
    client.put("t", id="x")
    pop(client).bury("no")
    client.delete("x")
    client.buried("t").kick()
    assert is_empty(client)
    assert client.buried("t").count() == 0


def test_deleting_a_finished_unknown_or_deleted_job_is_not_an_error(client: Client) -> None:
    client.put("t", id="x")
    pop(client).finish()
    for _ in range(2):
        client.delete("x")
    client.delete("unknown")


def test_the_id_of_a_deleted_job_may_be_used_again(client: Client) -> None:
    client.put("t", 1, id="x", delay=0.2)
    client.delete("x")
    client.put("t", 2, id="x", delay=0.2)
    job = pop(client)
    assert job.body == 2
    job.finish()
    assert is_empty(client)


def test_ids_may_have_any_characters(client: Client) -> None:
    for name in ("a/b?c=d#e", "ünïcode 🐇", "..", "%2e%2e", '"', " "):
        client.put("t", name, id=name, delay=0.1)
        client.delete(name)
        client.put("t", name, id=name)
        job = pop(client)
        assert job.id == name
        job.finish()
    assert is_empty(client)


def test_many_jobs_are_deleted_at_once(client: Client) -> None:
    ids = [client.put("t", n, delay=0.5).id for n in range(20)]
    assert client.delete_many(ids[:19]) == 19
    job = pop(client)
    assert job.id == ids[19]
    job.finish()
    assert is_empty(client)


# Topics


def test_no_job_of_a_paused_topic_is_handed_out(client: Client) -> None:
    client.put("t")
    client.pause("t")
    assert is_empty(client)
    assert client.count("t").ready == 1  # type: ignore[union-attr]
    timer = threading.Timer(0.3, client.resume, ["t"])
    timer.start()
    pop(client).finish()
    timer.join()


def test_a_job_that_is_held_is_settled_although_its_topic_is_paused(client: Client) -> None:
    client.put("t")
    job = pop(client)
    client.pause("t")
    job.finish()
    client.resume("t")
    assert is_empty(client)


def test_a_purge_deletes_all_jobs_of_a_topic(client: Client) -> None:
    client.put("t")
    pop(client).bury("no")
    client.put("t", delay=0.3)
    client.put("t")
    client.put("u", "other")
    assert client.purge("t") == 2
    client.put("t", "after")
    job = pop(client)
    assert job.body == "after"
    job.finish()
    assert is_empty(client)
    assert client.buried("t").count() == 0
    pop(client, "u").finish()
