"""The HTTP gateway: every verb of the client as JSON over HTTP, for programs in any language."""

from rabbitdelay.errors import InvalidConfiguration

try:
    import uvicorn as _uvicorn

    from rabbitdelay.gateway.app import GatewayApp
    from rabbitdelay.gateway.settings import GatewaySettings
except ModuleNotFoundError as error:
    if error.name not in {"fastapi", "uvicorn"}:
        raise
    raise InvalidConfiguration(
        f"the HTTP gateway requires {error.name}, which is not installed: "
        "run pip install 'rabbitdelay[http]'"
    ) from None

del _uvicorn

__all__ = ["GatewayApp", "GatewaySettings"]
