"""Searches for queues, each of which takes a channel, are limited."""

from hypothesis import given
from hypothesis import strategies as st

from rabbitdelay.engine.consume.queue_setup import FOUND_AT_ONCE, _Finds


@given(st.lists(st.integers(1, 2 * FOUND_AT_ONCE), max_size=50), st.randoms())
def test_all_searches_run_in_order_and_few_at_once(counts: list[int], random: object) -> None:
    finds = _Finds(None)
    started, running = list[int](), list[int]()

    def start(number: int) -> None:
        started.append(number)
        running.append(number)

    def check() -> None:
        total = sum(counts[number] for number in running)
        assert total <= FOUND_AT_ONCE or len(running) == 1

    for number, count in enumerate(counts):
        finds.begin(count, lambda number=number: start(number))  # type: ignore[misc]
        check()
    while running:
        random.shuffle(running)  # type: ignore[attr-defined]
        finds.ended(counts[running.pop()])
        check()
    assert started == list(range(len(counts)))
