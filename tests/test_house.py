"""The rules of the source tree: which room imports which, how long a file may be, and words that have their place."""

import ast
import re
from collections.abc import Collection, Iterator
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path
from typing import Any

import pytest
import typer

from choicewise.cli import app

PACKAGE = Path(__file__).parents[1] / "src" / "choicewise"
ROOMS = [
    *(
        "errors",
        "util",
        "records",
        "questions",
        "data",
        "protocols",
        "tokens",
        "scoring",
        "store",
        "requests",
        "engine",
    ),
    *("models", "results", "running", "report", "page", "integrations", "interchange", "board", "cli"),
]
"""In the order of the way of the data: a room imports only itself and the rooms before it."""

FOR_ALL = {"bundled", "__version__"}
"""What any room may import, and what imports nothing of the package itself."""

ALONE = {"reference"}
"""What imports nothing of the package, and what nothing of the package imports."""

FRONT = {"__init__", "__main__"}
"""What may import every room."""

DATABASES = {"board/queue.py": {"sqlite3"}}
"""Where a database is kept after all: the queue of a board has several writers at once and must not lose what it has
answered for.  No result lies in it, and a queue that is lost costs no run."""

LONGEST = 600
"""Lines of a file."""

STILL_LONGER = {
    "interchange/harness_tasks/as_protocols.py": 1060,
    "board/pages.py": 850,
    "models/server/http.py": 820,
    "requests/ask.py": 800,
    "board/model.py": 730,
    "interchange/logs/harness.py": 730,
    "interchange/write/harness.py": 710,
    "models/server/probe.py": 690,
    "page/sections.py": 670,
    "interchange/harness_tasks/files.py": 630,
    "protocols/catalogue.py": 620,
    "interchange/logs/import_log.py": 615,
    "results/rows.py": 610,
}
"""Files that were merged and have to become shorter yet; none may grow, and none may join them."""

LEVELS = 6
"""Of imports inside a room."""

STILL_DEEPER = {"data": 8, "models": 9, "results": 9, "running": 7}
"""Rooms whose imports have to become flatter yet."""

FILES = sorted(str(file.relative_to(PACKAGE)) for file in PACKAGE.rglob("*.py"))


@cache
def tree(file: str) -> ast.Module:
    return ast.parse((PACKAGE / file).read_text(encoding="utf-8"))


def room_of(file: str) -> str:
    return file.split("/")[0].removesuffix(".py")


@cache
def imports(file: str) -> list[tuple[int, str]]:
    """(line, file) of everything that a file imports from the package, inside functions and for types as well."""
    named = []
    for node in ast.walk(tree(file)):
        if isinstance(node, ast.Import):
            assert all(not alias.name.startswith("choicewise.") for alias in node.names), f"{file}:{node.lineno}"
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{file}:{node.lineno} imports relatively"
            if node.module is not None and node.module.split(".")[0] == "choicewise":
                named += [(node.lineno, file_of(f"{node.module}.{alias.name}")) for alias in node.names]
    return named


def file_of(name: str) -> str:
    """The file that a dotted name is of."""
    parts = name.split(".")[1:]
    for end in (len(parts), len(parts) - 1):
        for place in ("/".join(parts[:end]) + ".py", "/".join([*parts[:end], "__init__.py"])):
            if place in FILES:
                return place
    raise AssertionError(name)


def levels(files: Collection[str]) -> dict[str, int]:
    """How many files deep the imports of each go within ``files``; raises CycleError for a circle."""
    inside = {file: {other for _, other in imports(file) if other in files} - {file} for file in files}
    depth: dict[str, int] = {}
    for file in TopologicalSorter(inside).static_order():
        depth[file] = 1 + max((depth[other] for other in inside[file]), default=0)
    return depth


