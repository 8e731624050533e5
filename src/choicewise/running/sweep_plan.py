"""A sweep as a TOML file says it: models, data and protocols; all that is wrong is said at once, with its key."""

import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from choicewise.data.columns import Columns, columns_of, read_mapping
from choicewise.data.toml_text import read_toml
from choicewise.errors import ChoicewiseError, UsageError, did_you_mean
from choicewise.models.server.address import PREFIX as SERVED
from choicewise.models.server.address import ServerAddress
from choicewise.protocols.catalogue import resolve, suites_of
from choicewise.protocols.chat import FORMS
from choicewise.records.secret_address import refuse_secret
from choicewise.running.open_sources import Chosen
from choicewise.running.size import bytes_of
from choicewise.running.source import Source, benchmark_sources, refuse_one_dataset
from choicewise.running.sweep import Asked
from choicewise.running.sweep_model import SweepModel

DTYPES = ("float32", "bfloat16", "float16")


class _Key(NamedTuple):
    """What a value must be, in words, and how that is checked."""

    words: str
    fits: Callable[[Any], bool]


_TEXT = _Key("a text", lambda value: isinstance(value, str) and bool(value))
_TEXTS = _Key("a list of texts", lambda value: isinstance(value, list) and bool(value) and all(map(_TEXT.fits, value)))
_COUNT = _Key("a whole number from 1 up", lambda value: type(value) is int and value >= 1)
_DTYPE = _Key(f"one of {', '.join(DTYPES)}", lambda value: value in DTYPES)
_CHAT = _Key(f"one of {', '.join(FORMS)}", lambda value: value in FORMS)
_BAD = _Key("error or skip", lambda value: value in ("error", "skip"))
_LIST = _Key("a list of names or tables", lambda value: isinstance(value, list) and bool(value))
_MAPPING = _Key("a path or a table", lambda value: isinstance(value, dict) or _TEXT.fits(value))

_SIZE = _Key('a size from 1 MB up, as in "12 GB"', lambda value: isinstance(value, str) and bytes_of(value) >= 10**6)

_LOADING = {"dtype": _DTYPE, "device": _TEXT, "window": _COUNT, "batch_tokens": _COUNT, "tokenizer": _TEXT}
"""How models are loaded: for all of them, or for one."""
_OWN = {**_LOADING, "adapter": _TEXT}
"""How one model is loaded."""
_PLACED = {"memory": _SIZE}
"""Where there is room for models on a cluster: for all of them, or for one."""

_TOP = {"models": _LIST, "data": _LIST, "protocols": _TEXTS, "subjects": _TEXTS, "limit": _COUNT, "on_bad_item": _BAD}
_MODEL = {"name": _TEXT, "revisions": _TEXTS, "chat": _CHAT, "system": _TEXT, **_OWN, **_PLACED}
_DATA = {"path": _TEXT, "benchmark": _TEXT, "mapping": _MAPPING}


Foreign = Callable[[Sequence[str], str], tuple[list[str], list[Source]]]
"""From selectors, and what to do with a bad item, to those of the catalogue and the sources of the others."""


def read_plan(path: Path, foreign: Foreign | None = None) -> Asked:
    """The sweep in the file ``path``, whose keys stand in docs/design/suites.md; ``foreign``: as of :func:`plan_of`.

    Paths in it are relative to the folder where the command runs.  Raises UsageError, naming file and keys, with
    everything that is wrong.
    """
    try:
        table = read_toml(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"{path} can't be read: {error.strerror}; name the file of a plan") from error
    except ValueError as error:
        raise UsageError(f"{path} is not valid TOML: {error}") from error
    try:
        return plan_of(table, foreign)
    except UsageError as error:
        raise error.within(str(path)) from error


def plan_of(table: Mapping[str, Any], foreign: Foreign | None = None) -> Asked:
    """The sweep that a table with these keys says.  Raises UsageError, naming keys, with everything that is wrong.

    ``foreign``: takes protocols that are not the catalogue's out of the list; None where there are no such.
    """
    for key, text in _texts(table):
        refuse_secret(text, key)
    problems = [*_problems(table, {**_TOP, **_LOADING, **_PLACED}, "")]
    problems += [f"{key} is missing" for key in ("models", "protocols") if key not in table]
    models = _tables(table, "models", "name", _MODEL, problems)
    data = _tables(table, "data", "path", _DATA, problems)
    if problems:
        raise UsageError.about(problems)
    try:
        return _asked(table, models, data, foreign)
    except ChoicewiseError as error:
        raise UsageError(error.message, error.problems) from error


def _asked(
    table: Mapping[str, Any], models: list[dict[str, Any]], data: list[dict[str, Any]], foreign: Foreign | None
) -> Asked:
    common = {key: table[key] for key in (*_LOADING, *_PLACED) if key in table}
    named = [model for each in models for model in _models(each, common)]
    if twice := {model.label for model in named if named.count(model) > 1}:
        raise UsageError(f"models: {min(twice)} is named twice")
    selectors, bad = tuple(table["protocols"]), table.get("on_bad_item", "error")
    own, others = (list(selectors), list[Source]()) if foreign is None else foreign(selectors, bad)
    subjects = tuple(table["subjects"]) if "subjects" in table else None
    chosen = Chosen(subjects, table.get("limit"), bad == "skip")
    if own or data:
        others = [*sources_of(tuple(own), data, bad), *others]
    return Asked(named, others, suites_of(own), chosen)


