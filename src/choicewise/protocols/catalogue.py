"""The catalogue: entries, groups and suites by name, and what a selector stands for.

Files ``catalog/FAMILY/NAME.toml`` are entries; files outside the families are bases that entries inherit from.  A file
is read when something in it is asked for; which names there are follows from the files' names.

Files below ``suites/`` are suites, with a table ``[[parts]]`` for each number: ``protocols``, selectors of the
catalogue, and with ``shots = N`` other shots than theirs; or, for what can't be scored here, ``benchmark`` and
``unscored``, the reason.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from itertools import chain
from pathlib import Path
from types import MappingProxyType
from typing import Any

from choicewise.data.files import read_toml
from choicewise.errors import ProtocolError, UsageError, did_you_mean
from choicewise.protocols.between import (
    CHANGES,
    MARK,
    End,
    Possible,
    change_axes,
    ends,
    merge_changes,
    protocols_between,
    split_changes,
)
from choicewise.protocols.names import FORMULATIONS, SCORE_NAMES
from choicewise.protocols.protocol import (
    AXES,
    FORMS,
    Protocol,
    axis_problems,
    parse_signature,
    short_signature,
    signature,
)
from choicewise.util.files import SETTINGS, read_text

_FACTS = ("name", "title", "citation", "source", "about")
_KEYS = {
    "suites": (*_FACTS, "average", "normalised", "parts"),
    "catalog": (*_FACTS, "base", "normalizations", "scores", "protocol", "variants"),
}
"""Folder of TOML files → the keys that they may have."""
_CHAT_MARK = "+"  # between a name and the form of the chat, as in ``mmlu/harness+turns:acc``
_PLAIN = ("sum", "token_mean", "byte_mean", "byte_mean_bare", "char_mean", "char_mean_bare")
_PART_KEYS = {"protocols", "shots", "benchmark", "unscored"}


@dataclass(frozen=True)
class Entry:
    """A published protocol: what it is called, who published it, where it was read, what it really does.

    ``protocols`` maps full names to protocols, the headline first: one named like the entry, or one per score or
    variant, named ``entry:score``.  ``published`` maps names by which others know its scores (``entry:acc_norm``) to
    full names.
    """

    name: str
    title: str
    citation: str
    source: str
    description: str
    protocols: Mapping[str, Protocol]
    published: Mapping[str, str]

    def called(self, name: str) -> str | None:
        """The full name of what ``name`` (``entry:score``) stands for; None where it is none of these."""
        name = self.published.get(name, name)
        return name if name in self.protocols else None


@cache
def entries() -> tuple[Entry, ...]:
    """Every entry of the catalogue, by name."""
    return tuple(map(_entry, entry_names()))


@cache
def group_names() -> Mapping[str, tuple[str, ...]]:
    """Names that mean several entries: every family (``mmlu``), and beginnings that entries share before a hyphen.

    So ``options/quoted`` is ``options/quoted-sum-forward`` and its siblings; a name that an entry has is no group.
    """
    members: dict[str, list[str]] = {}
    for known in entry_names():
        family, _, name = known.partition("/")
        words = name.split("-")
        beginnings = (f"{family}/{'-'.join(words[:count])}" for count in range(1, len(words)))
        for group in (family, *beginnings):
            members.setdefault(group, []).append(known)
    taken = {*entry_names(), *suite_names()}
    chosen = {
        name: tuple(of)
        for name, of in members.items()
        if name not in taken and (len(of) > 1 or "/" not in name)
    }
    return MappingProxyType(chosen)


@cache
def groups() -> Mapping[str, tuple[Entry, ...]]:
    """The entries of every group (:func:`group_names`)."""
    return MappingProxyType(
        {name: tuple(map(_entry, members)) for name, members in group_names().items()}
    )


@cache
def names() -> Mapping[Protocol, str]:
    """The full name of every protocol of the catalogue."""
    return MappingProxyType(
        {protocol: name for known in entries() for name, protocol in known.protocols.items()}
    )


def entry(name: str) -> Entry:
    """The entry called ``name``, or the one with a score of that full name, also as a chat or with other axes.

    Raises ProtocolError if there is none.
    """
    name, _ = split_changes(plain_name(spelled(name))[0])
    if (known := _known(name)) is not None:
        return known
    near = did_you_mean(name, _selectors(name))
    own = [known for known in entry_names() if known.partition("/")[0] == name.partition("/")[0]]
    if own and not any(
        known in near for known in own
    ):  # a benchmark that is right with a variant that it lacks
        near = f"its family has {' and '.join(filter(None, (', '.join(own[:-1]), own[-1])))}"
    raise ProtocolError(
        f"no protocol is called {name!r}; {near} (`choicewise protocols` lists them all; a file's name ends in .toml)"
    )


def resolve(*selectors: str, possible: Possible = lambda protocol: True) -> dict[str, Protocol]:
    """Name to protocol, for everything that the selectors name, in their order.

    A selector is a group (:func:`group_names`), a suite (``leaderboard/2023-06``: what all its parts are scored under),
    an entry (``mmlu/harness-v0``: all its scores), an entry with a score (``mmlu/harness-v0:sum``, or by its published
    name, ``mmlu/harness-v0:acc``), one of these with other axes (``mmlu/original@shots=0``), a signature, or the path
    of a TOML file; or two of these, ``FROM..TO``: both and every protocol between
    (:func:`~.between.protocols_between`), or ``FROM..TO:axis`` for one of them.  With ``+turns``
    or ``+message`` at the end, or before a score, it is the same as a chat (:func:`~.chat.in_chat`):
    ``mmlu/harness+turns:acc``.  Naming a protocol twice is fine;
    raises ProtocolError when one name would stand for two protocols.  ``possible``: what a way between two passes by
    (:func:`~.path.path`).
    """
    chosen: dict[str, Protocol] = {}
    for selector in selectors:
        for name, protocol in _resolve(selector, possible).items():
            if chosen.setdefault(name, protocol) != protocol:
                raise ProtocolError(
                    f"{selector} gives the name {name} to another protocol than an earlier selector"
                )
    return chosen


def one(selector: str) -> End:
    """The protocol of a selector that stands for one, or for one with several scores: then it is the headline.

    Raises ProtocolError for a group or a way, and as :func:`resolve`.
    """
    selector = spelled(selector)
    if selector in group_names() or selector in suite_names() or ends(selector, _is_one):
        raise ProtocolError(
            f"{selector} stands for several protocols; name one, such as {next(iter(resolve(selector)))}"
        )
    name, protocol = next(iter(resolve(selector).items()))
    known = _known(name)
    return End(
        name,
        protocol,
        known.name if known is not None and next(iter(known.protocols)) == name else name,
    )


def is_headline(name: str) -> bool:
    """Whether a protocol of this name is the first number of its entry, or one that the catalogue does not know."""
    plain, _ = split_changes(plain_name(name)[0])
    known = _known(plain)
    return known is None or plain in (known.name, next(iter(known.protocols)))


def spelled(selector: str) -> str:
    """``selector`` with its names as the catalogue spells them: ``MMLU`` is ``mmlu``, ``mmlu/CF`` ``mmlu/olmes-cf``.

    Signatures, files and what the catalogue does not know stay as they are.
    """
    if "|" in selector or ".toml" in selector:
        return selector
    return MARK.join(map(_spelled_name, selector.split(MARK)))


def with_changes(selector: str, changes: str) -> str:
    """The selector of the same with other axes, spelled as after ``@``; of a way both ends have them.

    Raises ProtocolError as :func:`resolve` for a signature.
    """
    if "|" in selector:
        return signature(change_axes({"": parse_signature(selector)}, changes).popitem()[1])
    way, _, axis = selector.rpartition(":")
    if axis in AXES and ends(way, _is_one):
        return f"{with_changes(way, changes)}:{axis}"
    if sides := ends(selector, _is_one):
        return MARK.join(with_changes(side, changes) for side in sides)
    plain, form = plain_name(selector)
    before, colon, score = plain.rpartition(":")
    last = f":{score}" if colon and CHANGES in before else ""  # the score may stand last
    return (
        merge_changes(plain.removesuffix(last), changes)
        + last
        + (f"{_CHAT_MARK}{form}" if form else "")
    )


def having_score(protocols: Mapping[str, Protocol], score: str) -> dict[str, Protocol]:
    """Those of ``protocols`` that decide by ``score``: its name here, at the entry, or one that many know it by.

    Raises UsageError where none does.
    """
    chosen = {
        name: protocol for name, protocol in protocols.items() if _has_score(name, protocol, score)
    }
    if not chosen:
        parts = (split_changes(plain_name(name)[0])[0].partition(":")[2] for name in protocols)
        have = list(
            dict.fromkeys(
                part or each.score for part, each in zip(parts, protocols.values(), strict=True)
            )
        )
        known = [
            *dict.fromkeys(
                [*have, *(name for name, each in SCORE_NAMES.items() if each.score in have)]
            )
        ]
        raise UsageError(
            f"none of {len(protocols)} protocols has the score {score!r}; {did_you_mean(score, known)}"
        )
    return chosen


@cache
def entry_names() -> tuple[str, ...]:
    """The name of every entry, in alphabetical order; an entry is named like its file."""
    return tuple(name for name in _files("catalog") if "/" in name)


def parse(text: str, where: str, *, allowed: Collection[str] | None = None) -> dict[str, Any]:
    """The tables of a TOML text, whose top has no key but the ``allowed`` ones; None: it may have any."""
    try:
        table = read_toml(text)
    except ValueError as error:
        raise ProtocolError(f"{where} is not valid TOML: {error}") from error
    if allowed is not None and (problems := _unknown(table, allowed)):
        raise ProtocolError.of_problems(problems).within(where)
    return table


@cache
def suite_names() -> tuple[str, ...]:
    """The name of every suite, which is its file's path, in alphabetical order."""
    return tuple(_files("suites"))


