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

from choicewise import Run, evaluate, open_dataset, open_run, score
from choicewise.cli.options import resuming_command
from choicewise.data.benchmarks import benchmark_of
from choicewise.data.dataset import Dataset
from choicewise.data.items import Item
from choicewise.errors import DataError, ModelError, StoreError, UsageError
from choicewise.models.fake import HashModel
from choicewise.models.model import SelfCheck
from choicewise.protocols.catalogue import resolve
from choicewise.protocols.protocol import BOUNDARIES
from choicewise.records import EngineRecord, SelfCheckRecord
from choicewise.running.fitting import checked_shots, selectors_with_shots
from choicewise.running.job import job_of, sources_of
from choicewise.store.folder import read_manifest, read_sweep
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
        asked = {
            "model": "fake:hash",
            "data": data,
            "protocols": protocols,
            "out": tmp_path / "run",
            **more,
        }
        return evaluate(**asked)

    return into


@pytest.mark.costly("whole families of protocols")
@pytest.mark.parametrize(("model", "value"), [("fake:oracle", 1.0), ("fake:anti-oracle", 0.0)])
def test_every_protocol_agrees_with_the_oracle(
    evaluated: Evaluate, model: str, value: float
) -> None:
    rows = {row.identity.protocol: row for row in evaluated("mmlu", model=model, limit=2).rows()}
    assert set(rows) == set(resolve("mmlu"))
    likelihoods = [
        row.value for name, row in rows.items() if "pmi" not in name
    ]  # PMI compares with a null that knows
    assert (likelihoods, {row.counts.n for row in rows.values()}) == (
        [value] * len(likelihoods),
        {4},
    )
    assert {row.counts.missing for row in rows.values()} == {0}


