"""How many examples protocols show, and what is asked where the data have none."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from choicewise.data.dataset import Dataset
from choicewise.protocols.between import MARK, change_axes
from choicewise.protocols.catalogue import resolve, with_changes
from choicewise.protocols.protocol import Protocol
from choicewise.requests.blocks import without_examples
from choicewise.util.text import listed


def checked_shots(shots: object) -> object:
    """``shots`` as a job takes them.  Raises ValueError, saying what it must be."""
    number = isinstance(shots, int) and not isinstance(shots, bool) and shots >= 0
    if not number and shots not in (None, "error"):
        raise ValueError('a whole number, or "error"')
    return shots


def selectors_with_shots(selectors: Sequence[str], shots: int | str | None) -> tuple[str, ...]:
    """The selectors of the same protocols with so many ``shots``, where that is a number."""
    return tuple(
        with_changes(each, f"shots={shots}") if isinstance(shots, int) else each
        for each in selectors
    )


def ways_without_examples(selectors: Sequence[str], data: Dataset) -> tuple[str, ...]:
    """The selectors; those of ways for whose shots ``data`` has no examples are of ways without shots.

    Else the data could be asked under nothing between the ends.
    """
    ways = {each: resolve(each) for each in selectors if MARK in each}
    lacking = {each for each, named in ways.items() if without_examples(data, named) != named}
    return tuple(with_changes(each, "shots=0") if each in lacking else each for each in selectors)


def without_shots(
    data: str, selectors: Sequence[str], named: Mapping[str, Protocol], asked: Collection[str]
) -> str:
    """The line that says that ``data`` has no examples for shots of ``named``, and is ``asked`` without; or nothing.

    ``selectors``: what ``named`` was meant by.
    """
    changed = {
        name: protocol.shots
        for name, protocol in named.items()
        if protocol.shots
        and name not in asked
        and not change_axes({name: protocol}, "shots=0").keys().isdisjoint(asked)
    }
    if not changed:
        return ""
    own = [
        each
        for each in selectors
        if MARK in each or "|" in each or not changed.keys().isdisjoint(resolve(each))
    ]
    names = listed(
        [f"`{with_changes(each, 'shots=0')}`" for each in own if "|" not in each] or ["signatures"]
    )
    *fewer, most = sorted({*changed.values()})
    published = listed([*(f"{number}-" for number in fewer), f"{most}-shot numbers"])
    return f"{data} has no examples for shots: asked without, as {names}; these are not the published {published}"