_AVERAGES = ("mean", "none")
"""What is made of the parts: their plain mean, or nothing, where the suite is only a name for all of them."""


@cache
def suite(name: str) -> Suite:
    """The suite in the file called ``name``, one of :func:`suite_names`.

    A part of an average takes the headline of what it names, a suite without average takes all of it.  Raises
    ProtocolError, naming the suite, for a part that does not resolve.
    """
    table = _table("suites", name)
    average = table["average"]
    if average not in _AVERAGES:
        raise ProtocolError(
            f"{name}: average is {average!r}; it must be one of {', '.join(_AVERAGES)}"
        )
    try:
        parts = tuple(part for each in table["parts"] for part in _parts(each, average == "none"))
    except ProtocolError as error:
        raise error.within(name) from error
    return Suite(
        name=table["name"],
        title=table["title"],
        citation=table["citation"],
        source=table["source"],
        description=table["about"],
        parts=parts,
        normalised=table.get("normalised", False),
        average=average,
    )


def inherit(
    name: str,
    own: Mapping[str, Mapping[str, Any]] = MappingProxyType({}),
    heirs: tuple[str, ...] = (),
) -> Protocol:
    """The protocol of the file ``name``: the axes it states, then those of its ``base``, then the defaults.

    ``own``: tables of files beside those of the catalogue, by name; ``heirs``: the names that inherit from this one.
    Raises ProtocolError, naming the files, for an unknown base and for a base that inherits from its own heir.
    """
    if name in heirs:
        raise ProtocolError(
            f"{' inherits from '.join((*heirs, name))}; a base must not inherit from its heirs"
        )
    if name not in own and name not in _files("catalog"):
        hint = did_you_mean(name, [*own, *_files("catalog")])
        raise ProtocolError(f"{heirs[-1]}: base {name!r} is not in the catalogue; {hint}")
    table = own[name] if name in own else _table("catalog", name)
    base = inherit(table["base"], own, (*heirs, name)) if "base" in table else None
    return read_axes(table.get("protocol", {}), name, base)


