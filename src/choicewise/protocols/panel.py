"""Make the panel of a protocol: changed questions that should leave the answers unchanged."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from choicewise.errors import ProtocolError
from choicewise.protocols.between import change_axes
from choicewise.protocols.catalogue import resolve
from choicewise.protocols.changes import MOST_TURNS
from choicewise.protocols.preparations import change_of
from choicewise.protocols.protocol import Protocol, Protocols
from choicewise.protocols.readings import READINGS
from choicewise.questions import Decision


@dataclass(frozen=True, slots=True)
class CheckAbout:
    """Say what a check ``changes``, and the distance of probabilities that it measures."""

    changes: str
    measure: str = "TV"


CHECKS = {
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


@dataclass(frozen=True, slots=True)
class Variant:
    """Hold a protocol of the panel of another one, under its ``name``."""

    check: str
    name: str
    protocol: Protocol


def variants(name: str, protocol: Protocol) -> Iterator[Variant]:
    """Yield the panel of a protocol.

    A protocol has none if its answers are not probabilities of the item's choices.
    """
    if not READINGS[protocol.reading].by_choice or change_of(protocol.prepare):
        return
    for check, changes in _changes(protocol):
        yield from _changed(check, {name: protocol}, changes)
    if protocol.kind == "noul" and name.endswith(":noul"):
        sibling = f"{name.removesuffix(':noul')}:choice"
        try:
            siblings = resolve(sibling)
        except ProtocolError:
            return
        yield from _changed("as choice", siblings, "kind=noul,prepare=as-choice")


def with_panels(protocols: Protocols) -> dict[str, Protocol]:
    """Return the protocols, each followed by its panel."""
    with_variants: dict[str, Protocol] = {}
    for name, protocol in protocols.items():
        with_variants[name] = protocol
        for variant in variants(name, protocol):
            with_variants[variant.name] = variant.protocol
    return with_variants


def _changes(protocol: Protocol) -> Iterator[tuple[str, str]]:
    """Yield the checks that fit, with the changes that :func:`change_axes` takes."""
    asks_endpoint = READINGS[protocol.reading].needs == (Decision,)
    has_options = asks_endpoint or protocol.lists_options
    if protocol.kind in ("any", "choice") and has_options:
        yield from _changes_of_options(protocol, asks_endpoint)
    if protocol.kind == "score":
        yield "order", "prepare=reversed"
    if protocol.kind == "noul":
        yield "negation", "prepare=negated"
    if "decision" in protocol.prepare:
        yield "state", "prepare=state-text"
        yield "state", "prepare=state-object"
    if asks_endpoint:
        yield "batch", "prepare=batched"


def _changes_of_options(protocol: Protocol, asks_endpoint: bool) -> Iterator[tuple[str, str]]:
    yield "order", "prepare=reversed"
    # Every order of two and three choices; of more, every turn, and of an unknown number three.
    choices = protocol.choices
    if choices is None or choices > 2:
        for turns in range(1, min(choices or 4, MOST_TURNS + 1)):
            yield "order", f"prepare=turned-{turns}"
    if choices == 3:
        yield "order", "prepare=reversed-1"
        yield "order", "prepare=reversed-2"
    if protocol.described is not None or asks_endpoint:
        yield "names", "prepare=renamed"
    if "{letter}" in protocol.continuation and not asks_endpoint:
        # Digits for letters, and letters for digits, if there are enough.
        labels = "ABCDEFGHIJ" if protocol.letters[:1].isdigit() else "123456789"
        count = protocol.choices or len(labels)
        if count <= len(labels):
            yield "labels", f"letters={labels[:count]}"
    yield "none", "prepare=none-added"
    yield "none", "prepare=none-for-right"
    yield "clone", "prepare=cloned"
    yield "drop", "prepare=without-last"


def _changed(check: str, protocols: Protocols, changes: str) -> Iterator[Variant]:
    """Yield the one protocol with the changes; nothing if it can't have them."""
    try:
        ((name, protocol),) = change_axes(protocols, changes).items()
    except ProtocolError:
        return
    yield Variant(check, name, protocol)
