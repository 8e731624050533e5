"""Samples of lm-eval 0.4: what was asked and answered of each item, and which choice is right.

Requests are ``gen_args_I`` and numbers texts since 0.4.2; before, lists and numbers.

``target`` is an index, a list of them, or the text of a choice.  Where contexts differ it is the text that follows them
all, and the index stands somewhere in the row of the data.  So every way in which a file may say it is tried on all of
its items, and kept only while it agrees with the ``acc`` that the file itself has of each.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from choicewise.errors import DataError
from choicewise.extensions.interop.logs.checks import ROUNDING
from choicewise.extensions.interop.logs.files import (
    Rows,
    begins_a_list,
    flag,
    index,
    number,
    read_rows,
)
from choicewise.extensions.interop.logs.verdicts import HARNESS, share, sums
from choicewise.logs import LoggedChoice, LoggedItem


@dataclass(frozen=True)
class SampleRows:
    """The sample lines of one ``filter`` in the order of their ids; ``others``: the filters that are left out."""

    rows: Rows
    filter: str
    others: tuple[str, ...]

    def __iter__(self) -> Iterator[Sample]:
        for (_, doc_id), row in self.rows:
            yield read_sample(row, f"{self.rows.path}, doc_id {doc_id}")


@dataclass(frozen=True, slots=True)
class Sample:
    """A sample line.

    ``context``: that of all choices, None where they have their own.  ``target`` and ``doc``: as the file has them.
    ``metrics``: the numbers that the line says of the item, by name, and ``others`` the names of what is no number.
    """

    id: int
    filter: str
    context: str | None
    choices: tuple[LoggedChoice, ...]
    target: Any
    doc: Mapping[str, Any]
    metrics: Mapping[str, float]
    others: tuple[str, ...] = ()

    @property
    def own_contexts(self) -> bool:
        """Whether the choices differ in their contexts and not in what is scored."""
        return self.context is None and len({choice.text for choice in self.choices}) == 1


Golds = Callable[[Sample, Sequence[str]], tuple[int, ...] | None]
"""From a sample and its options to the right choices; None where it does not say them so."""


@dataclass
class Scan:
    """What one reading of all samples says: how right choices are named, and the sums of their metrics.

    ``whole`` and ``bare``: whether every choice is all that was scored, or that without the space it begins with.
    """

    delimiter: str | None
    gold: tuple[str, Golds] = ("", lambda sample, options: None)
    unconditional: bool = False
    whole: bool = True
    bare: bool = True
    items: int = 0
    sums: Counter[str] = field(default_factory=Counter)
    counts: Counter[str] = field(default_factory=Counter)
    unused: tuple[str, ...] = ()

    @property
    def lengths(self) -> str:
        """Which score divides by the lengths that the harness divides by (lm_eval/api/task.py@4e7e0d4:1494)."""
        if "acc_norm" not in self.sums:
            return ""
        return (
            "char_mean_bare" if self.bare else "char_mean" if self.whole else "none of these scores"
        )

    def options(self, sample: Sample) -> tuple[str, ...] | None:
        """The choices as the data have them: what is scored, without what stands before each."""
        texts = [choice.text for choice in sample.choices]
        known = [text for text in texts if text is not None]
        if len(known) < len(texts):
            return None
        if sample.own_contexts:
            return _differing([choice.context or "" for choice in sample.choices])
        before = " " if self.delimiter is None else self.delimiter
        return tuple(text.removeprefix(before) for text in known)


def read_items(rows: SampleRows, scan: Scan, own: bool) -> Iterator[LoggedItem]:
    """The items of a file.  ``own``: whether the task computes its metrics itself, so that they can't be checked."""
    for sample in rows:
        options = scan.options(sample)
        gold = scan.gold[1](sample, options or ())
        kind = meaning(sample)
        checked = () if own else sample.metrics.items()
        recorded = {name: value for name, value in checked if name in HARNESS and name != "acc"}
        if sample.own_contexts:  # the harness divides by the length of contexts
            recorded = {name: value for name, value in recorded.items() if name == "exact_match"}
        if "acc" in sample.metrics and (kind != "acc" or not own):
            recorded[kind] = sample.metrics["acc"]
        yield LoggedItem(
            id=str(sample.id),
            gold=gold or (),
            choices=sample.choices,
            context=sample.context,
            options=options,
            recorded=recorded,
        )


def is_list(path: Path) -> bool:
    """Whether it is one JSON list of samples, as 0.4.0 wrote them."""
    return begins_a_list(path, "doc_id", "resps")