def public(node: ast.AST) -> Iterator[ast.FunctionDef | ast.ClassDef]:
    """The classes, functions and methods that others may use."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.ClassDef) and not child.name.startswith("_"):
            yield child
            if isinstance(child, ast.ClassDef):
                yield from public(child)


def texts(file: str) -> Iterator[tuple[int, str]]:
    """(line, text) of every string that is no docstring."""
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef)
    bodies = [node.body for node in ast.walk(tree(file)) if isinstance(node, documented)]
    docstrings = {id(line.value) for body in bodies for line in body if isinstance(line, ast.Expr)}
    for node in ast.walk(tree(file)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings:
            yield node.lineno, node.value


def names(file: str) -> Iterator[tuple[int, str]]:
    """(line, name) of every variable, argument, function and class."""
    for node in ast.walk(tree(file)):
        match node:
            case ast.Name(ctx=ast.Store()):
                yield node.lineno, node.id
            case ast.arg():
                yield node.lineno, node.arg
            case ast.FunctionDef() | ast.ClassDef():
                yield node.lineno, node.name


def options(command: Any) -> set[str]:
    """Every ``--option`` of a command and of those below it."""
    own = {option for parameter in command.params for option in parameter.opts if option.startswith("--")}
    return own.union(*(options(below) for below in getattr(command, "commands", {}).values()))


def test_every_file_is_in_a_room() -> None:
    assert {room_of(file) for file in FILES} <= {*ROOMS, *FOR_ALL, *ALONE, *FRONT}


def test_a_room_imports_only_the_rooms_before_it() -> None:
    may_import = {room: {*ROOMS[: place + 1], *FOR_ALL, "__init__"} for place, room in enumerate(ROOMS)}
    may_import |= {front: {*ROOMS, *FOR_ALL} for front in FRONT}
    lines = [(file, line, other) for file in FILES for line, other in imports(file)]
    assert len(lines) > len(FILES)
    wrong = [
        f"{file}:{line} imports {other}"
        for file, line, other in lines
        if room_of(other) not in may_import.get(room_of(file), ())
    ]
    assert not wrong, "\n".join(wrong)


def test_there_is_no_circle() -> None:
    """Imports for types and inside functions count."""
    assert len(levels([file for file in FILES if file != "__init__.py"])) > 100


@pytest.mark.parametrize("room", ROOMS)
def test_imports_inside_a_room_are_not_deep(room: str) -> None:
    depth = levels([file for file in FILES if room_of(file) == room])
    assert max(depth.values()) <= STILL_DEEPER.get(room, LEVELS), sorted(depth.items(), key=lambda each: -each[1])


def test_no_file_is_too_long() -> None:
    lengths = {file: len((PACKAGE / file).read_text(encoding="utf-8").splitlines()) for file in FILES}
    assert {file: length for file, length in lengths.items() if length > STILL_LONGER.get(file, LONGEST)} == {}


def test_every_file_and_public_name_has_a_docstring() -> None:
    bare = [file for file in FILES if not ast.get_docstring(tree(file))]
    bare += [
        f"{file}:{node.lineno} {node.name}"
        for file in FILES
        for node in public(tree(file))
        if not ast.get_docstring(node)
    ]
    assert not bare, "\n".join(bare)


def test_options_of_the_command_line_are_spelled_in_its_room_alone() -> None:
    """Errors say what is wrong; which option changes it is for ``cli`` to say, as not everybody comes from there."""
    known = options(typer.main.get_command(app))
    assert {"--model", "--out"} <= known
    spelled = [
        f"{file}:{line} {option}"
        for file in FILES
        if room_of(file) != "cli"
        for line, text in texts(file)
        for option in re.findall(r"(?<![\w-])--[a-z][a-z-]*", text)
        if option in known
    ]
    assert not spelled, "\n".join(spelled)


def test_no_name_says_only_that_something_was_found() -> None:
    vague = [f"{file}:{line}" for file in FILES for line, name in names(file) if name == "found"]
    assert not vague, "\n".join(vague)


def test_nothing_is_unpickled_evaluated_or_kept_in_a_database() -> None:
    """What is read as a pickle or evaluated is code of whoever wrote it; a database is damaged by a kill or a copy."""
    modules = {"pickle", "cPickle", "shelve", "marshal", "dill", "cloudpickle", "joblib", "sqlite3", "dbm", "diskcache"}
    wrong = []
    for file in FILES:
        for node in ast.walk(tree(file)):
            match node:
                case ast.Import(names=names):
                    named = {alias.name.split(".")[0] for alias in names} & modules
                case ast.ImportFrom(module=str(module)):
                    named = {module.split(".")[0]} & modules
                case ast.Call(func=ast.Name(id="eval" | "exec" | "compile" as name)):
                    named = {name}
                case ast.Call(func=ast.Attribute(value=ast.Name(id="torch"), attr="load")):
                    named = {"torch.load"}
                case ast.keyword(arg="allow_pickle", value=ast.Constant(value=True)):
                    named = {"allow_pickle"}
                case _:
                    continue
            wrong += [f"{file} has {name}" for name in named if name not in DATABASES.get(file, ())]
    assert wrong == []
