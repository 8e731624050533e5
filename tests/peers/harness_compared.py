"""The released harness and us: its model and ours on a folder in float32, and a task asked by both."""

import json
import logging
import math
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from lm_eval import simple_evaluate
from lm_eval.api.instance import Instance
from lm_eval.models.huggingface import HFLM
from lm_eval.tasks import TaskManager

import choicewise
from choicewise.bundled import MODELS
from choicewise.extensions.interop.harness_tasks.as_protocols import HarnessTask, load_harness_tasks
from choicewise.extensions.interop.lm_eval.model import ChoicewiseLM
from choicewise.requests.blocks import request_source
from choicewise.requests.render import rendered_line
from choicewise.requests.request import Request
from choicewise.results.run import Run
from tests.helpers.imported_runs import write_lines

TOLERANCE = 1e-4  # nats by which a log-likelihood may differ in float32

SHARED = Path(__file__).resolve().parents[3] / "shared" / "data" / "models"
FOLDERS = {folder.name: folder for folder in sorted(MODELS)}
FOLDERS |= {name: SHARED / name for name in ("stories260K", "aidreams260K", "babyllama-tok105")}
MODEL = "merrow-bpe-512"
NAMES = [name for name, folder in FOLDERS.items() if folder.is_dir()]


@cache
def theirs(name: str, **arguments: Any) -> HFLM:
    """The harness's model, without the shortcut whose numbers can be another request's."""
    return HFLM(
        pretrained=str(FOLDERS[name]),
        dtype="float32",
        device="cpu",
        logits_cache=False,
        **arguments,
    )


@cache
def ours(name: str, **arguments: Any) -> ChoicewiseLM:
    """Ours."""
    return ChoicewiseLM(pretrained=str(FOLDERS[name]), dtype="float32", device="cpu", **arguments)


def requests(kind: str, texts: list[Any]) -> list[Instance]:
    """Requests of one task, a document each."""
    return [
        Instance(
            kind,
            {},
            arguments if isinstance(arguments, tuple) else (arguments,),
            0,
            metadata=("made", index, 1),
        )
        for index, arguments in enumerate(texts)
    ]


def near(own: float, other: float) -> bool:
    """Whether two log-likelihoods are the same number, as float32 sums of many tokens may differ."""
    return own == pytest.approx(other, rel=2e-6, abs=TOLERANCE)


def write_rows(folder: Path, name: str, rows: Sequence[Mapping[str, Any]]) -> Path:
    return write_lines(folder / f"{name}.jsonl", list(map(dict, rows)))


def write_task(
    folder: Path, name: str, splits: Mapping[str, Sequence[Mapping[str, Any]]], text: str
) -> Path:
    """A task file with these rows in its splits: ``text`` holds its further keys."""
    files = {
        split: str(write_rows(folder, f"{name}-{split}", rows)) for split, rows in splits.items()
    }
    path = folder / f"{name}.yaml"
    data = f"dataset_path: json\ndataset_name: null\ndataset_kwargs: {json.dumps({'data_files': files})}\n"
    path.write_text(f"task: {name}\n{data}{text}", encoding="utf-8")
    return path


def shipped(relative: str) -> Path:
    """A task file that the harness comes with."""
    import lm_eval.tasks

    return Path(lm_eval.tasks.__file__).parent / relative


def by_harness(
    task: str, include: Sequence[Path] = (), shots: int | None = None, iterations: int = 0
) -> Any:
    """What ``simple_evaluate`` gives, with samples; standard errors where ``iterations`` is not 0."""
    logging.getLogger("lm_eval").setLevel(logging.CRITICAL)
    manager = TaskManager(include_path=[str(folder) for folder in include], include_defaults=False)
    options = {"num_fewshot": shots, "log_samples": True, "bootstrap_iters": iterations}
    return simple_evaluate(
        model=theirs(MODEL, batch_size=8), tasks=[task], task_manager=manager, **options
    )


