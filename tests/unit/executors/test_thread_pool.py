"""The pool starts threads as needed, reuses them, and replaces abandoned ones."""

import threading
from collections.abc import Callable, Iterator
from functools import partial
from queue import Queue

import pytest

from rabbitdelay.executors.thread_pool import Pool
from tests.support.patience import wait_until

SECONDS = 10.0


class Handler:
    """Work that runs until the test ends it."""

    def __init__(self) -> None:
        self.began = threading.Event()
        self.may_end = threading.Event()
        self.thread: threading.Thread | None = None
        self.error: Exception | None = None

    def __call__(self) -> None:
        self.thread = threading.current_thread()
        self.began.set()
        self.may_end.wait(SECONDS)
        if self.error is not None:
            raise self.error

    def running(self) -> threading.Thread:
        assert self.began.wait(SECONDS)
        assert self.thread is not None
        return self.thread


Submit = Callable[[Pool], Handler]


@pytest.fixture
def submit() -> Iterator[Submit]:
    """Submit handlers, and end them after the test at the latest."""
    handlers: list[Handler] = []

    def submit_one(pool: Pool) -> Handler:
        handlers.append(Handler())
        pool.submit(handlers[-1])
        return handlers[-1]

    yield submit_one
    for handler in handlers:
        handler.may_end.set()


def end(pool: Pool, handler: Handler) -> None:
    """End a handler, and wait until its thread is idle."""
    idle = pool._idle
    handler.may_end.set()
    wait_until(lambda: pool._idle == idle + 1)


def test_the_pool_runs_as_many_handlers_at_once_as_its_size(submit: Submit) -> None:
    pool = Pool(3, "handler")
    threads = [submit(pool).running() for _ in range(3)]
    assert {thread.name for thread in threads} == {"handler-1", "handler-2", "handler-3"}
    assert all(thread.daemon for thread in threads)
    pool.close()


def test_each_thread_wakes_the_next(submit: Submit) -> None:
    """Work submitted together starts together, although no handler ends."""
    for _ in range(20):
        pool = Pool(4, "handler")
        handlers = [submit(pool) for _ in range(4)]
        assert len({handler.running() for handler in handlers}) == 4
        pool.close()


def test_the_pool_runs_no_more_handlers_at_once_than_its_size(submit: Submit) -> None:
    pool = Pool(1, "handler")
    first = submit(pool)
    first_thread, second = first.running(), submit(pool)
    assert not second.began.wait(0.05)
    first.may_end.set()
    assert second.running() is first_thread
    pool.close()


def test_an_idle_thread_is_reused(submit: Submit) -> None:
    pool = Pool(3, "handler")
    names = set()
    for _ in range(3):
        handler = submit(pool)
        names.add(handler.running().name)
        end(pool, handler)
    assert names == {"handler-1"}
    pool.close()


def test_an_abandoned_thread_is_replaced_and_ends_with_its_handler(submit: Submit) -> None:
    pool = Pool(1, "handler")
    stuck = submit(pool)
    pool.abandon(stuck.running())
    assert pool.lost == 1
    replacement = submit(pool)
    assert replacement.running() is not stuck.running()
    stuck.may_end.set()
    stuck.running().join(SECONDS)
    assert not stuck.running().is_alive()
    assert pool.lost == 0
    end(pool, replacement)
    assert submit(pool).running() is replacement.running()
    pool.close()


def test_an_abandoned_thread_does_not_take_more_work(submit: Submit) -> None:
    pool = Pool(1, "handler")
    stuck = submit(pool)
    pool.abandon(stuck.running())
    busy = submit(pool)
    busy.running()
    waiting = submit(pool)
    stuck.may_end.set()
    stuck.running().join(SECONDS)
    assert not waiting.began.is_set()
    busy.may_end.set()
    assert waiting.running() is busy.running()
    pool.close()


def test_waiting_work_starts_when_a_thread_is_abandoned(submit: Submit) -> None:
    pool = Pool(1, "handler")
    stuck = submit(pool)
    stuck.running()
    waiting = submit(pool)
    pool.abandon(stuck.running())
    assert waiting.running() is not stuck.running()
    pool.close()


def test_an_idle_thread_that_is_abandoned_does_not_take_more_work(submit: Submit) -> None:
    """Its handler returned at the same moment as its ttr ended."""
    pool = Pool(1, "handler")
    late = submit(pool)
    late.running()
    end(pool, late)
    pool.abandon(late.running())
    assert submit(pool).running() is not late.running()
    pool.close()


@pytest.mark.parametrize("size", [1, 4])
def test_all_submitted_work_runs_once(size: int) -> None:
    """The work runs on one thread, or on several that wake each other."""
    pool, done = Pool(size, "handler"), Queue[int]()
    for number in range(2_000):
        pool.submit(partial(done.put, number))
    assert sorted(done.get(timeout=SECONDS) for _ in range(2_000)) == list(range(2_000))
    pool.close()


def test_work_that_has_not_started_is_dropped_on_close(submit: Submit) -> None:
    pool = Pool(1, "handler")
    busy = submit(pool)
    thread, waiting = busy.running(), submit(pool)
    pool.close()
    busy.may_end.set()
    thread.join(SECONDS)
    assert not thread.is_alive()
    assert not waiting.began.is_set()


def test_only_threads_of_the_pool_are_abandoned() -> None:
    pool = Pool(1, "handler")
    pool.abandon(threading.current_thread())
    assert pool.lost == 0


def test_close_ends_threads_after_their_current_work(submit: Submit) -> None:
    pool = Pool(3, "handler")
    busy, free, stuck = (submit(pool) for _ in range(3))
    threads = [handler.running() for handler in (busy, free, stuck)]
    end(pool, free)
    pool.abandon(stuck.running())
    pool.close()
    free.running().join(SECONDS)
    assert [thread.is_alive() for thread in threads] == [True, False, True]
    busy.may_end.set()
    stuck.may_end.set()
    for thread in threads:
        thread.join(SECONDS)
    assert not any(thread.is_alive() for thread in threads)
    assert pool.lost == 0


def test_work_that_raises_ends_only_its_own_thread(
    submit: Submit, monkeypatch: pytest.MonkeyPatch
) -> None:
    uncaught: Queue[threading.ExceptHookArgs] = Queue()
    monkeypatch.setattr(threading, "excepthook", uncaught.put)
    pool = Pool(1, "handler")
    broken = submit(pool)
    broken.running()
    broken.error = KeyError("missing")
    waiting = submit(pool)
    broken.may_end.set()
    assert uncaught.get(timeout=SECONDS).exc_type is KeyError
    assert waiting.running().name == "handler-2"
    pool.close()


def test_short_work_does_not_wake_another_thread(submit: Submit) -> None:
    """The busy thread soon finishes and takes the next work itself."""
    pool, done = Pool(4, "handler"), Queue[int]()
    first = submit(pool)
    first.running()
    pool._average_seconds = 0.0
    for number in range(20):
        pool.submit(partial(done.put, number))
    assert len(pool._threads) == 1
    first.may_end.set()
    assert sorted(done.get(timeout=SECONDS) for _ in range(20)) == list(range(20))
    pool.close()


def test_a_nudge_starts_work_that_waits_behind_long_work(submit: Submit) -> None:
    pool = Pool(4, "handler")
    pool._average_seconds = 0.0
    handlers = [submit(pool) for _ in range(4)]
    handlers[0].running()
    assert pool.has_backlog
    pool.nudge()
    assert len({handler.running() for handler in handlers}) == 4
    pool.close()
