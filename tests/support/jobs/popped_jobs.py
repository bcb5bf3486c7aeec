"""Popping jobs: one that must exist, a given number, or all."""

import time
from operator import attrgetter

from rabbitdelay import Client, ReservedJob
from tests.support.patience import patience


def pop(client: Client, topic: str = "t", wait: float = 10) -> ReservedJob:
    """Pop a job; fail if none arrives within `patience(wait)`."""
    job = client.pop(topic, wait=patience(wait))
    assert job is not None
    return job


def pops(client: Client, *topics: str, wait: float = 0) -> list[str]:
    """Pop and finish jobs until none arrives; return their ids."""
    ids: list[str] = []
    while (job := client.pop(topics or ("t",), wait=patience(wait))) is not None:
        job.finish()
        ids.append(job.id)
    return ids


def drained(client: Client, *topics: str) -> list[str]:
    """Pop and finish all jobs that are ready; return their ids in the order of their arrival.

    A last job is put into each topic, and the pops end when it arrives.
    """
    topics, ids = topics or ("t",), list[str]()
    last = {client.put(topic).id for topic in topics}
    while not last <= set(ids):
        (job,) = take(client, 1, *topics)
        job.finish()
        ids.append(job.id)
    return [one for one in ids if one not in last]


def withholds(client: Client, topic: str) -> bool:
    """Whether a pop of a topic with jobs and of another topic gets the other's job, put last."""
    last = client.put("other")
    (job,) = take(client, 1, topic, "other")
    job.finish()
    return job.id == last.id


def take(client: Client, count: int, *topics: str) -> list[ReservedJob]:
    """Pop `count` jobs, in several calls if necessary; return them ordered by id."""
    jobs: list[ReservedJob] = []
    deadline = time.monotonic() + patience(10)
    while len(jobs) < count:
        assert time.monotonic() < deadline, f"only {jobs} arrived"
        jobs += client.pop(topics or ("t",), max=count - len(jobs), wait=1)
    return sorted(jobs, key=attrgetter("id"))