@pytest.mark.costly("whole families of protocols")
def test_a_repeated_run_asks_nothing_and_changes_nothing(
    evaluated: Evaluate, tmp_path: Path
) -> None:
    model = Failing()
    first = evaluated(*FAMILIES[:3], model=model)
    asked, times = len(model.asked), {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
    assert asked > 0
    second = evaluated(*FAMILIES[:3], model=model)
    assert (len(model.asked), {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}) == (
        asked,
        times,
    )
    assert second.report() == first.report()


@pytest.fixture(scope="module")
def whole(data: Path, tmp_path_factory: pytest.TempPathFactory) -> pa.Table:
    """The report of an undisturbed run."""
    out = tmp_path_factory.mktemp("whole") / "run"
    return evaluate(model="fake:hash", data=data, protocols=FAMILIES, out=out).report()


@pytest.mark.parametrize("answers", [0, 1, 150, 300])
def test_a_killed_run_goes_on_to_the_same_table(
    evaluated: Evaluate, whole: pa.Table, answers: int
) -> None:
    with pytest.raises(KeyboardInterrupt):
        evaluated(*FAMILIES, model=Failing(most=answers))
    resumed = evaluated(*FAMILIES, model=Failing())
    assert resumed.report() == whole
    assert resumed.manifest.complete


def test_after_an_end_before_the_first_answer_another_run_takes_the_folder(
    evaluated: Evaluate,
) -> None:
    with pytest.raises(KeyboardInterrupt):
        evaluated(*FAMILIES, model=Failing(most=0))
    run = evaluated("mmlu/original", model="fake:oracle", limit=1)
    assert (run.manifest.model.name, [*run.protocols]) == ("fake:oracle", ["mmlu/original"])
    assert run.manifest.complete
    with pytest.raises(StoreError, match="fake:oracle there and fake:hash here"):
        evaluated("mmlu/original", limit=1)


def test_a_run_without_answers_has_rows_without_numbers_and_no_warning(
    evaluated: Evaluate, tmp_path: Path
) -> None:
    with pytest.raises(KeyboardInterrupt):
        evaluated(*FAMILIES, model=Failing(most=0))
    rows = open_run(tmp_path / "run").rows()
    assert {row.identity.protocol for row in rows} >= {"mmlu/original", "mmlu/helm"}
    assert {row.counts.n for row in rows} == {0}


def test_an_interrupted_block_keeps_what_it_showed(evaluated: Evaluate, tmp_path: Path) -> None:
    every, rest = Failing(), Failing()
    table = evaluated("mmlu/cloze", model=every, out=tmp_path / "whole").report()
    with pytest.raises(KeyboardInterrupt):
        evaluated("mmlu/cloze", model=Failing(most=30))
    assert (evaluated("mmlu/cloze", model=rest).report(), len(rest.asked)) == (
        table,
        len(every.asked) - 30,
    )


def test_a_further_protocol_costs_only_what_nobody_asked(
    evaluated: Evaluate, data: Path, tmp_path: Path
) -> None:
    model, both = Failing(), Failing()
    evaluated("mmlu/cloze:sum", model=model)
    before = len(model.asked)
    evaluated(
        "mmlu/cloze:sum",
        "mmlu/cloze:byte_mean",
        "mmlu/cloze:char_mean",
        model=both,
        out=tmp_path / "both",
    )
    assert len(both.asked) == before
    evaluated("mmlu/cloze:char_mean", model=model)
    assert len(model.asked) == before
    run = evaluated("mmlu/cloze:pmi-answer", model=model)
    texts = {choice for item in open_dataset(data).splits["test"] for choice in item.choices}
    assert len(model.asked) == before + len(texts)
    assert [row.identity.protocol for row in run.rows()] == [
        "mmlu/cloze:sum",
        "mmlu/cloze:char_mean",
        "mmlu/cloze:pmi-answer",
    ]


def test_scores_observations_and_groups_are_tables_of_any_model(
    evaluated: Evaluate, tmp_path: Path
) -> None:
    run = evaluated("mmlu/cloze:sum", limit=2)
    scores = run.scores().to_pylist()
    assert len(scores) == 2 * 2 * 4
    observed = {
        (row["item"], row["choice"]): row["logprobs"] for row in run.observations().to_pylist()
    }
    for row in scores:
        assert row["score"] == pytest.approx(
            np.sum(observed[row["item"], row["choice"]], dtype=np.float64)
        )
    assert [row.identity.subject for row in run.rows("subjects")] == ["tides", "trees"]
    assert open_run(run.folder).report("subjects").num_rows == 2
    by_path = evaluated(
        "mmlu/cloze:sum", model=Path("fake:hash"), limit=2, out=tmp_path / "by path"
    )
    assert by_path.scores() == run.scores()


def test_observations_say_once_why_there_is_none(tmp_path: Path) -> None:
    """Of what could not be asked as well as of what the model did not answer."""
    model = Silent(lambda question: bytes(question.continuation.tolist()) == b"no", "too long")  # type: ignore[union-attr]
    data = Dataset("odd", {"test": (Item("1", "Which?", ("yes", "no", ""), (0,)),)})
    run = evaluate(
        model=model, data=data, protocols=["options/cloze:sum@continuation={choice}"], out=tmp_path
    )
    observed = run.observations()
    assert len(set(observed.column_names)) == len(observed.column_names)
    answered, unanswered, unasked = observed["missing"].to_pylist()
    assert (answered, unanswered) == (None, "too long")
    assert "it has no tokens" in unasked


def test_a_protocol_on_another_split_needs_its_items(evaluated: Evaluate, tmp_path: Path) -> None:
    test = resolve("mmlu/cloze:sum")["mmlu/cloze:sum"]
    recipes = {"test": test, "validation": replace(test, split="validation")}
    run = evaluated(protocols={"test": test})
    with pytest.raises(StoreError, match="no items .* split validation.*new folder"):
        evaluated(protocols=recipes)
    assert open_run(run.folder).manifest.complete
    assert [row.counts.n for row in evaluated(protocols=recipes, out=tmp_path / "both").rows()] == [
        12,
        12,
    ]


def test_limit_and_subject_choose_items_and_are_with_the_model_the_identity(
    evaluated: Evaluate,
) -> None:
    run = evaluated("mmlu/original", subjects=["trees"], limit=3)
    assert (run.rows()[0].counts.n, set(run.tables.items["subject"].to_pylist())) == (3, {"trees"})
    with pytest.raises(StoreError, match="another selection"):
        evaluated("mmlu/original", subjects=["trees"], limit=4)
    with pytest.raises(StoreError, match="another model"):
        evaluated("mmlu/original", subjects=["trees"], limit=3, model="fake:oracle")
    advice = "mmlu/helm .* folder, with model fake:hash; data data; subjects trees; limit 3"
    with pytest.raises(UsageError, match=f"no mmlu/helm.*{advice}"):
        run.choose(["mmlu/helm"])


@pytest.mark.costly("whole runs")
def test_wrong_numbers_of_choices_stop_or_are_counted(
    evaluated: Evaluate, data: Path, tmp_path: Path
) -> None:
    three = Item("three", "Three?", ("one", "two", "three"), (2,), "tides")
    five = Item("five", "Five?", ("1st", "2nd", "3rd", "4th", "5th"), (4,), "tides")
    splits = open_dataset(data).splits
    odd = Dataset("odd", {**splits, "test": [*splits["test"][:3], three, five]})
    with pytest.raises(DataError, match="3 choices"):
        evaluated("mmlu/original", data=odd, shots="error")
    with pytest.warns(UserWarning, match="2 of 5 questions have 3 and 5 choices"):
        any_number = evaluated("mmlu/original", data=odd, out=tmp_path / "any")
    assert list(any_number.protocols) == ["mmlu/original@choices=any,letters=ABCDE"]
    assert [(row.counts.n, row.counts.missing) for row in any_number.rows()] == [(5, 0)]
    run = evaluated("mmlu", data=odd, out=tmp_path / "skip", skip_bad_items=True)
    assert {(row.counts.n, row.counts.missing) for row in run.rows()} == {(3, 2)}


def test_dropped_shots_count_and_too_long_prompts_are_missing(
    evaluated: Evaluate, tmp_path: Path
) -> None:
    narrow = HashModel()
    narrow.window = 600
    run = evaluated("mmlu/original", model=narrow)
    assert run.rows()[0].counts.shots_dropped == 12
    assert all(0 < shots < 5 for shots in run.tables.requests["shots"].to_pylist())
    narrow.window = 120
    run = evaluated("mmlu/original", "mmlu/harness-v1", model=narrow, out=tmp_path / "narrower")
    original, harness = run.rows()
    assert (original.counts.n, original.counts.missing) == (0, 12)
    assert np.isnan(original.value)
    assert (harness.counts.n, harness.counts.truncated) == (12, 12)
    assert "too long" in run.tables.requests["missing"][0].as_py()


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ({"protocols": []}, "no protocol"),
        ({"subjects": ["tide"]}, "did you mean tides"),
        ({"limit": 0}, "limit is 0; .* at least 1"),
        ({"limit": -5}, "limit is -5; .* at least 1"),
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
    assert run.manifest.engine == EngineRecord(
        SelfCheckRecord(rung="tree", cost="", difference=2e-5, floor=1e-5, noise=3e-5, depth=200)
    )
    assert run.noise == 3e-5
    plain = evaluated("mmlu/original", out=tmp_path / "plain")
    assert (plain.manifest.engine, plain.noise) == (EngineRecord(), None)


def test_an_items_further_fields_are_kept(evaluated: Evaluate, tmp_path: Path) -> None:
    row = {
        "id": "q",
        "question": "?",
        "choices": ["a", "b"],
        "answer": 1,
        "human_counts": [3, 7],
        "condition": "hard",
    }
    (tmp_path / "test.jsonl").write_text(json.dumps(row))
    recipe = replace(resolve("mmlu/cloze:sum")["mmlu/cloze:sum"], choices=None)
    run = evaluated(data=tmp_path / "test.jsonl", protocols={"p": recipe})
    fields = json.loads(run.tables.items["fields"][0].as_py())
    assert (json.loads(fields["human_counts"]), fields["condition"]) == ([3, 7], "hard")


@pytest.mark.parametrize("damage", ["missing", "truncated", "another gold"])
def test_a_run_whose_questions_changed_is_reported_only_when_continued(
    evaluated: Evaluate, damage: str
) -> None:
    run = evaluated("mmlu/original", limit=1)
    items, path = run.tables.items, run.folder / "items.parquet"
    if damage == "another gold":
        gold = pa.array(
            [[3 - right[0]] for right in items["gold"].to_pylist()], items.schema.field("gold").type
        )
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
    table = {
        "models": [{"name": "models/m", **given}],
        "data": [{"path": "-d", "mapping": "map.toml"}],
    }
    part = {
        "subjects": ["tides", "trees"],
        "limit": 3,
        "on_bad_item": "skip",
        "protocols": ["mmlu"],
    }
    job = job_of({**table, **part}).model_dump(mode="json", exclude_defaults=True)
    manifest = replace(evaluated("mmlu/original", limit=1).manifest, job=job)
    words = shlex.split(resuming_command(manifest, Path("run"), ["mmlu/original"]))
    pairs = dict(zip(words[2::2], words[3::2], strict=True))
    assert pairs == {
        **{
            "--model": "models/m",
            "--data": "./-d",
            "--limit": "3",
            "--mapping": "map.toml",
            "--dtype": "float32",
        },
        **{"--device": "cpu", "--window": "512", "--on-bad-item": "skip", "--subject": "trees"},
        **{"--protocol": "mmlu/original", "--out": "run"},
    }
    assert words.count("--subject") == 2


@pytest.mark.costly("several runs of a folder")
def test_a_run_keeps_the_job_that_began_it_until_others_go_on(data: Path, tmp_path: Path) -> None:
    def asked(protocol: str, data: Path) -> object:
        line = (
            "run",
            "--model",
            "fake:hash",
            "--data",
            data,
            "--protocol",
            protocol,
            "--out",
            tmp_path / "run",
        )
        choicewise(*line, code=0)
        return read_manifest(tmp_path / "run").job["data"]

    first = asked("mmlu/original", data)
    assert first == [{"path": str(data)}]
    (tmp_path / "moved").symlink_to(data)
    assert asked("mmlu/original", tmp_path / "moved") == first  # nothing to do
    assert asked("mmlu/helm", tmp_path / "moved") == [{"path": str(tmp_path / "moved")}]


def write_piqa(file: Path) -> Path:
    rows = [{"goal": f"How {n}?", "sol1": "so", "sol2": "not so", "label": n % 2} for n in range(3)]
    file.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return file


def asked(
    *data: Path | str, protocols: tuple[str, ...] = ("mmlu/original", "piqa")
) -> dict[str, tuple[str, ...]]:
    job = job_of(
        {"models": ["fake:hash"], "protocols": protocols, "data": [str(each) for each in data]}
    )
    return {source.name: source.selectors for source in sources_of(job)}


@pytest.mark.parametrize(
    "name", ["piqa.jsonl", "PIQA.validation.jsonl", "piqa_val.jsonl", "rows.jsonl"]
)
def test_a_file_is_known_by_its_name_or_its_columns(tmp_path: Path, name: str) -> None:
    file, quiz = write_piqa(tmp_path / name), write_mmlu(tmp_path / "quiz", questions=1)
    assert benchmark_of(str(file), ["piqa", "mmlu"]) == "piqa"
    assert asked(quiz, file) == {str(quiz): ("mmlu/original",), str(file): ("piqa",)}


def test_the_longest_name_is_meant(tmp_path: Path) -> None:
    (tmp_path / "mmlu-pro.jsonl").write_text("{}\n")
    assert benchmark_of(str(tmp_path / "mmlu-pro.jsonl"), ["mmlu"]) == "mmlu-pro"
    assert (benchmark_of("allenai/ai2_arc:ARC-Easy", []), benchmark_of("ybisk/piqa", [])) == (
        "arc-easy",
        "piqa",
    )
    assert benchmark_of("somebody/else", ["piqa"]) is None


def test_a_file_whose_columns_fit_two_benchmarks_is_of_none(tmp_path: Path) -> None:
    file = tmp_path / "rows.jsonl"
    file.write_text(
        json.dumps({"input": "Is 3 prime?", "target": "Yes", "text": "Three is prime."}) + "\n"
    )
    assert benchmark_of(str(file), ["bbh", "race"]) == "bbh"
    assert benchmark_of(str(file), ["lambada", "race"]) == "lambada"
    assert benchmark_of(str(file), ["bbh", "lambada"]) is None


def test_every_protocol_is_asked_somewhere_and_only_its_own_part_of_a_selector(
    tmp_path: Path,
) -> None:
    """Against a plain reference: a protocol is asked on the data of its benchmark, else on those of none."""
    file, quiz = write_piqa(tmp_path / "piqa.jsonl"), write_mmlu(tmp_path / "quiz", questions=1)
    selectors = ("mmlu/original", "piqa/harness:acc", "arc-easy/harness:acc", "options/cloze:sum")
    job = job_of({"models": ["fake:hash"], "protocols": selectors, "data": [str(quiz), str(file)]})
    for source in sources_of(job):
        for name, recipe in resolve(*selectors).items():
            here = recipe.benchmark == "any" or (recipe.benchmark == "piqa") == (
                source.name == str(file)
            )
            assert (name in source.recipes) == here
        assert set(resolve(*source.selectors)) == set(source.recipes)


def test_one_benchmark_or_unknown_data_are_asked_as_before(tmp_path: Path) -> None:
    one, two = (write_mmlu(tmp_path / name, questions=1) for name in ("one", "two"))
    both = ("mmlu/original", "piqa")
    assert asked(one, two) == {str(one): both, str(two): both}
    file = write_piqa(tmp_path / "piqa.jsonl")
    with pytest.raises(UsageError, match="would not be used"):
        asked(one, file, protocols=("piqa",))


def test_what_failed_in_an_earlier_plan_leaves_with_it(tmp_path: Path) -> None:
    data, out = write_mmlu(tmp_path / "data", questions=1), tmp_path / "out"
    line = ("sweep", "--protocol", "mmlu/original@shots=0", "--data", data, "--out", out, "--model")
    choicewise(*line, "fake:hash", "--model", tmp_path / "no-model")
    assert {cell.model for cell in read_sweep(out).cells if cell.failure} == {
        str(tmp_path / "no-model")
    }
    told = choicewise(*line, "fake:hash", code=0)
    assert [cell.model for cell in read_sweep(out).cells] == ["fake:hash"]
    assert "no-model" not in told.stdout + told.stderr
    assert "no-model" not in choicewise("report", out, code=0).stdout


def test_a_sweep_without_a_run_says_what_to_do(tmp_path: Path) -> None:
    data, out = write_mmlu(tmp_path / "data", questions=1), tmp_path / "out"
    line = ("sweep", "--protocol", "mmlu/original@shots=0", "--data", data, "--out", out, "--model")
    choicewise(*line, tmp_path / "no-model")
    told = choicewise("report", out).stderr
    assert f"no run in {out}" in told
    assert "each of 1 run failed" in told
    assert "choicewise sweep" in told
    assert "no-model" in told


def test_shots_are_a_number_or_where_to_stop() -> None:
    assert [checked_shots(shots) for shots in (None, 0, 5, "error")] == [None, 0, 5, "error"]
    for shots in (True, -1, 1.5, "none"):
        with pytest.raises(ValueError, match="a whole number"):
            checked_shots(shots)
    assert selectors_with_shots(["mmlu/original"], "error") == ("mmlu/original",)
    (protocol,) = resolve(*selectors_with_shots(["mmlu/original"], 2)).values()
    assert protocol.shots == 2


def test_a_model_is_a_name_or_a_path() -> None:
    by_name, by_path = (
        score(model, "The cat", [" sat", " ran"]) for model in ("fake:hash", Path("fake:hash"))
    )
    assert by_name == by_path == score("fake:hash", "The cat", iter([" sat", " ran"]))
    assert by_name["choice"].to_pylist() == [" sat", " ran"]


def test_domain_scores_take_the_premise_and_are_left_out_without_one() -> None:
    """By the chain rule of the fake, whose log-probabilities of consecutive texts add up."""
    context, choices, premise = "The cat", [" sat", " ran off"], " the answer is:"
    after = {text: score("fake:hash", text, choices) for text in (context, premise)}
    table = score("fake:hash", context, choices, premise=premise)
    assert table["domain_conditional"].to_pylist() == after[premise]["sum"].to_pylist()
    np.testing.assert_allclose(
        table["dc_pmi"], np.subtract(after[context]["sum"], after[premise]["sum"])
    )
    assert table.drop_columns(["dc_pmi", "domain_conditional"]) == after[context]
    assert not np.allclose(table["dc_pmi"], table["pmi"])


@pytest.mark.parametrize("boundary", BOUNDARIES)
def test_a_premise_that_is_the_context_adds_nothing(boundary: str) -> None:
    if boundary == "word":
        pytest.skip("the bytes of the fake mark no words")
    for context in ("the cat", "the cat ", "\n"):
        table = score("fake:hash", context, ["s", " sa"], boundary=boundary, premise=context)
        assert table["dc_pmi"].to_pylist() == [0, 0]


def test_a_premise_with_the_space_of_the_choices_stands_in_its_place() -> None:
    spaced = score("fake:hash", "The cat", [" sat"], boundary="joint", premise="it: ")
    bare = score("fake:hash", "it: ", ["sat"], boundary="joint")
    assert spaced["domain_conditional"].to_pylist() == bare["sum"].to_pylist()


@pytest.mark.parametrize("boundary", BOUNDARIES)
def test_an_empty_choice_is_refused_under_every_boundary(boundary: str) -> None:
    with pytest.raises(ModelError, match="'' can't be scored:"):
        score("fake:hash", "The cat", ["", " sat"], boundary=boundary)


@pytest.mark.parametrize(
    ("choices", "reason"), [(" sat", r"write choices=\[' sat'\]"), ([], "at least one choice")]
)
def test_choices_are_a_list_of_some(choices: str | list[str], reason: str) -> None:
    with pytest.raises(UsageError, match=reason):
        score("fake:hash", "The cat", choices)


def test_half_a_character_is_no_text() -> None:
    for context, choices in (("The \ud83d", [" sat"]), ("The cat", [" sat", " \ude00"])):
        with pytest.raises(UsageError, match="lone surrogate"):
            score("fake:hash", context, choices)


def test_without_bos_and_eos_nothing_is_scored_after_an_empty_context_and_the_rest_is_asked(
    evaluated: Evaluate, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = HashModel()
    monkeypatch.setattr(model.tokenizer, "bos_id", None)
    plain, after_nothing, after_answer = (
        f"mmlu/cloze:{score}" for score in ("sum", "pmi-empty", "pmi-answer")
    )
    with pytest.warns(UserWarning, match="BOS nor an EOS"):
        run = evaluated(plain, after_nothing, after_answer, model=model, limit=1)
    assert set(run.protocols) == {plain, after_answer}
    assert run.manifest.refused.keys() == {after_nothing}
