"""Reports come at a steady pace, from another thread where the work is silent, and what they raise is not lost."""

import threading
from types import SimpleNamespace

import pytest

from choicewise.requests.blocks import Block
from choicewise.running import progress as periodic
from choicewise.running.progress import PeriodicReport
from choicewise.running.workers import BlockResult, Tracker


def test_silent_work_is_reported_by_another_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(periodic, "LONGEST", 0.001)
    reported, threads = threading.Event(), []

    def report() -> None:
        threads.append(threading.current_thread())
        reported.set()

    with PeriodicReport(report):
        assert reported.wait(60)
    assert threads[0] is not threading.main_thread()
    assert not any(thread.name == "choicewise-progress" for thread in threading.enumerate())


def test_beats_report_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter([0.0, *(step / 100 for step in range(1, 1000))])
    monkeypatch.setattr(periodic, "perf_counter", lambda: next(clock))
    monkeypatch.setattr(periodic, "LONGEST", 1e6)
    reports: list[None] = []
    with PeriodicReport(lambda: reports.append(None)) as steady:
        for _ in range(200):
            steady.tick()
    assert 10 < len(reports) < 100


def test_what_a_report_raises_elsewhere_the_next_beat_raises(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(periodic, "LONGEST", 0.001)
    raised = threading.Event()

    def report() -> None:
        raised.set()
        raise KeyboardInterrupt

    def work() -> None:
        with PeriodicReport(report) as steady:
            assert raised.wait(60)
            steady._thread.join()
            steady.tick()

    with pytest.raises(KeyboardInterrupt):
        work()


def result(work: int, questions: int) -> BlockResult:
    return BlockResult(Block("test", "s", 0, (), (), work), 0, (), (), questions, iter(()))


def test_work_goes_by_tokens_where_they_are_counted() -> None:
    counter = SimpleNamespace(computed=100, planned=100)
    tracker = Tracker(counter, done=30)
    assert tracker.done == 30
    with tracker.block(result(1000, questions=1)):
        assert tracker.done == 30
        counter.planned = 300
        assert tracker.done == 30
        counter.computed = 200  # half of one question
        assert tracker.done == 530
        counter.planned = 150
        assert tracker.done == 1030
    assert tracker.done == 1030


def test_work_goes_by_answers_where_no_tokens_are_counted() -> None:
    tracker = Tracker(SimpleNamespace(computed=None, planned=None), done=0)
    with tracker.block(result(1000, questions=4)):
        tracker.answered = 3
        assert tracker.done == 750
    with tracker.block(result(500, questions=0)):
        assert tracker.done == 1000
    assert tracker.done == 1500
