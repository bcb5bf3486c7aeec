"""The connections of clients and workers, for tests that cut them."""

import socket
from functools import partial

from rabbitdelay import Client, Worker
from rabbitdelay.aio.driver.frame_reader import FrameTransport
from rabbitdelay.engine.connection import Connector
from rabbitdelay.engine.delete_log.reader import LogReader
from rabbitdelay.engine.dispatch.dispatcher import Dispatcher
from rabbitdelay.engine.pop.popper import Popper
from rabbitdelay.engine.publish.publisher import Publisher
from rabbitdelay.testing.driver.connection import MemoryConnection
from tests.support.patience import wait_until


def cut(connector: Connector) -> bool:
    """Shut down the socket of a connection; return whether it had a connected one."""
    if isinstance(connector.connection, MemoryConnection):
        connector.connection.cut()
        return True
    transport = getattr(connector.connection, "_transport", None)
    sock = getattr(transport, "_sock", None)  # pika's
    if isinstance(transport, FrameTransport) and transport.writer is not None:
        sock = transport.writer.get_extra_info("socket")
    if sock is None:
        return False
    try:
        sock.shutdown(socket.SHUT_RDWR)
    except OSError:
        return False  # not connected yet, or already cut
    return True


def publisher_of(client: Client) -> Publisher:
    """Return the connected publisher of a client."""
    publisher = client._engine.connections.ready_publisher()
    assert publisher is not None
    return publisher


def publisher_connector(client: Client) -> Connector:
    """Return the connection on which a client puts."""
    return publisher_of(client)._connector


def cut_pops(client: Client) -> None:
    """Cut the connection with the leases of the jobs that a client popped."""
    wait_until(partial(cut, popper_of(client).consumer._connector))


def popper_of(client: Client) -> Popper:
    """Return the popper of a client that has popped before."""
    assert client._engine.connections._sides.opened is not None
    return client._engine.connections._sides.opened.popper


def dispatcher_of(worker: Worker) -> Dispatcher:
    """Return the dispatcher of a running worker: what it holds, and what it knows of deletes."""
    assert worker._dispatcher is not None
    return worker._dispatcher


def worker_connector(worker: Worker) -> Connector:
    """Return the connection with the leases of a worker."""
    return dispatcher_of(worker).consumer._connector


def cut_worker(worker: Worker) -> None:
    """Cut the connection with the leases of a worker."""
    wait_until(partial(cut, worker_connector(worker)))


def log_reader_of(worker: Worker) -> LogReader:
    """Return the reader of the log of deletes of a running worker."""
    return dispatcher_of(worker).log_reader
