"""The main job from data to table, on models whose right answer is known beforehand, and how it is resumed."""

import json
import shlex
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from choicewise import evaluate, open_dataset, open_run
from choicewise.cli.options import resuming_command
from choicewise.data.dataset import Dataset
from choicewise.data.items import Item
from choicewise.errors import DataError, StoreError, UsageError
from choicewise.models.fake import HashModel
from choicewise.models.model import SelfCheck
from choicewise.protocols.catalogue import resolve
from choicewise.records import EngineRecord, SelfCheckRecord
from choicewise.results.run import Run
from choicewise.running.job import job_of
from choicewise.store.folder import read_manifest
from tests.helpers.commands import choicewise
from tests.helpers.hash_models import Failing
from tests.helpers.mmlu_data import write_mmlu
from tests.helpers.study import Study
from tests.helpers.unsure_models import Silent

FAMILIES = ["mmlu/original", "mmlu/cloze", "mmlu/harness-v0", "mmlu/harness-v0.4", "mmlu/helm"]
Evaluate = Callable[..., Run]


@pytest.fixture(scope="module")
def data(study: Study) -> Path:
    """Twelve items."""
    return study.data


@pytest.fixture
def evaluated(data: Path, tmp_path: Path) -> Evaluate:
    """Evaluates ``fake:hash`` on all items into one folder, if nothing else is said."""

    def into(*protocols: str, **more: Any) -> Run:
        asked = {"model": "fake:hash", "data": data, "protocols": protocols, "out": tmp_path / "run", **more}
        return evaluate(**asked)

    return into


@pytest.mark.costly("whole families of protocols")
@pytest.mark.parametrize(("model", "value"), [("fake:oracle", 1.0), ("fake:anti-oracle", 0.0)])
def test_every_protocol_agrees_with_the_oracle(evaluated: Evaluate, model: str, value: float) -> None:
    rows = {row.protocol: row for row in evaluated("mmlu", model=model, limit=2).rows()}
    assert set(rows) == set(resolve("mmlu"))
    likelihoods = [row.value for name, row in rows.items() if "pmi" not in name]  # PMI compares with a null that knows
    assert likelihoods == [value] * len(likelihoods)
    assert {row.n for row in rows.values()} == {4}
    assert {row.missing for row in rows.values()} == {0}


