"""The results file of LM Evaluation Harness: every number of a model, with what it was measured with.

Keys and their meaning: lm_eval/result_schema.py, evaluator.py and loggers/evaluation_tracker.py of release 0.4.13.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

import choicewise
from choicewise.interchange.write.harness_tasks import PromptTask
from choicewise.protocols.metrics import METRICS
from choicewise.protocols.protocol import Protocol
from choicewise.protocols.readings import READINGS
from choicewise.results.measurement import Measurement
from choicewise.results.row import Row
from choicewise.scoring.metrics import Value

OWN = "choicewise"
"""The key of ``configs[TASK]["metadata"]`` with everything the format has no place for."""


@dataclass(frozen=True, slots=True)
class Numbers:
    """The numbers of a group, or of a task: by ``metric,filter``.  ``subject``: of the task, empty for all items."""

    name: str
    subject: str
    values: Mapping[str, Value]


@dataclass(slots=True)
class Results:
    """The entries of the file about tasks and groups, each by their names."""

    results: dict[str, Any] = field(default_factory=dict)
    groups: dict[str, Any] = field(default_factory=dict)
    group_subtasks: dict[str, list[str]] = field(default_factory=dict)
    configs: dict[str, Any] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)
    shots: dict[str, int] = field(default_factory=dict)
    higher_is_better: dict[str, dict[str, bool]] = field(default_factory=dict)
    samples: dict[str, dict[str, int]] = field(default_factory=dict)

    def add(self, task: PromptTask, rows: Mapping[str, Row]) -> None:
        """Add what a task says.  ``rows``: of the run's report, one per protocol, by its name."""
        protocol = next(iter(task.metrics.values())).protocol
        for numbers in _numbers(task):
            entry = _entry(task, numbers)
            self.results[numbers.name] = entry
            self.versions[numbers.name] = f"{OWN}-{protocol.rev}"
            self.shots[numbers.name] = protocol.shots
            self.higher_is_better[numbers.name] = {
                key.partition(",")[0]: METRICS[each.protocol.metric].share for key, each in task.metrics.items()
            }
            if task.leaves and not numbers.subject:
                self.groups[numbers.name] = entry
                self.group_subtasks[numbers.name] = list(task.leaves.values())
            else:
                asked = max(value.n + value.missing for value in numbers.values.values())
                self.samples[numbers.name] = {"original": asked, "effective": entry["sample_len"]}
                self.configs[numbers.name] = _config(task, numbers, rows)

    def as_json(self) -> dict[str, Any]:
        """The entries under the keys of the file; ``groups`` only where there are some, as in the harness."""
        return {
            "results": self.results,
            **({"groups": self.groups} if self.groups else {}),
            "group_subtasks": self.group_subtasks,
            "configs": dict(sorted(self.configs.items())),
            "versions": dict(sorted(self.versions.items())),
            "n-shot": dict(sorted(self.shots.items())),
            "higher_is_better": dict(sorted(self.higher_is_better.items())),
            "n-samples": self.samples,
        }


def _numbers(task: PromptTask) -> Iterator[Numbers]:
    if task.whole:
        yield Numbers(task.whole, "", {key: task.overall(measured) for key, measured in task.metrics.items()})
    by_subject = {key: measured.values("subjects") for key, measured in task.metrics.items()} if task.leaves else {}
    for subject, name in task.leaves.items():
        yield Numbers(name, subject, {key: values[subject] for key, values in by_subject.items()})


def _entry(task: PromptTask, numbers: Numbers) -> dict[str, Any]:
    alias = f"{numbers.subject or numbers.name}{'' if task.finished else ' (incomplete)'}"
    most = max(value.n for value in numbers.values.values())
    entry: dict[str, Any] = {"name": numbers.name, "alias": alias, "sample_len": most}
    for key, value in numbers.values.items():
        metric, _, after = key.partition(",")
        if not math.isnan(value.value):
            entry[key] = value.value
            entry[f"{metric}_stderr,{after}"] = "N/A" if math.isnan(value.se) else value.se
    if task.leaves and not numbers.subject:
        entry["sample_count"] = {key: value.n for key, value in numbers.values.items() if key in entry}
    return entry


def _config(task: PromptTask, numbers: Numbers, rows: Mapping[str, Row]) -> dict[str, Any]:
    """What the harness keeps of a task's YAML file, as far as the protocol says it."""
    protocol = next(iter(task.metrics.values())).protocol
    dataset = task.run.manifest.dataset
    metrics = {key.partition(",")[0]: METRICS[each.protocol.metric].share for key, each in task.metrics.items()}
    filters = list(dict.fromkeys(key.partition(",")[2] for key in task.metrics))
    return {
        "task": numbers.name,
        **({"task_alias": numbers.subject, "dataset_name": numbers.subject} if numbers.subject else {}),
        "dataset_path": dataset.source.partition("@")[0] or dataset.name,
        "test_split": protocol.split,
        "doc_to_text": protocol.question,
        "doc_to_choice": protocol.continuation.removeprefix(" "),
        "description": protocol.header,
        "target_delimiter": _delimiter(protocol),
        "fewshot_delimiter": protocol.separator,
        "fewshot_config": {"sampler": protocol.sampler},
        "num_fewshot": protocol.shots,
        "metric_list": [
            {"metric": metric, "aggregation": "mean" if share else "perplexity", "higher_is_better": share}
            for metric, share in metrics.items()
        ],
        "output_type": _output_type(protocol),
        **({"filter_list": [{"name": each} for each in filters]} if filters != ["none"] else {}),
        "repeats": 1,
        "should_decontaminate": False,
        "metadata": {"version": protocol.rev, OWN: _own(task, numbers, rows)},
    }


def _delimiter(protocol: Protocol) -> str:
    """What stands between prompt and choice, which no length of the harness counts: the space, where there is one."""
    return " " if protocol.requests is not None or protocol.continuation.startswith(" ") else ""


def _output_type(protocol: Protocol) -> str:
    if READINGS[protocol.reading].text:
        return "generate_until"
    return "loglikelihood" if protocol.choices == 1 else "multiple_choice"


def _own(task: PromptTask, numbers: Numbers, rows: Mapping[str, Row]) -> dict[str, Any]:
    """The data, what the samples hold, and by ``metric,filter`` what it was measured with and what is missing."""
    manifest = task.run.manifest
    first = next(iter(task.metrics.values()))
    among = np.array([numbers.subject in ("", each) for each in first.evidence.subjects], dtype=np.bool_)
    about = {key: (each, rows[each.name], numbers.values[key]) for key, each in task.metrics.items()}
    return {
        "version": choicewise.__version__,
        "complete": task.finished,
        "dataset": {
            "name": manifest.dataset.name,
            "digest": manifest.dataset.digest,
            "source": manifest.dataset.source,
        },
        "selection": {"subjects": manifest.selection.subjects, "limit": manifest.selection.limit},
        "skipped": len(manifest.dataset.skipped),
        "resps": _resps(first),
        "metrics": {
            key: {
                **{name: getattr(row, name) for name in ("protocol", "signature", "id", "i", "t", "r", "data")},
                **{"interval": row.interval, "ci_low": value.ci_low, "ci_high": value.ci_high},
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
    return f"nats: {reading.about}" if measured.likelihoods else f"scores: {reading.about}"
