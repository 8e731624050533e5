"""What noise leaves undecided is rescored by a float32 copy of the model, item by item and once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from choicewise import evaluate
from choicewise.models.fake import HashModel
from choicewise.protocols.catalogue import resolve
from choicewise.protocols.protocol import CORRECTED
from choicewise.questions import Question, TokenScores
from choicewise.results.run import Run, open_run
from choicewise.running.evaluate import open_items
from tests.worlds import write_mmlu

NOISE = 0.8
PROTOCOLS = ["mmlu/original", "mmlu/cloze:sum", "mmlu/cloze:pmi-answer"]


class Noisy(HashModel):
    """A model whose self-check found much noise."""

    dtype = "bfloat16"
    selfcheck = SimpleNamespace(rung="tree", difference=NOISE, floor=NOISE, noise=NOISE, depth=200, cost="")


class Wide(HashModel):
    """The better copy, which has its own opinion; it counts what it is asked."""

    def __init__(self) -> None:
        super().__init__(seed=1)
        self.asked = 0

    def answer(self, questions: Sequence[Question]) -> Iterator[tuple[int, TokenScores]]:
        self.asked += len(questions)
        return super().answer(questions)


def scores(run: Run) -> dict[tuple[str, str], list[float]]:
    found: dict[tuple[str, str], list[float]] = {}
    for row in run.scores().to_pylist():
        found.setdefault((row["protocol"], row["item"]), []).append(row["score"])
    return found


def test_open_items_get_the_better_answers_and_no_others(tmp_path: Path) -> None:
    data, wide = write_mmlu(tmp_path / "data", questions=12), Wide()
    before = evaluate(model=Noisy(), data=data, protocols=PROTOCOLS, out=tmp_path / "run")
    undecided = {
        (measured.name, item)
        for measured in before.measurements.values()
        for item, near in zip(measured.evidence.ids, measured.near_ties, strict=True)
        if near
    }
    everything = scores(before)
    assert 0 < len(undecided) < len(everything)
    truth = scores(evaluate(model=HashModel(seed=1), data=data, protocols=PROTOCOLS, out=tmp_path / "wide"))

    after = evaluate(
        model=Noisy(), data=data, protocols=PROTOCOLS, out=tmp_path / "run", rescore_near_ties=lambda: wide
    )
    rescored = scores(after)
    prompts = {name: protocol.prompt_digest for name, protocol in after.protocols.items()}
    items = open_items(before)
    for name, item in everything:
        is_open = item in items.get(prompts[name], frozenset())
        assert rescored[name, item] == (truth if is_open else everything)[name, item]
    assert wide.asked > 0
    assert sum(row.near_ties for row in after.rows()) == 0


def test_what_is_asked_again_is_reported(tmp_path: Path) -> None:
    data, reports = write_mmlu(tmp_path / "data"), []
    for again in (None, Wide):
        evaluate(
            model=Noisy(),
            data=data,
            protocols=PROTOCOLS,
            out=tmp_path / "run",
            rescore_near_ties=again,
            progress=lambda done, total: reports.append((done, total)),
        )
        if again is None:
            assert reports[-1][0] == reports[-1][1]
            undecided = open_items(open_run(tmp_path / "run"))
            reports.clear()
    total = sum(map(len, undecided.values()))
    assert reports[-1] == (total, total)
    assert reports == sorted(reports)


def test_rescored_items_are_not_asked_again(tmp_path: Path) -> None:
    data, wide = write_mmlu(tmp_path / "data"), Wide()
    for _ in range(2):
        evaluate(model=Noisy(), data=data, protocols=PROTOCOLS, out=tmp_path / "run", rescore_near_ties=lambda: wide)
    once = wide.asked
    evaluate(model=Noisy(), data=data, protocols=PROTOCOLS, out=tmp_path / "run", rescore_near_ties=lambda: wide)
    assert wide.asked == once


@pytest.mark.parametrize("protocol", ["options/permuted-cyclic", "options/batch-calibrated"])
def test_calibrated_items_are_asked_once_though_other_items_leave_them_open(protocol: str, tmp_path: Path) -> None:
    data, wide, asked = write_mmlu(tmp_path / "data"), Wide(), []
    for _ in range(3):
        run = evaluate(
            model=Noisy(), data=data, protocols=[protocol], out=tmp_path / "run", rescore_near_ties=lambda: wide
        )
        assert sum(row.near_ties for row in run.rows()) > 0
        asked.append(wide.asked)
    assert asked[0] > 0
    assert asked[1] == asked[2]


@pytest.mark.parametrize("boundary", CORRECTED)
def test_corrections_are_rescored_with_what_they_correct(boundary: str, tmp_path: Path) -> None:
    data = write_mmlu(tmp_path / "data")
    recipe = replace(resolve("mmlu/cloze:sum")["mmlu/cloze:sum"], boundary=boundary, continuation=" {letter}")
    asked = {"data": data, "protocols": {"mine": recipe}}
    before = evaluate(model=Noisy(), out=tmp_path / "run", **asked)
    truth = scores(evaluate(model=HashModel(seed=1), out=tmp_path / "wide", **asked))
    after = evaluate(model=Noisy(), out=tmp_path / "run", rescore_near_ties=Wide, **asked)
    (items,) = open_items(before).values()
    assert scores(after) == {key: truth[key] if key[1] in items else had for key, had in scores(before).items()}
    assert not open_items(after)
