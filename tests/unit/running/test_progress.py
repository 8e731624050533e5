"""What a run says of itself while it goes on, and how right it is about the time that is left."""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from io import StringIO
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import choicewise
from choicewise.cli.terminal import progress
from choicewise.running import progress as running_progress
from choicewise.running.progress import ProgressReport, TimeLeft
from tests.helpers.mmlu_data import write_mmlu


class Clock:
    """Seconds that pass when the test says so."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(running_progress, "time", clock)
    return clock


def lines(clock: Clock, moments: list[tuple[float, int, int]], *, live: bool = False) -> list[str]:
    """What is shown at (seconds, done, total)."""
    shown: list[str] = []
    clock.now = 0.0
    report = ProgressReport("model", shown.append, live=live)
    for clock.now, done, total in moments:
        report(done, total)
    return shown


def test_lines_show_share_time_passed_and_time_left(clock: Clock) -> None:
    moments = [(0, 20, 100), (6, 30, 100), (16, 60, 100), (18, 80, 100), (26, 100, 100), (27, 100, 100)]
    assert lines(clock, moments) == [
        "model: 20 % done before",
        "model: 30 %, 6 s",
        "model: 60 %, 16 s, about 13 s left",
        "model: 100 %, 26 s",
    ]


def test_a_fresh_run_was_not_begun_before(clock: Clock) -> None:
    assert lines(clock, [(0, 0, 100), (1, 100, 100)]) == ["model: 100 %, 1 s"]


def test_nothing_to_do_says_so_once(clock: Clock) -> None:
    assert lines(clock, [(0, 7, 7), (9, 7, 7)]) == ["model: 100 % done before"]
    assert lines(clock, [(0, 0, 0), (9, 0, 0)]) == []


def test_until_the_first_answer_time_passes(clock: Clock) -> None:
    told = lines(clock, [(0, 0, 100), (60, 0, 100), (61, 1, 100), (67, 50, 100)])
    assert told == ["model: 0 %, 60 s, waiting for the first answer", "model: 50 %, 67 s, about 6 s left"]


def test_a_second_piece_of_the_work_has_a_time_of_its_own(clock: Clock) -> None:
    moments = [(0, 0, 100), (100, 100, 100), (100, 0, 8), (102, 8, 8), (102, 0, 8), (105, 8, 8)]
    assert lines(clock, moments) == ["model: 100 %, 2 min", "model: 100 %, 2 s", "model: 100 %, 3 s"]


def test_lines_come_seldom_in_a_long_run_and_a_replaced_line_often(clock: Clock) -> None:
    hours = [(second / 4, second, 4 * 36000) for second in range(4 * 36000)]
    assert 600 < len(lines(clock, hours)) < 660
    told = lines(clock, hours[:4000], live=True)
    assert len(told) > 2000
    assert told[-1] == f"model: {'░' * 20} 2 %, 17 min, about 9.7 h left"


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


@pytest.mark.costly("runs are evaluated")
@given(st.integers(0, 10**9), st.sampled_from([0.5, 1.0, 3.0]))
def test_time_left_is_right_within_30_percent_after_a_tenth(seed: int, slow: float) -> None:
    moments = list(work(seed, slow))
    end, total = moments[-1]
    left = TimeLeft(0, total)
    for number, (now, done) in enumerate(moments[:-1]):
        left.add(now, done)
        if 0.1 * total <= done <= 0.95 * total:
            heartbeat = now + (moments[number + 1][0] - now) / 2
            for moment in (now, heartbeat):
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
    assert (first, gone) == ("", "")
    assert shown == "a model with a long name \\x1b[31m: ███…"
    assert "\n" not in terminal.getvalue()


def test_python_shows_the_same_progress(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    asked = {"model": "fake:hash", "data": write_mmlu(tmp_path / "data"), "protocols": ["mmlu/original"]}
    choicewise.evaluate(**asked, out=tmp_path / "run", progress=True)
    told = capsys.readouterr()
    assert told.out == ""
    assert told.err == "fake:hash: 100 %, under 1 s\n"
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
        "waiting for the first answer",
        "checking the model, 12,345 tokens so far",
        "checking the model, 20,000 tokens so far",
    ]
