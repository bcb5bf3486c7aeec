"""Have the transport's thread do something soon, once for any number of requests."""

import threading
from collections.abc import Callable

from rabbitdelay.engine.transport import Then


class WakeUp:
    """Calls a function on the transport's thread. Thread-safe."""

    def __init__(self, call: Callable[[Then], bool], function: Then) -> None:
        self._call = call
        self._function = function
        self._is_pending = False
        self._lock = threading.RLock()

    def request(self) -> None:
        """Have the function called soon."""
        if self._is_pending:  # what the caller has done before is seen by the pending call
            return
        with self._lock:
            if not self._is_pending:
                self._call(self._run)
                self._is_pending = True  # after the call, because a signal handler may raise in it

    def _run(self) -> None:
        with self._lock:
            self._is_pending = False
        self._function()
