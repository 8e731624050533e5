"""Write results and samples of runs as lm-evaluation-harness writes them.

A name of the harness is used only if the number is the one that it has there; other numbers have
names that the harness lacks.

Keys and their meaning: lm_eval/result_schema.py, evaluator.py and loggers/evaluation_tracker.py of
release 0.4.13.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

import choicewise
from choicewise.extensions.interop.write.common import (
    AnsweredItem,
    answered_items,
    distinct_name,
    file_name,
    is_finished,
    item_scores,
    last_written,
    line_files,
    missing_notes,
    model_folders,
    over_items,
    report_rows,
)
from choicewise.extensions.interop.write.harness_names import (
    OWN,
    Task,
    catalogue_task,
    metric_key,
    new_task_name,
    source_task,
)
from choicewise.ports import Export
from choicewise.protocols.metrics import METRICS
from choicewise.protocols.protocol import Protocol, short_signature
from choicewise.protocols.readings import READINGS
from choicewise.records import ImportRecord, Manifest
from choicewise.results.measurement import Measurement
from choicewise.results.number import Number
from choicewise.results.run import Run
from choicewise.scoring.intervals import Value
from choicewise.util.jsonio import JsonDict, json_text
from choicewise.util.text import text_digest


def write(export: Export, folder: Path) -> list[str]:
    """Write ``MODEL/results_DATE.json`` and ``MODEL/samples_TASK_DATE.jsonl`` of every model below
    ``folder``, and return what is left out.

    DATE is when the model's latest run was last written to, in UTC, so that equal runs have equal
    files.
    """
    notes: list[str] = []
    for name, runs in model_folders(export.runs, sanitized):
        (folder / name).mkdir()
        notes += _write_model(runs, folder / name)
    return notes


_SORTED = ("configs", "versions", "n-shot", "higher_is_better")
_ENTRIES = ("results", "groups", "group_subtasks", *_SORTED, "n-samples")
"""Entries of the file that hold tasks and groups by their names, in the order of the harness."""


def _write_model(runs: Sequence[Run], folder: Path) -> list[str]:
    when = last_written(runs)
    date = when.replace(tzinfo=None).isoformat(timespec="microseconds").replace(":", "-")
    content: dict[str, JsonDict] = {key: {} for key in _ENTRIES}
    hashes: dict[str, str] = {}
    notes: list[str] = []
    protocols: list[Protocol] = []
    taken: set[str] = set()
    for run in runs:
        protocols += run.protocols.values()
        tasks = list(prompt_tasks(run, taken))
        rows = report_rows(run)
        for task in tasks:
            _add(content, task, rows)
        hashes |= _write_samples(run, tasks, folder, date)
        notes += missing_notes(run, rows)
        run.release()

    for key in _SORTED:
        content[key] = dict(sorted(content[key].items()))
    if not content["groups"]:
        del content["groups"]
    whole: JsonDict = dict(content)
    whole |= model_entries(runs[0].manifest, protocols)
    whole["date"] = when.timestamp()
    whole["task_hashes"] = hashes
    whole["total_evaluation_time_seconds"] = _seconds(runs)
    text = json_text(whole, indent=2)
    # The library datasets, by which the harness reads the Hub, takes a longer file on one line
    # only.
    if len(text) > 300_000:
        text = json_text(whole)
    (folder / f"results_{date}.json").write_text(text, encoding="utf-8")
    return notes


def _seconds(runs: Sequence[Run]) -> str | None:
    """Return the seconds that all runs took, as the harness writes them; None if one is unknown."""
    costs = [run.manifest.engine.spent for run in runs]
    seconds = [cost.seconds for cost in costs if cost is not None]
    if len(seconds) < len(costs):
        return None
    return str(sum(seconds))


def _write_samples(
    run: Run, tasks: Sequence[PromptTask], folder: Path, date: str
) -> dict[str, str]:
    """Write the lines of all tasks, and return the digest of each task's lines by its name."""
    tasks_of_prompt: dict[str, list[PromptTask]] = {}
    nulls: dict[str, list[str]] = {}
    digests = {}
    for task in tasks:
        tasks_of_prompt.setdefault(task.prompt, []).append(task)
        nulls.setdefault(task.prompt, [])
        if UNCONDITIONAL in map(_metric, task.metrics):
            nulls[task.prompt] = [""]
        for name in task.item_tasks:
            digests[name] = hashlib.sha256()
    counts = dict.fromkeys(digests, 0)
    with line_files() as add:
        for prompt, item in answered_items(run, nulls):
            for task in tasks_of_prompt[prompt]:
                name = task.item_task(item.subject)
                for line in sample_lines(item, counts[name], task.metrics):
                    add(folder / f"samples_{name}_{date}.jsonl", json_text(line))
                    hashes = f"{line['doc_hash']}{line['prompt_hash']}{line['target_hash']}"
                    digests[name].update(hashes.encode())
                counts[name] += 1
    return {name: digest.hexdigest() for name, digest in digests.items()}


