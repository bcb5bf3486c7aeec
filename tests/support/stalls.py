"""Measures how long a busy machine keeps threads of this process waiting."""

import threading
import time
from types import TracebackType
from typing import Self

STEP_SECONDS = 0.02


class Stalls:
    """Measures, inside a block, how late a sleeping thread of this process wakes up.

    A test adds `longest_seconds` to a bound that the product promises for a machine with time.
    """

    def __init__(self) -> None:
        self.longest_seconds = 0.0
        """The longest delay so far."""
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._measure, name="stalls")

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._is_over.set()
        self._thread.join()

    def _measure(self) -> None:
        is_over = False
        while not is_over:
            began = time.monotonic()
            is_over = self._is_over.wait(STEP_SECONDS)
            late_seconds = time.monotonic() - began - STEP_SECONDS
            self.longest_seconds = max(self.longest_seconds, late_seconds)
