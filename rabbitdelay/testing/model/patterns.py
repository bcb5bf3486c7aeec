"""Topic patterns: `*` matches one word, `#` any number of words."""

from functools import lru_cache


@lru_cache(maxsize=4_096)
def first_word(pattern: str) -> tuple[int, str] | None:
    """Return the first word that a pattern requires in one place, with the place."""
    for position, word in enumerate(words(pattern)):
        if word == "#":
            return None
        if word != "*":
            return position, word
    return None


def matches(pattern: str, key: str) -> bool:
    """Whether a routing key matches the pattern of a binding to a topic exchange."""
    return _matches(words(pattern), words(key))


@lru_cache(maxsize=4_096)
def words(text: str) -> tuple[str, ...]:
    """Return the words of a pattern or a routing key."""
    return tuple(text.split(".")) if text else ()


def _matches(pattern: tuple[str, ...], words: tuple[str, ...]) -> bool:
    for position, expected in enumerate(pattern):
        if expected == "#":
            rest = pattern[position + 1 :]
            return any(_matches(rest, words[end:]) for end in range(position, len(words) + 1))
        if position >= len(words) or expected not in ("*", words[position]):
            return False
    return len(words) == len(pattern)
