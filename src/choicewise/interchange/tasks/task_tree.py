"""What a name asks for before anything of it is loaded: its tasks with their keys, groups and overrides resolved.

The rules are those of lm_eval/tasks/_factory.py (0.4.13), so that what is checked here is what the harness will load.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from choicewise.errors import ProtocolError
from choicewise.interchange.tasks.task_file import Code, Place, TaskFile, read_task_file
from choicewise.interchange.tasks.task_names import Named, TaskNames

GROUP_KEYS = ("group", "group_alias", "task", "aggregate_metric_list", "metadata")
"""Keys of a group itself; all its others are overrides of its tasks."""


@dataclass(frozen=True)
class Leaf:
    """A task as it will be loaded: its ``name``, its ``config``, and where each key of it stands."""

    name: str
    config: Mapping[str, Any]
    places: Mapping[str, Place]

    def place(self, key: str) -> str:
        """Where a key stands, or the name where it stands nowhere."""
        return str(self.places.get(key, f"task {self.name}"))


@dataclass(frozen=True)
class TaskTree:
    """The ``leaves`` of what was named.

    ``group``: the keys of the group, None for a task and a tag; ``is_tag``: whether it is one.  ``files``: all that
    will be read; ``code``: all that names code in them.
    """

    name: str
    group: Mapping[str, Any] | None
    leaves: tuple[Leaf, ...]
    files: tuple[Path, ...]
    code: tuple[Code, ...]
    is_tag: bool = False


def task_tree(name: str, names: TaskNames) -> TaskTree:
    """The tree of a task, group or tag, or of a task file.

    Raises ProtocolError for a name that stands nowhere, a group that holds itself, and what is no task file.
    """
    if name.endswith((".yaml", ".yml")):
        path = Path(name)
        if not path.is_file():
            raise ProtocolError(f"{path} is no file; name a task file, or a task of the harness by its name")
        file = read_task_file(path)
        own = file.config.get("group") or file.config.get("task")
        if not isinstance(own, str):
            raise ProtocolError(f"{path} has neither `task: NAME` nor `group: NAME`, so it is a template; name a task")
        named = Named(own, file)
    else:
        named = names.find(name) or _none(names, name)
    growing = _Growing(names)
    leaves = tuple(growing.leaves(named, {}, {}, ()))
    group = named.file.config if named.is_group and named.file is not None else None
    return TaskTree(
        named.name,
        group,
        leaves,
        tuple(dict.fromkeys(growing.files)),
        tuple(dict.fromkeys(growing.code)),
        named.file is None,
    )


def _none(names: TaskNames, name: str) -> Named:
    raise names.unknown(name)


class _Growing:
    """The files and the code of a tree, as they are met."""

    def __init__(self, names: TaskNames) -> None:
        self._names = names
        self.files: list[Path] = []
        self.code: list[Code] = []

    def leaves(
        self, named: Named, overrides: Mapping[str, Any], places: Mapping[str, Place], above: tuple[str, ...]
    ) -> Iterator[Leaf]:
        """The tasks of what was named, with ``overrides`` over their own keys."""
        if named.name in above:
            raise ProtocolError(f"{' holds '.join((*above, named.name))}: groups in a circle; remove one of them")
        if named.file is None:
            for name in named.tagged:
                yield from self.leaves(self._named(name, None), overrides, places, (*above, named.name))
            return
        self._add(named.file)
        if named.is_group:
            yield from self._members(named.name, named.file.config, named.file, overrides, places, above)
            return
        config = {**named.file.config, **overrides}
        yield Leaf(str(config.get("task", named.name)), config, {**named.file.places, **places})

    def _members(
        self,
        name: str,
        config: Mapping[str, Any],
        file: TaskFile,
        overrides: Mapping[str, Any],
        places: Mapping[str, Place],
        above: tuple[str, ...],
    ) -> Iterator[Leaf]:
        own = {key: value for key, value in config.items() if key not in GROUP_KEYS}
        merged = {**own, **overrides}
        here = file.places.get("task", Place(file.path, 1))
        merged_places = {**{key: file.places.get(key, here) for key in own}, **places}
        members = config.get("task")
        if not isinstance(members, str | list) or not members:
            raise ProtocolError(f"{here}: group {name} names no tasks; write `task:` and a list of names")
        for member in [members] if isinstance(members, str) else members:
            if isinstance(member, str):
                yield from self._member(name, member, merged, merged_places, here, above)
            elif isinstance(member, dict) and isinstance(member.get("group"), str):
                inner = member["group"]
                more = {**merged, **{key: value for key, value in member.items() if key != "group"}}
                more_places = {**merged_places, **dict.fromkeys(member, here)}
                if (known := self._names.find(inner)) is not None:
                    yield from self.leaves(known, more, more_places, (*above, name))
                else:
                    yield from self._members(f"{name}::{inner}", member, file, merged, merged_places, (*above, name))
            elif isinstance(member, dict) and isinstance(member.get("task"), str):
                more, more_places = {**merged, **member}, {**merged_places, **dict.fromkeys(member, here)}
                yield from self._member(name, member["task"], more, more_places, here, above)
            else:
                raise ProtocolError(f"{here}: group {name} holds {member!r}; it must be a name, or keys with `task`")

    def _member(
        self,
        group: str,
        name: str,
        overrides: Mapping[str, Any],
        places: Mapping[str, Place],
        here: Place,
        above: tuple[str, ...],
    ) -> Iterator[Leaf]:
        if (known := self._names.find(name)) is not None:
            own = overrides if known.is_group or known.file is None else {"task": name, **overrides}
            yield from self.leaves(known, own, places, (*above, group))
        elif "dataset_path" in overrides or "class" in overrides:  # a task that the group itself spells out
            yield Leaf(f"{group}::{name}", {**overrides, "task": f"{group}::{name}"}, places)
        else:
            raise self._names.unknown(name).within(f"{here}: group {group}")

    def _named(self, name: str, here: Place | None) -> Named:
        return self._names.find(name) or _none(self._names, name)

    def _add(self, file: TaskFile) -> None:
        self.files += file.files
        self.code += file.code
