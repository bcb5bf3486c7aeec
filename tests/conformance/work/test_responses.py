"""Responses: a handler's return value, sent to the client that asked for it."""

import json
import threading
from collections.abc import Iterator

import pika
import pytest

from rabbitdelay import (
    Bury,
    Client,
    ClientClosed,
    InvalidConfiguration,
    InvalidJob,
    Job,
    JobSpec,
    NoResponse,
    Worker,
)
from rabbitdelay.engine.settle import response_sender
from tests.conftest import ClientFactory, WorkerFactory
from tests.support.brokers.receiver import Receiver
from tests.support.jobs.connections import cut_pops
from tests.support.jobs.worker_thread import working
from tests.support.patience import patience, wait_until


@pytest.fixture
def worker(make_worker: WorkerFactory) -> Iterator[Worker]:
    worker = make_worker(concurrency=4, allow_reply_to=["answers.*"])

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
    def test_a_return_value_is_sent_as_the_response(self, client: Client) -> None:
        job = client.put("double", 21, reply=True)
        response = client.response(job, wait=patience(10))
        assert response is not None
        assert (response.id, response.body) == (job.id, {"double": 42})

    @pytest.mark.parametrize("value", [b"bytes", "text", None, {"a": [1]}])
    def test_a_response_has_the_type_of_the_return_value(
        self, client: Client, value: object
    ) -> None:
        response = client.response(client.put("double", value, reply=True), wait=patience(10))
        assert response is not None
        assert response.body == value

    def test_responses_of_many_jobs_are_read_in_any_order(self, client: Client) -> None:
        jobs = [client.put("double", n, reply=True) for n in range(20)]
        for n, job in reversed(list(enumerate(jobs))):
            response = client.response(job, wait=patience(10))
            assert response is not None
            assert response.body == {"double": 2 * n}

    def test_two_jobs_with_one_id_have_separate_responses(self, client: Client) -> None:
        first = client.put("double", 1, id="same", reply=True)
        second = client.put("double", 2, id="same", reply=True)
        responses = [client.response(job, wait=patience(10)) for job in (second, first)]
        assert [one.body for one in responses if one] == [{"double": 4}, {"double": 2}]

    def test_a_response_that_is_not_there_in_time_is_none(self, client: Client) -> None:
        job = client.put("double", 1, delay=60, reply=True)
        assert client.response(job, wait=0.1) is None

    @pytest.mark.parametrize(
        ("body", "why"),
        [
            ("bury", "not this one"),
            ("fail", "attempt 2 of 2 failed: failed in attempt 2"),
            ("odd", "not JSON-serializable"),
        ],
    )
    def test_a_job_without_a_return_value_raises_no_response(
        self, client: Client, body: str, why: str
    ) -> None:
        job = client.put("double", body, reply=True)
        with pytest.raises(NoResponse, match=why):
            client.response(job, wait=patience(10))

    def test_a_job_put_without_reply_has_no_response(self, client: Client) -> None:
        with pytest.raises(InvalidJob, match="reply=True"):
            client.response(client.put("double", 1), wait=1)
        with pytest.raises(InvalidJob, match="needs the job that put returned"):
            client.response("an-id")  # type: ignore[arg-type] # on purpose
        with pytest.raises(InvalidJob, match="either reply or reply_to"):
            client.put("double", 1, reply=True, reply_to="q")

    def test_jobs_of_put_many_have_responses(self, client: Client) -> None:
        jobs: list[Job] = []
        queue = client.reply_queue()
        specs = (JobSpec("double", n, reply_to=queue) for n in range(50))
        client.put_many(specs, on_confirmed=jobs.append)
        found = [client.response(job, wait=patience(10)) for job in jobs]
        assert sorted(one.body["double"] for one in found if one) == [2 * n for n in range(50)]

    def test_a_wait_for_a_response_survives_a_lost_connection(self, client: Client) -> None:
        job = client.put("double", 4, delay=1, reply=True)
        cut_pops(client)
        response = client.response(job, wait=patience(15))
        assert response is not None
        assert response.body == {"double": 8}

    def test_close_ends_a_wait_for_a_response(self, make_client: ClientFactory) -> None:
        client = make_client()
        job = client.put("double", 1, delay=60, reply=True)
        closing = threading.Timer(0.3, client.close)
        closing.start()
        with pytest.raises(ClientClosed):
            client.response(job, wait=patience(20))
        closing.join()


@pytest.fixture
def answers(broker_url: str, namespace: str) -> Iterator[str]:
    """A queue of another program on the shared broker."""
    name = f"answers.{namespace}"
    with pika.BlockingConnection(pika.URLParameters(broker_url)) as connection:
        channel = connection.channel()
        channel.queue_declare(name, durable=True)
        yield name
        channel.queue_delete(name)


