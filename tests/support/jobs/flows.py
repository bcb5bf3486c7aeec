"""Flows of the engine that no verb of the clients has, driven as each front end drives its own."""

from typing import TypeVar

from rabbitdelay import Client
from rabbitdelay.aio import awaiting
from rabbitdelay.engine.flow import Flow
from rabbitdelay.executors import blocking
from tests.support.fronts import Blocking

Result = TypeVar("Result")


def run_flow(client: Client, flow: Flow[Result]) -> Result:
    """Drive a flow of a client's engine to its end."""
    waiter = client._engine.settings.transport
    if isinstance(client, Blocking):
        return client.loop.call(awaiting.drive(flow, waiter))
    return blocking.drive(flow, waiter)
