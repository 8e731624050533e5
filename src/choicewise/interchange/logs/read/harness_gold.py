"""Which choices are right in samples of lm-evaluation-harness 0.4, which say it in many ways.

``target`` is an index, a list of them, or the text of a choice.  Where contexts differ it is the text that follows them
all, and the index stands somewhere in the row of the data.  So every way in which a file may say it is tried on all of
its items, and kept only while it agrees with the ``acc`` that the file itself has of each.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from choicewise.interchange.logs.read.cells import index
from choicewise.interchange.logs.read.harness_sample import Sample, listed

Golds = Callable[[Sample, Sequence[str]], tuple[int, ...] | None]
"""From a sample and its options to the right choices; None where it does not say them so."""

ROUNDING = 1e-5
"""By how much a share of probability may differ that was computed elsewhere."""

FIELDS = 100
"""Fields of a row of data that are tried."""


def _target(sample: Sample, options: Sequence[str]) -> tuple[int, ...] | None:
    """As the harness reads it: digits are an index, whatever the choices are called."""
    if (several := listed(sample.target)) is not None:
        return tuple(several)
    place = index(sample.target)
    return (place,) if place is not None else _text(sample.target, sample, options)


def _target_text(sample: Sample, options: Sequence[str]) -> tuple[int, ...] | None:
    return _text(sample.target, sample, options)


def _text(value: Any, sample: Sample, options: Sequence[str]) -> tuple[int, ...] | None:
    """The first choice with that text."""
    if sample.own_contexts or not isinstance(value, str):
        return None
    if value in options:
        return (options.index(value),)
    stripped = [option.strip() for option in options]
    return (stripped.index(value.strip()),) if value.strip() in stripped else None


def _only(sample: Sample, options: Sequence[str]) -> tuple[int, ...] | None:
    return (0,) if len(sample.choices) == 1 else None


def _by_acc(sample: Sample, options: Sequence[str]) -> tuple[int, ...] | None:
    """What ``acc`` leaves: the predicted choice where it is right, the other one of two where it is wrong."""
    if sample.metrics.get("acc") == 1.0:
        return (_predicted(sample),)
    return (1 - _predicted(sample),) if len(sample.choices) == 2 and sample.metrics.get("acc") == 0.0 else None


class GoldRules:
    """The ways that no item has spoken against so far."""

    def __init__(self) -> None:
        self._rules: dict[str, Golds] = {}
        self._begun = False
        self.objection = ""
        """Which item left none, in words."""

    def add(self, sample: Sample, options: Sequence[str]) -> None:
        """Leave out what does not fit one more item."""
        if not self._begun:
            self._rules, self._begun = _candidates(sample.doc), True
        fitting = {name: rule for name, rule in self._rules.items() if _fits(sample, rule(sample, options))}
        if self._rules and not fitting:
            read, said = _target(sample, options), sample.metrics.get("acc")
            asked = f"its target {str(sample.target)[:60]!r} reads as {list(read) if read else 'no choice'}"
            self.objection = f"at doc_id {sample.id} {asked}, which does not agree with its acc of {said}"
        self._rules = fitting

    @property
    def chosen(self) -> tuple[str, Golds] | None:
        """The first of those that still fit, and what it is called; None where there is none."""
        return next(iter(self._rules.items()), None)


def _candidates(doc: Mapping[str, Any]) -> dict[str, Golds]:
    """Every way, the harness's own first, and what only guesses from ``acc`` last."""
    rules: dict[str, Golds] = {"the only choice": _only}
    rules |= {f"labels of {name}": _labels(path) for name, path in _label_lists(doc)}
    rules |= {"target": _target, "text of target": _target_text}
    for name in list(doc)[:FIELDS]:
        rules[f"field {name}, counted from 0"] = _field(name, 0)
        rules[f"field {name}, counted from 1"] = _field(name, 1)
        rules[f"field {name}, a letter"] = _letter(name)
        rules[f"text of field {name}"] = _field_text(name)
    return rules | {"acc": _by_acc}


def _label_lists(doc: Mapping[str, Any]) -> list[tuple[str, tuple[str, ...]]]:
    """Lists of labels in the data, one for each choice, as TruthfulQA has them."""
    return [
        (f"{name}.labels", (name, "labels"))
        for name, inner in list(doc.items())[:FIELDS]
        if isinstance(inner, dict) and isinstance(inner.get("labels"), list)
    ]


def _labels(path: tuple[str, ...]) -> Golds:
    def golds(sample: Sample, options: Sequence[str]) -> tuple[int, ...] | None:
        value: Any = sample.doc
        for name in path:
            value = value.get(name) if isinstance(value, dict) else None
        if not isinstance(value, list) or len(value) != len(sample.choices):
            return None
        return tuple(place for place, label in enumerate(value) if index(label) == 1)

    return golds


def _field(name: str, first: int) -> Golds:
    def golds(sample: Sample, options: Sequence[str]) -> tuple[int, ...] | None:
        place = index(sample.doc.get(name))
        return None if place is None else (place - first,)

    return golds


def _letter(name: str) -> Golds:
    def golds(sample: Sample, options: Sequence[str]) -> tuple[int, ...] | None:
        value = sample.doc.get(name)
        one = isinstance(value, str) and len(value) == 1 and value.isascii() and value.isupper()
        return (ord(value) - ord("A"),) if isinstance(value, str) and one else None

    return golds


def _field_text(name: str) -> Golds:
    return lambda sample, options: _text(sample.doc.get(name), sample, options)


def _fits(sample: Sample, golds: tuple[int, ...] | None) -> bool:
    """Whether ``golds`` agree with what the sample says of itself."""
    if golds is None or any(choice.loglikelihood is None for choice in sample.choices):
        return golds is not None
    said = sample.metrics.get("acc")
    right = {place for place in golds if 0 <= place < len(sample.choices)}
    if said is None:
        return bool(right)
    if meaning(sample) == "mc2":
        return abs(said - _share(sample, right)) <= ROUNDING
    if meaning(sample) == "greedy":
        return bool(right)
    return said == float(_predicted(sample) in right)


def meaning(sample: Sample) -> str:
    """What the metric ``acc`` is of this item: a task may compute its own."""
    said = sample.metrics.get("acc")
    if len(sample.choices) == 1:
        return "greedy"
    return "acc" if said is None or said in (0.0, 1.0) else "mc2"


def _predicted(sample: Sample) -> int:
    return int(np.argmax([_loglikelihood(choice.loglikelihood) for choice in sample.choices]))


def _share(sample: Sample, right: set[int]) -> float:
    """The probability of the right choices among all."""
    sums = np.array([_loglikelihood(choice.loglikelihood) for choice in sample.choices])
    shares = np.exp(sums - np.logaddexp.reduce(sums))
    return float(shares[sorted(right)].sum())


def _loglikelihood(value: float | None) -> float:
    return float("nan") if value is None else value
