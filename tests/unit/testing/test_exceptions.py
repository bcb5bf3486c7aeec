"""The exceptions of the broker in memory name tests that exist."""

import ast
from pathlib import Path

from tests.support.memory import exceptions

CONFORMANCE = Path(__file__).parents[2] / "conformance"
FILES = {path.name: path for path in CONFORMANCE.rglob("test_*.py")}


def test_every_excepted_file_exists() -> None:
    assert exceptions.FILES.keys() <= FILES.keys()


def test_every_excepted_test_exists() -> None:
    for name in exceptions.TESTS:
        file, _, test = name.partition("::")
        nodes = ast.walk(ast.parse(FILES[file].read_text()))
        assert test in {node.name for node in nodes if isinstance(node, ast.FunctionDef)}


def test_every_excepted_fixture_is_used() -> None:
    texts = [path.read_text() for path in FILES.values()]
    for fixture in exceptions.FIXTURES:
        assert any(fixture in text for text in texts), fixture
