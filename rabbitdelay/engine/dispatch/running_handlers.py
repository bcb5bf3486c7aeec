"""The handlers that are running, and those that have returned a moment ago."""

import math
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from functools import partial

from rabbitdelay.core.consume.leases import Identity, Lease
from rabbitdelay.core.work.scheduler import Scheduler
from rabbitdelay.engine.consume.consumer import Consumer
from rabbitdelay.engine.work.run import EndRun, Executor, Run
from rabbitdelay.errors import LeaseLost


class RunningHandlers:
    """The runs of one worker. Used only under the lock of its JobSlots, except by timers."""

    def __init__(self, consumer: Consumer, turns: Scheduler, executor: Executor) -> None:
        self._consumer = consumer
        self._turns = turns
        self._executor = executor
        self._by_lease: dict[Lease, Run] = {}
        self._by_identity: dict[Identity, Run] = {}
        self._ended: deque[Run] = deque()
        self.ended_at = -math.inf
        """Monotonic time at which the end of a handler was last handled."""

    def start(self, run: Run, end: EndRun) -> None:
        """Start a handler, which calls `end` when it has returned."""
        self._by_lease[run.lease] = run
        self._by_identity[run.lease.identity] = run
        if run.handler.auto_touch:
            self._touch_later(run)
        self._executor.start(run, end)

    def of_lease(self, lease: Lease) -> Run | None:
        """Return the run of a lease; None if its handler is not running."""
        return self._by_lease.get(lease)

    def adopt(self, lease: Lease, adopt: Callable[[Lease, bool], None]) -> bool:
        """Have a redelivered job adopted by the run of this very attempt; return whether it was.

        `adopt` is called with the lease of the run, and whether the ttr starts anew.
        """
        run = self._by_identity.get(lease.identity)
        if run is None or not lease.job.token:
            return False
        return run.go_on(partial(adopt, run.lease, run.handler.auto_touch))

    def returned(self, run: Run) -> None:
        """Note that a handler has returned; its slot is freed by `remove_ended`."""
        run.end()
        self._ended.append(run)

    def remove_ended(self, now: float) -> bool:
        """Free the slots of the handlers that have returned; return whether there were any."""
        has_any = bool(self._ended)
        while self._ended:
            run = self._ended.popleft()
            if not run.abandoned and run.lease.has_exceeded_ttr(now):
                continue  # it is about to be abandoned
            self.ended_at = now
            self._remove(run)
            if run.touch_timer is not None:
                self._consumer.cancel(run.touch_timer)
            if not run.abandoned:
                self._turns.ended(run.lease.job.topic, now)
        return has_any

    def abandon(self, run: Run, now: float) -> None:
        """Abandon a handler that exceeded its job's ttr, and free its slot."""
        self._remove(run)
        run.abandoned = True
        self._turns.ended(run.lease.job.topic, now)
        self._executor.abandon(run)

    def _remove(self, run: Run) -> None:
        lease = run.lease
        self._by_lease.pop(lease, None)
        if self._by_identity.get(lease.identity) is run:
            del self._by_identity[lease.identity]

    def _touch_later(self, run: Run) -> None:
        half = run.lease.ttr_seconds / 2
        run.touch_timer = self._consumer.call_later(half, partial(self._touch, run))

    def _touch(self, run: Run) -> None:
        if self._by_lease.get(run.lease) is not run:
            return
        with suppress(LeaseLost):  # the job may be redelivered, and is touched then
            self._consumer.settlement.touch(run.lease)
        self._touch_later(run)
