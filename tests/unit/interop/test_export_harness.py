"""Exports as files of lm-evaluation-harness and of Every Eval Ever."""

import hashlib
import json
import math
import re
import tempfile
from dataclasses import fields, replace
from pathlib import Path
from typing import Any
from uuid import UUID

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from syrupy.assertion import SnapshotAssertion

import choicewise
from choicewise.data.benchmarks import benchmarks
from choicewise.data.dataset import Dataset
from choicewise.data.items import Item
from choicewise.errors import UsageError
from choicewise.extensions.interop.write.common import LONGEST, distinct_name, file_name
from choicewise.extensions.interop.write.every_eval_ever import BOARDS, record_folder, record_uuid
from choicewise.extensions.interop.write.harness import sanitized
from choicewise.extensions.interop.write.harness_names import HARNESS_METRICS as METRICS
from choicewise.extensions.interop.write.harness_names import (
    TASKS,
    catalogue_task,
    metric_key,
    new_task_name,
)
from choicewise.protocols.catalogue import resolve
from choicewise.protocols.protocol import Protocol, parse_signature
from choicewise.results.run import Run
from choicewise.store.folder import read_manifest, write_manifest
from tests.helpers.commands import choicewise as command
from tests.helpers.export_runs import HARNESS, lines, questions, quiz, strict
from tests.paths import GOLDENS

OWN, WORDS = "choicewise", ("red", "very tall", "salty")


def exported(
    run: Run | list[Run], out: Path, **about: Any
) -> tuple[dict[str, Any], dict[str, list[dict[str, Any]]]]:
    """The results file, and the lines of every samples file by its task."""
    choicewise.export(run, "harness", out, **about)
    (file,) = out.rglob("results_*.json")
    samples = {
        each.name[8 : each.name.rindex("_")]: lines(each) for each in out.rglob("samples_*.jsonl")
    }
    return strict(file.read_text(encoding="utf-8")), samples


def sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def test_metrics_of_probabilities_say_which_way_is_better(tmp_path: Path) -> None:
    plain = {"null": None, "decision": "argmax", "outside": "keep", "score": "sum"}
    for metric, better, aggregation in (
        ("brier", False, "mean"),
        ("prob", True, "mean"),
        ("ece", False, "choicewise_ece"),
    ):
        results, _ = exported(
            quiz(questions(6), tmp_path / metric, metric=metric, **plain),
            tmp_path / f"{metric}-out",
        )
        (told,) = results["higher_is_better"].values()
        assert set(told.values()) == {better}
        (config,) = results["configs"].values()
        assert {each["aggregation"] for each in config["metric_list"]} == {aggregation}
        assert {each["metric"]: each["higher_is_better"] for each in config["metric_list"]} == told


def test_the_five_metrics_of_the_harness_have_its_names_and_our_numbers(tmp_path: Path) -> None:
    run = quiz(questions(20), tmp_path / "run")
    results, samples = exported(run, tmp_path / "out")
    rows = {row.identity.protocol.partition(":")[2]: row for row in run.rows()}
    (entry,) = results["results"].values()
    assert rows.keys() == {"acc", "acc_norm", "acc_bytes", "acc_mutual_info", "exact_match"}
    for metric, row in rows.items():
        assert (entry[f"{metric},none"], entry[f"{metric}_stderr,none"]) == (row.value, row.se)
    (task,) = results["configs"]
    assert results["n-samples"] == {task: {"original": 20, "effective": 20}}
    assert results["higher_is_better"][task] == dict.fromkeys(rows, True)
    told = results["configs"][task]["metadata"][OWN]["metrics"]
    assert told.keys() == {f"{metric},none" for metric in rows}
    for metric, row in rows.items():
        assert told[f"{metric},none"]["signature"] == row.identity.signature
        assert np.mean([line[metric] for line in samples[task]]) == pytest.approx(row.value)


