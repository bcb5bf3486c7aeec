"""docs/http.md: its requests are sent to a real gateway, in their order, and answered as shown."""

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.patience import patience
from tests.support.programs.gateway_process import GatewayProcess, serving

PAGE = (Path(__file__).parents[2] / "docs" / "http.md").read_text()
END = "\x1e"
"""Ends the output of a command in the output of all."""


def commands() -> Iterator[tuple[str, str]]:
    """Yield the commands of the page for the gateway, with the output that is shown."""
    for block in re.findall(r"^```console\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE):
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, _, output = part.partition("\n")
            if not command.startswith(("pip ", "rabbitdelay ")):
                yield command, output.rstrip("\n")


@pytest.fixture
def gateway(broker_url: str, namespace: str) -> Iterator[GatewayProcess]:
    with serving(broker_url, namespace) as gateway:
        yield gateway


def test_the_page_has_a_request_for_every_route() -> None:
    text = " ".join(command for command, _ in commands())
    rows = re.findall(r"^\| \[(.*?)\]\(#", PAGE, re.MULTILINE)
    assert len(rows) > 10
    for path in ("/v1/jobs", "/v1/pop", "/v1/finish", "/v1/touch", "/v1/unrouted/retry", "/push"):
        assert f"localhost:8437{path}" in text


def test_every_request_is_answered_as_shown(gateway: GatewayProcess, tmp_path: Path) -> None:
    shown = list(commands())
    lines = [f"{command}\nprintf '\\036'" for command, _ in shown]
    script = "\n".join(lines).replace("localhost:8437", f"127.0.0.1:{gateway.port}")
    silent = script.replace("curl ", "curl -sS ")
    done = subprocess.run(
        ["bash", "-c", silent],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=patience(90),
        check=True,
    )
    assert done.stderr == ""
    outputs = done.stdout.split(END)[:-1]
    for (command, expected), output in zip(shown, outputs, strict=True):
        pattern = re.escape(expected).replace("…", ".*")
        assert re.fullmatch(pattern, output.strip(), re.DOTALL), f"{command}\n{output}"
