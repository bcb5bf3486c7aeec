"""Bodies: decoding to a declared type, and errors that do not contain the body."""

from datetime import date
from typing import Annotated, Any, Literal
from uuid import UUID

import pytest
from pydantic import BaseModel, ConfigDict, Field, Strict, TypeAdapter

from rabbitdelay.core.jobs import body
from rabbitdelay.errors import NotAJob
from rabbitdelay.models import BYTES, JSON, TEXT, Job

SECRET = "hunter2"  # noqa: S105 - to be looked for


class Card(BaseModel):
    model_config = ConfigDict(extra="forbid")

    number: int
    kind: Literal["debit", "credit"] = "debit"


class Cat(BaseModel):
    kind: Literal["cat"]


class Dog(BaseModel):
    kind: Literal["dog"]


Pet = Annotated[Cat | Dog, Field(discriminator="kind")]


def job(payload: bytes, content_type: str = JSON) -> Job:
    return Job("t", "job-1", "token", 0, 0, 60_000, payload, content_type)


def read(payload: bytes, kind: Any, content_type: str = JSON) -> Any:  # noqa: ANN401 - any type
    return body.read(job(payload, content_type), TypeAdapter(kind))


def test_a_json_body_is_validated_as_json() -> None:
    """A strict date is text in JSON. Parameters and case of the content type do not matter."""
    strict_date = Annotated[date, Strict()]
    for content_type in (JSON, "Application/JSON; charset=utf-8"):
        assert read(b'"2027-01-01"', strict_date, content_type) == date(2027, 1, 1)
    assert read(b'{"number": 1}', Card) == Card(number=1)


def test_other_bodies_are_decoded_by_their_content_type() -> None:
    assert read(b"abc", str, TEXT) == "abc"
    assert read(b"abc", bytes, BYTES) == b"abc"
    assert read(b"abc", bytes, "image/png") == b"abc"


@pytest.mark.parametrize(
    ("payload", "kind", "says"),
    [
        (b'{"number": "hunter2"}', Card, "body: number: Input should be a valid integer"),
        (b'{"number": 1, "kind": "hunter2"}', Card, "kind: Input should be 'debit' or 'credit'"),
        (b'{"number": []}', Card, "number: Input should be a valid integer"),
        (b'{"kind": "hunter2"}', Card, r"number: Field required \(and 1 more\)"),
        (b'"hunter2"', Card, "body: Input should be an object"),
        (b'{"kind": "hunter2"}', Pet, "Input has none of the expected tags"),
        (b'{"secret": "hunter2"}', Pet, "Unable to extract tag"),
        (b'["hunter2"]', list[UUID], "0: Input should be a valid UUID"),
        (b'["hunter2"]', list[date], "0: Input should be a valid date"),
        (b'{"secret": hunter2', Card, "Invalid JSON"),
        (b'{"secret": "hunter2\xff"}', Card, "Invalid JSON"),
        (b"", Card, "Invalid JSON"),
        (b"[" * 100_000, list[int], "Invalid JSON"),
    ],
)
def test_an_error_does_not_contain_the_body(payload: bytes, kind: object, says: str) -> None:
    with pytest.raises(NotAJob, match=says) as caught:
        read(payload, kind)
    assert SECRET not in str(caught.value)
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__


@pytest.mark.parametrize(
    ("payload", "content_type", "says"),
    [
        (b'{"secret": hunter2', JSON, "body is not application/json"),
        (b"", JSON, "body is not application/json"),
        (b"hunter2\xff", JSON, "body is not application/json"),
        (b"[" * 100_000, JSON, "body is not application/json"),
        (b"9" * 5_000, JSON, "body is not application/json"),  # more digits than Python reads
        (b"hunter2\xff", TEXT, "body is not text/plain"),
    ],
)
def test_a_body_that_contradicts_its_content_type_is_refused(
    payload: bytes, content_type: str, says: str
) -> None:
    with pytest.raises(NotAJob, match=says) as caught:
        body.plain(job(payload, content_type))
    assert SECRET not in str(caught.value)


def test_undecodable_text_is_not_validated() -> None:
    with pytest.raises(NotAJob, match="body is not text/plain"):
        read(b"\xff", str, TEXT)


@pytest.mark.parametrize(
    ("payload", "content_type", "value"),
    [(b'{"a": 1}', JSON, {"a": 1}), (b"abc", TEXT, "abc"), (b"\xff", BYTES, b"\xff")],
)
def test_plain_bodies(payload: bytes, content_type: str, value: object) -> None:
    assert body.plain(job(payload, content_type)) == value


def test_a_body_without_content_type_may_be_json() -> None:
    job = Job("t", "id", "", 0, 0, None, b'{"order": 1}', BYTES)
    assert body.read(job, TypeAdapter(dict[str, int])) == {"order": 1}
    assert body.read(job, TypeAdapter(bytes)) == b'{"order": 1}'
    with pytest.raises(NotAJob):
        body.read(Job("t", "id", "", 0, 0, None, b"\xff", BYTES), TypeAdapter(dict[str, int]))
