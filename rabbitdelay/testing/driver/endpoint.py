"""The broker that clients connect to, on a timeline."""

from dataclasses import dataclass, field

from rabbitdelay.testing.model.session import Sessions
from rabbitdelay.testing.model.vhost import Vhost
from rabbitdelay.testing.time.places import Act, ThreadPlace
from rabbitdelay.testing.time.timeline import Timeline
from rabbitdelay.testing.time.timers import Timer


class BrokerClock:
    """The time of the model: its timers run in the place of the broker."""

    def __init__(self, timeline: Timeline, place: ThreadPlace) -> None:
        self._timeline = timeline
        self._place = place

    def time(self) -> float:
        """Return the Unix time in seconds."""
        return self._timeline.time()

    def call_later(self, seconds: float, function: Act) -> object:
        """Schedule a function after a delay."""
        return self._timeline.call_later(self._place, seconds, function)

    def cancel(self, timer: object) -> None:
        """Cancel a function scheduled with `call_later`."""
        assert isinstance(timer, Timer)
        timer.cancel()


@dataclass(slots=True)
class Endpoint:
    """A broker and its place on a timeline."""

    timeline: Timeline
    place: ThreadPlace = field(default_factory=ThreadPlace)
    vhost: Vhost = field(init=False)
    sessions: Sessions = field(init=False)

    def __post_init__(self) -> None:
        self.vhost = Vhost(BrokerClock(self.timeline, self.place))
        self.sessions = Sessions(self.vhost)
