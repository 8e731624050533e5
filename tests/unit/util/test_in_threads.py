"""Jobs in threads: all of them, in their order, and all end when one fails."""

from threading import Event, active_count
from time import sleep

import pytest

from choicewise.util import background as module
from choicewise.util.background import Ending, in_threads


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BEAT", 0.01)


def test_every_job_is_done_once_and_begun_in_order() -> None:
    begun, beats = list[int](), list[int]()
    in_threads(20, 1, lambda number, ending: begun.append(number), lambda: beats.append(len(begun)))
    assert begun == list(range(20))
    assert (beats, beats[-1]) == (sorted(beats), 20)


def test_one_that_fails_ends_the_others_and_begins_no_more() -> None:
    begun, before = list[int](), active_count()

    def job(number: int, ending: Ending) -> None:
        begun.append(number)
        if number == 1:
            raise ValueError("no")
        while True:
            ending.safe_point()
            sleep(0.005)

    with pytest.raises(ValueError, match="no"):
        in_threads(9, 2, job, lambda: None)
    assert set(begun) <= {0, 1, 2}
    assert active_count() == before


def test_what_the_beat_raises_ends_all() -> None:
    ended = Event()

    def job(number: int, ending: Ending) -> None:
        while not ending():
            sleep(0.005)
        ended.set()

    def tick() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        in_threads(3, 3, job, tick)
    assert ended.is_set()
