"""The shop's orders, in a small database that the service and its workers share."""

import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager

DATABASE = os.environ.get("SHOP_DATABASE", "shop.sqlite3")
SCHEMA = "create table if not exists orders (id integer primary key, state text default 'open')"


@contextmanager
def _database() -> Iterator[sqlite3.Connection]:
    connection = sqlite3.connect(DATABASE)
    try:
        with connection:
            connection.execute(SCHEMA)
            yield connection
    finally:
        connection.close()


def create() -> int:
    """Create an open order and return its number."""
    with _database() as database:
        number = database.execute("insert into orders default values").lastrowid
    assert number is not None
    return number


def pay(number: int) -> bool:
    """Mark an open order as paid; return False if it is not open."""
    return _set_state(number, "paid")


def close(number: int) -> bool:
    """Close an open order; return False if it is not open. Idempotent."""
    return _set_state(number, "closed")


def _set_state(number: int, state: str) -> bool:
    statement = "update orders set state = ? where id = ? and state = 'open'"
    with _database() as database:
        return database.execute(statement, (state, number)).rowcount == 1


def state(number: int) -> str | None:
    """Return the state of an order (open, paid or closed), or None if it does not exist."""
    with _database() as database:
        row = database.execute("select state from orders where id = ?", (number,)).fetchone()
    return None if row is None else str(row[0])
