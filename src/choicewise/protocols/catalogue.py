"""Find entries, groups and suites of protocols by name, and resolve selectors to protocols.

Files ``catalog/FAMILY/NAME.toml`` are entries; files outside the families are bases that entries
inherit from.  A file is read when something in it is asked for; the names follow from the files'
names.

Files below ``suites/`` are suites, with a table ``[[parts]]`` for each number: ``protocols``,
selectors of the catalogue, and with ``shots = N`` other shots than theirs; or, if a part can't be
scored here, ``benchmark`` and ``unscored``, the reason.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from types import MappingProxyType

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
    Protocols,
    axis_problems,
    parse_signature,
    short_signature,
    signature,
)
from choicewise.util.files import SETTINGS, read_text
from choicewise.util.jsonio import JsonDict, JsonMapping

_FACTS = ("name", "title", "citation", "source", "about")
_KEYS = {
    "suites": (*_FACTS, "average", "normalised", "parts"),
    "catalog": (*_FACTS, "base", "normalizations", "scores", "protocol", "variants"),
}
"""The keys that TOML files may have, by folder."""

_CHAT_MARK = "+"
"""Between a name and the form of the chat, such as ``mmlu/harness+turns:acc``."""

_PLAIN = ("sum", "token_mean", "byte_mean", "byte_mean_bare", "char_mean", "char_mean_bare")
_PART_KEYS = {"protocols", "shots", "benchmark", "unscored"}


@dataclass(frozen=True, kw_only=True)
class Entry:
    """Describe a published protocol: its name, its citation, and where it was read.

    ``protocols`` maps full names to protocols, the headline first: one named like the entry, or one
    per score or variant, named ``entry:score``.  ``published`` maps names by which others know its
    scores (``entry:acc_norm``) to full names.
    """

    name: str
    title: str
    citation: str
    source: str
    description: str
    protocols: Protocols
    published: Mapping[str, str]

    @property
    def headline(self) -> str:
        """Return the full name of the first protocol."""
        return next(iter(self.protocols))

    def called(self, name: str) -> str | None:
        """Return the full name of a score (``entry:score``); None if it is unknown."""
        name = self.published.get(name, name)
        return name if name in self.protocols else None


@cache
def entries() -> tuple[Entry, ...]:
    """Return every entry of the catalogue, by name."""
    return tuple(map(_entry, entry_names()))


@cache
def group_names() -> Mapping[str, tuple[str, ...]]:
    """Return names that mean several entries, with the entries' names.

    They are the families (``mmlu``), and beginnings that entries share before a hyphen:
    ``options/quoted`` is ``options/quoted-sum-forward`` and its siblings.  A name that an entry has
    is no group.
    """
    members: dict[str, list[str]] = {}
    for full_name in entry_names():
        family, _, name = full_name.partition("/")
        members.setdefault(family, []).append(full_name)
        words = name.split("-")
        for count in range(1, len(words)):
            beginning = f"{family}/{'-'.join(words[:count])}"
            members.setdefault(beginning, []).append(full_name)
    groups_of_names = {}
    for group, names_of_group in members.items():
        if group in entry_names() or group in suite_names():
            continue
        is_family = "/" not in group
        if is_family or len(names_of_group) > 1:
            groups_of_names[group] = tuple(names_of_group)
    return MappingProxyType(groups_of_names)


@cache
def groups() -> Mapping[str, tuple[Entry, ...]]:
    """Return the entries of every group (:func:`group_names`)."""
    members = {name: tuple(map(_entry, members)) for name, members in group_names().items()}
    return MappingProxyType(members)


@cache
def names() -> Mapping[Protocol, str]:
    """Return the full name of every protocol of the catalogue."""
    name_of = {}
    for catalogued in entries():
        for name, protocol in catalogued.protocols.items():
            name_of[protocol] = name
    return MappingProxyType(name_of)


def entry(name: str) -> Entry:
    """Return the entry called ``name``, or with a score of that name, also as a chat or changed.

    Raises ProtocolError if there is none.
    """
    name, _ = split_changes(plain_name(spelled(name))[0])
    owner = _owner(name)
    if owner is not None:
        return owner
    near = did_you_mean(name, _selectors(name))
    family = name.partition("/")[0]
    siblings = [sibling for sibling in entry_names() if sibling.partition("/")[0] == family]
    is_near = any(sibling in near for sibling in siblings)
    # The benchmark is right, but it has no such variant.
    if siblings and not is_near:
        near = f"its family has {_enumerated(siblings)}"
    raise ProtocolError(
        f"no protocol is called {name!r}; {near} (`choicewise protocols` lists all; a file name "
        "ends in .toml)"
    )


def _enumerated(siblings: list[str]) -> str:
    if len(siblings) == 1:
        return siblings[0]
    return f"{', '.join(siblings[:-1])} and {siblings[-1]}"


def resolve(*selectors: str, possible: Possible = lambda protocol: True) -> dict[str, Protocol]:
    """Return the protocols that the selectors name, by name, in their order.

    A selector is

    - a group (:func:`group_names`),
    - a suite (``leaderboard/2023-06``: the protocols of all its parts),
    - an entry (``mmlu/harness-v0``: all its scores),
    - an entry with a score (``mmlu/harness-v0:sum``, or by its published name,
      ``mmlu/harness-v0:acc``),
    - one of these with other axes (``mmlu/original@shots=0``),
    - a signature, or the path of a TOML file,
    - two of these, ``FROM..TO``: both and every protocol between
      (:func:`~choicewise.protocols.between.protocols_between`); ``FROM..TO:axis`` is one of them.

    With ``+turns`` or ``+message`` at the end, or before a score, it is a chat (:func:`in_chat`):
    ``mmlu/harness+turns:acc``.  Protocols may be named twice; raises ProtocolError if one name
    would stand for two protocols.  ``possible``: protocols that a way between two may take.
    """
    chosen: dict[str, Protocol] = {}
    for selector in selectors:
        for name, protocol in _resolve(selector, possible).items():
            if chosen.setdefault(name, protocol) != protocol:
                raise ProtocolError(
                    f"{selector} gives the name {name} to a different protocol than an earlier "
                    "selector"
                )
    return chosen


def one(selector: str) -> End:
    """Return the one protocol of a selector, or the headline of several scores.

    Raises ProtocolError for a group or a way, and if :func:`resolve` does.
    """
    selector = spelled(selector)
    if selector in group_names() or selector in suite_names() or ends(selector, _is_one):
        first = next(iter(resolve(selector)))
        raise ProtocolError(f"{selector} is several protocols; name one, such as {first}")
    name, protocol = next(iter(resolve(selector).items()))
    owner = _owner(name)
    if owner is not None and owner.headline == name:
        return End(name, protocol, owner.name)
    return End(name, protocol, name)


def is_headline(name: str) -> bool:
    """Check if a protocol is the first of its entry, or none of the catalogue."""
    plain, _ = split_changes(plain_name(name)[0])
    owner = _owner(plain)
    return owner is None or plain in (owner.name, owner.headline)


def spelled(selector: str) -> str:
    """Spell the names in ``selector`` as the catalogue does: ``MMLU/CF`` is ``mmlu/olmes-cf``.

    Signatures, files and other names stay unchanged.
    """
    if "|" in selector or ".toml" in selector:
        return selector
    return MARK.join(map(_spelled_name, selector.split(MARK)))


def with_changes(selector: str, changes: str) -> str:
    """Return the selector with other axes, spelled as after ``@``; of a way, both ends have them.

    Raises ProtocolError if a signature can't have them.
    """
    if "|" in selector:
        ((_, changed),) = change_axes({"": parse_signature(selector)}, changes).items()
        return signature(changed)
    way, _, axis = selector.rpartition(":")
    if axis in AXES and ends(way, _is_one):
        return f"{with_changes(way, changes)}:{axis}"
    sides = ends(selector, _is_one)
    if sides:
        return MARK.join(with_changes(side, changes) for side in sides)
    plain, form = plain_name(selector)
    before, colon, score = plain.rpartition(":")
    # A score may stand behind the changes.
    last = f":{score}" if colon and CHANGES in before else ""
    chat = f"{_CHAT_MARK}{form}" if form else ""
    return f"{merge_changes(plain.removesuffix(last), changes)}{last}{chat}"


def having_score(protocols: Protocols, score: str) -> dict[str, Protocol]:
    """Return the protocols that decide by ``score``, one of our names, the entry's or a common one.

    Raises UsageError if none does.
    """
    chosen = {}
    for name, protocol in protocols.items():
        if _has_score(name, protocol, score):
            chosen[name] = protocol
    if chosen:
        return chosen
    scores = []
    for name, protocol in protocols.items():
        plain, _ = split_changes(plain_name(name)[0])
        scores.append(plain.partition(":")[2] or protocol.score)
    scores += [name for name, other in SCORE_NAMES.items() if other.score in scores]
    hint = did_you_mean(score, list(dict.fromkeys(scores)))
    raise UsageError(f"none of {len(protocols)} protocols has the score {score!r}; {hint}")


@cache
def entry_names() -> tuple[str, ...]:
    """Return the name of every entry in alphabetical order; an entry is named like its file."""
    return tuple(name for name in _files("catalog") if "/" in name)


def parse(text: str, where: str, *, allowed: Collection[str] | None = None) -> JsonDict:
    """Return the tables of a TOML text, whose top has only ``allowed`` keys; None: any."""
    try:
        table = read_toml(text)
    except ValueError as error:
        raise ProtocolError(f"{where} is not valid TOML: {error}") from error
    if allowed is not None:
        problems = _unknown(table, allowed)
        if problems:
            raise ProtocolError.of_problems(problems).within(where)
    return table


@cache
def suite_names() -> tuple[str, ...]:
    """Return the name of every suite, its file's path, in alphabetical order."""
    return tuple(_files("suites"))


