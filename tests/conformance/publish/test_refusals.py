"""Refused puts: each cause has its own clear error, and no error contains a password."""

import base64
import json
import logging
import time
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from functools import partial
from typing import Any
from urllib.parse import urlsplit

import pika
import pytest
import trustme

from rabbitdelay import (
    BrokerBlocked,
    BrokerUnreachable,
    CertificateRefused,
    InvalidConfiguration,
    InvalidJob,
    JobRefused,
    JobSpec,
    LoginRefused,
    OutcomeUnknown,
    PermissionRefused,
    TopologyConflict,
    TopologyMissing,
    VhostRefused,
)
from rabbitdelay.core.topology.topology import Topology
from rabbitdelay.engine.delete_log import fence
from rabbitdelay.engine.delete_log.reader import LogReader
from rabbitdelay.engine.deletes import appender, snapshot_writer
from rabbitdelay.private_broker import PrivateBroker
from rabbitdelay.private_broker.machine.ports import pick_free
from tests.support.brokers.receiver import Receiver
from tests.support.fronts import Front
from tests.support.jobs.deletes import deletes_flow, noting
from tests.support.jobs.popped_jobs import pop
from tests.support.jobs.worker_thread import working
from tests.support.patience import patience, wait_until

SECRET = "s3cr3t"  # noqa: S105 - made up
Management = Callable[..., None]
Connect = Callable[[str], None]


@pytest.fixture(scope="module")
def tls_port() -> int:
    return pick_free(1)[0]


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture(scope="module")
def broker(
    tmp_path_factory: pytest.TempPathFactory, tls_port: int, authority: trustme.CA
) -> Iterator[PrivateBroker]:
    """A broker of this module's own, with TLS, so that users and alarms can be changed."""
    folder = tmp_path_factory.mktemp("broker")
    certificate = authority.issue_cert("localhost")
    certificate.cert_chain_pems[0].write_to_path(folder / "server.pem")
    certificate.private_key_pem.write_to_path(folder / "server.key")
    authority.cert_pem.write_to_path(folder / "authority.pem")
    broker = PrivateBroker(
        folder,
        extra_config={
            "listeners.ssl.1": f"127.0.0.1:{tls_port}",
            "ssl_options.certfile": str(folder / "server.pem"),
            "ssl_options.keyfile": str(folder / "server.key"),
            "ssl_options.cacertfile": str(folder / "authority.pem"),
            "max_message_size": "4194304",
        },
    )
    broker.start()
    yield broker
    broker.kill()


@pytest.fixture(scope="module")
def management(broker: PrivateBroker) -> Management:
    """Call the broker's management API."""

    def call(method: str, path: str, **body: object) -> None:
        request = urllib.request.Request(  # noqa: S310 - our own broker
            f"{broker.management_url.rstrip('/')}/api/{path}",
            data=json.dumps(body).encode(),
            method=method,
            headers={
                "Authorization": "Basic " + base64.b64encode(b"guest:guest").decode(),
                "Content-Type": "application/json",
            },
        )
        urllib.request.urlopen(request, timeout=patience(10)).close()  # noqa: S310 - our own broker

    return call


@pytest.fixture
def user_url(broker: PrivateBroker, management: Management, namespace: str) -> Callable[..., str]:
    """Create a user with these permissions; return its URL."""

    def make(configure: str = "", write: str = "", read: str = "") -> str:
        management("PUT", f"users/{namespace}", password=SECRET, tags="")
        permissions = {"configure": configure, "write": write, "read": read}
        management("PUT", f"permissions/%2F/{namespace}", **permissions)
        return f"amqp://{namespace}:{SECRET}@127.0.0.1:{urlsplit(broker.url).port}"

    return make


