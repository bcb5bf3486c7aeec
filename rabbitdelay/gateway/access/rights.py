"""Rights of a caller, and the topics and ids that they cover."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, get_args

from rabbitdelay.errors import InvalidConfiguration

Right = Literal["put", "consume", "admin"]
RIGHTS: tuple[Right, ...] = get_args(Right)
EVERYTHING = "*"
_TOPIC_PATTERN = re.compile(r"[A-Za-z0-9._-]*\*?")
_ID_PATTERN = re.compile(r"[!\"$-)+\--:<-~]*\*?")
"""Visible ASCII without what separates tokens (`,` `;` `#`), and a star only at the end."""


@dataclass(frozen=True, slots=True)
class Patterns:
    """Names: each either exact, or a beginning that is followed by a star."""

    texts: tuple[str, ...] = ()

    def __contains__(self, name: str) -> bool:
        return any(_matches(text, name) for text in self.texts)

    @property
    def is_everything(self) -> bool:
        """Whether every name is covered, known or not."""
        return EVERYTHING in self.texts


@dataclass(frozen=True, slots=True)
class Grant:
    """Rights on topics, and on ids whose topic a request does not name."""

    rights: frozenset[Right]
    topics: Patterns
    ids: Patterns = Patterns()

    def covers(self, right: Right, topic: str | None) -> bool:
        """Whether the grant has a right on a topic; None stands for every topic."""
        if right not in self.rights:
            return False
        return self.topics.is_everything if topic is None else topic in self.topics

    def covers_id(self, right: Right, id: str) -> bool:
        """Whether the grant has a right on an id, whatever the topic of its job is."""
        return right in self.rights and (self.topics.is_everything or id in self.ids)


FULL_GRANT = Grant(frozenset(RIGHTS), Patterns((EVERYTHING,)))


def read_rights(text: str) -> frozenset[Right]:
    """Parse `put,consume`; raise InvalidConfiguration if a right is unknown."""
    names = set(text.split(","))
    found: frozenset[Right] = frozenset(right for right in RIGHTS if right in names)
    if len(found) != len(names):
        raise InvalidConfiguration(
            f"rights must be a comma-separated list of {', '.join(RIGHTS)}, without spaces"
        )
    return found


def read_topics(text: str) -> Patterns:
    """Parse `order*,mail`; raise InvalidConfiguration if a pattern is invalid."""
    return _read(
        text,
        _TOPIC_PATTERN,
        "topics must be a comma-separated list, without spaces, of topics such as mail, of "
        "patterns such as order*, or of * for every topic",
    )


def read_ids(text: str) -> Patterns:
    """Parse `order-*,mail-*`; raise InvalidConfiguration if a pattern is invalid."""
    return _read(
        text,
        _ID_PATTERN,
        "ids must be a comma-separated list, without spaces, of ids such as order-17 or of "
        "patterns such as order-*",
    )


def _read(text: str, allowed: re.Pattern[str], rule: str) -> Patterns:
    texts = text.split(",")
    if not all(one and allowed.fullmatch(one) for one in texts):
        raise InvalidConfiguration(rule)
    return Patterns(tuple(_unique(texts)))


def _unique(texts: Iterable[str]) -> Iterable[str]:
    return dict.fromkeys(texts)


def _matches(pattern: str, name: str) -> bool:
    return name.startswith(pattern[:-1]) if pattern.endswith("*") else name == pattern
