"""What is promised, in the README and in docs/guarantees.md, has tests."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
GUARANTEES = (ROOT / "docs" / "guarantees.md").read_text()
PROMISES = sorted(set(re.findall(r"`(test_\w+\.py)(?:::(\w+))?`", README + GUARANTEES)))
ROWS = re.findall(r"^\| .+`test_.+ \|$", README, re.MULTILINE)


@pytest.mark.parametrize(("file", "test"), PROMISES)
def test_a_promise_has_its_test(file: str, test: str) -> None:
    texts = [path.read_text() for path in (ROOT / "tests").rglob(file)]
    assert any(not test or f"def {test}(" in text for text in texts)


@pytest.mark.parametrize(
    "file", sorted({file for row in ROWS for file in re.findall(r"`(test_\w+\.py)", row)})
)
def test_what_the_readme_promises_is_shown_for_both_fronts(file: str) -> None:
    """But for what is shown without a broker."""
    (path,) = (ROOT / "tests").rglob(file)
    assert path.parent.name == ("unit" if file == "test_address.py" else "conformance")


@pytest.mark.parametrize("row", ROWS)
def test_what_the_readme_promises_is_explained(row: str) -> None:
    assert row in GUARANTEES.splitlines()


def test_there_is_something_to_check() -> None:
    assert len(PROMISES) >= 14
    assert len(ROWS) >= 14
