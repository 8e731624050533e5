"""Work in threads: within a time, and garbage that is collected rarely."""

import gc
from threading import Event

from choicewise.util.background import THRESHOLD, in_time, rare_collection


def test_what_takes_too_long_is_left_behind() -> None:
    ending = Event()
    assert in_time(0.01, ending.wait) is None
    ending.set()
    assert in_time(10.0, lambda: 7) == 7


def test_garbage_is_collected_as_before_when_the_last_one_ends() -> None:
    before = gc.get_threshold()
    with rare_collection():
        with rare_collection():
            assert gc.get_threshold()[0] >= THRESHOLD
        assert gc.get_threshold()[0] >= THRESHOLD
    assert gc.get_threshold() == before