@pytest.mark.usefixtures("worker")
class TestPlainAmqp:
    def test_a_response_is_sent_to_a_queue_of_the_putters_own(
        self, client: Client, broker_url: str, answers: str
    ) -> None:
        """The putter may name any queue that the worker allows, by AMQP's reply_to convention."""
        job = client.put("double", 3, reply_to=answers)
        with Receiver(broker_url, answers) as receiver:
            wait_until(lambda: receiver.messages, what="the response has arrived")
        (message,) = receiver.messages
        assert message.properties.correlation_id == job.id
        assert json.loads(message.body) == {"double": 6}
        assert message.headers["rd-token"] == job.token

    def test_a_missing_reply_queue_does_not_keep_a_job_from_finishing(
        self, client: Client, worker: Worker
    ) -> None:
        client.put("double", 3, reply_to="answers.no-such-queue")
        wait_until(lambda: worker.stats().counts.finished == 1, what="the job is finished")

    def test_a_topic_keeps_its_responses(
        self, client: Client, broker_url: str, namespace: str
    ) -> None:
        for n in (1, None, 2):
            client.put("kept", n)
        queue = client.topology.responses_queue("kept")
        assert queue == f"{namespace}.v1.responses.kept"
        with Receiver(broker_url, queue) as receiver:
            wait_until(lambda: len(receiver.messages) == 2, what="both responses are kept")
        assert sorted(json.loads(message.body) for message in receiver.messages) == [1, 2]


class TestAllowedQueues:
    def test_a_queue_that_is_not_allowed_does_not_get_a_response(
        self,
        client: Client,
        make_worker: WorkerFactory,
        broker_url: str,
        answers: str,
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        """The jobs are handled normally: finished, retried or buried, and their responses kept."""
        worker = make_worker()

        @worker.handler("orders", keep_responses=True, max_attempts=2, backoff=0)
        def handle(body: int) -> int:
            if body < 0:
                raise ValueError("not this one")
            return body

        for body in (1, 2, -1):
            client.put("orders", body, reply_to=answers)
        with working(worker):
            wait_until(lambda: _handled(worker) == (2, 1), what="all jobs are handled")
        assert _count(broker_url, answers) == 0
        assert _count(broker_url, client.topology.responses_queue("orders")) == 2
        assert worker.stats().counts.refused_replies == 3
        told = [one.getMessage() for one in caplog.records if "response refused" in one.message]
        expected = (
            f"topic orders: response refused (reply_to {answers!r} is not an allowed queue; allow "
            "it with allow_reply_to, or with --allow-reply-to on the command line)"
        )
        assert told == [expected]

    @pytest.mark.parametrize("queue", ["tombstones", "snapshots", "v1.ready.other"])
    def test_internal_queues_do_not_get_responses_even_if_all_queues_are_allowed(
        self, client: Client, make_worker: WorkerFactory, namespace: str, queue: str
    ) -> None:
        worker = make_worker(allow_reply_to=["*"])
        worker.handler("orders")(lambda body: body)
        other = client.put("other", "to be seen")
        client.put("orders", {"delete": [other.id], "time": 2**47}, reply_to=f"{namespace}.{queue}")
        with working(worker):
            wait_until(lambda: worker.stats().counts.finished == 1, what="the job is finished")
        assert worker.stats().counts.refused_replies == 1
        popped = client.pop("other", max=10, wait=patience(10))
        assert [job.id for job in popped] == [other.id]

    @pytest.mark.parametrize("is_allowed", [True, False])
    def test_a_popping_client_has_its_own_list_of_allowed_queues(
        self, make_client: ClientFactory, broker_url: str, answers: str, *, is_allowed: bool
    ) -> None:
        """A job that the client buries is reported to an allowed reply queue."""
        client = make_client(allow_reply_to=[answers] if is_allowed else [])
        client.put("orders", 1, reply_to=answers)
        job = client.pop("orders", wait=patience(10))
        assert job is not None
        job.bury("not this one")
        client.close()
        assert _count(broker_url, answers) == (1 if is_allowed else 0)

    def test_a_putter_cannot_fill_the_log_with_queue_names(
        self,
        client: Client,
        make_worker: WorkerFactory,
        monkeypatch: pytest.MonkeyPatch,
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        monkeypatch.setattr(response_sender, "MOST_REFUSED_LOGGED", 3)
        worker = make_worker()
        worker.handler("orders")(lambda body: body)
        client.put_many(JobSpec("orders", n, reply_to=f"queue-{n}") for n in range(10))
        with working(worker):
            wait_until(lambda: worker.stats().counts.finished == 10, what="all jobs are finished")
        assert worker.stats().counts.refused_replies == 10
        assert sum("response refused" in one.message for one in caplog.records) == 3

    def test_an_invalid_list_of_allowed_queues_is_an_error(
        self, make_worker: WorkerFactory, namespace: str
    ) -> None:
        with pytest.raises(InvalidConfiguration, match="must be a list of queue names"):
            make_worker(allow_reply_to="orders.replies")
        with pytest.raises(InvalidConfiguration, match="are reserved for the namespace"):
            make_worker(allow_reply_to=[f"{namespace}.tombstones"])


def _handled(worker: Worker) -> tuple[int, int]:
    counts = worker.stats().counts
    return counts.finished, counts.buried


def _count(url: str, queue: str) -> int:
    """Return the number of ready messages in a queue."""
    with pika.BlockingConnection(pika.URLParameters(url)) as connection:
        return int(connection.channel().queue_declare(queue, passive=True).method.message_count)
