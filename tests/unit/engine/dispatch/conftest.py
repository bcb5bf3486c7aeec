"""A stage for workers whose handlers the test ends."""

from collections.abc import Iterator

import pytest

from tests.support.memory.manual_worker import WorkerStage


@pytest.fixture
def stage() -> Iterator[WorkerStage]:
    with WorkerStage() as stage:
        yield stage
