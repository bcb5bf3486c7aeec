"""The token file: its lines, its errors, and what a reload keeps."""

import logging
from datetime import date
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rabbitdelay.errors import InvalidConfiguration
from rabbitdelay.gateway.access import token_file
from rabbitdelay.gateway.access.token_file import (
    ENVIRONMENT_VARIABLE,
    TokenFile,
    line_of,
    read_tokens,
    tokens_of_environment,
)
from rabbitdelay.gateway.access.tokens import digest_of

SECRET = "rdt_a-token-that-must-not-be-shown"  # noqa: S105 - a token of a test
HASH = f"sha256:{digest_of(SECRET.encode()).hex()}"
OTHER_HASH = f"sha256:{digest_of(b'other').hex()}"
LINE = f"shop put,consume order*,mail {HASH}"
TODAY = date(2027, 1, 31)


def write(path: Path, *lines: str, mode: int = 0o600) -> Path:
    path.write_text("\n".join(lines))
    path.chmod(mode)
    return path


def test_a_file_has_comments_blank_lines_and_tokens(tmp_path: Path) -> None:
    path = write(tmp_path / "tokens", "# shop", "", f"  {LINE}  # new", f"ops admin * {OTHER_HASH}")
    table = TokenFile(path).table
    found = table.find(SECRET.encode(), TODAY)
    assert len(table) == 2
    assert found is not None
    assert found.name == "shop"
    assert found.grant.rights == {"put", "consume"}
    assert found.grant.topics.texts == ("order*", "mail")


def test_a_line_has_options() -> None:
    (token,) = read_tokens(f"{LINE} expires=2027-01-31 ids=order-*,a".encode(), "tokens")
    assert token.last_day == TODAY
    assert token.grant.ids.texts == ("order-*", "a")


def test_a_token_written_as_a_line_reads_back() -> None:
    for line in (LINE, f"{LINE} ids=order-* expires=2027-01-31"):
        (token,) = read_tokens(line.encode(), "tokens")
        assert read_tokens(line_of(token).encode(), "tokens") == (token,)


WRONG_LINES = [
    f"shop put mail {SECRET}",
    f"shop put mail {SECRET[4:]}",
    f"{SECRET} put mail {HASH}",
    f"shop put {SECRET} {HASH}",
    f"shop {SECRET} mail {HASH}",
    f"{SECRET}! put mail {HASH}",
    f"shop put mail {HASH} {SECRET}",
    f"shop put mail {HASH} expires={SECRET}",
    f"shop put mail {HASH} ids={SECRET}*x",
    f"shop put mail {HASH} ids=a ids={SECRET}",
    f"shop put {SECRET}",
    SECRET,
    f"shop put mail sha256:{SECRET}",
    f"shop put mail {HASH[:-1]}",
    f"shop put mail {HASH.upper()}",
]


@pytest.mark.parametrize("line", WRONG_LINES)
def test_a_wrong_line_is_named_and_not_shown(line: str) -> None:
    content = f"# comment\n{line}\n".encode()
    with pytest.raises(InvalidConfiguration, match=r"^tokens, line 2: ") as refused:
        read_tokens(content, "tokens")
    assert SECRET[4:] not in str(refused.value)
    assert refused.value.__cause__ is None


def test_a_token_is_listed_once() -> None:
    with pytest.raises(InvalidConfiguration, match="lines 1 and 3: same token twice"):
        read_tokens(f"{LINE}\n\nother admin * {HASH}".encode(), "tokens")


@pytest.mark.parametrize("content", [b"", b"\n", b"# only a comment"])
def test_an_empty_list_is_refused(content: bytes) -> None:
    """It must neither open the gateway nor lock every caller out."""
    with pytest.raises(InvalidConfiguration, match="no tokens"):
        read_tokens(content, "tokens")


@given(st.binary(max_size=300))
def test_any_content_is_read_or_refused(content: bytes) -> None:
    try:
        read_tokens(content, "tokens")
    except InvalidConfiguration:
        pass
    else:
        pytest.fail("random bytes were read as a token")


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidConfiguration, match="missing: No such file"):
        TokenFile(tmp_path / "missing")


def test_a_huge_file_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(token_file, "MAX_FILE_BYTES", 100)
    with pytest.raises(InvalidConfiguration, match="more than 100 bytes"):
        TokenFile(write(tmp_path / "tokens", LINE, "#" * 100))


def test_a_reload_takes_new_tokens_and_drops_old_ones(tmp_path: Path) -> None:
    path = write(tmp_path / "tokens", LINE)
    tokens = TokenFile(path)
    write(path, f"shop put mail {OTHER_HASH}")
    assert tokens.reload()
    assert tokens.table.find(b"other", TODAY) is not None
    assert tokens.table.find(SECRET.encode(), TODAY) is None


@pytest.mark.parametrize("line", ["", f"shop put mail {SECRET}"], ids=["empty", "wrong"])
def test_a_wrong_file_keeps_the_tokens(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, line: str
) -> None:
    path = write(tmp_path / "tokens", LINE)
    tokens = TokenFile(path)
    write(path, line)
    assert not tokens.reload()
    assert tokens.table.find(SECRET.encode(), TODAY) is not None
    assert "not reloaded" in caplog.text
    assert SECRET not in caplog.text


def test_a_file_that_is_gone_keeps_the_tokens(tmp_path: Path) -> None:
    path = write(tmp_path / "tokens", LINE)
    tokens = TokenFile(path)
    path.unlink()
    assert not tokens.reload()
    assert len(tokens.table) == 1


@pytest.mark.parametrize(
    ("mode", "warnings"),
    [(0o600, []), (0o640, []), (0o604, ["can read"]), (0o660, ["can change"]), (0o602, ["change"])],
)
def test_a_file_open_to_others_is_warned_of(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, mode: int, warnings: list[str]
) -> None:
    TokenFile(write(tmp_path / "tokens", LINE, mode=mode))
    messages = [one.getMessage() for one in caplog.records if one.levelno == logging.WARNING]
    assert len(messages) == len(warnings)
    assert all(text in message for text, message in zip(warnings, messages, strict=True))


@pytest.mark.parametrize("separator", ["\n", ";", " ; "])
def test_the_environment_has_the_same_lines(
    monkeypatch: pytest.MonkeyPatch, separator: str
) -> None:
    monkeypatch.setenv(ENVIRONMENT_VARIABLE, separator.join([LINE, f"ops admin * {OTHER_HASH}"]))
    table = tokens_of_environment()
    assert table is not None
    assert len(table) == 2


def test_without_the_variable_the_environment_has_no_tokens(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv(ENVIRONMENT_VARIABLE, raising=False)
    assert tokens_of_environment() is None


def test_an_empty_variable_is_not_taken_for_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(ENVIRONMENT_VARIABLE, "")
    with pytest.raises(InvalidConfiguration, match="no tokens"):
        tokens_of_environment()


def test_an_error_in_the_environment_does_not_show_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(ENVIRONMENT_VARIABLE, f"shop put mail {SECRET}")
    with pytest.raises(InvalidConfiguration, match=ENVIRONMENT_VARIABLE) as refused:
        tokens_of_environment()
    assert SECRET not in str(refused.value)
