"""Changes how many examples protocols show, and drops examples that the data do not have."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from choicewise.data.dataset import Dataset
from choicewise.protocols.between import MARK, change_axes
from choicewise.protocols.catalogue import resolve, with_changes
from choicewise.protocols.protocol import Protocol
from choicewise.requests.blocks import without_examples
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


def ways_without_examples(selectors: Sequence[str], data: Dataset) -> tuple[str, ...]:
    """Return the selectors; a way between protocols has no shots if ``data`` has no examples.

    Otherwise no protocol on the way but its ends would fit the data.
    """
    changed = []
    for selector in selectors:
        if MARK in selector:
            protocols = resolve(selector)
            if without_examples(data, protocols) != protocols:
                selector = with_changes(selector, "shots=0")
        changed.append(selector)
    return tuple(changed)


def without_shots(
    data: str, selectors: Sequence[str], named: Mapping[str, Protocol], asked: Collection[str]
) -> str:
    """Return a line about the shots that ``data`` has no examples for, or an empty text.

    ``selectors``: what ``named`` was resolved from.  ``asked``: the names of the protocols in their
    place.
    """
    shots_by_name = {}
    for name, protocol in named.items():
        if protocol.shots and name not in asked:
            changed = change_axes({name: protocol}, "shots=0")
            if not changed.keys().isdisjoint(asked):
                shots_by_name[name] = protocol.shots
    if not shots_by_name:
        return ""
    quoted = []
    for selector in selectors:
        if "|" in selector:  # a signature is too long for a line
            continue
        if MARK in selector or not shots_by_name.keys().isdisjoint(resolve(selector)):
            quoted.append(f"`{with_changes(selector, 'shots=0')}`")
    names = listed(quoted or ["signatures"])
    *fewer, most = sorted(set(shots_by_name.values()))
    published = listed([*(f"{number}-" for number in fewer), f"{most}-shot scores"])
    return (
        f"{data} has no few-shot examples: running zero-shot, as {names}. Don't compare with "
        f"published {published}."
    )