def sample_rows(path: Path) -> SampleRows:
    """Where the samples lie.  Raises DataError where an id stands twice, or the file holds nothing."""
    rows = read_rows(path, is_list(path), sample_key)
    if not rows.places:
        raise DataError(f"{path} holds no samples")
    # of several filters in the order of the file
    filters = [name for (name, _), _ in sorted(rows.places, key=lambda each: each[1])]
    chosen, *others = sorted(dict.fromkeys(filters), key=lambda name: name != "none")
    own = [(key, place) for key, place in rows.places if key[0] == chosen]
    counts = Counter(doc_id for (_, doc_id), _ in own)
    if doubles := [doc_id for doc_id, count in counts.items() if count > 1]:
        raise DataError(
            f"{path} has doc_id {doubles[0]} more than once ({len(doubles):,} ids are); is it of two models or runs? "
            "Import them one by one"
        )
    return SampleRows(replace(rows, places=own), chosen, tuple(others))


class NoLikelihoods(DataError):
    """The task of a file has no log-likelihoods of choices."""


_REQUEST = re.compile(r"gen_args_(\d+)", re.ASCII)


def sample_key(row: Mapping[str, Any], where: str) -> tuple[str, int]:
    """The filter and the id of a sample line; DataError where it is none."""
    doc_id = index(row.get("doc_id"))
    if doc_id is None or "resps" not in row:
        raise DataError(
            f"{where} is no sample of lm-evaluation-harness 0.4: it has no doc_id and resps; is it of another version?"
        )
    name = row.get("filter")
    return name if isinstance(name, str) else "none", doc_id


def read_sample(row: Mapping[str, Any], where: str) -> Sample:
    """The sample that ``row`` is.

    Numbers and true and false may be texts.  Raises DataError, saying ``where``, for a task whose answers are not
    log-likelihoods, and for a row that is malformed.
    """
    name, doc_id = sample_key(row, where)
    asked = _pairs(row.get("arguments"), where)
    answers = _answers(row, where)
    if len(answers) > len(asked) > 0:
        raise DataError(f"{where} has {len(answers)} answers and {len(asked)} requests")
    count = max(len(asked), len(answers))
    asked = asked or [(None, None)] * count
    choices = tuple(
        _choice(answers[place] if place < len(answers) else None, text, f"{where}, request {place}")
        for place, (_, text) in enumerate(asked)
    )
    known = {"doc_id", "doc", "target", "arguments", "resps", "filtered_resps", "filter", "metrics"}
    said = {
        name: value
        for name, value in row.items()
        if name not in known and not name.endswith("_hash")
    }
    metrics = {name: value for name, cell in said.items() if (value := _metric(cell)) is not None}
    others = tuple(name for name in said if name not in metrics)
    contexts = [context for context, _ in asked]
    if _has_mutual(asked, metrics):
        half = len(choices) // 2
        choices = tuple(
            replace(choice, unconditional=after.loglikelihood)
            for choice, after in zip(choices[:half], choices[half:], strict=True)
        )
        contexts = contexts[:half]
    shared = contexts[0] if len(set(contexts)) == 1 else None
    if shared is None and any(context is not None for context in contexts):
        choices = tuple(
            replace(choice, context=context)
            for choice, context in zip(choices, contexts, strict=True)
        )
    doc = row.get("doc")
    doc = doc if isinstance(doc, dict) else {}
    return Sample(doc_id, name, shared, choices, row.get("target"), doc, metrics, others)


def _pairs(arguments: Any, where: str) -> list[tuple[str | None, str | None]]:
    """(context, continuation) of every request, in order; none where the line has no arguments."""
    if isinstance(arguments, dict):
        known = (
            (_REQUEST.fullmatch(name), each)
            for name, each in arguments.items()
            if isinstance(each, dict)
        )
        numbered = sorted(
            ((int(match[1]), each) for match, each in known if match), key=lambda pair: pair[0]
        )
        rows = [(each.get("arg_0"), each.get("arg_1")) for _, each in numbered]
    elif isinstance(arguments, list):
        rows = [tuple(each[:2]) for each in arguments if isinstance(each, list) and len(each) > 1]
        if len(rows) < len(arguments):
            raise DataError(f"{where}: its requests are no pairs of context and continuation")
    else:
        return []
    texts = [
        (context, text)
        for context, text in rows
        if isinstance(context, str) and isinstance(text, str)
    ]
    if len(texts) < len(rows):
        raise NoLikelihoods(
            f"{where}: its requests are no pairs of context and continuation; a task that is answered in text, or that "
            "scores whole documents, has no log-likelihoods of choices"
        )
    return [*texts]


