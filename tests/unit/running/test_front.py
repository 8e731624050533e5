"""Python has the commands: compare, ladder, sweep and page take runs, folders and plans."""

from pathlib import Path
from typing import Any

import pytest

import choicewise
import choicewise.page
from choicewise.errors import UsageError
from choicewise.protocols.protocol import parse_signature
from choicewise.results.run import choose_in_all
from choicewise.running.front import named_end

QUIZ = """question,A,B,C,D,answer
Which planet is red?,Mars,Venus,Earth,Saturn,A
What is 2+2?,3,4,5,6,B
Capital of France?,Rome,Madrid,Paris,Berlin,C
"""
PROTOCOLS = ["mmlu/original@shots=0", "mmlu/cloze:sum"]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> list[choicewise.Run]:
    folder = tmp_path_factory.mktemp("sweep")
    data = folder / "quiz.csv"
    data.write_text(QUIZ)
    models = ["fake:hash", "fake:oracle"]
    plan = {"models": models, "protocols": PROTOCOLS, "data": [str(data)]}
    return choicewise.sweep(plan, folder / "out")


def test_a_sweep_returns_its_runs(runs: list[choicewise.Run]) -> None:
    assert [run.manifest.model.name for run in runs] == ["fake:hash", "fake:oracle"]
    assert [list(run.protocols) for run in runs] == [PROTOCOLS, PROTOCOLS]


def test_a_model_that_fails_is_warned_of(tmp_path: Path) -> None:
    data = tmp_path / "quiz.csv"
    data.write_text(QUIZ)
    text = f'models = ["no/such", "fake:hash"]\nprotocols = ["mmlu/cloze:sum"]\ndata = ["{data}"]\n'
    plan = tmp_path / "plan.toml"
    plan.write_text(text)
    with pytest.warns(UserWarning, match="no/such on"):
        (run,) = choicewise.sweep(plan, tmp_path / "out")
    assert run.manifest.complete


def test_runs_are_compared_by_value_and_by_folder(runs: list[choicewise.Run]) -> None:
    left, right = runs
    compared = choicewise.compare(left, right)
    assert [comparison.left.protocol for comparison in compared] == PROTOCOLS
    assert [comparison.verdict for comparison in compared] == ["comparable", "comparable"]
    by_folder = choicewise.compare(left.folder, right.folder, PROTOCOLS[:1])
    assert by_folder[0].difference == compared[0].difference
    (alone,) = choicewise.compare(left, protocols=PROTOCOLS)
    assert alone.verdict == "not comparable"


def test_a_variant_that_all_runs_have_is_noted_once(runs: list[choicewise.Run]) -> None:
    with pytest.warns(UserWarning, match=PROTOCOLS[0]) as noted:
        chosen = choose_in_all(runs, ["mmlu/original", "mmlu/cloze:sum"])
    (note,) = noted
    assert "1 other run" in str(note.message)
    assert [list(run.protocols) for run in chosen] == [PROTOCOLS, PROTOCOLS]
    with pytest.warns(UserWarning, match=PROTOCOLS[0]) as noted:
        choicewise.compare(*runs, ["mmlu/original"])
    assert len(noted) == 1


def test_a_ladder_climbs_from_a_typed_name(runs: list[choicewise.Run]) -> None:
    with pytest.warns(UserWarning, match=PROTOCOLS[0]):
        ladder = choicewise.ladder(runs[0], "mmlu/original", PROTOCOLS[1])
    values = {row["protocol"]: row["value"] for row in runs[0].report().to_pylist()}
    assert ladder.in_order.start_value == values[PROTOCOLS[0]]
    assert ladder.in_order.end_value == values[PROTOCOLS[1]]
    with pytest.raises(UsageError, match="same protocol"):
        choicewise.ladder(runs[0].folder, PROTOCOLS[1], PROTOCOLS[1])


def test_an_end_of_a_ladder_is_named_as_it_can_be_typed_again(runs: list[choicewise.Run]) -> None:
    end, word = named_end(PROTOCOLS[1], runs[0])
    assert (end.name, word) == (PROTOCOLS[1], PROTOCOLS[1])
    with pytest.warns(UserWarning, match="only variant"):
        end, word = named_end("mmlu/original", runs[0])
    assert (end.name, word) == (PROTOCOLS[0], PROTOCOLS[0])
    end, word = named_end(PROTOCOLS[0], runs[0])
    assert (end.name, word) == (PROTOCOLS[0], PROTOCOLS[0])


def test_an_end_of_a_file_is_found_by_its_name_and_typed_by_its_signature(tmp_path: Path) -> None:
    data = tmp_path / "quiz.csv"
    data.write_text(QUIZ)
    file = tmp_path / "mine.toml"
    file.write_text('base = "mmlu/original"\n[protocol]\nletters = "WXYZ"\n')
    plan = {"models": ["fake:hash"], "protocols": [str(file)], "data": [str(data)]}
    (run,) = choicewise.sweep(plan, tmp_path / "out")
    for text in ("mine", str(file)):
        with pytest.warns(UserWarning, match="only variant"):
            end, word = named_end(text, run)
        assert end.name == "mine@shots=0"
        assert parse_signature(word) == end.protocol


def test_a_page_is_written_though_a_package_has_its_name(
    runs: list[choicewise.Run], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folders: list[Any] = []

    def stop(paths: Any, *_: Any, **__: Any) -> None:
        folders.extend(paths)
        raise UsageError("read")

    monkeypatch.setattr("choicewise.page.document.read_study", stop)
    for which in (runs, runs[0], runs[0].folder):
        with pytest.raises(UsageError, match="read"):
            choicewise.page(which, tmp_path / "page.html")
    assert folders == [run.folder for run in (*runs, runs[0], runs[0])]
