"""Say how to get a run again: the protocols to name, and the command to type."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from choicewise.errors import ChoicewiseError, ProtocolError
from choicewise.models.kinds import answering_kind, model_kind
from choicewise.protocols.between import split_changes
from choicewise.protocols.catalogue import (
    entries,
    entry,
    groups,
    in_chat,
    plain_name,
    resolve,
    with_changes,
)
from choicewise.protocols.protocol import Protocol, Protocols, signature
from choicewise.records import Manifest
from choicewise.running.job import split_tasks
from choicewise.util.jsonio import JsonDict, JsonMapping, exact_json
from choicewise.util.text import command_line

_MAPPING = "mapping.toml"
"""Name of the file if a plan or a call had the mapping itself."""


def selectors(protocols: Protocols) -> list[str]:
    """Return what to name so that these protocols are run on the same data: groups, entries, names,
    or signatures.
    """
    # Split and data say which items are asked; a name does not.
    remaining = dict(protocols)
    of_catalogue = set()
    for name, protocol in protocols.items():
        published = published_protocol(name, protocol)
        if published is not None:
            remaining[name] = published
            of_catalogue.add(name)
    families: dict[str, dict[str, Protocol]] = {}
    for name, members in groups().items():
        families[name] = {}
        for member in members:
            families[name].update(member.protocols)
    for member in entries():
        families[member.name] = dict(member.protocols)
    # What is typed should be short: groups before entries, entries before names.
    chosen = []
    # The largest family first: its name stands for those of its entries.
    for name, family in sorted(families.items(), key=lambda family: -len(family[1])):
        if all(remaining.get(full) == protocol for full, protocol in family.items()):
            chosen.append(name)
            for full in family:
                del remaining[full]
    for name, protocol in remaining.items():
        chosen.append(name if name in of_catalogue else signature(protocol))
    return chosen


@dataclass(frozen=True)
class Recipe:
    """How to get a run again: the ``line`` to type, and the text of the ``file`` that says what the
    columns mean.

    Both are empty if nothing says that. ``named``: the line names the file; if not, the meaning was
    guessed.
    """

    line: str
    file: str
    text: str
    named: bool = True


def recipe(manifest: Manifest, protocols: Protocols, folder: str | Path) -> Recipe:
    """Return how to get the run of ``protocols`` in ``folder`` again: as it was typed, if that
    still means these.
    """
    data = _data(manifest.job)
    mapping = data.get("mapping")
    is_table = isinstance(mapping, dict)
    text = mapping_text(mapping) if isinstance(mapping, dict) else manifest.mapping
    file = ""
    if text:
        file = _MAPPING if is_table else str(mapping)
    typed = _typed(manifest, protocols)
    if typed and manifest.command:
        return Recipe(command_line(*manifest.command), file, text, named=not is_table)
    if not data and _has_several_benchmarks(typed):
        # The folder is that of one run: what was typed for several would ask more.
        typed = ()
    line = run_line(manifest, typed or selectors(protocols), folder)
    return Recipe(line, file, text, named=not _is_guessed(manifest, data))


def _data(job: JsonMapping) -> JsonMapping:
    """Return the first data of a job, or nothing if it names none."""
    sources = job.get("data")
    return sources[0] if sources else {}


def mapping_text(table: JsonMapping) -> str:
    """Return a mapping as the TOML file that says the same."""
    return "".join(f"{name} = {_toml(value)}\n" for name, value in table.items())


def run_line(manifest: Manifest, protocols: Sequence[str], folder: str | Path) -> str:
    """Return the command that asks ``protocols`` in the run in ``folder``, of the job that it was
    begun with.

    Names on the Hub have the commit that was read. If the manifest has no job, the names of model
    and data stand for where they lie.
    """
    job = manifest.job or _described(manifest)
    model = job["models"][0]
    data = _data(job)
    mapping = data.get("mapping")
    if _is_guessed(manifest, data):
        mapping = None
    elif isinstance(mapping, dict):
        mapping = _MAPPING
    options = {
        "model": [_pinned(model["name"], manifest.model.source)],
        "data": [_pinned(data.get("path"), manifest.dataset.source)],
        "protocol": protocols,
        "shots": [_number_text(job.get("shots"))],
        "score": [job.get("score")],
        "subject": job.get("subjects"),
        "limit": [job.get("limit")],
        "sample": [job.get("sample")],
        "seed": [_number_text(job.get("seed"))],
        "mapping": [mapping],
        "on-bad-item": [job.get("on_bad_item")],
        "dtype": [model.get("dtype")],
        "device": [model.get("device")],
        "window": [model.get("window")],
        "adapter": [model.get("adapter")],
        "tokenizer": [model.get("tokenizer")],
        "chat": [model.get("chat")],
        "system": [model.get("system")],
        "include-path": job.get("include_path"),
        "allow-task-code": [job.get("allow_task_code")],
        "shard": [_shard(manifest)],
        "out": [folder],
    }
    words = ["run"]
    for name, values in options.items():
        for value in values or ():
            if value is True:
                words.append(f"--{name}")
            elif value:
                text = str(value)
                # A value that begins with a hyphen would be taken for an option.
                words += [f"--{name}", f"./{text}" if text.startswith("-") else text]
    return command_line(*words)


def _number_text(number: int | None) -> str | None:
    # 0 as a text is true, so that it is not left out.
    return None if number is None else str(number)


def _shard(manifest: Manifest) -> str | None:
    shard = manifest.shard
    if shard is None or shard.engines:
        return None
    return f"{shard.numbers[0]}/{shard.of}"


def _is_guessed(manifest: Manifest, data: JsonMapping) -> bool:
    """Tell if the meaning of the columns was guessed: a typed `run` can name a mapping as a file
    alone.
    """
    return isinstance(data.get("mapping"), dict) and manifest.command[:1] == ("run",)


def _toml(value: Any) -> str:
    if isinstance(value, Mapping):
        pairs = [f"{_toml(name)} = {_toml(part)}" for name, part in value.items()]
        return f"{{ {', '.join(pairs)} }}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_toml, value))}]"
    return exact_json(value).replace("\x7f", "\\u007f")


def _typed(manifest: Manifest, protocols: Protocols) -> Sequence[str]:
    """Return the names of protocols that were typed; none if they mean others by now, or more were
    asked later.
    """
    typed = manifest.job.get("protocols") or ()
    models = manifest.job.get("models") or [{}]
    try:
        meant = dict(resolve(*typed)) if typed else {}
        # The same line changes what the data do not have, such as examples for shots.
        for changes in _changes_in(protocols):
            with suppress(ChoicewiseError):
                changed = [with_changes(name, changes) for name in typed]
                meant = {**resolve(*changed), **meant}
        meant = in_chat(meant, models[0].get("chat"), models[0].get("system"))
    except ProtocolError:
        return () if split_tasks(typed)[1] else typed
    for name, protocol in protocols.items():
        if name not in meant or replace(meant[name], split=protocol.split) != protocol:
            return ()
    return typed


def _changes_in(names: Iterable[str]) -> list[str]:
    """Return the different changes in these names of protocols, such as ``shots=0``."""
    distinct: dict[str, None] = {}
    for name in names:
        plain, _ = plain_name(name)
        _, changes = split_changes(plain)
        if changes:
            distinct[changes] = None
    return list(distinct)


def _has_several_benchmarks(selectors: Sequence[str]) -> bool:
    """Tell if these ask several benchmarks, each on data of its own."""
    with suppress(ProtocolError):
        return len({protocol.benchmark for protocol in resolve(*selectors).values()}) > 1
    return False


def _described(manifest: Manifest) -> JsonDict:
    """Return a job of what a manifest says of its model and its data."""
    model = manifest.model
    selection = manifest.selection
    options: JsonDict = {"name": model.reference}
    if manifest.server is None:
        kind = answering_kind(manifest) or model_kind(model.reference)
        loading = {"dtype": model.arithmetic, "device": model.device, "window": model.window}
        for option, value in loading.items():
            if option in kind.takes:
                options[option] = value
    data = manifest.dataset.reference
    return {
        "models": [options],
        "data": [{"path": data}] if data else [],
        "subjects": selection.subjects,
        "limit": selection.limit,
        "sample": selection.sample,
        "seed": selection.seed,
    }


def published_protocol(name: str, protocol: Protocol) -> Protocol | None:
    """Return the protocol of that name in the catalogue, if it is ``protocol`` but for the split,
    which data say.
    """
    try:
        entry(name)
        resolved = resolve(name)
    except ProtocolError:
        return None
    if list(resolved) != [name] or replace(resolved[name], split=protocol.split) != protocol:
        return None
    return resolved[name]


def _pinned(name: str | None, source: str) -> str | None:
    return source if source.startswith(f"{name}@") else name
