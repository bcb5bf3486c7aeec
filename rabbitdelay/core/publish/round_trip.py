"""Estimate how long the broker takes to answer, as TCP does (RFC 6298)."""

GAIN = 1 / 8
DEVIATION_GAIN = 1 / 4
DEVIATIONS = 4


class RoundTrip:
    """A smoothed round-trip time and its mean deviation, in seconds."""

    def __init__(self) -> None:
        self._smoothed: float | None = None
        self._deviation = 0.0

    def sample(self, seconds: float) -> None:
        """Add a measurement."""
        if self._smoothed is None:
            self._smoothed, self._deviation = seconds, seconds / 2
            return
        error = seconds - self._smoothed
        self._deviation += DEVIATION_GAIN * (abs(error) - self._deviation)
        self._smoothed += GAIN * error

    @property
    def longest_seconds(self) -> float:
        """Time after which an answer is probably lost; 0 before the first sample."""
        return (self._smoothed or 0.0) + DEVIATIONS * self._deviation
