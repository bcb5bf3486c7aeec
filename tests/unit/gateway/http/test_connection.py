"""Clients that are cut off: their jobs go back at once, and only theirs."""

import time
from collections.abc import Iterator
from contextlib import suppress

import pytest
from uvicorn.protocols.http.h11_impl import H11Protocol

from rabbitdelay.gateway import GatewaySettings
from rabbitdelay.gateway.http import connection
from tests.support.gateway.served import RECEIVE_BYTES, RawClient, ServedGateway, served_gateway
from tests.support.patience import patience, wait_until

TTR = 3_600
LARGE = "x" * 4_000_000
"""A body that fits into no buffer of the kernel."""
POP = {"topics": "t", "wait": 30}


@pytest.fixture(scope="module")
def served() -> Iterator[ServedGateway]:
    with served_gateway(GatewaySettings(max_body_bytes=5_000_000)) as served:
        yield served


@pytest.fixture(autouse=True)
def is_clean(served: ServedGateway) -> Iterator[None]:
    """Leave no job behind."""
    served.put("t")
    finish_all(served)
    yield
    finish_all(served)


def finish_all(served: ServedGateway) -> None:
    while (job := served.pop("t")) is not None:
        assert served.finish(job["lease"]) == 204


def comes_back(served: ServedGateway, job_id: str) -> None:
    """Check that a job is ready again at once and unchanged, and finish it."""
    job = served.pop("t", wait=patience(5))
    assert job is not None, "the job is held for its ttr"
    assert (job["id"], job["attempt"]) == (job_id, 1)
    assert served.finish(job["lease"]) == 204


def waits(served: ServedGateway, count: int = 1) -> None:
    wait_until(lambda: served.gateway.stats().waiting == count)


# During a long poll


@pytest.mark.parametrize("is_reset", [False, True])
def test_a_client_that_leaves_a_long_poll_takes_no_job(
    served: ServedGateway, *, is_reset: bool
) -> None:
    with served.client() as leaving:
        leaving.send("/v1/pop", POP)
        waits(served)
        leaving.reset() if is_reset else leaving.socket.close()
    waits(served, 0)
    comes_back(served, served.put("t", ttr=TTR))


def test_the_job_of_a_client_that_leaves_goes_to_the_next_one(served: ServedGateway) -> None:
    with served.client() as leaving, served.client() as staying:
        leaving.send("/v1/pop", POP)
        waits(served, 1)
        staying.send("/v1/pop", POP)
        waits(served, 2)
        leaving.reset()
        waits(served, 1)
        job_id = served.put("t", ttr=TTR)
        assert staying.popped()["id"] == job_id
    finish_by_id(served, job_id)


def finish_by_id(served: ServedGateway, job_id: str) -> None:
    assert served.ask("/finish", {"id": job_id})[1]["code"] == 0


# In the middle of the answer


@pytest.mark.parametrize("headers", [(), ("Connection: close",)])
@pytest.mark.parametrize("is_reset", [False, True])
@pytest.mark.parametrize("read_bytes", [0, 10_000])
def test_a_client_that_is_cut_off_in_a_large_answer_loses_no_job(
    served: ServedGateway, headers: tuple[str, ...], read_bytes: int, *, is_reset: bool
) -> None:
    job_id = served.put("t", LARGE, ttr=TTR)
    with served.client(receive_bytes=RECEIVE_BYTES) as client:
        client.send("/v1/pop", POP, *headers)
        wait_until(lambda: len(served.gateway.held) == 1)
        while read_bytes > 0:
            read_bytes -= len(client.socket.recv(read_bytes))
        client.reset() if is_reset else client.socket.close()
    comes_back(served, job_id)


@pytest.mark.parametrize("headers", [(), ("Connection: close",)])
@pytest.mark.parametrize("is_reset", [False, True])
def test_a_client_that_is_cut_off_before_a_small_answer_loses_no_job(
    served: ServedGateway, headers: tuple[str, ...], *, is_reset: bool
) -> None:
    """The whole answer has reached the client's machine, where nothing reads it."""
    job_id = served.put("t", ttr=TTR)
    with served.client() as client:
        client.send("/v1/pop", POP, *headers)
        assert client.socket.recv(1) == b"H"
        client.reset() if is_reset else client.socket.close()
    comes_back(served, job_id)


