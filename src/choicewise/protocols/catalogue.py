"""The published protocols by name, and the one place where a name, signature or file becomes a protocol."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from difflib import get_close_matches
from functools import cache
from importlib.resources import files
from pathlib import Path
from types import MappingProxyType
from typing import Any

from choicewise.errors import ProtocolError
from choicewise.protocols.protocol import Protocol
from choicewise.protocols.protocol_file import parse, read_axes, read_file
from choicewise.protocols.signature import parse_signature, short_signature

SCORES: Mapping[str, Mapping[str, str | None]] = MappingProxyType(
    {
        "sum": {"score": "sum", "null": None},
        "token_mean": {"score": "token_mean", "null": None},
        "byte_mean": {"score": "byte_mean", "null": None},
        "byte_mean_bare": {"score": "byte_mean_bare", "null": None},
        "char_mean": {"score": "char_mean", "null": None},
        "char_mean_bare": {"score": "char_mean_bare", "null": None},
        "pmi-empty": {"score": "pmi", "null": ""},
        "pmi-answer": {"score": "pmi", "null": "Answer:"},
        "pmi-answer-space": {"score": "pmi", "null": "Answer: "},
        "pmi-colon": {"score": "pmi", "null": ":"},
    }
)
"""Every way to make one number of a choice's tokens.  An entry with ``normalizations = true`` has one protocol each.

An entry of a source that has its own few ways names them instead: a table ``[variants.NAME]`` each, with the axes that
differ from ``[protocol]``; the first is the headline and differs in none.
"""

_KEYS = ("name", "title", "citation", "source", "about", "normalizations", "scores", "protocol", "variants")


@dataclass(frozen=True)
class Entry:
    """A published protocol: what it is called, who published it, where it was read, what it really does.

    ``protocols`` maps full names to protocols, the headline first: one named like the entry, or one per score or
    variant, named ``entry:score``.  ``published`` maps names that the source itself gives a score (``entry:acc_norm``)
    to full names.
    """

    name: str
    title: str
    citation: str
    source: str
    about: str
    protocols: Mapping[str, Protocol]
    published: Mapping[str, str]


@cache
def entries() -> tuple[Entry, ...]:
    """Every entry of the catalogue, by name."""
    found = [
        _read_entry(f"{family.name}/{file.name.removesuffix('.toml')}", file.read_text(encoding="utf-8"))
        for family in (files("choicewise.protocols") / "catalog").iterdir()
        if family.is_dir()
        for file in family.iterdir()
        if file.name.endswith(".toml")
    ]
    return tuple(sorted(found, key=lambda known: known.name))


def entry(name: str) -> Entry:
    """The entry called ``name``, or the one with a score of that full name.  Raises ProtocolError if there is none."""
    for candidate in entries():
        if name == candidate.name or name in candidate.protocols or name in candidate.published:
            return candidate
    raise _unknown(name)


def resolve(*selectors: str) -> dict[str, Protocol]:
    """Name to protocol, for everything that the selectors name, in their order.

    A selector is a family (``mmlu``), the beginning of some names in it (``options/quoted`` for all that go on with a
    hyphen), an entry (``mmlu/harness-v0``: all its scores), an entry with a score
    (``mmlu/harness-v0:sum``, or by its published name, ``mmlu/harness-v0:acc``), a signature, or the path of a TOML
    file.  Naming a protocol twice is fine; raises ProtocolError when one name would stand for two protocols.
    """
    chosen: dict[str, Protocol] = {}
    for selector in selectors:
        for name, protocol in _resolve(selector).items():
            if chosen.setdefault(name, protocol) != protocol:
                raise ProtocolError(f"{selector} gives the name {name} to another protocol than an earlier selector")
    return chosen


def _resolve(selector: str) -> dict[str, Protocol]:
    if "|" in selector:
        protocol = parse_signature(selector)
        return {_name(protocol): protocol}
    if selector.endswith(".toml"):
        return _resolve_file(selector)
    begun = f"{selector}-" if "/" in selector else f"{selector}/"
    family = [known for known in entries() if known.name.startswith(begun)]
    if family and selector not in {known.name for known in entries()}:
        return {name: protocol for known in family for name, protocol in known.protocols.items()}
    named = entry(selector)
    if selector == named.name:
        return dict(named.protocols)
    name = named.published.get(selector, selector)
    return {name: named.protocols[name]}


def _resolve_file(path: str) -> dict[str, Protocol]:
    name, protocol = read_file(Path(path))
    if name in _names() and resolve(name) != {name: protocol}:
        raise ProtocolError(f"{path}: the name {name} belongs to the catalogue; give the file another name")
    return {name: protocol}


def _name(protocol: Protocol) -> str:
    """The catalogue's name of a protocol, else its short signature."""
    names = {other: name for known in entries() for name, other in known.protocols.items()}
    return names.get(protocol, short_signature(protocol))


def _names() -> list[str]:
    """Everything that the catalogue can be asked for."""
    names: dict[str, None] = {}
    for known in entries():
        names |= dict.fromkeys((known.name.partition("/")[0], known.name, *known.protocols, *known.published))
    return list(names)


def _unknown(name: str) -> ProtocolError:
    near = get_close_matches(name, _names(), n=3)
    hint = f"did you mean {' or '.join(near)}?" if near else "a file's name ends in .toml;"
    return ProtocolError(f"no protocol is called {name!r}; {hint} `choicewise protocols` lists them all")


def _read_entry(name: str, text: str) -> Entry:
    """The entry in one file of the catalogue; the tests see to it that every file is complete."""
    table: dict[str, Any] = parse(text, name, allowed=_KEYS)
    headline = read_axes(table["protocol"], name)
    protocols = {name: headline}
    if table.get("normalizations", False):
        variants = {f"{name}:{score}": replace(headline, **axes) for score, axes in SCORES.items()}  # type: ignore[arg-type]
        protocols = dict(sorted(variants.items(), key=lambda variant: variant[1] != headline))
    if "variants" in table:
        protocols = {
            f"{name}:{variant}": read_axes({**table["protocol"], **axes}, f"{name}:{variant}")
            for variant, axes in table["variants"].items()
        }
    return Entry(
        name=table["name"],
        title=table["title"],
        citation=table["citation"],
        source=table["source"],
        about=table["about"],
        protocols=MappingProxyType(protocols),
        published=MappingProxyType(
            {f"{name}:{alias}": f"{name}:{score}" for alias, score in table.get("scores", {}).items()}
        ),
    )
