"""Callers that wait until the log of deletes was read, and whether it is read at all."""

from enum import Enum, auto

from rabbitdelay.engine.futures import Future


class Demand(Enum):
    """Whether the log is to be read."""

    NONE = auto()
    """The client hands out no jobs so far."""
    READ = auto()
    READ_ANEW = auto()
    """Look for a missing namespace again as soon as the last look is answered."""


class ReadingRequests:
    """The requests to one reader, on the transport's thread."""

    def __init__(self, demand: Demand) -> None:
        self.demand = demand
        self.are_settled = False
        """Whether the reader was current once, or cannot become current. Any thread may ask."""
        self.are_closed = False
        """Whether the reader has ended."""
        self._awaited: list[Future[None]] = []

    def add(self, read: Future[None]) -> None:
        """Add a request, whose future is set with the next reading or failure."""
        self._awaited.append(read)

    def settle(self) -> None:
        """Note that the log was read to its end, or is known to be unreadable."""
        self.are_settled = True
        awaited, self._awaited = self._awaited, []
        for read in awaited:
            read.set_result(None)

    def close(self) -> None:
        """Settle all requests, because nothing more is read."""
        self.are_closed = True
        self.settle()
