"""SECURITY.md: every test that it names exists."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "SECURITY.md").read_text()


def test_every_promise_names_its_tests() -> None:
    table = PAGE.split("| promise | tests |")[1].split("\n\n")[0]
    rows = [line for line in table.splitlines() if line.startswith("| ") and "---" not in line]
    assert len(rows) >= 10
    assert [row for row in rows if not re.search(r"`test_\w+\.py`", row)] == []


def test_every_named_test_exists() -> None:
    existing = {path.name for path in (ROOT / "tests").rglob("test_*.py")}
    assert set(re.findall(r"`(test_\w+\.py)`", PAGE)) <= existing


def test_every_option_in_the_page_exists() -> None:
    """A promise about an option that was renamed would be a false one."""
    sources = "".join(path.read_text() for path in (ROOT / "rabbitdelay/cli").rglob("*.py"))
    options = set(re.findall(r"`(--[a-z-]+)", PAGE))
    assert len(options) >= 4
    assert [option for option in options if f'"{option}' not in sources] == []
