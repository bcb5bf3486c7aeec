"""Validation of the trailer and the pieces of a snapshot.

Every user who may write to the namespace can write into the stream of snapshots. A reader therefore
checks the type and the range of each field before using it.
"""

from typing import Annotated, Any

from pydantic import AfterValidator, ConfigDict, Field, Strict, TypeAdapter, ValidationError
from typing_extensions import TypedDict

from rabbitdelay.core.deletes import tombstone_table
from rabbitdelay.core.topology import ladder

MAX_POSITION = (1 << 63) - 1
"""Highest offset of a stream that AMQP can represent."""
MAX_PIECES = (1 << 32) - 1
"""Highest piece number that fits into the header of a piece."""
MAX_PROBLEM = 200
"""Maximum characters of a problem that is logged."""


def _utf8(text: str) -> str:
    text.encode()  # JSON can contain lone surrogates, which cannot be written again
    return text


_Text = Annotated[str, Strict(), AfterValidator(_utf8)]
_Whole = Annotated[int, Strict(), Field(ge=0, le=MAX_POSITION)]
_Moment = Annotated[int, Strict(), Field(ge=0, le=tombstone_table.MAX_MS)]
_SwitchPosition = Annotated[int, Strict(), Field(ge=-1, le=MAX_POSITION)]


class _Fields(TypedDict):
    __pydantic_config__ = ConfigDict(extra="forbid")  # type: ignore[misc]

    name: Annotated[str, Strict(), Field(pattern=r"^[0-9a-f]{16}\z")]
    pieces: Annotated[int, Strict(), Field(ge=0, le=MAX_PIECES)]
    digest: Annotated[str, Strict(), Field(pattern=r"^[0-9a-f]{32}\z")]
    buckets: _Whole
    count: _Whole
    time_ms: _Moment
    floor_ms: _Moment
    horizon_ms: Annotated[int, Strict(), Field(ge=0, le=ladder.MAX_DELAY_MS)]
    purges: dict[_Text, _Moment]
    switches: dict[_Text, tuple[_SwitchPosition, Annotated[bool, Strict()]]]
    position: _Whole
    fingerprint: Annotated[str, Strict(), Field(pattern=r"^[0-9a-f]{16}\z")]
    version: _Whole


_validate = TypeAdapter(_Fields).validator.validate_python


def read_fields(fields: object) -> dict[str, Any]:
    """Return the fields of a trailer; raise ValueError naming the field that is invalid."""
    try:
        read: dict[str, Any] = _validate(fields)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(map(str, first["loc"]))
        raise ValueError(f"{where}: {first['msg']}"[:MAX_PROBLEM]) from None
    return read


def are_tombstones(dumped: bytes) -> bool:
    """Whether bytes are a sequence of tombstones, each of a known kind."""
    return (
        len(dumped) % tombstone_table.WIDTH == 0
        and tombstone_table.KINDS.issuperset(
            dumped[tombstone_table.KIND_AT :: tombstone_table.WIDTH]
        )
        and {0, 1}.issuperset(dumped[tombstone_table.ALL_TOKENS_AT :: tombstone_table.WIDTH])
    )