SOURCE = "choicewise"
"""The kind of model, for which the harness has the name of its loader."""


def sanitized(model: str) -> str:
    """Return a model's name as a folder (lm_eval/utils.py, ``sanitize_model_name``)."""
    return re.sub(r"[\"<>:/|\\?*\[\]]+", "__", model)


def model_entries(manifest: Manifest, protocols: Collection[Protocol]) -> JsonDict:
    """Return the entries of the file that describe the model of a run, and the axes that its
    ``protocols`` share.

    What a run does not know, such as the special tokens of the tokenizer, is left out or null.
    """
    model = manifest.model
    revision = model.source.rpartition("@")[2]
    arguments = {"pretrained": model.name}
    if revision:
        arguments["revision"] = revision
    arguments["dtype"] = model.dtype
    systems = {protocol.system for protocol in protocols}
    system = systems.pop() if len(systems) == 1 else None
    chats = {protocol.chat for protocol in protocols}
    chat_template = None
    if chats - {"none"}:
        chat_template = model.chat or None
    python = manifest.versions.get("python", "?")
    # null: what the harness knows of its loader and of its machine, and a run of ours does not.
    return {
        "config": {
            "model": SOURCE,
            "model_args": arguments,
            "model_dtype": model.dtype,
            "model_revision": revision or None,
            "model_sha": revision or None,
            "batch_size": None,
            "batch_sizes": [],
            "device": model.device,
            "use_cache": None,
            "limit": manifest.selection.limit,
            # Our standard errors are analytic.
            "bootstrap_iters": 0,
            "gen_kwargs": None,
            "random_seed": None,
            "numpy_seed": None,
            "torch_seed": None,
            "fewshot_seed": None,
        },
        "git_hash": None,
        "pretty_env_info": f"choicewise {choicewise.__version__}, python {python}",
        "transformers_version": manifest.versions.get("transformers"),
        "lm_eval_version": f"none: choicewise {choicewise.__version__}",
        "upper_git_hash": None,
        "max_length": model.window,
        "model_source": SOURCE,
        "model_name": model.name,
        "model_name_sanitized": sanitized(model.name),
        "system_instruction": system,
        "system_instruction_sha": None,
        "fewshot_as_multiturn": "turns" in chats,
        "chat_template": None,
        "chat_template_sha": chat_template,
    }


@dataclass(frozen=True)
class TaskNumbers:
    """Hold the numbers of a task or group of the harness. ``subject``: "" for all items.
    ``values``: by ``metric,filter``.
    """

    name: str
    subject: str
    values: Mapping[str, Value]


def _metric(key: str) -> str:
    """Return the metric of ``metric,filter``."""
    return key.partition(",")[0]


def _filter(key: str) -> str:
    """Return the filter of ``metric,filter``."""
    return key.partition(",")[2]