@pytest.mark.costly("whole families of protocols")
def test_a_repeated_run_asks_nothing_and_changes_nothing(evaluated: Evaluate, tmp_path: Path) -> None:
    model = Failing()
    first = evaluated(*FAMILIES[:3], model=model)
    asked, times = len(model.asked), {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
    assert asked > 0
    second = evaluated(*FAMILIES[:3], model=model)
    assert len(model.asked) == asked
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")} == times
    assert second.report() == first.report()


@pytest.fixture(scope="module")
def whole(data: Path, tmp_path_factory: pytest.TempPathFactory) -> pa.Table:
    """The report of an undisturbed run."""
    out = tmp_path_factory.mktemp("whole") / "run"
    return evaluate(model="fake:hash", data=data, protocols=FAMILIES, out=out).report()


@pytest.mark.parametrize("answers", [0, 1, 150, 300])
def test_a_killed_run_goes_on_to_the_same_table(evaluated: Evaluate, whole: pa.Table, answers: int) -> None:
    with pytest.raises(KeyboardInterrupt):
        evaluated(*FAMILIES, model=Failing(most=answers))
    resumed = evaluated(*FAMILIES, model=Failing())
    assert resumed.report() == whole
    assert resumed.manifest.complete


def test_an_interrupted_block_keeps_what_it_showed(evaluated: Evaluate, tmp_path: Path) -> None:
    every, rest = Failing(), Failing()
    table = evaluated("mmlu/cloze", model=every, out=tmp_path / "whole").report()
    with pytest.raises(KeyboardInterrupt):
        evaluated("mmlu/cloze", model=Failing(most=30))
    assert evaluated("mmlu/cloze", model=rest).report() == table
    assert len(rest.asked) == len(every.asked) - 30


def test_a_protocol_beside_or_after_others_costs_only_what_nobody_asked(
    evaluated: Evaluate, data: Path, tmp_path: Path
) -> None:
    model, both = Failing(), Failing()
    evaluated("mmlu/cloze:sum", model=model)
    before = len(model.asked)
    evaluated("mmlu/cloze:sum", "mmlu/cloze:byte_mean", "mmlu/cloze:char_mean", model=both, out=tmp_path / "both")
    assert len(both.asked) == before
    evaluated("mmlu/cloze:char_mean", model=model)
    assert len(model.asked) == before
    run = evaluated("mmlu/cloze:pmi-answer", model=model)
    texts = {choice for item in open_dataset(data).splits["test"] for choice in item.choices}
    assert len(model.asked) == before + len(texts)
    assert [row.protocol for row in run.rows()] == ["mmlu/cloze:sum", "mmlu/cloze:char_mean", "mmlu/cloze:pmi-answer"]


def test_scores_observations_and_groups_are_tables_of_a_model_by_name_or_path(
    evaluated: Evaluate, tmp_path: Path
) -> None:
    run = evaluated("mmlu/cloze:sum", limit=2)
    scores = run.scores().to_pylist()
    assert len(scores) == 2 * 2 * 4
    observed = {(row["item"], row["choice"]): row["logprobs"] for row in run.observations().to_pylist()}
    for row in scores:
        assert row["score"] == pytest.approx(np.sum(observed[row["item"], row["choice"]], dtype=np.float64))
    assert [row.subject for row in run.rows("subjects")] == ["tides", "trees"]
    assert open_run(run.folder).report("subjects").num_rows == 2
    by_path = evaluated("mmlu/cloze:sum", model=Path("fake:hash"), limit=2, out=tmp_path / "by path")
    assert by_path.scores() == run.scores()


def test_observations_say_once_why_there_is_none(tmp_path: Path) -> None:
    """Of what could not be asked as well as of what the model did not answer."""

    model = Silent(lambda question: bytes(question.continuation.tolist()) == b"no", "too long")  # type: ignore[union-attr]
    data = Dataset("odd", {"test": (Item("1", "Which?", ("yes", "no", ""), (0,)),)})
    run = evaluate(model=model, data=data, protocols=["options/cloze:sum@continuation={choice}"], out=tmp_path)
    observed = run.observations()
    assert len(set(observed.column_names)) == len(observed.column_names)
    answered, unanswered, unasked = observed["missing"].to_pylist()
    assert (answered, unanswered) == (None, "too long")
    assert "it has no tokens" in unasked


def test_a_protocol_on_another_split_needs_its_items(evaluated: Evaluate, tmp_path: Path) -> None:
    test = resolve("mmlu/cloze:sum")["mmlu/cloze:sum"]
    recipes = {"test": test, "validation": replace(test, split="validation")}
    run = evaluated(protocols={"test": test})
    with pytest.raises(StoreError, match=r"no items of split validation.*begin another folder"):
        evaluated(protocols=recipes)
    assert open_run(run.folder).manifest.complete
    assert [row.n for row in evaluated(protocols=recipes, out=tmp_path / "both").rows()] == [12, 12]


def test_limit_and_subject_choose_items_and_are_with_the_model_the_identity(evaluated: Evaluate) -> None:
    run = evaluated("mmlu/original", subjects=["trees"], limit=3)
    assert run.rows()[0].n == 3
    assert set(run.tables.items["subject"].to_pylist()) == {"trees"}
    with pytest.raises(StoreError, match="another selection"):
        evaluated("mmlu/original", subjects=["trees"], limit=4)
    with pytest.raises(StoreError, match="another model"):
        evaluated("mmlu/original", subjects=["trees"], limit=3, model="fake:oracle")
    advice = "evaluate mmlu/helm into the same folder, with model fake:hash; data data; subjects trees; limit 3"
    with pytest.raises(UsageError, match=f"not asked what mmlu/helm asks; add it: {advice}"):
        run.choose(["mmlu/helm"])


@pytest.mark.costly("whole runs")
def test_wrong_numbers_of_choices_stop_or_are_counted(evaluated: Evaluate, data: Path, tmp_path: Path) -> None:
    three = Item("three", "Three?", ("one", "two", "three"), (2,), "tides")
    five = Item("five", "Five?", ("1st", "2nd", "3rd", "4th", "5th"), (4,), "tides")
    splits = open_dataset(data).splits
    odd = Dataset("odd", {**splits, "test": [*splits["test"][:3], three, five]})
    with pytest.raises(DataError, match="3 choices"):
        evaluated("mmlu/original", data=odd)
    run = evaluated("mmlu", data=odd, out=tmp_path / "skip", skip_bad_items=True)
    assert {(row.n, row.missing) for row in run.rows()} == {(3, 2)}


def test_shots_are_dropped_and_counted_and_prompts_too_long_without_any_are_missing(
    evaluated: Evaluate, tmp_path: Path
) -> None:
    narrow = HashModel()
    narrow.window = 600
    run = evaluated("mmlu/original", model=narrow)
    assert run.rows()[0].shots_dropped == 12
    assert all(0 < shots < 5 for shots in run.tables.requests["shots"].to_pylist())
    narrow.window = 120
    run = evaluated("mmlu/original", "mmlu/harness-v1", model=narrow, out=tmp_path / "narrower")
    original, harness = run.rows()
    assert (original.n, original.missing) == (0, 12)
    assert np.isnan(original.value)
    assert (harness.n, harness.truncated) == (12, 12)
    assert "too long" in run.tables.requests["missing"][0].as_py()


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ({"protocols": []}, "no protocol"),
        ({"subjects": ["tide"]}, "did you mean tides"),
        ({"limit": 0}, "limit is 0; it must be at least 1"),
        ({"limit": -5}, "limit is -5; it must be at least 1"),
        ({"protocols": "mmlu"}, r"write protocols=\['mmlu'\]"),
        ({"subjects": "tides"}, r"write subjects=\['tides'\]"),
        ({"model": "no/such", "subjects": []}, "empty list"),  # before the model is loaded
        ({"model": "no/such", "out": Path(__file__)}, "is a file"),
    ],
)
def test_wrong_use_is_refused(evaluated: Evaluate, arguments: dict[str, Any], reason: str) -> None:
    with pytest.raises(StoreError if "out" in arguments else UsageError, match=reason):
        evaluated("mmlu/original", **arguments)


