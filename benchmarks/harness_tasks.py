"""Are the numbers of our engine the harness's own, on every multiple-choice task that the harness ships?

python benchmarks/harness_tasks.py [--model FOLDER] [--family NAME...] [--kept FILE] [--page docs/harness-tasks.md]

Needs the environment with the harness.  Its task files are taken as they are.  Configurations with the same templates,
code and settings are one (they differ in the rows alone), and stand-in rows have the fields that their templates and
code name: three invented questions each.  What can't be stood in for is listed with the reason.  Every request then
goes through the harness's ``hf`` model in float32 (without its shortcut for one-token continuations) and through ours;
equal means: each log-likelihood within 1e-4 nats, the same greedy flags, the same value of every metric.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import io
import json
import logging
import os
import re
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Any
from unittest.mock import patch

os.environ.update(HF_HUB_OFFLINE="1", HF_DATASETS_OFFLINE="1", TOKENIZERS_PARALLELISM="false")

import datasets
import jinja2
import numpy as np
from jinja2 import meta, nodes
from lm_eval.models.huggingface import HFLM
from lm_eval.tasks import TaskManager

from choicewise.bundled import MODELS
from choicewise.extensions.interop.lm_eval.model import ChoicewiseLM

NATS = 1e-4
ROWS, POOL = 3, 30
"""Questions that are asked of a task, and rows that it has, from which it takes its examples."""
PATIENCE = 4.0
"""Seconds to look for rows that a task takes."""
TOGETHER = 60
"""Tasks whose requests are asked at once."""

TEMPLATES = ("doc_to_text", "doc_to_target", "doc_to_choice", "gen_prefix")
TOLD = (*TEMPLATES, "process_docs", "process_results", "target_delimiter", "fewshot_delimiter")
TOLD += (
    "fewshot_config",
    "num_fewshot",
    "metric_list",
    "fewshot_split",
    "test_split",
    "validation_split",
)
"""What makes two configurations ask alike, beside the rows."""

CHOICE_NAME = re.compile(
    r"choice|option|ending|candidate|distractor|answers$|alternatives|mc\d_targets|possible|solutions|^sentences$",
    re.I,
)
ANSWER_NAME = re.compile(
    r"^(answer|label|gold|target|correct|key|cop|ans|idx|index|ground|solution|class|output|result|right)"
    r"|answer_?(key|idx|index|id)?$|label$|_label|correct|target|gold",
    re.I,
)
NUMBER_NAME = re.compile(
    r"^(start|end|idx|id|index|span\d?_index|qid|number)\d?$|_(index|idx|id)$", re.I
)
LISTS = ("list", "dict", "text", "records", "literal")
ANSWERS: tuple[Any, ...] = (
    "A",
    0,
    "0",
    1,
    "1",
    "text",
    "a",
    True,
    "Yes",
    "yes",
    "true",
    1.0,
    "(A)",
    ["A"],
    [0],
    [1, 0],
)
WORDS = (
    "amber",
    "barley",
    "candle",
    "ferry",
    "gate",
    "heron",
    "lamp",
    "mill",
    "orchard",
    "river",
    "salt",
    "tower",
)


# Rows


@dataclass
class Field:
    """What is known of a column: the attributes that templates or code read of it."""

    attributes: set[str] = field(default_factory=set)


def words(seed: str, count: int) -> str:
    """Some words that depend on ``seed`` alone."""
    random = np.random.default_rng([*seed.encode()])
    return " ".join(random.choice(WORDS, count))


def choices(style: str, name: str, row: int) -> Any:
    """Four choices of a question, as datasets hold them."""
    texts = [words(f"{name}{row}{place}", 1 + place % 3) for place in range(4)]
    match style:
        case "dict":
            return {
                "text": texts,
                "label": ["A", "B", "C", "D"],
                "labels": [1, 0, 0, 0],
                "choices": texts,
            }
        case "records":
            return [
                {"text": text, "label": label} for text, label in zip(texts, "ABCD", strict=True)
            ]
        case "text":
            return ", ".join(texts)
        case "literal":
            return str(texts)
    return texts


def invented(fields: Mapping[str, Field], lists: str, answer: Any, row: int) -> dict[str, Any]:
    """One row with a value for each of ``fields``."""
    values: dict[str, Any] = {}
    for name, known in fields.items():
        if known.attributes and not CHOICE_NAME.search(name):
            values[name] = invented(
                {each: Field() for each in known.attributes}, lists, answer, row
            )
        elif CHOICE_NAME.search(name) and not re.search(r"\d$|_?[a-e]$", name):
            values[name] = choices(lists, name, row)
        elif ANSWER_NAME.search(name):
            values[name] = answer
        else:
            start, end = (words(f"{name}{row}{part}", 3) for part in "ab")
            values[name] = row if NUMBER_NAME.search(name) else f"{start} _ {end}."
    if answer == "text":
        listed = next((value for value in values.values() if isinstance(value, list)), None)
        for name in values:
            if values[name] == "text":
                values[name] = listed[0] if listed else next(iter(values.values()))
    return values


def fields_of(config: Mapping[str, Any]) -> dict[str, Field]:
    """The columns that the templates and the code of ``config`` name."""
    known: dict[str, Field] = defaultdict(Field)
    environment = jinja2.Environment()
    templates = [*_texts(config)]
    for template in templates:
        if "{" not in template:
            if template.isidentifier():
                known[template]
            continue
        with contextlib.suppress(jinja2.TemplateError):
            tree = environment.parse(template)
            for name in meta.find_undeclared_variables(tree):
                known[name]
            for each in tree.find_all((nodes.Getattr, nodes.Getitem)):
                inner = each.node
                attribute = (
                    each.attr
                    if isinstance(each, nodes.Getattr)
                    else getattr(each.arg, "value", None)
                )
                if (
                    isinstance(inner, nodes.Name)
                    and isinstance(attribute, str)
                    and not hasattr("", attribute)
                ):
                    known[inner.name].attributes.add(attribute)
    for code in {file for file, _ in _code(config)}:
        for column in _subscripts(code.read_text(encoding="utf-8")):
            known[column]
    for name in ("doc", "loop", "range", "self"):
        known.pop(name, None)
    return known


def _texts(value: Any) -> Iterator[str]:
    """All templates in a configuration."""
    for key in TEMPLATES:
        match value.get(key):
            case str(text):
                yield text
            case list(texts):
                yield from (text for text in texts if isinstance(text, str) and "{{" in text)
            case dict(texts):
                yield from (text for text in texts.values() if isinstance(text, str))
    if isinstance(own := value.get("fewshot_config"), Mapping):
        yield from _texts(own)


def _code(value: Any) -> Iterator[tuple[Path, str]]:
    """The file and the name of each function that a configuration calls, which its index holds as one path."""
    if isinstance(value, Mapping):
        for each in value.values():
            yield from _code(each)
    elif isinstance(value, list):
        for each in value:
            yield from _code(each)
    elif isinstance(value, str) and value.startswith("/"):
        file, _, name = value.rpartition(".")
        if Path(f"{file}.py").is_file():
            yield Path(f"{file}.py"), name


def _subscripts(code: str) -> Iterator[str]:
    """Texts by which code looks something up."""
    for node in ast.walk(ast.parse(code)):
        match node:
            case ast.Subscript(slice=ast.Constant(value=str(name))):
                yield name
            case ast.Call(
                func=ast.Attribute(attr="get" | "pop"), args=[ast.Constant(value=str(name)), *_]
            ):
                yield name


class Splits(dict[str, Any]):
    """The same rows under every name that a task may ask for."""

    def __init__(self, rows: datasets.Dataset) -> None:
        super().__init__()
        self._rows = rows

    def __missing__(self, split: str) -> datasets.Dataset:
        return self._rows

    def __contains__(self, split: object) -> bool:
        return True


# Tasks


@dataclass
class Tried:
    """One kind of configuration: its ``names``, and what came of it."""

    names: list[str]
    family: str
    task: Any = None
    requests: int = 0
    reason: str = ""
    difference: float = 0.0


def kinds(manager: TaskManager, families: Sequence[str]) -> list[tuple[Tried, dict[str, Any]]]:
    """The configurations of the harness, those that ask alike as one."""
    found: dict[str, tuple[Tried, dict[str, Any]]] = {}
    root = Path(sys.modules[TaskManager.__module__].__file__ or "").parent
    for name, entry in sorted(manager.task_index.items()):
        config = entry.cfg or {}
        if config.get("output_type") != "multiple_choice" or entry.yaml_path is None:
            continue
        family = entry.yaml_path.parent.relative_to(root).parts[0]
        if families and family not in families:
            continue
        told = {name: config.get(name) for name in TOLD}
        code = [(file.read_text(encoding="utf-8"), name) for file, name in _code(told)]
        names = {name: value for name, value in told.items() if not [*_code(value)]}
        key = json.dumps([family, sorted(set(code)), names], default=str)
        if key not in found:
            found[key] = Tried([], family), config
        found[key][0].names.append(name)
    return list(found.values())


def build(manager: TaskManager, tried: Tried, config: Mapping[str, Any]) -> None:
    """Give ``tried`` its task with its requests, from rows that its templates and code take; else the reason."""
    fields, end = fields_of(config), time.monotonic() + PATIENCE
    errors = Counter[str]()
    for _ in range(8):
        missing: str | None = None
        lists_matter = any(CHOICE_NAME.search(name) for name in fields)
        answers_matter = any(ANSWER_NAME.search(name) for name in fields)
        for answer, lists in product(
            ANSWERS if answers_matter else ANSWERS[:1], LISTS if lists_matter else LISTS[:1]
        ):
            if time.monotonic() > end:
                break
            try:
                rows = [invented(fields, lists, answer, row) for row in range(POOL)]
                table = datasets.Dataset.from_list(rows)
                with (
                    patch.object(
                        datasets, "load_dataset", lambda *_, rows=table, **__: Splits(rows)
                    ),
                    patch.object(
                        datasets.Dataset, "filter", lambda rows, *_, **__: rows
                    ),  # any row is of any subject
                ):
                    (task,) = manager.load([tried.names[0]])["tasks"].values()
                    if task.config.num_fewshot is None:
                        task.set_config("num_fewshot", 0)
                    task.set_fewshot_seed(1234)
                    task.build_all_requests(limit=ROWS)
            except (KeyError, jinja2.UndefinedError) as error:
                errors[f"{type(error).__name__}: {error}"] += 1
                name = re.search(r"^'(\w+)'(?: is undefined)?$", str(error))
                if name and name[1] not in fields:
                    missing = name[1]
                    break
                continue
            except Exception as error:  # task code fails in every way there is
                errors[f"{type(error).__name__}: {error}"] += 1
                continue
            if (
                all(isinstance(text, str) for each in task.instances for text in each.args)
                and task.instances
            ):
                tried.task, tried.requests = task, len(task.instances)
                return
            errors["its requests hold more than texts, or there are none"] += 1
        if missing is None:
            break
        fields[missing] = Field()
    reason = errors.most_common(1)[0][0] if errors else "no rows"
    tried.reason = " ".join(reason.split())[:120]


def compare(batch: Sequence[Tried], theirs: HFLM, ours: ChoicewiseLM) -> None:
    """Ask both models all requests of ``batch``, and note what differs."""
    every = [(tried, each) for tried in batch for each in tried.task.instances]
    answers = []
    for model in (theirs, ours):
        requests = [each for _, each in every]
        try:
            answers.append(model.loglikelihood(requests, disable_tqdm=True))
        except (
            Exception
        ) as error:  # a request that neither can score stops them all: ask task by task
            if len(batch) > 1:
                for tried in batch:
                    compare([tried], theirs, ours)
                return
            side = "hf" if model is theirs else "ours"
            message = " ".join(str(error).split())[:100]
            batch[0].reason = f"{side}: {type(error).__name__}: {message}"
            if model is theirs:
                with contextlib.suppress(Exception):
                    ours.loglikelihood(requests)
                    batch[0].reason += " (ours answers)"
            return
    for (tried, _), (expected, greedy), (total, also) in zip(every, *answers, strict=True):
        tried.difference = max(
            tried.difference, abs(total - expected) if np.isfinite(expected) else 0.0
        )
        if greedy != also:
            tried.reason = "another greedy flag"
    for tried in batch:
        values = []
        for own in answers:
            for (owner, each), answer in zip(every, own, strict=True):
                if owner is tried:
                    each.resps = [answer]
            tried.task.apply_filters()
            values.append(metrics(tried.task))
        if tried.difference > NATS:
            tried.reason = f"log-likelihoods differ by {tried.difference:.1g} nats"
        elif values[0] != values[1]:
            tried.reason = tried.reason or "another value of a metric"


def metrics(task: Any) -> str:
    """The values of each document, numbers rounded to what float32 holds."""
    by_document = defaultdict(list)
    for each in task.instances:
        by_document[each.doc_id].append(each)
    values = []
    for own in by_document.values():
        own.sort(key=lambda each: each.idx)
        try:
            found = task.process_results(
                own[0].doc, [next(iter(each.filtered_resps.values())) for each in own]
            )
        except Exception as error:  # in both runs alike, or they are not equal
            found = {"error": type(error).__name__}
        values.append({name: _rounded(value) for name, value in found.items()})
    return json.dumps(values, default=str)


def _rounded(value: Any) -> Any:
    if isinstance(value, float | np.floating):
        return f"{value:.3g}"
    if isinstance(value, list | tuple | np.ndarray):
        return [_rounded(each) for each in value]
    return value


# The page


def page(results: Sequence[Tried], seconds: float, model: str, version: str) -> str:
    """The list, family by family."""
    families = defaultdict(list)
    for each in results:
        families[each.family].append(each)
    whole, equal, asked = (Counter[str]() for _ in range(3))
    for each in results:
        whole[each.family] += len(each.names)
        asked[each.family] += len(each.names) * bool(each.requests)
        equal[each.family] += len(each.names) * (bool(each.requests) and not each.reason)
    lines = [
        "# The harness's own tasks",
        "",
        "<!-- Written by benchmarks/harness_tasks.py: run it again. -->",
        "",
        f"Every configuration of output type `multiple_choice` in lm_eval {version}: {whole.total():,} in"
        f" {len(families)} families. Those that differ in their rows or description alone are one kind; of each kind,"
        " three stand-in rows with the fields that its templates and code name went through `--model hf` in float32 and"
        f" `--model choicewise` ({model}). Equal: every log-likelihood within 1e-4 nats, the same greedy flags,"
        " the same metrics of every document.",
        "",
        f"**{equal.total():,} of the {asked.total():,} configurations that were asked are equal**;"
        f" {whole.total() - asked.total():,} were not asked, as no rows could be made up for them.",
        "",
        "| family | configurations | kinds | asked | equal | why not |",
        "|---|--:|--:|--:|--:|---|",
    ]
    for family, own in sorted(families.items()):
        reasons = Counter[str]()
        for each in own:
            if each.reason:
                reasons[
                    each.reason.replace("|", "\\|")
                    .replace("<", "&lt;")
                    .replace("{", "(")
                    .replace("}", ")")
                ] += len(each.names)
        why = "; ".join(f"{count} × {reason}" for reason, count in reasons.most_common(2))
        lines.append(
            f"| {family} | {whole[family]} | {len(own)} | {asked[family]} | {equal[family]} | {why} |"
        )
    return "\n".join([*lines, ""])


def _kept(file: Path | None) -> list[dict[str, Any]]:
    """What an earlier, interrupted run of the same command has found out."""
    if file is None or not file.is_file():
        return []
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]


def _keep(file: Path | None, tried: Sequence[Tried]) -> None:
    """Let go of the tasks, and add what came of them to ``file``."""
    lines = ""
    for each in tried:
        each.task = None
        lines += (
            json.dumps({"names": each.names, "requests": each.requests, "reason": each.reason})
            + "\n"
        )
    if file is not None:
        with file.open("a", encoding="utf-8") as stream:
            stream.write(lines)


def main() -> None:
    """Run the comparison and print its summary."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", type=Path, default=min(MODELS))
    parser.add_argument("--family", nargs="*", default=[])
    parser.add_argument("--page", type=Path)
    parser.add_argument(
        "--kept", type=Path, help="a file of what came out so far, from which a run goes on"
    )
    options = parser.parse_args()
    logging.disable(logging.ERROR)
    datasets.disable_progress_bars()
    start, manager = time.monotonic(), TaskManager()
    every = kinds(manager, options.family)
    told = {"pretrained": str(options.model), "dtype": "float32", "device": "cpu"}
    theirs, ours = HFLM(logits_cache=False, batch_size=8, **told), ChoicewiseLM(**told)
    waiting: list[Tried] = []
    kept = {tuple(line["names"]): line for line in _kept(options.kept)}
    for number, (tried, config) in enumerate(every):
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            if (known := kept.get(tuple(tried.names))) is not None:
                tried.requests, tried.reason = known["requests"], known["reason"]
            else:
                build(manager, tried, config)
                waiting.append(tried)
            if len(waiting) == TOGETHER or number == len(every) - 1:
                if built := [each for each in waiting if each.task is not None]:
                    compare(built, theirs, ours)
                _keep(options.kept, waiting)
                waiting = []
        if number % 50 == 0:
            print(
                f"{number} of {len(every)} kinds, {time.monotonic() - start:.0f} s",
                file=sys.stderr,
                flush=True,
            )
    results = [tried for tried, _ in every]
    import lm_eval

    text = page(results, time.monotonic() - start, options.model.name, lm_eval.__version__)
    if options.page:
        options.page.write_text(text, encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
