"""Testing support: a broker in memory with a virtual clock."""

from rabbitdelay.testing.memory_broker import MemoryBroker

__all__ = ["MemoryBroker"]
