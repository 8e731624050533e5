"""What protocols, tasks and metrics of ours are called in the harness."""

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


@dataclass(frozen=True, slots=True)
class Task:
    """A task of the harness.

    ``name``: ``{subject}`` stands for the subject of a task of one subject.  ``group``: the group of these, empty where
    there is none.  ``aggregation``: how the group's number is made of the tasks.  ``filter``: of its metrics.
    ``metric``: what its number is called, where that is not what ``METRICS`` of the harness says.
    """

    name: str
    group: str = ""
    aggregation: str = "micro"
    filter: str = "none"
    metric: str = ""


TASKS: Mapping[str, Task] = {
    "arc-challenge/harness": Task("arc_challenge"),
    "arc-easy/harness": Task("arc_easy"),
    "bbh/harness": Task("leaderboard_bbh_{subject}", "leaderboard_bbh"),
    "blimp/harness": Task("blimp_{subject}", "blimp", "macro"),
    "boolq/harness": Task("boolq"),
    "ceval/harness": Task("ceval-valid_{subject}", "ceval-valid"),
    "cmmlu/harness": Task("cmmlu_{subject}", "cmmlu"),
    "commonsenseqa/harness": Task("commonsense_qa"),
    "copa/harness": Task("copa"),
    "gpqa/harness": Task("gpqa_{subject}_zeroshot"),
    "gpqa/leaderboard": Task("leaderboard_gpqa_{subject}", "leaderboard_gpqa"),
    "gsm8k/harness:flexible": Task("gsm8k", filter="flexible-extract"),
    "gsm8k/harness:strict": Task("gsm8k", filter="strict-match"),
    "hellaswag/harness": Task("hellaswag"),
    "lambada/harness": Task("lambada_openai"),
    "mmlu-pro/harness": Task("leaderboard_mmlu_pro"),
    "mmlu-redux/harness": Task(
        "mmlu_redux_{subject}_generative", "mmlu_redux_generative", filter="default"
    ),
    "mmlu/harness-v0.4": Task("mmlu_{subject}", "mmlu"),
    "openbookqa/harness": Task("openbookqa"),
    "piqa/harness": Task("piqa"),
    "race/harness": Task("race"),
    "sciq/harness": Task("sciq"),
    "siqa/harness": Task("social_iqa"),
    "swag/harness": Task("swag"),
    "truthfulqa/harness:mc1": Task("truthfulqa_mc1", metric="acc"),
    "truthfulqa/harness:mc2": Task("truthfulqa_mc2", metric="acc"),
    "winogrande/harness": Task("winogrande"),
}
"""Protocol of the catalogue → the task that it repeats (lm_eval/tasks/, by the names in its YAML files).

Not ``musr/harness``, whose subjects have other names here than in the harness.
"""

HARNESS_METRICS: Mapping[tuple[str, str, str], str] = {
    **{
        (SCORES[each.score]["score"], "argmax", "acc"): name
        for name, each in SCORE_NAMES.items()
        if each.tool == HARNESS
    },
    ("greedy", "greedy-match", "exact_match"): "exact_match",
    ("sum", "argmax", "perplexity"): "perplexity",
    ("sum", "argmax", "mc1"): "mc1",
    ("sum", "argmax", "mc2"): "mc2",
}
"""(score, decision, metric) → the harness's name for it (lm_eval/api/task.py, ``process_results``)."""

PLAIN = "loglikelihood"
"""The reading that names of our own leave out."""


def known_task(name: str, protocol: Protocol, dataset: str) -> Task | None:
    """The task of the harness that a protocol of that name repeats on its own benchmark; None where there is none.

    The number of shots may be another, as it may be in the harness.
    """
    name, _ = split_changes(name)
    entry = next((each for each in (name, name.partition(":")[0]) if each in TASKS), None)
    if entry is None or dataset != protocol.benchmark:
        return None
    declared = _declared(name)
    left_open = {"shots", "shot_split", "sampler", "seed", "limit"}
    if declared is None or {axis for axis, *_ in axis_differences(declared, protocol)} - left_open:
        return None
    return TASKS[entry]


def given_task(protocol: Protocol, manifest: Manifest, subjects: Collection[str]) -> Task | None:
    """The task of the harness that was asked here from its file, or whose log was imported; None for other runs.

    The ``subjects`` of a group are the names of its tasks.
    """
    imported, dataset = manifest.imported, manifest.dataset.name
    if dataset.startswith(PREFIX) and dataset == protocol.benchmark:
        name = file_name(dataset.removeprefix(PREFIX))
        return Task("{subject}", name, protocol.aggregation) if {*subjects} != {""} else Task(name)
    if (
        protocol.requests is None
        or imported is None
        or not imported.tool.startswith("lm-evaluation-harness")
    ):
        return None
    return Task(file_name(dataset))


@cache
def _declared(name: str) -> Protocol | None:
    try:
        return resolve(name).get(name)
    except ProtocolError:
        return None


def own_task(name: str, protocol: Protocol, dataset: str) -> str:
    """The name of a task that the harness has not: data and protocol with ``@`` between them, which none there has."""
    base, _, changes = _parts(name, protocol)
    short = file_name(base.removeprefix(f"{dataset}/") if base not in ("", dataset) else "requests")
    return "@".join([file_name(dataset), short, *([file_name(changes)] if changes else [])])


def metric_key(name: str, protocol: Protocol, task: Task | None, taken: Collection[str]) -> str:
    """``metric,filter`` of the number under ``protocol``: a metric of the harness where it is the same there.

    Else one of our own, which begins with ``choicewise``.
    """
    after = f",{task.filter if task else 'none'}"
    plain = _harness_metric(protocol, task)
    if plain is not None and plain + after not in taken:
        return plain + after
    _, part, _ = _parts(name, protocol)
    words = [
        "choicewise",
        protocol.metric,
        *([protocol.reading] if protocol.reading != PLAIN else []),
    ]
    own = "_".join([*words, file_name(part or protocol.score)])
    own = own.replace("_stderr", "-stderr")
    return (
        own + after if own + after not in taken else f"{own}_{short_signature(protocol)[1:]}{after}"
    )


def _parts(name: str, protocol: Protocol) -> tuple[str, str, str]:
    """The entry that a protocol's name names, which of its scores, and which axes are others; of a signature its id.

    Protocols of requests that were rendered elsewhere are named after those, and all that differs is the score.
    """
    if "|" in name:
        return short_signature(protocol)[1:], "", ""
    plain, changes = split_changes(name)
    if protocol.requests is not None:
        base, _, part = plain.rpartition(":")
        return base, f"{part}@{changes}" if changes else part, ""
    base, _, part = plain.partition(":")
    return base, part, changes


def _harness_metric(protocol: Protocol, task: Task | None) -> str | None:
    if READINGS[protocol.reading].text:
        return protocol.metric if protocol.score == "none" else None
    axes = (protocol.outside, protocol.calibration, protocol.views, protocol.ties)
    if axes != ("keep", "none", "given", "first") or protocol.reading not in (
        PLAIN,
        "encoder-decoder",
    ):
        return None
    if protocol.choices == 1 and (protocol.score, protocol.decision) == ("greedy", "greedy-match"):
        return "acc" if protocol.metric == "acc" else None
    plain = HARNESS_METRICS.get((protocol.score, protocol.decision, protocol.metric))
    if plain == "acc_mutual_info" and protocol.null != "":
        return None
    return plain if task is None else task.metric or plain