def _answers(row: Mapping[str, Any], where: str) -> list[Any]:
    """What answers each request: its first repetition, or None where there is none."""
    resps = row["resps"]
    if not isinstance(resps, list):
        raise DataError(f"{where}: resps is no list")
    if not resps and isinstance(row.get("filtered_resps"), list):
        return list(row["filtered_resps"])
    return [(each[0] if each else None) if isinstance(each, list) else each for each in resps]


def _choice(answer: Any, text: str | None, where: str) -> LoggedChoice:
    if answer is None:
        return LoggedChoice(text=text, missing="the log has no answer for it")
    if isinstance(answer, list) and len(answer) == 2:
        value, greedy = (
            number(answer[0], f"{where}: its log-likelihood"),
            flag(answer[1], f"{where}: is_greedy"),
        )
        missing = "the log says NaN" if value is None else None
        return LoggedChoice(loglikelihood=value, text=text, greedy=greedy, missing=missing)
    raise NoLikelihoods(
        f"{where}: its answer is {str(answer)[:60]!r}, and no log-likelihood with whether it is greedy; only tasks of "
        "the output types multiple_choice and loglikelihood have these"
    )


def _metric(cell: Any) -> float | None:
    """The number that a cell says of the item, which may be a text; None where it says none."""
    if isinstance(cell, str):
        try:
            return float(cell == "True") if cell in ("True", "False") else number(cell, "")
        except DataError:
            return None
    return float(cell) if isinstance(cell, bool | int | float) else None


def _has_mutual(
    asked: Sequence[tuple[str | None, str | None]], metrics: Mapping[str, float]
) -> bool:
    """Whether the second half of the requests asks the first again after nothing."""
    half = len(asked) // 2
    if len(asked) < 2 or len(asked) % 2 or any(context for context, _ in asked[half:]):
        return False
    repeated = [text for _, text in asked[:half]] == [text for _, text in asked[half:]]
    return "acc_mutual_info" in metrics or (
        repeated and all(context for context, _ in asked[:half])
    )


def listed(target: Any) -> list[int] | None:
    """The indices that a target lists, which is text in newer files; None where it is no list of them."""
    if isinstance(target, str) and target.startswith("[") and len(target) < 1_000:
        try:
            target = ast.literal_eval(target)
        except (ValueError, SyntaxError, MemoryError, RecursionError):
            return None
    if not isinstance(target, list):
        return None
    indices = [index(each) for each in target]
    known = [each for each in indices if each is not None]
    return known if len(known) == len(indices) else None


def _differing(contexts: Sequence[str]) -> tuple[str, ...]:
    """What contexts have of their own, in whole words."""
    words = [context.split(" ") for context in contexts]
    least = min(map(len, words))
    start = next(
        (place for place in range(least) if len({each[place] for each in words}) > 1), least
    )
    most = least - start
    end = next(
        (place for place in range(most) if len({each[-1 - place] for each in words}) > 1), most
    )
    return tuple(" ".join(each[start : len(each) - end]) for each in words)


def scan_samples(path: Path, rows: SampleRows, delimiter: Any) -> Scan:
    """``delimiter``: what stands before every choice, where the results say it.  DataError without right choices."""
    scan, rules, objection = Scan(delimiter if isinstance(delimiter, str) else None), None, ""
    left_out: dict[str, None] = {}
    for sample in rows:
        options, texts = (
            scan.options(sample) or (),
            [choice.text or "" for choice in sample.choices],
        )
        rules = _candidates(sample.doc) if rules is None else rules
        fitting = {
            name: rule for name, rule in rules.items() if _fits(sample, rule(sample, options))
        }
        if rules and not fitting:
            read, said = _target(sample, options), sample.metrics.get("acc")
            asked = f"its target {str(sample.target)[:60]!r} reads as {list(read) if read else 'no choice'}"
            objection = (
                f"at doc_id {sample.id} {asked}, which does not agree with its acc of {said}"
            )
        rules = fitting
        scan.whole &= list(options) == texts
        scan.bare &= list(options) == [text.removeprefix(" ") for text in texts]
        scan.unconditional |= any(choice.unconditional is not None for choice in sample.choices)
        scan.items += 1
        left_out |= dict.fromkeys(sample.others)
        for name, value in sample.metrics.items():
            scan.sums[name] += value  # type: ignore[assignment]  # a counter adds floats, too
            scan.counts[name] += 1
    if not rules:
        raise DataError(f"{path}: it can't be read which choices are right: {objection}")
    scan.gold = next(iter(rules.items()))
    others = [f"filter {name}" for name in rows.others]
    unchecked = sorted(name for name in scan.sums if name not in HARNESS)
    metrics = [f"metrics {', '.join(unchecked)}, which are not checked"] if unchecked else []
    trimmed = f"acc_norm, whose lengths leave out {scan.delimiter!r} before each choice: no score here does"
    norms = [trimmed] if scan.lengths and not (scan.whole or scan.bare) and scan.delimiter else []
    no_numbers = (
        [f"metrics {', '.join(sorted(left_out))}, which are no number of an item"]
        if left_out
        else []
    )
    scan.unused = (*others, *metrics, *no_numbers, *norms)
    return scan


