"""The types of members that several requests have, and their schemas."""

from datetime import timedelta
from typing import Annotated

from pydantic import (
    AwareDatetime,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StrictStr,
    WithJsonSchema,
)

from rabbitdelay import models
from rabbitdelay.errors import InvalidJob

_DURATION_SCHEMA = {
    "description": "Seconds, or text such as `30m`, `1h30m` or `250ms`.",
    "oneOf": [{"type": "number", "minimum": 0}, {"type": "string"}],
}
_TOPIC_SCHEMA = {
    "type": "string",
    "minLength": 1,
    "maxLength": 200,
    "pattern": "^[A-Za-z0-9._-]+$",
}
MAX_TOPICS = 100
"""Maximum number of topics that one pop waits for: each takes a consumer on the broker."""
_ID_SCHEMA = {"type": "string", "minLength": 1, "maxLength": 200}


def _moment(value: object) -> object:
    """Refuse numbers, which pydantic would read as seconds or milliseconds by their size."""
    if not isinstance(value, str):
        raise InvalidJob("a time must be text like '2027-01-01T00:00:00Z'")
    return value


def topic_list(value: object) -> object:
    """Return one topic as a list."""
    return [value] if isinstance(value, str) else value


Duration = Annotated[models.Duration, WithJsonSchema(_DURATION_SCHEMA)]
Delay = Annotated[models.Delay, WithJsonSchema(_DURATION_SCHEMA)]
Wait = Annotated[models.Duration, Field(ge=timedelta(0)), WithJsonSchema(_DURATION_SCHEMA)]
Moment = Annotated[
    AwareDatetime,
    BeforeValidator(_moment),
    WithJsonSchema({"type": "string", "format": "date-time"}),
]
Topic = Annotated[StrictStr, WithJsonSchema(_TOPIC_SCHEMA)]
Topics = Annotated[
    list[StrictStr],
    Field(min_length=1, max_length=MAX_TOPICS),  # here, it ends the validation of a longer list
    BeforeValidator(topic_list),
    WithJsonSchema(
        {
            "oneOf": [
                _TOPIC_SCHEMA,
                {
                    "type": "array",
                    "items": _TOPIC_SCHEMA,
                    "minItems": 1,
                    "maxItems": MAX_TOPICS,
                },
            ]
        }
    ),
]
JobId = Annotated[StrictStr, WithJsonSchema(_ID_SCHEMA)]
Lease = Annotated[StrictStr, Field(description="The `lease` that a pop returned.")]


class Request(BaseModel):
    """A request whose members are known, so that a misspelt one is refused."""

    model_config = ConfigDict(extra="forbid")
