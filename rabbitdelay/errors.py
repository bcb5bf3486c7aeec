"""The exceptions that rabbitdelay raises, as one tree.

::

    RabbitDelayError
    ├── InvalidJob              a put was refused before anything was sent: a bad argument
    ├── NotAJob                 a message in a topic's queue cannot be read as a job
    ├── InvalidConfiguration    a bad URL, namespace or option
    ├── ConnectionFailed        no connection to the broker
    │   ├── BrokerUnreachable       the address does not accept connections
    │   ├── LoginRefused            wrong user or password
    │   ├── VhostRefused            the vhost is missing, or closed to this user
    │   ├── CertificateRefused      the TLS handshake failed, on either side
    │   └── ManagementUnreachable   the management API does not answer, or refuses this user
    ├── TopologyError           the exchanges and queues are not as the namespace needs them
    │   ├── TopologyMissing         missing, and this client may not declare
    │   │   └── NamespaceMissing        the namespace does not exist, and this call creates none
    │   ├── NamespaceInUse          jobs or consumers prevent its removal
    │   ├── TopologyConflict        declared with other arguments
    │   ├── QueueUnavailable        declared, but none of its replicas is running
    │   └── PermissionRefused       the user's permissions do not allow it
    ├── OutcomeUnknown          a put was not confirmed in time; `sent` tells whether it may arrive
    │   └── BrokerBlocked           because the broker has raised a memory or disk alarm
    ├── JobRefused              the broker returned or refused the put
    ├── PutManyFailed           put_many stopped early; it lists the unconfirmed jobs
    ├── DeleteManyFailed        some of many deletes were not confirmed; it counts the others
    ├── LeaseLost               the job is no longer reserved: its ttr or its connection ended
    ├── TimedOut                passed to on_error hooks when a handler exceeded its job's ttr
    ├── NoResponse              no response will come: the job was buried, or it cannot be sent
    ├── HandlerVerdict          raised by a handler to decide the outcome of its job
    │   ├── Retry                   retry the job
    │   │   └── ActionFailed            a command or a webhook failed, and its job is retried
    │   └── Bury                    bury the job
    ├── HandlerDied             a handler's process died while it was handling a job
    ├── HandlerRaised           a handler raised an exception that cannot be pickled
    ├── CutOff                  the log of deletes cannot be read: no jobs are delivered
    ├── WorkerFailed            the worker cannot continue
    ├── ClientClosed            the client was closed before or during the call
    └── BrokerProcessError      the private broker could not be started, reached or stopped

The text of every error says how to fix it. No text contains a password.
"""

from collections.abc import Sequence
from datetime import timedelta
from functools import partial
from typing import Any


class RabbitDelayError(Exception):
    """Base class of all errors of this package."""


class InvalidJob(RabbitDelayError, ValueError):
    """A put was refused before anything was sent, because one of its arguments is invalid."""


class NotAJob(RabbitDelayError, ValueError):
    """A message in a topic's queue cannot be read as a job."""


class InvalidConfiguration(RabbitDelayError, ValueError):
    """A URL, a namespace or an option is invalid."""


class ConnectionFailed(RabbitDelayError):
    """The connection to the broker failed."""


class BrokerUnreachable(ConnectionFailed):
    """The broker's address does not accept connections."""


class LoginRefused(ConnectionFailed):
    """The broker refused the user or the password."""


class VhostRefused(ConnectionFailed):
    """The virtual host does not exist, or this user may not access it."""


class CertificateRefused(ConnectionFailed):
    """The TLS handshake failed because a certificate was not accepted."""


class ManagementUnreachable(ConnectionFailed):
    """The broker's management API does not answer, or refuses this user."""


class TopologyError(RabbitDelayError):
    """The exchanges and queues of the namespace are not as they must be."""


class TopologyMissing(TopologyError):
    """An exchange or a queue is missing, and this client may not declare it."""


class NamespaceMissing(TopologyMissing):
    """The namespace does not exist, and this call does not create it.

    A namespace is created by its first put, by a worker, or by `rabbitdelay topology apply`.
    """


