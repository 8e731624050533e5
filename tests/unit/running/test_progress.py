"""What a run says of itself while it goes on, at a steady pace, and how right it is about the time that is left."""

import random
import re
import sys
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from io import StringIO
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

import choicewise
from choicewise.cli.terminal import progress
from choicewise.records import REQUESTS, SPANS
from choicewise.requests.blocks import Block
from choicewise.running import progress as running_progress
from choicewise.running.answer import BlockResult
from choicewise.running.evaluate import Tracker
from choicewise.running.prepare import ReadyBlock
from choicewise.running.progress import PeriodicReport, ProgressReport, TimeLeft
from tests.helpers.messages import Gist
from tests.helpers.study import Study


def lines(moments: list[tuple[float, int, int]], *, live: bool = False) -> list[str]:
    """What is shown at (seconds, done, total)."""
    shown, clock = list[str](), SimpleNamespace(now=0.0, monotonic=lambda: clock.now)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(running_progress, "time", clock)
        report = ProgressReport("model", shown.append, live=live)
        for clock.now, done, total in moments:
            report(done, total)
    return shown


@pytest.mark.parametrize(
    ("moments", "expected"),
    [
        (
            [
                (0, 20, 100),
                (6, 30, 100),
                (16, 60, 100),
                (18, 80, 100),
                (26, 100, 100),
                (27, 100, 100),
            ],
            [
                "model: 20 % done before",
                "model: 30 %, 6 s",
                "model: 60 %, 16 s, about 13 s left",
                "model: 100 %, 26 s",
            ],
        ),
        ([(0, 0, 100), (1, 100, 100)], ["model: 100 %, 1 s"]),  # a fresh run was not begun before
        ([(0, 7, 7), (9, 7, 7)], ["model: 100 % done before"]),  # once
        ([(0, 0, 0), (9, 0, 0)], []),
        (
            [(0, 0, 100), (60, 0, 100), (61, 1, 100), (67, 50, 100)],
            [Gist("model: 0 %, 60 s, waiting"), "model: 50 %, 67 s, about 6 s left"],
        ),
        ([(0, 0, 100), (1, 1, 100), (60, 99, 100)], ["model: 99 %, 60 s, under 1 s left"]),
        (  # a second piece of the work has a time of its own
            [(0, 0, 100), (100, 100, 100), (100, 0, 8), (102, 8, 8), (102, 0, 8), (105, 8, 8)],
            ["model: 100 %, 2 min", "model: 100 %, 2 s", "model: 100 %, 3 s"],
        ),
    ],
)
def test_what_is_said_at_which_moment(
    moments: list[tuple[float, int, int]], expected: list[str]
) -> None:
    assert lines(moments) == expected


def test_lines_come_seldom_in_a_long_run_and_a_replaced_line_often() -> None:
    hours = [(second / 4, second, 4 * 36000) for second in range(4 * 36000)]
    assert 600 < len(lines(hours)) < 660
    live = lines(hours[:4000], live=True)
    assert len(live) > 2000
    assert live[-1] == f"model: {'░' * 20} 2 %, 17 min, about 9.7 h left"


def work(seed: int, slow: float) -> Iterator[tuple[float, int]]:
    """(seconds, units done) of a run of random blocks, answered in packs, the first block ``slow`` times slower."""
    draw = random.Random(seed)
    now, done = draw.uniform(0, 100), 0  # the self-check
    for block in range(200):
        for _ in range(draw.randint(1, 5)):
            size = draw.randint(1_000, 50_000)
            now += size * 1e-4 * draw.uniform(0.7, 1.3) * (slow if block < 4 else 1)
            done += size
            yield now, done


@given(st.integers(0, 10**9), st.sampled_from([0.5, 1.0, 3.0]))
def test_time_left_is_right_within_30_percent_after_a_tenth(seed: int, slow: float) -> None:
    moments = list(work(seed, slow))
    end, total = moments[-1]
    left = TimeLeft(0, total)
    for number, (now, done) in enumerate(moments[:-1]):
        left.add(now, done)
        if 0.1 * total <= done <= 0.95 * total:
            for moment in (now, now + (moments[number + 1][0] - now) / 2):
                left.add(moment, done)
                estimate = left.seconds(moment)
                assert estimate is not None
                assert estimate == pytest.approx(end - moment, rel=0.3)


def test_moments_are_thinned() -> None:
    left = TimeLeft(0, 10**6)
    for done in range(1, 200_000):
        left.add(done / 100, done)
    assert len(left._moments) < 2000
    assert left.seconds(2000.0) == pytest.approx(8000, rel=0.01)


