"""Lm-eval results and samples.

A name of the harness is used only where the number is the one that it has there; everything else has names of its own.

Keys and their meaning: lm_eval/result_schema.py, evaluator.py and loggers/evaluation_tracker.py of release 0.4.13.
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
    by_model,
    file_name,
    free_name,
    last_written,
    line_files,
    report_rows,
)
from choicewise.extensions.interop.write.harness_names import (
    Task,
    given_task,
    known_task,
    metric_key,
    own_task,
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
from choicewise.util.jsonio import json_text


def write(export: Export, folder: Path) -> list[str]:
    """Write ``MODEL/results_DATE.json`` and ``MODEL/samples_TASK_DATE.jsonl`` of every model below ``folder``.

    DATE is when the model's latest run was last written to, in UTC, so that the same runs have the same files.
    """
    notes: list[str] = []
    folders: list[str] = []
    for runs in by_model(export.runs):
        name = file_name(sanitized(runs[0].manifest.model.name))
        name = free_name(name, folders, runs[0].manifest.model.digest[:6])
        folders.append(name)
        (folder / name).mkdir()
        notes += _write_model(runs, folder / name)
    return notes


def _write_model(runs: Sequence[Run], folder: Path) -> list[str]:
    when = last_written(runs)
    date = when.replace(tzinfo=None).isoformat(timespec="microseconds").replace(":", "-")
    taken: set[str] = set()
    notes: list[str] = []
    content: dict[str, dict[str, Any]] = {key: {} for key in _ENTRIES}
    hashes: dict[str, str] = {}
    protocols = [protocol for run in runs for protocol in run.protocols.values()]
    for run in runs:
        tasks = list(prompt_tasks(run, taken))
        rows = report_rows(run)
        for task in tasks:
            _add(content, task, rows)
        hashes |= _write_samples(run, tasks, folder, date)
        notes += [
            f"{run.folder}, {row.identity.protocol}: {row.counts.missing} items are missing and have "
            "no line in the samples"
            for row in rows.values()
            if row.counts.missing
        ]
        run.release()
    if not content["groups"]:
        del content["groups"]
    spent = [run.manifest.engine.spent for run in runs]
    seconds = (
        None if None in spent else str(sum(each.seconds for each in spent if each is not None))
    )
    whole = {
        **{
            key: content[key] if key not in _SORTED else dict(sorted(content[key].items()))
            for key in content
        },
        **model_entries(runs[0].manifest, protocols),
        "date": when.timestamp(),
        "task_hashes": hashes,
        "total_evaluation_time_seconds": seconds,
    }
    text = json_text(whole, indent=2)
    if (
        len(text) > 300_000
    ):  # the library datasets, by which the harness reads the Hub, reads a longer one on one line
        text = json_text(whole)
    (folder / f"results_{date}.json").write_text(text, encoding="utf-8")
    return notes


def _write_samples(
    run: Run, tasks: Sequence[PromptTask], folder: Path, date: str
) -> dict[str, str]:
    """Write the lines of all tasks; what they are hashed to, by task."""
    by_prompt: dict[str, list[PromptTask]] = {}
    for task in tasks:
        by_prompt.setdefault(task.prompt, []).append(task)
    metrics = {
        prompt: [key.partition(",")[0] for task in own for key in task.metrics]
        for prompt, own in by_prompt.items()
    }
    nulls = {prompt: [""] if UNCONDITIONAL in own else [] for prompt, own in metrics.items()}
    digests = {
        name: hashlib.sha256() for task in tasks for name in task.leaves.values() or [task.name]
    }
    counts = dict.fromkeys(digests, 0)
    with line_files() as add:
        for prompt, item in answered_items(run, nulls):
            for task in by_prompt[prompt]:
                name = task.leaf(item.subject)
                for line in sample_lines(item, counts[name], task.metrics):
                    add(folder / f"samples_{name}_{date}.jsonl", json_text(line))
                    digests[name].update(
                        f"{line['doc_hash']}{line['prompt_hash']}{line['target_hash']}".encode()
                    )
                counts[name] += 1
    return {name: digest.hexdigest() for name, digest in digests.items()}


SOURCE = "choicewise"
"""What stands where the harness names the kind of model that it loads."""


def sanitized(model: str) -> str:
    """A model's name as a folder (lm_eval/utils.py, ``sanitize_model_name``)."""
    return re.sub(r"[\"<>:/|\\?*\[\]]+", "__", model)


