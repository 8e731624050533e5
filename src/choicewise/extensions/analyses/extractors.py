"""What every published rule reads in the texts of a run, side by side.

No rule is right: each was written for what its own prompt asks for, and one text may be A to one of them and B to the
next.  How far they are apart on a run is how much of its number the rule alone makes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import combinations, pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from choicewise.protocols.protocol import Protocol
from choicewise.protocols.readings import EXTRACTIONS, READINGS
from choicewise.results.evidence import Column, Evidence
from choicewise.results.run import Run
from choicewise.results.spans import ObservedPortion
from choicewise.scoring.answers import Written
from choicewise.scoring.combine import extract
from choicewise.scoring.decide import Decisions, letter_match
from choicewise.scoring.intervals import wilson
from choicewise.scoring.observed import Integers

LETTER_RULES = ("letter-match", *EXTRACTIONS)
"""Decisions that read an option's letter in generated text."""


@dataclass(frozen=True, slots=True)
class RuleReading:
    """What one rule makes of the texts: ``read``, the share in which it finds an option, and the ``accuracy``.

    Texts without an option are wrong.  ``protocols``: those of the run that decide by it.
    """

    rule: str
    protocols: tuple[str, ...]
    read: float
    accuracy: float
    ci_low: float
    ci_high: float


@dataclass(frozen=True, slots=True)
class RulePair:
    """How two rules agree: the share of texts in which both find the ``same``, none included, and Cohen's ``kappa``."""

    left: str
    right: str
    same: float
    kappa: float


