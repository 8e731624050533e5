"""Logs for Inspect: its own library reads them, its data frames hold our numbers, and two exports are alike."""

from __future__ import annotations

import json
import math
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

import choicewise
from choicewise.interchange.export import export
from choicewise.protocols.protocol import parse_signature
from choicewise.results.run import Run
from choicewise.store.folder import read_manifest, write_manifest
from tests.helpers.mmlu_data import write_mmlu

pytest.importorskip("inspect_ai")

PROTOCOLS = ["mmlu/original", "mmlu/cloze:sum", "mmlu/helm"]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    place = tmp_path_factory.mktemp("inspect")
    return choicewise.evaluate(
        model="fake:hash", data=write_mmlu(place / "tides"), protocols=PROTOCOLS, out=place / "run"
    )


@pytest.fixture(scope="module")
def logs(run: Run, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("logs") / "logs"
    export(run, "inspect", out)
    return out


def test_every_protocol_is_a_log_with_its_number(run: Run, logs: Path) -> None:
    from inspect_ai.log import list_eval_logs, read_eval_log

    read = [read_eval_log(info, header_only=True) for info in list_eval_logs(str(logs))]
    rows = {row.protocol: row for row in run.rows()}
    assert {log.eval.task_display_name for log in read} == {*rows}
    for log in read:
        assert log.eval.metadata is not None
        row = rows[log.eval.metadata["protocol"]]
        assert log.status == "success"
        assert log.results is not None
        (score,) = log.results.scores
        assert score.metrics["accuracy"].value == row.value
        assert score.metrics["stderr"].value == pytest.approx(row.se)
        assert score.metrics["ci_high"].value == row.ci_high
        assert score.scored_samples == row.n
        assert parse_signature(log.eval.metadata["signature"]) == run.protocols[row.protocol]
        assert log.eval.metadata["P"] == row.id
        assert log.eval.task_args["shots"] == run.protocols[row.protocol].shots
        assert (log.eval.model, log.eval.dataset.name) == ("fake:hash", "tides")


def test_a_sample_holds_the_prompt_the_choice_and_the_log_likelihoods(run: Run, logs: Path) -> None:
    from inspect_ai.log import read_eval_log

    (path,) = logs.glob("*cloze*.eval")
    log = read_eval_log(str(path))
    told = {(row["item"], row["choice"]): row for row in run.scores("mmlu/cloze:sum").to_pylist()}
    requests = {row["item"]: row for row in run.tables.requests.to_pylist() if row["prompt"] == digest(run)}
    assert log.samples
    assert len(log.samples) == 12
    for sample in log.samples:
        request = requests[str(sample.id)]
        assert [message.role for message in sample.messages] == ["user", "assistant"]
        assert sample.messages[0].text == request["context"]
        own = [told[sample.id, place] for place in range(4)]
        chosen = own[0]["prediction"]
        assert sample.output.completion == request["continuations"][chosen]
        assert sample.choices == request["options"]
        assert sample.target == "ABCD"[request["gold"][0]]
        assert sample.scores is not None
        score = sample.scores["choicewise"]
        assert (score.answer, score.value) == ("ABCD"[chosen], own[0]["credit"])
        assert sample.metadata["loglikelihoods"] == [row["score"] for row in own]
        assert sample.metadata["scores"] == sample.metadata["loglikelihoods"]
        assert all(count > 0 for count in sample.metadata["tokens"])
    assert sum(sample.scores["choicewise"].as_float() for sample in log.samples if sample.scores) / 12 == pytest.approx(
        run.measurements["mmlu/cloze:sum"].overall
    )


def digest(run: Run) -> str:
    return run.protocols["mmlu/cloze:sum"].prompt_digest


def test_data_frames_hold_the_numbers(run: Run, logs: Path) -> None:
    from inspect_ai.analysis import evals_df, samples_df

    evals = evals_df(str(logs)).set_index("task_name")
    for row in run.rows():
        assert evals.loc[row.protocol.replace("/", ":"), "score_headline_value"] == row.value
        assert evals.loc[row.protocol.replace("/", ":"), "task_arg_score"] == run.protocols[row.protocol].score
    samples = samples_df(str(logs))
    assert len(samples) == 12 * len(PROTOCOLS)
    assert samples["score_choicewise"].astype(float).mean() == pytest.approx(
        sum(row.value for row in run.rows()) / len(PROTOCOLS)
    )


def test_generated_text_is_the_output(run: Run, logs: Path) -> None:
    from inspect_ai.log import read_eval_log

    (path,) = logs.glob("*helm*.eval")
    log = read_eval_log(str(path))
    assert log.samples
    texts = {str(sample.id): sample.output.completion for sample in log.samples}
    tables = run.tables
    helm = run.protocols["mmlu/helm"].prompt_digest
    observed = dict(zip(tables.observations["key"].to_pylist(), tables.observations["text"].to_pylist(), strict=True))
    own = {row["item"]: observed[row["key"]] for row in tables.spans.to_pylist() if row["prompt"] == helm}
    assert texts == own


def test_a_second_export_has_the_same_logs_and_ids(run: Run, logs: Path, tmp_path: Path) -> None:
    from inspect_ai.log import read_eval_log

    export(run, "inspect", tmp_path / "logs")
    assert [file.name for file in sorted(logs.glob("*.eval"))] == [
        file.name for file in sorted((tmp_path / "logs").glob("*.eval"))
    ]
    for file in logs.glob("*.eval"):
        pair = [read_eval_log(str(folder / file.name)) for folder in (logs, tmp_path / "logs")]
        one, other = (json.loads(log.model_dump_json(exclude={"location"})) for log in pair)
        for log in (one, other):
            for sample in log["samples"]:
                sample["output"].pop("time", None)
        assert one == other


def test_what_is_missing_is_not_scored_and_a_run_that_is_not_complete_is_no_success(run: Run, tmp_path: Path) -> None:
    from inspect_ai.log import list_eval_logs, read_eval_log

    folder = tmp_path / "run"
    shutil.copytree(run.folder, folder)
    manifest = read_manifest(folder)
    write_manifest(folder, replace(manifest, complete=False, blocks=manifest.blocks[:1]))
    export(folder, "inspect", tmp_path / "logs", incomplete=True)
    for info in list_eval_logs(str(tmp_path / "logs")):
        log = read_eval_log(info)
        assert log.status == "cancelled"
        assert log.results is not None
        assert (log.results.total_samples, log.results.completed_samples) == (12, 6)
        assert log.samples
        assert len(log.samples) == 6


def test_an_item_without_a_number_says_why(tmp_path: Path) -> None:
    from inspect_ai.log import list_eval_logs, read_eval_log

    data = tmp_path / "quiz.jsonl"
    lines = [
        {"question": text, "choices": [*letters], "answer": 1} for text, letters in (("one", "abcd"), ("two", "abc"))
    ]
    data.write_text("".join(f"{json.dumps(line)}\n" for line in lines), encoding="utf-8")
    made = choicewise.evaluate(
        model="fake:hash", data=data, protocols=["mmlu/cloze:sum"], out=tmp_path / "run", skip_bad_items=True
    )
    assert made.rows()[0].missing == 1
    export(made, "inspect", tmp_path / "logs")
    (info,) = list_eval_logs(str(tmp_path / "logs"))
    log = read_eval_log(info)
    assert log.samples
    scores = [sample.scores["choicewise"] for sample in log.samples if sample.scores]
    assert math.isnan(scores[1].as_float())
    assert scores[1].explanation
    assert log.results is not None
    assert (log.results.scores[0].scored_samples, log.results.scores[0].unscored_samples) == (1, 1)
