"""Fits protocols to data: shows so many shots, and changes what the data do not have."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

import pyarrow.compute as pc

from choicewise.data.dataset import Dataset, Items
from choicewise.errors import DataError, UsageError
from choicewise.protocols.between import MARK, change_axes, split_changes
from choicewise.protocols.catalogue import plain_name, resolve, variant_of, with_changes
from choicewise.protocols.protocol import Protocol, Protocols
from choicewise.protocols.shots import has_examples
from choicewise.requests.blocks import misfit, with_split
from choicewise.requests.render import choice_changes, choice_problem
from choicewise.util.text import listed


def checked_shots(shots: object) -> object:
    """Return ``shots`` if a job takes them, else raise ValueError with the possible values."""
    is_count = isinstance(shots, int) and not isinstance(shots, bool) and shots >= 0
    if not is_count and shots not in (None, "error"):
        raise ValueError('a whole number, or "error"')
    return shots


def selectors_with_shots(selectors: Sequence[str], shots: int | str | None) -> tuple[str, ...]:
    """Return the selectors of the same protocols with ``shots`` examples, if that is a number."""
    if not isinstance(shots, int):
        return tuple(selectors)
    return tuple(with_changes(selector, f"shots={shots}") for selector in selectors)


@dataclass
class Fitting:
    """Find what must change so that ``data`` can be asked.

    ``drops_shots``: ask without shots if the data have no examples.  ``is_flexible``: ask another
    split if there is no such one, and any number of choices with as many letters.
    ``leaves_out``: refuse protocols that can ask no item of the ``subjects``, all if None.
    """

    data: Dataset
    drops_shots: bool = True
    is_flexible: bool = True
    leaves_out: bool = False
    subjects: Sequence[str] | None = None
    _counts: dict[str, Counter[int]] = field(default_factory=dict)

    def protocol(self, name: str, protocol: Protocol) -> tuple[str, Protocol]:
        """Return the protocol as the data can be asked, and its name, which has the changes."""
        changes = self.changes(protocol)
        if not changes:
            return name, protocol
        ((changed_name, changed),) = change_axes({name: protocol}, ",".join(changes)).items()
        return changed_name, changed

    def changes(self, protocol: Protocol) -> list[str]:
        """Return the changes of axes, ``AXIS=VALUE``, that the protocol needs."""
        changes: list[str] = []
        if self.is_flexible and protocol.split and not self.data.splits.get(protocol.split):
            # Of several other splits none is taken, and the protocol is refused elsewhere.
            with suppress(DataError):
                changes.append(f"split={self.data.evaluated}")
        recipe = _changed(protocol, changes)
        with suppress(DataError):
            recipe = with_split(recipe, self.data)
            if self.drops_shots and recipe.shots and not has_examples(recipe, self.data):
                changes.append("shots=0")
                recipe = _changed(recipe, ["shots=0"])
        if self.is_flexible:
            changes += choice_changes(recipe, self._choice_counts(recipe, recipe.shots > 0))
        return changes

    def refusal(self, protocol: Protocol) -> str:
        """Return why the protocol can't ask the data, or an empty text."""
        # Typed questions are chosen by their number of choices.
        if self.is_flexible and protocol.kind == "any":
            for count in sorted(self._choice_counts(protocol)):
                problem = choice_problem(protocol, count)
                if problem:
                    return f"{self.data.name} has questions with {count} choices, {problem}"
        if self.leaves_out:
            return misfit(protocol, self.data, self.subjects)
        return ""

    def odd_choices(self, protocol: Protocol) -> str:
        """Count the questions that have another number of choices than the protocol asks for."""
        counts = self._choice_counts(protocol)
        odd = {count: items for count, items in counts.items() if count != protocol.choices}
        numbers = listed([str(count) for count in sorted(odd)])
        return f"{sum(odd.values()):,} of {counts.total():,} questions have {numbers} choices"

    def _choice_counts(self, protocol: Protocol, with_shots: bool = False) -> Counter[int]:
        """Return number of choices → number of items, in the split that the protocol tests.

        ``with_shots``: and in the split of its shots.
        """
        counts = Counter[int]()
        with suppress(DataError):
            counts.update(self._counts_of_split(with_split(protocol, self.data).split or ""))
        if with_shots:
            counts.update(self._counts_of_split(protocol.shot_split or ""))
        return counts

    def _counts_of_split(self, split: str) -> Counter[int]:
        if split not in self._counts:
            choices = Items.of(self.data.splits.get(split, ())).table()["choices"]
            counted = pc.value_counts(pc.list_value_length(choices)).to_pylist()
            self._counts[split] = Counter({row["values"]: row["counts"] for row in counted})
        return self._counts[split]


def _changed(protocol: Protocol, changes: Sequence[str]) -> Protocol:
    if not changes:
        return protocol
    (changed,) = change_axes({"": protocol}, ",".join(changes)).values()
    return changed


