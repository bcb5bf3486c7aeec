"""docs/command-line.md shows what the commands print, as far as they need no broker."""

import re
import shlex
from pathlib import Path

import pytest
from click.testing import CliRunner

from rabbitdelay.cli import root

PAGE = (Path(__file__).parents[2] / "docs" / "command-line.md").read_text()
SAMPLES = dict(
    re.findall(
        r"^\$ rabbitdelay (explain .+|--url \S+:1 .+)\n((?:(?!\$|```).*\n)+)", PAGE, re.MULTILINE
    )
)
pytestmark = pytest.mark.usefixtures("nothing_set")


@pytest.mark.parametrize("command", SAMPLES)
def test_a_sample_is_what_the_command_prints(command: str) -> None:
    result = CliRunner().invoke(root, shlex.split(command))
    assert result.output == SAMPLES[command]


def test_the_page_has_samples_that_need_no_broker() -> None:
    assert len(SAMPLES) >= 2
