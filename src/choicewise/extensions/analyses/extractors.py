"""Compare what every published extraction rule reads in the generated texts of a run."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import combinations, pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from choicewise.protocols.protocol import Protocol, Protocols
from choicewise.protocols.readings import EXTRACTIONS, READINGS
from choicewise.results.evidence import Column, Evidence
from choicewise.results.run import Run
from choicewise.scoring.answers import Written
from choicewise.scoring.combine import extract
from choicewise.scoring.decide import Decisions, letter_match
from choicewise.scoring.intervals import wilson
from choicewise.scoring.observed import Floats, Integers
from choicewise.scoring.portion import ObservedPortion

# No rule is right: each was written for what its own prompt asks for, and one text may be A to one
# of them and B to the next. How far they are apart on a run is how much of its number the rule
# alone makes.

LETTER_RULES = ("letter-match", *EXTRACTIONS)
"""Decisions that read an option's letter in generated text."""


@dataclass(frozen=True, kw_only=True)
class RuleReading:
    """Describe what one rule reads in the texts.

    ``read``: share of the texts in which it finds an option. ``accuracy``: with its 95 % interval;
    a text without an option is wrong. ``protocols``: those of the run that decide by the rule.
    """

    rule: str
    protocols: tuple[str, ...]
    read: float
    accuracy: float
    ci_low: float
    ci_high: float


@dataclass(frozen=True)
class RulePair:
    """Describe how two rules agree, by Cohen's ``kappa`` and by the share of texts in which both
    find the ``same``.

    No option is an answer, too.
    """

    left: str
    right: str
    same: float
    kappa: float


@dataclass(frozen=True, kw_only=True)
class DisputedItem:
    """Describe an item in whose text two rules find different options.

    ``start``, ``end``: the ends of a long text; a short one is in ``start``. ``right``: the letters
    of the right options. ``read``: letter → the rules that find it, the letter of most rules first;
    the key of rules that find no option is "".
    """

    item: str
    start: str
    end: str
    right: str
    read: Mapping[str, tuple[str, ...]]

    @property
    def unity(self) -> int:
        """Return how many rules read the commonest option, less those that read another one."""
        counts = Counter({letter: len(rules) for letter, rules in self.read.items() if letter})
        most = max(counts.values())
        return 2 * most - counts.total()


@dataclass(frozen=True, kw_only=True)
class ExtractorsReport:
    """Hold what the rules read in the ``n`` texts of one prompt.

    ``missing``: how many items have no text. ``protocols``: those of the run that read these texts.
    ``partly``: how many items are read by some rules, all as one option, and not by others.
    ``disputed``: the most evenly divided items first.
    """

    protocols: tuple[str, ...]
    n: int
    missing: int
    rules: tuple[RuleReading, ...]
    pairs: tuple[RulePair, ...]
    partly: int
    disputed: tuple[DisputedItem, ...]


def answer_texts(portion: ObservedPortion) -> list[str | None]:
    """Return the generated text of every item that the rules read, None for an item without one."""
    texts = []
    for answer in portion.written():
        text = None
        if isinstance(answer, Written):
            text = answer.read("read")
        texts.append(text)
    return texts


def extractors(run: Run) -> list[ExtractorsReport]:
    """Apply every rule to the texts of each prompt whose protocols read letters in generated text."""
    prompts: dict[str, dict[str, Protocol]] = {}
    for name, protocol in run.protocols.items():
        if READINGS[protocol.reading].text and protocol.decision in LETTER_RULES:
            prompts.setdefault(protocol.prompt_digest, {})[name] = protocol

    columns = {prompt: _read_column(protocols) for prompt, protocols in prompts.items()}
    evidence = run.evidence.gather({prompt: [column] for prompt, column in columns.items()})
    reports = []
    for prompt, protocols in prompts.items():
        reports.append(_report(protocols, evidence[prompt], columns[prompt]))
    return reports


def cohen_kappa(left: Integers, right: Integers) -> float:
    """Return how far two raters agree beyond what their shares of each answer give by chance (Cohen
    1960).

    It is NaN without items, and if both always give one and the same answer.
    """
    if not len(left):
        return math.nan
    by_chance = 0.0
    for answer in np.union1d(left, right):
        by_chance += np.mean(left == answer) * np.mean(right == answer)
    if by_chance == 1:
        return math.nan
    observed = float(np.mean(left == right))
    # Of -0.0 no sign is left.
    return (observed - float(by_chance)) / (1 - float(by_chance)) + 0.0


_START = 60
_END = 120
"""Characters at the ends of a long text that are kept of a disputed item."""

_Excerpts = npt.NDArray[Any]
_Read = tuple[dict[str, Decisions], _Excerpts, _Excerpts]
"""What every rule reads; starts and ends of the texts of disputed items."""


