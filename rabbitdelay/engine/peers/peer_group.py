"""The clients of one namespace that exchange messages: who is alive, questions and answers.

A peer says that it is alive once a second, and every peer notes that. A question to one peer is
published to its mailbox, and its answer to the mailbox of the one that asked. Any user of the
broker can publish such messages, so all of them are checked, and their number is bounded.
"""

import secrets
from collections.abc import Callable, Sequence

from rabbitdelay.core.consume.leases import Lease
from rabbitdelay.core.jobs.envelope import Message
from rabbitdelay.core.peers.roster import BEAT_SECONDS, Roster, is_peer
from rabbitdelay.core.work.retry import Fate
from rabbitdelay.engine.connection import logger
from rabbitdelay.engine.consume.consumer import Consumer
from rabbitdelay.engine.flow import Bell, Flow, Sleep, until
from rabbitdelay.engine.peers.mailbox import RETRY_SECONDS, Mailbox
from rabbitdelay.engine.publish.publisher import Publisher
from rabbitdelay.errors import ConnectionFailed, JobRefused

MAX_BYTES = 17 * 1024 * 1024
"""Maximum size of a message: a response may have 16 MiB."""
HELLO, BEAT, BYE = "hello", "beat", "bye"
ASK, WORKING, ANSWER = "ask", "working", "answer"
POST_SECONDS = 5.0
"""Maximum time for which an answer is published; its reader waits no longer."""
BYE_SECONDS = 1.0

LEARN_SECONDS = RETRY_SECONDS + 0.5
"""Time after which a client knows the others, also where they started before the namespace
existed."""
LOOK_SECONDS = 1.0
"""Interval at which a peer that works on an answer is known to be alive."""
Post = Callable[[str, bytes], None]


class Reply:
    """Answers one question, from any thread."""

    def __init__(self, post: Post) -> None:
        self._post = post

    def working(self) -> None:
        """Announce to the asking peer that the answer takes longer."""
        self._post(WORKING, b"")

    def __call__(self, body: bytes) -> None:
        """Answer."""
        self._post(ANSWER, body)


OnQuestion = Callable[[bytes, Reply], None]
"""Called with the body of a question, and what answers it."""


class _Question:
    """A question that waits for its answers."""

    def __init__(self, asked: Sequence[str], deadline: float, latest: float) -> None:
        self.missing = set(asked)
        """The peers that have neither answered nor gone."""
        self.answers: list[bytes] = []
        self.changed = Bell()
        self.deadline = deadline
        self._latest = latest

    def working(self, peer: str) -> None:
        """Wait longer for a peer that was asked."""
        if peer in self.missing:
            self.deadline = self._latest
            self.changed.ring()

    def answered(self, peer: str, body: bytes) -> None:
        """Take the answer of a peer that was asked, once."""
        if peer in self.missing:
            self.answers.append(body)
            self.gone(peer)

    def gone(self, peer: str) -> None:
        """Note that a peer does not exist any more."""
        self.missing.discard(peer)
        self.changed.ring()


