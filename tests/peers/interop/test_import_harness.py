"""Samples and results as the released harness writes them, imported: its numbers, and those of our own run."""

import json
import math
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
from choicewise import Run, evaluate, import_log
from choicewise.bundled import BENCHMARK, MODELS
from choicewise.extensions.comparison.compare import comparisons
from choicewise.extensions.interop.harness_tasks.as_protocols import load_harness_tasks

from ..harness_compared import NAMES, theirs, write_logs
from .test_harness_lm_requests import tasks
from .test_harness_tasks import MICRO, write_group

__all__ = ["tasks"]

ASKED = [
    "letters",
    "letters_5_shots",
    "texts",
    "texts_joined",
    "blanks",
    "last_word",
    "truths",
    "several",
    "answers",
]

MORE = {
    "truths": """
doc_to_text: "Question: {{question}}\\nAnswer:"
doc_to_choice: "{{mc2_targets.choices}}"
doc_to_target: 0
process_results: !function shares.shares
metric_list: [{metric: acc}]
""",
    "several": """
doc_to_text: "{{question}}"
doc_to_choice: choices
doc_to_target: right
metric_list: [{metric: acc}, {metric: acc_norm}, {metric: exact_match}]
""",
}

SHARES = """
import numpy as np

def shares(doc, results):
    sums = np.array([value for value, _ in results])
    probabilities = np.exp(sums) / np.exp(sums).sum()
    return {"acc": sum(p for p, label in zip(probabilities, doc["mc2_targets"]["labels"]) if label == 1)}
"""


