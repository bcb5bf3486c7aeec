"""The other gateways of the namespace: asking them, and answering their questions."""

import asyncio
import logging
from collections.abc import Awaitable, Callable

from rabbitdelay.aio.awaiting import drive
from rabbitdelay.engine.client import ClientEngine
from rabbitdelay.engine.peers.peer_group import PeerGroup, Reply
from rabbitdelay.gateway.leases.peer_messages import (
    Answer,
    NotAMessage,
    Question,
    read_answer,
    read_question,
)

logger = logging.getLogger("rabbitdelay")
SECONDS = 1.0
"""Time in which a gateway answers, or says that it needs longer."""
MOST_SERVED = 1_000
"""Maximum number of questions that are being answered; further ones are ignored."""
NONE = f"{'0' * 16}.0"
"""Stands for this gateway before it has connected."""

Serve = Callable[[Question, Callable[[], None]], Awaitable[Answer]]
"""Carries out what another gateway asks for. The function that it gets says that it takes longer.
"""


class Peers:
    """This gateway among the others."""

    def __init__(self, engine: ClientEngine, serve: Serve) -> None:
        self._engine = engine
        self._serve = serve
        self._group: PeerGroup | None = None
        self._serving: set[asyncio.Task[None]] = set()

    async def join(self) -> None:
        """Take part, once there is a connection.

        Raises:
            ConnectionFailed: There is none yet.
        """
        self._group = await drive(self._engine.peers(), self._engine.settings.transport)
        self._group.join(self._asked)

    @property
    def own(self) -> str:
        """The name by which others reach this gateway; it changes with the connection."""
        side = self._engine.connections.current_consuming_side
        return NONE if side is None else side.peers.own

    def is_own(self, peer: str) -> bool:
        """Whether this gateway has, or had, the name."""
        side = self._engine.connections.current_consuming_side
        return side is not None and side.peers.is_own(peer)

    async def ask(self, peer: str, question: Question, longest: float) -> Answer | None:
        """Return the answer of a gateway; None if it is gone, or silent for a second."""
        if self._group is None:
            return None
        body = question.encode()
        answer = await drive(
            self._group.ask(peer, body, SECONDS, longest), self._engine.settings.transport
        )
        return None if answer is None else _read(answer)

    async def ask_all(self, question: Question, longest: float = 0.0) -> Answer | None:
        """Return the first answer of a gateway that knows the job; None if there is none."""
        if self._group is None:
            return None
        answers = await drive(
            self._group.ask_all(question.encode(), SECONDS, _is_known, longest),
            self._engine.settings.transport,
        )
        known = (answer for body in answers if (answer := _read(body)) is not None)
        return next((answer for answer in known if answer.facts.result != "unknown"), None)

    def close(self) -> None:
        """Stop answering."""
        for task in self._serving:
            task.cancel()

    def _asked(self, body: bytes, reply: Reply) -> None:
        if len(self._serving) >= MOST_SERVED:
            return
        try:
            question = read_question(body)
        except NotAMessage as error:
            logger.warning("gateway: message of another program ignored (%s)", error)
            return
        task = asyncio.get_running_loop().create_task(self._answer(question, reply))
        self._serving.add(task)
        task.add_done_callback(self._serving.discard)

    async def _answer(self, question: Question, reply: Reply) -> None:
        try:
            answer = await self._serve(question, reply.working)
        except Exception:
            logger.exception("gateway: a question of another gateway was not answered")
        else:
            reply(answer.encode())


def _read(body: bytes) -> Answer | None:
    try:
        return read_answer(body)
    except NotAMessage:
        return None


def _is_known(body: bytes) -> bool:
    answer = _read(body)
    return answer is not None and answer.facts.result != "unknown"
