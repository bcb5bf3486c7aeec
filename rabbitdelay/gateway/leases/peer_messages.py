"""The messages between gateways, checked when they are read: any user of the broker can send one.

A message is one line of JSON; the bytes after it are the payload of a response.
"""

from dataclasses import dataclass
from typing import Annotated, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from rabbitdelay.core.jobs import validation
from rabbitdelay.core.topology import ladder
from rabbitdelay.errors import RabbitDelayError
from rabbitdelay.gateway.leases.lease_text import MAX_CHARACTERS

MAX_LINE_BYTES = 256 * 1024
MAX_PAYLOAD_BYTES = 15 * 1024 * 1024
"""Below the 16 MiB that a message may have on RabbitMQ 4."""
MAX_REASON_CHARACTERS = 16_384
MAX_CONTENT_TYPE_CHARACTERS = 255
MAX_WAIT_MS = 3_600_000
Verb = Literal["finish", "release", "touch", "bury", "finish_id", "response"]
_Text = TypeVar("_Text", bound=BaseModel)


class NotAMessage(RabbitDelayError):
    """A message is not one of a gateway."""


class _Model(BaseModel):
    model_config = ConfigDict(strict=True, frozen=True, extra="ignore")


class Question(_Model):
    """A request that another gateway is asked to carry out."""

    verb: Verb
    lease: Annotated[str, Field(max_length=MAX_CHARACTERS)] = ""
    id: Annotated[str, Field(max_length=validation.MAX_NAME_BYTES)] = ""
    delay_ms: Annotated[int, Field(ge=0, le=ladder.MAX_DELAY_MS)] | None = None
    reason: Annotated[str, Field(max_length=MAX_REASON_CHARACTERS)] = ""
    wait_ms: Annotated[int, Field(ge=0, le=MAX_WAIT_MS)] = 0

    def encode(self) -> bytes:
        """Return the message."""
        return self.model_dump_json(exclude_defaults=True).encode() + b"\n"


class Facts(_Model):
    """The line of an answer."""

    result: Literal["done", "lost", "failed", "unknown", "waiting", "no_response"]
    detail: Annotated[str, Field(max_length=MAX_REASON_CHARACTERS)] = ""
    time_left: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0.0
    lease: Annotated[str, Field(max_length=MAX_CHARACTERS)] = ""
    content_type: Annotated[str, Field(max_length=MAX_CONTENT_TYPE_CHARACTERS)] = ""


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer to a question.

    Its result is `done`; `lost`, if the lease is over; `failed`, if the outcome is unknown;
    `unknown`, if the job is not this gateway's; `waiting`, if there is no response yet; or
    `no_response`, if none will come.
    """

    facts: Facts
    payload: bytes = b""

    def encode(self) -> bytes:
        """Return the message."""
        return self.facts.model_dump_json(exclude_defaults=True).encode() + b"\n" + self.payload


def read_question(body: bytes) -> Question:
    """Return the question in a message; raise NotAMessage if there is none."""
    line, _, rest = body.partition(b"\n")
    if rest:
        raise NotAMessage("a question has no payload")
    return _read(Question, line)


def read_answer(body: bytes) -> Answer:
    """Return the answer in a message; raise NotAMessage if there is none."""
    line, _, payload = body.partition(b"\n")
    return Answer(_read(Facts, line), payload)


def _read(model: type[_Text], line: bytes) -> _Text:
    if len(line) > MAX_LINE_BYTES:
        raise NotAMessage("the message is too long")
    try:
        return model.model_validate_json(line)
    except ValidationError as error:
        raise NotAMessage(str(error.errors(include_url=False, include_input=False)[0])) from None