def test_lines_have_the_log_likelihoods_as_text_and_hashes_by_the_harness_formulae(
    tmp_path: Path,
) -> None:
    run = quiz(questions(5), tmp_path / "run")
    results, samples = exported(run, tmp_path / "out")
    (task,) = samples
    table = run.scores(f"{HARNESS}:acc")
    sums = iter(table["score"].to_pylist())
    after = iter(
        (
            np.array(table["score"]) - np.array(run.scores(f"{HARNESS}:acc_mutual_info")["score"])
        ).tolist()
    )
    hashes = ""
    for number, line in enumerate(samples[task]):
        assert (line["doc_id"], line["filter"], line["target"]) == (number, "none", str(number % 3))
        assert [float(answer[0][0]) for answer in line["resps"][:3]] == [
            next(sums) for _ in range(3)
        ]
        assert [float(answer[0][0]) for answer in line["resps"][3:]] == pytest.approx(
            [next(after) for _ in range(3)]
        )
        assert line["filtered_resps"] == [answer[0] for answer in line["resps"]]
        assert {answer[1] for answer in line["filtered_resps"][:3]} <= {"True", "False"}
        texts = [line["arguments"][f"gen_args_{place}"] for place in range(6)]
        assert [text["arg_0"] for text in texts[3:]] == [""] * 3
        assert [text["arg_1"] for text in texts] == [f" {word}" for word in WORDS] * 2
        own = [float(answer[0][0]) for answer in line["resps"]]
        lengths = {
            "acc": [1, 1, 1],
            "acc_norm": map(len, WORDS),
            "acc_bytes": [len(word.encode()) for word in WORDS],
        }
        scores = {
            key: [score / n for score, n in zip(own, each, strict=False)]
            for key, each in lengths.items()
        }
        scores["acc_mutual_info"] = [one - other for one, other in zip(own, own[3:], strict=False)]
        for metric, each in scores.items():
            assert line[metric] == float(each.index(max(each)) == number % 3), metric
        assert line["doc_hash"] == sha256(json.dumps(line["doc"], indent=2, ensure_ascii=False))
        assert (line["prompt_hash"], line["target_hash"]) == (
            sha256(texts[0]["arg_0"]),
            sha256(line["target"]),
        )
        hashes += line["doc_hash"] + line["prompt_hash"] + line["target_hash"]
    assert results["task_hashes"] == {task: sha256(hashes)}


def test_a_group_whose_subjects_lack_some_numbers_or_all(
    tmp_path: Path, snapshot: SnapshotAssertion
) -> None:
    """Missing items have no line and are counted with their reasons, and a subject without a number has no metric."""
    subjects = {"tides": (2, 1), "high seas/2": (3, 0), "four": (0, 2)}
    items = [
        replace(item, id=f"{subject}{item.id}-{size}")
        for subject, counts in subjects.items()
        for size, count in zip((3, 4), counts, strict=True)
        for item in questions(count, size, subject=subject)
    ]
    run = quiz(items, tmp_path / "run", choices=3)
    results, samples = exported(
        run, tmp_path / "out", protocols=[f"{HARNESS}:acc", f"{HARNESS}:acc_norm"]
    )
    rows = {
        (row.identity.protocol, row.identity.subject): row
        for row in [*run.rows(), *run.rows("subjects")]
    }
    for subject, name in {
        "all": "quiz@compat-lm-eval",
        "high seas/2": "quiz@compat-lm-eval_high-seas-2",
    }.items():
        row, entry = rows[f"{HARNESS}:acc_norm", subject], results["results"][name]
        assert (entry["acc_norm,none"], entry["acc_norm_stderr,none"]) == (row.value, row.se)
    told = results["configs"]["quiz@compat-lm-eval_tides"]["metadata"][OWN]["metrics"]["acc,none"]
    assert (told["n"], told["missing"], [each["count"] for each in told["missing_reasons"]]) == (
        2,
        1,
        [1],
    )
    assert results["configs"].keys() == {*results["group_subtasks"]["quiz@compat-lm-eval"]}
    about = ("results", "groups", "group_subtasks", "n-samples", "n-shot", "higher_is_better")
    assert {key: results[key] for key in about} == snapshot
    assert {task: [line["doc_id"] for line in own] for task, own in samples.items()} == snapshot


