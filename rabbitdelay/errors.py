"""The whole tree of errors.

::

    RabbitDelayError
    ├── InvalidJob              a put refused before anything was sent: a bad argument
    ├── NotAJob                 a message in a topic's queue that cannot be understood
    ├── InvalidConfiguration    a bad URL, namespace or option
    ├── ConnectionFailed        no connection to the broker
    │   ├── BrokerUnreachable       nobody answers there
    │   ├── LoginRefused            wrong user or password
    │   ├── VhostRefused            the vhost is missing, or closed to this user
    │   ├── CertificateRefused      TLS was refused, by them or by us
    │   └── ManagementUnreachable   its management API does not answer, or not to this user
    ├── TopologyError           the exchanges and queues are not as they must be
    │   ├── TopologyMissing         not there, and this client may not declare
    │   │   └── NamespaceMissing        the whole namespace is not there, and only a put makes it
    │   ├── NamespaceInUse          it has jobs or consumers, and is not removed
    │   ├── TopologyConflict        there, with other arguments
    │   ├── QueueUnavailable        there, and none of its replicas runs
    │   └── PermissionRefused       the user may not do this
    ├── OutcomeUnknown          a put was not confirmed in time; `sent` tells whether it may arrive
    │   └── BrokerBlocked           because the broker has raised a memory or disk alarm
    ├── JobRefused              the broker would take the put nowhere
    ├── PutManyFailed           some of many were not confirmed; it tells which
    ├── DeleteManyFailed        some of many deletes were not confirmed; it tells how many were
    ├── LeaseLost               the job is no longer held: its ttr or its connection ended
    ├── TimedOut                what on_error hooks get for a job that was cut off at its ttr
    ├── NoResponse              there will be no response: the job was buried, or it cannot be sent
    ├── HandlerVerdict          what a handler raises to say what becomes of its job
    │   ├── Retry                   give it back, to be tried again
    │   │   └── ActionFailed            because a command or a webhook failed
    │   └── Bury                    give it up, and keep it for a person
    ├── HandlerDied             the process of a handler died while it had a job
    ├── HandlerRaised           a handler raised what could not leave its process
    ├── CutOff                  the log of deletes cannot be read: no job is handed out
    ├── WorkerFailed            the worker cannot go on
    ├── ClientClosed            the client was closed before or during the call
    └── BrokerProcessError      the private broker could not be started or stopped

Every error says what to do. None of them carries a password.
"""

from collections.abc import Sequence
from datetime import timedelta
from functools import partial
from typing import Any


class RabbitDelayError(Exception):
    """What every error of this package is."""


class InvalidJob(RabbitDelayError, ValueError):
    """A put was refused before anything was sent: one of its arguments is wrong."""


class NotAJob(RabbitDelayError, ValueError):
    """A message in a topic's queue cannot be understood as a job."""


class InvalidConfiguration(RabbitDelayError, ValueError):
    """A URL, a namespace or an option is wrong."""


class ConnectionFailed(RabbitDelayError):
    """There is no connection to the broker."""


class BrokerUnreachable(ConnectionFailed):
    """Nobody answers at the broker's address."""


class LoginRefused(ConnectionFailed):
    """The broker refuses this user or password."""


class VhostRefused(ConnectionFailed):
    """The virtual host is missing, or this user may not enter it."""


class CertificateRefused(ConnectionFailed):
    """The TLS handshake failed: a certificate was not accepted."""


class ManagementUnreachable(ConnectionFailed):
    """The broker's management API does not answer, or not to this user."""


class TopologyError(RabbitDelayError):
    """The exchanges and queues of the namespace are not as they must be."""


class TopologyMissing(TopologyError):
    """An exchange or queue is missing and this client may not declare it."""


class NamespaceMissing(TopologyMissing):
    """The namespace does not exist, and this call does not make one.

    A namespace is made by its first put, by a worker, or by `rabbitdelay topology apply`.
    """


class NamespaceInUse(TopologyError):
    """A namespace has jobs or consumers, and is removed only if that is asked for."""


class TopologyConflict(TopologyError):
    """An exchange or queue exists with other arguments than this namespace needs."""