def test_a_client_that_does_not_read_its_answer_does_not_stop_others(
    served: ServedGateway,
) -> None:
    job_id = served.put("t", LARGE, ttr=TTR)
    with served.client(receive_bytes=RECEIVE_BYTES) as stalled:
        stalled.send("/v1/pop", POP)
        wait_until(lambda: len(served.gateway.held) == 1)
        began = time.monotonic()
        for n in range(10):
            other = served.put("u", n)
            job = served.pop("u")
            assert job is not None
            assert job["id"] == other
            assert served.finish(job["lease"]) == 204
        assert time.monotonic() - began < patience(5)
        stalled.reset()
    comes_back(served, job_id)


def test_a_client_that_is_cut_off_in_the_middle_of_a_request_puts_nothing(
    served: ServedGateway,
) -> None:
    with served.client() as client:
        head = "POST /v1/jobs HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        body = '{"topic": "t", "id": "half"'
        client.socket.sendall(f"{head}Content-Length: 500\r\n\r\n{body}".encode())
        client.reset()
    assert served.pop("t") is None
    comes_back(served, served.put("t", ttr=TTR))


# After the answer


@pytest.mark.parametrize("headers", [(), ("Connection: close",)])
def test_a_client_that_has_read_its_answer_keeps_the_job_when_it_closes(
    served: ServedGateway, headers: tuple[str, ...]
) -> None:
    served.put("t", ttr=TTR)
    with served.client() as client:
        client.send("/v1/pop", POP, *headers)
        job = client.popped()
    keeps(served, job["lease"])


def test_a_client_that_has_sent_another_request_keeps_the_job_when_it_is_reset(
    served: ServedGateway,
) -> None:
    served.put("t", ttr=TTR)
    with served.client() as client:
        client.send("/v1/pop", POP)
        job = client.popped()
        client.send("/v1/pop", {"topics": "t"})
        assert client.answer() == (204, b"")
        client.reset()
    keeps(served, job["lease"])


def test_a_client_whose_idle_connection_is_reset_keeps_the_job(
    served: ServedGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Load balancers do that."""
    monkeypatch.setattr(connection, "CERTAIN_SECONDS", 0.0)
    monkeypatch.setattr(connection, "LOOK_SECONDS", 0.01)
    served.put("t", ttr=TTR)
    with served.client() as client:
        client.send("/v1/pop", POP)
        job = client.popped()
        wait_until(
            lambda: any(one._answered_at and not one._answered for one in _connections(served))
        )
        client.reset()
    keeps(served, job["lease"])


def test_an_answer_that_is_dropped_with_its_connection_was_not_received(
    served: ServedGateway,
) -> None:
    """The client acknowledges everything that it was sent, which is not the whole answer."""
    job_id = served.put("t", LARGE, ttr=TTR)
    with served.client(receive_bytes=RECEIVE_BYTES) as client:
        client.send("/v1/pop", POP)
        wait_until(lambda: any(one._answered for one in _connections(served)))
        (watched,) = (one for one in _connections(served) if one._answered)

        def end() -> None:
            watched.timeout_keep_alive_handler()
            watched.transport.abort()

        watched.loop.call_soon_threadsafe(end)
        with suppress(ConnectionResetError):
            while client.socket.recv(65_536):
                pass
    comes_back(served, job_id)


def test_a_job_that_is_settled_is_not_given_back(served: ServedGateway) -> None:
    served.put("t", ttr=TTR)
    client: RawClient
    with served.client() as client:
        client.send("/v1/pop", POP)
        job = client.popped()
        assert served.finish(job["lease"]) == 204
        client.reset()
    assert served.pop("t") is None


def keeps(served: ServedGateway, lease: str) -> None:
    """Check that a job is not given back, once the end of its client's connection is known."""
    wait_until(lambda: not any(one._answered for one in _connections(served)))
    wait_until(lambda: not connection.lingering)
    assert served.ask("/v1/touch", {"lease": lease})[0] == 200
    assert served.pop("t") is None
    assert served.finish(lease) == 204


def _connections(served: ServedGateway) -> list[connection.WatchedConnection]:
    return [
        one
        for one in tuple(served._server.server_state.connections)
        if isinstance(one, connection.WatchedConnection)
    ]


def test_uvicorn_has_the_methods_that_are_overridden() -> None:
    for name in ("on_response_complete", "timeout_keep_alive_handler", "shutdown"):
        assert callable(getattr(H11Protocol, name))