_AVERAGES = ("mean", "none")
"""What a suite makes of its parts: their mean, or nothing if it is only a name for all."""


@cache
def suite(name: str) -> Suite:
    """Return the suite in the file called ``name``, one of :func:`suite_names`.

    A part of an average takes the headline of its selector; a suite without average takes all of
    it. Raises ProtocolError, naming the suite, if a part does not resolve.
    """
    table = _table("suites", name)
    average = table["average"]
    if average not in _AVERAGES:
        raise ProtocolError(
            f"{name}: average is {average!r}; it must be one of {', '.join(_AVERAGES)}"
        )
    parts: list[Part] = []
    try:
        for part in table["parts"]:
            parts.extend(_parts(part, average == "none"))
    except ProtocolError as error:
        raise error.within(name) from error
    return Suite(
        name=table["name"],
        title=table["title"],
        citation=table["citation"],
        source=table["source"],
        description=table["about"],
        parts=tuple(parts),
        normalised=table.get("normalised", False),
        average=average,
    )


def inherit(
    name: str,
    tables: Mapping[str, JsonMapping] = MappingProxyType({}),
    heirs: tuple[str, ...] = (),
) -> Protocol:
    """Return the protocol of a file: its axes, then those of its ``base``, then defaults.

    ``tables``: of files that are not in the catalogue, by name; ``heirs``: the names that inherit
    from this one.  Raises ProtocolError, naming the files, if a base is unknown or inherits from
    its heir.
    """
    if name in heirs:
        raise ProtocolError(
            f"{' inherits from '.join((*heirs, name))}; a base must not inherit from its heirs"
        )
    if name in tables:
        table = tables[name]
    elif name in _files("catalog"):
        table = _table("catalog", name)
    else:
        hint = did_you_mean(name, [*tables, *_files("catalog")])
        raise ProtocolError(f"{heirs[-1]}: base {name!r} is not in the catalogue; {hint}")
    base = None
    if "base" in table:
        base = inherit(table["base"], tables, (*heirs, name))
    return read_axes(table.get("protocol", {}), name, base)


