"""Records of Every Eval Ever, valid under its schema, and results for the Hub, which its own library reads."""

import hashlib
import json
import re
import tempfile
from dataclasses import fields, replace
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import choicewise
from choicewise.data.benchmarks import benchmarks
from choicewise.data.dataset import Dataset
from choicewise.data.items import Item
from choicewise.errors import UsageError
from choicewise.interchange.write.every_eval_ever import BOARDS, record_folder, record_uuid
from choicewise.protocols.catalogue import resolve
from choicewise.protocols.protocol import Protocol, parse_signature
from choicewise.results.run import Run
from choicewise.store.folder import read_manifest, write_manifest
from tests.helpers.export_runs import HARNESS, lines, questions, quiz, strict
from tests.paths import GOLDENS

SCHEMAS = GOLDENS / "every_eval_ever"


def validators() -> tuple[Any, Any]:
    """Of records and of samples, by the published schemas."""
    jsonschema = pytest.importorskip("jsonschema")
    names = ("eval.schema.json", "instance_level_eval.schema.json")
    record, sample = (jsonschema.Draft7Validator(json.loads((SCHEMAS / name).read_text())) for name in names)
    return record, sample


def exported(run: Run, out: Path, **about: Any) -> tuple[Path, dict[str, Any], list[dict[str, Any]]]:
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
    file, record, samples = exported(run, tmp_path / "out", url="https://example.org", organization="Isle Lab")
    assert file.parent == tmp_path / "out/data/quiz/local/fake_hash"
    assert UUID(file.stem).version == 4
    assert record["detailed_evaluation_results"]["file_path"] == f"data/quiz/local/fake_hash/{file.stem}_samples.jsonl"
    assert record["detailed_evaluation_results"]["total_rows"] == len(samples) == 5 * 8
    content = (file.parent / f"{file.stem}_samples.jsonl").read_bytes()
    assert record["detailed_evaluation_results"]["checksum"] == hashlib.sha256(content).hexdigest()
    assert record["source_metadata"]["source_organization_name"] == "Isle Lab"
    for result, row in zip(record["evaluation_results"], run.rows(), strict=True):
        assert result["score_details"]["score"] == row.value
        told = result["metric_config"]["metric_parameters"]
        assert parse_signature(told["choicewise.signature"]) == run.protocols[row.protocol]
        axes = {axis.name: getattr(run.protocols[row.protocol], axis.name) for axis in fields(Protocol)}
        assert {name: told[name] for name in axes} == axes
        uncertainty = result["score_details"]["uncertainty"]
        assert uncertainty["standard_error"]["value"] == row.se
        assert uncertainty["confidence_interval"]["lower"] == row.ci_low
        assert uncertainty["num_samples"] == row.n
    ids = [result["evaluation_result_id"] for result in record["evaluation_results"]]
    assert len({*ids}) == len(ids)
    assert {sample["evaluation_result_id"] for sample in samples} == {*ids}
    assert {sample["evaluation_id"] for sample in samples} == {record["evaluation_id"]}


def test_samples_have_the_texts_the_credit_and_the_hash(tmp_path: Path) -> None:
    run = quiz(questions(6), tmp_path / "run")
    _, _, samples = exported(run, tmp_path / "out", protocols=[f"{HARNESS}:acc"])
    scores = run.scores(f"{HARNESS}:acc").to_pylist()
    for number, sample in enumerate(samples):
        own = [each for each in scores if each["item"] == f"q{number}"]
        words = ("red", "very tall", "salty")
        assert sample["input"]["choices"] == [*words]
        assert sample["input"]["reference"] == [words[number % 3]]
        content = f"What is number {number}?{words[number % 3]}"
        assert sample["sample_hash"] == hashlib.sha256(content.encode()).hexdigest()
        assert sample["output"]["raw"] == [words[own[0]["prediction"]]]
        assert sample["evaluation"] == {"score": own[0]["credit"], "is_correct": own[0]["credit"] == 1}
        assert json.loads(sample["metadata"]["loglikelihoods"]) == [each["score"] for each in own]