def _letters(protocols: Protocols) -> str:
    """Return the letters of the options, which all ``protocols`` of one prompt share."""
    return next(iter(protocols.values())).letters


def _read_column(protocols: Protocols) -> Column[_Read]:
    letters = _letters(protocols)
    return Column("extractors", (letters,), compute=partial(_read, letters))


def _read(letters: str, portion: ObservedPortion) -> _Read:
    texts = answer_texts(portion)
    choice_counts = [end - start for start, end in pairwise(portion.item_offsets.tolist())]
    decisions = {"letter-match": letter_match(texts, portion.options(), portion.gold, letters)}
    for rule in EXTRACTIONS:
        decisions[rule] = extract(rule, texts, portion.gold, choice_counts, letters)

    # Only texts in dispute are shown, and those of a whole run would fill the memory.
    starts = np.full(len(texts), "", dtype=object)
    ends = np.full(len(texts), "", dtype=object)
    disputed = _option_counts(_predictions(decisions)) > 1
    for item in np.flatnonzero(disputed).tolist():
        text = texts[item] or ""
        if len(text) > _START + _END:
            starts[item] = text[:_START]
            ends[item] = text[-_END:]
        else:
            starts[item] = text
    return decisions, starts, ends


def _predictions(decisions: Mapping[str, Decisions]) -> Integers:
    """Return the option that every rule reads, int64 [rules, items]; -1 for none."""
    return np.array([decision.prediction for decision in decisions.values()])


def _option_counts(predictions: Integers) -> Integers:
    """Count the different options that the rules read in each text, int64 [items]."""
    ordered = np.sort(predictions, axis=0)
    is_new = (np.diff(ordered, axis=0, prepend=-1) > 0) & (ordered >= 0)
    return np.asarray(is_new.sum(axis=0), dtype=np.int64)


def _report(protocols: Protocols, evidence: Evidence, column: Column[_Read]) -> ExtractorsReport:
    decisions, starts, ends = evidence.column(column)
    predictions = _predictions(decisions)
    credits = np.array([decision.credit for decision in decisions.values()])
    # Every rule has the same missing items, those without a text.
    has_text = ~np.isnan(credits[0])
    read = predictions[:, has_text]
    n = int(has_text.sum())

    rules = []
    for index, rule in enumerate(LETTER_RULES):
        deciding = tuple(name for name, protocol in protocols.items() if protocol.decision == rule)
        rules.append(_rule_reading(rule, deciding, read[index], credits[index][has_text]))
    pairs = []
    for left, right in combinations(range(len(LETTER_RULES)), 2):
        pairs.append(
            RulePair(
                left=LETTER_RULES[left],
                right=LETTER_RULES[right],
                same=_mean(read[left] == read[right]),
                kappa=cohen_kappa(read[left], read[right]),
            )
        )

    option_counts = _option_counts(predictions)
    is_partly_read = (option_counts == 1) & (predictions < 0).any(axis=0)
    letters = _letters(protocols)
    ids = evidence.item_table["item"]
    gold = evidence.item_table["gold"]
    disputed = []
    for item in np.flatnonzero(option_counts > 1).tolist():
        right_letters = [letters[index] for index in gold[item].as_py() if index < len(letters)]
        disputed.append(
            DisputedItem(
                item=ids[item].as_py(),
                start=starts[item],
                end=ends[item],
                right="".join(right_letters),
                read=_rules_by_letter(predictions[:, item].tolist(), letters),
            )
        )
    disputed.sort(key=lambda item: item.unity)
    return ExtractorsReport(
        protocols=tuple(protocols),
        n=n,
        missing=len(has_text) - n,
        rules=tuple(rules),
        pairs=tuple(pairs),
        partly=int(is_partly_read.sum()),
        disputed=tuple(disputed),
    )


def _rule_reading(
    rule: str, protocols: tuple[str, ...], read: Integers, credit: Floats
) -> RuleReading:
    accuracy = _mean(credit)
    low, high = wilson(accuracy, len(credit))
    return RuleReading(
        rule=rule,
        protocols=protocols,
        read=_mean(read >= 0),
        accuracy=accuracy,
        ci_low=low,
        ci_high=high,
    )


def _mean(values: npt.NDArray[Any]) -> float:
    if not len(values):
        return math.nan
    return float(np.mean(values))


def _rules_by_letter(read: Sequence[int], letters: str) -> dict[str, tuple[str, ...]]:
    by_letter: dict[str, list[str]] = {}
    for rule, index in zip(LETTER_RULES, read, strict=True):
        letter = ""
        if index >= 0:
            letter = letters[index]
        by_letter.setdefault(letter, []).append(rule)
    order = sorted(by_letter, key=lambda letter: (not letter, -len(by_letter[letter]), letter))
    return {letter: tuple(by_letter[letter]) for letter in order}