@pytest.fixture(autouse=True)
def _no_password_anywhere(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """Assert that the password is not logged in any of these tests, at any log level."""
    caplog.set_level(logging.DEBUG)
    yield
    assert SECRET not in caplog.text


@pytest.fixture
def connect(front: Front) -> Connect:
    """Connect and close."""

    def open_and_close(url: str) -> None:
        with front.client(url, connect_timeout=0, stabilise_seconds=0):
            pass

    return open_and_close


def test_an_address_without_a_broker_is_unreachable(connect: Connect) -> None:
    with pytest.raises(BrokerUnreachable, match=r"guest:\*\*\*@127.0.0.1.*refused"):
        connect(f"amqp://guest:{SECRET}@127.0.0.1:{pick_free(1)[0]}")


def test_an_unknown_host_is_unreachable(connect: Connect) -> None:
    with pytest.raises(BrokerUnreachable):
        connect(f"amqp://guest:{SECRET}@no-such-host.invalid")


def test_a_client_waits_for_its_first_connection(
    front: Front, breakable_broker: PrivateBroker, namespace: str
) -> None:
    """A service that starts just before its broker connects within connect_timeout."""
    breakable_broker.nodes[0].kill()
    client = front.client(
        breakable_broker.url, namespace=namespace, stabilise_seconds=0, connect_timeout=patience(30)
    )
    putting = ThreadPoolExecutor().submit(client.put, "t")
    breakable_broker.start()
    assert putting.result(patience(30)).topic == "t"
    client.close()


def test_a_server_that_does_not_speak_amqp_is_unreachable(
    connect: Connect, broker: PrivateBroker
) -> None:
    with pytest.raises(BrokerUnreachable, match="does not speak AMQP"):
        connect(f"amqp://guest:{SECRET}@127.0.0.1:{urlsplit(broker.management_url).port}")


def test_a_url_with_another_scheme_is_refused(front: Front) -> None:
    with pytest.raises(InvalidConfiguration, match="amqp:// or amqps://"):
        front.client("redis://localhost")


@pytest.mark.parametrize("url", [3, b"amqp://localhost", ["amqp://localhost"]])
def test_a_url_that_is_not_text_is_refused(front: Front, url: Any) -> None:  # noqa: ANN401 - anything
    with pytest.raises(InvalidConfiguration, match="must be text, not"):
        front.client(url)


@pytest.mark.parametrize("value", ["x", -1, True, float("nan")])
@pytest.mark.parametrize("name", ["timeout", "connect_timeout", "stabilise_seconds", "window"])
def test_an_invalid_setting_is_refused(front: Front, name: str, value: Any) -> None:  # noqa: ANN401 - the same
    with pytest.raises(InvalidConfiguration, match=name):
        front.client("amqp://localhost", **{name: value})


@pytest.mark.parametrize("value", ["x", -1, True])
def test_an_invalid_timeout_is_refused(front: Front, broker: PrivateBroker, value: Any) -> None:  # noqa: ANN401 - the same
    with front.client(broker.url, stabilise_seconds=0) as client:
        with pytest.raises(InvalidConfiguration, match="timeout"):
            client.put("t", timeout=value)
        with pytest.raises(InvalidConfiguration, match="timeout"):
            client.delete("one", timeout=value)


def test_a_wrong_password_is_refused(connect: Connect, broker: PrivateBroker) -> None:
    with pytest.raises(LoginRefused, match="login was refused: check the user and") as caught:
        connect(f"amqp://guest:{SECRET}@127.0.0.1:{urlsplit(broker.url).port}")
    assert SECRET not in str(caught.value)


def test_a_missing_vhost_is_refused(connect: Connect, broker: PrivateBroker) -> None:
    with pytest.raises(VhostRefused, match="nowhere"):
        connect(f"{broker.url}nowhere")


def test_a_vhost_without_permissions_is_refused(
    connect: Connect, broker: PrivateBroker, management: Management, namespace: str
) -> None:
    management("PUT", f"users/{namespace}", password=SECRET, tags="")
    with pytest.raises(VhostRefused, match="permissions"):
        connect(f"amqp://{namespace}:{SECRET}@127.0.0.1:{urlsplit(broker.url).port}")


def test_a_declare_without_permission_is_refused(
    front: Front, user_url: Callable[..., str], namespace: str
) -> None:
    with (
        front.client(user_url(write=".*", read=".*"), namespace=namespace) as client,
        pytest.raises(
            PermissionRefused, match=r"run `rabbitdelay .*` as .*, or grant configure to this user"
        ),
    ):
        client.put("t")


def test_a_publish_without_permission_is_refused(
    front: Front, user_url: Callable[..., str], broker: PrivateBroker, namespace: str
) -> None:
    with front.client(broker.url, namespace=namespace, stabilise_seconds=0) as owner:
        owner.put("t", delay=60)
    with (
        front.client(
            user_url(read=".*"), namespace=namespace, declare=False, timeout=patience(10)
        ) as client,
        pytest.raises(PermissionRefused, match="ACCESS_REFUSED") as refused,
    ):
        client.put("t", delay=60)
    assert "docs/operations.md lists the permissions" in str(refused.value)
    assert "declare=False" not in str(refused.value), "the client already sets it"


def test_tls_to_a_port_without_tls_is_refused(connect: Connect, broker: PrivateBroker) -> None:
    port = urlsplit(broker.url).port
    with pytest.raises(CertificateRefused, match="does not speak TLS: use amqp://"):
        connect(f"amqps://guest:guest@localhost:{port}")


def test_a_putter_needs_only_write_if_all_queues_exist(
    front: Front, user_url: Callable[..., str], broker: PrivateBroker, namespace: str
) -> None:
    with front.client(broker.url, namespace=namespace, stabilise_seconds=0) as owner:
        owner.put("t", delay=0.01)
    url = user_url(write=rf"^{namespace}\.")
    with front.client(url, namespace=namespace, declare=False) as putter:
        job = putter.put("t", delay=0.01)
    with Receiver(broker.url, Topology(namespace).ready_queue("t")) as receiver:
        receiver.wait_for(job.id)


def test_permissions_for_the_namespace_suffice_to_declare(
    front: Front, user_url: Callable[..., str], namespace: str
) -> None:
    own = rf"^{namespace}\."
    with front.client(user_url(own, own, own), namespace=namespace, stabilise_seconds=0) as client:
        assert client.put("t", delay=1.5).topic == "t"


def test_a_client_that_may_not_declare_names_the_missing_queues(
    front: Front, broker: PrivateBroker, namespace: str
) -> None:
    with (
        front.client(broker.url, namespace=namespace, declare=False) as client,
        pytest.raises(TopologyMissing) as caught,
    ):
        client.put("orderclose", delay=1800)
    for name in ("hold.30m", "ready.orderclose", "unrouted"):
        assert f"{namespace}.v1.{name}" in str(caught.value)
    with pika.BlockingConnection(pika.URLParameters(broker.url)) as connection:
        channel = connection.channel()
        with pytest.raises(pika.exceptions.ChannelClosedByBroker):
            channel.queue_declare(f"{namespace}.v1.unrouted", passive=True)


def test_a_namespace_with_other_arguments_is_refused(
    front: Front, broker: PrivateBroker, namespace: str
) -> None:
    with front.client(broker.url, namespace=namespace, stabilise_seconds=0) as first:
        first.put("t")
    with (
        front.client(broker.url, namespace=namespace, queue_type="classic") as second,
        pytest.raises(TopologyConflict, match=r"PRECONDITION_FAILED.*queue type"),
    ):
        second.put("t")


def test_a_refused_put_does_not_affect_the_next(
    front: Front, broker: PrivateBroker, namespace: str
) -> None:
    other = Topology(namespace).ready_queue("taken")
    with front.client(broker.url, namespace=namespace, stabilise_seconds=0) as client:
        client.put("t")
        with pika.BlockingConnection(pika.URLParameters(broker.url)) as connection:
            connection.channel().queue_declare(other, durable=True)
        with pytest.raises(TopologyConflict, match="taken"):
            client.put("taken")
        assert client.put("t").topic == "t"


def test_a_body_above_the_brokers_limit_is_refused(
    front: Front, broker: PrivateBroker, namespace: str
) -> None:
    """The broker closes the channel; only the put that caused it fails, not those around it."""
    with front.client(
        broker.url,
        namespace=namespace,
        stabilise_seconds=0,
        max_body_bytes=10_000_000,
        timeout=patience(20),
    ) as client:
        beside = [client.put_nowait("t", n, delay=0.01) for n in range(50)]
        large = client.put_nowait("t", b"x" * 5_000_000)
        after = [client.put_nowait("t", n, delay=0.01) for n in range(50)]
        with pytest.raises(InvalidJob, match="above 4,194,304 bytes"):
            large.result(patience(20))
        assert all(future.result(patience(20)) for future in beside + after)


def test_a_put_without_hold_queue_and_unrouted_queue_is_refused(
    front: Front, broker: PrivateBroker, namespace: str
) -> None:
    """The broker returns the message, the put raises, and the next one declares the queue again."""
    topology = Topology(namespace)
    with front.client(broker.url, namespace=namespace, stabilise_seconds=0) as client:
        client.put("t", delay=60)
        with pika.BlockingConnection(pika.URLParameters(broker.url)) as connection:
            channel = connection.channel()
            channel.queue_delete(f"{topology.prefix}hold.1m")
            channel.queue_delete(topology.unrouted)
        with pytest.raises(JobRefused, match="cannot route"):
            client.put("t", delay=60)
        assert client.put("t", delay=60).topic == "t"  # the queue has been declared again


def test_a_put_to_a_full_queue_waits_until_the_queue_accepts_it(
    front: Front,
    broker: PrivateBroker,
    management: Management,
    namespace: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A refused message is republished, after a while on another channel, until it is accepted."""
    full = {"max-length": 1, "overflow": "reject-publish"}
    queue = Topology(namespace).ready_queue("t").replace(".", "[.]")
    with front.client(
        broker.url, namespace=namespace, stabilise_seconds=0, timeout=patience(20)
    ) as client:
        put = client.put_nowait("t")
        policy = f"policies/%2F/{namespace}"
        management("PUT", policy, pattern=f"^{queue}$", definition=full)
        ids = {put.result(patience(10)).id}
        while wait([put], 0.5).done:  # a policy takes effect after a moment
            ids.add(put.result().id)
            put = client.put_nowait("t")
        wait_until(
            lambda: "refused messages for 2 s; trying another channel" in caplog.text, seconds=30
        )
        assert not put.done()
        management("DELETE", policy)
        found = {pop(client).id}  # so that the queue checks its length again
        ids.add(put.result(patience(30)).id)
        while found != ids:
            found.add(pop(client).id)


def test_a_deleted_exchange_is_declared_again(
    front: Front, broker: PrivateBroker, namespace: str
) -> None:
    topology = Topology(namespace)
    with front.client(broker.url, namespace=namespace, stabilise_seconds=0) as client:
        client.put("t", delay=0.02)
        with pika.BlockingConnection(pika.URLParameters(broker.url)) as connection:
            connection.channel().exchange_delete(f"{topology.prefix}hold.20ms")
        job = client.put("t", delay=0.02)
    with Receiver(broker.url, topology.ready_queue("t")) as receiver:
        receiver.wait_for(job.id)


def test_tls_with_a_known_authority_works(
    front: Front, broker: PrivateBroker, tls_port: int, namespace: str
) -> None:
    url = f"amqps://guest:guest@localhost:{tls_port}?cacertfile={broker.directory}/authority.pem"
    with front.client(url, namespace=namespace, stabilise_seconds=0) as client:
        job = client.put("t", b"x" * 500_000, delay=0.05)
    with Receiver(broker.url, Topology(namespace).ready_queue("t")) as receiver:
        receiver.wait_for(job.id)


def test_tls_with_an_unknown_authority_is_refused(connect: Connect, tls_port: int) -> None:
    with pytest.raises(CertificateRefused, match="certificate verify failed"):
        connect(f"amqps://guest:{SECRET}@localhost:{tls_port}")


def test_tls_with_another_host_name_is_refused(
    connect: Connect, broker: PrivateBroker, tls_port: int
) -> None:
    authority = f"cacertfile={broker.directory}/authority.pem"
    with pytest.raises(CertificateRefused, match=r"127\.0\.0\.1"):
        connect(f"amqps://guest:{SECRET}@127.0.0.1:{tls_port}?{authority}")


def test_missing_tls_files_are_refused(connect: Connect, tls_port: int) -> None:
    with pytest.raises(InvalidConfiguration, match="cannot read the TLS files"):
        connect(f"amqps://guest:{SECRET}@localhost:{tls_port}?cacertfile=nothing.pem")


def test_puts_during_a_broker_alarm_raise_and_continue_after_it(
    front: Front, broker: PrivateBroker, namespace: str, alarm: Callable[[bool], None]
) -> None:
    """Puts raise BrokerBlocked during the alarm, and continue over the same connection after it."""
    with front.client(broker.url, namespace=namespace, stabilise_seconds=0) as client:
        client.put("t", delay=0.01)
        alarm(True)  # noqa: FBT003 - on
        with pytest.raises(BrokerBlocked, match="alarm") as caught:
            client.put("t", delay=0.01, id="during", timeout=2)
        assert isinstance(caught.value, OutcomeUnknown)
        with pytest.raises(BrokerBlocked) as second:
            client.put("t", delay=0.01, timeout=0.5)
        assert not second.value.sent  # nothing is sent while the broker is known to be blocked
        waiting = client.put_nowait("t", delay=0.01, timeout=patience(20))
        alarm(False)  # noqa: FBT003 - off
        assert waiting.result(patience(20)).topic == "t"


def test_jobs_are_consumed_during_an_alarm(
    front: Front,
    broker: PrivateBroker,
    namespace: str,
    alarm: Callable[[bool], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """No fence and no delete can be written during an alarm, so consumers may continue and start.

    Otherwise the messages that cause the alarm could never be consumed.
    """
    monkeypatch.setattr(fence, "LOOK_SECONDS", 0.3)
    monkeypatch.setattr(fence, "PATIENCE_SECONDS", 0.5)
    new_client = partial(
        front.client, broker.url, namespace=namespace, stabilise_seconds=0, timeout=patience(20)
    )
    with new_client() as client:
        jobs = [client.put("t", n) for n in range(4)]
        client.delete(jobs[0])
        first = client.pop("t", wait=patience(10))
        assert first is not None
        assert first.body == 1
        alarm(True)  # noqa: FBT003 - on
        time.sleep(
            2
        )  # until the proof has expired: the next pop needs another one, which cannot be written
        second = client.pop("t", wait=patience(10))
        assert second is not None
        assert client._log_reader().status._appender.is_blocked
        with new_client() as started_meanwhile:
            third = started_meanwhile.pop("t", wait=patience(20))
            assert third is not None
            assert {second.body, third.body} == {2, 3}
            for job in (first, second, third):
                job.finish()
        alarm(False)  # noqa: FBT003 - off
        client.put("t", "after", timeout=patience(20))
        after = client.pop("t", wait=patience(20))
        assert after is not None
        assert after.body == "after"


def writes_in_vain(log_reader: LogReader) -> bool:
    """Whether the broker has blocked a log reader, which it does at the next fence only."""
    log_reader.check.prepare()
    return log_reader.status._appender.is_blocked


def test_a_consumer_that_starts_during_an_alarm_reads_a_new_log_from_its_beginning(
    front: Front,
    broker: PrivateBroker,
    namespace: str,
    alarm: Callable[[bool], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The log was deleted and created again, so the snapshot's position does not exist yet."""
    monkeypatch.setattr(fence, "LOOK_SECONDS", 0.3)
    monkeypatch.setattr(fence, "PATIENCE_SECONDS", 2.0)
    monkeypatch.setattr(snapshot_writer, "SNAPSHOT_EVERY", 500)
    new_client = partial(
        front.client, broker.url, namespace=namespace, stabilise_seconds=0, timeout=patience(20)
    )
    with new_client() as client:
        client.put("t", "lives")
        for number in range(200):
            client.delete(f"old-{number}")
        wait_until(lambda: client.tombstones().snapshot_ms, seconds=20)
        monkeypatch.setattr(snapshot_writer, "SNAPSHOT_EVERY", 1_000_000)
        log_reader = client._log_reader()
        with pika.BlockingConnection(pika.URLParameters(broker.url)) as connection:
            connection.channel().queue_delete(client.topology.tombstones)
        wait_until(lambda: not log_reader.is_current, seconds=20)
        wait_until(lambda: log_reader.is_current, seconds=40)
        client.delete(client.put("t", "dead"))
        alarm(True)  # noqa: FBT003 - on
        wait_until(lambda: writes_in_vain(log_reader), seconds=20)
        with new_client() as started_meanwhile:
            job = started_meanwhile.pop("t", wait=patience(20))
            assert job is not None
            assert job.body == "lives"
            job.finish()
            assert started_meanwhile.pop("t") is None
        alarm(False)  # noqa: FBT003 - off


def test_a_worker_continues_after_an_alarm_while_others_delete(
    front: Front,
    broker: PrivateBroker,
    namespace: str,
    alarm: Callable[[bool], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A fence could not be written in time. Another one is, also while the log is being read."""
    monkeypatch.setattr(appender, "TIMEOUT_SECONDS", 1.0)
    monkeypatch.setattr(fence, "PATIENCE_SECONDS", 0.5)
    worker = front.worker(broker.url, namespace=namespace, stabilise_seconds=0)
    seen = noting(worker)
    with (
        front.client(
            broker.url, namespace=namespace, stabilise_seconds=0, timeout=patience(20)
        ) as client,
        working(worker),
    ):
        client.put("t", id="before")
        wait_until(lambda: "before" in seen)
        client.put_many(JobSpec("t", id=f"during {n}", delay=4 + n) for n in range(3))
        with deletes_flow(client):
            alarm(True)  # noqa: FBT003 - on
            wait_until(lambda: "during 2" in seen, seconds=60)
            alarm(False)  # noqa: FBT003 - off
            client.put("t", id="after", delay=2)
            wait_until(lambda: "after" in seen, seconds=60)
    assert set(seen) == {"before", "during 0", "during 1", "during 2", "after"}


@pytest.fixture
def alarm(broker: PrivateBroker) -> Iterator[Callable[[bool], None]]:
    """Set or clear the broker's memory alarm."""

    def set_alarm(on: bool) -> None:  # noqa: FBT001 - on or off
        node = broker.nodes[0]
        node.control("set_vm_memory_high_watermark", "0.00001" if on else "0.8")

    yield set_alarm
    set_alarm(False)
