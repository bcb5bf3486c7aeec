"""Additional headers of a job: which are refused, and that the others round-trip."""

from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rabbitdelay import InvalidJob, JobSpec
from rabbitdelay.core.amqp import field_table
from rabbitdelay.core.jobs import envelope, headers, validation

NAMES = st.text(min_size=1, max_size=40).filter(lambda name: not headers.is_reserved(name))
SIMPLE = (
    st.none()
    | st.booleans()
    | st.integers(-(1 << 63), (1 << 63) - 1)
    | st.floats(allow_nan=False)
    | st.text(max_size=20)
    | st.binary(max_size=20)
)
VALUES = st.recursive(
    SIMPLE,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text(min_size=1, max_size=9), inner, max_size=3)
    ),
    max_leaves=5,
)


def _nested(depth: int) -> list[Any]:
    nested: list[Any] = []
    for _ in range(depth):
        nested = [nested]
    return nested


@given(st.dictionaries(NAMES, VALUES, max_size=5))
def test_headers_round_trip(given_headers: dict[str, Any]) -> None:
    """Together with ours and the broker's, after encoding and decoding."""
    spec = JobSpec("t", headers=given_headers)
    job = validation.make_job(
        spec, now_ms=0, random_hex="0" * validation.RANDOM_HEX_DIGITS, bounds=validation.Bounds()
    )
    message = envelope.encode(job)
    encoded = field_table.encode({**message.headers, "x-death": [], "rd-error": "x", "CC": []})
    message.headers = field_table.decode(encoded, 0, len(encoded))
    back = envelope.decode(message, topic="t", now_ms=0, random_hex="")
    assert back.headers == job.headers == given_headers
    assert validation.same_at(back, delay=0, at=None).headers == given_headers
    assert isinstance(hash(back), int)


@pytest.mark.parametrize(
    "wrong",
    [
        {"rd-due": 1},
        {"rd-mine": 1},
        {"x-delay": 1},
        {"CC": ["elsewhere"]},
        {"BCC": ["elsewhere"]},
    ],
)
def test_reserved_names_are_refused(wrong: dict[str, Any]) -> None:
    (name,) = wrong
    with pytest.raises(InvalidJob, match=f"header '{name}' is reserved"):
        headers.check(wrong)


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ({"at": datetime.now(UTC)}, "the value of header 'at' must be str, int"),
        ({"n": 1 << 63}, "the value of header 'n'"),
        ({"deep": {"n": object()}}, "the value of header 'deep'"),
        ({"deep": {1: 1}}, "the value of header 'deep'"),
        ({"deep": _nested(60)}, "nested too deep"),
        ({"deep": _nested(3_000)}, "header 'deep'"),
        ({"half": "\ud800"}, "header 'half' cannot be sent"),
        ({"": 1}, "non-empty str"),
        ({1: 1}, "non-empty str"),
        ({"n" * 129: 1}, "at most 128 bytes"),
        ({"large": "x" * headers.MAX_BYTES}, "move data to the body"),
        (["trace-id"], "must be a mapping, not list"),
    ],
)
def test_values_that_cannot_be_sent_are_refused(wrong: Any, why: str) -> None:  # noqa: ANN401 - wrong
    with pytest.raises(InvalidJob, match=why):
        headers.check(wrong)