def test_missing_items_have_no_line_and_are_counted_and_a_protocol_without_any_number_is_named(tmp_path: Path) -> None:
    items = [*questions(3), *(replace(item, id=f"{item.id}-four") for item in questions(2, choices=4))]
    run = quiz(items, tmp_path / "run", choices=3)
    _, record, samples = exported(run, tmp_path / "out", protocols=[f"{HARNESS}:acc"])
    details = record["evaluation_results"][0]["score_details"]["details"]
    assert (details["n"], details["missing"], details["complete"]) == ("3", "2", "true")
    assert re.fullmatch("2 items: .+", details["missing_reason_1"])
    assert [sample["sample_id"] for sample in samples] == ["q0", "q1", "q2"]
    filled = choicewise.export(quiz(items[3:], tmp_path / "none", choices=3), "every-eval-ever", tmp_path / "nothing")
    assert len(filled.notes) == 5
    assert all("no number to export" in note for note in filled.notes)
    assert strict(filled.files[0].read_text())["evaluation_results"] == []


def test_generated_answers_perplexities_and_harmful_texts_are_valid_too(hostile: Run, tmp_path: Path) -> None:
    data, recipes = Dataset("quiz", {"test": tuple(questions(4, 4))}), resolve("options/free-simple-evals")
    free = choicewise.evaluate(model="fake:oracle", data=data, protocols=recipes, out=tmp_path / "free")
    _, record, samples = exported(free, tmp_path / "free-out")
    assert record["evaluation_results"][0]["generation_config"]["generation_args"]["temperature"] == 0
    assert samples[0]["output"]["raw"][0]
    words = [Item(str(number), f"Say {number}", ("word",), (0,)) for number in range(3)]
    ppl = quiz(words, tmp_path / "ppl", metric="perplexity", score="sum", decision="argmax", null=None, choices=1)
    _, record, samples = exported(ppl, tmp_path / "ppl-out")
    assert {each["metric_config"]["max_score"] for each in record["evaluation_results"]} == {"Infinity"}
    assert not any(sample["evaluation"]["is_correct"] for sample in samples)
    file, _, _ = exported(hostile, tmp_path / "hostile-out", protocols=[*hostile.protocols][::10])
    assert len(file.relative_to(tmp_path / "hostile-out").parts) == 5


texts = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=10)


@settings(max_examples=4)
@given(st.lists(st.tuples(texts, st.lists(texts, min_size=2, max_size=3, unique=True)), min_size=2, max_size=6), texts)
def test_any_texts_are_valid(rows: list[tuple[str, list[str]]], name: str) -> None:
    items = [Item(str(number), question, tuple(choices), (1,)) for number, (question, choices) in enumerate(rows)]
    with tempfile.TemporaryDirectory() as folder:
        exported(quiz(items, Path(folder, "run"), name=name), Path(folder, "out"))


@given(st.text(), st.text())
def test_a_record_is_three_folders_deep_whatever_its_names(collection: str, model: str) -> None:
    parts = record_folder(collection, model)
    assert len(parts) == 3
    assert "data" not in parts
    assert all(re.fullmatch(r'[^<>:"/\\|?*\x00-\x1f]*[^<>:"/\\|?*\x00-\x1f. ]', part) for part in parts)


def test_names_of_the_hub_stay_what_they_are_and_boards_are_of_benchmarks() -> None:
    assert record_folder("cais/mmlu:all", "meta-llama/Llama-3.1-8B") == ("cais_mmlu_all", "meta-llama", "Llama-3.1-8B")
    assert record_uuid("a") == record_uuid("a") != record_uuid("b")
    assert BOARDS.keys() <= benchmarks().keys()


# Results for the Hub, read back with its own library's parser


def entries(out: Path) -> dict[str, Any]:
    """What the Hub's library reads, by the path of the file."""
    yaml = pytest.importorskip("yaml")
    hub = pytest.importorskip("huggingface_hub")
    read = {}
    for file in sorted(out.rglob("*.yaml")):
        (read[str(file.relative_to(out))],) = hub.parse_eval_result_entries(yaml.safe_load(file.read_text()))
    return read


