"""Read samples of lm-eval 0.4: the requests and answers of each item, and its right choices.

Requests are ``gen_args_I`` and numbers texts since 0.4.2; before, lists and numbers.

``target`` is an index, a list of them, or the text of a choice.  If contexts differ it is the text
that follows them all, and the index is somewhere in the row of the data.  So every rule by which a
file may name right choices is tried on all of its items, and kept only while it agrees with the
``acc`` that the file has of each.
"""

from __future__ import annotations

import ast
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from operator import itemgetter
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from choicewise.errors import DataError
from choicewise.extensions.interop.logs.files import (
    Rows,
    begins_a_list,
    flag,
    index,
    mapping,
    number,
    read_rows,
)
from choicewise.extensions.interop.logs.verdicts import HARNESS, share, sums
from choicewise.logs import LoggedChoice, LoggedItem
from choicewise.report.logged import ROUNDING
from choicewise.util.jsonio import JsonMapping
from choicewise.util.text import common_start


@dataclass(frozen=True)
class SampleRows:
    """Iterate the sample lines of one ``filter`` by their ids; ``others``: filters left out."""

    rows: Rows
    filter: str
    others: tuple[str, ...]

    def __iter__(self) -> Iterator[Sample]:
        for (_, doc_id), row in self.rows:
            yield read_sample(row, f"{self.rows.path}, doc_id {doc_id}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """Hold a sample line.

    ``context``: the context of all choices, None if they have their own.  ``target`` and ``doc``:
    unchanged from the file.  ``metrics``: the numbers that the line has of the item, by name;
    ``others``: the names of metrics that are no numbers.
    """

    id: int
    context: str | None
    choices: tuple[LoggedChoice, ...]
    target: Any
    doc: JsonMapping
    metrics: Mapping[str, float]
    others: tuple[str, ...] = ()

    @property
    def own_contexts(self) -> bool:
        """Return whether the choices differ in their contexts and not in the scored text."""
        return self.context is None and len({choice.text for choice in self.choices}) == 1


Golds = tuple[int, ...] | None
"""Indices of the right choices, None if a rule finds none in a sample."""


@dataclass(frozen=True)
class GoldRule:
    """Name a rule that finds the right choices of a sample, given its options."""

    name: str
    read: Callable[[Sample, Sequence[str]], Golds]


_NO_SCORE = "none of these scores"


@dataclass(kw_only=True)
class Scan:
    """Hold the findings of one pass over all samples: the rule for right choices, sums of metrics.

    ``delimiter``: the text before every choice, None if it is not known.  ``whole``: every choice
    is all of the scored text.  ``bare``: every choice is the scored text without its first space.
    ``others``: the names of metrics that are no numbers.
    """

    gold: GoldRule
    delimiter: str | None = None
    unconditional: bool = False
    whole: bool = True
    bare: bool = True
    items: int = 0
    sums: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))
    counts: Counter[str] = field(default_factory=Counter)
    others: set[str] = field(default_factory=set)
    unused: tuple[str, ...] = ()

    @property
    def lengths(self) -> str:
        """Return the score with the harness's lengths (lm_eval/api/task.py@4e7e0d4:1494)."""
        if "acc_norm" not in self.sums:
            return ""
        if self.bare:
            return "char_mean_bare"
        if self.whole:
            return "char_mean"
        return _NO_SCORE

    def options(self, sample: Sample) -> tuple[str, ...] | None:
        """Return the choices of the data: the scored texts without their delimiter."""
        texts = [choice.text for choice in sample.choices if choice.text is not None]
        if len(texts) < len(sample.choices):
            return None
        if sample.own_contexts:
            return _differing_words([choice.context or "" for choice in sample.choices])
        # The harness joins context and continuation with a space unless the task has a delimiter.
        delimiter = " " if self.delimiter is None else self.delimiter
        return tuple(text.removeprefix(delimiter) for text in texts)

    def add(self, sample: Sample, options: Sequence[str]) -> None:
        """Add the texts and metrics of a sample."""
        texts = [choice.text or "" for choice in sample.choices]
        self.whole &= list(options) == texts
        self.bare &= list(options) == [text.removeprefix(" ") for text in texts]
        self.unconditional |= any(choice.unconditional is not None for choice in sample.choices)
        self.items += 1
        self.others.update(sample.others)
        for name, value in sample.metrics.items():
            self.sums[name] += value
            self.counts[name] += 1


def read_items(rows: SampleRows, scan: Scan, task_computes: bool) -> Iterator[LoggedItem]:
    """Yield the items of a file.

    ``task_computes``: whether the task computes its metrics itself, so that they can't be checked.
    """
    for sample in rows:
        options = scan.options(sample)
        yield LoggedItem(
            id=str(sample.id),
            gold=scan.gold.read(sample, options or ()) or (),
            choices=sample.choices,
            context=sample.context,
            options=options,
            recorded=_recorded(sample, task_computes),
        )


def _recorded(sample: Sample, task_computes: bool) -> dict[str, float]:
    """Return the metrics that follow from the log-likelihoods of a sample."""
    recorded = {}
    metric = meaning(sample)
    if "acc" in sample.metrics and (metric != "acc" or not task_computes):
        recorded[metric] = sample.metrics["acc"]
    for name, value in sample.metrics.items():
        if task_computes or name not in HARNESS or name in ("acc", *recorded):
            continue
        # With contexts of their own, the harness divides by the lengths of the contexts.
        if name == "exact_match" or not sample.own_contexts:
            recorded[name] = value
    return recorded


def is_list(path: Path) -> bool:
    """Return whether a file is one JSON list of samples, which 0.4.0 wrote."""
    return begins_a_list(path, "doc_id", "resps")


def sample_rows(path: Path) -> SampleRows:
    """Find the samples in a file.  Raises DataError if an id is repeated, or there are none."""
    rows = read_rows(path, is_list(path), sample_key)
    if not rows.places:
        raise DataError(f"{path} holds no samples")
    # Of several filters "none" is read, else the one that comes first in the file.
    in_file = sorted(rows.places, key=itemgetter(1))
    filters = dict.fromkeys(name for (name, _), _ in in_file)
    chosen, *others = sorted(filters, key=lambda name: name != "none")
    places = [(key, offset) for key, offset in rows.places if key[0] == chosen]
    counts = Counter(doc_id for (_, doc_id), _ in places)
    repeated = [doc_id for doc_id, count in counts.items() if count > 1]
    if repeated:
        raise DataError(
            f"{path} has doc_id {repeated[0]} more than once ({len(repeated):,} ids are); is it of "
            "two models or runs? Import them one by one"
        )
    return SampleRows(replace(rows, places=places), chosen, tuple(others))


class NoLikelihoods(DataError):
    """The task of a file has no log-likelihoods of choices."""


_REQUEST = re.compile(r"gen_args_(\d+)", re.ASCII)


def sample_key(row: JsonMapping, where: str) -> tuple[str, int]:
    """Return the filter and the id of a sample line.  Raises DataError if it has no id."""
    doc_id = index(row.get("doc_id"))
    if doc_id is None or "resps" not in row:
        raise DataError(
            f"{where} is not a sample of lm-evaluation-harness 0.4: it has no doc_id and "
            "resps; is it of another version?"
        )
    name = row.get("filter")
    if not isinstance(name, str):
        name = "none"
    return name, doc_id


class _Request(NamedTuple):
    """Hold the texts of a request, None if the line does not have them."""

    context: str | None = None
    continuation: str | None = None


_FIELDS = frozenset(
    {"doc_id", "doc", "target", "arguments", "resps", "filtered_resps", "filter", "metrics"}
)
"""Fields of a sample line that are no metrics; those that end in ``_hash`` are none either."""


def read_sample(row: JsonMapping, where: str) -> Sample:
    """Return the sample in a line, in which numbers and true and false may be texts.

    Raises DataError, naming ``where``, for a task whose answers are not log-likelihoods, and for a
    line that is malformed.
    """
    _, doc_id = sample_key(row, where)
    requests = _requests(row.get("arguments"), where)
    answers = _answers(row, where)
    if len(answers) > len(requests) > 0:
        raise DataError(f"{where} has {len(answers)} answers and {len(requests)} requests")
    if not requests:
        requests = [_Request()] * len(answers)
    answers += [None] * (len(requests) - len(answers))
    choices = []
    for position, (answer, request) in enumerate(zip(answers, requests, strict=True)):
        choices.append(_choice(answer, request.continuation, f"{where}, request {position}"))
    metrics = {}
    others = []
    for name, cell in row.items():
        if name in _FIELDS or name.endswith("_hash"):
            continue
        value = _metric(cell)
        if value is None:
            others.append(name)
        else:
            metrics[name] = value
    contexts = [request.context for request in requests]
    if _has_mutual(requests, metrics):
        half = len(choices) // 2
        after_null = choices[half:]
        choices = [
            replace(choice, unconditional=null.loglikelihood)
            for choice, null in zip(choices[:half], after_null, strict=True)
        ]
        contexts = contexts[:half]
    context = None
    if len(set(contexts)) == 1:
        context = contexts[0]
    elif any(text is not None for text in contexts):
        choices = [
            replace(choice, context=text) for choice, text in zip(choices, contexts, strict=True)
        ]
    return Sample(
        id=doc_id,
        context=context,
        choices=tuple(choices),
        target=row.get("target"),
        doc=mapping(row.get("doc")),
        metrics=metrics,
        others=tuple(others),
    )


def _requests(arguments: Any, where: str) -> list[_Request]:
    """Return the requests of a line in order, nothing if it has no arguments."""
    if isinstance(arguments, dict):
        pairs = _numbered_pairs(arguments)
    elif isinstance(arguments, list):
        # Further arguments of a request, such as options of its generation, are not read.
        pairs = [pair[:2] for pair in arguments if isinstance(pair, list) and len(pair) > 1]
        if len(pairs) < len(arguments):
            raise DataError(f"{where}: its requests are no pairs of context and continuation")
    else:
        return []
    requests = []
    for context, continuation in pairs:
        if not isinstance(context, str) or not isinstance(continuation, str):
            raise NoLikelihoods(
                f"{where}: its requests are no pairs of context and continuation, so the task has "
                "no log-likelihoods of choices"
            )
        requests.append(_Request(context, continuation))
    return requests


def _numbered_pairs(arguments: JsonMapping) -> list[Any]:
    """Return the context and continuation of ``gen_args_0``, ``gen_args_1`` and so on."""
    numbered = []
    for name, argument in arguments.items():
        match = _REQUEST.fullmatch(name)
        if match and isinstance(argument, dict):
            numbered.append((int(match[1]), (argument.get("arg_0"), argument.get("arg_1"))))
    # The 10th comes after the 9th, and not after the 1st.
    numbered.sort(key=itemgetter(0))
    return [pair for _, pair in numbered]


def _answers(row: JsonMapping, where: str) -> list[Any]:
    """Return the first answer to each request, None for a request without any."""
    resps = row["resps"]
    if not isinstance(resps, list):
        raise DataError(f"{where}: resps is no list")
    if not resps and isinstance(row.get("filtered_resps"), list):
        return list(row["filtered_resps"])
    answers = []
    for repetitions in resps:
        if not isinstance(repetitions, list):
            answers.append(repetitions)
        elif repetitions:
            answers.append(repetitions[0])
        else:
            answers.append(None)
    return answers


def _choice(answer: Any, text: str | None, where: str) -> LoggedChoice:
    if answer is None:
        return LoggedChoice(text=text, missing="the log has no answer for it")
    if not isinstance(answer, list) or len(answer) != 2:
        raise NoLikelihoods(
            f"{where}: its answer is {str(answer)[:60]!r}, not a log-likelihood and a greedy flag; "
            "only tasks of the output types multiple_choice and loglikelihood have these"
        )
    value = number(answer[0], f"{where}: its log-likelihood")
    greedy = flag(answer[1], f"{where}: is_greedy")
    missing = None
    if value is None:
        missing = "the log has NaN"
    return LoggedChoice(loglikelihood=value, text=text, greedy=greedy, missing=missing)


def _metric(cell: Any) -> float | None:
    """Return the number in a cell, which may be a text, None if it is no number."""
    if isinstance(cell, bool | int | float):
        return float(cell)
    if not isinstance(cell, str):
        return None
    if cell in ("True", "False"):
        return float(cell == "True")
    try:
        return number(cell, "")
    except DataError:
        return None


def _has_mutual(requests: Sequence[_Request], metrics: Mapping[str, float]) -> bool:
    """Return whether the second half of the requests repeats the first half without contexts."""
    half = len(requests) // 2
    first = requests[:half]
    second = requests[half:]
    if not first or len(first) != len(second):
        return False
    if any(request.context for request in second):
        return False
    if "acc_mutual_info" in metrics:
        return True
    texts = [request.continuation for request in requests]
    return texts[:half] == texts[half:] and all(request.context for request in first)


def _index_list(target: Any) -> list[int] | None:
    """Return the indices in a target, None if it is no list of them."""
    # The list is a text in newer files.
    if isinstance(target, str) and target.startswith("[") and len(target) < 1_000:
        try:
            target = ast.literal_eval(target)
        except (ValueError, SyntaxError, MemoryError, RecursionError):
            return None
    if not isinstance(target, list):
        return None
    # A list of texts is no list of indices.
    indices = [choice for choice in map(index, target) if choice is not None]
    return indices if len(indices) == len(target) else None


def _differing_words(contexts: Sequence[str]) -> tuple[str, ...]:
    """Return the words of each context between those that all begin and end with."""
    words = [context.split(" ") for context in contexts]
    start = common_start(words)
    rests = [row[start:] for row in words]
    end = common_start([rest[::-1] for rest in rests])
    return tuple(" ".join(rest[: len(rest) - end]) for rest in rests)


def scan_samples(path: Path, rows: SampleRows, delimiter: Any) -> Scan:
    """Find the rule for right choices, and sum up the metrics.

    ``delimiter``: the text before every choice, if the results have it.  Raises DataError if no
    rule agrees with the ``acc`` of all samples.
    """
    rules: list[GoldRule] | None = None
    scan = Scan(gold=_BY_ACC)
    if isinstance(delimiter, str):
        scan.delimiter = delimiter
    for sample in rows:
        options = scan.options(sample) or ()
        if rules is None:
            rules = _candidates(sample.doc)
        rules = [rule for rule in rules if _fits(sample, rule.read(sample, options))]
        if not rules:
            raise DataError(
                f"{path}: can't tell which choices are right: {_objection(sample, options)}"
            )
        # The first of the rules that are left is the one nearest to the harness.
        scan.gold = rules[0]
        scan.add(sample, options)
    scan.unused = _unused(scan, rows)
    return scan


def _objection(sample: Sample, options: Sequence[str]) -> str:
    """Return how the target and the ``acc`` of a sample disagree."""
    golds = _target(sample, options)
    choices = str(list(golds)) if golds else "no choice"
    return (
        f"at doc_id {sample.id} its target {str(sample.target)[:60]!r} reads as {choices}, "
        f"which does not agree with its acc of {sample.metrics.get('acc')}"
    )


def _unused(scan: Scan, rows: SampleRows) -> tuple[str, ...]:
    """Return the filters and metrics that are not imported, or not checked, in words."""
    lines = [f"filter {name}" for name in rows.others]
    unchecked = sorted(scan.sums.keys() - HARNESS.keys())
    if unchecked:
        lines.append(f"metrics {', '.join(unchecked)}, which are not checked")
    if scan.others:
        names = ", ".join(sorted(scan.others))
        lines.append(f"metrics {names}, which are no number of an item")
    if scan.lengths == _NO_SCORE and scan.delimiter:
        lines.append(
            f"acc_norm, whose lengths leave out {scan.delimiter!r} before each choice: no score "
            "here does"
        )
    return tuple(lines)


FIELDS = 100
"""Fields of a row of data that are tried."""


def _candidates(doc: JsonMapping) -> list[GoldRule]:
    """Return all rules for right choices: the harness's first, the guess from ``acc`` last."""
    rules = [GoldRule("the only choice", _only_choice)]
    # A row may have thousands of fields, and each makes four rules.
    fields = list(doc)[:FIELDS]
    for name in fields:
        # TruthfulQA has a label in the data for each choice.
        if isinstance(doc[name], dict) and isinstance(doc[name].get("labels"), list):
            rules.append(GoldRule(f"labels of {name}.labels", partial(_labels, name)))
    rules.append(GoldRule("target", _target))
    rules.append(GoldRule("text of target", partial(_text, None)))
    for name in fields:
        rules += [
            GoldRule(f"field {name}, counted from 0", partial(_field_index, name, index)),
            GoldRule(f"field {name}, counted from 1", partial(_field_index, name, _from_1)),
            GoldRule(f"field {name}, a letter", partial(_field_index, name, _letter)),
            GoldRule(f"text of field {name}", partial(_text, name)),
        ]
    return [*rules, _BY_ACC]


def _only_choice(sample: Sample, options: Sequence[str]) -> Golds:
    if len(sample.choices) != 1:
        return None
    return (0,)


def _target(sample: Sample, options: Sequence[str]) -> Golds:
    """Return the choices of the target; digits are an index even if a choice has that text."""
    indices = _index_list(sample.target)
    if indices is not None:
        return tuple(indices)
    choice = index(sample.target)
    if choice is not None:
        return (choice,)
    return _text(None, sample, options)


def _text(name: str | None, sample: Sample, options: Sequence[str]) -> Golds:
    """Return the first choice with the text of the field ``name``, or of the target."""
    value = sample.target if name is None else sample.doc.get(name)
    if sample.own_contexts or not isinstance(value, str):
        return None
    if value in options:
        return (options.index(value),)
    stripped = [option.strip() for option in options]
    if value.strip() not in stripped:
        return None
    return (stripped.index(value.strip()),)


def _field_index(
    name: str, read: Callable[[Any], int | None], sample: Sample, options: Sequence[str]
) -> Golds:
    choice = read(sample.doc.get(name))
    if choice is None:
        return None
    return (choice,)


def _labels(name: str, sample: Sample, options: Sequence[str]) -> Golds:
    holder = sample.doc.get(name)
    if not isinstance(holder, dict):
        return None
    labels = holder.get("labels")
    if not isinstance(labels, list) or len(labels) != len(sample.choices):
        return None
    return tuple(choice for choice, label in enumerate(labels) if index(label) == 1)


def _from_1(value: Any) -> int | None:
    choice = index(value)
    if choice is None:
        return None
    return choice - 1


def _letter(value: Any) -> int | None:
    if not isinstance(value, str) or re.fullmatch("[A-Z]", value) is None:
        return None
    return ord(value) - ord("A")


def _by_acc(sample: Sample, options: Sequence[str]) -> Golds:
    """Return the predicted choice if it is right, or the other one of two if it is wrong."""
    acc = sample.metrics.get("acc")
    if acc == 1.0:
        return (_predicted(sample),)
    # A wrong prediction tells the right choice only if there are two.
    if acc == 0.0 and len(sample.choices) == 2:
        return (1 - _predicted(sample),)
    return None


_BY_ACC = GoldRule("acc", _by_acc)


def _fits(sample: Sample, golds: Golds) -> bool:
    """Return whether ``golds`` agree with the ``acc`` of a sample."""
    if golds is None:
        return False
    # Without all log-likelihoods the acc can not be computed.
    if any(choice.loglikelihood is None for choice in sample.choices):
        return True
    acc = sample.metrics.get("acc")
    right = [choice for choice in sorted(set(golds)) if 0 <= choice < len(sample.choices)]
    metric = meaning(sample)
    if acc is None or metric == "greedy":
        return bool(right)
    # The task truthfulqa_mc2 calls its number acc.
    if metric == "mc2":
        return abs(acc - share(sample.choices, right)) <= ROUNDING
    return acc == float(_predicted(sample) in right)


def meaning(sample: Sample) -> str:
    """Return which metric the ``acc`` of a sample is; a task may compute its own."""
    if len(sample.choices) == 1:
        return "greedy"
    if sample.metrics.get("acc", 0.0) in (0.0, 1.0):
        return "acc"
    return "mc2"


def _predicted(sample: Sample) -> int:
    return int(np.argmax(sums(sample.choices)))
