"""Our export read by the code of the harness, and by the library that it reads its files with on the Hub."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from datasets import load_dataset
from lm_eval.api.metrics import mean, mean_stderr
from lm_eval.utils import (
    get_file_datetime,
    get_file_task_name,
    get_latest_filename,
    get_results_filenames,
    get_sample_results_filenames,
    handle_non_serializable,
    hash_string,
    make_table,
    sanitize_model_name,
)

import choicewise
from choicewise.bundled import BENCHMARK, MODELS
from choicewise.results.run import Run

PROTOCOLS = ["mmlu/harness-v0.4", "mmlu/cloze", "mmlu/helm", "mmlu/original"]
"""Letters, twenty scores of whole answers, generated letters, and a macro mean."""


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    out = tmp_path_factory.mktemp("runs") / "run"
    return choicewise.evaluate(model=str(MODELS[0]), data=BENCHMARK, protocols=PROTOCOLS, out=out, limit=6)


@pytest.fixture(scope="module")
def out(run: Run, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("exports") / "out"
    choicewise.export(run, "harness", folder)
    return folder


@pytest.fixture(scope="module")
def files(out: Path) -> list[str]:
    return [str(file) for file in out.rglob("*") if file.is_file()]


@pytest.fixture(scope="module")
def results(files: list[str]) -> dict[str, Any]:
    return dict(json.loads(Path(get_latest_filename(get_results_filenames(files))).read_text(encoding="utf-8")))


def samples(files: list[str]) -> dict[str, list[dict[str, Any]]]:
    named = {get_file_task_name(Path(file).name): Path(file) for file in get_sample_results_filenames(files)}
    return {name: [json.loads(line) for line in file.open(encoding="utf-8")] for name, file in named.items()}


def test_the_harness_prints_our_numbers(run: Run, results: dict[str, Any]) -> None:
    shown = make_table(results)
    rows = {row.protocol: row for row in run.rows()}
    for metric, score in {"acc": "sum", "acc_norm": "char_mean_bare", "acc_bytes": "byte_mean_bare"}.items():
        row = rows[f"mmlu/cloze:{score}"]
        assert re.search(rf"\|{metric} +\|↑ +\|{row.value:.4f}\|± +\|{row.se:.4f}\|", shown)
    assert "merrowick@mmlu-harness-v0.4" in make_table(results, "groups")
    assert sum("acc,none" in entry for entry in results["results"].values()) == 2 * 8


def test_the_harness_finds_our_files_by_their_names(run: Run, files: list[str], results: dict[str, Any]) -> None:
    assert {get_file_task_name(Path(file).name) for file in get_sample_results_filenames(files)} == {
        *results["configs"]
    }
    (date,) = {get_file_datetime(Path(file).name).removesuffix(".json") for file in files if "_20" in file}
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d-\d\d-\d\d\.\d{6}", date)
    (folder,) = {Path(file).parent.name for file in get_results_filenames(files)}
    assert folder == sanitize_model_name(run.manifest.model.name)


def test_means_errors_and_hashes_are_those_of_the_harness(files: list[str], results: dict[str, Any]) -> None:
    for task, lines in samples(files).items():
        hashes = ""
        for line in lines:
            document = json.dumps(line["doc"], indent=2, default=handle_non_serializable, ensure_ascii=False)
            told = (line["doc_hash"], line["prompt_hash"], line["target_hash"])
            hashed = (document, line["arguments"]["gen_args_0"]["arg_0"], line["target"])
            assert told == tuple(map(hash_string, hashed))
            hashes += "".join(told)
        assert results["task_hashes"][task] == hash_string(hashes)
        entry = results["results"][task]
        for metric in lines[0]["metrics"]:
            credits = [line[metric] for line in lines if metric in line]
            assert entry[f"{metric},none"] == pytest.approx(mean(credits))
            assert entry[f"{metric}_stderr,none"] == pytest.approx(mean_stderr(credits))


def test_every_file_can_be_loaded_as_a_dataset(files: list[str], tmp_path: Path) -> None:
    for file in [*get_results_filenames(files), *get_sample_results_filenames(files)[::7]]:
        loaded = load_dataset("json", data_files=file, split="train", cache_dir=str(tmp_path))
        assert len(loaded) >= 1
