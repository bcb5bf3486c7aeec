"""Prefetched jobs are kept by topic and in order; suspects are kept apart."""

from rabbitdelay.core.consume.leases import Lease
from rabbitdelay.core.jobs.envelope import Message
from rabbitdelay.engine.dispatch.prefetched import Prefetched
from rabbitdelay.models import Job


def lease(id: str, topic: str = "t", redeliveries: int = 0) -> Lease:
    job = Job(topic, id, "token", 0, 0, 1000, b"")
    return Lease(job, Message(b"", {}), 1, 1, redeliveries=redeliveries)


def test_jobs_of_a_topic_are_taken_in_order() -> None:
    prefetched = Prefetched(["t", "u"])
    first, second, other = lease("a"), lease("b"), lease("c", "u")
    for one in (first, other, second):
        prefetched.add(one, 0.0)
    assert ("t" in prefetched, "u" in prefetched, prefetched.count) == (True, True, 3)
    assert [prefetched.take("t"), prefetched.take("t")] == [first, second]
    assert ("t" in prefetched, prefetched.count) == (False, 1)


def test_a_job_that_is_put_back_is_the_next() -> None:
    prefetched = Prefetched(["t"])
    first, second = lease("a"), lease("b")
    prefetched.add(first, 0.0)
    prefetched.add(second, 0.0)
    prefetched.put_back(prefetched.take("t"), 1.0)
    assert prefetched.take("t") is first


def test_suspects_are_not_among_the_jobs_of_their_topic() -> None:
    prefetched = Prefetched(["t"])
    suspect = lease("a", redeliveries=2)
    prefetched.add(suspect, 1.0)
    prefetched.add(lease("b", redeliveries=3), 2.0)
    assert ("t" in prefetched, prefetched.count, prefetched.suspects_since) == (False, 2, 1.0)
    taken = prefetched.take_suspect(3.0)
    assert prefetched.suspects_since == 3.0, "the other one has waited since the last start"
    prefetched.take_suspect(4.0)
    assert prefetched.suspects_since is None
    prefetched.put_back(taken, 5.0)
    assert (prefetched.count, prefetched.suspects_since) == (1, 5.0)


def test_the_jobs_of_one_topic_are_forgotten_with_its_suspects() -> None:
    prefetched = Prefetched(["t", "u"])
    ours = [lease("a"), lease("b", redeliveries=2)]
    theirs = [lease("c", "u"), lease("d", "u", redeliveries=2)]
    for one in (*ours, *theirs):
        prefetched.add(one, 1.0)
    assert prefetched.take_of("t") == ours
    assert (prefetched.count, prefetched.suspects_since) == (2, 1.0)
    assert prefetched.take_all() == theirs
    assert (prefetched.count, prefetched.suspects_since) == (0, None)
