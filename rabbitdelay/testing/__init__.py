"""Testing support: a broker in memory with a virtual clock, and a real one."""

from rabbitdelay.testing.memory_broker import MemoryBroker
from rabbitdelay.testing.rabbit_broker import RabbitBroker

__all__ = ["MemoryBroker", "RabbitBroker"]
