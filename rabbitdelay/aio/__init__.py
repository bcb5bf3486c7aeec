"""The asyncio front end, on aio-pika: the verbs of the sync front end as coroutines."""

from rabbitdelay.aio.client import Client
from rabbitdelay.aio.parked_jobs import BuriedJobs, UnroutedJobs
from rabbitdelay.aio.reserved_job import ReservedJob
from rabbitdelay.aio.topology import ClientTopology
from rabbitdelay.aio.worker import Worker

__all__ = ["BuriedJobs", "Client", "ClientTopology", "ReservedJob", "UnroutedJobs", "Worker"]