def sources_of(selectors: tuple[str, ...], data: list[dict[str, Any]], on_bad_item: str) -> list[Source]:
    """The datasets: those of ``data`` that name no benchmark, or else the benchmarks', from ``data`` where it has them.

    Raises UsageError and ProtocolError.
    """
    resolve(*selectors)
    named = {each["benchmark"]: each for each in data if "benchmark" in each}
    alone = [each for each in data if "benchmark" not in each]
    if named and alone:
        raise UsageError(f"data: {alone[0]['path']} says no benchmark and others do; say it of all or of none")
    if alone:
        refuse_one_dataset(selectors)
        if not selectors:
            raise UsageError(f"data: every protocol has data of its own, and {alone[0]['path']} is asked by none")
        return [Source(selectors, None, each["path"], _columns(each), on_bad_item, fitting=True) for each in alone]
    sources = []
    for source in benchmark_sources(selectors, on_bad_item):
        each = named.pop(source.name, None)
        own = None if each is None else Source(selectors, source.benchmark, each["path"], _columns(each), on_bad_item)
        sources.append(own or source)
    if named:
        raise UsageError(f"data: no protocol asks {min(named)}; they ask {', '.join(each.name for each in sources)}")
    return sources


def _columns(data: Mapping[str, Any]) -> Columns | None:
    mapping = data.get("mapping")
    if mapping is None:
        return None
    return columns_of(mapping, "mapping") if isinstance(mapping, dict) else read_mapping(Path(mapping))


def _takes(name: str) -> Collection[str]:
    """The keys of how a model is loaded that have a use for the one called ``name``."""
    if name.startswith("fake:"):
        return ()
    return ("window", "tokenizer") if name.startswith(SERVED) else {*_OWN} - {"tokenizer"}


def _models(table: Mapping[str, Any], common: Mapping[str, Any]) -> Iterator[SweepModel]:
    """The model of a table, once for each of its revisions: a folder in its folder, or a revision on the Hub."""
    name = table["name"]
    own = {key: value for key, value in table.items() if key in _OWN}
    takes = _takes(name)
    if name.startswith(SERVED):
        own |= {key: table[key] for key in _PLACED if key in table}
        ServerAddress.parse(name)  # before anything is written that would repeat a secret in it
    if not name.startswith("fake:") and (useless := [key for key in own if key not in takes]):
        what = "is computed by its server" if name.startswith(SERVED) else "brings its own tokenizer"
        raise UsageError(f"models: {name} {what} and has no use for {' and '.join(useless)}")
    options = {key: value for key, value in {**common, **own}.items() if key in takes}
    memory = bytes_of(table.get("memory", common.get("memory", ""))) or None
    for revision in table.get("revisions", [None]):
        if revision is not None and name.startswith(SERVED):
            raise UsageError(f"models: {name} is the server's choice and has no use for revisions")
        inside = f"{name}/{revision}" if os.path.isdir(name) else f"{name}@{revision}"
        yield SweepModel(name if revision is None else inside, options, table.get("chat"), table.get("system"), memory)


def _tables(
    table: Mapping[str, Any], key: str, first: str, known: Mapping[str, _Key], problems: list[str]
) -> list[dict[str, Any]]:
    """The tables of a list, in which a text stands for a table with its ``first`` key alone."""
    tables = []
    for number, each in enumerate(table.get(key, []) if isinstance(table.get(key, []), list) else []):
        where = f"{key}[{number}]"
        if not isinstance(each, str | dict):
            problems.append(f"{where} is {each!r}; it must be a name or a table")
            continue
        own = {first: each} if isinstance(each, str) else each
        problems += _problems(own, known, f"{where}.")
        problems += [f"{where}.{first} is missing"] if first not in own else []
        tables.append(own)
    return tables


def _texts(value: Any, key: str = "") -> Iterator[tuple[str, str]]:
    """(key, text) of every text but those for the model."""
    if isinstance(value, str):
        yield key, value
    elif isinstance(value, dict):
        for name, each in value.items():
            yield from () if name == "system" else _texts(each, f"{key}.{name}" if key else name)
    elif isinstance(value, list):
        for number, each in enumerate(value):
            yield from _texts(each, f"{key}[{number}]")


def _problems(table: Mapping[str, Any], known: Mapping[str, _Key], where: str) -> Iterator[str]:
    for key, value in table.items():
        if key not in known:
            yield f"{where}{key} is no key; {did_you_mean(key, _names(known))}"
        elif not known[key].fits(value):
            yield f"{where}{key} is {value!r}; it must be {known[key].words}"


def _names(known: Mapping[str, _Key]) -> Collection[str]:
    return list(known)
