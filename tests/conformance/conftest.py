"""The conformance suite: tests of the product's promises, run against both front ends."""

from collections.abc import Iterator

import pytest

from tests.support import fronts
from tests.support.fronts import Front, front_named


@pytest.fixture(params=fronts.NAMES)
def front(request: pytest.FixtureRequest) -> Iterator[Front]:
    """Each front end in turn."""
    with front_named(request.param) as front:
        yield front
