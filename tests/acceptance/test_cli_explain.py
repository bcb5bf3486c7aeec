"""`rabbitdelay explain`, which needs no broker."""

import json

import pytest
from click.testing import CliRunner

from rabbitdelay.cli import root

pytestmark = pytest.mark.usefixtures("nothing_set")


def explain(*arguments: str) -> str:
    result = CliRunner().invoke(root, ["explain", *arguments])
    assert result.exit_code == 0, result.output
    return result.stdout


def test_explain_draws_the_hops_of_a_delay() -> None:
    assert (
        explain("1h30m")
        == """\
1h30m is kept exactly, in 2 hops

      y     mo      d      h      m      s     ds     cs
      0      0      0      1     30      0      0      0

          ┌────┐   ┌─────┐
  put ──▶ │ 1h ├─▶ │ 30m ├─▶ ready
          └────┘   └─────┘

  hold queue   rabbitdelay.v1.hold.1h
  hold queue   rabbitdelay.v1.hold.30m
  exchange     rabbitdelay.v1.hold.1h
  routing key  0.0.0.1.30.0.0.0.<topic>
  rounding     none; delays of this length are kept to 1s
"""
    )


@pytest.mark.parametrize(
    ("delay", "headline", "rounding"),
    [
        ("59.995s", "59s995ms is kept as 1m, in 1 hop", "up by 5ms, to the next 10ms"),
        ("2h0.5s", "2h500ms is kept as 2h1s, in 2 hops", "up by 500ms, to the next 1s"),
    ],
)
def test_explain_shows_the_requested_and_the_rounded_delay(
    delay: str, headline: str, rounding: str
) -> None:
    text = explain(delay)
    assert text.startswith(headline)
    assert rounding in text


def test_a_job_without_a_delay_goes_straight_to_ready() -> None:
    assert "put ──▶ ready" in explain("0")


def test_the_longest_picture_fits_80_columns() -> None:
    assert max(map(len, explain("3239d23h59m59s").splitlines())) <= 80


def test_explain_prints_json() -> None:
    assert json.loads(explain("250ms", "--json")) == {
        "asked_ms": 250,
        "kept_ms": 250,
        "grain_ms": 10,
        "digits": {"y": 0, "mo": 0, "d": 0, "h": 0, "m": 0, "s": 0, "ds": 2, "cs": 5},
        "hops": [
            {"hold_queue": "rabbitdelay.v1.hold.200ms", "hold_ms": 200},
            {"hold_queue": "rabbitdelay.v1.hold.50ms", "hold_ms": 50},
        ],
        "exchange": "rabbitdelay.v1.hold.200ms",
        "routing_key": "0.0.0.0.0.0.2.5.<topic>",
    }