def model_entries(manifest: Manifest, protocols: Collection[Protocol]) -> dict[str, Any]:
    """The entries of the file about the model of a run and what its ``protocols`` have in common.

    What a run does not know, such as the special tokens of the tokenizer, is left out or null.
    """
    model, revision = manifest.model.name, manifest.model.source.rpartition("@")[2]
    system = {protocol.system for protocol in protocols}
    chats = {protocol.chat for protocol in protocols}
    arguments = {
        "pretrained": model,
        **({"revision": revision} if revision else {}),
        "dtype": manifest.model.dtype,
    }
    return {
        "config": {
            "model": SOURCE,
            "model_args": arguments,
            "model_dtype": manifest.model.dtype,
            "model_revision": revision or None,
            "model_sha": revision or None,
            "batch_size": None,
            "batch_sizes": [],
            "device": manifest.model.device,
            "use_cache": None,
            "limit": manifest.selection.limit,
            "bootstrap_iters": 0,
            "gen_kwargs": None,
            "random_seed": None,
            "numpy_seed": None,
            "torch_seed": None,
            "fewshot_seed": None,
        },
        "git_hash": None,
        "pretty_env_info": f"choicewise {choicewise.__version__}, python {manifest.versions.get('python', '?')}",
        "transformers_version": manifest.versions.get("transformers"),
        "lm_eval_version": f"none: choicewise {choicewise.__version__}",
        "upper_git_hash": None,
        "max_length": manifest.model.window,
        "model_source": SOURCE,
        "model_name": model,
        "model_name_sanitized": sanitized(model),
        "system_instruction": next(iter(system)) if len(system) == 1 else None,
        "system_instruction_sha": None,
        "fewshot_as_multiturn": "turns" in chats,
        "chat_template": None,
        "chat_template_sha": manifest.model.chat or None if chats - {"none"} else None,
    }


OWN = "choicewise"
"""The key of ``configs[TASK]["metadata"]`` with everything the format has no place for."""


_SORTED = ("configs", "versions", "n-shot", "higher_is_better")
_ENTRIES = ("results", "groups", "group_subtasks", *_SORTED, "n-samples")
"""The entries of the file about tasks and groups, by their names; ``groups`` only where there are some."""


def _add(content: dict[str, dict[str, Any]], task: PromptTask, rows: Mapping[str, Number]) -> None:
    """Add what a task says to the entries about tasks and groups.  ``rows``: of the report, by protocol."""
    protocol = next(iter(task.metrics.values())).protocol
    better = {
        key.partition(",")[0]: METRICS[each.protocol.metric].higher
        for key, each in task.metrics.items()
    }
    for name, subject, values in _numbers(task):
        entry = _entry(
            task,
            name,
            subject,
            values,
            {key for key, own in task.metrics.items() if rows[own.name].open},
        )
        content["results"][name] = entry
        content["versions"][name] = f"{OWN}-{protocol.rev}"
        content["n-shot"][name] = protocol.shots
        content["higher_is_better"][name] = better
        if task.leaves and not subject:
            content["groups"][name] = entry
            content["group_subtasks"][name] = list(task.leaves.values())
        else:
            asked = max(value.n + value.missing for value in values.values())
            content["n-samples"][name] = {"original": asked, "effective": entry["sample_len"]}
            content["configs"][name] = _config(task, name, subject, values, rows)


def _numbers(task: PromptTask) -> Iterator[tuple[str, str, dict[str, Value]]]:
    """(name, subject, numbers by ``metric,filter``) of the group or task, the subject empty for all items."""
    if task.whole:
        yield (
            task.whole,
            "",
            {key: task.overall(measured) for key, measured in task.metrics.items()},
        )
    by_subject = (
        {key: measured.values("subjects") for key, measured in task.metrics.items()}
        if task.leaves
        else {}
    )
    for subject, name in task.leaves.items():
        yield name, subject, {key: values[subject] for key, values in by_subject.items()}


