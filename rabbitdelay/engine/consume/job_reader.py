"""Read jobs from deliveries, and bury what is not a job."""

import secrets

from rabbitdelay.core.amqp.decode import Delivery
from rabbitdelay.core.consume.leases import Do, Lease
from rabbitdelay.core.jobs import envelope
from rabbitdelay.core.jobs.validation import RANDOM_HEX_DIGITS
from rabbitdelay.engine.acks.ack_buffer import AckBuffer
from rabbitdelay.engine.connection import logger
from rabbitdelay.engine.republish.departures import Departures
from rabbitdelay.engine.settle.fates import Fates
from rabbitdelay.engine.settle.lease_ledger import LeaseLedger
from rabbitdelay.errors import NotAJob
from rabbitdelay.models import DEFAULT_TTR_MS, Job
from rabbitdelay.system_time import TimeSource


class JobReader:
    """Reads the jobs that a consumer receives, on the transport's thread."""

    def __init__(
        self,
        ledger: LeaseLedger,
        acks: AckBuffer,
        departures: Departures,
        fates: Fates,
        *,
        clock: TimeSource,
        monotonic: TimeSource,
    ) -> None:
        self._ledger = ledger
        self._acks = acks
        self._departures = departures
        self._fates = fates
        self._clock = clock
        self._monotonic = monotonic

    def read(
        self, delivery: Delivery, topic: str, default_ttr_ms: int = DEFAULT_TTR_MS
    ) -> Lease | None:
        """Return the job in a delivery as a lease that is not handed out.

        A message that is not a job is buried.
        """
        now_ms = int(self._clock() * 1000)
        message = delivery.message
        self._acks.delivered(delivery.channel, delivery.tag, topic)
        if delivery.problem is not None:
            self._refuse_unreadable(delivery, topic, delivery.problem)
            return None
        random_hex = "" if message.message_id else secrets.token_hex(RANDOM_HEX_DIGITS // 4)
        try:
            job = envelope.decode(
                message,
                topic=topic,
                now_ms=now_ms,
                random_hex=random_hex,
                default_ttr_ms=default_ttr_ms,
            )
        except NotAJob as error:
            self._refuse(delivery, topic, now_ms, str(error))
            return None
        if not message.message_id:
            message = envelope.named(message, job)
        lease = Lease(
            job,
            message,
            delivery.channel,
            delivery.tag,
            now_ms,
            envelope.redeliveries(message, redelivered=delivery.redelivered),
            default_max_attempts=self._fates.max_attempts(topic),
            received_at=self._monotonic(),
        )
        self._ledger.take(lease)
        return lease

    def _refuse_unreadable(self, delivery: Delivery, topic: str, problem: str) -> None:
        """Have the broker bury a message of which no copy can be made."""
        logger.warning("topic %s: message buried (%s)", topic, problem)
        self._acks.settle(delivery.channel, delivery.tag, Do.DEAD_LETTER)

    def _refuse(self, delivery: Delivery, topic: str, now_ms: int, reason: str) -> None:
        """Bury a message that is not a job, as a copy with the reason."""
        job = Job(topic, delivery.message.message_id or "", "", now_ms, now_ms, 0, b"")
        lease = Lease(job, delivery.message, delivery.channel, delivery.tag, now_ms)
        self._departures.bury_unread(lease, f"not a job: {reason}")
