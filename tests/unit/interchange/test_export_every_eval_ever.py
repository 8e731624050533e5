"""Exports of Every Eval Ever: valid under its schema, with deterministic ids and the signature in the parameters."""

from __future__ import annotations

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
from choicewise.data.items import Item
from choicewise.interchange.write.every_eval_ever import record_folder, record_uuid
from choicewise.protocols.catalogue import resolve
from choicewise.protocols.protocol import Protocol, parse_signature
from choicewise.results.run import Run
from tests.helpers.export_runs import HARNESS, lines, questions, quiz, strict
from tests.helpers.page_runs import write_hostile_run
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
    rows = {row.protocol: row for row in run.rows()}
    assert file.parent == tmp_path / "out/data/quiz/local/fake_hash"
    assert UUID(file.stem).version == 4
    assert record["detailed_evaluation_results"]["file_path"] == f"data/quiz/local/fake_hash/{file.stem}_samples.jsonl"
    assert record["detailed_evaluation_results"]["total_rows"] == len(samples) == 5 * 8
    content = (file.parent / f"{file.stem}_samples.jsonl").read_bytes()
    assert record["detailed_evaluation_results"]["checksum"] == hashlib.sha256(content).hexdigest()
    assert record["source_metadata"]["source_organization_name"] == "Isle Lab"
    assert [result["score_details"]["score"] for result in record["evaluation_results"]] == [
        row.value for row in rows.values()
    ]
    for result, row in zip(record["evaluation_results"], rows.values(), strict=True):
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
        assert (
            sample["sample_hash"] == hashlib.sha256(f"What is number {number}?{words[number % 3]}".encode()).hexdigest()
        )
        assert sample["output"]["raw"] == [words[own[0]["prediction"]]]
        assert sample["evaluation"] == {"score": own[0]["credit"], "is_correct": own[0]["credit"] == 1}
        assert json.loads(sample["metadata"]["loglikelihoods"]) == [each["score"] for each in own]


def test_missing_items_have_no_line_and_are_counted(tmp_path: Path) -> None:
    items = [*questions(3), *(replace(item, id=f"{item.id}-four") for item in questions(2, choices=4))]
    run = quiz(items, tmp_path / "run", choices=3)
    _, record, samples = exported(run, tmp_path / "out", protocols=[f"{HARNESS}:acc"])
    details = record["evaluation_results"][0]["score_details"]["details"]
    assert (details["n"], details["missing"], details["complete"]) == ("3", "2", "true")
    assert re.fullmatch("2 items: .+", details["missing_reason_1"])
    assert [sample["sample_id"] for sample in samples] == ["q0", "q1", "q2"]


def test_a_protocol_without_any_number_is_left_out_and_named(tmp_path: Path) -> None:
    run = quiz(questions(2, choices=4), tmp_path / "run", choices=3)
    filled = choicewise.export(run, "every-eval-ever", tmp_path / "out")
    assert len(filled.notes) == 5
    assert all("no number to export" in note for note in filled.notes)
    assert strict(filled.files[0].read_text())["evaluation_results"] == []


def test_generated_answers_and_perplexities_are_valid_too(tmp_path: Path) -> None:
    free = choicewise.evaluate(
        model="fake:oracle",
        data=quiz_file(tmp_path / "free.jsonl"),
        protocols=resolve("options/free-simple-evals"),
        out=tmp_path / "free",
    )
    _, record, samples = exported(free, tmp_path / "free-out")
    assert record["evaluation_results"][0]["generation_config"]["generation_args"]["temperature"] == 0
    assert samples[0]["output"]["raw"][0]
    words = [Item(str(number), f"Say {number}", ("word",), (0,)) for number in range(3)]
    ppl = quiz(words, tmp_path / "ppl", metric="perplexity", score="sum", decision="argmax", null=None, choices=1)
    _, record, samples = exported(ppl, tmp_path / "ppl-out")
    assert {each["metric_config"]["max_score"] for each in record["evaluation_results"]} == {"Infinity"}
    assert not any(sample["evaluation"]["is_correct"] for sample in samples)


def quiz_file(file: Path) -> Path:
    rows = [{"question": item.question, "choices": item.choices, "answer": item.gold[0]} for item in questions(4, 4)]
    file.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return file


@pytest.mark.costly("runs are written and read again")
def test_texts_that_could_do_harm_are_valid(tmp_path: Path) -> None:
    run = choicewise.open_run(write_hostile_run(tmp_path / "run"))
    file, _, _ = exported(run, tmp_path / "out")
    assert len(file.relative_to(tmp_path / "out").parts) == 5


texts = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=10)


@pytest.mark.costly("runs are written and read again")
@settings(max_examples=8)
@given(st.lists(st.tuples(texts, st.lists(texts, min_size=2, max_size=3, unique=True)), min_size=1, max_size=3), texts)
def test_any_texts_are_valid(rows: list[tuple[str, list[str]]], name: str) -> None:
    items = [Item(str(number), question, tuple(choices), (1,)) for number, (question, choices) in enumerate(rows)]
    with tempfile.TemporaryDirectory() as folder:
        exported(quiz(items, Path(folder, "run"), name=name), Path(folder, "out"))


@given(st.text(), st.text())
def test_a_record_is_three_folders_deep_whatever_its_names(collection: str, model: str) -> None:
    parts = record_folder(collection, model)
    assert len(parts) == 3
    for part in parts:
        assert part
        assert not re.search(r'[<>:"/\\|?*\x00-\x1f]', part)
        assert not part.endswith((".", " "))
        assert part != "data"


def test_names_of_the_hub_stay_what_they_are() -> None:
    assert record_folder("cais/mmlu:all", "meta-llama/Llama-3.1-8B") == ("cais_mmlu_all", "meta-llama", "Llama-3.1-8B")
    assert record_uuid("a") == record_uuid("a") != record_uuid("b")
