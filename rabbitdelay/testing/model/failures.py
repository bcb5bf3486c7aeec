"""Errors of the broker, which close a channel or a connection."""


class ChannelError(Exception):
    """An error that closes the channel, with a reply code and text."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(f"{code} {text}")
        self.code = code
        self.text = text


class ConnectionFailure(ChannelError):
    """An error that closes the whole connection."""


class Unanswered(Exception):
    """Raised instead of an answer that never comes, because the leader of a queue is silent."""


def not_found(kind: str, name: str) -> ChannelError:
    """Return the error for a queue or an exchange that does not exist."""
    return ChannelError(404, f"NOT_FOUND - no {kind} '{name}' in vhost '/'")


def precondition_failed(text: str) -> ChannelError:
    """Return the error for a request that does not fit the state of the broker."""
    return ChannelError(406, f"PRECONDITION_FAILED - {text}")


def inequivalent(argument: str, kind: str, name: str, received: str, current: str) -> ChannelError:
    """Return the error for a declaration that differs from the existing object."""
    return precondition_failed(
        f"inequivalent arg '{argument}' for {kind} '{name}' in vhost '/': "
        f"received {received} but current is {current}"
    )