class NamespaceInUse(TopologyError):
    """A namespace has jobs or consumers, and is only removed when forced."""


class TopologyConflict(TopologyError):
    """An exchange or a queue exists with other arguments than this namespace needs."""


class QueueUnavailable(TopologyError):
    """A queue exists, but none of its replicas is running: its node is down or still starting."""


class PermissionRefused(TopologyError):
    """The user's permissions on the broker do not allow the operation."""


class OutcomeUnknown(RabbitDelayError):
    """A put was not confirmed before its timeout.

    `sent` is False when the job never left this process, and therefore certainly did not arrive.
    """

    def __init__(self, message: str, *, sent: bool) -> None:
        super().__init__(message)
        self.sent = sent

    def __reduce__(self) -> tuple[Any, ...]:
        return partial(type(self), sent=self.sent), self.args


class BrokerBlocked(OutcomeUnknown):
    """A put was not confirmed because the broker has raised a memory or disk alarm."""


class JobRefused(RabbitDelayError):
    """The broker returned or refused the put; the job is not stored anywhere."""


class PutManyFailed(RabbitDelayError):
    """put_many stopped early.

    `confirmed` is the number of jobs that the broker has confirmed. `unconfirmed` lists the
    positions in the input of the jobs that were read but not confirmed. `taken` is the number of
    jobs read from the input; the rest of the input was not read.
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
    """Some of many deletes were not confirmed. Deleting twice is safe, so retry all of them."""

    deleted: int
    """Number of confirmed deletes; the outcome of the others is unknown."""

    def __init__(self, message: str, *, deleted: int) -> None:
        super().__init__(message)
        self.deleted = deleted

    def __reduce__(self) -> tuple[Any, ...]:
        return partial(type(self), deleted=self.deleted), self.args


class LeaseLost(RabbitDelayError):
    """The job is no longer reserved here: it was settled, or its ttr or its connection ended.

    This call did not finish the job. The job has been or will be delivered again.
    """


class TimedOut(RabbitDelayError):
    """A handler did not return within its job's ttr, and the job was taken from it."""


class NoResponse(RabbitDelayError):
    """No response will come: the job was buried, or its handler's return value is not JSON."""


class HandlerVerdict(RabbitDelayError):
    """Base class of the exceptions by which a handler decides the outcome of its job."""


class Retry(HandlerVerdict):
    """Retry the job after `delay`, or after its topic's backoff if no delay is given."""

    def __init__(self, reason: str = "", *, delay: float | timedelta | None = None) -> None:
        super().__init__(reason)
        self.delay = delay

    def __reduce__(self) -> tuple[Any, ...]:
        return partial(type(self), delay=self.delay), self.args


class ActionFailed(Retry):
    """A command or a webhook of `rabbitdelay consume` failed, and its job is retried.

    Unlike a Retry that a handler raises on purpose, this is logged as a failure.
    """


class Bury(HandlerVerdict):
    """Bury the job now, with this reason, for a person to look at."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)


class HandlerDied(RabbitDelayError):
    """A handler's process died while it was handling a job; the text says how."""


class HandlerRaised(RabbitDelayError):
    """A handler raised an exception that cannot be pickled; the text describes it."""

    def __init__(self, message: str, *, kinds: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.kinds = tuple(kinds)
        """Full names of the exception's class and of its base classes, nearest first."""

    def __reduce__(self) -> tuple[Any, ...]:
        return partial(type(self), kinds=self.kinds), self.args


class CutOff(RabbitDelayError):
    """The log of deletes cannot be read to its end, so deleted jobs cannot be recognised."""


class WorkerFailed(RabbitDelayError):
    """The worker cannot continue."""


class ClientClosed(RabbitDelayError):
    """The client was closed before or during the call."""


class BrokerProcessError(RabbitDelayError):
    """The private broker could not be started, reached or stopped."""


def type_name(kind: type) -> str:
    """Return the full name of a class, which identifies it in another process."""
    return f"{kind.__module__}.{kind.__qualname__}"
