"""The broker that the suite shares: the one at a given URL, one in Docker, or a private node."""

import os
import shutil
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from urllib.error import URLError

import pytest

from rabbitdelay.private_broker import PrivateBroker
from rabbitdelay.private_broker.installation.configuration import dead_letter_retry_arguments
from rabbitdelay.private_broker.installation.installation import (
    HOW_TO_GET_RABBITMQ,
    ROOT_VARIABLE,
    find_installation,
)
from rabbitdelay.private_broker.node.docker import IMAGE, engine_answers, has_image
from tests.support.brokers.management import Management

URL_VARIABLE = "RABBITDELAY_TEST_URL"
_MEMORY = Path("/dev/shm")  # noqa: S108 - a file system
_MEMORY_BYTES = 4 * 1024**3


@dataclass(frozen=True, slots=True)
class SharedBroker:
    """A broker that many tests use."""

    url: str
    management: Management


def keep_files_in_memory() -> None:
    """Create temporary files, of brokers too, in memory where there is enough of it.

    Files in memory outlive `kill -9` of a broker as files on a disk do. Brokers that share a disk
    wait for each other's fsync: 70 tests of puts took 23 to 26 s with files in memory, and 26 to
    33 s without.
    """
    if _MEMORY.is_dir() and shutil.disk_usage(_MEMORY).free >= _MEMORY_BYTES:
        os.environ.setdefault("TMPDIR", str(_MEMORY))
        tempfile.tempdir = None  # look at TMPDIR again


def describe() -> str:
    """Return the broker and its version as one line for the report's header."""
    if url := os.environ.get(URL_VARIABLE):
        return f"RabbitMQ {_version_at(url)}, named by {URL_VARIABLE}"
    if _prefers_docker():
        return f"{IMAGE} in Docker"
    installation = find_installation()
    if installation is None:
        return "none"
    place = f"from {installation.root}" if installation.root else "of this machine"
    return f"RabbitMQ {installation.version} {place}, as a private node"


def require() -> None:
    """End the whole run if no broker is available and none can be started."""
    if not (os.environ.get(URL_VARIABLE) or _prefers_docker() or find_installation()):
        pytest.exit(HOW_TO_GET_RABBITMQ, returncode=1)


@contextmanager
def shared_broker() -> Iterator[SharedBroker]:
    """Yield the shared broker, started if necessary; without a broker the whole run ends."""
    require()
    if url := os.environ.get(URL_VARIABLE):
        yield SharedBroker(url, Management.beside(url))
    elif _prefers_docker():
        yield from _in_docker()
    else:
        yield from _private()


@cache
def _prefers_docker() -> bool:
    """Whether the shared broker runs in Docker: not if the engine cannot get the image."""
    if os.environ.get(ROOT_VARIABLE) or not engine_answers():
        return False
    return find_installation() is None or has_image()


def _private() -> Iterator[SharedBroker]:
    with PrivateBroker.temporary() as broker:
        yield SharedBroker(broker.url, Management(broker.management_url))


def _in_docker() -> Iterator[SharedBroker]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from testcontainers.core.config import testcontainers_config  # noqa: PLC0415 - slow, and
        from testcontainers.rabbitmq import RabbitMqContainer  # noqa: PLC0415 - warns
    # ryuk would be one more image to pull, and the block stops our container
    testcontainers_config.ryuk_disabled = True
    container = RabbitMqContainer(IMAGE).with_exposed_ports(5672, 15672)
    container.with_env("RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS", dead_letter_retry_arguments())
    with container:
        host = container.get_container_host_ip()
        url = f"amqp://guest:guest@{host}:{container.get_exposed_port(5672)}/"
        management = Management(f"http://{host}:{container.get_exposed_port(15672)}/")
        yield SharedBroker(url, management)


def _version_at(url: str) -> str:
    try:
        return str(Management.beside(url).get("overview")["rabbitmq_version"])
    except URLError:
        return "(version unknown: no management API)"
