"""A model of a sweep, before it is loaded."""

import hashlib
import os
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from choicewise.data.download_bars import Download
from choicewise.data.hub import commit_of
from choicewise.data.hub_errors import MODEL
from choicewise.data.hub_name import hub_name
from choicewise.models.load import load_model
from choicewise.models.model import Model
from choicewise.models.server.address import PREFIX as SERVED
from choicewise.protocols.chat import in_chat
from choicewise.protocols.protocol import Protocol
from choicewise.running.source import state_of

LONGEST = 100
"""Characters of a folder's name; file systems take 255 bytes, and tools add to it."""

_DEVICES = {"CON", "PRN", "AUX", "NUL", *(f"{port}{number}" for port in ("COM", "LPT") for number in range(1, 10))}
"""What no file can be called on Windows, whatever follows a dot."""


@dataclass(frozen=True)
class SweepModel:
    """``name``: as :func:`choicewise.load_model` takes it, and ``options`` its further arguments that were given.

    ``chat`` and ``system``: as :func:`choicewise.protocols.chat.in_chat` takes them.  ``memory``: bytes that it needs
    where it computes, if somebody said so; it changes no number.
    """

    name: str
    options: Mapping[str, Any] = field(default_factory=dict)
    chat: str | None = None
    system: str | None = None
    memory: int | None = field(default=None, compare=False)

    @property
    def label(self) -> str:
        """The name, and the options where there are any: no two models of a sweep have the same."""
        spoken = {"chat": self.chat, "system": self.system}
        given = {**self.options, **{key: value for key, value in spoken.items() if value is not None}}
        return ", ".join([self.name, *(f"{key} {value}" for key, value in given.items())])

    @property
    def folder(self) -> str:
        """What the folder of its runs is called, where that is not taken."""
        last = Path(self.name).resolve().name if os.path.isdir(self.name) else self.name
        if last.startswith(SERVED):
            last = last.rpartition("#")[2].removeprefix(SERVED)
        return folder_name(last)

    @property
    def state(self) -> object:
        """What changes when the model of that name becomes another: its files, or its commit on the Hub."""
        on_hub = None if os.path.exists(self.name) else hub_name(self.name)
        commit = None if on_hub is None else commit_of(on_hub, MODEL)
        folders = [Path(name) for name in (self.name, self.options.get("adapter")) if name and os.path.isdir(name)]
        return self.label, [state_of(folder) for folder in folders], commit

    def asked(self, protocols: Mapping[str, Protocol]) -> dict[str, Protocol]:
        """The protocols as this model is asked: in a chat where that is wanted."""
        return in_chat(protocols, self.chat, self.system)

    def load(self, progress: Download | None = None, say: Callable[[str], None] = lambda line: None) -> Model:
        """The model; ``progress`` hears of a download, and ``say`` of waits for a server.  Raises ModelError."""
        return load_model(self.name, progress=progress, say=say, **self.options)


def folder_name(name: str) -> str:
    """``name`` as a folder: letters, digits, dots, hyphens, underscores and at signs, at most ``LONGEST`` of them.

    No system takes it for a path, an option or a device.
    """
    plain = re.sub(r"[^\w.@+-]+", "-", name, flags=re.ASCII).strip("-.") or "unnamed"
    if len(plain) > LONGEST:
        plain = f"{plain[: LONGEST - 9]}-{hashlib.sha256(name.encode()).hexdigest()[:8]}"
    return f"_{plain}" if plain.partition(".")[0].upper() in _DEVICES else plain


def free_name(name: str, taken: Iterable[str]) -> str:
    """``name``, with a number where it is taken; names that differ in their case alone are one on some disks."""
    used, number, free = {each.casefold() for each in taken}, 2, name
    while free.casefold() in used:
        free, number = f"{name}-{number}", number + 1
    return free
