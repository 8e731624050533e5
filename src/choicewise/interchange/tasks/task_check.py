"""What of a harness task can't be asked here, and what of it is code, said before anything is loaded."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import fields
from pathlib import Path

from choicewise.errors import ProtocolError, did_you_mean
from choicewise.interchange.tasks.task_file import Code, CodeName, Place
from choicewise.interchange.tasks.task_tree import GROUP_KEYS, Leaf, TaskTree

ASKED = ("multiple_choice", "loglikelihood")
"""Output types that are asked here."""

DEFAULT = "generate_until"
"""The output type of a task that says none."""

PLAIN_FORMATS = ("json", "csv", "parquet", "arrow", "text")
"""Formats of data files that hold nothing but data; of the others of ``datasets``, some hold pickles or queries."""

_STRUCTURE = {"task", "tag", "group", "task_list", "class", "include"}
_UNUSED = {"use_prompt": "prompts of promptsource", "doc_to_image": "pictures", "doc_to_audio": "sound"}


def check_tree(tree: TaskTree, allow_code: bool) -> None:
    """Raise ProtocolError with everything that keeps a tree from being loaded.

    Code is named with its file and line, unless it is allowed.
    """
    problems = [problem for leaf in tree.leaves for problem in _problems(leaf)]
    if tree.group is not None:
        overrides = {*GROUP_KEYS, *_known_keys(), *_STRUCTURE}
        problems += [
            f"group {tree.name}: {key} is no key; {did_you_mean(key, overrides)}"
            for key in tree.group
            if key not in overrides
        ]
    if problems:
        raise ProtocolError.about(list(dict.fromkeys(problems)))
    if not allow_code and (code := [*tree.code, *(each for leaf in tree.leaves for each in _further_code(leaf))]):
        lines = [str(each) for each in dict.fromkeys(code)]
        more = [f"and {len(lines) - 24} more"] if len(lines) > 24 else []
        raise ProtocolError(
            f"task {tree.name} runs Python code of its files with your rights: read it, and allow task code to ask the "
            "task all the same",
            [*lines[:24], *more],
        )


def _problems(leaf: Leaf) -> Iterator[str]:
    output = leaf.config.get("output_type", DEFAULT)
    if output not in ASKED:
        yield (
            f"task {leaf.name} has output type {output}; here are asked {' and '.join(ASKED)}"
            + (" (it says none, which means generate_until)" if "output_type" not in leaf.config else "")
        )
        return
    known = {*_known_keys(), *_STRUCTURE}
    for key in leaf.config:
        if key not in known:
            yield f"{leaf.place(key)}: {key} is no key of a task; {did_you_mean(key, known)}"
    for key, what in _UNUSED.items():
        if leaf.config.get(key) is not None:
            yield f"{leaf.place(key)}: {key}: tasks with {what} are not asked here"
    shots = leaf.config.get("fewshot_config")
    if shots is not None and not isinstance(shots, dict):
        yield f"{leaf.place('fewshot_config')}: fewshot_config is {shots!r}; it must hold keys"
    for key in shots if isinstance(shots, dict) else ():
        if key not in (keys := _known_shot_keys()):
            yield f"{leaf.place('fewshot_config')}: {key} is no key of fewshot_config; {did_you_mean(str(key), keys)}"
    yield from _filter_problems(leaf)
    number = leaf.config.get("num_fewshot")
    if number is not None and (not isinstance(number, int) or number < 0):
        yield f"{leaf.place('num_fewshot')}: num_fewshot is {number!r}; it must be a whole number from 0 up"


def _filter_problems(leaf: Leaf) -> Iterator[str]:
    """Filters change answers before they are scored, which means something for generated text alone."""
    filters = leaf.config.get("filter_list")
    steps = (
        [step for each in filters if isinstance(each, dict) for step in each.get("filter", ())]
        if isinstance(filters, list)
        else []
    )
    for step in steps:
        if not isinstance(step, dict) or step.get("function") != "take_first":
            yield f"{leaf.place('filter_list')}: filter {step!r} changes what is scored; leave filter_list out"


def _further_code(leaf: Leaf) -> Iterator[Code]:
    """What runs code though no ``!function`` says so."""

    def code(key: str, names: str) -> Code:
        return Code(leaf.places.get(key.partition(".")[0], Place(Path(leaf.name), 0)), key, names)

    kwargs = leaf.config.get("dataset_kwargs") or {}
    if isinstance(kwargs, dict) and kwargs.get("trust_remote_code"):
        yield code("dataset_kwargs.trust_remote_code", "the loading script of the data")
    path = leaf.config.get("dataset_path")
    if isinstance(path, str) and not isinstance(path, CodeName) and _runs(path):
        yield code("dataset_path", f"{path}: a script, or a format that can hold code")
    if "class" in leaf.config and not isinstance(leaf.config["class"], CodeName):
        yield code("class", str(leaf.config["class"]))
    for metric in leaf.config.get("metric_list") or ():
        name = metric.get("metric") if isinstance(metric, dict) else None
        if isinstance(name, str) and not isinstance(name, CodeName):
            if metric.get("hf_evaluate"):
                yield code("metric_list", f"{name}: a script of the package evaluate")
            elif leaf.config.get("process_results") is None and name not in _known_metrics():
                yield code("metric_list", f"{name}: no metric of the harness, so a script of the package evaluate")


def _runs(path: str) -> bool:
    """Whether opening the data at ``path`` can run code."""
    from datasets.packaged_modules import _PACKAGED_DATASETS_MODULES

    if path in PLAIN_FORMATS:
        return False
    folder = Path(path)
    script = folder / f"{folder.name}.py"
    return path in _PACKAGED_DATASETS_MODULES or path.endswith(".py") or (folder.is_dir() and script.exists())


def _known_keys() -> Collection[str]:
    from lm_eval.api.task import TaskConfig

    return [axis.name for axis in fields(TaskConfig)]


def _known_shot_keys() -> Collection[str]:
    from lm_eval.config.task import FewshotConfig

    return [axis.name for axis in fields(FewshotConfig)]


def _known_metrics() -> Collection[str]:
    from lm_eval.api import registry

    return [*registry.METRIC_REGISTRY]
