"""The details of one task of lighteval, and what the file of results beside them says of it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from math import isfinite
from pathlib import Path
from typing import Any, Final

from choicewise.errors import DataError
from choicewise.interchange.logs.read.json_parts import whole
from choicewise.interchange.logs.read.layout import laid_out_by

_FILE: Final = re.compile(r"details_(?P<task>.+)_(?P<date>\d{4}-\d{2}-\d{2}T[\d.-]+)\.parquet")


@dataclass(frozen=True)
class Task:
    """The details of one task, and what the file of results says of it."""

    path: Path
    name: str
    date: str
    model: str
    settings: Mapping[str, str] = field(default_factory=dict)
    totals: Mapping[str, float] = field(default_factory=dict)


def read_task(path: Path, results: Path | None) -> Task:
    """The task of the details at ``path``; ``results``: the file of results where it is named.

    Raises DataError where that file is of something else.
    """
    match = _FILE.fullmatch(path.name)
    name, date = (match["task"], match["date"]) if match else (path.stem.removeprefix("details_"), "")
    file = results or next((each for each in _beside(path, date) if each.is_file()), None)
    said = whole(file) if file else {}
    with laid_out_by("lighteval", file or path):
        return _task(path, name, date, said, file, results)


def _task(path: Path, name: str, date: str, said: Any, file: Path | None, results: Path | None) -> Task:
    if not isinstance(said, dict) or (file and not isinstance(said.get("config_general"), dict)):
        raise DataError(f"{file} is no file of results of lighteval: it has no config_general")
    if results and name not in (said.get("results") or {}):
        raise DataError(f"{results} says nothing of the task {name}; it belongs to other details")
    general = said.get("config_general") or {}
    model = general.get("model_name") or (general.get("model_config") or {}).get("model_name") or _folder_model(path)
    totals = (said.get("results") or {}).get(name) or {}
    numbers = {key: float(value) for key, value in totals.items() if isinstance(value, int | float) and isfinite(value)}
    return Task(path, name, date, str(model), _settings(general, said, name), numbers)


def _beside(path: Path, date: str) -> Iterator[Path]:
    """Where the file of results of these details may lie."""
    name = f"results_{date}.json"
    yield from (folder / name for folder in (path.parent, path.parent.parent))
    folders = path.absolute().parent.parts
    if "details" in folders:
        place = len(folders) - 1 - folders[::-1].index("details")
        yield Path(*folders[:place], "results", *folders[place + 1 : -1], name)


def _folder_model(path: Path) -> str:
    """``OUT/details/ORG/MODEL/DATE/details_...`` → ORG/MODEL, and so ``details_ORG__MODEL`` on the Hub."""
    folders = path.absolute().parent.parts
    if "details" in folders[:-1]:
        return "/".join(folders[len(folders) - folders[::-1].index("details") : -1])
    named = [folder.removeprefix("details_") for folder in folders if folder.startswith("details_")]
    return (named or folders[-1:])[-1].replace("__", "/")


def _settings(general: Mapping[str, Any], said: Mapping[str, Any], task: str) -> dict[str, str]:
    config = general.get("model_config") or {}
    given = {
        "lighteval_sha": general.get("lighteval_sha"),
        "model_sha": general.get("model_sha") or config.get("revision"),
        "dtype": general.get("model_dtype") or config.get("dtype"),
        "max_samples": general.get("max_samples"),
        "version": (said.get("versions") or {}).get(task),
        "shots": next((part for part in task.split("|")[1:] if part.isdecimal()), None),
    }
    return {key: str(value) for key, value in given.items() if value not in (None, "", "?")}
