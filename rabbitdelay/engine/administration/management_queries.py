"""Queries to the management API of a client's broker, as flows. HTTP runs on another thread."""

from collections.abc import Callable, Sequence
from typing import TypeVar

from rabbitdelay.address import Address
from rabbitdelay.core.administration import counts
from rabbitdelay.core.administration.counts import Listing
from rabbitdelay.core.administration.definitions import Definitions
from rabbitdelay.core.topology.topology import Topology
from rabbitdelay.engine.administration import management_api
from rabbitdelay.engine.administration.local_node import FindLocalNode
from rabbitdelay.engine.administration.management_api import ManagementApi
from rabbitdelay.engine.background import in_background
from rabbitdelay.engine.client_settings import ClientSettings
from rabbitdelay.engine.flow import Awaited, Flow, Wait

Result = TypeVar("Result")


class ManagementQueries:
    """Runs queries. Each one locates the API, because a local broker may start at any time."""

    def __init__(
        self,
        addresses: Sequence[Address],
        settings: ClientSettings,
        find_local_node: FindLocalNode,
    ) -> None:
        self._url = settings.management_url
        self._addresses = addresses
        self._find_local_node = find_local_node
        self._timeout = min(management_api.TIMEOUT_SECONDS, settings.timeout)

    def ask(self, query: Callable[[ManagementApi], Result]) -> Flow[Result]:
        """Run a query.

        Raises:
            ManagementUnreachable: The API does not answer, or refuses this user.
        """
        result: Result = yield Wait(
            in_background(lambda: query(self._locate())), awaited=Awaited.MACHINE
        )
        return result

    def listing(self, topology: Topology) -> Flow[Listing]:
        """Return the topics and hold queues of a namespace, with the counts only the API has."""
        rows = yield from self.ask(lambda api: api.queues(topology.prefix))
        return counts.read_listing(topology, rows)

    def definitions(self, topology: Topology) -> Flow[Definitions]:
        """Return every exchange, queue and binding of a namespace, and the vhost's policies."""
        return self.ask(lambda api: api.definitions(f"{topology.namespace}."))

    def _locate(self) -> ManagementApi:
        address = management_api.locate(self._url or self._local_url(), self._addresses)
        return ManagementApi(address, self._addresses[0].vhost, self._timeout)

    def _local_url(self) -> str | None:
        node = self._find_local_node(self._addresses)
        return None if node is None else node.management_url