def read_axes(axes: object, where: str, base: Protocol | None = None) -> Protocol:
    """The protocol that a table of axes spells; axes that are left out are those of ``base``, else the defaults.

    TOML has no null: an axis that does not apply is ``"-"``, as in a signature, and ``choices = "any"`` takes items
    with any number of choices.  Raises ProtocolError, saying ``where``, with everything that is wrong.
    """
    if not isinstance(axes, Mapping):
        raise ProtocolError(
            f"{where}: protocol is {axes!r}; it must be a table, [protocol] on a line of its own"
        )
    values, problems = _values(axes), _unknown(axes, AXES)
    if base is None and "benchmark" not in values:
        problems.append(
            'no benchmark; state benchmark = "..." under [protocol], or a base = "mmlu/original"'
        )
        values["benchmark"] = "unknown"
    try:
        protocol = Protocol(**values) if base is None else replace(base, **values)
    except ProtocolError as error:
        problems += error.parts
    if problems:
        raise ProtocolError.of_problems(problems).within(where)
    return protocol


@dataclass(frozen=True)
class Part:
    """What a suite has one number of.

    ``benchmark``: the name of its data.  ``protocols``: by name; where there are several, the best counts (and all are
    shown).  ``unscored``: why it can't be scored here, empty where it can; then it has no protocols.
    """

    benchmark: str
    protocols: Mapping[str, Protocol]
    unscored: str = ""


