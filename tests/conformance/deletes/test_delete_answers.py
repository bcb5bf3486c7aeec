"""Results of deletes and purges: the number recorded, or an error that names the ids."""

from collections.abc import Iterator

import pytest

from rabbitdelay import Client, OutcomeUnknown, TopologyMissing
from rabbitdelay.errors import DeleteManyFailed
from tests.conftest import ClientFactory
from tests.support.brokers.proxy import Proxy
from tests.support.fronts import Front


@pytest.fixture
def proxy(front: Front, broker_url: str) -> Iterator[Proxy]:
    with front.back_end.proxy(broker_url) as proxy:
        yield proxy


def test_a_delete_returns_the_number_of_recorded_ids(client: Client) -> None:
    """The number of jobs that exist under the id is unknown and does not count."""
    job = client.put("t", id="there", delay=60)
    assert client.delete("there") == client.delete(job) == client.delete("never put") == 1
    assert client.delete_many(["a", "b", job]) == 3
    assert client.delete_many([]) == 0


def test_a_purge_returns_the_number_of_jobs_removed_at_once(client: Client) -> None:
    client.put_many([])
    for delay in (0, 0, 60):
        client.put("t", delay=delay)
    assert client.purge("t") == 2


@pytest.mark.usefixtures("existing_namespace")
def test_a_delete_that_is_not_confirmed_names_its_id(
    make_client: ClientFactory, proxy: Proxy
) -> None:
    client = make_client(proxy.url)
    client.delete("first")  # creates the log
    proxy.silence()
    with pytest.raises(OutcomeUnknown, match=r"^delete of order-42 was not confirmed in time"):
        client.delete("order-42", timeout=0.5)
    with pytest.raises(DeleteManyFailed, match="delete of a and 1 more was not confirmed"):
        client.delete_many(["a", "b"], timeout=0.5)
    with pytest.raises(OutcomeUnknown, match=r"^purge of topic t was not confirmed in time"):
        client.purge("t", timeout=0.5)
    proxy.restore()


def test_a_delete_that_is_refused_names_its_id(make_client: ClientFactory) -> None:
    client = make_client(declare=False)
    with pytest.raises(TopologyMissing, match=r"^delete of order-42 failed: "):
        client.delete("order-42")