def write_logs(
    model: Any, tasks: Sequence[str], include: Path, out: Path, **options: Any
) -> dict[str, Any]:
    """The results of the harness, which writes them and its samples to ``out`` as its command does."""
    from lm_eval.loggers import EvaluationTracker

    tracker = EvaluationTracker(output_path=str(out))
    manager = TaskManager(include_path=str(include), include_defaults=False)
    results = simple_evaluate(
        model=model, tasks=list(tasks), task_manager=manager, evaluation_tracker=tracker, **options
    )
    samples = results.pop("samples")
    tracker.save_results_aggregated(results=results, samples=samples)
    for name in results["configs"]:
        tracker.save_results_samples(task_name=name, samples=samples[name])
    return dict(results)


def texts_by_harness(
    task: str, include: Sequence[Path] = (), shots: int | None = None
) -> dict[str, list[Any]]:
    """The arguments of every request, by task, as ``build_all_requests`` makes them."""
    loaded = TaskManager(
        include_path=[str(folder) for folder in include], include_defaults=False
    ).load(task)
    texts = {}
    for name, each in loaded["tasks"].items():
        own = each.config.num_fewshot
        each.set_config("num_fewshot", shots if shots is not None and own != 0 else own or 0)
        each.set_fewshot_seed(1234)
        each.build_all_requests()
        texts[name] = [instance.args for instance in each.instances]
    return texts


def texts_here(task: HarnessTask, protocol: str) -> list[tuple[str, str]]:
    """(context, continuation) of every request under one of the task's protocols."""
    recipe = task.protocols[protocol]
    source = request_source(recipe, task.data, task.rendered)
    pairs = []
    for subject in task.data.subjects(recipe.split or ""):
        for request in source.requests(subject, task.data.rows(recipe.split or "", subject)):
            assert isinstance(request, Request), request.reason
            line = rendered_line(request, recipe.reading)
            contexts = line.get("contexts") or [line["context"]] * len(line["continuations"])
            pairs += list(zip(contexts, line["continuations"], strict=True))
    return pairs


def by_us(task: HarnessTask, out: Path) -> Run:
    """The run of all protocols of a task on the same model."""
    return choicewise.evaluate(
        model=FOLDERS[MODEL],
        data=task.data,
        protocols=task.protocols,
        rendered=task.rendered,
        out=out,
    )


def compare(
    selector: str, out: Path, include: Sequence[Path] = (), shots: int | None = None, **load: Any
) -> HarnessTask:
    """Ask a task in both ways, and hold every log-likelihood, credit and number of ours against the harness's. Returns
    the task as it was loaded here."""
    spelled = f"lm-eval:{selector}" + (f"@shots={shots}" if shots is not None else "")
    (task,) = load_harness_tasks(spelled, include_path=include, **load)
    theirs, run, name_there = (
        by_harness(selector, include, shots),
        by_us(task, out),
        task.name.removeprefix("lm-eval:"),
    )
    rows = {row.identity.protocol: row for row in run.rows()}
    for name, recipe in task.protocols.items():
        metric = name.removeprefix(f"{task.name}:").partition("@")[0]
        scores = run.scores(name).to_pylist()
        credits = {row["item"]: row["credit"] for row in scores}
        for leaf, samples in theirs["samples"].items():
            for sample in samples:
                item = f"{'' if leaf == name_there else f'{leaf}/'}{sample['doc_id']}"
                own = [row["score"] for row in scores if row["item"] == item]
                if recipe.score == "sum":
                    expected = [float(answer[0]) for answer in sample["filtered_resps"]][: len(own)]
                    np.testing.assert_allclose(own, expected, atol=TOLERANCE, rtol=0)
                    assert len(own) == len(expected)
                if metric not in sample:  # it is ours alone
                    continue
                near = TOLERANCE if recipe.metric == "perplexity" else 1e-5
                assert math.isclose(credits[item], float(sample[metric]), abs_tol=near), (
                    name,
                    item,
                )
        total = theirs["results"].get(name_there) or next(iter(theirs["results"].values()))
        if f"{metric},none" in total:
            near = 1e-3 if recipe.metric == "perplexity" else 1e-6
            assert math.isclose(rows[name].value, total[f"{metric},none"], rel_tol=near), name
    return task