def test_several_runs_of_a_model_are_one_file_and_other_models_others(tmp_path: Path) -> None:
    one = quiz(questions(3), tmp_path / "one")
    two = quiz(questions(4), tmp_path / "two", name="other")
    far = quiz(questions(4), tmp_path / "far", name="other", model="fake:oracle")
    same = quiz(questions(5), tmp_path / "same", name="other")
    choicewise.export([one, two, far, same], "harness", tmp_path / "out")
    files = sorted(tmp_path.glob("out/*/results_*.json"))
    assert [file.parent.name for file in files] == ["fake__hash", "fake__oracle"]
    tasks = list(strict(files[0].read_text())["results"])
    assert (tasks[:2], len(tasks)) == (["quiz@compat-lm-eval", "other@compat-lm-eval"], 3)
    assert tasks[2].startswith("other@compat-lm-eval-P")


def test_tasks_of_the_harness_that_were_asked_here_keep_their_names(tmp_path: Path) -> None:
    asked = quiz(questions(4), tmp_path / "one", name="lm-eval:isles", benchmark="lm-eval:isles")
    results, samples = exported(asked, tmp_path / "one-out")
    assert (list(results["results"]), list(samples)) == (["isles"], ["isles"])
    assert results["results"]["isles"]["acc_norm,none"] == asked.rows()[1].value
    items = [
        replace(item, subject=f"isles_{number % 2}") for number, item in enumerate(questions(6))
    ]
    group = quiz(
        items,
        tmp_path / "two",
        name="lm-eval:isles",
        benchmark="lm-eval:isles",
        aggregation="macro",
    )
    results, samples = exported(group, tmp_path / "two-out")
    assert results["group_subtasks"] == {"isles": ["isles_0", "isles_1"]}
    assert (results["groups"]["isles"]["acc,none"], {*samples}) == (
        group.rows()[0].value,
        {"isles_0", "isles_1"},
    )


def test_what_is_imported_again_is_the_same(tmp_path: Path) -> None:
    run = quiz(questions(30), tmp_path / "run", name="isles")
    _, samples = exported(run, tmp_path / "out")
    back = command("import", tmp_path / "out" / "fake__hash", "--out", tmp_path / "back")
    assert (back.code, "not used" in back.stderr) == (0, False), back.stderr
    again = choicewise.open_run(tmp_path / "back")
    ours = {row.identity.protocol.partition(":")[2]: row for row in run.rows()}
    names = {
        "sum": "acc",
        "char_mean_bare": "acc_norm",
        "byte_mean_bare": "acc_bytes",
        "pmi": "acc_mutual_info",
    }
    rows = {row.identity.protocol.rpartition(":")[2]: row for row in again.rows()}
    for score, metric in names.items():
        assert (rows[score].value, rows[score].counts.n, rows[score].se) == (
            ours[metric].value,
            30,
            ours[metric].se,
        )
    results, same = exported(again, tmp_path / "again")
    ((task, entry),) = results["results"].items()
    assert task == next(iter(samples))
    for metric in names.values():
        assert entry[f"{metric},none"] == ours[metric].value
    for line, first in zip(same[task], samples[task], strict=True):
        assert line["resps"][:3] == first["resps"][:3]
        assert line["arguments"]["gen_args_0"] == first["arguments"]["gen_args_0"]


def test_a_part_that_is_imported_again_is_known_as_one(tmp_path: Path) -> None:
    items = [*questions(5), replace(*questions(1, 4), id="of four choices")]
    exported(quiz(items, tmp_path / "run", name="isles", choices=3), tmp_path / "lacks")
    told = command("import", tmp_path / "lacks", "--out", tmp_path / "five", code=0)
    assert "5 of 6 items" in told.stderr
    first = choicewise.evaluate(
        model="fake:hash",
        data=Dataset("isles", {"test": tuple(questions(5))}),
        protocols=[HARNESS],
        out=tmp_path / "first",
        limit=2,
    )
    exported(first, tmp_path / "limit")
    (back,) = choicewise.import_log(tmp_path / "limit", tmp_path / "two")
    assert back.rows()[0].identity.selection == first.rows()[0].identity.selection != ""


