"""Requests that schemathesis generates from the OpenAPI document are answered as it describes."""

import json
import logging
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import urlencode

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from tests.support.asgi import Answer
from tests.support.gateway.memory_gateway import check
from tests.support.gateway.tried_gateway import TriedGateway, assert_answered, assert_clean

schemathesis = pytest.importorskip("schemathesis", reason="it is not in `make test-lowest`")


@pytest.fixture(scope="module")
def gateway() -> Iterator[TriedGateway]:
    with TriedGateway() as running:
        yield running


@pytest.mark.parametrize("mode", ["positive", "negative"])
def test_every_operation_answers_as_described(
    gateway: TriedGateway, caplog: pytest.LogCaptureFixture, mode: str
) -> None:
    """A request that breaks the schema may be answered well: schemas cannot say everything."""
    caplog.set_level(logging.DEBUG, "rabbitdelay")
    schema = schemathesis.openapi.from_dict(gateway.document)
    operations = [found.ok() for found in schema.get_all_operations()]
    assert len(operations) > 20
    for operation in operations:
        try_out(gateway, operation, schemathesis.GenerationMode(mode))
    assert_clean(caplog.get_records("call"))


def try_out(gateway: TriedGateway, operation: Any, mode: Any) -> None:  # noqa: ANN401 - untyped
    """Send some requests to an operation."""

    @settings(
        max_examples=20,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
        database=None,
    )
    @given(operation.as_strategy(generation_mode=mode) | st.none())
    def send(case: Any) -> None:  # noqa: ANN401 - untyped
        if case is None:  # for an operation that no request can break
            return
        answer = send_case(gateway, case)
        assert_answered(answer)
        check(gateway.document, case.method, case.formatted_path, answer)

    send()


def send_case(gateway: TriedGateway, case: Any) -> Answer:  # noqa: ANN401 - untyped
    """Send a generated request."""
    query: Mapping[str, Any] = case.query if isinstance(case.query, Mapping) else {}
    text = urlencode({name: str(value) for name, value in query.items()}, errors="replace")
    request = case.as_transport_kwargs(base_url="http://localhost")
    content = request.get("json", request.get("data", b""))
    body = content if isinstance(content, bytes) else json.dumps(content, default=str).encode()
    path = case.formatted_path + (f"?{text}" if text else "")
    headers = {"Content-Type": case.media_type or ""}
    return gateway.send(case.method, path, body, headers)