@dataclass(frozen=True, kw_only=True)
class Fitted:
    """Hold protocols as data can be asked under them.

    ``protocols``: by name.  ``typed``: name → the name before the changes.  ``left_out``: why
    protocols can't ask the data → their names.  ``notes``: lines for the user about the changes.
    """

    protocols: Protocols
    typed: Mapping[str, str]
    left_out: Mapping[str, Sequence[str]]
    notes: Sequence[str]


def fit(
    fitting: Fitting,
    protocols: Protocols,
    selectors: Sequence[str],
    named: Protocols,
) -> Fitted:
    """Fit ``protocols`` to data; DataError if none can ask them.

    ``selectors`` name the protocols ``named``; in ``protocols`` a way between two may already have
    changes.
    """
    fitted: dict[str, Protocol] = {}
    typed: dict[str, str] = {}
    left_out: dict[str, list[str]] = {}
    odd_choices = ""
    for name, protocol in protocols.items():
        changed_name, changed = fitting.protocol(name, protocol)
        reason = fitting.refusal(changed)
        if reason:
            left_out.setdefault(reason, []).append(name)
            continue
        fitted[changed_name] = changed
        typed[changed_name] = name
        if changed.choices != protocol.choices:
            odd_choices = fitting.odd_choices(replace(changed, choices=protocol.choices))
    if left_out and not fitted:
        problems = [f"{names[0]}: {reason}" for reason, names in left_out.items()]
        raise DataError(f"no protocol fits {fitting.data.name}", problems)
    renamed = variants_among(fitted, named)
    renamed |= {name: changed_name for changed_name, name in typed.items()}
    notes = change_notes(fitting.data.name, selectors, named, renamed, odd_choices)
    return Fitted(protocols=fitted, typed=typed, left_out=left_out, notes=notes)


def ways_on(fitting: Fitting, selectors: Sequence[str]) -> tuple[str, ...]:
    """Return the selectors; ends of a way between two protocols have the changes of both.

    Otherwise no protocol on the way but its ends would fit the data.
    """
    changed = []
    for selector in selectors:
        if MARK in selector:
            changes: dict[str, None] = {}
            for protocol in resolve(selector).values():
                changes |= dict.fromkeys(fitting.changes(protocol))
            if changes:
                selector = with_changes(selector, ",".join(changes))
        changed.append(selector)
    return tuple(changed)


def variants_among(names: Collection[str], named: Collection[str]) -> dict[str, str]:
    """Return what of ``named`` is not among ``names``, each with its only variant there."""
    variants = {}
    for name in named:
        if name in names:
            continue
        with suppress(UsageError):
            variant = variant_of(name, names, "")
            if variant is not None:
                variants[name] = variant
    return variants


def change_notes(
    data: str,
    selectors: Sequence[str],
    named: Protocols,
    renamed: Mapping[str, str],
    odd_choices: str = "",
) -> list[str]:
    """Return lines about what ``data`` do not have, with the names under which they are asked.

    ``selectors``: what ``named`` was resolved from.  ``renamed``: name → the name that is asked.
    ``odd_choices``: how many questions have another number of choices, if that was counted.
    """
    names_of_change: dict[str, list[str]] = {}
    for name, variant in renamed.items():
        if name in named:
            for change in _added_changes(name, variant):
                names_of_change.setdefault(change, []).append(name)
    notes = []
    for change, names in names_of_change.items():
        spelled = _spelled(selectors, change, names)
        protocols = [named[name] for name in names]
        match change.partition("=")[0]:
            case "split":
                split = change.partition("=")[2]
                reason = f"{data} has no split {protocols[0].split}"
                notes.append(f"{reason}: it runs on {split}, as {spelled}")
            case "shots":
                published = _published_shots(protocols)
                reason = f"{data} has no few-shot examples, so it runs zero-shot"
                notes.append(f"{reason}, as {spelled}; these are not the published {published}")
            case "choices":
                reason = odd_choices or "some questions have another number of choices"
                advice = "these are not the published numbers"
                notes.append(f"{reason}: {data} runs as {spelled}; {advice}")
            case "letters" if all(protocol.choices is None for protocol in protocols):
                notes.append(f"{data} needs more letters: it runs as {spelled}")
    return notes


def _published_shots(protocols: Sequence[Protocol]) -> str:
    *fewer, most = sorted({protocol.shots for protocol in protocols})
    return listed([*(f"{number}-" for number in fewer), f"{most}-shot numbers"])


def _added_changes(name: str, variant: str) -> list[str]:
    _, before = split_changes(plain_name(name)[0])
    _, after = split_changes(plain_name(variant)[0])
    return [change for change in after.split(",") if change and change not in before.split(",")]


def _spelled(selectors: Sequence[str], change: str, names: Collection[str]) -> str:
    """Return the selectors of the protocols ``names`` with the change, as the user can type them."""
    spelled = []
    for selector in selectors:
        if "|" in selector:  # a signature is too long for a line
            continue
        if MARK in selector or not resolve(selector).keys().isdisjoint(names):
            spelled.append(f"`{with_changes(selector, change)}`")
    return listed(spelled or ["signatures"])
