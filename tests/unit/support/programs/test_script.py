"""A script in a process of its own that does not do what a test waits for."""

import pytest

from tests.support.programs.script import Process

HANGING = """
import time
def hang():
    print("begun", flush=True)
    time.sleep(600)
hang()
"""


def test_a_wait_that_fails_says_where_the_process_is() -> None:
    with Process(HANGING) as process:
        process.wait_for("begun")
        with pytest.raises(AssertionError, match=r"'ended': .*'begun'(?s:.*)in hang"):
            process.wait_for("ended", seconds=0.01)
