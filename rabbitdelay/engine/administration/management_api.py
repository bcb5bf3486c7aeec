"""The management API: lists the broker's objects, with arguments and bindings, over HTTP."""

import json
import ssl
from base64 import b64encode
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from http.client import HTTPException, HTTPResponse
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.parse import quote, unquote, urlencode, urlsplit, urlunsplit
from urllib.request import HTTPSHandler, ProxyHandler, Request, build_opener

from rabbitdelay.address import Address
from rabbitdelay.core.administration.definitions import Definitions
from rabbitdelay.core.topology.topology import VERSION
from rabbitdelay.errors import InvalidConfiguration, ManagementUnreachable
from rabbitdelay.system_time import unix_seconds

TIMEOUT_SECONDS = 5.0
PAGE_SIZE = 500
_QUEUE_COLUMNS = (
    *("name", "vhost", "type", "durable", "auto_delete", "arguments"),
    *("policy", "operator_policy", "effective_policy_definition"),
    *("members", "online", "node", "consumers"),
    *("messages_ready", "messages_unacknowledged", "messages_dlx"),
)
_DEFAULT_PORTS = {"amqp": ("http", 15672), "amqps": ("https", 15671)}


@dataclass(frozen=True, slots=True)
class ManagementAddress:
    """URL and credentials of the management API."""

    url: str
    """URL without user and password, with a trailing slash."""
    user: str
    password: str = field(repr=False)
    tls_context: ssl.SSLContext | None = field(default=None, repr=False)


def locate(given: str | None, addresses: Sequence[Address]) -> ManagementAddress:
    """Return the given address of the API, or the default port on the first address's host."""
    return _parse(given, addresses[0]) if given else _usual(addresses[0])


