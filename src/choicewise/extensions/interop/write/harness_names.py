"""Find the names that the harness has for protocols, their tasks and their metrics."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cache

from choicewise.errors import ProtocolError
from choicewise.extensions.interop.harness_tasks.files import PREFIX
from choicewise.extensions.interop.write.common import file_name
from choicewise.protocols.between import split_changes
from choicewise.protocols.catalogue import SCORES, resolve
from choicewise.protocols.names import HARNESS, SCORE_NAMES
from choicewise.protocols.protocol import Protocol, axis_differences, short_signature
from choicewise.protocols.readings import READINGS
from choicewise.records import Manifest

OWN = "choicewise"
"""The key of ``configs[TASK]["metadata"]`` that holds what no key of the format can."""


@dataclass(frozen=True, kw_only=True)
class Task:
    """Name a task of the harness.

    ``name``: with ``{subject}`` in the place of the subject if there is a task per subject.
    ``group``: the group of these, "" if the harness has none. ``aggregation``: how the number of
    the group is made of the tasks. ``filter``: of its metrics. ``metric``: the name of its number
    if :data:`HARNESS_METRICS` has another.
    """

    name: str
    group: str = ""
    aggregation: str = "micro"
    filter: str = "none"
    metric: str = ""


TASKS: Mapping[str, Task] = {
    "arc-challenge/harness": Task(name="arc_challenge"),
    "arc-easy/harness": Task(name="arc_easy"),
    "bbh/harness": Task(name="leaderboard_bbh_{subject}", group="leaderboard_bbh"),
    "blimp/harness": Task(name="blimp_{subject}", group="blimp", aggregation="macro"),
    "boolq/harness": Task(name="boolq"),
    "ceval/harness": Task(name="ceval-valid_{subject}", group="ceval-valid"),
    "cmmlu/harness": Task(name="cmmlu_{subject}", group="cmmlu"),
    "commonsenseqa/harness": Task(name="commonsense_qa"),
    "copa/harness": Task(name="copa"),
    "gpqa/harness": Task(name="gpqa_{subject}_zeroshot"),
    "gpqa/leaderboard": Task(name="leaderboard_gpqa_{subject}", group="leaderboard_gpqa"),
    "gsm8k/harness:flexible": Task(name="gsm8k", filter="flexible-extract"),
    "gsm8k/harness:strict": Task(name="gsm8k", filter="strict-match"),
    "hellaswag/harness": Task(name="hellaswag"),
    "lambada/harness": Task(name="lambada_openai"),
    "mmlu-pro/harness": Task(name="leaderboard_mmlu_pro"),
    "mmlu-redux/harness": Task(
        name="mmlu_redux_{subject}_generative", group="mmlu_redux_generative", filter="default"
    ),
    "mmlu/harness-v0.4": Task(name="mmlu_{subject}", group="mmlu"),
    "openbookqa/harness": Task(name="openbookqa"),
    "piqa/harness": Task(name="piqa"),
    "race/harness": Task(name="race"),
    "sciq/harness": Task(name="sciq"),
    "siqa/harness": Task(name="social_iqa"),
    "swag/harness": Task(name="swag"),
    "truthfulqa/harness:mc1": Task(name="truthfulqa_mc1", metric="acc"),
    "truthfulqa/harness:mc2": Task(name="truthfulqa_mc2", metric="acc"),
    "winogrande/harness": Task(name="winogrande"),
}
"""Protocol of the catalogue → the task that it repeats (lm_eval/tasks/, names in its YAML files).

``musr/harness`` is not among them: its subjects have other names here than in the harness.
"""

HARNESS_METRICS: Mapping[tuple[str, str, str], str] = {
    (SCORES[score.score]["score"], "argmax", "acc"): name
    for name, score in SCORE_NAMES.items()
    if score.tool == HARNESS
} | {
    ("greedy", "greedy-match", "exact_match"): "exact_match",
    ("sum", "argmax", "perplexity"): "perplexity",
    ("sum", "argmax", "mc1"): "mc1",
    ("sum", "argmax", "mc2"): "mc2",
}
"""(score, decision, metric) → the harness's name for it (lm_eval/api/task.py, ``process_results``)."""

PLAIN = "loglikelihood"
"""The reading that names of further metrics leave out."""

_FREE_AXES = {"shots", "shot_split", "sampler", "seed", "limit"}
"""Axes that a user of the harness may change too, so that a task stays the task it is."""


