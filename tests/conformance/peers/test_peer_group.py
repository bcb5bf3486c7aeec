"""Messages between the clients of one namespace."""

import threading
import time
from collections.abc import Callable

import pika
import pytest

from rabbitdelay import Client
from rabbitdelay.core.amqp import reply_codes
from rabbitdelay.core.jobs.envelope import Message
from rabbitdelay.core.peers.roster import SILENT_SECONDS
from rabbitdelay.core.topology.topology import Topology
from rabbitdelay.engine.peers.peer_group import OnQuestion, PeerGroup, Reply
from tests.conftest import ClientFactory
from tests.support.brokers.messages import publish_frames
from tests.support.jobs.connections import cut_pops
from tests.support.jobs.flows import run_flow
from tests.support.patience import patience, wait_until

pytestmark = pytest.mark.usefixtures("existing_namespace")

ANSWER_SECONDS = patience(10)


def shout(question: bytes, reply: Reply) -> None:
    """Answer with the question in upper case."""
    reply(question.upper())


def stay_silent(_question: bytes, _reply: Reply) -> None:
    """Do not answer."""


def joined(client: Client, on_question: OnQuestion = shout) -> PeerGroup:
    """Have a client take part; return its view once it receives messages."""
    group = run_flow(client, client._engine.peers())
    group.join(on_question)
    wait_until(lambda: group.is_open)
    return group


def test_a_question_is_answered(make_client: ClientFactory) -> None:
    one, two = make_client(), make_client()
    asking, asked = joined(one), joined(two)
    assert run_flow(one, asking.ask(asked.own, b"where?", ANSWER_SECONDS)) == b"WHERE?"
    assert run_flow(two, asked.ask(asking.own, b"here", ANSWER_SECONDS)) == b"HERE"


def test_peers_learn_of_each_other(make_client: ClientFactory) -> None:
    groups = [joined(make_client()) for _ in range(3)]
    names = {group.own for group in groups}
    for group in groups:
        wait_until(lambda group=group: {group.own, *group.living} == names)  # type: ignore[misc]


def test_all_peers_are_asked(make_client: ClientFactory) -> None:
    clients = [make_client() for _ in range(3)]
    groups = [joined(client) for client in clients]
    wait_until(lambda: len(groups[0].living) == 2)
    ask = groups[0].ask_all(b"hi", ANSWER_SECONDS, lambda _: False)
    assert run_flow(clients[0], ask) == [b"HI", b"HI"]


def test_an_answer_that_is_enough_ends_the_wait(make_client: ClientFactory) -> None:
    clients = [make_client() for _ in range(3)]
    groups = [joined(clients[0]), joined(clients[1]), joined(clients[2], stay_silent)]
    wait_until(lambda: len(groups[0].living) == 2)
    began = time.monotonic()
    ask = groups[0].ask_all(b"hi", patience(300), lambda answer: answer == b"HI")
    assert run_flow(clients[0], ask) == [b"HI"]
    assert time.monotonic() - began < patience(100)


def test_a_client_alone_asks_nobody(client: Client) -> None:
    group = joined(client)
    assert group.living == []
    assert run_flow(client, group.ask_all(b"hi", patience(300), lambda _: True)) == []


def test_a_peer_that_was_closed_is_known_to_be_gone_at_once(make_client: ClientFactory) -> None:
    one, two = make_client(), make_client()
    asking, asked = joined(one), joined(two)
    wait_until(lambda: asking.living == [asked.own])
    two.close()
    wait_until(lambda: asking.living == [])
    began = time.monotonic()
    assert run_flow(one, asking.ask(asked.own, b"?", patience(300))) is None
    assert time.monotonic() - began < patience(100)


def test_a_peer_that_lost_its_connection_is_known_to_be_gone_at_once(
    make_client: ClientFactory,
) -> None:
    """The broker deletes its mailbox, and returns the question."""
    one, two = make_client(), make_client()
    asking, asked = joined(one), joined(two)
    two.pop("t")
    before = asked.own
    cut_pops(two)
    wait_until(lambda: asked.is_open and asked.own != before)
    assert run_flow(one, asking.ask(before, b"?", patience(300))) is None
    assert run_flow(one, asking.ask(asked.own, b"again", ANSWER_SECONDS)) == b"AGAIN"
    assert asked.is_own(before)


def test_a_peer_that_does_not_answer_is_not_waited_for_longer(make_client: ClientFactory) -> None:
    one, two = make_client(), make_client()
    asking, asked = joined(one), joined(two, stay_silent)
    assert run_flow(one, asking.ask(asked.own, b"?", 0.05)) is None
    assert asking.living == [asked.own]


