"""Checks from outside whether a fault has the intended effect on a broker."""

import socket
from contextlib import suppress
from urllib.parse import urlsplit

GREETING = b"AMQP\x00\x00\x09\x01"
ANSWER_SECONDS = 1.0


def answers(url: str) -> bool:
    """Whether a broker answers the AMQP greeting at this URL within a second."""
    target = urlsplit(url)
    with suppress(OSError):
        address = (target.hostname, target.port)
        with socket.create_connection(address, timeout=ANSWER_SECONDS) as connection:
            connection.sendall(GREETING)
            return connection.recv(1) != b""
    return False