def _entry(
    task: PromptTask, name: str, subject: str, values: Mapping[str, Value], without: Collection[str]
) -> dict[str, Any]:
    """``without``: the keys of ``values`` that are no number, as rounding leaves them open."""
    alias = f"{subject or name}{'' if task.finished else ' (incomplete)'}"
    most = max(value.n for value in values.values())
    entry: dict[str, Any] = {"name": name, "alias": alias, "sample_len": most}
    for key, value in values.items():
        metric, _, after = key.partition(",")
        if not math.isnan(value.value) and key not in without:
            entry[key] = value.value
            entry[f"{metric}_stderr,{after}"] = "N/A" if math.isnan(value.se) else value.se
    if task.leaves and not subject:
        entry["sample_count"] = {key: value.n for key, value in values.items() if key in entry}
    return entry


def _config(
    task: PromptTask,
    name: str,
    subject: str,
    values: Mapping[str, Value],
    rows: Mapping[str, Number],
) -> dict[str, Any]:
    """What the harness keeps of a task's YAML file, as far as the protocol says it."""
    protocol = next(iter(task.metrics.values())).protocol
    dataset = task.run.manifest.dataset
    named = {key.partition(",")[0]: each.protocol.metric for key, each in task.metrics.items()}
    filters = list(dict.fromkeys(key.partition(",")[2] for key in task.metrics))
    return {
        "task": name,
        **({"task_alias": subject, "dataset_name": subject} if subject else {}),
        "dataset_path": dataset.source.partition("@")[0] or dataset.name,
        "test_split": protocol.split,
        "doc_to_text": protocol.question,
        "doc_to_choice": protocol.continuation.removeprefix(" "),
        "description": protocol.header,
        # no length of the harness counts what stands between prompt and choice
        "target_delimiter": " "
        if protocol.requests is not None or protocol.continuation.startswith(" ")
        else "",
        "fewshot_delimiter": protocol.separator,
        "fewshot_config": {"sampler": protocol.sampler},
        "num_fewshot": protocol.shots,
        "metric_list": [
            {
                "metric": name,
                "aggregation": _aggregation(metric),
                "higher_is_better": METRICS[metric].higher,
            }
            for name, metric in named.items()
        ],
        "output_type": _output_type(protocol),
        **({"filter_list": [{"name": each} for each in filters]} if filters != ["none"] else {}),
        "repeats": 1,
        "should_decontaminate": False,
        "metadata": {"version": protocol.rev, OWN: _own_results(task, subject, values, rows)},
    }


def _aggregation(metric: str) -> str:
    """How the harness makes a number of those of the items; of a metric that is no mean a name it does not have."""
    known = METRICS[metric]
    return "perplexity" if known.exponential else f"{OWN}_{metric}" if known.pooled else "mean"


def _output_type(protocol: Protocol) -> str:
    if READINGS[protocol.reading].text:
        return "generate_until"
    return "loglikelihood" if protocol.choices == 1 else "multiple_choice"


def _own_results(
    task: PromptTask, subject: str, values: Mapping[str, Value], rows: Mapping[str, Number]
) -> dict[str, Any]:
    """The data, what the samples hold, and by ``metric,filter`` what it was measured with and what is missing."""
    manifest = task.run.manifest
    first = next(iter(task.metrics.values()))
    among = np.array([subject in ("", each) for each in first.evidence.subjects], dtype=np.bool_)
    about = {key: (each, rows[each.name], values[key]) for key, each in task.metrics.items()}
    return {
        "version": choicewise.__version__,
        "complete": task.finished,
        "dataset": {
            "name": manifest.dataset.name,
            "digest": manifest.dataset.digest,
            "source": manifest.dataset.source,
        },
        "selection": manifest.stored()["selection"],
        "skipped": len(manifest.dataset.skipped),
        "resps": _resps(first),
        "metrics": {
            key: {
                "protocol": row.identity.protocol,
                "signature": row.identity.signature,
                "id": row.identity.id,
                "i": row.identity.i,
                "t": row.identity.t,
                "r": row.identity.r,
                "data": row.identity.data,
                **{"interval": row.interval.name, "ci_low": value.ci_low, "ci_high": value.ci_high},
                **{"n": value.n, "ties": value.ties, "missing": value.missing},
                "missing_reasons": each.missing_reasons(among),
            }
            for key, (each, row, value) in about.items()
        },
    }


def _resps(measured: Measurement) -> str:
    """What the numbers in the samples' ``resps`` are."""
    reading = READINGS[measured.protocol.reading]
    if reading.text:
        return "generated text"
    return (
        f"nats: {reading.description}" if measured.likelihoods else f"scores: {reading.description}"
    )


UNCONDITIONAL = "acc_mutual_info"
"""The metric of which the harness asks every choice once more, after nothing, and lists these requests last."""