texts = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12)


@pytest.mark.costly("runs are written and exported")
@settings(max_examples=4)
@given(
    st.lists(
        st.tuples(texts, st.lists(texts, min_size=2, max_size=4, unique=True), texts),
        min_size=2,
        max_size=6,
    )
)
def test_any_texts(rows: list[tuple[str, list[str], str]]) -> None:
    items = [
        Item(f"{n}{asked}", asked, tuple(choices), (0,), topic)
        for n, (asked, choices, topic) in enumerate(rows)
    ]
    with tempfile.TemporaryDirectory() as folder:
        run = quiz(items, Path(folder, "run"), name=rows[0][0])
        _, samples = exported(run, Path(folder, "out"))
        row = next(row for row in run.rows() if row.identity.protocol.endswith(":acc"))
        seen = {line["doc"]["id"]: line for each in samples.values() for line in each}
    for item in items:
        if item.id in seen:
            document = seen[item.id]["doc"]
            assert (document["question"], document["choices"]) == (
                item.question,
                list(item.choices),
            )
    counted = [line["acc"] for line in seen.values() if "acc" in line]
    assert len(counted) == row.counts.n
    assert math.isnan(row.value) or np.mean(counted) == pytest.approx(row.value)


@given(texts, texts)
def test_names_of_files_are_safe_and_stay_apart(one: str, other: str) -> None:
    first = file_name(one * 40)
    second = distinct_name(file_name(other * 40), [first], "told")
    for name in (first, second):
        assert re.fullmatch(r"[^./\0][^/\0]*", name)
        assert len(name.encode()) <= LONGEST + 10
        assert name.isprintable()
    assert first.casefold() != second.casefold()


@pytest.mark.parametrize("name", TASKS)
def test_every_task_of_the_harness_is_a_protocol_of_the_catalogue(name: str) -> None:
    for each, protocol in resolve(name).items():
        assert catalogue_task(each, protocol, protocol.benchmark) == TASKS[name]
        assert catalogue_task(each, protocol, "my-own-data") is None
        assert (
            catalogue_task(each, replace(protocol, rev=protocol.rev + 1), protocol.benchmark)
            is None
        )
        assert metric_key(each, protocol, TASKS[name], []).partition(",")[0] in {*METRICS.values()}


def test_the_number_of_shots_is_no_part_of_a_task() -> None:
    ((name, five),) = resolve("arc-challenge/harness:acc@shots=5").items()
    assert catalogue_task(name, five, "arc-challenge") == TASKS["arc-challenge/harness"]
    ((name, other),) = resolve("arc-challenge/harness:acc@ties=split").items()
    assert catalogue_task(name, other, "arc-challenge") is None
    assert new_task_name(name, other, "arc-challenge") == "arc-challenge@harness@ties-split"
    assert metric_key(name, other, None, []) == "choicewise_acc_acc,none"


def test_generated_answers_and_texts_that_could_do_harm_stay_texts(
    hostile: Run, tmp_path: Path
) -> None:
    recipes, data = (
        resolve("options/free-simple-evals"),
        Dataset("quiz", {"test": tuple(questions(4))}),
    )
    run = choicewise.evaluate(
        model="fake:oracle", data=data, protocols=recipes, out=tmp_path / "run"
    )
    results, samples = exported(run, tmp_path / "free")
    (task,) = samples
    (metric,) = (
        key for key in results["results"][task] if key.endswith(",none") and "_stderr" not in key
    )
    assert results["results"][task][metric] == run.rows()[0].value
    assert results["configs"][task]["output_type"] == "generate_until"
    for line in samples[task]:
        assert line["arguments"].keys() == {"gen_args_0"}
        assert isinstance(line["resps"][0][0], str)
    results, samples = exported(hostile, tmp_path / "out", protocols=[*hostile.protocols][::10])
    root = (tmp_path / "out").resolve()
    assert all(file.resolve().is_relative_to(root) for file in root.rglob("*"))
    assert results["model_name"].startswith("</script>")
    documents = {line["doc"]["question"] for each in samples.values() for line in each}
    assert "a\u2028b\u2029c \u202ereversed\u202c" in documents


