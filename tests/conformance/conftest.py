"""The conformance suite: what is promised is shown for both fronts, by the same code."""

from collections.abc import Iterator

import pytest

from tests.support import fronts
from tests.support.fronts import Front, front_named


@pytest.fixture(params=fronts.NAMES)
def front(request: pytest.FixtureRequest) -> Iterator[Front]:
    """One front after the other."""
    with front_named(request.param) as front:
        yield front
