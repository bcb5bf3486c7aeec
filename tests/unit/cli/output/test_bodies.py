"""Bodies as the command line shows them."""

import pytest

from rabbitdelay.cli.output.bodies import body_lines


@pytest.mark.parametrize(
    ("body", "lines"),
    [
        (b"", []),
        (b'{"a": [1, 0.5]}', ["{", '  "a": [', "    1,", "    0.5", "  ]", "}"]),
        ('"ü"'.encode(), ['"ü"']),
        (b"[1.10]", ["[1.10]"]),  # indented, it would be a different text
        (b"[NaN]", ["[NaN]"]),
        (b"[" * 100_000, ["[" * 100_000]),
        (b"one\ttwo\r\nthree", ["one two", "three"]),
        ("a\x9b31mred".encode(), ["a·31mred"]),
        (b"\x1b[31m", ["0000  1b 5b 33 31 6d" + " " * 35 + "·[31m"]),
        (b"\xff" * 17, [f"0000  {'ff ' * 16} {'·' * 16}", f"0010  ff{' ' * 47}·"]),
    ],
    ids=lambda value: repr(value)[:20],
)
def test_a_body_is_displayed_by_its_content_type(body: bytes, lines: list[str]) -> None:
    assert body_lines(body) == lines


def test_a_long_body_in_hex_is_truncated() -> None:
    lines = body_lines(b"\x00" * 1_000)
    assert len(lines) == 17
    assert lines[-1] == "… and 744 bytes more"
