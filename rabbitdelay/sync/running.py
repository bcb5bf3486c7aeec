"""Running: one handler on one job, and what becomes of the job. On the threads of the pool."""

import logging
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from rabbitdelay.core import responses, verdict
from rabbitdelay.core.failure import Failure
from rabbitdelay.core.handlers import Handler
from rabbitdelay.core.life import Event
from rabbitdelay.core.retry import Again, Dropped, Fate
from rabbitdelay.core.topology import Topology
from rabbitdelay.core.verdict import GiveUpNow
from rabbitdelay.errors import (
    Bury,
    HandlerVerdict,
    InvalidJob,
    LeaseLost,
    NotAJob,
    RabbitDelayError,
    TimedOut,
)
from rabbitdelay.sync.holding import Holding
from rabbitdelay.sync.reserved import ReservedJob, reserved_job
from rabbitdelay.sync.run import End, Run, log_fields, title

logger = logging.getLogger("rabbitdelay.worker")

Call = Callable[[Handler, ReservedJob], Any]
"""Calls a handler's function with a job, here or in another process."""
Hook = Callable[..., Any]

RESPONSE_MARGIN_SECONDS = 0.2
"""What is left of the ttr to settle a job whose response is slow."""
_SETTLED_BY_HANDLER = (Event.FINISH, Event.RELEASE, Event.BURY, Event.DELETE)


@dataclass(slots=True)
class Hooks:
    """What people put around handlers."""

    before: list[Hook] = field(default_factory=list)
    after: list[Hook] = field(default_factory=list)
    on_error: list[Hook] = field(default_factory=list)


