"""Check a log: its items can be used, and its values follow from its answers."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from choicewise.errors import DataError
from choicewise.extensions.interop.logs.verdicts import HARNESS
from choicewise.logs import Log, LoggedChoice, LoggedItem
from choicewise.report.logged import PART, ROUNDING
from choicewise.util.text import has_half_character

# Nats by which rounding may lift a log-likelihood above 0.
_ABOVE_ZERO = 1e-3


class _Means:
    """Average values of items by name, as ``aggregation`` averages the subjects."""

    def __init__(self, aggregation: str) -> None:
        self._macro = aggregation == "macro"
        self._sums: dict[str, defaultdict[str, float]] = {}
        self._counts: dict[str, Counter[str]] = {}

    def add(self, name: str, subject: str, value: float) -> None:
        # Only a macro average needs the sum of every subject.
        if not self._macro:
            subject = ""
        self._sums.setdefault(name, defaultdict(float))[subject] += value
        self._counts.setdefault(name, Counter())[subject] += 1

    def means(self) -> dict[str, float]:
        means = {}
        for name, counts in self._counts.items():
            sums = self._sums[name]
            of_subjects = [sums[subject] / count for subject, count in counts.items()]
            means[name] = sum(of_subjects) / len(of_subjects)
        return means


@dataclass(frozen=True)
class LogNumbers:
    """Hold the numbers ``recorded`` in a log, and those ``recomputed`` from its answers, by name."""

    recorded: Mapping[str, float]
    recomputed: Mapping[str, float]


class Checks:
    """Compute the values of a log from its answers, and count those that differ."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._verdicts = log.verdicts or HARNESS
        self._checked: Counter[str] = Counter()
        self._wrong: Counter[str] = Counter()
        self._examples: dict[str, str] = {}
        self._unknown: set[str] = set()
        self._items = 0
        self._no_shares: set[str] = set()
        self._recorded = _Means(log.aggregations[0])
        self._computed = _Means(log.aggregations[0])

    def add(self, item: LoggedItem) -> None:
        """Check the values of an item, unless it is missing or lacks what they follow from."""
        self._items += 1
        if item.missing:
            return
        for name, recorded in item.recorded.items():
            verdict = self._verdicts.get(name)
            if verdict is None:
                self._unknown.add(name)
                continue
            computed = verdict(self._log, item)
            # A value that can not be computed proves nothing.
            if math.isnan(computed) or math.isnan(recorded):
                continue
            # An index or a perplexity has no percent.
            if not 0 <= recorded <= 1:
                self._no_shares.add(name)
            self._recorded.add(name, item.subject, recorded)
            self._computed.add(name, item.subject, computed)
            self._checked[name] += 1
            if abs(recorded - computed) > ROUNDING:
                self._wrong[name] += 1
                example = f"{item.id}: the log has {recorded:g}, its answers give {computed:g}"
                self._examples.setdefault(name, example)

    def notes(self) -> tuple[str, ...]:
        """Return the values that differ, and if items of the task are absent, in words.

        Raises DataError if ``acc`` differs: then the right choices are not those of the tool.
        """
        notes = {}
        for name, count in self._wrong.items():
            notes[name] = (
                f"{name} of {count:,} of {self._checked[name]:,} items differs from what its "
                f"answers give, such as {self._examples[name]}"
            )
        if "acc" in notes:
            raise DataError(
                f"the {self._log.tool} log of {self._log.model} on {self._log.task} contradicts "
                f"itself: {notes['acc']}"
            )
        part = self._log.settings.get(PART)
        if part is not None:
            notes[PART] = f"the log has {part} of the task"
        return tuple(notes.values())

    def numbers(self) -> LogNumbers:
        """Return the log's totals, or the means of its values if it has none, and ours."""
        computed = self._computed.means()
        recorded = self._recorded.means()
        for name in self._no_shares:
            del computed[name], recorded[name]
        if not self._log.recorded:
            return LogNumbers(recorded, computed)
        recomputed = {}
        for name in self._log.recorded:
            value = _value_of(name, computed)
            # A total over all items is no mean of some of them.
            if value is not None and self._checked[value] == self._items:
                recomputed[name] = computed[value]
        return LogNumbers(dict(self._log.recorded), recomputed)

    def unused(self) -> tuple[str, ...]:
        """Return the values of items that are not imported, in words."""
        if not self._unknown:
            return ()
        names = ", ".join(sorted(self._unknown))
        return (f"values {names}, which can't be recomputed from the answers",)


def _value_of(total: str, values: Iterable[str]) -> str | None:
    """Return the value of items that a total averages, None if there is none."""
    values = set(values)
    if total in values:
        return total
    # The harness calls some of its metrics acc, whatever they compute.
    if total == "acc":
        for value in ("mc2", "greedy"):
            if value in values:
                return value
    # HELM adds the split to a name, and Inspect the metric.
    value, _, _ = total.partition(" ")
    if value in values:
        return value
    value, _, metric = total.partition("/")
    if value in values and metric in ("accuracy", "mean"):
        return value
    return None


def checked_item(item: LoggedItem, tool: str) -> LoggedItem:
    """Return ``item`` with log-likelihoods that are numbers or missing.

    A choice with NaN is missing, and so is an item whose right choice is none of its choices.
    Raises DataError for a value that is no log-likelihood, an item without choices, and
    texts that no file can store.
    """
    where = f"item {item.id!r} of {tool}"
    if not item.choices:
        raise DataError(f"{where} has no choices")
    if item.options is not None and len(item.options) != len(item.choices):
        raise DataError(
            f"{where} has {len(item.options)} options and {len(item.choices)} log-likelihoods"
        )
    # Parquet stores UTF-8, which has no code for half a character.
    if has_half_character(_all_text(item)):
        raise DataError(f"{where} holds a lone surrogate, half a character that no file can store")
    choices = []
    for number, choice in enumerate(item.choices):
        choices.append(_checked_choice(choice, f"{where}, choice {number}"))
    gold = []
    missing = None
    for index in item.gold:
        if 0 <= index < len(choices):
            gold.append(index)
        elif missing is None:
            missing = (
                f"the right choice is {index}, and there are {len(choices)} choices, counted from 0"
            )
    if not item.gold:
        missing = "the log does not name the right choice"
    return replace(item, choices=tuple(choices), gold=tuple(sorted(set(gold))), missing=missing)


def _all_text(item: LoggedItem) -> str:
    texts = [item.id, item.subject, item.context, item.question, item.generated]
    texts += item.options or ()
    for choice in item.choices:
        texts += (choice.text, choice.context)
    return "".join(filter(None, texts))


def _checked_choice(choice: LoggedChoice, where: str) -> LoggedChoice:
    _check_loglikelihood(choice.loglikelihood, "loglikelihood", where)
    _check_loglikelihood(choice.unconditional, "unconditional", where)
    if choice.tokens is not None and choice.tokens < 1:
        raise DataError(f"{where} has {choice.tokens} tokens; a scored choice has at least one")
    if choice.missing:
        return replace(choice, loglikelihood=None)
    if choice.loglikelihood is None:
        return replace(choice, missing="the log has no log-likelihood of it")
    if math.isnan(choice.loglikelihood):
        return replace(choice, loglikelihood=None, missing="the log has NaN")
    if choice.unconditional is not None and math.isnan(choice.unconditional):
        return replace(choice, unconditional=None)
    return choice


def _check_loglikelihood(value: float | None, name: str, where: str) -> None:
    if value is not None and value > _ABOVE_ZERO:
        raise DataError(
            f"{where} has the {name} {value}, and a log-likelihood is never above 0; is it a "
            "loss, or a probability?"
        )
