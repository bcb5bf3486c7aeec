"""Pop a job that a test expects to be there."""

from rabbitdelay import Client, ReservedJob
from tests.support.patience import patience


def pop(client: Client, topic: str = "t", wait: float = 10) -> ReservedJob:
    """Pop a job; fail if none arrives within `patience(wait)`."""
    job = client.pop(topic, wait=patience(wait))
    assert job is not None
    return job
