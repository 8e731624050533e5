"""Logs for Inspect, which its own library and data frames read, and logs that it writes, which are read here."""

import json
import math
import shutil
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import choicewise
from choicewise import Run, export
from choicewise.data.dataset import Dataset
from choicewise.data.items import Item
from choicewise.extensions.interop.logs.import_log import read_logs, read_state
from choicewise.protocols.protocol import parse_signature
from choicewise.store.folder import read_manifest, write_manifest
from tests.helpers.mmlu_data import write_mmlu

log_files = pytest.importorskip("inspect_ai.log")

PROTOCOLS = ["mmlu/original", "mmlu/cloze:sum", "mmlu/helm"]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    place = tmp_path_factory.mktemp("inspect")
    data = write_mmlu(place / "tides")
    return choicewise.evaluate(model="fake:hash", data=data, protocols=PROTOCOLS, out=place / "run")


@pytest.fixture(scope="module")
def logs(run: Run, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("logs") / "logs"
    export(run, "inspect", out)
    return out


def test_every_protocol_is_a_log_and_a_line_of_a_data_frame_with_its_number(
    run: Run, logs: Path
) -> None:
    from inspect_ai.analysis import evals_df, samples_df

    read = [
        log_files.read_eval_log(info, header_only=True)
        for info in log_files.list_eval_logs(str(logs))
    ]
    rows = {row.identity.protocol: row for row in run.rows()}
    assert {log.eval.task_display_name for log in read} == {*rows}
    for log in read:
        assert log.eval.metadata is not None
        row = rows[log.eval.metadata["protocol"]]
        assert log.status == "success"
        assert log.results is not None
        (score,) = log.results.scores
        assert score.metrics["accuracy"].value == row.value
        assert score.metrics["stderr"].value == pytest.approx(row.se)
        assert (score.metrics["ci_high"].value, score.scored_samples) == (
            row.interval.high,
            row.counts.n,
        )
        assert (
            parse_signature(log.eval.metadata["signature"]) == run.protocols[row.identity.protocol]
        )
        assert log.eval.metadata["P"] == row.identity.id
        assert log.eval.task_args["shots"] == run.protocols[row.identity.protocol].shots
        assert (log.eval.model, log.eval.dataset.name) == ("fake:hash", "tides")
    evals, samples = evals_df(str(logs)).set_index("task_name"), samples_df(str(logs))
    for row in run.rows():
        assert (
            evals.loc[row.identity.protocol.replace("/", ":"), "score_headline_value"] == row.value
        )
        assert (
            evals.loc[row.identity.protocol.replace("/", ":"), "task_arg_score"]
            == run.protocols[row.identity.protocol].score
        )
    assert len(samples) == 12 * len(PROTOCOLS)
    mean = sum(row.value for row in run.rows()) / len(PROTOCOLS)
    assert samples["score_choicewise"].astype(float).mean() == pytest.approx(mean)


def test_a_sample_holds_the_prompt_the_choice_or_text_and_the_log_likelihoods(
    run: Run, logs: Path
) -> None:
    (path,) = logs.glob("*cloze*.eval")
    log = log_files.read_eval_log(str(path))
    told = {(row["item"], row["choice"]): row for row in run.scores("mmlu/cloze:sum").to_pylist()}
    prompt = run.protocols["mmlu/cloze:sum"].prompt_digest
    requests = {
        row["item"]: row for row in run.tables.requests.to_pylist() if row["prompt"] == prompt
    }
    assert log.samples
    assert len(log.samples) == 12
    for sample in log.samples:
        request = requests[str(sample.id)]
        assert [message.role for message in sample.messages] == ["user", "assistant"]
        assert sample.messages[0].text == request["context"]
        own = [told[sample.id, place] for place in range(4)]
        chosen = own[0]["prediction"]
        assert sample.output.completion == request["continuations"][chosen]
        assert (sample.choices, sample.target) == (request["options"], "ABCD"[request["gold"][0]])
        assert sample.scores is not None
        score = sample.scores["choicewise"]
        assert (score.answer, score.value) == ("ABCD"[chosen], own[0]["credit"])
        assert sample.metadata["loglikelihoods"] == [row["score"] for row in own]
        assert sample.metadata["scores"] == sample.metadata["loglikelihoods"]
        assert all(count > 0 for count in sample.metadata["tokens"])
    assert sum(
        sample.scores["choicewise"].as_float() for sample in log.samples if sample.scores
    ) / 12 == pytest.approx(run.measurements["mmlu/cloze:sum"].overall)
    (path,) = logs.glob("*helm*.eval")
    log = log_files.read_eval_log(str(path))
    assert log.samples
    texts = {str(sample.id): sample.output.completion for sample in log.samples}
    tables, helm = run.tables, run.protocols["mmlu/helm"].prompt_digest
    observed = dict(
        zip(
            tables.observations["key"].to_pylist(),
            tables.observations["text"].to_pylist(),
            strict=True,
        )
    )
    assert texts == {
        row["item"]: observed[row["key"]]
        for row in tables.spans.to_pylist()
        if row["prompt"] == helm
    }


def test_a_second_export_has_the_same_logs_and_ids(run: Run, logs: Path, tmp_path: Path) -> None:
    export(run, "inspect", tmp_path / "logs")
    names = [
        sorted(file.name for file in folder.glob("*.eval")) for folder in (logs, tmp_path / "logs")
    ]
    assert names[0] == names[1]
    for file in logs.glob("*.eval"):
        pair = [
            log_files.read_eval_log(str(folder / file.name)) for folder in (logs, tmp_path / "logs")
        ]
        one, other = (json.loads(log.model_dump_json(exclude={"location"})) for log in pair)
        for log in (one, other):
            for sample in log["samples"]:
                sample["output"].pop("time", None)
        assert one == other


def test_what_is_missing_is_not_scored_and_a_run_that_is_not_complete_is_no_success(
    run: Run, tmp_path: Path
) -> None:
    folder = tmp_path / "run"
    shutil.copytree(run.folder, folder)
    manifest = read_manifest(folder)
    write_manifest(folder, replace(manifest, complete=False, blocks=manifest.blocks[:1]))
    export(folder, "inspect", tmp_path / "logs", incomplete=True)
    for info in log_files.list_eval_logs(str(tmp_path / "logs")):
        log = log_files.read_eval_log(info)
        assert log.status == "cancelled"
        assert log.results is not None
        assert (log.results.total_samples, log.results.completed_samples) == (12, 6)
        assert log.samples
        assert len(log.samples) == 6


def test_an_item_without_a_number_says_why(tmp_path: Path) -> None:
    items = tuple(
        Item(text, text, tuple(letters), (1,))
        for text, letters in (("one", "abcd"), ("two", "abc"))
    )
    line = {"protocols": ["mmlu/cloze:sum"], "out": tmp_path / "run", "skip_bad_items": True}
    run = choicewise.evaluate(model="fake:hash", data=Dataset("quiz", {"test": items}), **line)
    assert run.rows()[0].counts.missing == 1
    export(run, "inspect", tmp_path / "logs")
    (info,) = log_files.list_eval_logs(str(tmp_path / "logs"))
    log = log_files.read_eval_log(info)
    assert log.samples
    scores = [sample.scores["choicewise"] for sample in log.samples if sample.scores]
    assert math.isnan(scores[1].as_float())
    assert scores[1].explanation
    assert log.results is not None
    assert (log.results.scores[0].scored_samples, log.results.scores[0].unscored_samples) == (1, 1)


# What Inspect writes is read, and its own verdicts follow

ANSWERS = {"river": "ANSWER: B", "mill": "Let me see.\n\nANSWER: a", "lamp": "I do not know."}


@pytest.fixture(scope="module")
def inspect_ai() -> Any:
    """The package; tiktoken, which would download its vocabulary to count tokens, counts bytes."""
    inspect_ai = pytest.importorskip("inspect_ai")
    import tiktoken

    of_bytes = SimpleNamespace(encode=lambda text, **_: list(text.encode()))
    tiktoken.get_encoding = tiktoken.encoding_for_model = lambda *_: of_bytes
    return inspect_ai


@pytest.mark.parametrize("form", ["eval", "json"])
def test_what_inspect_writes_is_read(tmp_path: Path, inspect_ai: Any, form: str) -> None:
    from inspect_ai.dataset import MemoryDataset, Sample
    from inspect_ai.model import ModelOutput, get_model
    from inspect_ai.scorer import choice
    from inspect_ai.solver import multiple_choice

    def answer(messages: Any, *_: Any) -> Any:
        word = next(word for word in ANSWERS if word in messages[-1].text)
        return ModelOutput.from_content("mockllm/model", ANSWERS[word])

    samples = [
        Sample(id=word, input=f"Which is {word}?", choices=["x", "y"], target="B")
        for word in ANSWERS
    ]
    task = inspect_ai.Task(
        MemoryDataset(samples), solver=multiple_choice(), scorer=choice(), name="words"
    )
    model = get_model("mockllm/model", custom_outputs=answer, memoize=False)
    inspect_ai.eval(task, model, log_dir=str(tmp_path / "logs"), log_format=form, display="none")
    (log,) = read_logs([tmp_path / "logs"])
    assert {item.id: item.generated for item in log.items} == ANSWERS
    assert {item.id: item.recorded["choice"] for item in log.items} == {
        "river": 1.0,
        "mill": 0.0,
        "lamp": 0.0,
    }
    assert read_state(log).notes == ()
    (run,) = choicewise.import_log(tmp_path / "logs", tmp_path / "run")
    rows = {row["protocol"]: row for row in run.report().to_pylist()}
    assert rows[f"words:{log.rules[0]}"]["value"] == pytest.approx(1 / 3)
