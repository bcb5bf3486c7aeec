"""The OpenAPI document: requests, answers, problems and examples of every operation.

FastAPI knows paths and parameters. The rest is in one table here, because the routes read requests
and write answers themselves, byte for byte.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from rabbitdelay.gateway import problems
from rabbitdelay.gateway.bodies import answer_schemas as answers
from rabbitdelay.gateway.bodies import put_requests, requests
from rabbitdelay.gateway.examples import ANSWERS, REQUESTS
from rabbitdelay.models import JSON

_REFERENCE = "#/components/schemas/{model}"
_COMMON = (400, 401, 403, 408, 413, 421, 422, 431, 500, 503)
"""Statuses that every operation can answer with."""
_OF_HEALTH = (400, 403, 408, 413, 421, 431, 500)
_TITLES = {
    202: "The outcome is unknown: the job may still arrive. Putting it again may put it twice.",
    400: "The request cannot be read.",
    401: "A valid token is required.",
    403: "The token does not allow this, or a web page of another origin sent the request.",
    404: "It does not exist.",
    408: "The request did not arrive in time.",
    409: "The lease is lost: the job was settled, or its ttr is over. It has been or will be "
    "delivered again unless it was finished.",
    410: "No response will come.",
    413: "The request is too large.",
    415: "The content type is not supported.",
    421: "The gateway does not serve the host that the request names.",
    422: "A value in the request is invalid.",
    431: "The headers are too large.",
    500: "The gateway has failed.",
    502: "The broker is not set up as the gateway needs it.",
    503: "The broker is away or blocked, or the gateway is stopping. Nothing was done, unless "
    "`sent` or `confirmed` says otherwise. Try again after `Retry-After`.",
}
_EXAMPLES = {
    202: ("outcome-unknown", "The broker did not confirm in time"),
    400: ("malformed-request", "The request cannot be read"),
    401: ("token-required", "A valid token is required"),
    403: ("access-refused", "The token does not allow this"),
    404: ("not-found", "Not found"),
    408: ("request-timeout", "The request did not arrive in time"),
    409: ("lease-lost", "The lease is lost"),
    410: ("no-response", "No response will come"),
    413: ("request-too-large", "The request is too large"),
    415: ("unsupported-media-type", "The content type is not supported"),
    421: ("host-refused", "This gateway does not serve this host"),
    422: ("invalid-job", "A value in the request is invalid"),
    431: ("headers-too-large", "The headers are too large"),
    500: ("rabbit-delay-error", "Internal error"),
    502: ("topology-conflict", "The broker is not set up as the gateway needs it"),
    503: ("broker-unreachable", "The broker cannot be reached"),
}
_PROBLEM_HEADERS = {
    401: ("WWW-Authenticate", "The scheme of the token."),
    503: ("Retry-After", "Seconds after which to try again."),
}
_INTRODUCTION = """\
Delayed jobs on RabbitMQ. A job is *put* with a delay, *popped* when it is due, and *finished* when
its work is done. A job that is not finished within its *ttr* is delivered again, so make its
effects idempotent.