def sample_lines(
    item: AnsweredItem, number: int, metrics: Mapping[str, Measurement]
) -> Iterator[dict[str, Any]]:
    """The lines about ``item``, the one of that ``number`` in its task: one per filter of the ``metrics``.

    None for a filter under which nothing about the item has a number.  Keys, their order and their types are those of
    lm_eval/loggers/evaluation_tracker.py, which writes all numbers of ``resps`` as text.
    """
    document: dict[str, Any] = dict(item.fields)
    document |= {
        "id": item.id,
        "split": item.split,
        "subject": item.subject,
        "question": item.question,
    }
    document |= {"choices": [choice.choice for choice in item.choices], "gold": list(item.gold)}
    for name in dict.fromkeys(key.partition(",")[2] for key in metrics):
        own = {
            key.partition(",")[0]: measured
            for key, measured in metrics.items()
            if key.partition(",")[2] == name
        }
        credits = {metric: float(measured.credit[item.index]) for metric, measured in own.items()}
        credits = {metric: credit for metric, credit in credits.items() if not np.isnan(credit)}
        if not credits:
            continue
        measured = next(iter(own.values()))
        shown = (
            _first_right(item)
            if {each.protocol.metric for each in own.values()} == {"mc1"}
            else item
        )
        target = _target(shown, measured.protocol)
        asked = _asked(shown, measured, UNCONDITIONAL in own)
        yield {
            "doc_id": number,
            "doc": document,
            "target": target,
            "arguments": {
                f"gen_args_{place}": dict(zip(("arg_0", "arg_1"), each, strict=True))
                for place, (each, _) in enumerate(asked)
            },
            "resps": [[answer] for _, answer in asked],
            "filtered_resps": _filtered(item, measured, [answer for _, answer in asked]),
            "filter": name,
            "metrics": list(credits),
            "doc_hash": _sha256(json.dumps(document, indent=2, ensure_ascii=False)),
            "prompt_hash": _sha256(asked[0][0][0] if asked else ""),
            "target_hash": _sha256(target),
            **credits,
        }


def _first_right(item: AnsweredItem) -> AnsweredItem:
    """The item without the right choices after the first, as the harness asks it for mc1."""
    places = [place for place in range(len(item)) if place not in item.gold[1:]]
    return replace(
        item,
        choices=tuple(item.choices[place] for place in places),
        gold=(places.index(item.gold[0]),),
    )


def _asked(
    item: AnsweredItem, measured: Measurement, unconditional: bool
) -> list[tuple[tuple[str, Any], Any]]:
    """((context, continuation), answer) of every request; of a generation (prompt, settings) and the text."""
    protocol = measured.protocol
    if READINGS[protocol.reading].text:
        stop = protocol.stop.split("\n") if protocol.stop else []
        settings = {"until": stop, "do_sample": False, "max_gen_toks": protocol.new_tokens}
        return [((item.context or "", settings), item.generated or "")]
    numbers: list[float] = [choice.loglikelihood for choice in item.choices]
    if (
        not measured.likelihoods and measured.known_scores is not None
    ):  # the reading has another number for a choice
        numbers = measured.known_scores[item.row : item.row + len(item)].tolist()
    asked = [
        ((choice.context or "", choice.continuation or ""), [str(number), str(choice.greedy)])
        for choice, number in zip(item.choices, numbers, strict=True)
    ]
    if unconditional:
        asked += [
            (("", choice.continuation or ""), [str(choice.after_null.get("", np.nan)), str(None)])
            for choice in item.choices
        ]
    return asked


def _filtered(item: AnsweredItem, measured: Measurement, answers: list[Any]) -> list[Any]:
    """The answers; in place of generated text the choice that was read from it, if one was."""
    if not READINGS[measured.protocol.reading].text:
        return answers
    predicted = int(measured.prediction[item.index])
    if predicted < 0 or len(item.choices) < 2:
        return answers
    chosen = item.choices[predicted]
    return [(chosen.continuation or chosen.choice).strip()]


def _target(item: AnsweredItem, protocol: Protocol) -> str:
    """The right answer as text: its index, several as a list, the text itself where text was asked for."""
    if READINGS[protocol.reading].text or len(item.choices) == 1:
        right = item.choices[item.gold[0]] if item.gold else None
        return "" if right is None else (right.continuation or right.choice)
    return str(item.gold[0]) if len(item.gold) == 1 else str(list(item.gold))


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


