"""The settings of a client: one immutable value, validated once and passed down whole."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import timedelta

from rabbitdelay.core.jobs import validation
from rabbitdelay.core.jobs.validation import Bounds
from rabbitdelay.core.topology.topology import QueueType, Topology
from rabbitdelay.core.work.reply_queues import ReplyQueues
from rabbitdelay.core.work.retry import RetryPolicy
from rabbitdelay.engine.transport_source import TransportSource
from rabbitdelay.system_time import TimeSource, monotonic_seconds, unix_seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientSettings:
    """Settings of one client. The arguments of Client document each field.

    Raises:
        InvalidConfiguration: A value is out of range; the error names the setting.
    """

    url: str | None = None
    namespace: str = "rabbitdelay"
    declare: bool = True
    queue_type: QueueType = "quorum"
    timeout: float = 30.0
    connect_timeout: float = 10.0
    window: int = 2_000
    max_body_bytes: int = validation.DEFAULT_MAX_BODY_BYTES
    stabilise_seconds: float | None = None
    retry: RetryPolicy = field(default_factory=RetryPolicy)
    allow_reply_to: Sequence[str] = ()
    max_delay: float | timedelta | None = None
    management_url: str | None = None
    clock: TimeSource = unix_seconds
    transport: TransportSource | None = None

    monotonic: TimeSource = field(init=False)
    """Returns the seconds on a clock that is never set."""
    topology: Topology = field(init=False)
    """Topology derived from `namespace`, `queue_type` and `max_delay`."""
    bounds: Bounds = field(init=False)
    """Bounds derived from `max_body_bytes` and `max_delay`."""
    reply_queues: ReplyQueues = field(init=False)
    """Permitted reply queues, derived from `allow_reply_to`."""

    def __post_init__(self) -> None:
        max_delay_ms = validation.check_max_delay_ms(self.max_delay)
        topology = Topology(self.namespace, self.queue_type, max_delay_ms)
        validation.check_timeout(self.timeout)
        max_body_bytes = validation.check_setting(self.max_body_bytes, "max_body_bytes")
        if self.stabilise_seconds is not None:
            validation.check_timeout(self.stabilise_seconds, "stabilise_seconds")
        validation.check_timeout(self.connect_timeout, "connect_timeout")
        validation.check_setting(self.window, "window")
        self._derive("monotonic", self._monotonic())
        if self.transport is not None and self.clock is unix_seconds:
            self._derive("clock", self.transport.clock)
        self._derive("topology", topology)
        self._derive("bounds", Bounds(max_body_bytes, max_delay_ms))
        self._derive("reply_queues", ReplyQueues.of(topology, self.allow_reply_to))

    def _monotonic(self) -> TimeSource:
        return monotonic_seconds if self.transport is None else self.transport.monotonic

    def _derive(self, name: str, value: object) -> None:
        object.__setattr__(self, name, value)
