"""The callbacks that are called when a lease is lost."""

import threading
from collections.abc import Callable, Iterable

from rabbitdelay.core.consume.leases import Lease
from rabbitdelay.engine.connection import logger

OnLost = Callable[[], None]


class LossCallbacks:
    """The callbacks of each lease. Thread-safe."""

    def __init__(self) -> None:
        self._callbacks: dict[Lease, list[OnLost]] = {}
        self._lock = threading.RLock()

    def add(self, lease: Lease, callback: OnLost) -> None:
        """Add a callback; call it at once if the lease has ended."""
        with self._lock:
            if not lease.is_over:
                self._callbacks.setdefault(lease, []).append(callback)
                return
        callback()

    def forget(self, lease: Lease) -> None:
        """Drop the callbacks of a lease that its owner has settled."""
        with self._lock:
            self._callbacks.pop(lease, None)

    def call(self, leases: Iterable[Lease]) -> None:
        """Call the callbacks of lost leases. They may take locks of their own."""
        for lease in leases:
            with self._lock:
                callbacks = self._callbacks.pop(lease, ())
            for callback in callbacks:
                _guarded(lease, callback)

    def abandon(self) -> None:
        """Drop all callbacks in a forked child, where the lock may be taken for ever."""
        self._lock = threading.RLock()
        self._callbacks.clear()


def _guarded(lease: Lease, callback: OnLost) -> None:
    try:
        callback()
    except Exception:  # noqa: BLE001 - raised by the caller's code
        logger.exception("job %s (%s): on_lost callback failed", lease.job.id, lease.job.topic)