class QueueUnavailable(TopologyError):
    """A queue is there, but none of its replicas runs: its node is down, or still starting."""


class PermissionRefused(TopologyError):
    """The broker's permissions do not let this user do that."""


class OutcomeUnknown(RabbitDelayError):
    """A put was not confirmed before its timeout.

    `sent` is False when it never left this process: then it certainly did not arrive.
    """

    def __init__(self, message: str, *, sent: bool) -> None:
        super().__init__(message)
        self.sent = sent

    def __reduce__(self) -> tuple[Any, ...]:
        return partial(type(self), sent=self.sent), self.args


class BrokerBlocked(OutcomeUnknown):
    """A put was not confirmed because the broker has raised a memory or disk alarm."""


class JobRefused(RabbitDelayError):
    """The broker returned or refused the put, and the job is not kept anywhere."""


class PutManyFailed(RabbitDelayError):
    """put_many stopped early.

    `confirmed` is how many jobs the broker has. `unconfirmed` are the positions, in the order of
    the input, of those that were taken from it and not confirmed. `taken` is how many were taken
    from the input; whatever comes after them was not looked at.
    """

    def __init__(
        self, message: str, *, confirmed: int, unconfirmed: Sequence[int], taken: int
    ) -> None:
        super().__init__(message)
        self.confirmed = confirmed
        self.unconfirmed = tuple(unconfirmed)
        self.taken = taken

    def __reduce__(self) -> tuple[Any, ...]:
        make = partial(type(self), confirmed=self.confirmed, unconfirmed=self.unconfirmed)
        return partial(make, taken=self.taken), self.args


class DeleteManyFailed(RabbitDelayError):
    """Some of many deletes were not confirmed. Deleting twice is no error: do it again."""

    deleted: int
    """How many are deleted for sure; of the others nobody knows."""

    def __init__(self, message: str, *, deleted: int) -> None:
        super().__init__(message)
        self.deleted = deleted

    def __reduce__(self) -> tuple[Any, ...]:
        return partial(type(self), deleted=self.deleted), self.args


class LeaseLost(RabbitDelayError):
    """The job is no longer held here: it was settled, its ttr or its connection has ended.

    It was not finished by this call: somebody else has it by now, or will.
    """


class TimedOut(RabbitDelayError):
    """A handler was not through within its job's ttr, and the job was taken from it."""


class NoResponse(RabbitDelayError):
    """There will be no response: the job was buried, or what its handler returned is no JSON."""


class HandlerVerdict(RabbitDelayError):
    """What a handler raises to say what becomes of its job."""


class Retry(HandlerVerdict):
    """Give the job back, to be tried again: after `delay`, else after its topic's backoff."""

    def __init__(self, reason: str = "", *, delay: float | timedelta | None = None) -> None:
        super().__init__(reason)
        self.delay = delay

    def __reduce__(self) -> tuple[Any, ...]:
        return partial(type(self), delay=self.delay), self.args


class ActionFailed(Retry):
    """A command or a webhook of `rabbitdelay consume` failed: its job is retried.

    Unlike a Retry that a handler asks for, it is logged as a failure.
    """


class Bury(HandlerVerdict):
    """Give the job up now, and keep it for a person, with the reason."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)


class HandlerDied(RabbitDelayError):
    """The process of a handler died while it had a job; the text tells how."""


class HandlerRaised(RabbitDelayError):
    """A handler raised what could not leave its process: the text names it."""

    def __init__(self, message: str, *, kinds: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.kinds = tuple(kinds)
        """The names of the exception's class and of its bases, nearest first."""

    def __reduce__(self) -> tuple[Any, ...]:
        return partial(type(self), kinds=self.kinds), self.args


class CutOff(RabbitDelayError):
    """The log of deletes cannot be read to its end, so nobody can tell which jobs are deleted."""


class WorkerFailed(RabbitDelayError):
    """The worker cannot go on."""


class ClientClosed(RabbitDelayError):
    """The client was closed before or during the call."""


class BrokerProcessError(RabbitDelayError):
    """The private broker could not be started, reached or stopped."""


def type_name(kind: type) -> str:
    """Return the full name of a class, by which it is known in another process."""
    return f"{kind.__module__}.{kind.__qualname__}"
