"""How to get a run again: the protocols to name, and the command to type."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from choicewise.errors import ChoicewiseError, ProtocolError
from choicewise.models.kinds import answering_kind, model_kind
from choicewise.protocols.catalogue import entries, entry, groups, in_chat, resolve, with_changes
from choicewise.protocols.protocol import Protocol, signature
from choicewise.records import Manifest
from choicewise.running.tasks import split_tasks
from choicewise.util.jsonio import exact_json
from choicewise.util.text import command_line


def selectors(protocols: Mapping[str, Protocol]) -> list[str]:
    """What to name so that these protocols are run on the same data: groups, entries, names, else signatures."""
    known = {
        name: of_catalogue
        for name, protocol in protocols.items()
        if (of_catalogue := _known(name, protocol))
    }
    remaining = {**protocols, **known}
    named: list[str] = []
    families = {
        name: [pair for each in of for pair in each.protocols.items()]
        for name, of in groups().items()
    }
    families |= {each.name: list(each.protocols.items()) for each in entries()}
    for name, members in sorted(families.items(), key=lambda family: -len(family[1])):
        if all(remaining.get(full) == protocol for full, protocol in members):
            named.append(name)
            for full, _ in members:
                del remaining[full]
    return named + [
        name if name in known else signature(protocol) for name, protocol in remaining.items()
    ]


@dataclass(frozen=True, slots=True)
class Recipe:
    """How to get a run again: the ``line`` to type, and the text of the ``file`` that says what the columns mean.

    Both are empty where nothing says that.  ``named``: whether the line names the file; else the meaning was guessed.
    """

    line: str
    file: str
    text: str
    named: bool = True


def recipe(manifest: Manifest, protocols: Mapping[str, Protocol], folder: str | Path) -> Recipe:
    """How to get the run of ``protocols`` in ``folder`` again: as it was typed, where that still means these."""
    data = (manifest.job.get("data") or [{}])[0]
    mapping, guessed = data.get("mapping"), _guessed(manifest, data)
    text = mapping_text(mapping) if isinstance(mapping, dict) else manifest.mapping
    file = (_MAPPING if isinstance(mapping, dict) else str(mapping)) if text else ""
    if (named := _typed(manifest, protocols)) and manifest.command:
        return Recipe(command_line(*manifest.command), file, text, not isinstance(mapping, dict))
    alone = named if data or not _several(named) else ()  # as the folder is that of one run
    return Recipe(
        run_line(manifest, alone or selectors(protocols), folder), file, text, not guessed
    )


def mapping_text(table: Mapping[str, Any]) -> str:
    """A mapping as the TOML file that says the same."""
    return "".join(f"{name} = {_toml(value)}\n" for name, value in table.items())


def run_line(manifest: Manifest, protocols: Sequence[str], folder: str | Path) -> str:
    """The command that asks ``protocols`` in the run in ``folder``, of the job that it was begun with.

    Names on the Hub have the commit that was read.  Where the manifest has no job, the names of model and data stand
    for where they lie.
    """
    job = manifest.job or _described(manifest)
    model, data = job["models"][0], (job.get("data") or [{}])[0]
    mapping = data.get("mapping")
    options = {
        "model": [_pinned(model["name"], manifest.model.source)],
        "data": [_pinned(data.get("path"), manifest.dataset.source)],
        "protocol": protocols,
        "shots": [None if (shots := job.get("shots")) is None else str(shots)],
        "score": [job.get("score")],
        "subject": job.get("subjects"),
        "limit": [job.get("limit")],
        "sample": [job.get("sample")],
        "seed": [None if (seed := job.get("seed")) is None else str(seed)],
        "mapping": [
            None if _guessed(manifest, data) else _MAPPING if isinstance(mapping, dict) else mapping
        ],
        "on-bad-item": [job.get("on_bad_item")],
        **{
            name: [model.get(name)]
            for name in (
                "dtype",
                "device",
                "window",
                "adapter",
                "products",
                "tokenizer",
                "chat",
                "system",
            )
        },
        "include-path": job.get("include_path"),
        "allow-task-code": [job.get("allow_task_code")],
        "shard": [
            f"{shard.numbers[0]}/{shard.of}"
            if (shard := manifest.shard) and not shard.engines
            else None
        ],
        "out": [folder],
    }
    words = ["run"]
    for name, values in options.items():
        for value in values or ():
            if value:
                text = f"./{value}" if str(value).startswith("-") else str(value)
                words += [f"--{name}"] if value is True else [f"--{name}", text]
    return command_line(*words)


def _guessed(manifest: Manifest, data: Mapping[str, Any]) -> bool:
    """Whether the meaning of the columns was guessed: a typed `run` can name a mapping as a file alone."""
    return isinstance(data.get("mapping"), dict) and manifest.command[:1] == ("run",)


_MAPPING = "mapping.toml"
"""What the file is called where a plan or a call had the mapping itself."""


def _toml(value: Any) -> str:
    if isinstance(value, Mapping):
        return (
            f"{{ {', '.join(f'{_toml(name)} = {_toml(each)}' for name, each in value.items())} }}"
        )
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_toml, value))}]"
    return exact_json(value).replace("\x7f", "\\u007f")


def _typed(manifest: Manifest, protocols: Mapping[str, Protocol]) -> Sequence[str]:
    """The names of protocols that were typed; none where they mean others by now, or more were asked later."""
    typed, model = manifest.job.get("protocols") or (), (manifest.job.get("models") or [{}])[0]
    try:
        known = dict(resolve(*typed)) if typed else {}
        with suppress(
            ChoicewiseError
        ):  # without examples for shots the same line asks without them
            known = {**resolve(*(with_changes(each, "shots=0") for each in typed)), **known}
        known = in_chat(known, model.get("chat"), model.get("system"))
    except ProtocolError:
        return () if split_tasks(typed)[1] else typed
    same = (
        name in known and replace(known[name], split=each.split) == each
        for name, each in protocols.items()
    )
    return typed if all(same) else ()


def _several(selectors: Sequence[str]) -> bool:
    """Whether these ask several benchmarks, each on its own data."""
    with suppress(ProtocolError):
        return len({each.benchmark for each in resolve(*selectors).values()}) > 1
    return False


def _described(manifest: Manifest) -> dict[str, Any]:
    """A job of what a manifest says of its model and its data."""
    model, data, selection = manifest.model, manifest.dataset.reference, manifest.selection
    kind = answering_kind(manifest) or model_kind(model.reference)
    loading = {"dtype": model.arithmetic, "device": model.device, "window": model.window}
    options: dict[str, Any] = {}
    if manifest.server is None:
        options = {option: value for option, value in loading.items() if option in kind.takes}
    return {
        "models": [{"name": model.reference, **options}],
        "data": [{"path": data}] if data else [],
        "subjects": selection.subjects,
        **{name: getattr(selection, name) for name in ("limit", "sample", "seed")},
    }


def _known(name: str, protocol: Protocol) -> Protocol | None:
    """What the catalogue calls so, where that is ``protocol`` but for the split, which the data say."""
    try:
        entry(name)
        known = resolve(name)
    except ProtocolError:
        return None
    same = [*known] == [name] and replace(known[name], split=protocol.split) == protocol
    return known[name] if same else None


def _pinned(name: str | None, source: str) -> str | None:
    return source if source.startswith(f"{name}@") else name
