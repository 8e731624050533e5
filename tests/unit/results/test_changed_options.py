"""Runs whose prompts change the list of options are read as any other: each of their options has its own row."""

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from choicewise import evaluate, export, open_run
from choicewise.data.dataset import Dataset
from choicewise.data.items import Item
from choicewise.errors import DataError
from choicewise.extensions.score.score_texts import score_texts
from choicewise.models.fake import HashModel
from choicewise.protocols.preparations import DONT_KNOW, NONE
from choicewise.results.explain import explain
from choicewise.results.run import Run
from tests.helpers.commands import choicewise
from tests.helpers.mmlu_data import set_block_size

OPTIONS = ("the red one", "the tall one", "the salty one", "the first one")
PLAIN = "mmlu/original@outside=keep"
ABSTAINING, NONES = f"{PLAIN},prepare=dont-know", f"{PLAIN},prepare=none-of-the-others"
CONTROL = f"{NONES}-control"


def items(count: int, split: str = "test", above: int = 0) -> list[Item]:
    every = [
        Item(
            f"{split} {n}",
            f"Which of {split} is {n}?",
            tuple(f"{text} of {n}" for text in OPTIONS),
            (n % 4,),
            "s",
        )
        for n in range(count)
    ]
    for n in range(above):
        every[n] = Item(
            every[n].id, every[n].question, (*OPTIONS[:3], "None of the above"), every[n].gold, "s"
        )
    return every


def quiz(count: int = 12, above: int = 0) -> Dataset:
    return Dataset("quiz", {"test": items(count, above=above), "dev": items(5, "dev")})


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Of twelve items under the four, and texts that are scored and generated; nobody changes it."""
    protocols = [
        PLAIN,
        ABSTAINING,
        NONES,
        CONTROL,
        "mmlu/cloze:sum",
        "mmlu/cloze:sum@prepare=dont-know",
    ]
    return evaluate(
        model=HashModel(),
        data=quiz(),
        protocols=protocols,
        out=tmp_path_factory.mktemp("runs") / "run",
    )


def test_every_option_has_a_row_and_its_own_observations(run: Run) -> None:
    """Against the model asked once more, text by text."""
    shown = run.tables.requests.to_pylist()
    for name, protocol in run.protocols.items():
        measured = run.measurements[name]
        size = 5 if "dont-know" in name else 4
        assert np.diff(measured.evidence.item_offsets).tolist() == [size] * 12
        assert measured.evidence.right.sum() == 12
        assert measured.scores is not None
        requests = {
            each["item"]: each for each in shown if each["prompt"] == protocol.prompt_digest
        }
        for place, item in enumerate(measured.ids.to_pylist()):
            request = requests[item]
            assert len(request["options"]) == size
            own = measured.scores[measured.evidence.item_offsets[place] :][:size]
            plain = score_texts(HashModel(), request["context"], request["continuations"])[
                "sum"
            ].to_numpy()
            np.testing.assert_allclose(own, plain, atol=1e-4)
            assert measured.decisions.prediction[place] == int(own.argmax())
    rows = {row.identity.protocol: row for row in run.rows()}
    assert {name: round(row.chance, 6) for name, row in rows.items()} == {
        name: 0.2 if "dont-know" in name else 0.25 for name in rows
    }
    assert {row.counts.n for row in rows.values()} == {12}


def test_what_is_shown_is_what_was_asked(run: Run) -> None:
    explained = explain(run, "test 3")
    assert explained.choices == (*(f"{text} of 3" for text in OPTIONS), DONT_KNOW)
    decided = {each.protocol: each for each in explained.decided}
    assert len(decided[ABSTAINING].scores or ()) == 5
    assert len(decided[PLAIN].scores or ()) == 4
    asked = {each.protocols[0]: each.context or "" for each in explained.asked}
    assert asked[ABSTAINING].count(f"E. {DONT_KNOW}\n") == 6
    assert asked[NONES].count(NONE) == asked[CONTROL].count(NONE) == 1
    assert f"D. {NONE}\n" in asked[NONES], "item 3 has its right answer under D"


@pytest.mark.costly("a page, and every table of an export")
def test_readers_take_it(run: Run, tmp_path: Path) -> None:
    choicewise("explain", run.folder, "--item", "test 3", code=0)
    choicewise("report", run.folder, "--all", code=0)
    told = json.loads(choicewise("ladder", PLAIN, ABSTAINING, run.folder, "--json", code=0).stdout)
    assert [step["axes"][0]["axis"] for step in told["in_order"]["steps"]] == ["prepare"]
    choicewise("page", run.folder, "--out", tmp_path / "page.html", code=0)
    choicewise("report", run.folder, "agreement", code=0)
    for name in ("csv", "parquet", "harness", "every-eval-ever"):
        export(run, name, tmp_path / name)
    samples = (tmp_path / "harness").rglob("samples*dont*.jsonl")
    lines = [json.loads(line) for path in samples for line in path.read_text().splitlines()]
    assert lines
    assert {line["doc"]["choices"][-1] for line in lines} == {DONT_KNOW}
    assert choicewise("compare", run.folder, run.folder, code=0)


def test_items_with_none_of_the_above_are_excluded_and_counted(tmp_path: Path) -> None:
    asked: dict[str, Any] = {
        "model": HashModel(),
        "data": quiz(12, above=3),
        "protocols": [PLAIN, NONES, CONTROL],
    }
    with pytest.raises(DataError, match="don't fit quiz|item test 0") as refused:
        evaluate(**asked, out=tmp_path / "run")
    assert "test 0 has an option" in str(refused.value)
    run = evaluate(**asked, out=tmp_path / "run", skip_bad_items=True)
    rows = {row.identity.protocol: row for row in run.rows()}
    assert [(row.counts.n, row.counts.missing) for row in rows.values()] == [
        (12, 0),
        (9, 3),
        (9, 3),
    ]
    (reason,) = rows[NONES].missing_reasons
    assert (reason.count, "to the others already" in reason.reason) == (3, True)


def test_however_the_run_is_cut_the_rows_are_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where all items of a portion were refused, so that nothing of them says how many options they have."""
    data = quiz(9, above=0)
    alone = [Item("alone", "Which?", ("only",), (0,), "other")]
    data = Dataset(
        "quiz",
        {"test": [*data.splits["test"], *alone], "dev": [*data.splits["dev"], *items(5, "dev2")]},
    )
    asked: dict[str, Any] = {"model": HashModel(), "data": data, "skip_bad_items": True}
    asked["protocols"] = ["options/cloze:sum@prepare=dont-know"]
    whole = evaluate(**asked, out=tmp_path / "whole").scores()
    set_block_size(monkeypatch, 2)
    monkeypatch.setattr("choicewise.results.tables.MOST", 1)
    cut = evaluate(**asked, out=tmp_path / "cut")
    assert str(open_run(tmp_path / "cut").scores().to_pylist()) == str(whole.to_pylist()), (
        "NaN is not equal to NaN"
    )
    assert cut.rows()[0].counts.missing == 1