@dataclass(frozen=True)
class Suite:
    """The parts whose numbers are published together, in the order in which they are shown.

    ``average``: one of :data:`_AVERAGES`.  ``normalised``: every value counts from guessing (0) to all right (1) before
    it is averaged, by subject where the protocol averages over subjects.
    """

    name: str
    title: str
    citation: str
    source: str
    description: str
    parts: tuple[Part, ...]
    normalised: bool
    average: str

    @property
    def protocols(self) -> dict[str, Protocol]:
        """The protocols of all parts, by name."""
        return {name: protocol for part in self.parts for name, protocol in part.protocols.items()}


def in_chat(
    named: Mapping[str, Protocol], form: str | None, system: str | None = None
) -> dict[str, Protocol]:
    """``named``, those without a chat in the ``form`` of one and called after it, all with the ``system`` text.

    A protocol that states its own chat or system text keeps it.  Raises UsageError for a form or a system text that
    does nothing, and ProtocolError, naming the protocol, for one that can't be a chat.
    """
    if form is not None and form not in FORMS:
        raise UsageError(f"there is no chat {form!r}; it is {' or '.join(FORMS)}")
    if system is not None and form is None and all(each.chat == "none" for each in named.values()):
        raise UsageError("a system text needs a chat: turns or message")
    chats: dict[str, Protocol] = {}
    for name, protocol in named.items():
        chat = protocol.chat if form is None or protocol.chat != "none" else form
        text = protocol.system if chat == "none" or protocol.system is not None else system
        try:
            chats[name if chat == protocol.chat else chat_name(name, chat)] = replace(
                protocol, chat=chat, system=text
            )
        except ProtocolError as error:
            raise ProtocolError(f"{name} can't be a chat: {error}") from error
    return chats


def chat_name(name: str, form: str) -> str:
    """What a protocol is called in this form of a chat: the form stands before the score."""
    entry, colon, score = name.rpartition(":")
    return f"{entry}{_CHAT_MARK}{form}:{score}" if colon else f"{name}{_CHAT_MARK}{form}"


def plain_name(selector: str) -> tuple[str, str | None]:
    """A selector without the form of a chat, and that form, if it names one."""
    for form in FORMS:
        front, mark, back = selector.rpartition(_CHAT_MARK + form)
        if mark and (not back or back[0] in ":@"):
            return front + back, form
    return selector, None


def _is_one(selector: str) -> bool:
    if "|" in selector:
        try:
            return bool(parse_signature(selector))
        except ProtocolError:
            return False
    plain, _ = plain_name(selector)
    named, _ = split_changes(plain)
    return plain.endswith(".toml") or _is_name(named)


def _resolve(selector: str, possible: Possible) -> dict[str, Protocol]:
    selector = spelled(selector)
    way, _, axis = selector.rpartition(":")
    if axis in AXES and (sides := ends(way, _is_one)):
        start, end = map(one, sides)
        inside, called = (
            protocols_between(start, end, names(), possible),
            f"{start.label}{MARK}{end.label}",
        )
        if f"{called}:{axis}" not in inside:
            raise ProtocolError(
                f"{called} has no protocol that is called after {axis}; it has {', '.join(inside)}"
            )
        return {f"{called}:{axis}": inside[f"{called}:{axis}"]}
    if sides := ends(selector, _is_one):
        start, end = map(one, sides)
        return protocols_between(start, end, names(), possible)
    plain, form = plain_name(selector)
    if form is not None:
        try:
            return in_chat(_resolve(plain, possible), form)
        except ProtocolError:
            if CHANGES not in plain or "|" in plain:
                raise
        change = f",chat={form}"  # of axes that mean something in a chat alone
        chats = _resolve(with_changes(plain, change[1:]), possible)
        return {
            chat_name(name.replace(change, ""), form): protocol for name, protocol in chats.items()
        }
    if "|" in selector:
        protocol = parse_signature(selector)
        return {names().get(protocol, short_signature(protocol)): protocol}
    if selector.endswith(".toml"):
        return _resolve_file(selector)
    if selector in group_names():
        members = map(_entry, group_names()[selector])
        return {name: protocol for known in members for name, protocol in known.protocols.items()}
    if selector in suite_names():
        return dict(suite(selector).protocols)
    if MARK in selector:  # whichever of the two is not known says so
        for side in selector.split(MARK, 1):
            one(side)
    if CHANGES in selector:
        changed, changes = split_changes(selector)
        before, _, score = changes.rpartition(":")
        if before and _is_name(f"{changed}:{score}"):  # the score may stand last, too
            changed, changes = f"{changed}:{score}", before
        return change_axes(_resolve(changed, possible), changes)
    named = entry(selector)
    if selector == named.name:
        return dict(named.protocols)
    name = named.called(selector) or selector
    return {name: named.protocols[name]}