class PeerGroup:
    """This client as a peer, and the other ones that it knows.

    Everything but `join`, `ask` and `ask_all` runs on the transport's thread.
    """

    def __init__(self, consumer: Consumer, publisher: Publisher, name: str) -> None:
        self._consumer = consumer
        self._mailbox = Mailbox(
            consumer, publisher, name, on_message=self._received, on_open=self._opened
        )
        self._name = name
        self._roster = Roster()
        self._questions: dict[str, _Question] = {}
        self._on_question: OnQuestion | None = None
        self._changed = Bell()
        self._beat_timer: object = None
        self._opened_at = 0.0
        self._is_closed = False

    # From any thread

    def join(self, on_question: OnQuestion) -> None:
        """Take part from now on; questions are passed on, on the transport's thread."""
        self._on_question = on_question
        self._consumer.call(self._mailbox.open)

    @property
    def own(self) -> str:
        """The name of this client as a peer, which changes with its connection."""
        return self._mailbox.peer

    def is_own(self, peer: str) -> bool:
        """Whether this client has, or had, the name."""
        return peer.startswith(f"{self._name}.")

    @property
    def is_open(self) -> bool:
        """Whether this client receives messages."""
        return self._mailbox.is_open

    @property
    def living(self) -> list[str]:
        """The other peers that are alive."""
        return self._roster.living(self._consumer.monotonic())

    def ask(
        self, peer: str, body: bytes, seconds: float, longest: float = 0.0
    ) -> Flow[bytes | None]:
        """Return the answer of a peer; None if it is gone, or does not answer in time.

        A peer that says that it works on the answer has `longest` seconds.
        """
        answers = yield from self._ask([peer], body, seconds, longest, lambda _: True)
        return answers[0] if answers else None

    def ask_all(
        self,
        body: bytes,
        seconds: float,
        is_enough: Callable[[bytes], bool],
        longest: float = 0.0,
    ) -> Flow[list[bytes]]:
        """Return the answers of all peers, or those until one of them is enough."""
        yield from self._until_peers_are_known()
        return (yield from self._ask(self.living, body, seconds, longest, is_enough))

    def _until_peers_are_known(self) -> Flow[None]:
        """Wait, shortly after a start, until the other peers have said that they are alive."""
        monotonic = self._consumer.monotonic
        yield from until(self._changed, self._may_ask, monotonic() + LEARN_SECONDS, monotonic)
        rest = self._opened_at + LEARN_SECONDS - monotonic()
        if self._mailbox.is_open and rest > 0:
            yield Sleep(rest)

    def _ask(
        self,
        peers: Sequence[str],
        body: bytes,
        seconds: float,
        longest: float,
        is_enough: Callable[[bytes], bool],
    ) -> Flow[list[bytes]]:
        if not peers:
            return []
        monotonic = self._consumer.monotonic
        now = monotonic()
        question = _Question(peers, now + seconds, now + max(seconds, longest))
        if not (yield from until(self._changed, self._may_ask, question.deadline, monotonic)):
            return []
        number = secrets.token_hex(8)
        self._questions[number] = question
        try:
            for peer in peers:
                self._post(ASK, peer, body, number, max(0.0, question.deadline - monotonic()))
            yield from self._until_answered(question, is_enough)
        finally:
            del self._questions[number]
        return question.answers

    def _until_answered(
        self, question: _Question, is_enough: Callable[[bytes], bool]
    ) -> Flow[None]:
        def is_over() -> bool:
            return not question.missing or any(map(is_enough, tuple(question.answers)))

        monotonic, first = self._consumer.monotonic, question.deadline
        while not is_over() and (now := monotonic()) < question.deadline:
            until_when = question.deadline
            if until_when > first:  # a peer that works on the answer may die meanwhile
                until_when = min(until_when, now + LOOK_SECONDS)
                question.missing.intersection_update(self.living)
            known = question.deadline
            yield from until(
                question.changed,
                lambda known=known: is_over() or question.deadline != known,  # type: ignore[misc]
                until_when,
                monotonic,
            )

    def _may_ask(self) -> bool:
        return self._mailbox.is_open or self._mailbox.is_refused or self._is_closed

    # Messages

    def _post(
        self,
        kind: str,
        peer: str | None,
        body: bytes = b"",
        number: str = "",
        seconds: float = POST_SECONDS,
    ) -> None:
        message = Message(
            body,
            {"rd-token": secrets.token_hex(8)},
            type=kind,
            reply_to=self.own,
            correlation_id=number,
        )

        def resolve(error: Exception | None) -> None:
            if peer is not None and isinstance(error, JobRefused):
                self._is_gone(peer)

        self._mailbox.post(peer, message, seconds, resolve)

    def _is_gone(self, peer: str) -> None:
        self._roster.gone(peer)
        for question in tuple(self._questions.values()):
            question.gone(peer)

    def _received(self, message: Message) -> None:
        sender, number = message.reply_to, message.correlation_id or ""
        if not is_peer(sender) or sender is None or self.is_own(sender):
            return
        if len(message.body) > MAX_BYTES or len(number) > 64:  # noqa: PLR2004 - a bound
            return
        if message.type == BYE:
            self._is_gone(sender)
            return
        self._roster.heard(sender, self._consumer.monotonic())
        if message.type == HELLO:
            self._post(BEAT, sender)
        elif message.type == ANSWER and number in self._questions:
            self._questions[number].answered(sender, message.body)
        elif message.type == WORKING and number in self._questions:
            self._questions[number].working(sender)
        elif message.type == ASK:
            self._asked(sender, number, message.body)

    def _asked(self, sender: str, number: str, body: bytes) -> None:
        if self._on_question is None:
            return
        try:
            reply = Reply(lambda kind, answer: self._post(kind, sender, answer, number))
            self._on_question(body, reply)
        except Exception:  # noqa: BLE001 - a message must not end the connection
            logger.exception("mailbox: a question was not answered")

    # Signs of life

    def _opened(self) -> None:
        self._opened_at = self._consumer.monotonic()
        self._changed.ring()
        self._post(HELLO, None)
        if self._beat_timer is None:
            self._beat_timer = self._consumer.call_later(BEAT_SECONDS, self._beat)

    def _beat(self) -> None:
        self._beat_timer = None
        if self._mailbox.is_open and not self._is_closed:
            self._post(BEAT, None, seconds=BEAT_SECONDS)
            self._beat_timer = self._consumer.call_later(BEAT_SECONDS, self._beat)

    # Called by the consumer

    def connected(self) -> None:
        """Create the mailbox of the new connection."""
        self._mailbox.connected()
        if self._on_question is not None:
            self._mailbox.open()

    def disconnected(self, _error: ConnectionFailed, _lost: Sequence[Lease]) -> None:
        """Forget the mailbox and the peers, which may not be alive when it is back."""
        self._mailbox.forget()
        self._roster.clear()

    def channel_lost(self, number: int, error: Exception, _lost: Sequence[Lease]) -> None:
        """Create the mailbox again if it was its channel."""
        self._mailbox.channel_lost(number, error)

    def expired(self, _expired: Sequence[tuple[Lease, Fate]]) -> None:
        """Do nothing: messages have no ttr."""

    def read(self) -> None:
        """Do nothing: messages are handled one by one."""

    def closed(self) -> None:
        """Notify the peers and the waiting callers."""
        if not self._is_closed:
            self._is_closed = True
            if self._mailbox.is_open:
                self._post(BYE, None, seconds=BYE_SECONDS)
        for question in tuple(self._questions.values()):
            question.missing.clear()
            question.changed.ring()
        self._changed.ring()
