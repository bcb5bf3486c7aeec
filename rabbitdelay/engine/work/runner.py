"""Run one handler on one job and settle the job by its result; a flow, for threads and tasks."""

import logging
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from rabbitdelay.core.consume.leases import Lease
from rabbitdelay.core.jobs.states import Event
from rabbitdelay.core.settle.failure import Failure
from rabbitdelay.core.work import exceptions, responses
from rabbitdelay.core.work.exceptions import GiveUpNow, Verdict
from rabbitdelay.core.work.handlers import Handler
from rabbitdelay.core.work.outcome import RETURNED, Outcome
from rabbitdelay.core.work.retry import Again, Dropped, Fate, GiveUp
from rabbitdelay.engine.flow import Call, Flow, Wait
from rabbitdelay.engine.futures import Future
from rabbitdelay.engine.settle.leased_job import LeasedJob
from rabbitdelay.engine.settle.settlement import Settlement
from rabbitdelay.engine.work.run import EndRun, Run, log_fields, title
from rabbitdelay.engine.work.tracebacks import traceback_of
from rabbitdelay.errors import (
    ActionFailed,
    Bury,
    HandlerVerdict,
    InvalidJob,
    LeaseLost,
    NotAJob,
    RabbitDelayError,
    Retry,
    TimedOut,
)

logger = logging.getLogger("rabbitdelay.worker")

CallHandler = Callable[[Handler, Any], Any]
"""Calls a handler's function with a job, in this process or another; may return a coroutine."""
MakeJob = Callable[[Lease, Settlement], LeasedJob]
"""Returns the job of a lease, as handlers receive it."""
Hook = Callable[..., Any]

RESPONSE_MARGIN_SECONDS = 0.2
"""Part of the ttr that is reserved for settling a job whose response is slow."""
_SETTLED_BY_HANDLER = (
    *(Event.FINISH, Event.RELEASE, Event.HAND_BACK),
    *(Event.BURY, Event.DELETE),
)


@dataclass(slots=True)
class Hooks:
    """The functions that a user registered to be called before and after handlers."""

    before: list[Hook] = field(default_factory=list)
    after: list[Hook] = field(default_factory=list)
    on_error: list[Hook] = field(default_factory=list)