@pytest.fixture(scope="module", params=NAMES[:2])
def logged(
    request: pytest.FixtureRequest, tasks: Path, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """What the harness writes of one model on all of ``ASKED``."""
    rows = [
        json.loads(line) for line in (tasks / "test.jsonl").read_text(encoding="utf-8").splitlines()
    ]
    for number, row in enumerate(rows):
        row["mc2_targets"] = {"choices": row["choices"], "labels": [1, number % 2, 0, 0]}
        row["right"] = sorted({number % 4, 2})
    (tasks / "more.jsonl").write_text(
        "".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8"
    )
    (tasks / "shares.py").write_text(SHARES, encoding="utf-8")
    files = json.dumps({"data_files": {"test": str(tasks / "more.jsonl")}})
    for name, body in MORE.items():
        head = f"task: {name}\ndataset_path: json\ndataset_kwargs: {files}\ntest_split: test\n"
        (tasks / f"{name}.yaml").write_text(
            f"{head}output_type: multiple_choice\n{body}", encoding="utf-8"
        )
    out = tmp_path_factory.mktemp("out")
    write_logs(theirs(request.param), ASKED, tasks, out, bootstrap_iters=100)
    return out


def numbers(run: Run) -> dict[str, Any]:
    return {row["protocol"].rpartition(":")[2]: row for row in run.report().to_pylist()}


@pytest.mark.filterwarnings("ignore:left out")
def test_the_harness_s_numbers_follow_from_its_logs_item_by_item(
    logged: Path, tmp_path: Path
) -> None:
    runs = {run.manifest.dataset.name: run for run in import_log(logged, tmp_path / "runs")}
    assert runs.keys() == set(ASKED) - {"answers"}
    totals = json.loads(next(logged.rglob("results_*.json")).read_text(encoding="utf-8"))["results"]
    scores = {
        "acc": "sum",
        "acc_bytes": "byte_mean_bare",
        "acc_mutual_info": "pmi",
        "exact_match": "greedy",
    }
    own = {"truths": {"acc": "mc2"}, "last_word": {"acc": "greedy", "perplexity": "perplexity"}}
    for task, run in runs.items():
        imported = run.manifest.imported
        assert imported is not None
        wanted = own.get(task, scores | {"acc_norm": imported.settings.get("acc_norm is", "")})
        rows = numbers(run)
        compared = [metric for metric in wanted if f"{metric},none" in totals[task]]
        assert compared
        for metric in compared:
            row = rows[wanted[metric]]
            assert row["value"] == pytest.approx(totals[task][f"{metric},none"], rel=1e-6), (
                task,
                metric,
            )
            assert (row["n"], row["missing"]) == (7, 0)
            error = totals[task].get(f"{metric}_stderr,none", "N/A")
            if metric != "perplexity" and error != "N/A" and not math.isnan(row["se"]):
                assert row["se"] == pytest.approx(error, abs=1e-9), (task, metric)
    for one, other in zip(
        runs.values(), import_log(logged, tmp_path / "more", model="another"), strict=True
    ):
        assert one.manifest.protocols == other.manifest.protocols
        assert one.report().column("i").equals(other.report().column("i"))


# A group, beside our own run of it with the same model

FOLDER = sorted(MODELS)[0]


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The task files, and what the harness writes of a model on a group of them with two shots."""
    tasks = write_group(tmp_path_factory.mktemp("tasks") / "towns", MICRO)
    out = tmp_path_factory.mktemp("out")
    write_logs(theirs(FOLDER.name), ["towns"], tasks, out, num_fewshot=2, bootstrap_iters=2)
    return tasks, out


@pytest.fixture(scope="module")
def runs(folders: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> tuple[Run, Run]:
    """The imported run and our own."""
    tasks, out = folders
    (logged,) = import_log(out, tmp_path_factory.mktemp("logged") / "run")
    (task,) = load_harness_tasks("lm-eval:towns@shots=2", include_path=[tasks])
    out = tmp_path_factory.mktemp("own") / "run"
    return logged, evaluate(model=str(FOLDER), data=task.data, protocols=task.protocols, out=out)


def test_the_group_has_the_harness_s_own_numbers(
    runs: tuple[Run, Run], folders: tuple[Path, Path]
) -> None:
    (path,) = folders[1].rglob("results_*.json")
    group = json.loads(path.read_text(encoding="utf-8"))["groups"]["towns"]
    numbers = {row["protocol"]: row["value"] for run in runs for row in run.report().to_pylist()}
    assert numbers["towns:sum"] == pytest.approx(group["acc,none"])
    assert numbers["towns:char_mean_bare@aggregation=macro"] == pytest.approx(
        group["acc_norm,none"]
    )
    ours = {
        name.rpartition(":")[2].partition("@")[0]: value
        for name, value in numbers.items()
        if "lm-eval" in name
    }
    assert ours["acc"] == pytest.approx(group["acc,none"])
    assert ours["acc_norm"] == pytest.approx(group["acc_norm,none"])


def test_the_sums_of_every_choice_agree_and_they_are_comparable(runs: tuple[Run, Run]) -> None:
    logged, own = runs
    name = next(
        name for name, each in own.protocols.items() if each.score == "sum" and each.metric == "acc"
    )
    (compared,) = comparisons(logged, own, ["towns:sum", name])
    assert compared.agree.i
    assert compared.verdict == "comparable"
    first, second = logged.measurements["towns:sum"], own.measurements[name]
    assert [*first.evidence.ids] == [*second.evidence.ids]
    assert first.scores.tolist() == pytest.approx(second.scores.tolist(), abs=1e-4)
    (other,) = comparisons(logged, own, ["towns:char_mean_bare", name])
    assert other.verdict == "not comparable"


PROTOCOLS = ["mmlu/harness-v0.4", "mmlu/cloze", "mmlu/helm", "mmlu/original"]
"""Letters, twenty scores of whole answers, generated letters, and a macro mean."""


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    out = tmp_path_factory.mktemp("runs") / "run"
    return choicewise.evaluate(
        model=str(MODELS[0]), data=BENCHMARK, protocols=PROTOCOLS, out=out, limit=6
    )


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
    return dict(
        json.loads(
            Path(get_latest_filename(get_results_filenames(files))).read_text(encoding="utf-8")
        )
    )


def samples(files: list[str]) -> dict[str, list[dict[str, Any]]]:
    named = {
        get_file_task_name(Path(file).name): Path(file)
        for file in get_sample_results_filenames(files)
    }
    return {
        name: [json.loads(line) for line in file.open(encoding="utf-8")]
        for name, file in named.items()
    }


def test_the_harness_prints_our_numbers(run: Run, results: dict[str, Any]) -> None:
    shown = make_table(results)
    rows = {row.identity.protocol: row for row in run.rows()}
    for metric, score in {
        "acc": "sum",
        "acc_norm": "char_mean_bare",
        "acc_bytes": "byte_mean_bare",
    }.items():
        row = rows[f"mmlu/cloze:{score}"]
        assert re.search(rf"\|{metric} +\|↑ +\|{row.value:.4f}\|± +\|{row.se:.4f}\|", shown)
    assert "merrowick@mmlu-harness-v0.4" in make_table(results, "groups")
    assert sum("acc,none" in entry for entry in results["results"].values()) == 2 * 8


def test_the_harness_finds_our_files_by_their_names(
    run: Run, files: list[str], results: dict[str, Any]
) -> None:
    assert {
        get_file_task_name(Path(file).name) for file in get_sample_results_filenames(files)
    } == {*results["configs"]}
    (date,) = {
        get_file_datetime(Path(file).name).removesuffix(".json") for file in files if "_20" in file
    }
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d-\d\d-\d\d\.\d{6}", date)
    (folder,) = {Path(file).parent.name for file in get_results_filenames(files)}
    assert folder == sanitize_model_name(run.manifest.model.name)


def test_means_errors_and_hashes_are_those_of_the_harness(
    files: list[str], results: dict[str, Any]
) -> None:
    for task, lines in samples(files).items():
        hashes = ""
        for line in lines:
            document = json.dumps(
                line["doc"], indent=2, default=handle_non_serializable, ensure_ascii=False
            )
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
        assert (
            len(load_dataset("json", data_files=file, split="train", cache_dir=str(tmp_path))) >= 1
        )
