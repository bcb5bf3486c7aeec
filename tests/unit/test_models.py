"""JobLine: reading jobs from a file."""

from datetime import timedelta

import pytest
from pydantic import ValidationError

from rabbitdelay.models import JobLine, JobSpec


def test_a_line_becomes_a_spec() -> None:
    line = '{"topic": "mail", "body": {"n": 1}, "delay": "1h30m", "ttr": 5, "id": "m-1"}'
    assert JobLine.model_validate_json(line).spec() == JobSpec(
        "mail", {"n": 1}, delay=timedelta(minutes=90), ttr=timedelta(seconds=5), id="m-1"
    )


@pytest.mark.parametrize(
    "line",
    [
        "{}",
        '{"topic": "mail", "dealy": 5}',
        '{"topic": "mail", "delay": "soon"}',
        '{"topic": "mail", "delay": [5]}',
        '{"topic": "mail", "delay": 1e300}',
        f'{{"topic": "mail", "delay": {"9" * 400}}}',
        f'{{"topic": "mail", "delay": "{"9" * 400}h"}}',
        '{"topic": "mail", "at": "2027-01-01T00:00:00"}',
        "not json",
    ],
)
def test_an_invalid_line_is_refused(line: str) -> None:
    with pytest.raises(ValidationError):
        JobLine.model_validate_json(line)