CATALOGUE = ["options/cloze", "mmlu/cloze", "options/pride", "options/yes-no", "masked-lm/minicons"]


@pytest.mark.parametrize("name", CATALOGUE)
def test_no_other_number_has_a_name_of_the_harness(name: str) -> None:
    theirs = {f"{metric},none" for metric in METRICS.values()}
    means = {
        (recipe.score, recipe.decision, recipe.metric, recipe.ties): each.removeprefix(
            f"{HARNESS}:"
        )
        for each, recipe in resolve(HARNESS).items()
    }
    assert {*means.values()} <= {*METRICS.values()}
    keys: list[str] = []
    for each, protocol in resolve(name).items():
        key = metric_key(each, protocol, None, keys)
        keys.append(key)
        if key in theirs:
            usual = (protocol.score, protocol.decision, protocol.metric, protocol.ties)
            assert means[usual] == key.partition(",")[0]
            assert (protocol.calibration, protocol.views, protocol.reading) == (
                "none",
                "given",
                "loglikelihood",
            )
    assert len({*keys}) == len(keys)


def test_the_date_is_the_runs_and_a_models_name_leads_nowhere(tmp_path: Path) -> None:
    run = quiz(questions(3), tmp_path / "run")
    manifest = read_manifest(run.folder)
    write_manifest(
        run.folder, replace(manifest, model=replace(manifest.model, name="../../etc/passwd"))
    )
    results, _ = exported(choicewise.open_run(run.folder), tmp_path / "out")
    assert results["model_name_sanitized"] == sanitized("../../etc/passwd") == "..__..__etc__passwd"
    assert results["date"] == pytest.approx((run.folder / "manifest.json").stat().st_mtime)
    assert {file.parent.parent for file in (tmp_path / "out").rglob("*.json*")} == {
        tmp_path / "out"
    }


SCHEMAS = GOLDENS / "every_eval_ever"


def validators() -> tuple[Any, Any]:
    """Of records and of samples, by the published schemas."""
    jsonschema = pytest.importorskip("jsonschema")
    names = ("eval.schema.json", "instance_level_eval.schema.json")
    record, sample = (
        jsonschema.Draft7Validator(json.loads((SCHEMAS / name).read_text())) for name in names
    )
    return record, sample


def recorded(
    run: Run, out: Path, **about: Any
) -> tuple[Path, dict[str, Any], list[dict[str, Any]]]:
    """The path of the record, the record and the samples, all checked against the schema."""
    choicewise.export(run, "every-eval-ever", out, **about)
    (file,) = out.glob("data/*/*/*/*.json")
    record = strict(file.read_text(encoding="utf-8"))
    detailed = record.get("detailed_evaluation_results")
    samples = lines(out / detailed["file_path"]) if detailed else []
    of_records, of_samples = validators()
    assert [error.message for error in of_records.iter_errors(record)] == []
    assert [error.message for sample in samples for error in of_samples.iter_errors(sample)] == []
    return file, record, samples


