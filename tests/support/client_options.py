"""Options of the clients and workers that fixtures create, for machines of any speed."""

from typing import Any

from tests.support.patience import patience

WORKER_OPTIONS: dict[str, Any] = {"stabilise_seconds": 0, "connect_timeout": patience(10)}
"""Options of a worker. It does not wait for new queues to stabilise, because only tests that kill a
broker need that."""
CLIENT_OPTIONS: dict[str, Any] = WORKER_OPTIONS | {"timeout": patience(20)}
"""Options of a client."""
