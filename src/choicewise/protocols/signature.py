"""Signature, family, unused content.

``benchmark:mmlu|split:test|...|rev:1``.  Inside a value ``%``, ``|`` and everything unprintable are percent-encoded
(UTF-8), so a newline reads ``%0A``; ``-`` alone means that the axis does not apply.  Design note:
``docs/design/signature.md``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import fields
from functools import lru_cache
from urllib.parse import quote, unquote

from choicewise.data.items import BLANK
from choicewise.errors import ProtocolError, did_you_mean
from choicewise.protocols.preparations import SHOWS
from choicewise.protocols.protocol import AXES, Protocol, holes
from choicewise.protocols.readings import READINGS


def signature(protocol: Protocol) -> str:
    """One line that states every axis and parses back to an equal protocol."""
    return "|".join(f"{name}:{_spell(getattr(protocol, name))}" for name in AXES)


@lru_cache(maxsize=1024)
def parse_signature(text: str) -> Protocol:
    """The protocol that ``text`` spells.

    An axis that did not exist when the text was written has the value that was meant then.  Raises ProtocolError when
    an axis is unknown, repeated, missing or malformed.
    """
    values: dict[str, str | int | None] = {}
    for part in text.split("|"):
        name, colon, spelled = part.partition(":")
        if not colon:
            raise ProtocolError(f"signature part {part!r} has no colon; write AXIS:VALUE")
        if name not in AXES:
            raise ProtocolError(f"signature part {part!r} names no axis; {did_you_mean(name, AXES)}")
        if name in values:
            raise ProtocolError(f"signature states axis {name} twice")
        values[name] = read_axis(name, spelled)
    later = {axis.name: axis.metadata["before"] for axis in fields(Protocol) if "before" in axis.metadata}
    values = {**later, **values}
    if missing := [name for name in AXES if name not in values]:
        raise ProtocolError(f"signature leaves out {', '.join(missing)}; every axis must be stated")
    return Protocol(**values)  # type: ignore[arg-type]


def short_signature(protocol: Protocol) -> str:
    """``#P`` and the first six hex digits of the digest, which differ between the rows of a table."""
    return f"#P{protocol.digest[:6]}"


def axis_differences(left: Protocol, right: Protocol) -> list[tuple[str, str, str]]:
    """(axis, left spelling, right spelling) for each axis in which the two protocols differ."""
    values = ((name, getattr(left, name), getattr(right, name)) for name in AXES)
    return [(name, _spell(one), _spell(other)) for name, one, other in values if one != other]


def read_axis(name: str, spelled: str) -> str | int | None:
    """The value of the axis ``name`` that is spelled so; ProtocolError where there is no such axis or value."""
    if name not in AXES:
        raise ProtocolError(f"{name!r} names no axis; {did_you_mean(name, AXES)}")
    if spelled == "-" and "None" in AXES[name]:
        return None
    if "int" in AXES[name]:
        if not (spelled.isascii() and spelled.isdigit()):
            raise ProtocolError(f"signature axis {name} is {spelled!r}; it must be a whole number")
        return int(spelled)
    try:
        return unquote(spelled, errors="strict")
    except UnicodeDecodeError as error:
        raise ProtocolError(f"signature axis {name} holds bytes that are not UTF-8: {spelled!r}") from error


RENDERED = "rendered requests"
"""The family of protocols whose requests were rendered elsewhere, so that their axes don't show what is asked."""


def family(protocol: Protocol) -> str:
    """What ``protocol`` asks for, from its axes.

    ``letters``, ``letters with answers``, ``whole answers`` (after the options were shown) and ``cloze`` (they were
    not) by what is scored; the reading's own words where it asks for something else, such as ``generated answers``.
    """
    if asked := READINGS[protocol.reading].family:
        return asked
    if protocol.requests is not None:
        return RENDERED
    scored = holes(protocol.continuation) | holes(protocol.proposal)
    if "letter" in scored:
        return "letters with answers" if "choice" in scored else "letters"
    if "choice" in scored:
        return "whole answers" if "options" in holes(protocol.question) else "cloze"
    return protocol.reading.replace("-", " ")


def unused(protocol: Protocol, content: Iterable[str]) -> tuple[str, ...]:
    """Those of the fields ``content`` that the protocol does not show, in their order.

    A blank in the question is used where labels answer for the choices; a choice that is scored after the question does
    not fill it.  A protocol that leaves out the question itself does so on purpose, and of requests that were rendered
    elsewhere nothing is known.
    """
    shown = holes(protocol.question).union(SHOWS.get(protocol.prepare, ()))
    if protocol.requests is not None or "question" not in shown:
        return ()
    fills = "choice" not in holes(protocol.continuation) | holes(protocol.proposal)
    return tuple(name for name in content if name not in shown and not (name == BLANK and fills))


def unused_by(protocols: Mapping[str, Protocol], content: Iterable[str]) -> dict[tuple[str, ...], list[str]]:
    """Content → the protocols that leave just that out; nothing for those that leave nothing out."""
    groups: dict[tuple[str, ...], list[str]] = {}
    for name, protocol in protocols.items():
        groups.setdefault(unused(protocol, content), []).append(name)
    groups.pop((), None)
    return groups


def _spell(value: str | int | None) -> str:
    if value is None:
        return "-"
    if isinstance(value, int):
        return str(value)
    if value == "-":
        return "%2D"
    return "".join(char if char.isprintable() and char not in "%|" else quote(char) for char in value)