FIELDS = 100
"""Fields of a row of data that are tried."""


def _candidates(doc: Mapping[str, Any]) -> dict[str, Golds]:
    """Every way to name right choices, the harness's own first, and what only guesses from ``acc`` last."""

    def field(name: str, read: Callable[[Any], int | None]) -> Golds:
        return lambda sample, options: (
            None if (place := read(sample.doc.get(name))) is None else (place,)
        )

    rules: dict[str, Golds] = {
        "the only choice": lambda sample, options: (0,) if len(sample.choices) == 1 else None
    }
    fields = list(doc)[:FIELDS]
    for name in fields:  # labels in the data, one for each choice, as TruthfulQA has them
        if isinstance(doc[name], dict) and isinstance(doc[name].get("labels"), list):
            rules[f"labels of {name}.labels"] = partial(_labels, name)
    rules["target"] = _target
    rules["text of target"] = lambda sample, options: _text(sample.target, sample, options)
    for name in fields:
        rules[f"field {name}, counted from 0"] = field(name, index)
        rules[f"field {name}, counted from 1"] = field(name, _from_1)
        rules[f"field {name}, a letter"] = field(name, _letter)
        rules[f"text of field {name}"] = partial(_field_text, name)
    return rules | {"acc": _by_acc}


def _target(sample: Sample, options: Sequence[str]) -> tuple[int, ...] | None:
    """As the harness reads it: digits are an index, whatever the choices are called."""
    if (several := listed(sample.target)) is not None:
        return tuple(several)
    place = index(sample.target)
    return (place,) if place is not None else _text(sample.target, sample, options)


def _text(value: Any, sample: Sample, options: Sequence[str]) -> tuple[int, ...] | None:
    """The first choice with that text."""
    if sample.own_contexts or not isinstance(value, str):
        return None
    if value in options:
        return (options.index(value),)
    stripped = [option.strip() for option in options]
    return (stripped.index(value.strip()),) if value.strip() in stripped else None


def _field_text(name: str, sample: Sample, options: Sequence[str]) -> tuple[int, ...] | None:
    return _text(sample.doc.get(name), sample, options)


def _labels(name: str, sample: Sample, options: Sequence[str]) -> tuple[int, ...] | None:
    holder = sample.doc.get(name)
    labels = holder.get("labels") if isinstance(holder, dict) else None
    if not isinstance(labels, list) or len(labels) != len(sample.choices):
        return None
    return tuple(place for place, label in enumerate(labels) if index(label) == 1)


def _from_1(value: Any) -> int | None:
    return None if (place := index(value)) is None else place - 1


def _letter(value: Any) -> int | None:
    one = isinstance(value, str) and len(value) == 1 and value.isascii() and value.isupper()
    return ord(value) - ord("A") if one else None


def _by_acc(sample: Sample, options: Sequence[str]) -> tuple[int, ...] | None:
    """What ``acc`` leaves: the predicted choice where it is right, the other one of two where it is wrong."""
    if sample.metrics.get("acc") == 1.0:
        return (_predicted(sample),)
    return (
        (1 - _predicted(sample),)
        if len(sample.choices) == 2 and sample.metrics.get("acc") == 0.0
        else None
    )


def _fits(sample: Sample, golds: tuple[int, ...] | None) -> bool:
    """Whether ``golds`` agree with what the sample says of itself."""
    if golds is None or any(choice.loglikelihood is None for choice in sample.choices):
        return golds is not None
    said = sample.metrics.get("acc")
    right = sorted({place for place in golds if 0 <= place < len(sample.choices)})
    if said is None or meaning(sample) == "greedy":
        return bool(right)
    if meaning(sample) == "mc2":
        return abs(said - share(sample.choices, right)) <= ROUNDING
    return said == float(_predicted(sample) in right)


def meaning(sample: Sample) -> str:
    """What the metric ``acc`` is of this item: a task may compute its own."""
    said = sample.metrics.get("acc")
    if len(sample.choices) == 1:
        return "greedy"
    return "acc" if said is None or said in (0.0, 1.0) else "mc2"


def _predicted(sample: Sample) -> int:
    return int(np.argmax(sums(sample.choices)))
