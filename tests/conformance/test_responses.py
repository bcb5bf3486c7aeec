"""Responses: what a handler returned, for whoever asked for it."""

import json
import threading
from collections.abc import Iterator

import pika
import pytest

from rabbitdelay import Bury, Client, ClientClosed, InvalidJob, Job, JobSpec, NoResponse, Worker
from tests.conftest import ClientFactory, WorkerFactory
from tests.support.receiver import Receiver
from tests.support.waiting import patience, wait_until
from tests.support.working import cut_pops, working


@pytest.fixture
def worker(make_worker: WorkerFactory) -> Iterator[Worker]:
    worker = make_worker(concurrency=4)

    @worker.handler("double", max_attempts=2, backoff=0)
    def double(body: object, job: Job) -> object:
        match body:
            case "bury":
                raise Bury("not this one")
            case "fail":
                raise ValueError(f"failed in attempt {job.attempt}")
            case "odd":
                return object()
            case int():
                return {"double": body * 2}
        return body

    @worker.handler("kept", keep_responses=True)
    def kept(body: int | None) -> int | None:
        return body

    with working(worker):
        yield worker


@pytest.mark.usefixtures("worker")
class TestReply:
    def test_the_return_value_comes_back(self, client: Client) -> None:
        job = client.put("double", 21, reply=True)
        response = client.response(job, wait=patience(10))
        assert response is not None
        assert (response.id, response.body) == (job.id, {"double": 42})

    @pytest.mark.parametrize("value", [b"bytes", "text", None, {"a": [1]}])
    def test_it_is_of_the_type_that_was_returned(self, client: Client, value: object) -> None:
        response = client.response(client.put("double", value, reply=True), wait=patience(10))
        assert response is not None
        assert response.body == value

    def test_many_at_once_in_any_order(self, client: Client) -> None:
        jobs = [client.put("double", n, reply=True) for n in range(20)]
        for n, job in reversed(list(enumerate(jobs))):
            response = client.response(job, wait=patience(10))
            assert response is not None
            assert response.body == {"double": 2 * n}

    def test_two_jobs_with_one_id_have_their_own(self, client: Client) -> None:
        first = client.put("double", 1, id="same", reply=True)
        second = client.put("double", 2, id="same", reply=True)
        responses = [client.response(job, wait=patience(10)) for job in (second, first)]
        assert [one.body for one in responses if one] == [{"double": 4}, {"double": 2}]

    def test_none_when_it_did_not_come_in_time(self, client: Client) -> None:
        job = client.put("double", 1, delay=60, reply=True)
        assert client.response(job, wait=0.1) is None

    @pytest.mark.parametrize(
        ("body", "why"),
        [
            ("bury", "not this one"),
            ("fail", "attempt 2 of 2 failed: failed in attempt 2"),
            ("odd", "not JSON-able"),
        ],
    )
    def test_whoever_waits_is_told_that_there_will_be_none(
        self, client: Client, body: str, why: str
    ) -> None:
        job = client.put("double", body, reply=True)
        with pytest.raises(NoResponse, match=why):
            client.response(job, wait=patience(10))

    def test_a_job_that_was_put_without_it_has_none(self, client: Client) -> None:
        with pytest.raises(InvalidJob, match="reply=True"):
            client.response(client.put("double", 1), wait=1)
        with pytest.raises(InvalidJob, match="needs the job that put returned"):
            client.response("an-id")  # type: ignore[arg-type] # on purpose
        with pytest.raises(InvalidJob, match="either reply or reply_to"):
            client.put("double", 1, reply=True, reply_to="q")

    def test_of_many(self, client: Client) -> None:
        jobs: list[Job] = []
        queue = client.reply_queue()
        specs = (JobSpec("double", n, reply_to=queue) for n in range(50))
        client.put_many(specs, on_confirmed=jobs.append)
        found = [client.response(job, wait=patience(10)) for job in jobs]
        assert sorted(one.body["double"] for one in found if one) == [2 * n for n in range(50)]

    def test_the_client_waits_on_through_a_lost_connection(self, client: Client) -> None:
        job = client.put("double", 4, delay=1, reply=True)
        cut_pops(client)
        response = client.response(job, wait=patience(15))
        assert response is not None
        assert response.body == {"double": 8}

    def test_closing_ends_the_wait(self, make_client: ClientFactory) -> None:
        client = make_client()
        job = client.put("double", 1, delay=60, reply=True)
        threading.Timer(0.3, client.close).start()
        with pytest.raises(ClientClosed):
            client.response(job, wait=patience(20))


@pytest.mark.usefixtures("worker")
class TestPlainAmqp:
    def test_a_queue_of_the_putters_own(self, client: Client, broker_url: str) -> None:
        """Any queue may be named, as AMQP's convention says."""
        with pika.BlockingConnection(pika.URLParameters(broker_url)) as connection:
            queue = connection.channel().queue_declare("", durable=True).method.queue
            job = client.put("double", 3, reply_to=queue)
            with Receiver(broker_url, queue) as receiver:
                wait_until(lambda: receiver.messages, what="the response is there")
            connection.channel().queue_delete(queue)
        (message,) = receiver.messages
        assert message.properties.correlation_id == job.id
        assert json.loads(message.body) == {"double": 6}
        assert message.headers["rd-token"] == job.token

    def test_a_queue_that_is_not_there_keeps_no_job_from_being_finished(
        self, client: Client, worker: Worker
    ) -> None:
        client.put("double", 3, reply_to="no-such-queue")
        wait_until(lambda: worker.stats().counts.finished == 1, what="it is finished")

    def test_a_topic_keeps_its_responses(
        self, client: Client, broker_url: str, namespace: str
    ) -> None:
        for n in (1, None, 2):
            client.put("kept", n)
        queue = client.topology.responses_queue("kept")
        assert queue == f"{namespace}.v1.responses.kept"
        with Receiver(broker_url, queue) as receiver:
            wait_until(lambda: len(receiver.messages) == 2, what="both are kept")
        assert sorted(json.loads(message.body) for message in receiver.messages) == [1, 2]
