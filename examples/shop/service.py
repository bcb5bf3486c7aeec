"""A shop that closes orders which are not paid within half an hour.

pip install fastapi uvicorn
rabbitdelay broker start                     # or RABBITDELAY_URL
uvicorn service:app                          # in this folder, with a worker beside it
curl -X POST localhost:8000/orders
curl -X POST localhost:8000/orders/1/payment
curl localhost:8000/orders/1
"""

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated

import orders
from fastapi import Depends, FastAPI, HTTPException, Request
from pydantic import BaseModel

from rabbitdelay.aio import Client

NAMESPACE = os.environ.get("RABBITDELAY_NAMESPACE", "rabbitdelay")
SECONDS_TO_PAY = float(os.environ.get("SHOP_SECONDS_TO_PAY", "1800"))


class Order(BaseModel):
    """An order in a response."""

    order: int
    state: str


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    """Open one client for the whole life of the service."""
    async with Client(namespace=NAMESPACE) as client:
        app.state.client = client
        yield


def client_of(request: Request) -> Client:
    """Return the client that the lifespan opened."""
    client: Client = request.app.state.client
    return client


app = FastAPI(lifespan=lifespan)
Jobs = Annotated[Client, Depends(client_of)]


@app.post("/orders", status_code=201)
async def place(jobs: Jobs) -> Order:
    """Place an order and put the job that closes it."""
    number = await asyncio.to_thread(orders.create)
    await jobs.put("orderclose", {"order": number}, delay=SECONDS_TO_PAY, id=job_id(number))
    return Order(order=number, state="open")


@app.post("/orders/{number}/payment")
async def pay(number: int, jobs: Jobs) -> Order:
    """Pay an order and delete its job. If the delete fails, the worker finds the order paid."""
    if not await asyncio.to_thread(orders.pay, number):
        raise HTTPException(409, f"order {number} is not open")
    await jobs.delete(job_id(number))
    return Order(order=number, state="paid")


@app.get("/orders/{number}")
def show(number: int) -> Order:
    """Return the state of an order."""
    state = orders.state(number)
    if state is None:
        raise HTTPException(404, f"order {number} does not exist")
    return Order(order=number, state=state)


def job_id(number: int) -> str:
    """Return the id of the job that closes an order, derived from the order number."""
    return f"orderclose-{number}"