def catalogue_task(name: str, protocol: Protocol, dataset: str) -> Task | None:
    """Return the task of the harness that a protocol of that name repeats on its benchmark, or
    None.

    The number of shots may differ, as in the harness.
    """
    name, _ = split_changes(name)
    entry = name
    if entry not in TASKS:
        entry = name.partition(":")[0]
    if entry not in TASKS or dataset != protocol.benchmark:
        return None
    declared = _declared(name)
    if declared is None:
        return None
    changed_axes = {axis for axis, *_ in axis_differences(declared, protocol)}
    if changed_axes - _FREE_AXES:
        return None
    return TASKS[entry]


def source_task(protocol: Protocol, manifest: Manifest, subjects: Collection[str]) -> Task | None:
    """Return the task of the harness that the run read from its file, or whose log was imported;
    None for other runs.

    ``subjects``: of the items; those of a group are the names of its tasks.
    """
    dataset = manifest.dataset.name
    if dataset.startswith(PREFIX) and dataset == protocol.benchmark:
        name = file_name(dataset.removeprefix(PREFIX))
        if set(subjects) == {""}:
            return Task(name=name)
        return Task(name="{subject}", group=name, aggregation=protocol.aggregation)

    imported = manifest.imported
    if imported is None or protocol.requests is None:
        return None
    if not imported.tool.startswith("lm-evaluation-harness"):
        return None
    return Task(name=file_name(dataset))


@cache
def _declared(name: str) -> Protocol | None:
    try:
        return resolve(name).get(name)
    except ProtocolError:
        return None


def new_task_name(name: str, protocol: Protocol, dataset: str) -> str:
    """Return the name of a task that the harness lacks: data and protocol with ``@`` between them,
    which no task of the harness has.
    """
    entry, _, changes = _parts(name, protocol)
    entry = "requests" if entry in ("", dataset) else entry.removeprefix(f"{dataset}/")
    names = [file_name(dataset), file_name(entry)]
    if changes:
        names.append(file_name(changes))
    return "@".join(names)


def metric_key(name: str, protocol: Protocol, task: Task | None, taken: Collection[str]) -> str:
    """Return ``metric,filter`` of the number under ``protocol``, which is not ``taken``.

    It is a metric of the harness if the number is the same there, else one that begins with
    ``choicewise``.
    """
    end = ",none"
    if task is not None:
        end = f",{task.filter}"
    metric = _harness_metric(protocol, task)
    if metric is not None and metric + end not in taken:
        return metric + end

    words = ["choicewise", protocol.metric]
    if protocol.reading != PLAIN:
        words.append(protocol.reading)
    _, score, _ = _parts(name, protocol)
    words.append(file_name(score or protocol.score))
    # Readers take a metric whose name has _stderr in it for the error of another.
    metric = "_".join(words).replace("_stderr", "-stderr")
    if metric + end in taken:
        metric += f"_{short_signature(protocol)[1:]}"
    return metric + end


def _parts(name: str, protocol: Protocol) -> tuple[str, str, str]:
    """Return the parts of a protocol's name: the entry of the catalogue, its score, changed axes.

    The entry of a signature is its id.

    Protocols of requests that were rendered elsewhere are named after those requests, and differ in
    nothing but the score.
    """
    if "|" in name:
        return short_signature(protocol)[1:], "", ""
    plain, changes = split_changes(name)
    if protocol.requests is None:
        entry, _, score = plain.partition(":")
        return entry, score, changes
    entry, _, score = plain.rpartition(":")
    if changes:
        score = f"{score}@{changes}"
    return entry, score, ""


def _harness_metric(protocol: Protocol, task: Task | None) -> str | None:
    """Return the harness's name for the number under ``protocol``, None if it has none."""
    if READINGS[protocol.reading].text:
        return protocol.metric if protocol.score == "none" else None
    axes = (protocol.outside, protocol.calibration, protocol.views, protocol.ties)
    if axes != ("keep", "none", "given", "first"):
        return None
    if protocol.reading not in (PLAIN, "encoder-decoder"):
        return None
    if protocol.choices == 1 and (protocol.score, protocol.decision) == ("greedy", "greedy-match"):
        return "acc" if protocol.metric == "acc" else None

    metric = HARNESS_METRICS.get((protocol.score, protocol.decision, protocol.metric))
    if metric == "acc_mutual_info" and protocol.null != "":
        # The harness compares with the probability after nothing, and with no other.
        return None
    if task is not None and task.metric:
        return task.metric
    return metric