def _add(content: dict[str, JsonDict], task: PromptTask, rows: Mapping[str, Number]) -> None:
    """Add a task to the entries that hold tasks and groups. ``rows``: of the report, by protocol."""
    protocol = task.first.protocol
    better = {
        _metric(key): METRICS[measured.protocol.metric].higher
        for key, measured in task.metrics.items()
    }
    for numbers in _numbers(task):
        name = numbers.name
        entry = _entry(task, numbers, rows)
        content["results"][name] = entry
        content["versions"][name] = f"{OWN}-{protocol.rev}"
        content["n-shot"][name] = protocol.shots
        content["higher_is_better"][name] = better
        if task.leaves and not numbers.subject:
            # A group of the harness has neither samples nor a configuration.
            content["groups"][name] = entry
            content["group_subtasks"][name] = list(task.leaves.values())
        else:
            item_count = max(value.n + value.missing for value in numbers.values.values())
            content["n-samples"][name] = {
                "original": item_count,
                "effective": entry["sample_len"],
            }
            content["configs"][name] = _config(task, numbers, rows)


def _numbers(task: PromptTask) -> Iterator[TaskNumbers]:
    """Yield the numbers of the group, if there is one, then those of every task."""
    # The harness has no number over all tasks of some groups.
    if task.whole:
        overall = {key: task.overall(measured) for key, measured in task.metrics.items()}
        yield TaskNumbers(task.whole, "", overall)
    if not task.leaves:
        return
    by_subject = {key: measured.values("subjects") for key, measured in task.metrics.items()}
    for subject, name in task.leaves.items():
        values = {key: value_of[subject] for key, value_of in by_subject.items()}
        yield TaskNumbers(name, subject, values)


def _entry(task: PromptTask, numbers: TaskNumbers, rows: Mapping[str, Number]) -> JsonDict:
    alias = numbers.subject or numbers.name
    if not is_finished(task.run):
        alias += " (incomplete)"
    entry: JsonDict = {
        "name": numbers.name,
        "alias": alias,
        "sample_len": max(value.n for value in numbers.values.values()),
    }
    for key, value in numbers.values.items():
        # What rounding leaves open is no number, though a value was computed.
        if math.isnan(value.value) or rows[task.metrics[key].name].open:
            continue
        entry[key] = value.value
        error: float | str = value.se
        if math.isnan(value.se):
            error = "N/A"
        entry[f"{_metric(key)}_stderr,{_filter(key)}"] = error
    if task.leaves and not numbers.subject:
        counts = {key: value.n for key, value in numbers.values.items() if key in entry}
        entry["sample_count"] = counts
    return entry


def _config(task: PromptTask, numbers: TaskNumbers, rows: Mapping[str, Number]) -> JsonDict:
    """Return the keys of a task's YAML file that the protocol knows, as the harness keeps them."""
    protocol = task.first.protocol
    dataset = task.run.manifest.dataset
    # No length of the harness counts what is between prompt and choice.
    has_space = protocol.requests is not None or protocol.continuation.startswith(" ")
    delimiter = " " if has_space else ""
    metrics = {}
    for key, measured in task.metrics.items():
        metric = measured.protocol.metric
        metrics[_metric(key)] = {
            "metric": _metric(key),
            "aggregation": _aggregation(metric),
            "higher_is_better": METRICS[metric].higher,
        }
    config: JsonDict = {"task": numbers.name}
    if numbers.subject:
        config["task_alias"] = numbers.subject
        config["dataset_name"] = numbers.subject
    config |= {
        "dataset_path": dataset.source.partition("@")[0] or dataset.name,
        "test_split": protocol.split,
        "doc_to_text": protocol.question,
        "doc_to_choice": protocol.continuation.removeprefix(" "),
        "description": protocol.header,
        "target_delimiter": delimiter,
        "fewshot_delimiter": protocol.separator,
        "fewshot_config": {"sampler": protocol.sampler},
        "num_fewshot": protocol.shots,
        "metric_list": list(metrics.values()),
        "output_type": _output_type(protocol),
    }
    filters = list(dict.fromkeys(map(_filter, task.metrics)))
    if filters != ["none"]:
        config["filter_list"] = [{"name": name} for name in filters]
    config |= {
        "repeats": 1,
        "should_decontaminate": False,
        "metadata": {"version": protocol.rev, OWN: _metadata(task, numbers, rows)},
    }
    return config


