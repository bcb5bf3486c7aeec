"""Topic patterns, compared with regular expressions."""

import re

from hypothesis import given
from hypothesis import strategies as st

from rabbitdelay.testing.model import patterns

WORDS = st.lists(st.sampled_from(["a", "b", "10"]), max_size=5)
PATTERNS = st.lists(st.sampled_from(["a", "b", "10", "*", "#"]), max_size=5)


def regular_expression(pattern: list[str]) -> str:
    """Return a regular expression for words that each end with a dot."""
    pieces = {"*": r"[^.]+\.", "#": r"(?:[^.]+\.)*"}
    return "".join(pieces.get(word, re.escape(word) + r"\.") for word in pattern)


@given(PATTERNS, WORDS)
def test_a_pattern_matches_as_a_regular_expression(pattern: list[str], words: list[str]) -> None:
    expected = re.fullmatch(regular_expression(pattern), "".join(f"{word}." for word in words))
    assert patterns.matches(".".join(pattern), ".".join(words)) == (expected is not None)


@given(PATTERNS, WORDS)
def test_a_match_has_the_first_word_in_its_place(pattern: list[str], words: list[str]) -> None:
    found = patterns.first_word(".".join(pattern))
    if found is not None and patterns.matches(".".join(pattern), ".".join(words)):
        position, word = found
        assert words[position] == word
