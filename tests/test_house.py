"""The rules of the source tree: which room imports which, how long a file may be, and words that have their place."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import typer

from choicewise.cli import app

PACKAGE = Path(__file__).parents[1] / "src" / "choicewise"
ROOMS = [
    *("errors", "records", "questions", "data", "protocols", "tokens", "engine", "requests", "models", "scoring"),
    *("store", "results", "running", "submissions", "report", "web", "interchange", "integrations", "cli"),
]
"""In the order of the way of the data: a room imports only itself and the rooms before it."""

FOR_ALL = {"bundled", "__version__"}
"""What any room may import, and what imports nothing of the package itself."""

ALONE = {"reference"}
"""What imports nothing of the package, and what nothing of the package imports."""

SHORTHANDS = {("results/run.py", "web")}
"""What a file may import though its room comes before: in a notebook a run gives its charts (``run.chart``)."""

FRONT = {"__init__", "__main__"}
"""What may import every room."""

DATABASES = {"submissions/database.py": {"sqlite3"}, "submissions/queue.py": {"sqlite3"}}
"""Where a database is kept after all: the queue of a board has several writers at once and must not lose what it has
answered for.  No result lies in it, and a queue that is lost costs no run."""

LONGEST = 400
"""Lines of a file."""

FILES = sorted(str(file.relative_to(PACKAGE)) for file in PACKAGE.rglob("*.py"))


@cache
def tree(file: str) -> ast.Module:
    return ast.parse((PACKAGE / file).read_text(encoding="utf-8"))


def room_of(file: str) -> str:
    return file.split("/")[0].removesuffix(".py")


def imports(file: str) -> Iterator[tuple[int, str]]:
    """(line, room) of everything that a file imports from the package, inside functions and for types as well."""
    for node in ast.walk(tree(file)):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{file}:{node.lineno} imports relatively"
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        yield from ((node.lineno, name.split(".")[1]) for name in names if name.startswith("choicewise."))


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
    may_import = {room: {*ROOMS[: place + 1], *FOR_ALL} for place, room in enumerate(ROOMS)}
    may_import |= {front: {*ROOMS, *FOR_ALL} for front in FRONT}
    lines = [(file, line, room) for file in FILES for line, room in imports(file)]
    assert len(lines) > len(FILES)
    wrong = [
        f"{file}:{line} imports {room}"
        for file, line, room in lines
        if room not in may_import.get(room_of(file), ()) and (file, room) not in SHORTHANDS
    ]
    assert not wrong, "\n".join(wrong)


def test_no_file_is_too_long() -> None:
    lengths = {file: len((PACKAGE / file).read_text(encoding="utf-8").splitlines()) for file in FILES}
    assert {file: length for file, length in lengths.items() if length > LONGEST} == {}


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