def _aggregation(metric: str) -> str:
    """Return how the harness makes a number of those of the items, or a name that it lacks if the
    metric is no mean.
    """
    if METRICS[metric].exponential:
        return "perplexity"
    if METRICS[metric].pooled:
        return f"{OWN}_{metric}"
    return "mean"


def _output_type(protocol: Protocol) -> str:
    if READINGS[protocol.reading].text:
        return "generate_until"
    return "loglikelihood" if protocol.choices == 1 else "multiple_choice"


def _metadata(task: PromptTask, numbers: TaskNumbers, rows: Mapping[str, Number]) -> JsonDict:
    """Return the data, what the samples hold, and by ``metric,filter`` how it was measured and what
    is missing.
    """
    manifest = task.run.manifest
    is_of_task = np.array(
        [numbers.subject in ("", subject) for subject in task.first.evidence.subjects],
        dtype=np.bool_,
    )
    metrics = {}
    for key, measured in task.metrics.items():
        value = numbers.values[key]
        row = rows[measured.name]
        identity = row.identity
        metrics[key] = {
            "protocol": identity.protocol,
            "signature": identity.signature,
            "id": identity.id,
            "i": identity.i,
            "t": identity.t,
            "r": identity.r,
            "data": identity.data,
            "interval": row.interval.name,
            "ci_low": value.ci_low,
            "ci_high": value.ci_high,
            "n": value.n,
            "ties": value.ties,
            "missing": value.missing,
            "missing_reasons": measured.missing_reasons(is_of_task),
        }
    return {
        "version": choicewise.__version__,
        "complete": is_finished(task.run),
        "dataset": {
            "name": manifest.dataset.name,
            "digest": manifest.dataset.digest,
            "source": manifest.dataset.source,
        },
        "selection": manifest.stored()["selection"],
        "skipped": len(manifest.dataset.skipped),
        "resps": _resps(task.first),
        "metrics": metrics,
    }


def _resps(measured: Measurement) -> str:
    """Describe the numbers in the samples' ``resps``."""
    reading = READINGS[measured.protocol.reading]
    if reading.text:
        return "generated text"
    if measured.likelihoods:
        return f"nats: {reading.description}"
    return f"scores: {reading.description}"


UNCONDITIONAL = "acc_mutual_info"
"""The metric for which the harness scores every choice once more, after an empty context; it lists
these requests last.
"""


def sample_lines(
    item: AnsweredItem, number: int, metrics: Mapping[str, Measurement]
) -> Iterator[JsonDict]:
    """Yield the lines of ``item``, the one of that ``number`` in its task: one for each filter of
    the ``metrics`` under which the item has a number.

    Keys, their order and their types are those of lm_eval/loggers/evaluation_tracker.py, which
    writes all numbers of ``resps`` as text.
    """
    document: JsonDict = dict(item.fields)
    document |= {
        "id": item.id,
        "split": item.split,
        "subject": item.subject,
        "question": item.question,
        "choices": [choice.choice for choice in item.choices],
        "gold": list(item.gold),
    }
    for name in dict.fromkeys(map(_filter, metrics)):
        by_metric = {}
        credits = {}
        for key, measured in metrics.items():
            if _filter(key) == name:
                by_metric[_metric(key)] = measured
                credit = float(measured.credit[item.index])
                if not math.isnan(credit):
                    credits[_metric(key)] = credit
        if not credits:
            continue
        first, *_ = by_metric.values()
        asked_item = item
        if {measured.protocol.metric for measured in by_metric.values()} == {"mc1"}:
            asked_item = _with_first_right(item)
        target = _target(asked_item, first.protocol)
        requests = _requests(asked_item, first, UNCONDITIONAL in by_metric)
        answers = [request.answer for request in requests]
        arguments = {}
        for index, request in enumerate(requests):
            arguments[f"gen_args_{index}"] = {"arg_0": request.context, "arg_1": request.argument}
        prompt = requests[0].context if requests else ""
        yield {
            "doc_id": number,
            "doc": document,
            "target": target,
            "arguments": arguments,
            "resps": [[answer] for answer in answers],
            "filtered_resps": _filtered(item, first, answers),
            "filter": name,
            "metrics": list(credits),
            "doc_hash": text_digest(json.dumps(document, indent=2, ensure_ascii=False)),
            "prompt_hash": text_digest(prompt),
            "target_hash": text_digest(target),
            **credits,
        }


