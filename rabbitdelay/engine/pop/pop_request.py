"""One call of pop."""

from collections.abc import Sequence
from enum import Enum, auto
from typing import TYPE_CHECKING

from rabbitdelay.core.consume.leases import Lease
from rabbitdelay.engine.futures import Future

if TYPE_CHECKING:
    from rabbitdelay.engine.pop.pop_channel import PopChannel


class PopState(Enum):
    """Whether a pop is being served."""

    SERVED = auto()
    """Its queues are looked for, or it waits for a channel or for jobs."""
    SUSPENDED = auto()
    """It waits until the log of deletes or a pause changes."""
    OVER = auto()
    """The caller has its jobs or an error, or has gone."""


class PopRequest:
    """A call of pop: its arguments, and the jobs that it gets."""

    def __init__(self, topics: Sequence[str], most: int, deadline: float | None) -> None:
        self.topics = topics
        self.most = most
        self.deadline = deadline
        """Monotonic time at which the pop stops waiting; None if it waits without limit."""
        self.future: Future[list[Lease]] = Future()
        self.future.set_running_or_notify_cancel()
        self.state = PopState.SERVED
        self.leases: list[Lease] = []
        self.channel: PopChannel | None = None
        self.timer: object = None
        """Timer of the deadline."""
        self.linger_timer: object = None
        self.look_timer: object = None
        self.missing_topics: Sequence[str] = ()
        """The topics that did not exist when they were last looked for."""
        self.is_any_paused = False
        """Whether one of its topics is paused."""
        self.began_again = False
        """Whether the broker has closed its channel once."""

    @property
    def is_over(self) -> bool:
        """Whether the pop needs no more jobs."""
        return self.state is PopState.OVER

    @property
    def missing(self) -> int:
        """Number of further jobs that the pop accepts."""
        return self.most - len(self.leases)

    def lose_jobs(self) -> None:
        """Forget the channel and the jobs, which were lost with it."""
        self.channel = None
        self.leases.clear()