def test_a_peer_that_says_nothing_counts_as_gone(
    make_client: ClientFactory, broker_url: str, namespace: str
) -> None:
    group = joined(make_client())
    stranger = "0123456789abcdef.1"
    forge(broker_url, namespace, type="beat", reply_to=stranger)
    wait_until(lambda: group.living == [stranger])
    began = time.monotonic()
    wait_until(lambda: group.living == [], seconds=SILENT_SECONDS + 10)
    assert time.monotonic() - began > SILENT_SECONDS / 2


def test_a_living_peer_is_heard_of_again_and_again(make_client: ClientFactory) -> None:
    one, two = joined(make_client()), joined(make_client())
    wait_until(lambda: one.living == [two.own])
    deadline = time.monotonic() + SILENT_SECONDS + 1
    while time.monotonic() < deadline:
        assert one.living == [two.own]
        time.sleep(0.05)


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"type": "ask"},
        {"type": "ask", "reply_to": "somewhere.else"},
        {"type": "ask", "reply_to": "0123456789abcdef.1", "correlation_id": "x" * 200},
        {"type": "answer", "reply_to": "0123456789abcdef.1", "correlation_id": "unknown"},
        {"type": "unknown", "reply_to": "0123456789abcdef.1"},
        {"type": "bye", "reply_to": "../../0123456789abcdef.1"},
    ],
)
def test_messages_of_others_do_no_harm(
    make_client: ClientFactory, broker_url: str, namespace: str, fields: dict[str, str]
) -> None:
    one, two = make_client(), make_client()
    asking, asked = joined(one), joined(two)
    forge(broker_url, namespace, **fields)
    assert run_flow(one, asking.ask(asked.own, b"still there", ANSWER_SECONDS)) == b"STILL THERE"


def test_a_question_that_cannot_be_answered_does_no_harm(make_client: ClientFactory) -> None:
    def fail(question: bytes, reply: Reply) -> None:
        if question == b"fail":
            raise ValueError
        shout(question, reply)

    one, two = make_client(), make_client()
    asking, asked = joined(one), joined(two, fail)
    assert run_flow(one, asking.ask(asked.own, b"fail", 0.05)) is None
    assert run_flow(one, asking.ask(asked.own, b"go on", ANSWER_SECONDS)) == b"GO ON"


def test_the_answer_of_another_peer_is_ignored(
    make_client: ClientFactory, broker_url: str, namespace: str
) -> None:
    """Only the peer that was asked can answer, however well another one guesses."""
    one, two = make_client(), make_client()
    numbers, answer = list[Reply](), threading.Event()

    def wait(_question: bytes, reply: Reply) -> None:
        numbers.append(reply)
        answer.set()

    asking, asked = joined(one), joined(two, wait)

    def forge_and_answer() -> None:
        assert answer.wait(patience(10))
        (number,) = asking._questions
        stranger = "0123456789abcdef.1"
        forge(broker_url, namespace, type="answer", reply_to=stranger, correlation_id=number)
        wait_until(lambda: stranger in asking.living)
        numbers[0](b"right")

    in_background(forge_and_answer)
    assert run_flow(one, asking.ask(asked.own, b"?", ANSWER_SECONDS)) == b"right"


def in_background(function: Callable[[], None]) -> None:
    threading.Thread(target=function, daemon=True).start()


def forge(broker_url: str, namespace: str, **properties: str) -> None:
    """Publish a message to all mailboxes of a namespace, as any user of the broker can."""
    topology = Topology(namespace)
    message = Message(b"\xff\x00", {}, **properties)  # type: ignore[arg-type]
    publish_frames(broker_url, topology.peers, [message], exchange=topology.responses_exchange)


def exists(broker_url: str, queue: str) -> bool:
    with pika.BlockingConnection(pika.URLParameters(broker_url)) as connection:
        try:
            connection.channel().queue_declare(queue, passive=True)
        except pika.exceptions.ChannelClosedByBroker as closed:
            return bool(closed.reply_code != reply_codes.NOT_FOUND)
    return True


def test_no_mailbox_is_left_on_the_broker(
    make_client: ClientFactory, broker_url: str, namespace: str
) -> None:
    client = make_client()
    mailbox = Topology(namespace).mailbox(joined(client).own)
    assert exists(broker_url, mailbox)
    client.close()
    wait_until(lambda: not exists(broker_url, mailbox))
