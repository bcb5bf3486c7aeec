"""A stage for pops whose callers the test plays."""

from collections.abc import Iterator

import pytest

from tests.support.memory.manual_worker import WorkerStage
from tests.support.memory.stepped_client import SteppedClient


@pytest.fixture
def stage() -> Iterator[WorkerStage]:
    with WorkerStage() as stage:
        yield stage


@pytest.fixture
def client(stage: WorkerStage) -> Iterator[SteppedClient]:
    with SteppedClient(stage) as client:
        yield client