def test_a_record_per_run_and_a_result_per_protocol(tmp_path: Path) -> None:
    run = quiz(questions(8), tmp_path / "run")
    file, record, samples = recorded(
        run, tmp_path / "out", url="https://example.org", organization="Isle Lab"
    )
    assert (file.parent, UUID(file.stem).version) == (tmp_path / "out/data/quiz/local/fake_hash", 4)
    assert (
        record["detailed_evaluation_results"]["file_path"]
        == f"data/quiz/local/fake_hash/{file.stem}_samples.jsonl"
    )
    assert record["detailed_evaluation_results"]["total_rows"] == len(samples) == 5 * 8
    content = (file.parent / f"{file.stem}_samples.jsonl").read_bytes()
    assert record["detailed_evaluation_results"]["checksum"] == hashlib.sha256(content).hexdigest()
    assert record["source_metadata"]["source_organization_name"] == "Isle Lab"
    for result, row in zip(record["evaluation_results"], run.rows(), strict=True):
        assert result["score_details"]["score"] == row.value
        told = result["metric_config"]["metric_parameters"]
        assert parse_signature(told["choicewise.signature"]) == run.protocols[row.identity.protocol]
        axes = {
            axis.name: getattr(run.protocols[row.identity.protocol], axis.name)
            for axis in fields(Protocol)
        }
        assert {name: told[name] for name in axes} == axes
        uncertainty = result["score_details"]["uncertainty"]
        assert uncertainty["standard_error"]["value"] == row.se
        assert (uncertainty["confidence_interval"]["lower"], uncertainty["num_samples"]) == (
            row.interval.low,
            row.counts.n,
        )
    ids = [result["evaluation_result_id"] for result in record["evaluation_results"]]
    assert (len({*ids}), {sample["evaluation_result_id"] for sample in samples}) == (
        len(ids),
        {*ids},
    )
    assert {sample["evaluation_id"] for sample in samples} == {record["evaluation_id"]}


def test_samples_have_the_texts_the_credit_and_the_hash(tmp_path: Path) -> None:
    run = quiz(questions(6), tmp_path / "run")
    _, _, samples = recorded(run, tmp_path / "out", protocols=[f"{HARNESS}:acc"])
    scores = run.scores(f"{HARNESS}:acc").to_pylist()
    for number, sample in enumerate(samples):
        own = [each for each in scores if each["item"] == f"q{number}"]
        words = ("red", "very tall", "salty")
        assert (sample["input"]["choices"], sample["input"]["reference"]) == (
            [*words],
            [words[number % 3]],
        )
        content = f"What is number {number}?{words[number % 3]}"
        assert sample["sample_hash"] == hashlib.sha256(content.encode()).hexdigest()
        assert sample["output"]["raw"] == [words[own[0]["prediction"]]]
        assert sample["evaluation"] == {
            "score": own[0]["credit"],
            "is_correct": own[0]["credit"] == 1,
        }
        assert json.loads(sample["metadata"]["loglikelihoods"]) == [each["score"] for each in own]


def test_missing_items_have_no_line_and_are_counted_and_a_protocol_without_any_number_is_named(
    tmp_path: Path,
) -> None:
    items = [
        *questions(3),
        *(replace(item, id=f"{item.id}-four") for item in questions(2, choices=4)),
    ]
    run = quiz(items, tmp_path / "run", choices=3)
    _, record, samples = recorded(run, tmp_path / "out", protocols=[f"{HARNESS}:acc"])
    details = record["evaluation_results"][0]["score_details"]["details"]
    assert (details["n"], details["missing"], details["complete"]) == ("3", "2", "true")
    assert re.fullmatch("2 items: .+", details["missing_reason_1"])
    assert [sample["sample_id"] for sample in samples] == ["q0", "q1", "q2"]
    filled = choicewise.export(
        quiz(items[3:], tmp_path / "none", choices=3), "every-eval-ever", tmp_path / "nothing"
    )
    assert len(filled.notes) == 5
    assert all("no number to export" in note for note in filled.notes)
    assert strict(filled.files[0].read_text())["evaluation_results"] == []


