"""`make test-unit` runs all tests that need no RabbitMQ, and no other."""

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support import fronts, rabbitmq_free
from tests.support.patience import patience

ROOT = Path(__file__).parents[2]
COLLECT = """
import json, sys
import pytest
from tests.support.memory import exceptions
from tests.support.rabbitmq_free import FIXTURE

class Recorder:
    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(self, items):
        self.found = {item.nodeid: describe(item) for item in items}

    def pytest_collection_finish(self, session):
        selected = {item.nodeid for item in session.items}
        found = [one | {"is_selected": id in selected} for id, one in self.found.items()]
        print("COLLECTED", json.dumps(found))

def describe(item):
    return {
        "front": str(getattr(item, "callspec", item).__dict__.get("params", {}).get("front", "")),
        "is_excepted": exceptions.reason(item) is not None,
        "is_unit": item.nodeid.startswith("tests/unit/"),
        "asks_for_rabbitmq": FIXTURE in item.fixturenames,
        "name": item.nodeid,
    }

options = ["--no-rabbitmq", "--collect-only", "-qq", "-p", "no:cacheprovider"]
sys.exit(pytest.main([*options, "tests"], plugins=[Recorder()]))
"""


@dataclass(frozen=True, slots=True)
class Found:
    """A test, before it is selected or left out."""

    name: str
    front: str
    is_excepted: bool
    is_unit: bool
    asks_for_rabbitmq: bool
    is_selected: bool


@pytest.fixture(scope="module")
def found() -> list[Found]:
    """All tests."""
    result = subprocess.run(
        [sys.executable, "-c", COLLECT],
        cwd=ROOT,
        env={name: value for name, value in os.environ.items() if "PYTEST" not in name},
        capture_output=True,
        text=True,
        timeout=patience(60),
        check=False,
    )
    assert result.returncode == 0, result.stdout[-2000:] + result.stderr
    line = next(line for line in result.stdout.splitlines() if line.startswith("COLLECTED"))
    return [Found(**one) for one in json.loads(line.removeprefix("COLLECTED"))]


def test_all_tests_on_the_broker_in_memory_are_selected(found: list[Found]) -> None:
    in_memory = set(fronts.WITH_MEMORY) - set(fronts.NAMES)
    expected = [one for one in found if one.front in in_memory and not one.is_excepted]
    assert {one.front for one in expected} == in_memory
    assert [one.name for one in expected if not one.is_selected] == []


def test_all_unit_tests_are_selected(found: list[Found]) -> None:
    unit = [one for one in found if one.is_unit]
    assert unit
    assert [one.name for one in unit if not one.is_selected] == []


def test_no_other_test_is_selected(found: list[Found]) -> None:
    others = [one for one in found if not (one.is_unit or "memory" in one.front)]
    assert others
    assert [one.name for one in others if one.is_selected] == []


def test_no_selected_test_asks_for_rabbitmq(found: list[Found]) -> None:
    assert [one.name for one in found if one.is_selected and one.asks_for_rabbitmq] == []


def test_a_selected_test_that_asks_for_rabbitmq_all_the_same_fails() -> None:
    with pytest.raises(pytest.fail.Exception, match="--no-rabbitmq"):
        rabbitmq_free.permit(is_excluded=True)
    rabbitmq_free.permit(is_excluded=False)
