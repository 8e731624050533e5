"""The panel of a protocol: the same questions under changes that should leave the answers as they are."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final, NamedTuple

from choicewise.errors import ProtocolError
from choicewise.protocols.between import change_axes
from choicewise.protocols.catalogue import resolve
from choicewise.protocols.changes import CHANGES, MOST_TURNS
from choicewise.protocols.preparations import change_of
from choicewise.protocols.protocol import Protocol
from choicewise.protocols.readings import READINGS
from choicewise.questions import Decision


class CheckAbout(NamedTuple):
    """What a check ``changes``, and the distance of probabilities that it measures."""

    changes: str
    measure: str = "TV"


CHECKS: Final = {
    "order": CheckAbout(
        "the options in other orders",
        "TV (total variation, half the sum of differences) of pairs of orders",
    ),
    "names": CheckAbout("described options under other names"),
    "labels": CheckAbout("other labels"),
    "none": CheckAbout('one more option, "None of these"', "TV, without the added option"),
    "clone": CheckAbout("one option twice", "|p of both - p of the one|"),
    "drop": CheckAbout("without the last option, where that is wrong", "TV, renormalised"),
    "as choice": CheckAbout("yes or no as a choice of the two", "|P(yes) - P(yes as a choice)|"),
    "negation": CheckAbout("the question negated", "|P(yes) + P(yes to the opposite) - 1|"),
    "state": CheckAbout("the state as a text, or as an object"),
    "batch": CheckAbout("with the other questions of its case in one request"),
}
"""Every check of a panel by its name."""


class Variant(NamedTuple):
    """A protocol of the panel of another one, under its ``name``."""

    check: str
    name: str
    protocol: Protocol


def variants(name: str, protocol: Protocol) -> Iterator[Variant]:
    """The panel of a protocol; none of one whose answers are not probabilities of the item's own choices."""
    if not READINGS[protocol.reading].by_choice or change_of(protocol.prepare):
        return
    for check, changes in _changes(protocol):
        if (other := _changed({name: protocol}, changes)) is not None:
            yield Variant(check, *other)
    if protocol.kind == "noul" and name.endswith(":noul"):
        sibling = f"{name.removesuffix(':noul')}:choice"
        try:
            other = _changed(resolve(sibling), "kind=noul,prepare=as-choice")
        except ProtocolError:
            return
        if other is not None:
            yield Variant("as choice", *other)


def with_panels(protocols: Mapping[str, Protocol]) -> dict[str, Protocol]:
    """The protocols, each followed by its panel."""
    every: dict[str, Protocol] = {}
    for name, protocol in protocols.items():
        every |= {name: protocol, **{each.name: each.protocol for each in variants(name, protocol)}}
    return every


def asks_changes(protocols: Iterable[Protocol]) -> bool:
    """Whether one of them asks changed questions."""
    return any(change_of(protocol.prepare) in CHANGES for protocol in protocols)


def _changes(protocol: Protocol) -> Iterator[tuple[str, str]]:
    """The checks that fit, with what is changed, as :func:`change_axes` takes it."""
    endpoint = READINGS[protocol.reading].needs == (Decision,)
    listed = endpoint or "{options}" in protocol.header + protocol.question
    described = protocol.described is not None or endpoint
    if protocol.kind in ("any", "choice") and listed:
        yield from (("order", f"prepare={change}") for change in _orders(protocol.choices))
        if described:
            yield "names", "prepare=renamed"
        if (
            "{letter}" in protocol.continuation
            and not endpoint
            and (letters := _other_labels(protocol))
        ):
            yield "labels", f"letters={letters}"
        yield from (("none", f"prepare={change}") for change in ("none-added", "none-for-right"))
        yield "clone", "prepare=cloned"
        yield "drop", "prepare=without-last"
    if protocol.kind == "score":
        yield "order", "prepare=reversed"
    if protocol.kind == "noul":
        yield "negation", "prepare=negated"
    if "decision" in protocol.prepare:
        yield from (("state", f"prepare={change}") for change in ("state-text", "state-object"))
    if endpoint:
        yield "batch", "prepare=batched"


def _orders(choices: int | None) -> Iterator[str]:
    """All orders of two and of three choices; of more every turn and the reverse; of an unknown number three turns."""
    yield "reversed"
    if choices is None or choices > 2:
        yield from (f"turned-{turns}" for turns in range(1, min(choices or 4, MOST_TURNS + 1)))
    if choices == 3:
        yield from ("reversed-1", "reversed-2")


def _other_labels(protocol: Protocol) -> str:
    """Digits for letters, and letters for digits; empty where there are not as many."""
    other = "ABCDEFGHIJ" if protocol.letters[:1].isdigit() else "123456789"
    if protocol.choices is None:
        return other
    return other[: protocol.choices] if protocol.choices <= len(other) else ""


def _changed(protocols: Mapping[str, Protocol], changes: str) -> tuple[str, Protocol] | None:
    """The one protocol with the changes, and its name; None where it can't have them."""
    try:
        ((name, protocol),) = change_axes(protocols, changes).items()
    except ProtocolError:
        return None
    return name, protocol
