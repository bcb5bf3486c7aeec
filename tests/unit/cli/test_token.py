"""`rabbitdelay token` makes a token that the line it prints accepts."""

import json
from datetime import date

import pytest
from click.testing import CliRunner, Result

from rabbitdelay.cli import root
from rabbitdelay.gateway.access.token_file import read_tokens
from rabbitdelay.gateway.access.tokens import TokenTable

TODAY = date(2027, 1, 31)


def run(*arguments: str) -> Result:
    return CliRunner().invoke(root, ["token", *arguments])


def test_the_line_accepts_the_token() -> None:
    options = ["--rights", "put,consume", "--topics", "order*", "--ids", "order-*", "--json"]
    made = json.loads(run("shop", *options, "--expires", "2027-01-31").stdout)
    found = TokenTable(read_tokens(made["line"].encode(), "line")).find(
        made["token"].encode(), TODAY
    )
    assert found is not None
    assert found.name == "shop"
    assert found.grant.covers("put", "orderclose")
    assert not found.grant.covers("admin", "orderclose")
    assert found.grant.covers_id("put", "order-17")
    assert found.last_day == TODAY
    assert made["token"] not in made["line"]


def test_the_text_shows_both_once() -> None:
    lines = run("shop", "--rights", "put").stdout.splitlines()
    (token,) = [line for line in lines if line.startswith("rdt_")]
    (line,) = [line for line in lines if line.startswith("shop put * sha256:")]
    table = TokenTable(read_tokens(line.encode(), "line"))
    assert table.find(token.encode(), TODAY) is not None


def test_two_tokens_differ() -> None:
    assert run("shop", "--rights", "put").stdout != run("shop", "--rights", "put").stdout


@pytest.mark.parametrize(
    "arguments",
    [
        ["shop"],
        ["shop", "--rights", "everything"],
        ["a b", "--rights", "put"],
        ["shop", "--rights", "put", "--topics", "a*b"],
        ["shop", "--rights", "put", "--ids", ""],
        ["shop", "--rights", "put", "--expires", "tomorrow"],
    ],
)
def test_wrong_options_make_no_token(arguments: list[str]) -> None:
    result = run(*arguments)
    assert result.exit_code == 2
    assert "rdt_" not in result.output
