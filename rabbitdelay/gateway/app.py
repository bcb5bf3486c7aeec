"""GatewayApp: the gateway as an ASGI application, to be served alone or mounted in another."""

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from functools import cached_property
from typing import Any, TypedDict, Unpack

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response

from rabbitdelay import discovery
from rabbitdelay.core.topology.topology import QueueType
from rabbitdelay.engine.client_settings import ClientSettings
from rabbitdelay.engine.transport_source import TransportSource
from rabbitdelay.errors import RabbitDelayError
from rabbitdelay.gateway import openapi, problems
from rabbitdelay.gateway.bodies import answers, reader
from rabbitdelay.gateway.gateway import Gateway, GatewayStats
from rabbitdelay.gateway.http.asgi import App, Receive, Scope, Send
from rabbitdelay.gateway.http.body_limit import BodyLimits
from rabbitdelay.gateway.http.layers import surrounded
from rabbitdelay.gateway.http.paths import Paths
from rabbitdelay.gateway.http.request_id import request_id_of
from rabbitdelay.gateway.routes import health, jobs, leases, parked, pop, topics
from rabbitdelay.gateway.seeds import commands, paths
from rabbitdelay.gateway.settings import GatewaySettings
from rabbitdelay.system_time import TimeSource

logger = logging.getLogger("rabbitdelay")


class ClientOptions(TypedDict, total=False):
    """The options of the gateway's client, as Client documents them."""

    namespace: str
    declare: bool
    queue_type: QueueType
    connect_timeout: float
    stabilise_seconds: float | None
    allow_reply_to: Sequence[str]
    max_delay: float | timedelta | None
    management_url: str | None
    clock: TimeSource
    transport: TransportSource | None


class GatewayApp:
    """Serves the gateway's routes as an ASGI application.

    Served by itself, it connects when the server starts and closes when it stops. Mounted in a
    FastAPI or Starlette application, whose mounted applications are not told of either, pass
    `lifespan` to the outer application, or use `running()` in its lifespan.

    Args:
        url: URL of the broker, as for Client.
        settings: Limits and timeouts of the gateway.
        options: Options of the client: `namespace`, `declare`, `queue_type` and others.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        settings: GatewaySettings | None = None,
        **options: Unpack[ClientOptions],
    ) -> None:
        self.settings = settings or GatewaySettings()
        self._client_settings = ClientSettings(
            url=url,
            timeout=self.settings.put_timeout,
            max_body_bytes=self.settings.max_body_bytes,
            **options,
        )
        if self._client_settings.transport is None:
            discovery.locate(url)  # raises for a bad URL before anything is started
        self._gateway: Gateway | None = None
        self._routes = self._new_routes()
        self._app = self._surrounded(self._routes)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request, or the start and the end of the server."""
        if scope["type"] == "lifespan":
            await self._run(receive, send)
        else:
            await self._app(scope, receive, send)

    @property
    def gateway(self) -> Gateway:
        """The running gateway.

        Raises:
            ClientClosed: The application has not been started.
        """
        if self._gateway is None:
            raise problems.ShuttingDown(
                "the gateway is not running: start it with GatewayApp.lifespan or running()"
            )
        return self._gateway

    @cached_property
    def openapi(self) -> dict[str, Any]:
        """The OpenAPI document."""
        return openapi.document(self._routes)

    def stats(self) -> GatewayStats | None:
        """Return what the gateway does now; None unless it is running."""
        return None if self._gateway is None else self._gateway.stats()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Gateway]:
        """Run the gateway inside the block. At its end, jobs that are still held return."""
        gateway = Gateway(self.settings, self._client_settings)
        await gateway.start()
        self._gateway = gateway
        try:
            yield gateway
        finally:
            self._gateway = None
            await gateway.close()

    @asynccontextmanager
    async def lifespan(self, _app: object) -> AsyncIterator[None]:
        """Run the gateway for as long as an application runs: its `lifespan` argument."""
        async with self.running():
            yield

    async def _run(self, receive: Receive, send: Send) -> None:
        """Run the gateway from the server's start to its end."""
        await receive()
        async with self.running():
            await send({"type": "lifespan.startup.complete"})
            try:
                await receive()
            except asyncio.CancelledError:  # the server was stopped at once
                return
        await send({"type": "lifespan.shutdown.complete"})

    def _new_routes(self) -> FastAPI:
        app = FastAPI(
            title="rabbitdelay",
            openapi_url=None,
            redirect_slashes=False,
        )
        app.state.gateway_app = self
        for module in (jobs, pop, leases, topics, parked, commands, paths, health):
            app.include_router(module.router)
        app.add_api_route("/openapi.json", self._describe, include_in_schema=False)
        app.add_exception_handler(RabbitDelayError, _problem)
        app.add_exception_handler(problems.Refusal, _problem)
        app.add_exception_handler(RequestValidationError, _invalid_parameter)
        for status in (404, 405):
            app.add_exception_handler(status, _no_such_route)
        app.add_exception_handler(Exception, _internal_error)
        return app

    async def _describe(self, request: Request) -> Response:
        """Return the OpenAPI document, with the path at which the gateway is mounted."""
        servers = [{"url": request.scope.get("root_path", "") or "/"}]
        return answers.as_json(self.openapi | {"servers": servers})

    def _surrounded(self, app: App) -> App:
        """Return the application inside its middleware, the outermost last."""
        settings = self.settings
        limits = BodyLimits(
            settings.max_request_bytes, settings.max_memory_bytes, settings.body_timeout
        )
        return surrounded(
            Paths(app),
            tokens=settings.tokens,
            allowed_hosts=settings.allowed_hosts,
            body_limits=limits,
        )


async def _problem(_request: Request, error: Exception) -> Response:
    return problems.response_to(error)


async def _invalid_parameter(_request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    found = [{**one, "loc": one["loc"][1:]} for one in error.errors()]
    return problems.response_to(reader.refusal(found, None, "parameter"))


async def _no_such_route(request: Request, error: Exception) -> Response:
    """Report a path or a method that does not exist."""
    path = request.url.path
    if getattr(error, "status_code", 404) == 405:  # noqa: PLR2004 - the status itself
        response = problems.response_to(
            problems.MethodNotAllowed(f"{path} does not accept {request.method}")
        )
        response.headers.update(getattr(error, "headers", None) or {})
        return response
    return problems.response_to(problems.NotFound(f"there is nothing at {path}"))


async def _internal_error(request: Request, error: Exception) -> Response:
    request_id = request_id_of(request.scope)
    logger.error("gateway: internal error (request %s)", request_id, exc_info=error)
    return problems.internal_error()