Durations are seconds, or text such as `30m` and `1h30m`. Bodies are stored byte for byte. Errors
are problem documents (RFC 9457), whose `type` names the kind.
"""
_TAGS = [
    {"name": "jobs", "description": "Put, pop and delete jobs."},
    {"name": "leases", "description": "Settle the jobs that were popped."},
    {"name": "topics", "description": "Count, pause, resume and purge."},
    {"name": "parked jobs", "description": "Jobs that wait for a person."},
    {"name": "health", "description": "For load balancers and supervisors. No token is needed."},
    {
        "name": "compatible protocols",
        "description": "For clients of earlier delay queues. The content type is not checked.",
    },
]


@dataclass(frozen=True, slots=True)
class Operation:
    """The request and the answers of one operation."""

    answers: Mapping[int, type[BaseModel] | None]
    """Model of each answer that is not a problem; None for one without content."""
    request: type[BaseModel] | None = None
    problems: tuple[int, ...] = ()
    """Statuses of problems, apart from those that every operation has."""
    has_raw_answer: bool = False
    other_requests: Mapping[str, Any] = field(default_factory=dict)
    """Further media types of the request, with their schemas."""


_RAW = {"type": "string", "format": "binary"}
_COMMAND_SCHEMA = {
    "type": "object",
    "required": ["command"],
    "properties": {
        "command": {"enum": ["add", "pop", "finish", "delete"]},
        "topic": {"type": "string", "description": "To pop: several, separated by commas."},
        "id": {"type": "string"},
        "delay": {"type": "number", "description": "In seconds."},
        "ttr": {"type": "number", "description": "In seconds; also as `TTR`."},
        "body": {"description": "A string with JSON or other text; or any JSON value."},
        "callback": {"type": "string"},
        "wait": {"type": "number", "description": "Longest wait of a pop, in seconds."},
    },
}
_ID_SCHEMA = {
    "type": "object",
    "required": ["id"],
    "properties": {"id": {"type": "string"}},
}
_PUSH_SCHEMA = {
    "type": "object",
    "required": ["topic", "id", "delay", "ttr", "body"],
    "properties": {
        "topic": {"type": "string"},
        "id": {"type": "string"},
        "delay": {"type": "integer", "minimum": 1, "maximum": 2**31 - 1},
        "ttr": {"type": "integer", "minimum": 1, "maximum": 86_400},
        "body": {"type": "string"},
    },
}
_POP_SCHEMA = {
    "type": "object",
    "required": ["topic"],
    "properties": {
        "topic": {"type": "string", "description": "Several are separated by commas."},
        "wait": {"type": "number", "description": "Longest wait, in seconds."},
    },
}


def _path(schema: Mapping[str, Any] | None) -> Operation:
    other = {} if schema is None else {"*/*": schema}
    return Operation({200: answers.PathAnswer}, other_requests=other)


OPERATIONS: dict[str, Operation] = {
    "putJob": Operation(
        {201: answers.PutAnswer},
        put_requests.PutRequest,
        (202, 404, 415, 502),
        other_requests={"*/*": _RAW},
    ),
    "putJobs": Operation(
        {201: answers.PutManyAnswer},
        put_requests.PutManyRequest,
        (202, 404, 415, 502),
        other_requests={put_requests.NDJSON: {"type": "string"}},
    ),
    "replaceJob": Operation(
        {200: answers.PutAnswer}, put_requests.ReplaceRequest, (202, 404, 415, 502)
    ),
    "deleteJob": Operation({204: None}, None, (202, 502)),
    "deleteJobs": Operation({200: answers.DeleteAnswer}, requests.DeleteRequest, (202, 415, 502)),
    "getResponse": Operation({200: answers.ResponseAnswer, 204: None}, None, (404, 410, 502)),
    "popJobs": Operation(
        {200: answers.PopAnswer, 204: None},
        requests.PopRequest,
        (415, 502),
        has_raw_answer=True,
    ),
    "finishJobs": Operation({204: None}, requests.FinishRequest, (202, 409, 415, 502)),
    "releaseJob": Operation({204: None}, requests.ReleaseRequest, (202, 409, 415, 502)),
    "touchJob": Operation({200: answers.TouchAnswer}, requests.LeaseRequest, (409, 415, 502)),
    "buryJob": Operation({204: None}, requests.BuryRequest, (202, 409, 415, 502)),
    "listTopics": Operation({200: answers.TopicsAnswer}, None, (404, 502)),
    "getTopic": Operation({200: answers.TopicAnswer}, None, (404, 502)),
    "pauseTopic": Operation({204: None}, None, (202, 404, 502)),
    "resumeTopic": Operation({204: None}, None, (202, 404, 502)),
    "purgeTopic": Operation({200: answers.PurgeAnswer}, None, (202, 404, 502)),
    "listBuried": Operation({200: answers.BuriedAnswer}, None, (404, 502)),
    "kickBuried": Operation(
        {200: answers.KickAnswer}, requests.ChoiceRequest, (202, 404, 415, 502)
    ),
    "dropBuried": Operation({200: answers.DropAnswer}, requests.ChoiceRequest, (404, 415, 502)),
    "listUnrouted": Operation({200: answers.UnroutedAnswer}, None, (404, 502)),
    "retryUnrouted": Operation(
        {200: answers.RetryAnswer}, requests.UnroutedChoiceRequest, (202, 404, 415, 502)
    ),
    "dropUnrouted": Operation(
        {200: answers.DropAnswer}, requests.UnroutedChoiceRequest, (404, 415, 502)
    ),
    "isAlive": Operation({200: answers.HealthAnswer}),
    "isReady": Operation({200: answers.HealthAnswer}, None, (502, 503)),
    "runCommand": Operation({200: answers.CommandAnswer}, other_requests={"*/*": _COMMAND_SCHEMA}),
    "push": _path(_PUSH_SCHEMA),
    "pop": _path(_POP_SCHEMA),
    "finish": _path(_ID_SCHEMA),
    "delete": _path(_ID_SCHEMA),
    "get": _path(_ID_SCHEMA),
}


def document(app: FastAPI) -> dict[str, Any]:
    """Return the OpenAPI document of the routes of an application."""
    found = get_openapi(
        title="rabbitdelay",
        version=_version(),
        summary="Delayed jobs on RabbitMQ, over HTTP.",
        description=_INTRODUCTION,
        routes=app.routes,
        tags=_TAGS,
        license_info={"name": "MIT", "identifier": "MIT"},
    )
    found["openapi"] = "3.1.0"
    for item in found["paths"].values():
        for operation in item.values():
            _complete(operation)
    found["components"] = {
        "schemas": _schemas(),
        "responses": {f"Problem{status}": _problem(status) for status in _TITLES},
        "securitySchemes": {
            "bearer": {
                "type": "http",
                "scheme": "bearer",
                "description": "A token of the gateway's token file. A gateway without tokens, "
                "which serves this machine only, accepts every request.",
            }
        },
    }
    found["security"] = [{"bearer": []}, {}]
    return found


def _complete(operation: dict[str, Any]) -> None:
    """Add the request, the answers and the problems of an operation."""
    name = operation["operationId"]
    known = OPERATIONS[name]
    summary, _, rest = operation["description"].partition("\n\n")
    operation["summary"] = " ".join(summary.split()).removesuffix(".")
    operation["description"] = rest or summary
    is_public = operation["tags"] == ["health"]
    if is_public:
        operation["security"] = []
    common = _OF_HEALTH if is_public else _COMMON
    operation["responses"] = {
        **{str(status): _answer(name, known, status) for status in known.answers},
        **{
            str(status): {"$ref": f"#/components/responses/Problem{status}"}
            for status in sorted({*common, *known.problems})
        },
    }
    if known.request is not None or known.other_requests:
        operation["requestBody"] = _request(name, known)
    if name == "putJob":
        operation["parameters"] = _query_parameters(put_requests.QueryPut)


def _request(name: str, operation: Operation) -> dict[str, Any]:
    content: dict[str, Any] = {}
    if operation.request is not None:
        content[JSON] = {"schema": _reference(operation.request)}
    for kind, schema in operation.other_requests.items():
        content[kind] = {"schema": schema}
    for (operation_id, kind, title), example in REQUESTS.items():
        if operation_id == name:
            content[kind].setdefault("examples", {})[title] = {"value": example}
    return {"required": True, "content": content}


def _answer(name: str, operation: Operation, status: int) -> dict[str, Any]:
    model = operation.answers[status]
    if model is None:
        return {"description": "It is done." if len(operation.answers) == 1 else "Nothing came."}
    content: dict[str, Any] = {JSON: {"schema": _reference(model)}}
    if (name, status) in ANSWERS:
        content[JSON]["example"] = ANSWERS[name, status]
    if operation.has_raw_answer:
        content["*/*"] = {"schema": _RAW}
    answer: dict[str, Any] = {"description": (model.__doc__ or "").strip(), "content": content}
    if status == 201 and name == "putJob":  # noqa: PLR2004 - the status itself
        answer["headers"] = {
            "Location": {"description": "Path of the job.", "schema": {"type": "string"}}
        }
    return answer


def _problem(status: int) -> dict[str, Any]:
    name, title = _EXAMPLES[status]
    example = {"type": f"/problems/{name}", "title": title, "status": status, "detail": "…"}
    answer: dict[str, Any] = {
        "description": _TITLES[status],
        "content": {
            problems.MEDIA_TYPE: {
                "schema": _reference(answers.ProblemAnswer),
                "example": example,
            }
        },
    }
    headers = _PROBLEM_HEADERS.get(status)
    if headers is not None:
        answer["headers"] = {headers[0]: {"description": headers[1], "schema": {"type": "string"}}}
    return answer


def _query_parameters(model: type[BaseModel]) -> list[dict[str, Any]]:
    """Return the options of a put whose body is not JSON, none of which a JSON put needs."""
    schema = model.model_json_schema(ref_template=_REFERENCE)
    return [
        {
            "name": name,
            "in": "query",
            "required": False,
            "description": f"{one.pop('description')} Only if the body is the job's own body.",
            "schema": one,
        }
        for name, one in schema["properties"].items()
    ]


def _schemas() -> dict[str, Any]:
    used: dict[type[BaseModel], None] = {answers.ProblemAnswer: None}
    for operation in OPERATIONS.values():
        models = (operation.request, *operation.answers.values())
        used |= dict.fromkeys(model for model in models if model is not None)
    _, found = models_json_schema(
        [(model, "validation") for model in used], ref_template=_REFERENCE
    )
    schemas: dict[str, Any] = found["$defs"]
    return schemas


def _reference(model: type[BaseModel]) -> dict[str, str]:
    return {"$ref": _REFERENCE.format(model=model.__name__)}


def _version() -> str:
    try:
        return version("rabbitdelay")
    except PackageNotFoundError:
        return "0"
