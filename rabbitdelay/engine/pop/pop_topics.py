"""The topics of a pop: which of them exist, and which are paused."""

from collections.abc import Callable, Sequence
from functools import partial

from rabbitdelay.core.topology.objects import Part
from rabbitdelay.engine.consume.consumer import Consumer
from rabbitdelay.engine.deletes.known_deletes import KnownDeletes
from rabbitdelay.engine.pop.pop_calls import PopCalls
from rabbitdelay.engine.pop.pop_request import PopRequest

TOPIC_SECONDS = 0.5
"""Interval at which a pop looks for a topic that does not exist yet; a put or a worker creates
it."""
MOST_LOOKED_FOR_A_SECOND = 200
"""Number of missing topics that are looked for in a second; with more, each one less often."""
Serve = Callable[[PopRequest], None]


class PopTopics:
    """Looks for the queues of topics, on the transport's thread."""

    def __init__(
        self, consumer: Consumer, known: KnownDeletes, calls: PopCalls, serve_again: Serve
    ) -> None:
        self._consumer = consumer
        self._known = known
        self._calls = calls
        self._serve_again = serve_again
        """Called for a pop when its topics have changed."""
        self._turn = 0

    def find(self, request: PopRequest, then: Serve) -> None:
        """Look for the topics of a pop, call `then`, and go on looking for those that are missing.

        A topic of which one queue is missing is repaired. One that has neither is not created.
        """
        parts = self._parts(request.topics)
        self._consumer.queues.find(parts, partial(self._found, request, then))

    def unpaused(self, request: PopRequest) -> list[str]:
        """Return the topics of a pop that are not paused."""
        topics = [topic for topic in request.topics if not self._known.is_paused(topic)]
        request.is_any_paused = len(topics) < len(request.topics)
        return topics

    def has_paused(self, request: PopRequest) -> bool:
        """Whether a topic of a pop is paused, or was when the pop was last served."""
        return request.is_any_paused or any(map(self._known.is_paused, request.topics))

    def to_serve(self, request: PopRequest) -> Sequence[str]:
        """Return the topics that exist and are not paused.

        Each time another one is the first, so that none is always last.
        """
        missing = request.missing_topics
        topics = [topic for topic in self.unpaused(request) if topic not in missing]
        self._turn += 1
        shift = self._turn % max(1, len(topics))
        return (*topics[shift:], *topics[:shift])

    def _found(self, request: PopRequest, then: Serve, found: Sequence[Part] | Exception) -> None:
        if isinstance(found, Exception):
            self._calls.fail(request, found)
            return
        there = set(map(_name, found))
        queues = {topic: set(map(_name, self._parts([topic]))) for topic in request.topics}
        damaged = [topic for topic, names in queues.items() if names & there and names - there]
        if damaged:
            self._consumer.queues.make(self._parts(damaged), partial(self._made_whole, request))
            return
        request.missing_topics = [topic for topic, names in queues.items() if not names & there]
        self._look_later(request)
        then(request)

    def _made_whole(self, request: PopRequest, error: Exception | None) -> None:
        if error is not None:
            self._calls.fail(request, error)
        elif not request.is_over:
            self._serve_again(request)

    def _parts(self, topics: Sequence[str]) -> list[Part]:
        return [part for topic in topics for part in self._consumer.topology.topic(topic)]

    # Topics that do not exist yet

    def _look_later(self, request: PopRequest) -> None:
        if not request.missing_topics or request.look_timer is not None:
            return
        if self._calls.has_time(request):
            look = partial(self._look, request)
            missing = sum(len(one.missing_topics) for one in self._calls)
            seconds = max(TOPIC_SECONDS, missing / MOST_LOOKED_FOR_A_SECOND)
            request.look_timer = self._consumer.call_later(seconds, look)

    def _look(self, request: PopRequest) -> None:
        request.look_timer = None
        if not request.is_over:
            missing = self._parts(request.missing_topics)
            self._consumer.queues.find(missing, partial(self._looked, request))
            self._look_later(request)

    def _looked(self, request: PopRequest, found: Sequence[Part] | Exception) -> None:
        """Serve a pop again if one of its missing topics exists by now."""
        if not request.is_over and not isinstance(found, Exception) and found:
            self._serve_again(request)


def _name(part: Part) -> str:
    return part.queue.name