class Runner:
    """Runs handlers, and settles their jobs when they return or raise."""

    def __init__(
        self,
        settlement: Settlement,
        hooks: Hooks,
        make_job: MakeJob,
        call: CallHandler,
    ) -> None:
        self._settlement = settlement
        self._hooks = hooks
        self._make_job = make_job
        self._call = call

    def work(self, run: Run, end: EndRun) -> Flow[None]:
        """Run the handler of a job. Errors of the handler do not end the thread."""
        if run.end_if_over():  # its ttr has expired here, or its connection was lost
            end(run)
            return
        try:
            yield from self._work(run, end)
        except BaseException:  # for example an error whose __str__ fails; the ttr will expire
            if not run.lease.is_over:  # if it is, the end of the ttr was logged
                fields = log_fields(run.lease, "unknown")
                logger.exception("%s: outcome unknown", title(run.lease), extra=fields)
        finally:
            if not run.is_through:
                end(run)

    def _work(self, run: Run, end: EndRun) -> Flow[None]:
        began = self._settlement.monotonic()
        job = self._make_job(run.lease, self._settlement)
        try:
            for hook in self._hooks.before:
                yield Call(partial(hook, job))
            value = yield Call(partial(self._call, run.handler, job))
        except BaseException as error:  # noqa: BLE001 - a handler's SystemExit is a failure too
            yield from self._failed(run, job, error, end)
            return
        if job.reply_to is not None or run.handler.keep_responses:
            yield from self._respond(run, job, value)
        if self._finish(run, began, end):
            for hook in self._hooks.after:
                yield from self._guarded(hook, job, value)

    def _finish(self, run: Run, began: float, end: EndRun) -> bool:
        """Finish a job whose handler has returned; return whether this call finished it."""
        lease = run.lease
        if lease.ended_by in _SETTLED_BY_HANDLER:
            return False
        settle = partial(self._settlement.finish_returned, lease)
        try:
            # Hooks are a part of the run: the slot becomes free when they have returned.
            settle() if self._hooks.after else end(run, settle)
        except LeaseLost as error:
            fields = log_fields(lease, "too late")
            logger.warning("%s: finished too late (%s)", title(lease), error, extra=fields)
            return False
        if logger.isEnabledFor(logging.INFO):
            took_ms = round((self._settlement.monotonic() - began) * 1000)
            fields = log_fields(lease, "finished") | {"took_ms": took_ms}
            logger.info("%s: finished (%d ms)", title(lease), took_ms, extra=fields)
        return True

    def _failed(self, run: Run, job: LeasedJob, error: BaseException, end: EndRun) -> Flow[None]:
        lease = run.lease
        if lease.is_timed_out:
            return  # the end of the ttr was logged
        verdict = exceptions.of(error)
        fate = self._plan(lease, verdict, error)
        yield from self._tell_failed(lease, job, error, fate)
        if lease.ended_by in _SETTLED_BY_HANDLER:
            return
        try:
            end(run, lambda: self._give_back(run, error, fate, verdict.failure))
        except LeaseLost as late:
            fields = log_fields(lease, "too late")
            logger.warning("%s: failed too late (%s)", title(lease), late, extra=fields)

    def timed_out(self, run: Run, ttr_seconds: float) -> Flow[None]:
        """Call the hooks for a job that was taken from its handler."""
        job = self._make_job(run.lease, self._settlement)
        error = TimedOut(f"not settled within its ttr of {ttr_seconds:g} s")
        yield from self._tell_failed(run.lease, job, error, RETURNED)

    def _plan(self, lease: Lease, verdict: Verdict, error: BaseException) -> Fate:
        if isinstance(verdict, GiveUpNow):
            return GiveUp(verdict.reason)
        by_type = None if isinstance(error, HandlerVerdict) else error
        return self._settlement.fates.plan(lease, verdict.delay_ms, by_type)

    def _tell_failed(
        self, lease: Lease, job: LeasedJob, error: BaseException, planned: Fate
    ) -> Flow[None]:
        """Call the on_error hooks with the job's outcome."""
        if not self._hooks.on_error:
            return
        fate = self._settlement.fates.known(lease, planned)
        most = lease.job.max_attempts or self._settlement.fates.max_attempts(job.topic, error)
        outcome = Outcome.of(
            job, fate, max_attempts=most, now_ms=int(self._settlement.clock() * 1000)
        )
        for hook in self._hooks.on_error:
            yield from self._guarded(hook, job, error, outcome)

    def _give_back(
        self, run: Run, error: BaseException, fate: Fate, failure: Failure | None
    ) -> None:
        if failure is not None and isinstance(fate, GiveUp):
            failure = replace(failure, traceback=traceback_of(error))
        given_back = self._settlement.give_back(run.lease, fate, failure)
        given_back.add_done_callback(partial(self._log_failed, run, error))

    def _respond(self, run: Run, job: LeasedJob, value: object) -> Flow[None]:
        """Publish the return value as the job's response, before the job is acknowledged."""
        keep = run.handler.keep_responses and value is not None
        lease = run.lease
        if lease.is_timed_out or lease.ended_by in _SETTLED_BY_HANDLER:
            return
        if not (targets := self._settlement.responses.targets(job, keep=keep)):
            return
        try:
            message = responses.of_value(job, value)
        except InvalidJob as error:
            fields = log_fields(run.lease, "no response")
            logger.warning("%s: no response (%s)", title(run.lease), error, extra=fields)
            message = responses.of_failure(job, str(error))
        for target in targets:
            try:
                # If the ttr ends first, the response is still published.
                published = self._settlement.responses.publish(job, message, target)
                yield Wait(published, max(0.0, job.time_left - RESPONSE_MARGIN_SECONDS))
            except (RabbitDelayError, TimeoutError) as error:
                why = str(error) or "the broker has not confirmed it in time"
                fields = log_fields(run.lease, "no response")
                logger.warning("%s: no response (%s)", title(run.lease), why, extra=fields)

    @staticmethod
    def _guarded(hook: Hook, *arguments: object) -> Flow[None]:
        try:
            yield Call(partial(hook, *arguments))
        except BaseException:  # also SystemExit, because a hook must not end the program
            logger.exception("hook: failed (its job is not affected)")

    @staticmethod
    def _log_failed(run: Run, error: BaseException, done: Future[Fate]) -> None:
        if done.exception() is not None:  # the republisher has logged why
            fields = log_fields(run.lease, "failed") | {"error_type": type(error).__name__}
            logger.warning("%s: failed (%s)", title(run.lease), Failure.of(error), extra=fields)
            return
        fate = done.result()
        if isinstance(fate, Dropped):
            fields = log_fields(run.lease, "deleted") | {"error_type": type(error).__name__}
            text = "%s: failed, not retried (%s)"
            logger.info(text, title(run.lease), fate.reason, extra=fields)
            return
        if _is_requested(error) and isinstance(fate, Again):
            _log_requested(run.lease, error, fate)
            return
        event = "failed" if isinstance(fate, Again) else "buried"
        fields = log_fields(run.lease, event)
        fields |= {"error": Failure.of(error).text, "error_type": type(error).__name__}
        # An error that is raised on purpose needs no traceback.
        traceback = None if isinstance(error, (HandlerVerdict, NotAJob)) else error
        if isinstance(fate, Again):
            fields["retry_in_ms"] = fate.delay_ms
            text = f"{title(run.lease)}: failed, retry in {fate.delay_ms / 1000:g} s"
            logger.warning("%s (%s)", text, Failure.of(error), exc_info=traceback, extra=fields)
        else:
            fields["reason"] = fate.reason
            text = f"{title(run.lease)}: buried ({fate.reason}"
            why = "" if isinstance(error, (Bury, NotAJob)) else f": {Failure.of(error)}"
            logger.error("%s%s)", text, why, exc_info=traceback, extra=fields)


def _is_requested(error: BaseException) -> bool:
    """Whether a handler requested the retry on purpose."""
    return isinstance(error, Retry) and not isinstance(error, ActionFailed)


def _log_requested(lease: Lease, error: BaseException, fate: Again) -> None:
    """Log a retry that the handler requested, which is not a failure."""
    fields = log_fields(lease, "retry requested")
    fields |= {"reason": str(error), "retry_in_ms": fate.delay_ms}
    why = f" ({error})" if str(error) else ""
    text = f"{title(lease)}: retry requested, in {fate.delay_ms / 1000:g} s{why}"
    logger.info("%s", text, extra=fields)
