"""The asyncio front, on aio-pika: the same names, in the same order, to be awaited."""

from rabbitdelay.aio.client import Client
from rabbitdelay.aio.parked_jobs import BuriedJobs, UnroutedJobs
from rabbitdelay.aio.reserved_job import ReservedJob
from rabbitdelay.aio.topology import ClientTopology
from rabbitdelay.aio.worker import Worker

__all__ = ["BuriedJobs", "Client", "ClientTopology", "ReservedJob", "UnroutedJobs", "Worker"]