def called(run: Run, dataset: str, source: str = "", model: str = "fake:hash", **about: Any) -> Run:
    """The same run on data of that name."""
    manifest = read_manifest(run.folder)
    changed = replace(manifest.dataset, name=dataset, source=source)
    write_manifest(run.folder, replace(manifest, dataset=changed, model=replace(manifest.model, name=model), **about))
    return choicewise.open_run(run.folder)


def test_a_file_per_score_that_the_hub_reads(tmp_path: Path) -> None:
    run = called(quiz(questions(8), tmp_path / "run"), "arc-easy", "allenai/ai2_arc:ARC-Easy@0123abc", "isles/merrow")
    choicewise.export(run, "eval-results", tmp_path / "out", url="https://example.org/page", organization="isles")
    read = entries(tmp_path / "out")
    rows = {row.protocol: row for row in run.rows()}
    assert [*read] == sorted(
        f"isles-merrow/.eval_results/arc-easy_compat-lm-eval-{each}.yaml"
        for each in ("acc", "acc_bytes", "acc_mutual_info", "acc_norm", "exact_match")
    )
    entry = read["isles-merrow/.eval_results/arc-easy_compat-lm-eval-acc_norm.yaml"]
    row = rows["compat/lm-eval:acc_norm"]
    assert (entry.dataset_id, entry.task_id, entry.dataset_revision) == ("allenai/ai2_arc", "default", "0123abc")
    assert entry.value == pytest.approx(100 * row.value, abs=1e-4)
    assert (entry.source_url, entry.source_org) == ("https://example.org/page", "isles")
    assert entry.notes.startswith(f"compat/lm-eval:acc_norm {row.id} {row.i} {row.t}; acc in %; 95 % interval ")
    assert "8 items" in entry.notes
    assert "local copy" not in entry.notes


def test_a_local_copy_of_a_benchmark_has_its_repository_and_no_commit(tmp_path: Path) -> None:
    run = called(quiz(questions(4), tmp_path / "run"), "mmlu-pro")
    filled = choicewise.export(run, "eval-results", tmp_path / "out", protocols=["compat/lm-eval:acc"])
    (entry,) = entries(tmp_path / "out").values()
    assert (entry.dataset_id, entry.task_id) == (benchmarks()["mmlu-pro"].repository, "mmlu_pro")
    assert (entry.dataset_revision, entry.source_url) == (None, None)
    assert f"a local copy, which was not compared with {entry.dataset_id}" in entry.notes
    (note,) = filled.notes
    assert "compare the number of items before it is published" in note


def test_a_part_of_a_benchmark_and_data_of_no_repository_are_left_out_with_the_reason(tmp_path: Path) -> None:
    run = called(quiz(questions(4), tmp_path / "run"), "sciq")
    manifest = read_manifest(run.folder)
    part = called(run, "sciq", selection=replace(manifest.selection, limit=4))
    with pytest.raises(UsageError, match="a part of sciq alone"):
        choicewise.export(part, "eval-results", tmp_path / "out")
    with pytest.raises(UsageError, match="quiz is on no repository of the Hub that is known"):
        choicewise.export(called(part, "quiz"), "eval-results", tmp_path / "out")


def test_a_board_of_one_subject_has_its_number_and_odd_names_stay_texts(tmp_path: Path) -> None:
    items = [replace(item, subject=("main", "diamond")[number % 2]) for number, item in enumerate(questions(9))]
    name, url = 'a: "b" # c\u2028- d\x1b[31m 😀\x7f', 'https://example.org/?a="b"\n  notes: forged\u0085😀'
    run = called(quiz(items, tmp_path / "run"), "gpqa", model=name)
    choicewise.export(run, "eval-results", tmp_path / "out", protocols=["compat/lm-eval:acc"], url=url)
    (entry,) = entries(tmp_path / "out").values()
    (row,) = [row for row in run.rows("subjects") if row.subject == "diamond" and row.protocol == "compat/lm-eval:acc"]
    assert (entry.task_id, entry.value) == ("diamond", pytest.approx(100 * row.value, abs=1e-4))
    assert entry.source_url == url
    assert "forged" not in entry.notes
