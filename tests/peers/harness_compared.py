"""A task asked by the released harness with its own backend, and by us: log-likelihoods, credits and numbers."""

import json
import logging
import math
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

import choicewise
from choicewise.bundled import MODELS
from choicewise.interchange.harness_tasks.as_protocols import HarnessTask, load_harness_tasks
from choicewise.results.run import Run

MODEL = next(folder for folder in MODELS if folder.name == "merrow-bpe-512")
"""A model of two layers that the package comes with."""

CLOSE = 1e-4
"""Nats by which a log-likelihood may differ."""


def write_rows(folder: Path, name: str, rows: Sequence[Mapping[str, Any]]) -> Path:
    path = folder / f"{name}.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def write_task(folder: Path, name: str, splits: Mapping[str, Sequence[Mapping[str, Any]]], text: str) -> Path:
    """A task file with these rows in its splits: ``text`` holds its further keys."""
    files = {split: str(write_rows(folder, f"{name}-{split}", rows)) for split, rows in splits.items()}
    path = folder / f"{name}.yaml"
    data = f"dataset_path: json\ndataset_name: null\ndataset_kwargs: {json.dumps({'data_files': files})}\n"
    path.write_text(f"task: {name}\n{data}{text}", encoding="utf-8")
    return path


def shipped(relative: str) -> Path:
    """A task file that the harness comes with."""
    import lm_eval.tasks

    return Path(lm_eval.tasks.__file__).parent / relative


@cache
def harness_model() -> Any:
    """The model by the harness's own backend, in float32 on the CPU."""
    from lm_eval.models.huggingface import HFLM

    return HFLM(pretrained=str(MODEL), device="cpu", batch_size=8, dtype="float32")


def by_harness(task: str, include: Sequence[Path] = (), shots: int | None = None, iterations: int = 0) -> Any:
    """What ``simple_evaluate`` gives, with samples; standard errors where ``iterations`` is not 0."""
    from lm_eval import simple_evaluate
    from lm_eval.tasks import TaskManager

    logging.getLogger("lm_eval").setLevel(logging.CRITICAL)
    manager = TaskManager(include_path=[str(folder) for folder in include], include_defaults=False)
    return simple_evaluate(
        model=harness_model(),
        tasks=[task],
        num_fewshot=shots,
        task_manager=manager,
        log_samples=True,
        bootstrap_iters=iterations,
    )


def write_logs(model: Any, tasks: Sequence[str], include: Path, out: Path, **options: Any) -> dict[str, Any]:
    """The results of the harness, which writes them and its samples to ``out`` as its command does."""
    from lm_eval import simple_evaluate
    from lm_eval.loggers import EvaluationTracker
    from lm_eval.tasks import TaskManager

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


def texts_by_harness(task: str, include: Sequence[Path] = (), shots: int | None = None) -> dict[str, list[Any]]:
    """The arguments of every request, by task, as ``build_all_requests`` makes them."""
    from lm_eval.tasks import TaskManager

    loaded = TaskManager(include_path=[str(folder) for folder in include], include_defaults=False).load(task)
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
    from choicewise.requests.ask import rendered_line
    from choicewise.requests.blocks import request_source
    from choicewise.requests.request import Request

    recipe = task.protocols[protocol]
    source = request_source(recipe, task.data, task.rendered)
    pairs = []
    for subject in task.data.subjects(recipe.split or ""):
        for request in source.requests(subject, task.data.rows(recipe.split or "", subject), 0):
            assert isinstance(request, Request), request.reason
            line = rendered_line(request, recipe.reading)
            contexts = line.get("contexts") or [line["context"]] * len(line["continuations"])
            pairs += list(zip(contexts, line["continuations"], strict=True))
    return pairs


def by_us(task: HarnessTask, out: Path) -> Run:
    """The run of all protocols of a task on the same model."""
    return choicewise.evaluate(model=MODEL, data=task.data, protocols=task.protocols, rendered=task.rendered, out=out)


def compare(
    selector: str, out: Path, include: Sequence[Path] = (), shots: int | None = None, **load: Any
) -> HarnessTask:
    """Ask a task in both ways, and hold every log-likelihood, credit and number of ours against the harness's.

    Returns the task as it was loaded here.
    """
    spelled = f"lm-eval:{selector}" + (f"@shots={shots}" if shots is not None else "")
    (task,) = load_harness_tasks(spelled, include_path=include, **load)
    theirs, run, name_there = by_harness(selector, include, shots), by_us(task, out), task.name.removeprefix("lm-eval:")
    rows = {row.protocol: row for row in run.rows()}
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
                    np.testing.assert_allclose(own, expected, atol=CLOSE, rtol=0)
                    assert len(own) == len(expected)
                if metric not in sample:  # it is ours alone
                    continue
                near = CLOSE if recipe.metric == "perplexity" else 1e-5
                assert math.isclose(credits[item], float(sample[metric]), abs_tol=near), (name, item)
        total = theirs["results"].get(name_there) or next(iter(theirs["results"].values()))
        if f"{metric},none" in total:
            near = 1e-3 if recipe.metric == "perplexity" else 1e-6
            assert math.isclose(rows[name].value, total[f"{metric},none"], rel_tol=near), name
    return task