def read_axes(axes: object, where: str, base: Protocol | None = None) -> Protocol:
    """Return the protocol that a table of axes spells; others are those of ``base``, else defaults.

    TOML has no null: an axis that does not apply is ``"-"``, as in a signature, and ``choices =
    "any"`` takes items with any number of choices.  Raises ProtocolError, saying ``where``, with
    everything that is wrong.
    """
    if not isinstance(axes, Mapping):
        raise ProtocolError(
            f"{where}: protocol is {axes!r}; it must be a table, [protocol] on a line of its own"
        )
    values = _values(axes)
    problems = _unknown(axes, AXES)
    if base is None and "benchmark" not in values:
        problems.append(
            'no benchmark; add benchmark = "..." under [protocol], or a base = "mmlu/original"'
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
    """Hold the protocols of one number of a suite.

    ``benchmark``: the name of its data.  ``protocols``: by name; of several the best counts (and
    all are shown).  ``unscored``: why it can't be scored here, and then has no protocols; else "".
    """

    benchmark: str
    protocols: Protocols
    unscored: str = ""


@dataclass(frozen=True, kw_only=True)
class Suite:
    """Describe parts whose numbers are published together, in order.

    ``average``: one of :data:`_AVERAGES`.  ``normalised``: every value counts from guessing (0) to
    all right (1) before it is averaged, by subject if the protocol averages over subjects.
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
        """Return the protocols of all parts, by name."""
        protocols: dict[str, Protocol] = {}
        for part in self.parts:
            protocols.update(part.protocols)
        return protocols


def in_chat(named: Protocols, form: str | None, system: str | None = None) -> dict[str, Protocol]:
    """Return the protocols as chats of this ``form``, renamed, with the ``system`` text.

    A protocol that states its chat or system text keeps it.  Raises UsageError for a form or a
    system text that does nothing, and ProtocolError, naming the protocol, for one that can't be a
    chat.
    """
    if form is not None and form not in FORMS:
        raise UsageError(f"chat is {form!r}; it must be {' or '.join(FORMS)}")
    has_chat = form is not None or any(protocol.chat != "none" for protocol in named.values())
    if system is not None and not has_chat:
        raise UsageError("a system text needs a chat; use turns or message")
    chats: dict[str, Protocol] = {}
    for name, protocol in named.items():
        stated = form if protocol.chat == "none" else protocol.chat
        if stated is None:
            chats[name] = protocol
            continue
        text = system if protocol.system is None else protocol.system
        try:
            chat = replace(protocol, chat=stated, system=text)
        except ProtocolError as error:
            raise ProtocolError(f"{name} can't be a chat: {error}") from error
        if stated != protocol.chat:
            name = chat_name(name, stated)
        chats[name] = chat
    return chats


def chat_name(name: str, form: str) -> str:
    """Name a protocol in this form of a chat: the form stands before the score."""
    entry, colon, score = name.rpartition(":")
    if not colon:
        return f"{name}{_CHAT_MARK}{form}"
    return f"{entry}{_CHAT_MARK}{form}:{score}"


def plain_name(selector: str) -> tuple[str, str | None]:
    """Split a selector into one without the form of a chat, and that form, or None."""
    for form in FORMS:
        front, mark, back = selector.rpartition(_CHAT_MARK + form)
        if mark and (not back or back[0] in ":@"):
            return front + back, form
    return selector, None


def variant_of(name: str, names: Iterable[str], where: str) -> str | None:
    """Return the only one of ``names`` that is ``name`` with other axes or as a chat, else None.

    Raises UsageError, which lists them, if there are several.  ``where``: what has the names.
    """
    variants = [other for other in names if _is_variant(other, name)]
    if len(variants) > 1:
        count = len(variants)
        raise UsageError(f"{where} has {count} variants of {name}; name one of them", variants)
    return variants[0] if variants else None


def _is_variant(name: str, typed: str) -> bool:
    # A protocol between two has both names in its own.
    if MARK in name and MARK not in typed:
        return False
    plain, form = plain_name(name)
    typed_plain, typed_form = plain_name(typed)
    if typed_form not in (None, form):
        return False
    base, changes = split_changes(plain)
    typed_base, typed_changes = split_changes(typed_plain)
    wanted = set(typed_changes.split(",")) - {""}
    return base == typed_base and wanted <= set(changes.split(","))


def _is_one(selector: str) -> bool:
    if "|" in selector:
        try:
            parse_signature(selector)
        except ProtocolError:
            return False
        return True
    plain, _ = plain_name(selector)
    name, _ = split_changes(plain)
    return plain.endswith(".toml") or _is_name(name)


def _resolve(selector: str, possible: Possible) -> dict[str, Protocol]:
    selector = spelled(selector)
    way = _resolve_way(selector, possible)
    if way is not None:
        return way
    plain, form = plain_name(selector)
    if form is not None:
        return _resolve_chat(plain, form, possible)
    if "|" in selector:
        protocol = parse_signature(selector)
        return {names().get(protocol, short_signature(protocol)): protocol}
    if selector.endswith(".toml"):
        return _resolve_file(selector)
    if selector in group_names():
        protocols: dict[str, Protocol] = {}
        # Not of all groups, as every entry is a file to read.
        for member in group_names()[selector]:
            protocols.update(_entry(member).protocols)
        return protocols
    if selector in suite_names():
        return suite(selector).protocols
    # It is no way between two protocols, and the end that is unknown says so.
    if MARK in selector:
        for side in selector.split(MARK, 1):
            one(side)
    if CHANGES in selector:
        return _resolve_changed(selector, possible)
    owner = entry(selector)
    if selector == owner.name:
        return dict(owner.protocols)
    name = owner.called(selector) or selector
    return {name: owner.protocols[name]}


def _resolve_way(selector: str, possible: Possible) -> dict[str, Protocol] | None:
    """Return the protocols of ``FROM..TO``, or one of ``FROM..TO:axis``; None for no way."""
    way, _, axis = selector.rpartition(":")
    sides = ends(way, _is_one) if axis in AXES else None
    if sides is None:
        sides = ends(selector, _is_one)
        axis = ""
    if sides is None:
        return None
    start = one(sides[0])
    end = one(sides[1])
    protocols = protocols_between(start, end, names(), possible)
    if not axis:
        return protocols
    label = f"{start.label}{MARK}{end.label}"
    name = f"{label}:{axis}"
    if name not in protocols:
        raise ProtocolError(f"{label} has no protocol for {axis}; it has {', '.join(protocols)}")
    return {name: protocols[name]}


def _resolve_chat(plain: str, form: str, possible: Possible) -> dict[str, Protocol]:
    try:
        return in_chat(_resolve(plain, possible), form)
    except ProtocolError:
        if CHANGES not in plain or "|" in plain:
            raise
    # Some of the changed axes mean something in a chat alone, so that it is made in the same step.
    change = f"chat={form}"
    chats = {}
    for name, protocol in _resolve(with_changes(plain, change), possible).items():
        chats[chat_name(name.replace(f",{change}", ""), form)] = protocol
    return chats


def _resolve_changed(selector: str, possible: Possible) -> dict[str, Protocol]:
    name, changes = split_changes(selector)
    before, _, score = changes.rpartition(":")
    # A score may stand behind the changes.
    if before and _is_name(f"{name}:{score}"):
        return change_axes(_resolve(f"{name}:{score}", possible), before)
    return change_axes(_resolve(name, possible), changes)


@cache
def _files(folder: str) -> Mapping[str, Traversable]:
    """Return every TOML file at most a folder deep by its path without the suffix, in order."""
    file_of: dict[str, Traversable] = {}
    top = files("choicewise.protocols") / folder
    for child in top.iterdir():
        if child.is_dir():
            for file in child.iterdir():
                file_of[f"{child.name}/{file.name}"] = file
        else:
            file_of[child.name] = child
    tables = [path for path in sorted(file_of) if path.endswith(".toml")]
    return {path.removesuffix(".toml"): file_of[path] for path in tables}


@cache
def _table(folder: str, name: str) -> JsonMapping:
    return parse(_files(folder)[name].read_text(encoding="utf-8"), name, allowed=_KEYS[folder])


def _unknown(table: Mapping[str, object], keys: Collection[str]) -> list[str]:
    return [f"unknown key {key!r}; {did_you_mean(key, keys)}" for key in table if key not in keys]


def _resolve_file(path: str) -> dict[str, Protocol]:
    try:
        text = read_text(Path(path), SETTINGS)
    except OSError as error:
        raise ProtocolError(f"can't read {path}: {error.strerror}; name a protocol file") from error
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
    return name in group_names() or name in suite_names() or _owner(name) is not None


def _owner(name: str) -> Entry | None:
    """Return the entry that has this name or a score of this name."""
    entry_name = name.partition(":")[0]
    if entry_name not in entry_names():
        return None
    owner = _entry(entry_name)
    return owner if name == entry_name or owner.called(name) is not None else None


@cache
def _cases() -> Mapping[str, str]:
    """Return every name of an entry, group or suite by its lower case."""
    return {name.casefold(): name for name in (*entry_names(), *group_names(), *suite_names())}


def _spelled_name(selector: str) -> str:
    """Spell the name that ``selector``, no way, begins with as the catalogue does."""
    end = len(selector)
    for mark in (":", CHANGES, *(_CHAT_MARK + form for form in FORMS)):
        start = selector.casefold().find(mark)
        if start >= 0:
            end = min(end, start)
    name = selector[:end]
    family, _, formulation = name.casefold().partition("/")
    lower = name.casefold()
    if lower not in _cases() and formulation in FORMULATIONS:
        lower = f"{family}/{FORMULATIONS[formulation]}"
    return _cases().get(lower, name) + selector[end:]


def _has_score(name: str, protocol: Protocol, score: str) -> bool:
    plain, _ = split_changes(plain_name(name)[0])
    owner = _owner(plain)
    if owner is not None:
        full_name = owner.called(f"{owner.name}:{score}")
        if full_name is not None:
            return full_name in (plain, owner.called(plain))
    if plain.partition(":")[2] == score:
        return True
    return _has_axes(protocol, _deciding_axes(score))


def _has_axes(protocol: Protocol, axes: JsonMapping) -> bool:
    return all(getattr(protocol, axis) == value for axis, value in axes.items())


def _deciding_axes(score: str) -> JsonDict:
    """Return the axes of the accuracy by ``score``, one of ours or a common name."""
    if score in SCORE_NAMES:
        score = SCORE_NAMES[score].score
    axes = {
        **SCORES.get(score, {"score": score}),
        "metric": "acc",
        "decision": "argmax",
        "calibration": "none",
    }
    values = _values(axes)
    values.pop("rev", None)
    return values


def _selectors(name: str) -> list[str]:
    """Return every selector that ``name`` may be a misspelling of."""
    selectors = [*group_names(), *suite_names(), *entry_names()]
    # Scores are named only for the family, whose files are read then.
    if ":" in name:
        family = f"{name.partition('/')[0]}/"
        for entry_name in entry_names():
            if entry_name.startswith(family):
                member = _entry(entry_name)
                selectors += [*member.protocols, *member.published]
    return list(dict.fromkeys(selectors))


_NULLS: Mapping[str, JsonMapping] = {
    "empty": {"null": ""},
    "answer": {"null": "Answer:"},
    "answer-space": {"null": "Answer: ", "rev": 2},
    "colon": {"null": ":"},
}
"""Axes of PMI scores by the name of the null context.

Both contexts score the continuation with its space; but after ``Answer: `` it loses the space,
which the context already has.
"""

SCORES: Mapping[str, JsonMapping] = {
    **{name: {"score": name, "null": "-"} for name in _PLAIN},
    **{f"pmi-{name}": {"score": "pmi", **axes} for name, axes in _NULLS.items()},
}
"""The scores of an entry with ``normalizations = true``, one protocol each, as axes.

An entry whose source has other scores lists them instead: a table ``[variants.NAME]`` each, with
the axes that differ from ``[protocol]``; the first is the headline and differs in none.
"""


@cache
def _entry(name: str) -> Entry:
    table = _table("catalog", name)
    headline = inherit(name)
    variants = SCORES if table.get("normalizations", False) else table.get("variants", {})
    protocols = {}
    for variant, axes in variants.items():
        protocols[f"{name}:{variant}"] = read_axes(axes, name, headline)
    # The headline goes first; sorting keeps the order of the others.
    ordered = sorted(protocols, key=lambda full_name: protocols[full_name] != headline)
    protocols = {full_name: protocols[full_name] for full_name in ordered}
    if not protocols:
        protocols = {name: headline}
    aliases = table.get("scores", {})
    published = {f"{name}:{alias}": f"{name}:{score}" for alias, score in aliases.items()}
    for score in SCORE_NAMES:
        alias = f"{name}:{score}"
        axes = _deciding_axes(score)
        fitting = [full for full, protocol in protocols.items() if _has_axes(protocol, axes)]
        if len(fitting) == 1 and alias not in protocols:
            published.setdefault(alias, fitting[0])
    return Entry(
        name=table["name"],
        title=table["title"],
        citation=table["citation"],
        source=table["source"],
        description=table["about"],
        protocols=MappingProxyType(protocols),
        published=MappingProxyType(published),
    )


def _parts(table: JsonMapping, takes_all: bool) -> Iterator[Part]:
    """Yield the part of a table; several if its selectors are of several benchmarks.

    ``takes_all``: take all protocols of a selector, not only its headline.
    """
    unknown = set(table) - _PART_KEYS
    if unknown:
        raise ProtocolError(
            f"a part has the unknown key {min(unknown)!r}; use {', '.join(sorted(_PART_KEYS))}"
        )
    if "unscored" in table:
        yield Part(table["benchmark"], {}, table["unscored"])
        return
    changes = f"{CHANGES}shots={table['shots']}" if "shots" in table else ""
    by_benchmark: dict[str, dict[str, Protocol]] = {}
    for selector in table["protocols"]:
        if takes_all:
            protocols = resolve(f"{selector}{changes}")
        else:
            headline = one(f"{selector}{changes}")
            protocols = {headline.name: headline.protocol}
        for name, protocol in protocols.items():
            by_benchmark.setdefault(protocol.benchmark, {})[name] = protocol
    for benchmark, protocols in by_benchmark.items():
        yield Part(benchmark, protocols)


def _read_user_protocol(table: JsonMapping, path: str) -> Protocol:
    """Return the protocol of a user's file.

    ``name``, ``about``, ``base`` and the table ``[protocol]`` are optional.
    """
    problems = _unknown(table, ("name", "about", "base", "protocol"))
    for key in ("name", "about", "base"):
        if not isinstance(table.get(key, ""), str):
            problems.append(f'{key} is {table[key]!r}; write it in quotes, {key} = "..."')
    axes = table.get("protocol", {})
    base = None
    protocol = None
    try:
        if isinstance(table.get("base"), str):
            base = inherit(table["base"], {path: table}, (path,))
        if base is not None or "base" not in table:
            protocol = read_axes(axes, path, base)
    except ProtocolError as error:
        problems += [part.removeprefix(f"{path}: ") for part in error.parts]
    # Without the base only single axes can be checked.
    lacks_base = "base" in table and base is None
    if lacks_base and isinstance(axes, Mapping):
        problems += _unknown(axes, AXES)
        problems += axis_problems(_values(axes))
    if problems or protocol is None:
        raise ProtocolError.of_problems(problems).within(path)
    return protocol


def _values(axes: Mapping[str, object]) -> JsonDict:
    values = {}
    for name, value in axes.items():
        if name not in AXES:
            continue
        is_null = value == "-" and "None" in AXES[name]
        is_any = name == "choices" and value == "any"
        values[name] = value
        if is_null or is_any:
            values[name] = None
    return values
