"""The OpenAPI document: complete, and true to the code."""

import ast
import json
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import rabbitdelay.gateway
from rabbitdelay.gateway import GatewayApp
from rabbitdelay.gateway.bodies import put_requests, raw_json, reader
from rabbitdelay.gateway.bodies.answer_schemas import ProblemAnswer
from rabbitdelay.gateway.bodies.fields import Request
from rabbitdelay.gateway.examples import ANSWERS, REQUESTS
from rabbitdelay.gateway.http import slow_requests
from rabbitdelay.gateway.openapi import OPERATIONS
from rabbitdelay.gateway.problems import KINDS, Refusal
from rabbitdelay.models import JSON
from tests.support.gateway.memory_gateway import MemoryGateway, run

FOLDER = Path(rabbitdelay.gateway.__file__).parent


@cache
def document() -> dict[str, Any]:
    return GatewayApp("amqp://nowhere.invalid").openapi


def operations() -> Iterator[tuple[str, str, dict[str, Any]]]:
    for path, item in document()["paths"].items():
        for method, operation in item.items():
            yield path, method, operation


def references(value: object) -> Iterator[str]:
    if isinstance(value, dict):
        if "$ref" in value:
            yield value["$ref"]
        for item in value.values():
            yield from references(item)
    elif isinstance(value, list):
        for item in value:
            yield from references(item)


def subclasses(kind: type[Refusal]) -> Iterator[type[Refusal]]:
    for one in kind.__subclasses__():
        yield one
        yield from subclasses(one)


def test_the_document_is_served() -> None:
    async def scenario(gateway: MemoryGateway) -> None:
        answer = await gateway.get("/openapi.json")
        assert answer.status == 200
        assert answer.json["openapi"] == "3.1.0"
        assert answer.json["paths"] == json.loads(json.dumps(document()["paths"]))

    run(scenario)


def test_every_route_is_described() -> None:
    described = {(path, method) for path, method, _ in operations()}
    assert described == set(routes_in_the_code())
    assert len(described) == len(OPERATIONS)


def routes_in_the_code() -> Iterator[tuple[str, str]]:
    """Yield path and method of each route, as the decorators have them."""
    for file in [*FOLDER.glob("routes/*.py"), *FOLDER.glob("seeds/*.py")]:
        text = file.read_text()
        prefix = re.search(r'APIRouter\(prefix="([^"]*)"', text)
        for method, path in re.findall(r'@router\.(\w+)\("([^"]*)"', text):
            yield f"{prefix[1] if prefix else ''}{path}", method


def test_every_route_asks_who_calls_except_those_of_health() -> None:
    for file in [*FOLDER.glob("routes/*.py"), *FOLDER.glob("seeds/*.py")]:
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.AsyncFunctionDef) and any(
                "router." in ast.unparse(one) for one in node.decorator_list
            ):
                names = {one.arg for one in node.args.args}
                assert ("caller" in names) is (file.name != "health.py"), node.name


def test_every_operation_has_a_name_a_summary_and_a_description() -> None:
    for path, _, operation in operations():
        assert re.fullmatch(r"[a-z][A-Za-z]+", operation["operationId"]), path
        assert 3 < len(operation["summary"]) < 100
        assert not operation["summary"].endswith(".")
        assert operation["description"]
        assert operation["tags"]
    names = [operation["operationId"] for _, _, operation in operations()]
    assert len(names) == len(set(names))


def test_every_parameter_of_a_path_is_described() -> None:
    for path, _, operation in operations():
        names = set(re.findall(r"{(\w+)}", path))
        parameters = operation.get("parameters", [])
        assert names == {one["name"] for one in parameters if one["in"] == "path"}
        for one in parameters:
            assert one["schema"]
            assert one.get("description") or one["in"] == "path", (path, one)


def test_every_reference_leads_somewhere() -> None:
    found = set(references(document()))
    assert len(found) > 30
    for reference in found:
        value: Any = document()
        for name in reference.removeprefix("#/").split("/"):
            value = value[name]


def test_no_schema_is_unused() -> None:
    used = {reference.rpartition("/")[2] for reference in references(document())}
    components = document()["components"]
    assert {*components["schemas"], *components["responses"]} == used


def test_every_status_that_an_error_has_is_described_with_an_example() -> None:
    assert slow_requests.__name__  # its refusals are known when it is imported
    responses = document()["components"]["responses"]
    statuses = {kind.status for kind in KINDS.values()}
    statuses |= {kind.kind.status for kind in subclasses(Refusal)}
    statuses -= {405}  # no operation has it: it says that there is none
    assert {f"Problem{status}" for status in statuses | {202}} == set(responses)
    for response in responses.values():
        (content,) = response["content"].values()
        ProblemAnswer.model_validate(content["example"])


def test_only_health_needs_no_token() -> None:
    public = {path for path, _, operation in operations() if operation.get("security") == []}
    assert public == {"/healthz", "/readyz"}
    assert document()["security"][0] == {"bearer": []}
    assert document()["components"]["securitySchemes"]["bearer"]["scheme"] == "bearer"


def test_every_request_and_every_answer_in_json_has_an_example() -> None:
    asked = {operation for operation, _, _ in REQUESTS}
    answered = {operation for operation, _ in ANSWERS}
    for name, operation in OPERATIONS.items():
        assert (name in asked) is bool(operation.request or operation.other_requests), name
        assert (name in answered) is any(operation.answers.values()), name


@pytest.mark.parametrize(("name", "kind", "title"), REQUESTS)
def test_an_example_of_a_request_is_valid(name: str, kind: str, title: str) -> None:
    example = REQUESTS[name, kind, title]
    model = OPERATIONS[name].request
    if isinstance(example, str):
        assert len(put_requests.read_many(kind, example.encode())) == 2
    elif kind == JSON:
        assert model is not None
        assert issubclass(model, Request)
        reader.read(model, json.dumps(example).encode())
    else:
        assert raw_json.members(json.dumps(example).encode())


@pytest.mark.parametrize(("name", "status"), ANSWERS)
def test_an_example_of_an_answer_is_valid(name: str, status: int) -> None:
    model = OPERATIONS[name].answers[status]
    assert model is not None
    model.model_validate(ANSWERS[name, status])


def test_the_document_describes_clients_that_are_mounted_elsewhere() -> None:
    async def scenario(gateway: MemoryGateway) -> None:
        from tests.support.asgi import ask, scope_of  # noqa: PLC0415

        scope = scope_of("GET", "/jobs/openapi.json", root_path="/jobs")
        answer = await ask(gateway.app, scope)
        assert answer.json["servers"] == [{"url": "/jobs"}]

    run(scenario)