def test_any_thread_may_call(capsys: pytest.CaptureFixture[str]) -> None:
    with progress("model") as report, ThreadPoolExecutor(8) as threads:
        report(0, 8000)
        list(threads.map(lambda done: report(done, 8000), range(8000)))
        report(8000, 8000)
    *_, last = capsys.readouterr().err.splitlines()
    assert last.startswith("model: 100 %, ")


def test_a_terminal_has_one_line_that_goes_away(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = StringIO()
    monkeypatch.setattr(terminal, "isatty", lambda: True)
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("COLUMNS", "40")
    with progress("a model with a long name \x1b[31m") as report:
        report(0, 10)
        report(10, 10)
    first, shown, gone = terminal.getvalue().split("\r\x1b[K")
    assert (first, gone, shown) == ("", "", "a model with a long name \\x1b[31m: ███…")
    assert "\n" not in terminal.getvalue()


def test_python_shows_the_same_progress(
    study: Study, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = {"model": "fake:hash", "data": study.data, "protocols": ["mmlu/original"]}
    choicewise.evaluate(**asked, out=tmp_path / "run", progress=True)
    printed = capsys.readouterr()
    assert printed.out == ""
    # A busy machine takes longer.
    assert re.fullmatch(r"fake:hash: 100 %, (under )?\d+ s\n", printed.err)
    choicewise.evaluate(**asked, out=tmp_path / "silent", progress=False)
    assert capsys.readouterr().err == ""


def test_a_model_that_checks_itself_is_seen_to_compute(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter(range(0, 100, 10))
    monkeypatch.setattr(running_progress.time, "monotonic", lambda: next(clock))
    lines: list[str] = []
    tokens = iter([None, 12_345, 20_000])
    report = ProgressReport("m", lines.append, computed=lambda: next(tokens))
    for _ in range(3):
        report(0, 100)
    assert [line.split(", ", 2)[2] for line in lines] == [
        Gist("first answer"),
        "checking the model, 12,345 tokens so far",
        "checking the model, 20,000 tokens so far",
    ]


# At a steady pace, from another thread where the work is silent


def test_silent_work_is_reported_by_another_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running_progress, "LONGEST", 0.001)
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
    monkeypatch.setattr(running_progress, "perf_counter", lambda: next(clock))
    monkeypatch.setattr(running_progress, "LONGEST", 1e6)
    reports: list[None] = []
    with PeriodicReport(lambda: reports.append(None)) as steady:
        for _ in range(200):
            steady.tick()
    assert 10 < len(reports) < 100


def test_what_a_report_raises_elsewhere_the_next_beat_raises(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(running_progress, "LONGEST", 0.001)
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


def result(work: int, shards: Sequence[int]) -> BlockResult:
    block = Block(split="test", subject="s", start=0, items=(), positions=(), specs=(), work=work)
    ready = ReadyBlock(
        requests=REQUESTS.empty_table(),
        spans=SPANS.empty_table(),
        inputs=0,
        deepest=0,
        shards=(),
    )
    return BlockResult(block, ready, iter(()), shards)


def test_work_goes_by_tokens_where_they_are_counted() -> None:
    counter = SimpleNamespace(computed=100, planned=100)
    tracker = Tracker(counter, done=30)
    assert tracker.done == 30
    with tracker.block(result(1000, [1])):
        assert tracker.done == 30
        counter.planned = 300
        assert tracker.done == 30
        counter.computed = 200  # half of one question
        assert tracker.done == 530
        counter.planned = 150
        assert tracker.done == 1030
    assert tracker.done == 1030


def test_a_shard_is_no_more_of_the_work_than_its_questions() -> None:
    counter = SimpleNamespace(computed=0, planned=0)
    tracker = Tracker(counter, done=0)
    with tracker.block(result(1000, [2, 0, 8])):
        counter.planned = 400  # the first shard alone
        counter.computed = 200
        assert tracker.done == 100
        counter.computed = 300
        tracker.answer(2)
        assert tracker.done == 200
        counter.planned = counter.computed = 300  # fewer than planned
        assert tracker.done == 200
        counter.planned += 100
        counter.computed += 50
        assert tracker.done == 600
        tracker.answer(10)
        assert tracker.done == 1000


def test_work_goes_by_answers_where_no_tokens_are_counted() -> None:
    tracker = Tracker(SimpleNamespace(computed=None, planned=None), done=0)
    with tracker.block(result(1000, [4])):
        tracker.answer(3)
        assert tracker.done == 750
    with tracker.block(result(500, [])):
        assert tracker.done == 1000
    assert tracker.done == 1500
