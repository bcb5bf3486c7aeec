"""Values of AMQP headers as the command line shows them."""

from rabbitdelay.cli.output.amqp_values import plain
from rabbitdelay.core.amqp.field_table import Encoded, ScaledInteger, Timestamp


def test_header_values_are_displayed_as_json() -> None:
    value = {
        "when": Timestamp(0),
        "never": Timestamp(2**63),
        "price": ScaledInteger(2, -5),
        "unknown": Encoded(b"?\x01"),
        "half": 0.5,
        "void": None,
        "wrong": "\udcff",
        "raw": b"\xff",
        "text": b"a",
        "deep": [{1: 2}],
    }
    assert plain(value) == {
        "when": "1970-01-01T00:00:00.000Z",
        "never": "9223372036854775808000 ms since 1970",
        "price": "-0.05",
        "unknown": "0x3f01",
        "half": 0.5,
        "void": None,
        "wrong": "ff",
        "raw": "ff",
        "text": "a",
        "deep": [{"1": 2}],
    }
