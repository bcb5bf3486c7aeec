"""CONTRIBUTING.md: its map has every file of the package, and the files that it names exist."""

import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "rabbitdelay"
PAGE = (ROOT / "CONTRIBUTING.md").read_text()
PROSE, MAP = PAGE.partition("## The map\n")[0], PAGE.split("## The map\n")[1].split("```")[1]


def mapped_lines() -> Iterator[tuple[str, str]]:
    """Return every path of the map with its description. A folder stands for its `__init__.py`."""
    folder = ""
    for line in filter(None, MAP.splitlines()):
        name, _, phrase = line.strip().partition(" ")
        folder = folder if line.startswith(" ") else name
        yield (f"{folder}{name}" if line.startswith(" ") else f"{name}__init__.py"), phrase.strip()


MAPPED = dict(mapped_lines())


def test_the_map_has_every_file_of_the_package() -> None:
    files = {str(path.relative_to(ROOT)) for path in PACKAGE.rglob("*.py")}
    assert sorted(files - MAPPED.keys()) == [], "add these to the map in CONTRIBUTING.md"


def test_every_file_on_the_map_exists() -> None:
    missing = [path for path in MAPPED if not (ROOT / path).exists()]
    assert missing == [], "remove these from the map in CONTRIBUTING.md"


def test_no_file_is_on_the_map_twice() -> None:
    assert len(MAPPED) == len(list(mapped_lines()))


def test_every_file_of_core_and_engine_has_a_phrase() -> None:
    rooms = ("rabbitdelay/core/", "rabbitdelay/engine/")
    assert [path for path, phrase in MAPPED.items() if path.startswith(rooms) and not phrase] == []


def test_every_file_named_before_the_map_exists() -> None:
    """The sections on a put, a delivery and a delete, and the questions."""
    named = set(re.findall(r"`([\w./]+\.py)`", PROSE))
    existing = [
        str(path) for folder in ("rabbitdelay", "tests") for path in ROOT.glob(f"{folder}/**/*.py")
    ]
    assert len(named) >= 30
    assert [name for name in named if not any(path.endswith(f"/{name}") for path in existing)] == []


def test_every_member_named_before_the_map_exists() -> None:
    texts = [path.read_text() for path in PACKAGE.rglob("*.py")]
    named = set(re.findall(r"`([A-Z]\w+)\.([a-z]\w*)`", PROSE))
    assert len(named) >= 5
    for kind, member in named:
        defined = rf"^class {kind}\b(?s:.*)(def |self\.){member}\b"
        assert any(re.search(defined, text, re.MULTILINE) for text in texts), f"{kind}.{member}"


def test_every_method_named_before_the_map_exists() -> None:
    for kind, method, file in re.findall(r"`(\w+)\.(\w+)` in `([\w/]+\.py)`", PROSE):
        text = (PACKAGE / file).read_text()
        assert f"class {kind}" in text, file
        assert f"def {method}(" in text, file