class ManagementApi:
    """Reads from the management API of one vhost."""

    def __init__(
        self, address: ManagementAddress, vhost: str, timeout_seconds: float = TIMEOUT_SECONDS
    ) -> None:
        self._address = address
        self._timeout_seconds = timeout_seconds
        self._vhost_name = vhost
        self._vhost = quote(vhost, safe="")
        # A broker is not behind the web proxy of the environment variables.
        self._opener = build_opener(ProxyHandler({}), HTTPSHandler(context=address.tls_context))

    def check(self) -> None:
        """Raise ManagementUnreachable unless the API answers this user."""
        self.get("overview")

    def get(self, path: str) -> Any:  # noqa: ANN401 - JSON is anything
        """Return the JSON response to a GET of a path below `api/`."""
        with self._open(path) as response:
            return json.load(response)

    def queues(self, prefix: str) -> list[dict[str, Any]]:
        """Return the queues with a name prefix: arguments, policies, members and counts.

        The counts are some seconds old.
        """
        return self._pages("queues", prefix, ",".join(_QUEUE_COLUMNS))

    def versioned_queues(self) -> list[dict[str, Any]]:
        """Return the queues of the vhost whose names look like those of a namespace."""
        columns = "name,consumers,messages_ready,messages_unacknowledged,messages_dlx"
        return self._pages("queues", "", columns, f".v{VERSION}.")

    def definitions(self, prefix: str) -> Definitions:
        """Return the exchanges, queues and bindings whose name or source has a prefix.

        The result includes all policies of the vhost, including those for other queues.
        """
        columns = "name,vhost,type,durable,auto_delete,internal,arguments,policy"
        bindings: list[dict[str, Any]] = self.get(f"bindings/{self._vhost}")
        return {
            "exchanges": self._pages("exchanges", prefix, columns),
            "queues": self.queues(prefix),
            "bindings": [item for item in bindings if item["source"].startswith(prefix)],
            "policies": self.get(f"policies/{self._vhost}"),
        }

    def nodes(self) -> list[dict[str, Any]]:
        """Return the nodes of the cluster and their alarms. Requires the monitoring tag."""
        columns = "name,running,mem_alarm,disk_free_alarm,partitions"
        nodes: list[dict[str, Any]] = self.get(f"nodes?columns={columns}")
        return nodes

    def feature_flags(self) -> list[dict[str, Any]]:
        """Return the feature flags and their states. Requires the administrator tag."""
        flags: list[dict[str, Any]] = self.get("feature-flags")
        return flags

    def clock_ahead_seconds(self) -> float:
        """Return the seconds by which this machine's clock is ahead of the broker's.

        Precise to about a second, because the `Date` header of a response has whole seconds.
        """
        before = unix_seconds()
        with self._open("whoami") as response:
            date = response.headers["Date"]
        now = (before + unix_seconds()) / 2
        if date is None:
            raise ManagementUnreachable(f"{self._address.url} does not send a Date header")
        return now - (parsedate_to_datetime(date).timestamp() + 0.5)

    def _pages(
        self, what: str, prefix: str, columns: str, containing: str | None = None
    ) -> list[dict[str, Any]]:
        items: list[dict[str, Any]] = []
        page, last_page = 0, 1
        while page < last_page:
            page += 1
            question: dict[str, Any] = {"page": page, "page_size": PAGE_SIZE, "columns": columns}
            question["name"] = containing or prefix
            answer = self.get(f"{what}/{self._vhost}?{urlencode(question)}")
            last_page = answer["page_count"]
            items += (item for item in answer["items"] if item["name"].startswith(prefix))
        return items

    @contextmanager
    def _open(self, path: str) -> Iterator[HTTPResponse]:
        try:
            with self._opener.open(self._request(path), timeout=self._timeout_seconds) as response:
                yield response
        except HTTPError as error:
            raise self._refusal(error) from None
        except (URLError, OSError, HTTPException, ValueError) as error:
            reason = getattr(error, "reason", error)
            raise ManagementUnreachable(
                f"no management API answers at {self._address.url} ({reason}): the broker may not "
                "be running, its plugin may be off "
                "(`rabbitmq-plugins enable rabbitmq_management`), or it is elsewhere "
                "(--management-url)"
            ) from None

    def _request(self, path: str) -> Request:
        credentials = f"{self._address.user}:{self._address.password}".encode()
        headers = {"Authorization": f"Basic {b64encode(credentials).decode()}"}
        return Request(f"{self._address.url}api/{path}", headers=headers)  # noqa: S310 - checked

    def _refusal(self, error: HTTPError) -> ManagementUnreachable:
        error.close()
        return ManagementUnreachable(
            f"the management API at {self._address.url} says {error.code} {error.reason}"
            f"{self._advice(error.code)}"
        )

    def _advice(self, status: int) -> str:
        user = self._address.user
        if status == HTTPStatus.UNAUTHORIZED:
            return (
                f" to user {user}: the user or the password is wrong, or the user may not enter "
                f"vhost {self._vhost_name}, or lacks the management tag "
                f"(`rabbitmqctl set_user_tags {user} management`)"
            )
        if status == HTTPStatus.NOT_FOUND:
            return f": there is no vhost {self._vhost_name}"
        return ""


def _parse(url: str, address: Address) -> ManagementAddress:
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise InvalidConfiguration("the management URL must begin with http:// or https://")
    host = parts.netloc.rpartition("@")[2]
    path = parts.path.removesuffix("/").removesuffix("/api")
    return ManagementAddress(
        urlunsplit((parts.scheme, host, f"{path}/", "", "")),
        unquote(parts.username or address.user),
        unquote(parts.password or address.password),
        address.tls_context(),
    )


def _usual(address: Address) -> ManagementAddress:
    scheme, port = _DEFAULT_PORTS[address.scheme]
    host = f"[{address.host}]" if ":" in address.host else address.host
    url = f"{scheme}://{host}:{port}/"
    return ManagementAddress(url, address.user, address.password, address.tls_context())
