"""What a run says of itself where nobody watches a terminal."""

from __future__ import annotations

import pytest

from choicewise.cli import progress


def test_plain_lines_show_state_rate_and_remaining_time(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = iter([0.0, 0.0, 1.0, 10.0, 12.0, 12.0])
    monkeypatch.setattr(progress.time, "monotonic", lambda: next(clock))
    with progress.progress("model") as report:
        for done in (20, 30, 60, 100, 100):
            report(done, 100)
    told = capsys.readouterr()
    assert told.out == ""
    assert told.err.splitlines() == [
        "model: 20/100 requests done before",
        "model: 60/100 requests, 4.0/s, 10 s remaining",
        "model: 100/100 requests, 6.7/s",
    ]


def test_a_second_piece_of_the_work_has_a_rate_of_its_own(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = iter([0.0, 0.0, 100.0, 100.0, 102.0])
    monkeypatch.setattr(progress.time, "monotonic", lambda: next(clock))
    with progress.progress("model") as report:
        for done, total in ((0, 100), (100, 100), (0, 8), (8, 8)):
            report(done, total)
    assert capsys.readouterr().err.splitlines() == [
        "model: 100/100 requests, 1.0/s",
        "model: 8/8 requests, 4.0/s",
    ]


def test_the_first_answers_say_nothing_of_the_rest(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = iter([0.0, 0.0, 5.0, 10.0])
    monkeypatch.setattr(progress.time, "monotonic", lambda: next(clock))
    with progress.progress("model") as report:
        for done in (0, 1, 500):
            report(done, 1000)
    assert capsys.readouterr().err.splitlines() == [
        "model: 1/1000 requests",
        "model: 500/1000 requests, 50.0/s, 10 s remaining",
    ]


def test_a_fresh_run_was_not_begun_before(capsys: pytest.CaptureFixture[str]) -> None:
    with progress.progress("model") as report:
        report(0, 100)
        assert capsys.readouterr().err == ""
        report(100, 100)
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("model: 100/100 requests, ")