def _with_first_right(item: AnsweredItem) -> AnsweredItem:
    """Return the item without the right choices after the first, as the harness asks it for mc1."""
    kept = [index for index in range(len(item)) if index not in item.gold[1:]]
    choices = tuple(item.choices[index] for index in kept)
    return replace(item, choices=choices, gold=(kept.index(item.gold[0]),))


@dataclass(frozen=True)
class _Request:
    """Hold a request of the harness with its answer.

    ``argument``: the continuation, or the settings of a generation. ``answer``: the generated text,
    or log-likelihood and whether it is greedy.
    """

    context: str
    argument: Any
    answer: Any


def _requests(
    item: AnsweredItem, measured: Measurement, with_unconditional: bool
) -> list[_Request]:
    protocol = measured.protocol
    if READINGS[protocol.reading].text:
        stop = protocol.stop.split("\n") if protocol.stop else []
        settings = {"until": stop, "do_sample": False, "max_gen_toks": protocol.new_tokens}
        return [_Request(item.context or "", settings, item.generated or "")]

    scores = None
    if not measured.likelihoods:
        # The reading has another number for a choice than a log-likelihood.
        scores = item_scores(item, measured)
    if scores is None:
        scores = [choice.loglikelihood for choice in item.choices]
    requests = []
    for choice, score in zip(item.choices, scores, strict=True):
        answer = [str(score), str(choice.greedy)]
        requests.append(_Request(choice.context or "", choice.continuation or "", answer))
    if with_unconditional:
        for choice in item.choices:
            answer = [str(choice.after_null.get("", math.nan)), str(None)]
            requests.append(_Request("", choice.continuation or "", answer))
    return requests


def _filtered(item: AnsweredItem, measured: Measurement, answers: list[Any]) -> list[Any]:
    """Return the answers, or the choice that was read from generated text if there is one."""
    if not READINGS[measured.protocol.reading].text:
        return answers
    predicted = int(measured.prediction[item.index])
    if predicted < 0 or len(item.choices) < 2:
        return answers
    chosen = item.choices[predicted]
    return [(chosen.continuation or chosen.choice).strip()]


def _target(item: AnsweredItem, protocol: Protocol) -> str:
    """Return the right answer: its text if text is generated or there is one choice, else its
    index, or a list of several.
    """
    if READINGS[protocol.reading].text or len(item.choices) == 1:
        if not item.gold:
            return ""
        right = item.choices[item.gold[0]]
        return right.continuation or right.choice
    if len(item.gold) == 1:
        return str(item.gold[0])
    return str(list(item.gold))


@dataclass(frozen=True, kw_only=True)
class PromptTask:
    """Hold the numbers of a run under one prompt.

    ``name``: of the task, or of the group if there are several subjects. ``task``: the task of the
    harness that it is, None if the harness has none. ``metrics``: by ``metric,filter``. ``leaves``:
    subject → name of its task; empty if there is one task.
    """

    name: str
    run: Run
    task: Task | None
    metrics: dict[str, Measurement]
    leaves: dict[str, str] = field(default_factory=dict)

    @property
    def first(self) -> Measurement:
        """Return the first measurement; all have the same prompt and items."""
        return next(iter(self.metrics.values()))

    @property
    def prompt(self) -> str:
        """Return the digest of the prompt (``Protocol.prompt_digest``)."""
        return self.first.protocol.prompt_digest

    @property
    def whole(self) -> str:
        """Return the name of the entry of all subjects, "" if the harness has none."""
        if self.task is None or not self.leaves:
            return self.name
        return self.task.group

    @property
    def item_tasks(self) -> list[str]:
        """Return the names of the tasks that items belong to."""
        return list(self.leaves.values()) or [self.name]

    def item_task(self, subject: str) -> str:
        """Return the name of the task that an item of the ``subject`` belongs to."""
        return self.leaves.get(subject, self.name)

    def overall(self, measured: Measurement) -> Value:
        """Return the number over all subjects, aggregated as the harness or else the protocol
        does.
        """
        aggregation = measured.protocol.aggregation
        if self.task is not None and self.leaves:
            aggregation = self.task.aggregation
        return measured.values(over_items(aggregation))["all"]


