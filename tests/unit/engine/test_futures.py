"""Futures that a signal handler may interrupt, and the private parts of Python that they use."""

import concurrent.futures
import signal
import threading
from concurrent.futures import CancelledError, InvalidStateError
from functools import partial

import pytest

from rabbitdelay.engine.futures import Future
from tests.support.interrupts import Alarms
from tests.support.patience import patience


def future() -> Future[str]:
    made: Future[str] = Future()
    made.set_running_or_notify_cancel()
    return made


def later(action: object) -> None:
    threading.Timer(0.02, action).start()  # type: ignore[arg-type] # a bound method


def test_the_standard_library_keeps_the_lock_of_a_future_in_condition() -> None:
    assert isinstance(concurrent.futures.Future()._condition, threading.Condition)


def test_result_waits_for_the_result() -> None:
    one = future()
    later(lambda: one.set_result("done"))
    assert one.result(patience(10)) == "done"
    assert one.result() == "done"


def test_result_raises_the_error_and_exception_returns_it() -> None:
    one, error = future(), LookupError("no")
    later(lambda: one.set_exception(error))
    with pytest.raises(LookupError):
        one.result()
    assert one.exception() is error


def test_a_result_that_is_late_raises_a_timeout() -> None:
    one = future()
    with pytest.raises(TimeoutError):
        one.result(0.01)
    with pytest.raises(TimeoutError):
        one.exception(0)
    assert not one._gate.waiters
    one.set_result("late")
    assert one.result(0) == "late"


def test_a_cancelled_future_wakes_its_waiter() -> None:
    one: Future[str] = Future()
    later(one.cancel)
    with pytest.raises(CancelledError):
        one.result(patience(10))


def test_a_result_can_be_set_only_once() -> None:
    one = future()
    one.set_result("first")
    with pytest.raises(InvalidStateError):
        one.set_result("second")


def test_wait_and_as_completed_of_the_standard_library_work() -> None:
    some = [future() for _ in range(3)]
    for one in some:
        later(lambda one=one: one.set_result("done"))
    assert concurrent.futures.wait(some, patience(10)).not_done == set()
    assert set(concurrent.futures.as_completed(some)) == set(some)


def test_every_waiter_is_woken() -> None:
    one, results = future(), []
    threads = [threading.Thread(target=lambda: results.append(one.result())) for _ in range(5)]
    for thread in threads:
        thread.start()
    one.set_result("done")
    for thread in threads:
        thread.join(patience(10))
    assert results == ["done"] * 5


def test_interrupted_waits_do_not_leave_the_lock_acquired() -> None:
    with Alarms(seed=1) as alarms:
        for _ in range(2_000):
            one = future()
            alarms.interrupts(partial(one.exception, 0.001), within_seconds=0.0001)
            setting = threading.Thread(target=one.set_result, args=("done",), daemon=True)
            setting.start()
            setting.join(patience(5))
            assert not setting.is_alive(), "the lock was left acquired"
            assert one.result(0) == "done"


def test_alarms_restore_the_handler() -> None:
    before = signal.getsignal(signal.SIGALRM)
    with Alarms(seed=1):
        pass
    assert signal.getsignal(signal.SIGALRM) is before
