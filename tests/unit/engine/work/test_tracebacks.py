"""The traceback of an error begins with the frames of the handler."""

import pytest

from rabbitdelay import Bury, InvalidJob
from rabbitdelay.duration import seconds
from rabbitdelay.engine.work.tracebacks import traceback_of


class Unprintable(Exception):
    """An error that cannot be formatted."""

    @property
    def __notes__(self) -> list[str]:  # type: ignore[override]
        raise RuntimeError("no notes")


def caught(error: BaseException) -> BaseException:
    with pytest.raises(type(error)) as raised:
        raise error
    return raised.value


def test_a_traceback_names_the_line_that_raised() -> None:
    text = traceback_of(caught(ZeroDivisionError("why")))
    assert text is not None
    assert text.endswith("ZeroDivisionError: why")
    assert "in caught" in text


def test_a_verdict_has_no_traceback() -> None:
    assert traceback_of(caught(Bury("on purpose"))) is None


def test_frames_of_this_package_are_kept_if_there_are_no_others() -> None:
    with pytest.raises(InvalidJob) as raised:
        seconds(float("nan"), what="what")
    own = raised.value.__traceback__
    assert own is not None
    text = traceback_of(raised.value.with_traceback(own.tb_next))
    assert text is not None
    assert "duration.py" in text


def test_an_error_that_cannot_be_formatted_has_no_traceback() -> None:
    assert traceback_of(Unprintable()) is None
