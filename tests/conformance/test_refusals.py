"""What stands in the way of a put, each with its own clear error, and no password in any."""

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
from rabbitdelay.engine.deletes import appender, fence, snapshot_writer
from rabbitdelay.private_broker import PrivateBroker
from rabbitdelay.private_broker.ports import pick_free
from tests.support.deleting import deletes_flow, noting
from tests.support.fronts import Front
from tests.support.popping import pop
from tests.support.receiver import Receiver
from tests.support.waiting import patience, wait_until
from tests.support.working import working

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
    """A broker of its own: with TLS, and whose users and alarms can be changed."""
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
    """Call the management API."""

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
    """The URL of a new user with these permissions."""

    def make(configure: str = "", write: str = "", read: str = "") -> str:
        management("PUT", f"users/{namespace}", password=SECRET, tags="")
        permissions = {"configure": configure, "write": write, "read": read}
        management("PUT", f"permissions/%2F/{namespace}", **permissions)
        return f"amqp://{namespace}:{SECRET}@127.0.0.1:{urlsplit(broker.url).port}"

    return make


@pytest.fixture(autouse=True)
def _no_password_anywhere(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """Whatever happens in these tests, at any log level, the password is not logged."""
    caplog.set_level(logging.DEBUG)
    yield
    assert SECRET not in caplog.text


@pytest.fixture
def connect(front: Front) -> Connect:
    """Connect, and close again."""

    def open_and_close(url: str) -> None:
        with front.client(url, connect_timeout=0, settle_seconds=0):
            pass

    return open_and_close


def test_nobody_there(connect: Connect) -> None:
    with pytest.raises(BrokerUnreachable, match=r"guest:\*\*\*@127.0.0.1.*refused"):
        connect(f"amqp://guest:{SECRET}@127.0.0.1:{pick_free(1)[0]}")


def test_no_such_host(connect: Connect) -> None:
    with pytest.raises(BrokerUnreachable):
        connect(f"amqp://guest:{SECRET}@no-such-host.invalid")


def test_the_first_connection_is_waited_for(
    front: Front, breakable_broker: PrivateBroker, namespace: str
) -> None:
    """A service that starts a moment before its broker finds it, within connect_timeout."""
    breakable_broker.nodes[0].kill()
    client = front.client(
        breakable_broker.url, namespace=namespace, settle_seconds=0, connect_timeout=patience(30)
    )
    putting = ThreadPoolExecutor().submit(client.put, "t")
    breakable_broker.start()
    assert putting.result(patience(30)).topic == "t"
    client.close()


def test_something_else_answers_there(connect: Connect, broker: PrivateBroker) -> None:
    with pytest.raises(BrokerUnreachable, match="does not speak AMQP"):
        connect(f"amqp://guest:{SECRET}@127.0.0.1:{urlsplit(broker.management_url).port}")


def test_a_wrong_scheme(front: Front) -> None:
    with pytest.raises(InvalidConfiguration, match="amqp:// or amqps://"):
        front.client("redis://localhost")


@pytest.mark.parametrize("url", [3, b"amqp://localhost", ["amqp://localhost"]])
def test_a_url_that_is_no_text(front: Front, url: Any) -> None:  # noqa: ANN401 - anything
    with pytest.raises(InvalidConfiguration, match="must be text, not"):
        front.client(url)


@pytest.mark.parametrize("value", ["x", -1, True, float("nan")])
@pytest.mark.parametrize("name", ["timeout", "connect_timeout", "settle_seconds", "window"])
def test_a_setting_that_is_none(front: Front, name: str, value: Any) -> None:  # noqa: ANN401 - the same
    with pytest.raises(InvalidConfiguration, match=name):
        front.client("amqp://localhost", **{name: value})


@pytest.mark.parametrize("value", ["x", -1, True])
def test_a_timeout_that_is_none(front: Front, broker: PrivateBroker, value: Any) -> None:  # noqa: ANN401 - the same
    with front.client(broker.url, settle_seconds=0) as client:
        with pytest.raises(InvalidConfiguration, match="timeout"):
            client.put("t", timeout=value)
        with pytest.raises(InvalidConfiguration, match="timeout"):
            client.delete("one", timeout=value)


def test_a_refused_login(connect: Connect, broker: PrivateBroker) -> None:
    with pytest.raises(LoginRefused, match="login was refused: check the user and") as caught:
        connect(f"amqp://guest:{SECRET}@127.0.0.1:{urlsplit(broker.url).port}")
    assert SECRET not in str(caught.value)


def test_a_missing_vhost(connect: Connect, broker: PrivateBroker) -> None:
    with pytest.raises(VhostRefused, match="nowhere"):
        connect(f"{broker.url}nowhere")


def test_a_closed_vhost(
    connect: Connect, broker: PrivateBroker, management: Management, namespace: str
) -> None:
    management("PUT", f"users/{namespace}", password=SECRET, tags="")
    with pytest.raises(VhostRefused, match="permissions"):
        connect(f"amqp://{namespace}:{SECRET}@127.0.0.1:{urlsplit(broker.url).port}")


def test_no_permission_to_declare(
    front: Front, user_url: Callable[..., str], namespace: str
) -> None:
    with (
        front.client(user_url(write=".*", read=".*"), namespace=namespace) as client,
        pytest.raises(
            PermissionRefused, match=r"run `rabbitdelay .*` as .*, or grant configure to this user"
        ),
    ):
        client.put("t")


def test_no_permission_to_publish(
    front: Front, user_url: Callable[..., str], broker: PrivateBroker, namespace: str
) -> None:
    with front.client(broker.url, namespace=namespace, settle_seconds=0) as owner:
        owner.put("t", delay=60)
    with (
        front.client(
            user_url(read=".*"), namespace=namespace, declare=False, timeout=patience(10)
        ) as client,
        pytest.raises(PermissionRefused, match="ACCESS_REFUSED") as refused,
    ):
        client.put("t", delay=60)
    assert "docs/operations.md lists the permissions" in str(refused.value)
    assert "declare=False" not in str(refused.value), "it is set already"


def test_tls_to_a_port_without_tls_says_so(connect: Connect, broker: PrivateBroker) -> None:
    port = urlsplit(broker.url).port
    with pytest.raises(CertificateRefused, match="does not speak TLS: use amqp://"):
        connect(f"amqps://guest:guest@localhost:{port}")


def test_a_putter_needs_write_alone_where_all_is_made(
    front: Front, user_url: Callable[..., str], broker: PrivateBroker, namespace: str
) -> None:
    with front.client(broker.url, namespace=namespace, settle_seconds=0) as owner:
        owner.put("t", delay=0.01)
    url = user_url(write=rf"^{namespace}\.")
    with front.client(url, namespace=namespace, declare=False) as putter:
        job = putter.put("t", delay=0.01)
    with Receiver(broker.url, Topology(namespace).ready_queue("t")) as receiver:
        receiver.wait_for(job.id)


def test_the_namespace_is_permission_enough_to_declare(
    front: Front, user_url: Callable[..., str], namespace: str
) -> None:
    own = rf"^{namespace}\."
    with front.client(user_url(own, own, own), namespace=namespace, settle_seconds=0) as client:
        assert client.put("t", delay=1.5).topic == "t"


def test_a_locked_down_client_says_what_is_missing(
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


def test_a_namespace_with_other_arguments(
    front: Front, broker: PrivateBroker, namespace: str
) -> None:
    with front.client(broker.url, namespace=namespace, settle_seconds=0) as first:
        first.put("t")
    with (
        front.client(broker.url, namespace=namespace, queue_type="classic") as second,
        pytest.raises(TopologyConflict, match=r"PRECONDITION_FAILED.*queue type"),
    ):
        second.put("t")


def test_one_refused_put_does_not_hurt_the_next(
    front: Front, broker: PrivateBroker, namespace: str
) -> None:
    other = Topology(namespace).ready_queue("taken")
    with front.client(broker.url, namespace=namespace, settle_seconds=0) as client:
        client.put("t")
        with pika.BlockingConnection(pika.URLParameters(broker.url)) as connection:
            connection.channel().queue_declare(other, durable=True)
        with pytest.raises(TopologyConflict, match="taken"):
            client.put("taken")
        assert client.put("t").topic == "t"


def test_a_body_above_the_brokers_limit(
    front: Front, broker: PrivateBroker, namespace: str
) -> None:
    """The broker closes the channel; the put that caused it fails, those beside it do not."""
    with front.client(
        broker.url,
        namespace=namespace,
        settle_seconds=0,
        max_body_bytes=10_000_000,
        timeout=patience(20),
    ) as client:
        beside = [client.put_nowait("t", n, delay=0.01) for n in range(50)]
        large = client.put_nowait("t", b"x" * 5_000_000)
        after = [client.put_nowait("t", n, delay=0.01) for n in range(50)]
        with pytest.raises(InvalidJob, match="above 4,194,304 bytes"):
            large.result(patience(20))
        assert all(future.result(patience(20)) for future in beside + after)


def test_nowhere_to_put_a_job(front: Front, broker: PrivateBroker, namespace: str) -> None:
    """Its hold queue and even `unrouted` are gone: the broker returns it, and put says so."""
    topology = Topology(namespace)
    with front.client(broker.url, namespace=namespace, settle_seconds=0) as client:
        client.put("t", delay=60)
        with pika.BlockingConnection(pika.URLParameters(broker.url)) as connection:
            channel = connection.channel()
            channel.queue_delete(f"{topology.prefix}hold.1m")
            channel.queue_delete(topology.unrouted)
        with pytest.raises(JobRefused, match="nowhere to put"):
            client.put("t", delay=60)
        assert client.put("t", delay=60).topic == "t"  # it has been made again


def test_a_queue_that_is_full_for_a_while(
    front: Front,
    broker: PrivateBroker,
    management: Management,
    namespace: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """What is refused is sent again, after a while on another channel, until it is taken."""
    full = {"max-length": 1, "overflow": "reject-publish"}
    queue = Topology(namespace).ready_queue("t").replace(".", "[.]")
    with front.client(
        broker.url, namespace=namespace, settle_seconds=0, timeout=patience(20)
    ) as client:
        put = client.put_nowait("t")
        policy = f"policies/%2F/{namespace}"
        management("PUT", policy, pattern=f"^{queue}$", definition=full)
        ids = {put.result(patience(10)).id}
        while wait([put], 0.5).done:  # a policy holds after a moment
            ids.add(put.result().id)
            put = client.put_nowait("t")
        wait_until(
            lambda: "refused messages for 2 s; trying another channel" in caplog.text, seconds=30
        )
        assert not put.done()
        management("DELETE", policy)
        found = {pop(client).id}  # so that the queue looks at its length again
        ids.add(put.result(patience(30)).id)
        while found != ids:
            found.add(pop(client).id)


def test_a_deleted_exchange_is_made_again(
    front: Front, broker: PrivateBroker, namespace: str
) -> None:
    topology = Topology(namespace)
    with front.client(broker.url, namespace=namespace, settle_seconds=0) as client:
        client.put("t", delay=0.02)
        with pika.BlockingConnection(pika.URLParameters(broker.url)) as connection:
            connection.channel().exchange_delete(f"{topology.prefix}hold.20ms")
        job = client.put("t", delay=0.02)
    with Receiver(broker.url, topology.ready_queue("t")) as receiver:
        receiver.wait_for(job.id)


def test_tls_with_a_known_authority(
    front: Front, broker: PrivateBroker, tls_port: int, namespace: str
) -> None:
    url = f"amqps://guest:guest@localhost:{tls_port}?cacertfile={broker.directory}/authority.pem"
    with front.client(url, namespace=namespace, settle_seconds=0) as client:
        job = client.put("t", b"x" * 500_000, delay=0.05)
    with Receiver(broker.url, Topology(namespace).ready_queue("t")) as receiver:
        receiver.wait_for(job.id)


def test_tls_with_an_unknown_authority(connect: Connect, tls_port: int) -> None:
    with pytest.raises(CertificateRefused, match="certificate verify failed"):
        connect(f"amqps://guest:{SECRET}@localhost:{tls_port}")


def test_tls_with_another_host_name(connect: Connect, broker: PrivateBroker, tls_port: int) -> None:
    authority = f"cacertfile={broker.directory}/authority.pem"
    with pytest.raises(CertificateRefused, match=r"127\.0\.0\.1"):
        connect(f"amqps://guest:{SECRET}@127.0.0.1:{tls_port}?{authority}")


def test_tls_files_that_are_not_there(connect: Connect, tls_port: int) -> None:
    with pytest.raises(InvalidConfiguration, match="cannot read the TLS files"):
        connect(f"amqps://guest:{SECRET}@localhost:{tls_port}?cacertfile=nothing.pem")


def test_a_broker_alarm(
    front: Front, broker: PrivateBroker, namespace: str, alarm: Callable[[bool], None]
) -> None:
    """While the alarm lasts a put says so; when it ends, puts go on over the same connection."""
    with front.client(broker.url, namespace=namespace, settle_seconds=0) as client:
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


def test_jobs_are_consumed_while_an_alarm_lasts(
    front: Front,
    broker: PrivateBroker,
    namespace: str,
    alarm: Callable[[bool], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A fence cannot be written then, and neither can a delete: who consumes may go on, or begin.

    Else nobody could ever consume what the alarm is about.
    """
    monkeypatch.setattr(fence, "LOOK_SECONDS", 0.3)
    monkeypatch.setattr(fence, "PATIENCE_SECONDS", 0.5)
    new_client = partial(
        front.client, broker.url, namespace=namespace, settle_seconds=0, timeout=patience(20)
    )
    with new_client() as client:
        jobs = [client.put("t", n) for n in range(4)]
        client.delete(jobs[0])
        first = client.pop("t", wait=patience(10))
        assert first is not None
        assert first.body == 1
        alarm(True)  # noqa: FBT003 - on
        time.sleep(2)  # until the proof has expired: the next pop needs another, and cannot write
        second = client.pop("t", wait=patience(10))
        assert second is not None
        assert client._follower().appender.is_blocked
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


def test_a_consumer_that_starts_during_an_alarm_reads_a_new_log_from_its_beginning(
    front: Front,
    broker: PrivateBroker,
    namespace: str,
    alarm: Callable[[bool], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The log was deleted and made again: the position that its snapshot names is not there yet."""
    monkeypatch.setattr(fence, "LOOK_SECONDS", 0.3)
    monkeypatch.setattr(fence, "PATIENCE_SECONDS", 2.0)
    monkeypatch.setattr(snapshot_writer, "SNAPSHOT_EVERY", 500)
    new_client = partial(
        front.client, broker.url, namespace=namespace, settle_seconds=0, timeout=patience(20)
    )
    with new_client() as client:
        client.put("t", "lives")
        for number in range(200):
            client.delete(f"old-{number}")
        wait_until(lambda: client.tombstones().snapshot_ms, seconds=20)
        monkeypatch.setattr(snapshot_writer, "SNAPSHOT_EVERY", 1_000_000)
        follower = client._follower()
        with pika.BlockingConnection(pika.URLParameters(broker.url)) as connection:
            connection.channel().queue_delete(client.topology.tombstones)
        wait_until(lambda: not follower.is_current, seconds=20)
        wait_until(lambda: follower.is_current, seconds=40)
        client.delete(client.put("t", "dead"))
        alarm(True)  # noqa: FBT003 - on
        wait_until(lambda: follower.appender.is_blocked, seconds=20)
        with new_client() as started_meanwhile:
            job = started_meanwhile.pop("t", wait=patience(20))
            assert job is not None
            assert job.body == "lives"
            job.finish()
            assert started_meanwhile.pop("t") is None
        alarm(False)  # noqa: FBT003 - off


def test_a_worker_goes_on_after_an_alarm_while_others_delete(
    front: Front,
    broker: PrivateBroker,
    namespace: str,
    alarm: Callable[[bool], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A fence could not be written in time: another is, also while the log is being read."""
    monkeypatch.setattr(appender, "TIMEOUT_SECONDS", 1.0)
    monkeypatch.setattr(fence, "PATIENCE_SECONDS", 0.5)
    worker = front.worker(broker.url, namespace=namespace, settle_seconds=0)
    seen = noting(worker)
    with (
        front.client(
            broker.url, namespace=namespace, settle_seconds=0, timeout=patience(20)
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
    """Set the broker's memory alarm."""

    def set_alarm(on: bool) -> None:  # noqa: FBT001 - on or off
        node = broker.nodes[0]
        node.control("set_vm_memory_high_watermark", "0.00001" if on else "0.8")

    yield set_alarm
    set_alarm(False)