@pytest.mark.costly("six exports")
def test_generated_answers_perplexities_and_harmful_texts_are_valid_too(
    hostile: Run, tmp_path: Path
) -> None:
    data, recipes = (
        Dataset("quiz", {"test": tuple(questions(4, 4))}),
        resolve("options/free-simple-evals"),
    )
    free = choicewise.evaluate(
        model="fake:oracle", data=data, protocols=recipes, out=tmp_path / "free"
    )
    _, record, samples = recorded(free, tmp_path / "free-out")
    assert (
        record["evaluation_results"][0]["generation_config"]["generation_args"]["temperature"] == 0
    )
    assert samples[0]["output"]["raw"][0]
    words = [Item(str(number), f"Say {number}", ("word",), (0,)) for number in range(3)]
    ppl = quiz(
        words,
        tmp_path / "ppl",
        metric="perplexity",
        score="sum",
        decision="argmax",
        null=None,
        choices=1,
    )
    _, record, samples = recorded(ppl, tmp_path / "ppl-out")
    assert {each["metric_config"]["max_score"] for each in record["evaluation_results"]} == {
        "Infinity"
    }
    assert not any(sample["evaluation"]["is_correct"] for sample in samples)
    plain = {"null": None, "decision": "argmax", "outside": "keep"}
    for metric, score, unit, low, high, less in (
        ("bpb", "byte_mean", "bits/byte", 0, "Infinity", True),
        ("logprob", "sum", "nats", "-Infinity", 0, False),
        ("margin", "sum", "margin", -1, 1, False),
    ):
        run = quiz(questions(4), tmp_path / metric, metric=metric, score=score, **plain)
        _, record, _ = recorded(run, tmp_path / f"{metric}-out")
        config = record["evaluation_results"][0]["metric_config"]
        assert (config["metric_unit"], config["min_score"], config["max_score"]) == (
            unit,
            low,
            high,
        )
        assert config["lower_is_better"] is less
    file, _, _ = recorded(hostile, tmp_path / "hostile-out", protocols=[*hostile.protocols][::10])
    assert len(file.relative_to(tmp_path / "hostile-out").parts) == 5


told_texts = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=10)


@settings(max_examples=4)
@given(
    st.lists(
        st.tuples(told_texts, st.lists(told_texts, min_size=2, max_size=3, unique=True)),
        min_size=2,
        max_size=6,
    ),
    told_texts,
)
def test_any_texts_are_valid(rows: list[tuple[str, list[str]]], name: str) -> None:
    items = [
        Item(str(number), question, tuple(choices), (1,))
        for number, (question, choices) in enumerate(rows)
    ]
    with tempfile.TemporaryDirectory() as folder:
        recorded(quiz(items, Path(folder, "run"), name=name), Path(folder, "out"))


@given(st.text(), st.text())
def test_a_record_is_three_folders_deep_whatever_its_names(collection: str, model: str) -> None:
    parts = record_folder(collection, model)
    assert len(parts) == 3
    assert "data" not in parts
    assert all(
        re.fullmatch(r'[^<>:"/\\|?*\x00-\x1f]*[^<>:"/\\|?*\x00-\x1f. ]', part) for part in parts
    )


def test_names_of_the_hub_stay_what_they_are_and_boards_are_of_benchmarks() -> None:
    assert record_folder("cais/mmlu:all", "meta-llama/Llama-3.1-8B") == (
        "cais_mmlu_all",
        "meta-llama",
        "Llama-3.1-8B",
    )
    assert record_uuid("a") == record_uuid("a") != record_uuid("b")
    assert BOARDS.keys() <= benchmarks().keys()


# Results for the Hub, read back with its own library's parser


def entries(out: Path) -> dict[str, Any]:
    """What the Hub's library reads, by the path of the file."""
    yaml = pytest.importorskip("yaml")
    hub = pytest.importorskip("huggingface_hub")
    read = {}
    for file in sorted(out.rglob("*.yaml")):
        (read[str(file.relative_to(out))],) = hub.parse_eval_result_entries(
            yaml.safe_load(file.read_text())
        )
    return read


def called(run: Run, dataset: str, source: str = "", model: str = "fake:hash", **about: Any) -> Run:
    """The same run on data of that name."""
    manifest = read_manifest(run.folder)
    changed = replace(manifest.dataset, name=dataset, source=source)
    write_manifest(
        run.folder,
        replace(manifest, dataset=changed, model=replace(manifest.model, name=model), **about),
    )
    return choicewise.open_run(run.folder)