@cache
def _files(folder: str) -> Mapping[str, Traversable]:
    """Every TOML file at most a folder deep by its path without the suffix, in alphabetical order."""
    top = files("choicewise.protocols") / folder
    folders = [
        ("", top),
        *((f"{family.name}/", family) for family in top.iterdir() if family.is_dir()),
    ]
    inside = ((f"{prefix}{file.name}", file) for prefix, each in folders for file in each.iterdir())
    return {
        path.removesuffix(".toml"): file for path, file in sorted(inside) if path.endswith(".toml")
    }


@cache
def _table(folder: str, name: str) -> Mapping[str, Any]:
    return parse(_files(folder)[name].read_text(encoding="utf-8"), name, allowed=_KEYS[folder])


def _unknown(table: Mapping[str, object], known: Collection[str]) -> list[str]:
    return [f"unknown key {key!r}; {did_you_mean(key, known)}" for key in table if key not in known]


def _resolve_file(path: str) -> dict[str, Protocol]:
    try:
        text = read_text(Path(path), SETTINGS)
    except OSError as error:
        raise ProtocolError(
            f"{path} can't be read: {error.strerror}; give the path of a protocol file"
        ) from error
    except UnicodeDecodeError as error:
        raise ProtocolError(
            f"{path} is not UTF-8 text (byte {error.start}); save it as UTF-8"
        ) from error
    table = parse(text, path)
    protocol = _read_user_protocol(table, path)
    name = table.get("name", Path(path).stem)
    if _is_name(name) and resolve(name) != {name: protocol}:
        raise ProtocolError(
            f"{path}: the name {name} belongs to the catalogue; give the file another name"
        )
    return {name: protocol}


def _is_name(name: str) -> bool:
    return name in group_names() or name in suite_names() or _known(name) is not None


def _known(name: str) -> Entry | None:
    first = name.partition(":")[0]
    known = _entry(first) if first in entry_names() else None
    own = known is not None and (name == first or known.called(name) is not None)
    return known if own else None


@cache
def _cases() -> Mapping[str, str]:
    """Every name of an entry, group or suite, by itself in lower case."""
    return {name.casefold(): name for name in (*entry_names(), *group_names(), *suite_names())}


def _spelled_name(selector: str) -> str:
    """``selector``, which is no way, with the name that it begins with as the catalogue spells it."""
    marks = (":", "@", *(_CHAT_MARK + form for form in FORMS))
    end = min(
        (place for mark in marks if (place := selector.casefold().find(mark)) >= 0),
        default=len(selector),
    )
    name, rest = selector[:end], selector[end:]
    family, _, formulation = name.casefold().partition("/")
    ours = f"{family}/{FORMULATIONS[formulation]}" if formulation in FORMULATIONS else ""
    return _cases().get(name.casefold(), _cases().get(ours, name)) + rest


def _has_score(name: str, protocol: Protocol, score: str) -> bool:
    plain, _ = split_changes(plain_name(name)[0])
    known = _known(plain)
    if known is not None and (own := known.called(f"{known.name}:{score}")) is not None:
        return own in (plain, known.called(plain))
    if plain.partition(":")[2] == score:
        return True
    return all(getattr(protocol, axis) == value for axis, value in _deciding_axes(score).items())


def _deciding_axes(score: str) -> dict[str, Any]:
    """The axes of a protocol whose number is the accuracy by ``score``, of ours or by a known name, and no more."""
    ours = SCORE_NAMES[score].score if score in SCORE_NAMES else score
    axes = {
        **SCORES.get(ours, {"score": ours}),
        "metric": "acc",
        "decision": "argmax",
        "calibration": "none",
    }
    values = _values(axes)
    values.pop("rev", None)
    return values


def _selectors(name: str) -> list[str]:
    family = f"{name.partition('/')[0]}/"
    members = (_entry(known) for known in entry_names() if known.startswith(family))
    own = ((known.name, *known.protocols, *known.published) for known in members)
    every = dict.fromkeys(
        chain(group_names(), suite_names(), entry_names(), chain.from_iterable(own))
    )
    return [each for each in every if ":" in name or ":" not in each]


