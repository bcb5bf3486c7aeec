"""Who waits for which topic: a model with lists agrees."""

from hypothesis import given
from hypothesis import strategies as st

from rabbitdelay.gateway.waiting.waiters import Waiters

TOPICS = "abc"
STEPS = st.lists(
    st.tuples(st.just("add"), st.sets(st.sampled_from(TOPICS), min_size=1))
    | st.tuples(st.just("remove"), st.integers(0, 20))
    | st.tuples(st.just("serve"), st.sampled_from(TOPICS))
)


@given(STEPS)
def test_the_first_waiter_of_a_topic_is_the_one_that_has_waited_longest(
    steps: list[tuple[str, object]],
) -> None:
    waiters: Waiters[int] = Waiters()
    model: dict[int, set[str]] = {}
    for number, (step, value) in enumerate(steps):
        match step, value:
            case "add", set(topics):
                waiters.add(number, topics)
                model[number] = topics
            case "remove", int(one):
                waiters.remove(one)
                model.pop(one, None)
            case "serve", str(topic):
                first = waiters.first(topic)
                assert first == next((one for one in model if topic in model[one]), None)
                if first is not None:
                    waiters.remove(first)
                    del model[first]
        assert waiters.all() == list(model)
        assert len(waiters) == len(model)
        for topic in TOPICS:
            assert waiters.is_awaited(topic) == any(topic in topics for topics in model.values())


def test_a_topic_that_is_named_twice_counts_once() -> None:
    waiters: Waiters[str] = Waiters()
    waiters.add("one", ["t", "t"])
    waiters.remove("one")
    assert not waiters.is_awaited("t")
    assert "one" not in waiters
