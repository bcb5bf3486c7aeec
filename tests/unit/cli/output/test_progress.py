"""Progress bars on a terminal."""

from io import BytesIO

import pytest

from rabbitdelay.cli.output.progress import reading


class Typed(BytesIO):
    """Lines that a person types on a terminal."""

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(("file", "is_drawn"), [(BytesIO(), True), (Typed(), False)])
def test_no_progress_bar_is_drawn_over_typed_lines(
    file: BytesIO,
    is_drawn: bool,  # noqa: FBT001 - parametrized
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")  # rich takes stderr for a terminal
    monkeypatch.setenv("TERM", "xterm")
    with reading(file, "confirmed", at_first="waiting"):
        pass
    assert ("waiting" in capsys.readouterr().err) is is_drawn