_NULLS: Mapping[str, Mapping[str, Any]] = {
    "empty": {"null": ""},
    "answer": {"null": "Answer:"},
    "answer-space": {"null": "Answer: ", "rev": 2},
    "colon": {"null": ":"},
}
"""Both sides score the continuation, space included; but after ``Answer: `` it loses the space, which stands there."""

SCORES: Mapping[str, Mapping[str, Any]] = {
    **{name: {"score": name, "null": "-"} for name in _PLAIN},
    **{f"pmi-{name}": {"score": "pmi", **axes} for name, axes in _NULLS.items()},
}
"""The reductions that an entry with ``normalizations = true`` has, one protocol each, as axes.

An entry whose source has scores of its own lists them instead: a table ``[variants.NAME]`` each, with the axes that
differ from ``[protocol]``; the first is the headline and differs in none.
"""


@cache
def _entry(name: str) -> Entry:
    table, headline = _table("catalog", name), inherit(name)
    variants = SCORES if table.get("normalizations", False) else table.get("variants", {})
    protocols = {
        f"{name}:{variant}": read_axes(axes, name, headline) for variant, axes in variants.items()
    }
    protocols = dict(sorted(protocols.items(), key=lambda variant: variant[1] != headline)) or {
        name: headline
    }
    published = {
        f"{name}:{alias}": f"{name}:{score}" for alias, score in table.get("scores", {}).items()
    }
    for score in SCORE_NAMES:
        fitting = protocols
        for axis, value in _deciding_axes(score).items():
            fitting = {
                full: protocol
                for full, protocol in fitting.items()
                if getattr(protocol, axis) == value
            }
        if len(fitting) == 1 and f"{name}:{score}" not in protocols:
            published.setdefault(f"{name}:{score}", next(iter(fitting)))
    return Entry(
        name=table["name"],
        title=table["title"],
        citation=table["citation"],
        source=table["source"],
        description=table["about"],
        protocols=MappingProxyType(protocols),
        published=MappingProxyType(published),
    )


def _parts(table: Mapping[str, Any], every: bool) -> Iterator[Part]:
    """The part of a table; several where what it names is of several benchmarks."""
    if unknown := set(table) - _PART_KEYS:
        raise ProtocolError(
            f"a part has the unknown key {min(unknown)!r}; known are {', '.join(sorted(_PART_KEYS))}"
        )
    if "unscored" in table:
        yield Part(table["benchmark"], {}, table["unscored"])
        return
    changes = f"{CHANGES}shots={table['shots']}" if "shots" in table else ""
    by_benchmark: dict[str, dict[str, Protocol]] = {}
    for selector in table["protocols"]:
        whole = f"{selector}{changes}"
        named = resolve(whole) if every else {(headline := one(whole)).name: headline.protocol}
        for name, protocol in named.items():
            by_benchmark.setdefault(protocol.benchmark, {})[name] = protocol
    for benchmark, protocols in by_benchmark.items():
        yield Part(benchmark, protocols)


def _read_user_protocol(table: Mapping[str, Any], path: str) -> Protocol:
    """The protocol of a user's file: ``name``, ``about``, ``base`` and the table ``[protocol]``, each optional."""
    problems = _unknown(table, ("name", "about", "base", "protocol"))
    wrong = [key for key in ("name", "about", "base") if not isinstance(table.get(key, ""), str)]
    problems += [f'{key} is {table[key]!r}; write it in quotes, {key} = "..."' for key in wrong]
    base = protocol = None
    axes = table.get("protocol", {})
    try:
        if "base" in table and "base" not in wrong:
            base = inherit(table["base"], {path: table}, (path,))
        if base is not None or "base" not in table:
            protocol = read_axes(axes, path, base)
    except ProtocolError as error:
        problems += [part.removeprefix(f"{path}: ") for part in error.parts]
    if (
        "base" in table and base is None and isinstance(axes, Mapping)
    ):  # whether the axes go together can't be said
        problems += [*_unknown(axes, AXES), *axis_problems(_values(axes))]
    if problems or protocol is None:
        raise ProtocolError.of_problems(problems).within(path)
    return protocol


def _values(axes: Mapping[str, object]) -> dict[str, Any]:
    values = {
        name: None if value == "-" and "None" in AXES[name] else value
        for name, value in axes.items()
        if name in AXES
    }
    return values | ({"choices": None} if values.get("choices") == "any" else {})
