"""What a run changes about the collection of garbage is undone, and what it leaves is collected."""

import gc
import weakref

import pytest

from choicewise.running.memory import give_memory_back
from choicewise.running.rare_collection import THRESHOLD, rare_collection


class Cycle:
    """Only the collector finds that nobody refers to it."""

    def __init__(self) -> None:
        self.itself = self


def work() -> None:
    with rare_collection():
        assert gc.get_threshold()[0] >= THRESHOLD
        raise KeyboardInterrupt


def test_garbage_is_collected_as_before_whatever_ends_a_run() -> None:
    before = gc.get_threshold()
    with pytest.raises(KeyboardInterrupt):
        work()
    assert gc.get_threshold() == before


def test_a_collection_that_is_switched_off_stays_so() -> None:
    before = gc.get_threshold()
    gc.set_threshold(0)
    try:
        with rare_collection():
            assert gc.get_threshold()[0] == 0
    finally:
        gc.set_threshold(*before)


def test_nothing_unused_is_kept() -> None:
    reference = weakref.ref(Cycle())
    give_memory_back()
    assert reference() is None