def test_people_chose_nothing_that_was_not_offered(tmp_path: Path) -> None:
    fields = {"human_counts": "[3, 7, 0, 2]"}
    asked = [
        Item(each.id, each.question, each.choices, each.gold, "s", fields) for each in items(3)
    ]
    data = Dataset("quiz", {"test": asked, "dev": items(5, "dev")})
    run = evaluate(model=HashModel(), data=data, protocols=[ABSTAINING], out=tmp_path / "run")
    human = run.distribution(ABSTAINING)["human"].to_pylist()
    assert human == [3, 7, 0, 2, 0] * 3


def test_prompts_and_a_command_line_take_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with (tmp_path / "quiz.csv").open("w", newline="") as file:
        rows = [
            ["question", "A", "B", "C", "answer"],
            ["Which?", "red", "tall", "All of these", "A"],
        ]
        csv.writer(file).writerows([*rows, ["What?", "stone", "wood", "glass", "B"]])
    asked = ("prompts", "--data", "quiz.csv", "--protocol")
    shown = choicewise(*asked, "options/spellings@prepare=dont-know", code=0).stdout
    assert [json.loads(line)["continuations"][-1].strip() for line in shown.splitlines()] == [
        "(D",
        "(D",
    ]
    refused = choicewise(*asked, "options/yes-no@prepare=none-of-the-others", code=3)
    assert "to the others already" in refused.stderr
    skipped = choicewise(
        *asked, "options/yes-no@prepare=none-of-the-others", "--on-bad-item", "skip", code=0
    )
    (line,) = skipped.stdout.splitlines()
    assert NONE in line
    assert "leaves out 1 item: item" in skipped.stderr
