"""The tests of the conformance suite that the broker in memory is excepted from, with the reasons.

This is the only place for them. An entry that no test matches any more fails
tests/unit/testing/test_exceptions.py.
"""

from pathlib import PurePath

import pytest

FIXTURES = {
    "breakable_broker": "kills or suspends the process of a broker",
    "start_private_broker": "needs a cluster, or a broker with other settings",
    "shared_broker": "needs the management API",
}
"""Fixtures whose tests are excepted."""
FILES = {
    "test_starting_broker.py": "is about TCP connections that are closed during the handshake",
    "test_refusals.py": "needs a broker process of its own, with TLS, users and alarms",
}
"""Files whose tests are excepted."""
TESTS = {
    "test_pop.py::test_pops_leave_no_state_behind": "counts the timers of the drivers",
}
"""Tests that are excepted, by file and name."""


def reason(item: pytest.Item) -> str | None:
    """Return why a test cannot run against the broker in memory; None if it can."""
    file = PurePath(item.path).name
    name = getattr(item, "originalname", item.name)
    found = FILES.get(file) or TESTS.get(f"{file}::{name}")
    fixtures = getattr(item, "fixturenames", ())
    return found or next((FIXTURES[one] for one in FIXTURES if one in fixtures), None)
