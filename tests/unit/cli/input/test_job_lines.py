"""Positions in a batch are reported as line numbers of the file."""

from rabbitdelay.cli.input.job_lines import JobLines
from rabbitdelay.errors import OutcomeUnknown, PutManyFailed


def read(text: str) -> JobLines:
    lines = JobLines(
        text.encode().splitlines(keepends=True), default_topic="t", on_line=lambda _: None
    )
    assert list(lines)
    return lines


def test_empty_lines_are_skipped_but_counted() -> None:
    lines = read('\n{"body": 0}\n\n\n{"body": 1}\n{"body": 2}\n')
    assert [lines.line_of(position) for position in range(3)] == [2, 5, 6]


def test_a_failure_lists_the_ranges_of_lines() -> None:
    lines = read('{"body": 0}\n' * 9)
    failure = PutManyFailed("", confirmed=5, unconfirmed=[2, 3, 6], taken=8)
    failure.__cause__ = OutcomeUnknown("not confirmed in time", sent=True)
    assert str(lines.explain(failure)) == (
        "line 3: not confirmed in time; confirmed: line 1-2, 5-6, 8; "
        "not confirmed: line 3-4, 7; nothing after line 8 was sent"
    )


def test_when_the_first_line_fails_none_is_confirmed() -> None:
    lines = read('{"body": 0}\n')
    failure = PutManyFailed("", confirmed=0, unconfirmed=[0], taken=1)
    assert "confirmed: none; not confirmed: line 1;" in str(lines.explain(failure))


def test_the_default_topic_applies_only_to_lines_without_a_topic() -> None:
    lines = JobLines([b'{"topic": "mail"}', b"{}"], default_topic="t", on_line=lambda _: None)
    assert [spec.topic for spec in lines] == ["mail", "t"]
