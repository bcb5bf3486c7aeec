"""The topics of a pop that are asked for a ready job, one after the other."""

from collections import deque
from collections.abc import Sequence


class GetRound:
    """One round of basic.get over the topics of a pop."""

    def __init__(self, topics: Sequence[str] = ()) -> None:
        self.topics = topics
        self.found: list[str] = []
        """The topics that had a job, and may have more."""
        self._untried = deque(topics)
        self._asked: str | None = None

    @property
    def is_asking(self) -> bool:
        """Whether an answer is outstanding."""
        return self._asked is not None

    def next_topic(self) -> str | None:
        """Return the topic to ask now; None if all have answered."""
        if not self._untried:
            return None
        self._asked = self._untried.popleft()
        return self._asked

    def answered(self) -> str:
        """Note the answer; return the topic that was asked."""
        topic, self._asked = self._asked, None
        assert topic is not None
        return topic

    def ask_again(self, topic: str) -> None:
        """Ask a topic again, because its message was not a job that can be handed out."""
        self._untried.appendleft(topic)