def test_a_file_per_score_that_the_hub_reads(tmp_path: Path) -> None:
    run = called(
        quiz(questions(8), tmp_path / "run"),
        "arc-easy",
        "allenai/ai2_arc:ARC-Easy@0123abc",
        "isles/merrow",
    )
    choicewise.export(
        run, "eval-results", tmp_path / "out", url="https://example.org/page", organization="isles"
    )
    read = entries(tmp_path / "out")
    rows = {row.identity.protocol: row for row in run.rows()}
    assert [*read] == sorted(
        f"isles-merrow/.eval_results/arc-easy_compat-lm-eval-{each}.yaml"
        for each in ("acc", "acc_bytes", "acc_mutual_info", "acc_norm", "exact_match")
    )
    entry = read["isles-merrow/.eval_results/arc-easy_compat-lm-eval-acc_norm.yaml"]
    row = rows["compat/lm-eval:acc_norm"]
    assert (entry.dataset_id, entry.task_id, entry.dataset_revision) == (
        "allenai/ai2_arc",
        "default",
        "0123abc",
    )
    assert entry.value == pytest.approx(100 * row.value, abs=1e-4)
    assert (entry.source_url, entry.source_org) == ("https://example.org/page", "isles")
    assert entry.notes.startswith(
        f"compat/lm-eval:acc_norm {row.identity.id} {row.identity.i} {row.identity.t}; acc in %; 95 % interval "
    )
    assert "8 items" in entry.notes
    assert "local copy" not in entry.notes


def test_a_local_copy_of_a_benchmark_has_its_repository_and_no_commit(tmp_path: Path) -> None:
    run = called(quiz(questions(4), tmp_path / "run"), "mmlu-pro")
    filled = choicewise.export(
        run, "eval-results", tmp_path / "out", protocols=["compat/lm-eval:acc"]
    )
    (entry,) = entries(tmp_path / "out").values()
    assert (entry.dataset_id, entry.task_id) == (benchmarks()["mmlu-pro"].repository, "mmlu_pro")
    assert (entry.dataset_revision, entry.source_url) == (None, None)
    assert f"not compared with {entry.dataset_id}" in entry.notes
    (note,) = filled.notes
    assert "compare the item counts" in note


def test_a_part_of_a_benchmark_and_data_of_no_repository_are_left_out_with_the_reason(
    tmp_path: Path,
) -> None:
    run = called(quiz(questions(4), tmp_path / "run"), "sciq")
    part = called(run, "sciq", selection=replace(read_manifest(run.folder).selection, limit=4))
    with pytest.raises(UsageError, match="part of sciq"):
        choicewise.export(part, "eval-results", tmp_path / "out")
    with pytest.raises(UsageError, match="no repository .* quiz"):
        choicewise.export(called(part, "quiz"), "eval-results", tmp_path / "out")


def test_a_board_of_one_subject_has_its_number_and_odd_names_stay_texts(tmp_path: Path) -> None:
    items = [
        replace(item, subject=("main", "diamond")[number % 2])
        for number, item in enumerate(questions(9))
    ]
    name, url = (
        'a: "b" # c\u2028- d\x1b[31m 😀\x7f',
        'https://example.org/?a="b"\n  notes: forged\u0085😀',
    )
    run = called(quiz(items, tmp_path / "run"), "gpqa", model=name)
    choicewise.export(
        run, "eval-results", tmp_path / "out", protocols=["compat/lm-eval:acc"], url=url
    )
    (entry,) = entries(tmp_path / "out").values()
    (row,) = [
        row
        for row in run.rows("subjects")
        if row.identity.subject == "diamond" and row.identity.protocol == "compat/lm-eval:acc"
    ]
    assert (entry.task_id, entry.value) == ("diamond", pytest.approx(100 * row.value, abs=1e-4))
    assert entry.source_url == url
    assert "forged" not in entry.notes
