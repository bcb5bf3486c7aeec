"""Errors survive pickling, so that they can be sent from a handler's process."""

import pickle

import pytest

from rabbitdelay.errors import BrokerBlocked, Bury, OutcomeUnknown, PutManyFailed, Retry


@pytest.mark.parametrize(
    "error",
    [
        OutcomeUnknown("not confirmed", sent=True),
        BrokerBlocked("blocked", sent=False),
        PutManyFailed("stopped", confirmed=3, unconfirmed=[4, 5], taken=6),
        Retry("later", delay=2.5),
        Bury("why"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_every_error_survives_pickling(error: Exception) -> None:
    copy = pickle.loads(pickle.dumps(error))  # noqa: S301 - made here
    assert type(copy) is type(error)
    assert (str(copy), vars(copy)) == (str(error), vars(error))
