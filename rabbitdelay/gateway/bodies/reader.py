"""Read requests into their models, and explain what is wrong with them."""

from collections.abc import Callable, Mapping, Sequence
from difflib import get_close_matches
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from rabbitdelay.gateway.bodies import raw_json
from rabbitdelay.gateway.bodies.fields import Request
from rabbitdelay.gateway.problems import InvalidRequest, UnsupportedMediaType
from rabbitdelay.models import JSON, media_type

Model = TypeVar("Model", bound=Request)
ReadMember = Callable[[str, str], object]
"""Returns the value of a member from its name and its text."""
_SHOWN = 60
"""Number of characters of a name that an error quotes."""
_MOST_ERRORS = 20


def _value(_name: str, text: str) -> object:
    return raw_json.value(text)


def read(model: type[Model], content: bytes | str, *, raw: ReadMember = _value) -> Model:
    """Return the request in a JSON object; an empty body is an object without members.

    Raises:
        MalformedRequest: It is not a JSON object.
        InvalidRequest: A member is unknown or invalid.
    """
    members = raw_json.members(content or "{}")
    return validated(model, {name: raw(name, text) for name, text in members.items()})


def require_json(content_type: str) -> None:
    """Raise UnsupportedMediaType unless a request says JSON, or nothing, about its body.

    The types of HTML forms are refused, because a page of another site may send them.
    """
    kind = media_type(content_type)
    if kind and kind != JSON and not kind.endswith("+json"):
        raise UnsupportedMediaType(
            f"content type {content_type[:_SHOWN]!r}: send a JSON object as {JSON}"
        )


def distinct(items: Sequence[tuple[str, str]]) -> dict[str, str]:
    """Return the parameters of a URL; raise InvalidRequest if one is given twice."""
    found = dict(items)
    if len(found) != len(items):
        names = [name for name, _ in items]
        twice = next(name for name in names if names.count(name) > 1)
        raise InvalidRequest(f"{twice[:_SHOWN]}: given twice")
    return found


def validated(model: type[Model], values: Mapping[str, Any], what: str = "member") -> Model:
    """Return the request with these values; raise InvalidRequest if they break a rule."""
    try:
        return model.model_validate(values)
    except ValidationError as error:
        found = error.errors(include_url=False, include_input=False, include_context=False)
        raise refusal(found, model, what) from None


def refusal(
    errors: Sequence[Any], model: type[BaseModel] | None, what: str = "member"
) -> InvalidRequest:
    """Return all complaints of pydantic, without the values, which may be secret.

    Those about unknown names are first: a misspelt name is why another one is missing.
    """
    errors = sorted(errors, key=lambda one: one["type"] != "extra_forbidden")
    found = [
        {what: ".".join(map(str, one["loc"]))[:_SHOWN], "detail": _complaint(model, one, what)}
        for one in errors[:_MOST_ERRORS]
    ]
    place = f"{found[0][what]}: " if found[0][what] else ""
    return InvalidRequest(f"{place}{found[0]['detail']}", errors=found)


def _complaint(model: type[BaseModel] | None, error: Mapping[str, Any], what: str) -> str:
    if error["type"] != "extra_forbidden":
        return str(error["msg"]).removeprefix("Value error, ")
    known = list(model.model_fields) if model is not None else []
    near = get_close_matches(str(error["loc"][-1])[:_SHOWN], known, 1)
    return f"unknown {what}{f'; did you mean {near[0]!r}?' if near else ''}"
