"""Publish copies of parked jobs, with the original headers byte for byte."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from threading import Lock
from typing import Generic

from rabbitdelay.core.amqp import field_table
from rabbitdelay.core.jobs.envelope import Message
from rabbitdelay.core.parked.parked_job import Found, with_original_bytes
from rabbitdelay.core.publish.outbox import LadderEntry, Pending, Target
from rabbitdelay.engine.flow import Flow, Wait
from rabbitdelay.engine.futures import Future
from rabbitdelay.engine.publish.publisher import Publisher
from rabbitdelay.engine.republish.copies import MAX_HEADERS_BYTES
from rabbitdelay.errors import InvalidJob, JobRefused


@dataclass(frozen=True, slots=True)
class Copy:
    """The copy of a parked job, and its route."""

    message: Message
    route: LadderEntry | Target


@dataclass(frozen=True, slots=True)
class TakenMessage(Generic[Found]):
    """A message that was received and is not acknowledged yet."""

    tag: int
    found: Found
    original: Message | None
    """The message with its headers as bytes; None if they cannot be split."""


MakeCopy = Callable[[Found], Copy | None]
"""Makes the copy to publish for a job; None if the job has no route."""


class Sending(Generic[Found]):
    """Publishes copies of one batch of messages, until the broker has answered each."""

    def __init__(
        self,
        copy: MakeCopy[Found],
        publisher: Publisher,
        taken: list[TakenMessage[Found]],
        deadline: float,
    ) -> None:
        self._copy = copy
        self._publisher = publisher
        self._taken = taken
        self._deadline = deadline
        self._lock = Lock()
        self._unanswered = len(taken)
        self._answered: Future[None] = Future()
        self._errors: dict[int, Exception | None] = {}
        """The error of each message that was answered, by tag; None if it was confirmed."""

    def run(self) -> Flow[None]:
        """Publish the copies and wait for the answers; raise an error that concerns all."""
        for one in self._taken:
            self._send(one)
        yield Wait(self._answered)
        for error in self._errors.values():
            if error is not None and not isinstance(error, JobRefused | InvalidJob):
                raise error

    def confirmed(self) -> list[int]:
        """Return the tags of the messages whose copies are confirmed so far."""
        with self._lock:
            return [tag for tag, error in self._errors.items() if error is None]

    def is_sent(self, one: TakenMessage[Found]) -> bool:
        """Whether the broker has confirmed the copy of a message."""
        return self._errors[one.tag] is None

    def _send(self, one: TakenMessage[Found]) -> None:
        copy = None if one.original is None else self._copy(one.found)
        if one.original is None or copy is None:
            self._answer(one.tag, InvalidJob("the job has no route"))
            return
        message = with_original_bytes(copy.message, one.found.message, one.original.headers)
        if len(field_table.encode(message.headers)) > MAX_HEADERS_BYTES:
            self._answer(one.tag, InvalidJob("its headers leave no room for those of rabbitdelay"))
            return
        self._publisher.submit_copy(self._pending(one, copy, message))

    def _pending(self, one: TakenMessage[Found], copy: Copy, message: Message) -> Pending:
        return Pending(
            message,
            copy.route,
            self._publisher.monotonic(),
            self._deadline,
            partial(self._resolved, one.tag),
            f"copy of {one.found.id or 'a job without an id'}",
        )

    def _resolved(self, tag: int, error: Exception | None) -> None:
        self._answer(tag, error)

    def _answer(self, tag: int, error: Exception | None) -> None:
        with self._lock:
            self._errors[tag] = error
            self._unanswered -= 1
            is_last = not self._unanswered
        if is_last:
            self._answered.set_result(None)