@dataclass(frozen=True, slots=True)
class DisputedItem:
    """An item in whose text two rules find different options.

    ``text``: as it is, of a long one ``start`` and ``end``, which else is empty; ``right``: the letters of the right
    options; ``read``: letter → the rules that find it, the most first; those that find none stand under "".
    """

    item: str
    start: str
    end: str
    right: str
    read: Mapping[str, tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class ExtractorsReport:
    """The rules on the ``n`` texts of one prompt; ``missing``: items that have none.

    ``protocols``: those of the run that read these texts.  ``partly``: items of which some rules read one option and
    the others nothing.  ``disputed``: those of which two rules read different ones, where most rules are of another
    opinion than the most first.
    """

    protocols: tuple[str, ...]
    n: int
    missing: int
    rules: tuple[RuleReading, ...]
    pairs: tuple[RulePair, ...]
    partly: int
    disputed: tuple[DisputedItem, ...]


def answer_texts(portion: ObservedPortion) -> list[str | None]:
    """What the rules read: the generated text of every item, None where there is none."""
    return [each.read("read") if isinstance(each, Written) else None for each in portion.written()]


def extractors(run: Run) -> list[ExtractorsReport]:
    """Every rule on the texts of each prompt under which the run's protocols read letters in generated text."""
    prompts: dict[str, dict[str, Protocol]] = {}
    for name, protocol in run.protocols.items():
        if READINGS[protocol.reading].text and protocol.decision in LETTER_RULES:
            prompts.setdefault(protocol.prompt_digest, {})[name] = protocol
    columns = {
        prompt: _read_column(next(iter(own.values())).letters) for prompt, own in prompts.items()
    }
    evidence = run.evidence.gather({prompt: [column] for prompt, column in columns.items()})
    return [_report(own, evidence[prompt], columns[prompt]) for prompt, own in prompts.items()]


def cohen_kappa(left: Integers, right: Integers) -> float:
    """How far two raters agree beyond what their own shares of each answer give by chance (Cohen 1960).

    NaN without items, and where both always give one and the same answer.
    """
    if not len(left):
        return float("nan")
    shares = [
        (np.mean(left == answer), np.mean(right == answer)) for answer in np.union1d(left, right)
    ]
    expected = float(sum(one * other for one, other in shares))
    return (
        float("nan")
        if expected == 1
        else (float(np.mean(left == right)) - expected) / (1 - expected)
    )


_START, _END = 60, 120
"""Characters of a long text that are kept of each disputed item."""

_Read = tuple[dict[str, Decisions], npt.NDArray[Any], npt.NDArray[Any]]
"""By rule what is read; start and end of every item's text, where it is disputed."""


def _read_column(letters: str) -> Column[_Read]:
    """Describe what every rule reads in texts of options that are called by ``letters``."""
    return Column("extractors", (letters,), compute=partial(_read, letters))


def _read(letters: str, portion: ObservedPortion) -> _Read:
    texts = answer_texts(portion)
    choices = [end - start for start, end in pairwise(portion.item_offsets.tolist())]

    def decided(rule: str) -> Decisions:
        if rule == "letter-match":
            return letter_match(texts, portion.options(), portion.gold, letters)
        return extract(rule, texts, portion.gold, choices, letters)

    decisions = {rule: decided(rule) for rule in LETTER_RULES}
    starts, ends = (np.full(len(texts), "", dtype=object) for _ in range(2))
    for place in np.flatnonzero(_options(_predictions(decisions)) > 1).tolist():
        text = texts[place] or ""
        long = len(text) > _START + _END
        starts[place], ends[place] = (text[:_START], text[-_END:]) if long else (text, "")
    return decisions, starts, ends


def _predictions(decisions: Mapping[str, Decisions]) -> Integers:
    """What every rule reads, int64 [rules, items]; -1 for none."""
    return np.array([each.prediction for each in decisions.values()])


def _options(predictions: Integers) -> Integers:
    """How many different options the rules read in each text, int64 [items]."""
    ordered = np.sort(predictions, axis=0)
    new = (np.diff(ordered, axis=0, prepend=-1) > 0) & (ordered >= 0)
    return np.asarray(new.sum(axis=0), dtype=np.int64)


def _report(
    protocols: Mapping[str, Protocol], evidence: Evidence, column: Column[_Read]
) -> ExtractorsReport:
    decisions, starts, ends = evidence.column(column)
    predictions, credits = (
        _predictions(decisions),
        np.array([each.credit for each in decisions.values()]),
    )
    there = ~np.isnan(credits[0])
    read, credit, n = predictions[:, there], credits[:, there], int(there.sum())
    letters = next(iter(protocols.values())).letters
    rules = []
    for rule, own, right in zip(LETTER_RULES, read, credit, strict=True):
        accuracy = float(right.mean()) if n else float("nan")
        deciding = tuple(name for name, protocol in protocols.items() if protocol.decision == rule)
        share = float(np.mean(own >= 0)) if n else float("nan")
        rules.append(RuleReading(rule, deciding, share, accuracy, *wilson(accuracy, n)))
    pairs = tuple(
        RulePair(
            LETTER_RULES[left],
            LETTER_RULES[right],
            float(np.mean(read[left] == read[right])) if n else float("nan"),
            cohen_kappa(read[left], read[right]),
        )
        for left, right in combinations(range(len(LETTER_RULES)), 2)
    )
    options = _options(predictions)
    places, ids, gold = (
        np.flatnonzero(options > 1).tolist(),
        evidence.about["item"],
        evidence.about["gold"],
    )
    disputed = [
        DisputedItem(
            ids[place].as_py(),
            starts[place],
            ends[place],
            "".join(letters[index] for index in gold[place].as_py() if index < len(letters)),
            _by_letter(predictions[:, place].tolist(), letters),
        )
        for place in places
    ]
    disputed.sort(key=_united)
    partly = int(((options == 1) & (predictions < 0).any(axis=0)).sum())
    return ExtractorsReport(
        tuple(protocols), n, len(there) - n, tuple(rules), pairs, partly, tuple(disputed)
    )


def _by_letter(read: Sequence[int], letters: str) -> dict[str, tuple[str, ...]]:
    by_letter: dict[str, list[str]] = {}
    for rule, index in zip(LETTER_RULES, read, strict=True):
        by_letter.setdefault(letters[index] if index >= 0 else "", []).append(rule)
    order = sorted(by_letter, key=lambda letter: (not letter, -len(by_letter[letter]), letter))
    return {letter: tuple(by_letter[letter]) for letter in order}


def _united(item: DisputedItem) -> int:
    """Rules that read the option most of them read, less all others that read one: the smaller, the more in dispute."""
    counts = Counter({letter: len(rules) for letter, rules in item.read.items() if letter})
    return 2 * counts.most_common(1)[0][1] - counts.total()