def test_a_subject_without_shots_is_named(evaluated: Evaluate, tmp_path: Path) -> None:
    data = write_mmlu(tmp_path / "data")
    (data / "dev" / "trees_dev.csv").unlink()
    with pytest.raises(DataError, match=r"trees.*dev"):
        evaluated("mmlu/original", data=data)


def test_the_self_check_is_kept_with_the_run(evaluated: Evaluate, tmp_path: Path) -> None:
    model = HashModel()
    model.selfcheck = SelfCheck("tree", 2e-5, 1e-5, 1e-4, 3e-5, 200, ())
    run = evaluated("mmlu/original", model=model)
    assert run.manifest.engine == EngineRecord(SelfCheckRecord("tree", "", 2e-5, 1e-5, 3e-5, 200))
    assert run.noise == 3e-5
    plain = evaluated("mmlu/original", out=tmp_path / "plain")
    assert plain.manifest.engine == EngineRecord()
    assert plain.noise is None


def test_an_items_further_fields_are_kept(evaluated: Evaluate, tmp_path: Path) -> None:
    row = {"id": "q", "question": "?", "choices": ["a", "b"], "answer": 1, "human_counts": [3, 7], "condition": "hard"}
    (tmp_path / "test.jsonl").write_text(json.dumps(row))
    recipe = replace(resolve("mmlu/cloze:sum")["mmlu/cloze:sum"], choices=None)
    run = evaluated(data=tmp_path / "test.jsonl", protocols={"p": recipe})
    fields = json.loads(run.tables.items["fields"][0].as_py())
    assert (json.loads(fields["human_counts"]), fields["condition"]) == ([3, 7], "hard")


@pytest.mark.parametrize("damage", ["missing", "truncated", "another gold"])
def test_a_run_whose_questions_changed_is_reported_only_when_continued(evaluated: Evaluate, damage: str) -> None:
    run = evaluated("mmlu/original", limit=1)
    items, path = run.tables.items, run.folder / "items.parquet"
    if damage == "another gold":
        gold = pa.array([[3 - right[0]] for right in items["gold"].to_pylist()], items.schema.field("gold").type)
        pq.write_table(items.set_column(items.schema.get_field_index("gold"), "gold", gold), path)
    elif damage == "truncated":
        path.write_bytes(path.read_bytes()[:-10])
    else:
        path.unlink()
    with pytest.raises(StoreError, match=r"items\.parquet .*choicewise doctor"):
        open_run(run.folder).rows()
    assert evaluated("mmlu/original", limit=1).tables.items.equals(items)


# The job of a run, in its manifest and in the command that resumes it


def test_every_option_that_changes_what_is_asked_is_in_the_command(evaluated: Evaluate) -> None:
    given = {"dtype": "float32", "device": "cpu", "window": 512, "batch_tokens": 4096}
    table = {"models": [{"name": "models/m", **given}], "data": [{"path": "-d", "mapping": "map.toml"}]}
    part = {"subjects": ["tides", "trees"], "limit": 3, "on_bad_item": "skip", "protocols": ["mmlu"]}
    job = job_of({**table, **part}).model_dump(mode="json", exclude_defaults=True)
    manifest = replace(evaluated("mmlu/original", limit=1).manifest, job=job)
    words = shlex.split(resuming_command(manifest, Path("run"), ["mmlu/original"]))
    pairs = dict(zip(words[2::2], words[3::2], strict=True))
    assert pairs == {
        **{"--model": "models/m", "--data": "./-d", "--limit": "3", "--mapping": "map.toml", "--dtype": "float32"},
        **{"--device": "cpu", "--window": "512", "--on-bad-item": "skip", "--subject": "trees"},
        **{"--protocol": "mmlu/original", "--out": "run"},
    }
    assert words.count("--subject") == 2


def test_a_run_keeps_the_job_that_began_it_until_others_go_on(data: Path, tmp_path: Path) -> None:
    def asked(protocol: str, data: Path) -> object:
        line = ("run", "--model", "fake:hash", "--data", data, "--protocol", protocol, "--out", tmp_path / "run")
        choicewise(*line, code=0)
        return read_manifest(tmp_path / "run").job["data"]

    first = asked("mmlu/original", data)
    assert first == [{"path": str(data)}]
    (tmp_path / "moved").symlink_to(data)
    assert asked("mmlu/original", tmp_path / "moved") == first  # nothing to do
    assert asked("mmlu/helm", tmp_path / "moved") == [{"path": str(tmp_path / "moved")}]
