"""Popping a job that must be there."""

from rabbitdelay import Client, ReservedJob


def pop(client: Client, topic: str = "t", wait: float = 10) -> ReservedJob:
    """Pop a job, which must come within the time."""
    job = client.pop(topic, wait=wait)
    assert job is not None
    return job
