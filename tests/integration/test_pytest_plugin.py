"""The pytest plugin, in a project of its own."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROJECT = """
import sys

from rabbitdelay import Worker

closed = []
worker = Worker("amqp://nowhere.invalid")


@worker.handler("orderclose")
def close(body):
    closed.append(body["order"])


def test_in_memory(rabbitdelay_memory):
    closed.clear()
    client, _ = rabbitdelay_memory.client(), rabbitdelay_memory.run(worker)
    client.put("orderclose", {"order": 42}, delay=1800)
    rabbitdelay_memory.advance(minutes=30)
    assert closed == [42]


def test_on_rabbitmq(rabbitdelay_broker):
    closed.clear()
    client, _ = rabbitdelay_broker.client(), rabbitdelay_broker.run(worker)
    job = client.put("orderclose", {"order": 42}, reply=True)
    assert client.response(job, wait=30) is not None
    assert closed == [42]
    assert not client.topology.namespace == "rabbitdelay"
"""
UNUSED = """
import sys


def test_nothing():
    assert not [name for name in sys.modules if name.split(".")[0] in ("rabbitdelay", "pika")]
"""


def run_project(tmp_path: Path, text: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run pytest in a project that has the plugin and no other configuration."""
    (tmp_path / "test_project.py").write_text(text)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    command = [sys.executable, "-m", "pytest", "-q", str(tmp_path)]
    path = {"PYTHONPATH": str(ROOT)}
    return subprocess.run(
        command,
        cwd=tmp_path,
        env=os.environ | path | environment,
        capture_output=True,
        text=True,
        check=False,
    )


def test_nothing_is_imported_unless_a_fixture_is_used(tmp_path: Path) -> None:
    done = run_project(tmp_path, UNUSED)
    assert done.returncode == 0, done.stdout


def test_tests_run_in_memory_and_on_rabbitmq(tmp_path: Path, broker_url: str) -> None:
    done = run_project(tmp_path, PROJECT, RABBITDELAY_TEST_URL=broker_url)
    assert done.returncode == 0, done.stdout
    assert "2 passed" in done.stdout


@pytest.mark.parametrize("fixture", ["rabbitdelay_memory", "rabbitdelay_broker"])
def test_the_fixtures_are_described(tmp_path: Path, fixture: str) -> None:
    command = [sys.executable, "-m", "pytest", "--fixtures", "-q"]
    done = subprocess.run(
        command,
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert fixture in done.stdout
