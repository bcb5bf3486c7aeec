"""docs/any-language.md agrees with the code: its programs, paths, statuses and settings."""

import re
from http import HTTPStatus
from pathlib import Path

import pytest

from rabbitdelay.gateway import GatewayApp, GatewaySettings, problems
from rabbitdelay.gateway.server import DEFAULT_PORT
from rabbitdelay.models import DEFAULT_TTR_MS

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "any-language.md").read_text()
PROGRAMS = {"jobs.php": "php", "jobs.mjs": "js", "Jobs.java": "java", "jobs.sh": "sh"}


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_programs_are_the_files_that_the_tests_run(name: str) -> None:
    program = (ROOT / "examples" / "http" / name).read_text()
    assert f"`{name}`:\n\n```{PROGRAMS[name]}\n{program}```\n" in PAGE
    assert len(program.splitlines()) < 150


def test_every_example_is_on_the_page() -> None:
    assert {path.name for path in (ROOT / "examples" / "http").iterdir()} == PROGRAMS.keys()


def test_every_request_on_the_page_is_in_the_api() -> None:
    named = re.findall(r"^\| `([A-Z]+) (/v1/[^`]*)` ", PAGE, re.MULTILINE)
    paths = GatewayApp("amqp://localhost").openapi["paths"]
    assert len(named) == 9
    for method, path in named:
        assert method.lower() in paths[path.replace("ID", "{id}")]


def test_every_status_of_an_error_is_on_the_page() -> None:
    """Statuses of administration, and faults of the server, need no advice of their own."""
    rows = re.findall(r"^\| ([0-9][^|]*)\|", PAGE.partition("## Ids")[0], re.MULTILINE)
    named = {int(status) for row in rows for status in re.findall(r"\d{3}", row)}
    elsewhere = {
        HTTPStatus.NOT_FOUND,
        HTTPStatus.METHOD_NOT_ALLOWED,
        HTTPStatus.GONE,
        HTTPStatus.INTERNAL_SERVER_ERROR,
    }
    assert {kind.status for kind in problems.KINDS.values()} - elsewhere <= named


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_programs_repeat_what_the_page_says(name: str) -> None:
    program = (ROOT / "examples" / "http" / name).read_text()
    assert f"http://localhost:{DEFAULT_PORT}" in program
    for variable in re.findall(r"^\| `(RABBITDELAY_[A-Z]+)`", PAGE, re.MULTILINE):
        assert variable in program
    if name != "jobs.sh":  # curl knows the statuses
        assert re.search(r"202, 429, 502, 503, 504", program)


def test_the_times_on_the_page_are_the_defaults() -> None:
    settings = GatewaySettings()
    assert f"up to `--max-wait`, {settings.max_wait:g} seconds by default" in PAGE
    assert f"`--grace`, {settings.grace:g} seconds by default" in PAGE.replace("\n  ", " ")
    assert f"for its ttr, {DEFAULT_TTR_MS // 1000} seconds by default" in PAGE
    for timeout in re.findall(r"(?:proxy_read_timeout|timeout (?:client|server)) (\d+)s", PAGE):
        assert int(timeout) > settings.max_wait
