"""The clocks of the machine, for everything that is not given another one."""

import time
from collections.abc import Callable

TimeSource = Callable[[], float]
"""Returns seconds: since 1970 or, of a monotonic clock, since any moment."""

unix_seconds: TimeSource = time.time
monotonic_seconds: TimeSource = time.monotonic
