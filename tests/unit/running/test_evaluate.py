"""The main job from data to table, on models whose right answer is known beforehand."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from choicewise import evaluate, open_dataset, open_run
from choicewise.data.dataset import Dataset
from choicewise.data.items import Item
from choicewise.errors import DataError, StoreError, UsageError
from choicewise.models.fake import HashModel
from choicewise.models.model import SelfCheck
from choicewise.protocols.catalogue import resolve
from choicewise.questions import Question, TokenScores
from choicewise.records import EngineRecord, SelfCheckRecord
from tests.helpers.mmlu_data import write_mmlu


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return write_mmlu(tmp_path / "data")


class Counting(HashModel):
    """A hash model that counts what it is asked and can be killed after some answers."""

    def __init__(self, kill_after: int | None = None) -> None:
        super().__init__()
        self.asked = 0
        self.kill_after = kill_after

    def answer(self, questions: Sequence[Question]) -> Iterator[tuple[int, TokenScores]]:
        for answer in super().answer(questions):
            if self.asked == self.kill_after:
                raise KeyboardInterrupt
            self.asked += 1
            yield answer


@pytest.mark.costly("runs are evaluated")
@pytest.mark.parametrize(("model", "value"), [("fake:oracle", 1.0), ("fake:anti-oracle", 0.0)])
def test_every_protocol_agrees_with_the_oracle(data: Path, tmp_path: Path, model: str, value: float) -> None:
    run = evaluate(model=model, data=data, protocols=["mmlu"], out=tmp_path / "run")
    rows = {row.protocol: row for row in run.rows()}
    assert set(rows) == set(resolve("mmlu"))
    likelihoods = [row.value for name, row in rows.items() if "pmi" not in name]  # PMI compares with a null that knows
    assert likelihoods == [value] * len(likelihoods)
    assert {row.n for row in rows.values()} == {12}
    assert {row.missing for row in rows.values()} == {0}


@pytest.mark.costly("runs are evaluated")
def test_a_repeated_run_asks_nothing_and_changes_nothing(data: Path, tmp_path: Path) -> None:
    out, model = tmp_path / "run", Counting()
    first = evaluate(model=model, data=data, protocols=["mmlu"], out=out)
    asked, times = model.asked, {path: path.stat().st_mtime_ns for path in out.rglob("*")}
    assert asked > 0
    second = evaluate(model=model, data=data, protocols=["mmlu"], out=out)
    assert model.asked == asked
    assert {path: path.stat().st_mtime_ns for path in out.rglob("*")} == times
    assert second.report() == first.report()


@pytest.mark.costly("runs are evaluated")
@pytest.mark.parametrize("kill_after", [0, 1, 150, 700])
def test_a_killed_run_goes_on_to_the_same_table(data: Path, tmp_path: Path, kill_after: int) -> None:
    whole = evaluate(model=HashModel(), data=data, protocols=["mmlu"], out=tmp_path / "whole")
    with pytest.raises(KeyboardInterrupt):
        evaluate(model=Counting(kill_after), data=data, protocols=["mmlu"], out=tmp_path / "run")
    model = Counting()
    resumed = evaluate(model=model, data=data, protocols=["mmlu"], out=tmp_path / "run")
    assert resumed.report() == whole.report()
    assert resumed.manifest.complete


@pytest.mark.costly("runs are evaluated")
def test_an_interrupted_block_keeps_what_it_showed(data: Path, tmp_path: Path) -> None:
    whole = Counting()
    table = evaluate(model=whole, data=data, protocols=["mmlu/cloze"], out=tmp_path / "whole").report()
    with pytest.raises(KeyboardInterrupt):
        evaluate(model=Counting(kill_after=30), data=data, protocols=["mmlu/cloze"], out=tmp_path / "run")
    rest = Counting()
    assert evaluate(model=rest, data=data, protocols=["mmlu/cloze"], out=tmp_path / "run").report() == table
    assert rest.asked == whole.asked - 30


def test_the_same_tokens_are_asked_once_whoever_asks(data: Path, tmp_path: Path) -> None:
    alone, both = Counting(), Counting()
    evaluate(model=alone, data=data, protocols=["mmlu/harness-v0:sum"], out=tmp_path / "alone")
    names = ["mmlu/harness-v0:sum", "mmlu/harness-v0:token_mean", "mmlu/harness-v0:char_mean"]
    evaluate(model=both, data=data, protocols=names, out=tmp_path / "both")
    assert both.asked == alone.asked


def test_a_protocol_added_later_costs_only_what_nobody_asked(data: Path, tmp_path: Path) -> None:
    model = Counting()
    evaluate(model=model, data=data, protocols=["mmlu/cloze:sum"], out=tmp_path / "run")
    before = model.asked
    evaluate(model=model, data=data, protocols=["mmlu/cloze:char_mean"], out=tmp_path / "run")
    assert model.asked == before
    run = evaluate(model=model, data=data, protocols=["mmlu/cloze:pmi-answer"], out=tmp_path / "run")
    texts = {choice for item in open_dataset(data).splits["test"] for choice in item.choices}
    assert model.asked == before + len(texts)
    assert [row.protocol for row in run.rows()] == ["mmlu/cloze:sum", "mmlu/cloze:char_mean", "mmlu/cloze:pmi-answer"]


def test_scores_and_observations_are_tables(data: Path, tmp_path: Path) -> None:
    run = evaluate(model=HashModel(), data=data, protocols=["mmlu/cloze:sum"], out=tmp_path / "run", limit=2)
    scores = run.scores().to_pylist()
    assert len(scores) == 2 * 2 * 4
    observed = {(row["item"], row["choice"]): row["logprobs"] for row in run.observations().to_pylist()}
    for row in scores:
        assert row["score"] == pytest.approx(np.sum(observed[row["item"], row["choice"]], dtype=np.float64))


def test_observations_say_once_why_there_is_none(tmp_path: Path) -> None:
    """Of what could not be asked as well as of what the model did not answer."""

    class Silent(HashModel):
        def _score(self, question: Any) -> TokenScores:
            asked = question.continuation.tolist()
            return TokenScores.unanswered("too long", asked) if bytes(asked) == b"no" else super()._score(question)

    data = Dataset("odd", {"test": (Item("1", "Which?", ("yes", "no", ""), (0,)),)})
    run = evaluate(model=Silent(), data=data, protocols=["options/cloze:sum@continuation={choice}"], out=tmp_path)
    observed = run.observations()
    assert len(set(observed.column_names)) == len(observed.column_names)
    answered, unanswered, unasked = observed["missing"].to_pylist()
    assert (answered, unanswered) == (None, "too long")
    assert "it has no tokens" in unasked


def test_a_file_or_no_subject_is_refused_before_the_model_is_loaded(data: Path, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StoreError, match="is a file"):
        evaluate(model="no/such", data=data, protocols=["mmlu"], out=tmp_path / "file")
    with pytest.raises(UsageError, match="empty list"):
        evaluate(model="no/such", data=data, protocols=["mmlu"], out=tmp_path / "run", subjects=[])


def test_a_protocol_on_another_split_needs_its_items(data: Path, tmp_path: Path) -> None:
    asked = {"model": HashModel(), "data": data}
    test = resolve("mmlu/cloze:sum")["mmlu/cloze:sum"]
    recipes = {"test": test, "validation": replace(test, split="validation")}
    evaluate(protocols={"test": test}, out=tmp_path / "run", **asked)
    with pytest.raises(StoreError, match=r"no items of split validation.*begin another folder"):
        evaluate(protocols=recipes, out=tmp_path / "run", **asked)
    assert open_run(tmp_path / "run").manifest.complete
    assert [row.n for row in evaluate(protocols=recipes, out=tmp_path / "both", **asked).rows()] == [12, 12]


def test_what_was_not_asked_comes_with_what_asks_it(data: Path, tmp_path: Path) -> None:
    run = evaluate(
        model=HashModel(), data=data, protocols=["mmlu/cloze:sum"], out=tmp_path / "run", subjects=["trees"], limit=3
    )
    advice = "evaluate mmlu/original into the same folder, with model fake:hash; data data; subjects trees; limit 3"
    with pytest.raises(UsageError, match=f"not asked what mmlu/original asks; add it: {advice}"):
        run.choose(["mmlu/original"])


def test_limit_and_subject_choose_items_and_are_part_of_the_identity(data: Path, tmp_path: Path) -> None:
    names, out = ["mmlu/original"], tmp_path / "run"
    run = evaluate(model=HashModel(), data=data, protocols=names, out=out, subjects=["trees"], limit=3)
    assert run.rows()[0].n == 3
    assert set(run.tables.items["subject"].to_pylist()) == {"trees"}
    with pytest.raises(StoreError, match="another selection"):
        evaluate(model=HashModel(), data=data, protocols=names, out=out, subjects=["trees"], limit=4)


def test_another_model_is_refused(data: Path, tmp_path: Path) -> None:
    evaluate(model="fake:hash", data=data, protocols=["mmlu/original"], out=tmp_path / "run")
    with pytest.raises(StoreError, match="another model"):
        evaluate(model="fake:oracle", data=data, protocols=["mmlu/original"], out=tmp_path / "run")


@pytest.mark.costly("runs are evaluated")
def test_wrong_numbers_of_choices_stop_or_are_counted(data: Path, tmp_path: Path) -> None:
    three = Item("three", "Three?", ("one", "two", "three"), (2,), "tides")
    five = Item("five", "Five?", ("1st", "2nd", "3rd", "4th", "5th"), (4,), "tides")
    splits = open_dataset(data).splits
    odd = Dataset("odd", {**splits, "test": [*splits["test"], three, five]})
    with pytest.raises(DataError, match="3 choices"):
        evaluate(model="fake:hash", data=odd, protocols=["mmlu/original"], out=tmp_path / "run")
    run = evaluate(model="fake:hash", data=odd, protocols=["mmlu"], out=tmp_path / "skip", skip_bad_items=True)
    assert {(row.n, row.missing) for row in run.rows()} == {(12, 2)}


def test_prompts_too_long_even_without_shots_are_missing(data: Path, tmp_path: Path) -> None:
    model = HashModel()
    model.window = 120
    run = evaluate(model=model, data=data, protocols=["mmlu/original", "mmlu/harness-v1"], out=tmp_path / "run")
    original, harness = run.rows()
    assert (original.n, original.missing) == (0, 12)
    assert np.isnan(original.value)
    assert (harness.n, harness.truncated) == (12, 12)
    assert "too long" in run.tables.requests["missing"][0].as_py()


def test_shots_are_dropped_and_counted(data: Path, tmp_path: Path) -> None:
    model = HashModel()
    model.window = 600
    run = evaluate(model=model, data=data, protocols=["mmlu/original"], out=tmp_path / "run")
    assert run.rows()[0].shots_dropped == 12
    assert all(0 < shots < 5 for shots in run.tables.requests["shots"].to_pylist())


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ({"protocols": []}, "no protocol"),
        ({"protocols": ["mmlu/original"], "subjects": ["tide"]}, "did you mean tides"),
        ({"protocols": ["mmlu/original"], "limit": 0}, "limit is 0; it must be at least 1"),
        ({"protocols": ["mmlu/original"], "limit": -5}, "limit is -5; it must be at least 1"),
        ({"protocols": "mmlu"}, r"write protocols=\['mmlu'\]"),
        ({"protocols": ["mmlu/original"], "subjects": "tides"}, r"write subjects=\['tides'\]"),
    ],
)
def test_wrong_use_is_told(data: Path, tmp_path: Path, arguments: dict[str, Any], reason: str) -> None:
    with pytest.raises(UsageError, match=reason):
        evaluate(model="fake:hash", data=data, out=tmp_path / "run", **arguments)


def test_a_model_is_a_name_or_a_path(data: Path, tmp_path: Path) -> None:
    runs = [
        evaluate(model=model, data=data, protocols=["mmlu/original"], limit=1, out=tmp_path / type(model).__name__)
        for model in ("fake:hash", Path("fake:hash"))
    ]
    assert runs[0].scores() == runs[1].scores()


def test_a_subject_without_shots_is_named(data: Path, tmp_path: Path) -> None:
    (data / "dev" / "trees_dev.csv").unlink()
    with pytest.raises(DataError, match=r"trees.*dev"):
        evaluate(model="fake:hash", data=data, protocols=["mmlu/original"], out=tmp_path / "run")


class Checked(HashModel):
    """A hash model that says it was checked."""

    selfcheck = SelfCheck("tree", 2e-5, 1e-5, 1e-4, 3e-5, 200, ())


def test_the_self_check_is_kept_with_the_run(data: Path, tmp_path: Path) -> None:
    run = evaluate(model=Checked(), data=data, protocols=["mmlu/original"], out=tmp_path / "run")
    assert run.manifest.engine == EngineRecord(SelfCheckRecord("tree", "", 2e-5, 1e-5, 3e-5, 200))
    assert run.noise == 3e-5
    plain = evaluate(model="fake:hash", data=data, protocols=["mmlu/original"], out=tmp_path / "plain")
    assert plain.manifest.engine == EngineRecord()
    assert plain.noise is None


def test_an_items_further_fields_are_kept(tmp_path: Path) -> None:
    lines = [
        {"id": "q", "question": "?", "choices": ["a", "b"], "answer": 1, "human_counts": [3, 7], "condition": "hard"}
    ]
    (tmp_path / "test.jsonl").write_text("\n".join(map(json.dumps, lines)))
    recipe = replace(resolve("mmlu/cloze:sum")["mmlu/cloze:sum"], choices=None)
    run = evaluate(model="fake:hash", data=tmp_path / "test.jsonl", protocols={"p": recipe}, out=tmp_path / "run")
    fields = json.loads(run.tables.items["fields"][0].as_py())
    assert (json.loads(fields["human_counts"]), fields["condition"]) == ([3, 7], "hard")


def test_groups_and_their_names(data: Path, tmp_path: Path) -> None:
    run = evaluate(model="fake:hash", data=data, protocols=["mmlu/original"], out=tmp_path / "run")
    assert [row.subject for row in run.rows("subjects")] == ["tides", "trees"]
    assert open_run(tmp_path / "run").report("subjects").num_rows == 2


@pytest.mark.parametrize("damage", ["missing", "truncated", "another gold"])
def test_a_run_whose_questions_changed_is_reported_only_when_continued(data: Path, tmp_path: Path, damage: str) -> None:
    out = tmp_path / "run"
    arguments: dict[str, Any] = {"data": data, "protocols": ["mmlu/original"], "limit": 1, "out": out}
    items = evaluate(model="fake:hash", **arguments).tables.items
    path = out / "items.parquet"
    if damage == "another gold":
        gold = pa.array([[3 - right[0]] for right in items["gold"].to_pylist()], items.schema.field("gold").type)
        pq.write_table(items.set_column(items.schema.get_field_index("gold"), "gold", gold), path)
    elif damage == "truncated":
        path.write_bytes(path.read_bytes()[:-10])
    else:
        path.unlink()
    with pytest.raises(StoreError, match=r"items\.parquet .*choicewise doctor"):
        open_run(out).rows()
    assert evaluate(model="fake:hash", **arguments).tables.items.equals(items)
