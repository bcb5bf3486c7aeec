"""The caller of one request, and the check of its rights."""

from dataclasses import dataclass

from fastapi import Request

from rabbitdelay.gateway.access.rights import FULL_GRANT, Grant, Right
from rabbitdelay.gateway.http.asgi import Scope, state_of
from rabbitdelay.gateway.problems import AccessRefused, TokenRequired

_STATE = "caller"


@dataclass(frozen=True, slots=True)
class Caller:
    """The program that sent a request, as its token names it."""

    name: str
    grant: Grant

    def require(self, right: Right, topic: str | None) -> None:
        """Raise AccessRefused unless the caller has a right on a topic.

        Without a topic, the right must cover every topic: the request names none.
        """
        if self.grant.covers(right, topic):
            return
        if right not in self.grant.rights:
            raise AccessRefused(f"this token does not have the right {right!r}")
        if topic is None:
            raise AccessRefused(
                f"this request may affect any topic, and this token has the right {right!r} only "
                "on some"
            )
        raise AccessRefused(f"this token does not have the right {right!r} on this topic")

    def require_id(self, right: Right, id: str) -> None:
        """Raise AccessRefused unless the caller has a right on an id, in any topic.

        Ids are shared by all topics of a namespace: a delete by id also deletes another topic's
        job. So the token must cover every topic, or name the id in its `ids=`.
        """
        if self.grant.covers_id(right, id):
            return
        if right not in self.grant.rights:
            raise AccessRefused(f"this token does not have the right {right!r}")
        raise AccessRefused(
            "ids are shared by all topics, and this token covers neither every topic nor this id: "
            "add ids= to its line"
        )


ANONYMOUS = Caller("anonymous", FULL_GRANT)
"""The caller of a gateway without tokens."""


def remember_caller(scope: Scope, caller: Caller) -> None:
    """Keep the caller of a request for its route and the log."""
    state_of(scope)[_STATE] = caller


def known_caller(scope: Scope) -> Caller | None:
    """Return the caller of a request, or None if it has not been identified."""
    caller = state_of(scope).get(_STATE)
    return caller if isinstance(caller, Caller) else None


async def caller_of(request: Request) -> Caller:
    """Return the caller of a request; raise TokenRequired if it has not been identified."""
    caller = known_caller(request.scope)
    if caller is None:
        raise TokenRequired("this request needs a token: send Authorization: Bearer TOKEN")
    return caller
