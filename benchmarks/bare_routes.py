"""Run `rabbitdelay serve` with routes beside its own that only parse a request and answer.

They are the baseline of bench_http.py: the same server, layers and process, and no broker. Each is
written as an application's FastAPI route would be.
"""

import sys
from typing import Any

from fastapi import APIRouter, Response
from fastapi.responses import JSONResponse
from pydantic import BaseModel

from rabbitdelay import gateway
from rabbitdelay.cli import root

router = APIRouter(prefix="/bare")
JOB = {
    "lease": "x" * 60,
    "topic": "bench",
    "id": "x" * 32,
    "attempt": 1,
    "max_attempts": None,
    "put": "2026-11-16T00:00:00.000+00:00",
    "due": "2026-11-16T00:00:00.000+00:00",
    "ttr": 60.0,
    "time_left": 60.0,
    "redeliveries": 0,
    "callback": None,
    "content_type": "application/json",
    "headers": {},
    "body": "x" * 256,
}


class Put(BaseModel):
    """The request of a put."""

    topic: str
    body: Any
    delay: float


class Pop(BaseModel):
    """The request of a pop."""

    topics: str
    wait: float


class Finish(BaseModel):
    """The request of a finish."""

    lease: str


@router.post("/put")
async def put(job: Put) -> JSONResponse:
    """Answer as to a put."""
    answer = {"id": JOB["id"], "topic": job.topic, "put": JOB["put"], "due": JOB["due"]}
    return JSONResponse(answer, 201, {"Location": f"/v1/jobs/{JOB['id']}"})


@router.post("/pop")
async def pop(asked: Pop) -> JSONResponse:
    """Answer as to a pop that found a job."""
    return JSONResponse({"jobs": [JOB | {"topic": asked.topics}]})


@router.post("/finish", status_code=204)
async def finish(asked: Finish) -> Response:
    """Answer as to a finish."""
    assert asked.lease
    return Response(status_code=204)


class GatewayAppWithBareRoutes(gateway.GatewayApp):
    """The gateway and the routes of this module, inside the same layers."""

    def __init__(
        self,
        *arguments: Any,  # noqa: ANN401 - passed on
        **options: Any,  # noqa: ANN401 - passed on
    ) -> None:
        super().__init__(*arguments, **options)
        self._routes.include_router(router)


if __name__ == "__main__":
    gateway.GatewayApp = GatewayAppWithBareRoutes  # type: ignore[misc]  # which serve imports
    root(sys.argv[1:])
