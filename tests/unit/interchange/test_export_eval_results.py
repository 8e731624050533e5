"""Scores for the Hub, read back with its own library's parser."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import choicewise
from choicewise.data.benchmarks import benchmarks
from choicewise.errors import UsageError
from choicewise.interchange.write.every_eval_ever import BOARDS
from choicewise.results.run import Run
from choicewise.store.folder import read_manifest, write_manifest
from tests.helpers.export_runs import questions, quiz


def entries(out: Path) -> dict[str, Any]:
    """What the Hub's library reads, by the path of the file."""
    yaml = pytest.importorskip("yaml")
    hub = pytest.importorskip("huggingface_hub")
    files = sorted(out.rglob("*.yaml"))
    read = {
        str(file.relative_to(out)): hub.parse_eval_result_entries(yaml.safe_load(file.read_text())) for file in files
    }
    assert all(len(each) == 1 for each in read.values())
    return {path: each[0] for path, each in read.items()}


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


def test_a_board_of_one_subject_has_its_number(tmp_path: Path) -> None:
    items = [replace(item, subject=("main", "diamond")[number % 2]) for number, item in enumerate(questions(9))]
    run = called(quiz(items, tmp_path / "run"), "gpqa")
    choicewise.export(run, "eval-results", tmp_path / "out", protocols=["compat/lm-eval:acc"])
    (entry,) = entries(tmp_path / "out").values()
    (row,) = [row for row in run.rows("subjects") if row.subject == "diamond" and row.protocol == "compat/lm-eval:acc"]
    assert (entry.task_id, entry.value) == ("diamond", pytest.approx(100 * row.value, abs=1e-4))


def test_odd_names_stay_texts(tmp_path: Path) -> None:
    name = 'a: "b" # c\u2028- d\x1b[31m 😀\x7f'
    run = called(quiz(questions(4), tmp_path / "run"), "sciq", model=name)
    url = 'https://example.org/?a="b"\n  notes: forged\u0085😀'
    choicewise.export(run, "eval-results", tmp_path / "out", protocols=["compat/lm-eval:acc"], url=url)
    (entry,) = entries(tmp_path / "out").values()
    assert entry.source_url == url
    assert "forged" not in entry.notes


def test_boards_are_of_benchmarks() -> None:
    assert BOARDS.keys() <= benchmarks().keys()
