"""One direction of a connection: what is sent arrives in order, and may be slowed or held up."""

from collections import deque
from functools import partial
from threading import Lock

from rabbitdelay.testing.time.places import Act, Place
from rabbitdelay.testing.time.timeline import Timeline


class Pipe:
    """Carries callbacks to a place. Safe from any thread."""

    def __init__(self, timeline: Timeline, place: Place) -> None:
        self._timeline = timeline
        self._place = place
        self._lock = Lock()
        self._held: deque[Act] | None = None
        """Callbacks that are held back; None while the pipe is not silent."""
        self._last_due = 0.0
        self._is_cut = False
        self.delay_seconds = 0.0
        """Added to what is sent from now on."""

    @property
    def is_plain(self) -> bool:
        """Whether what is sent arrives at once."""
        return self._held is None and not self.delay_seconds

    @property
    def is_cut(self) -> bool:
        """Whether nothing arrives any more."""
        return self._is_cut

    def send(self, act: Act) -> None:
        """Run a callback at the other end."""
        with self._lock:
            if self._held is not None:
                self._held.append(act)
            else:
                self._send(act)

    def silence(self) -> None:
        """Hold up what is sent, as when packets are dropped and sent again."""
        with self._lock:
            self._held = deque() if self._held is None else self._held

    @property
    def held(self) -> int:
        """Number of things that are held up."""
        return len(self._held or ())

    def let_through(self, count: int = 1) -> None:
        """Deliver the next callbacks that are held back, and keep holding back the rest."""
        with self._lock:
            for _ in range(min(count, self.held)):
                assert self._held is not None
                self._send(self._held.popleft())

    def restore(self) -> None:
        """Deliver the callbacks that were held back, and all later ones."""
        with self._lock:
            held, self._held = self._held, None
            for act in held or ():
                self._send(act)

    def cut(self) -> None:
        """Drop what has not arrived, and all that is sent from now on."""
        self._is_cut = True

    def _send(self, act: Act) -> None:
        arrive = partial(self._arrive, act)
        now = self._timeline.time()
        due = max(now + self.delay_seconds, self._last_due)
        if due <= now:
            self._timeline.post(self._place, arrive)
        else:
            self._last_due = due
            self._timeline.call_later(self._place, due - now, arrive)

    def _arrive(self, act: Act) -> None:
        if not self._is_cut:
            act()