@dataclass(frozen=True)
class PromptTask:
    """What a run says under one prompt.

    ``name``: of the task, or of the group where there are several subjects.  ``known``: the task of the harness that it
    is.  ``metrics``: by ``metric,filter``.  ``leaves``: subject → name of its task; empty where there is one task.
    """

    name: str
    run: Run
    known: Task | None
    metrics: dict[str, Measurement]
    leaves: dict[str, str] = field(default_factory=dict)

    @property
    def prompt(self) -> str:
        """Which prompt (``Protocol.prompt_digest``)."""
        return next(iter(self.metrics.values())).protocol.prompt_digest

    @property
    def whole(self) -> str:
        """The name of the entry about all subjects; empty where the harness has none."""
        return self.name if self.known is None or not self.leaves else self.known.group

    @property
    def finished(self) -> bool:
        """Whether the run has everything that was asked for."""
        return self.run.manifest.complete and not self.run.evidence.damages

    def leaf(self, subject: str) -> str:
        """The name of the task that an item of the ``subject`` belongs to."""
        return self.leaves[subject] if self.leaves else self.name

    def overall(self, measured: Measurement) -> Value:
        """The number over all subjects, as the harness or else the protocol makes it of its items."""
        own = measured.protocol.aggregation
        if self.known is not None and self.leaves:
            own = self.known.aggregation
        return measured.values(own if own in ("micro", "macro") else "micro")["all"]


def prompt_tasks(run: Run, taken: set[str]) -> Iterator[PromptTask]:
    """The tasks of a run, with names that are not ``taken``; they are, then."""
    groups: dict[tuple[str, str], list[Measurement]] = {}
    known: dict[tuple[str, str], Task | None] = {}
    for name, measured in run.measurements.items():
        protocol, dataset = measured.protocol, run.manifest.dataset.name
        task = known_task(name, protocol, dataset)
        if task is None:
            task = given_task(
                protocol, run.manifest, measured.evidence.item_table["subject"].unique().to_pylist()
            )
        key = (
            protocol.prompt_digest,
            own_task(name, protocol, dataset) if task is None else task.name,
        )
        groups.setdefault(key, []).append(measured)
        known.setdefault(key, task)
    for key, measurements in groups.items():
        subjects = list(dict.fromkeys(measurements[0].evidence.subjects))
        yield _task(run, measurements, known[key], subjects, taken)


def _task(
    run: Run,
    measurements: Sequence[Measurement],
    task: Task | None,
    subjects: Sequence[str],
    taken: set[str],
) -> PromptTask:
    first = measurements[0]
    by_subject = len(subjects) > 1 if task is None else "{subject}" in task.name
    if task is not None:
        theirs = (
            [task.name.replace("{subject}", each) for each in subjects]
            if by_subject
            else [task.name]
        )
        if taken & {*theirs, task.group}:
            task, by_subject = None, len(subjects) > 1
    spelling = short_signature(first.protocol)[1:]
    if task is None:
        name = free_name(
            own_task(first.name, first.protocol, run.manifest.dataset.name), taken, spelling
        )
        taken.add(name)
    else:
        name = task.group or task.name
    pattern = f"{name}_{{subject}}" if task is None else task.name
    leaves: dict[str, str] = {}
    for subject in subjects if by_subject else ():
        leaves[subject] = free_name(
            pattern.replace("{subject}", file_name(subject)), taken, spelling
        )
        taken.add(leaves[subject])
    taken |= {name}
    metrics: dict[str, Measurement] = {}
    for measured in measurements:
        # by the protocol's own name, which says its filter
        own = task and (
            known_task(measured.name, measured.protocol, measured.protocol.benchmark) or task
        )
        key = metric_key(measured.name, measured.protocol, own, metrics)
        if _contradicts(run.manifest.imported, key, measured):
            key = metric_key(measured.name, measured.protocol, own, {*metrics, key})
        metrics[key] = measured
    return PromptTask(name, run, task, metrics, leaves)


def _contradicts(imported: ImportRecord | None, key: str, measured: Measurement) -> bool:
    """Whether the log of an imported run has another number under that name: its task counts in another way."""
    theirs = None if imported is None else imported.recorded.get(key.partition(",")[0])
    return (
        theirs is not None and abs(theirs - measured.overall) > 1e-6
    )  # no item of fewer than a million