def prompt_tasks(run: Run, taken: set[str]) -> Iterator[PromptTask]:
    """Yield the tasks of a run. Their names are not ``taken``, and are added to it."""
    # Measurements that are metrics of one task, of the harness or of none.
    groups: dict[tuple[str, str], tuple[Task | None, list[Measurement]]] = {}
    manifest = run.manifest
    for name, measured in run.measurements.items():
        protocol = measured.protocol
        task = catalogue_task(name, protocol, manifest.dataset.name)
        if task is None:
            subjects = measured.evidence.item_table["subject"].unique().to_pylist()
            task = source_task(protocol, manifest, subjects)
        if task is None:
            task_name = new_task_name(name, protocol, manifest.dataset.name)
        else:
            task_name = task.name
        _, measurements = groups.setdefault((protocol.prompt_digest, task_name), (task, []))
        measurements.append(measured)
    for task, measurements in groups.values():
        yield _prompt_task(run, task, measurements, taken)


def _prompt_task(
    run: Run, task: Task | None, measurements: Sequence[Measurement], taken: set[str]
) -> PromptTask:
    first = measurements[0]
    subjects = list(dict.fromkeys(first.evidence.subjects))
    spelling = short_signature(first.protocol)[1:]
    names = set()
    if task is not None:
        names = {task.group, task.name}
        names.update(task.name.replace("{subject}", subject) for subject in subjects)
    if not taken.isdisjoint(names):
        # Another run of the model has the names: no task of the harness has two sets of numbers.
        task = None
    if task is None:
        dataset = run.manifest.dataset.name
        name = distinct_name(new_task_name(first.name, first.protocol, dataset), taken, spelling)
        pattern = f"{name}_{{subject}}"
        is_group = len(subjects) > 1
        taken.add(name)
    else:
        name = task.group or task.name
        pattern = task.name
        is_group = "{subject}" in task.name
    leaves: dict[str, str] = {}
    if is_group:
        for subject in subjects:
            leaf = pattern.replace("{subject}", file_name(subject))
            leaves[subject] = distinct_name(leaf, taken, spelling)
            taken.add(leaves[subject])
    taken.add(name)
    metrics = _metrics(run, measurements, task)
    return PromptTask(name=name, run=run, task=task, metrics=metrics, leaves=leaves)


def _metrics(
    run: Run, measurements: Sequence[Measurement], task: Task | None
) -> dict[str, Measurement]:
    """Return the measurements of a task by ``metric,filter``."""
    metrics: dict[str, Measurement] = {}
    for measured in measurements:
        protocol = measured.protocol
        protocol_task = task
        if task is not None:
            # The name of the protocol may name a filter that the task of a log does not.
            protocol_task = catalogue_task(measured.name, protocol, protocol.benchmark) or task
        key = metric_key(measured.name, protocol, protocol_task, metrics)
        if _contradicts(run.manifest.imported, key, measured):
            key = metric_key(measured.name, protocol, protocol_task, {*metrics, key})
        metrics[key] = measured
    return metrics


def _contradicts(imported: ImportRecord | None, key: str, measured: Measurement) -> bool:
    """Return whether the log of an imported run has another number under that name, because its
    task counts in another way.
    """
    if imported is None:
        return False
    number_of_log = imported.recorded.get(_metric(key))
    if number_of_log is None:
        return False
    # The error of rounding is smaller than what one of a million items makes.
    return abs(number_of_log - measured.overall) > 1e-6