class Runner:
    """Runs handlers, and settles their jobs as they return or raise."""

    def __init__(self, holding: Holding, topology: Topology, hooks: Hooks, call: Call) -> None:
        self._holding = holding
        self._topology = topology
        self._hooks = hooks
        self._call = call

    def work(self, run: Run, end: End) -> None:
        """Run the handler of a job that was handed out. Nothing that it does ends the thread."""
        run.thread = threading.current_thread()
        with self._holding.lock:
            if run.lease.is_over:  # it waited here for too long, or its connection is lost
                end(run)
                return
        try:
            self._work(run, end)
        except BaseException:  # an error whose text cannot be had; its ttr gives the job back
            fields = log_fields(run.lease, "unknown")
            logger.exception("%s: its end could not be told", title(run.lease), extra=fields)
        finally:
            if not run.is_through:
                end(run)

    def _work(self, run: Run, end: End) -> None:
        began = time.monotonic()
        job = reserved_job(run.lease, self._holding)
        try:
            for hook in self._hooks.before:
                hook(job)
            value = self._call(run.handler, job)
        except BaseException as error:  # noqa: BLE001 - a handler's SystemExit is its failure too
            self._failed(run, job, error, end)
        else:
            self._returned(run, job, value, began, end)

    def _returned(self, run: Run, job: ReservedJob, value: object, began: float, end: End) -> None:
        lease = run.lease
        if lease.ended_by in _SETTLED_BY_HANDLER:
            return
        self._respond(run, job, value)
        settle = partial(self._holding.finish_returned, lease)
        try:
            # Hooks are a part of the run: its slot is free when they are through.
            settle() if self._hooks.after else end(run, settle)
        except LeaseLost as error:
            fields = log_fields(lease, "too late")
            logger.warning("%s: done, but too late: %s", title(lease), error, extra=fields)
            return
        if logger.isEnabledFor(logging.INFO):
            took_ms = round((time.monotonic() - began) * 1000)
            fields = log_fields(lease, "finished") | {"took_ms": took_ms}
            logger.info("%s: finished in %d ms", title(lease), took_ms, extra=fields)
        for hook in self._hooks.after:
            self._guarded(hook, job, value)

    def _failed(self, run: Run, job: ReservedJob, error: BaseException, end: End) -> None:
        if run.lease.is_timed_out:
            return  # it was cut off at its ttr, which has been told
        for hook in self._hooks.on_error:
            self._guarded(hook, job, error)
        lease = run.lease
        if lease.ended_by in _SETTLED_BY_HANDLER:
            return
        try:
            end(run, lambda: self._give_back(run, error))
        except LeaseLost as late:
            fields = log_fields(lease, "too late")
            logger.warning("%s: failed, and too late: %s", title(lease), late, extra=fields)

    def timed_out(self, run: Run, ttr_seconds: float) -> None:
        """Tell the hooks that a job was taken from its handler."""
        job = reserved_job(run.lease, self._holding)
        error = TimedOut(f"not done within its ttr of {ttr_seconds:g} s")
        for hook in self._hooks.on_error:
            self._guarded(hook, job, error)

    def _give_back(self, run: Run, error: BaseException) -> None:
        decision, lease = verdict.of(error), run.lease
        fate: Future[Fate]
        if isinstance(decision, GiveUpNow):
            fate = self._holding.bury(lease, decision.reason, decision.failure)
        else:
            fate = self._holding.release(lease, decision.delay_ms, decision.failure)
        fate.add_done_callback(partial(self._log_failed, run, error))

    def _respond(self, run: Run, job: ReservedJob, value: object) -> None:
        """Publish what the handler returned, for whoever waits for it, before the job is acked."""
        keep = run.handler.keep_responses and value is not None
        if (job.reply_to is None and not keep) or run.lease.is_timed_out:
            return
        try:
            message = responses.of_value(job, value)
        except InvalidJob as error:
            fields = log_fields(run.lease, "no response")
            logger.warning("%s: no response: %s", title(run.lease), error, extra=fields)
            message = responses.of_failure(job, str(error))
        for target in responses.targets(self._topology, job, keep=keep):
            try:
                # It goes on its way also when that takes longer than this job may be held.
                published = self._holding.publish(job, message, target)
                published.result(max(0.0, job.time_left - RESPONSE_MARGIN_SECONDS))
            except (RabbitDelayError, FutureTimeout) as error:
                why = str(error) or "the broker has not confirmed it yet"
                fields = log_fields(run.lease, "no response")
                logger.warning("%s: its response: %s", title(run.lease), why, extra=fields)

    @staticmethod
    def _guarded(hook: Hook, *arguments: object) -> None:
        try:
            hook(*arguments)
        except BaseException:  # also a SystemExit: it is a hook of a job, not of the program
            logger.exception("a hook failed, which changes nothing")

    @staticmethod
    def _log_failed(run: Run, error: BaseException, done: Future[Fate]) -> None:
        if done.exception() is not None:
            return  # why it goes back as it is has been told
        fate = done.result()
        if isinstance(fate, Dropped):
            fields = log_fields(run.lease, "deleted") | {"error_type": type(error).__name__}
            text = "%s: failed, and is not tried again: %s"
            logger.info(text, title(run.lease), fate.reason, extra=fields)
            return
        event = "failed" if isinstance(fate, Again) else "buried"
        fields = log_fields(run.lease, event)
        fields |= {"error": str(error), "error_type": type(error).__name__}
        # What a handler says on purpose needs no traceback.
        traceback = None if isinstance(error, (HandlerVerdict, NotAJob)) else error
        if isinstance(fate, Again):
            fields["retry_in_ms"] = fate.delay_ms
            text = f"{title(run.lease)}: failed, and is tried again in {fate.delay_ms / 1000:g} s"
            logger.warning("%s: %s", text, Failure.of(error), exc_info=traceback, extra=fields)
        else:
            fields["reason"] = fate.reason
            text = f"{title(run.lease)}: buried: {fate.reason}"
            why = "" if isinstance(error, (Bury, NotAJob)) else f": {Failure.of(error)}"
            logger.error("%s%s", text, why, exc_info=traceback, extra=fields)
