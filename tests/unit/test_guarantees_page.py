"""docs/guarantees.md cites existing tests for every promise, and README.md stays short."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
GUARANTEES = (ROOT / "docs" / "guarantees.md").read_text()
NAMED_TEST = re.compile(r"`(test_\w+\.py)(?:::(\w+))?`")
NAMED = sorted(set(NAMED_TEST.findall(README + GUARANTEES)))
ROWS = re.findall(r"^\| .+`test_.+ \|$", GUARANTEES, re.MULTILINE)
PROMISED = sorted({file for row in ROWS for file, _ in NAMED_TEST.findall(row)})
WITHOUT_A_CLIENT = {"test_address.py", "test_buried.py"}
"""The code under test is the same for threads and asyncio."""
MOST_WORDS = 1_200


@pytest.mark.parametrize(("file", "test"), NAMED)
def test_a_cited_test_exists(file: str, test: str) -> None:
    texts = [path.read_text() for path in (ROOT / "tests").rglob(file)]
    assert any(not test or f"def {test}(" in text for text in texts)


@pytest.mark.parametrize("file", PROMISED)
def test_a_promise_is_tested_with_both_front_ends(file: str) -> None:
    folders = {path.relative_to(ROOT).parts[1] for path in (ROOT / "tests").rglob(file)}
    assert "conformance" in folders or file in WITHOUT_A_CLIENT


def test_the_readme_fits_on_two_screens() -> None:
    assert len(README.split()) <= MOST_WORDS


def test_the_table_of_promises_is_on_one_page() -> None:
    assert not re.findall(r"^\|.*`test_", README, re.MULTILINE)


def test_the_pages_contain_promises() -> None:
    assert len(NAMED) >= 30
    assert len(ROWS) >= 30
