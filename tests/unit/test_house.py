"""The rules of the source tree: which room imports which, and words that have their place."""

import ast
import gc
import inspect
import pkgutil
import re
from collections.abc import Collection, Iterator
from functools import cache
from graphlib import TopologicalSorter
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import typer

import choicewise
from choicewise.cli import app
from choicewise.ports import BUILT_IN, Extension, Port, built_in_extensions
from tests.paths import ROOT

PACKAGE = ROOT / "src" / "choicewise"
ROOMS = [
    *(
        "errors",
        "ports",
        "util",
        "table",
        "records",
        "logs",
        "thoughts",
        "questions",
        "data",
        "protocols",
        "tokens",
    ),
    *(
        "scoring",
        "store",
        "requests",
        "engine",
        "models",
        "results",
        "running",
        "report",
        "page",
        "cli",
    ),
]
"""The kernel, in the order of the way of the data: a room imports only itself and the rooms before it."""

EXTENSIONS = {
    "run": set[str](),
    "endpoints": set[str](),
    "plot": set[str](),
    "analyses": set[str](),
    "cluster": {"run"},
    "training": {"run"},
    "interop": {"training", "run"},
    "board": {"analyses", "run"},
    "gguf": set[str](),
    "comparison": {"run"},
    "explain": set[str](),
    "survey": set[str](),
    "catalogue": set[str](),
    "prompts": set[str](),
    "fetch": set[str](),
    "score": set[str](),
    "check": set[str](),
    "doctor": set[str](),
    "demo": set[str](),
}
"""Which extensions an extension imports, beside the kernel."""

FOR_ALL = {"bundled", "__version__"}
"""What any room may import, and what imports nothing of the package itself."""

ALONE = {"reference"}
"""What imports nothing of the package, and what nothing of the package imports."""

FRONT = {"__init__", "__main__"}
"""What may import every room."""

DATABASES = {"extensions/board/queue.py": {"sqlite3"}}
"""Where a database is kept after all: the queue of a board has several writers at once and must not lose what it has
answered for.  No result lies in it, and a queue that is lost costs no run."""

LEVELS = 7
"""Of imports inside a room."""

MECHANISMS = {
    "file replacement": {"util/files.py"},
    "child process": {"util/isolate.py"},
    "thread": {"util/background.py"},
    "JSON writer": {"util/jsonio.py"},
    "table writer": {"util/tables.py", "table.py"},
    "HTTP client": {"extensions/endpoints/server/http.py"},
    "private name": set(),
}
"""What there is one of, and the file that has it."""

OTHERS: dict[str, dict[str, str]] = {
    "file replacement": {"extensions/board/queue.py": "shows a folder that is done"},
    "thread": {
        "extensions/board/library.py": "reads runs in the background",
        "extensions/board/server.py": "the event loop of the server",
        "extensions/endpoints/server/http.py": "the event loop of all clients",
        "extensions/cluster/ray.py": "reads what a cluster says",
        "util/isolate.py": "the inside of a child process",
    },
    "JSON writer": {
        **dict.fromkeys(
            ("extensions/interop/lm_eval/engine.py", "extensions/interop/lm_eval/model.py"),
            "a digest",
        ),
        **dict.fromkeys(
            (
                "extensions/interop/harness_tasks/as_protocols.py",
                "extensions/interop/logs/import_log.py",
            ),
            "a digest",
        ),
        **dict.fromkeys(
            ("models/local/files.py", "models/local/tokenizer.py", "results/rows.py"), "a digest"
        ),
        **dict.fromkeys(("running/job.py", "extensions/run/sweep.py"), "a digest"),
        "extensions/board/runs.py": "what a child process says",
        "cli/terminal.py": "a result of the command line",
        "data/files.py": "one cell in the spelling of its file",
        "extensions/interop/export.py": "the mark of an export",
        "extensions/interop/harness_tasks/load.py": "what a template is filled with",
        "extensions/interop/write/every_eval_ever.py": "as its schema has it",
        "extensions/interop/write/harness.py": "a digest of the harness",
        "extensions/interop/write/tables.py": "a cell",
        "models/local/folder_model.py": "a name in quotes",
        "protocols/preparations.py": "a state as a server writes it",
        "models/local/networks.py": "the key and the text of a cache",
        "extensions/endpoints/server/http.py": "the body of a request",
        "extensions/endpoints/vllm/process.py": "an argument of a child process",
        "page/charts/chart.py": "a specification of Vega-Lite",
        "page/embed.py": "the key of a table",
        "results/summary.py": "a digest, and rows in a column",
        "running/evaluate.py": "fields of an item",
        "util/isolate.py": "a line of ASCII between processes",
    },
    "table writer": {
        "extensions/interop/write/tables.py": "CSV by pyarrow, for millions of rows",
    },
}
"""Where there is another one after all, and what for."""

FILES = sorted(str(file.relative_to(PACKAGE)) for file in PACKAGE.rglob("*.py"))
SOURCES = {file: (PACKAGE / file).read_text(encoding="utf-8") for file in FILES}
MODULES = {
    ".".join(("choicewise", *Path(file).with_suffix("").parts)).removesuffix(".__init__"): file
    for file in FILES
}
DECLARATIONS = {MODULES[module] for module in BUILT_IN}
"""What says that something is added, and nothing else."""

TESTS = [f"{folder}/" for folder in ("unit", "models", "served", "goldens", "cli")]
"""Where the tests of a module lie."""

NOT_DIRECTLY = {"choicewise.extensions.interop.lm_eval.model": "peers/"}
"""Where else, as it needs another tool."""


@cache
def tree(file: str) -> ast.Module:
    gc.disable()  # every collection would walk through all trees, which takes twice as long as to parse them
    try:
        return ast.parse(SOURCES[file])
    finally:
        gc.enable()


@cache
def nodes(file: str) -> list[ast.AST]:
    return list(ast.walk(tree(file)))


def room_of(file: str) -> str:
    return file.split("/")[0].removesuffix(".py")


def extension_of(file: str) -> str:
    """The extension that a file is a part of, "" for none."""
    parts = file.split("/")
    if parts[0] != "extensions" or len(parts) < 3:
        return ""
    return parts[1]


def of_command_line(file: str) -> bool:
    """Whether a file is part of the command line: a module of ``cli``, or the commands of an extension."""
    commands = bool(extension_of(file)) and file.endswith("/commands.py")
    return commands or room_of(file) in ("cli", "__main__")


@cache
def imports(file: str) -> list[tuple[int, str]]:
    """(line, file) of everything that a file imports from the package, inside functions and for types as well.

    Only the types of ``ports.py`` do not count: a port names what it is given, which is made after it. What a
    declaration names by ``calls`` and ``returns`` counts.
    """
    named = []
    if file in DECLARATIONS:
        named += [(line, MODULES[module]) for line, module, _ in deferred(file)]
    walked = nodes(file) if file != "ports.py" else list(ast.iter_child_nodes(tree(file)))
    for node in walked:
        if isinstance(node, ast.Import):
            assert all(not alias.name.startswith("choicewise.") for alias in node.names), (
                f"{file}:{node.lineno}"
            )
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{file}:{node.lineno} imports relatively"
            if node.module is not None and node.module.split(".")[0] == "choicewise":
                named += [(node.lineno, file_of(node.module, alias.name)) for alias in node.names]
    return named


def deferred(file: str) -> Iterator[tuple[int, str, str]]:
    """(line, module, name) of all that a declaration names by ``calls`` and ``returns``."""
    for node in nodes(file):
        match node:
            case ast.Call(func=ast.Name(id="calls" | "returns"), args=[ast.Constant(value=name)]):
                module, _, name = str(name).partition(":")
                yield node.lineno, module, name


def file_of(module: str, name: str) -> str:
    """The file of a name in a module, or of the module that it is."""
    return MODULES.get(f"{module}.{name}") or MODULES[module]


def levels(files: Collection[str]) -> dict[str, int]:
    """How many files deep the imports of each go within ``files``; raises CycleError for a circle."""
    inside = {
        file: {other for _, other in imports(file) if other in files} - {file} for file in files
    }
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


def is_hook(file: str, node: ast.FunctionDef | ast.ClassDef) -> bool:
    """Whether it is a function of a declaration: its port says what it does."""
    return file in DECLARATIONS and isinstance(node, ast.FunctionDef)


def texts(file: str) -> Iterator[tuple[int, str]]:
    """(line, text) of every string that is no docstring."""
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef)
    bodies = [node.body for node in nodes(file) if isinstance(node, documented)]
    docstrings = {id(line.value) for body in bodies for line in body if isinstance(line, ast.Expr)}
    for node in nodes(file):
        if (
            isinstance(node, ast.Constant)
            and isinstance(node.value, str)
            and id(node) not in docstrings
        ):
            yield node.lineno, node.value


def names(file: str) -> Iterator[tuple[int, str]]:
    """(line, name) of every variable, argument, function and class."""
    for node in nodes(file):
        match node:
            case ast.Name(ctx=ast.Store()):
                yield node.lineno, node.id
            case ast.arg():
                yield node.lineno, node.arg
            case ast.FunctionDef() | ast.ClassDef():
                yield node.lineno, node.name


def options(command: Any) -> set[str]:
    """Every ``--option`` of a command and of those below it."""
    own = {
        option
        for parameter in command.params
        for option in parameter.opts
        if option.startswith("--")
    }
    return own.union(*(options(below) for below in getattr(command, "commands", {}).values()))


@pytest.mark.parametrize(
    "extension", list(built_in_extensions()), ids=lambda extension: extension.name
)
def test_a_declaration_names_functions_that_take_what_their_port_passes(
    extension: Extension,
) -> None:
    """A type checker does not follow the texts of ``calls`` and ``returns``."""
    for addition in extension.adds:
        port = next(base for base in type(addition).__mro__ if base.__module__ == Port.__module__)
        for hook, form, text in deferred_hooks(type(addition)):
            named = pkgutil.resolve_name(text)
            if form == "calls":
                parameters = list(inspect.signature(getattr(port, hook)).parameters.values())[1:]
                passed = [each for each in parameters if each.kind == each.POSITIONAL_OR_KEYWORD]
                inspect.signature(named).bind(*passed)


def deferred_hooks(declared: type) -> Iterator[tuple[str, str, str]]:
    """(hook, "calls" or "returns", "MODULE:NAME") of everything that a declared class names so."""
    for node in nodes(MODULES[declared.__module__]):
        if isinstance(node, ast.ClassDef) and node.name == declared.__name__:
            for line in node.body:
                match line:
                    case ast.Assign(
                        targets=[ast.Name(id=hook)],
                        value=ast.Call(func=ast.Name(id=form), args=[ast.Constant(value=text)]),
                    ):
                        yield hook, form, str(text)


def test_every_file_is_in_a_room() -> None:
    assert {room_of(file) for file in FILES} <= {*ROOMS, *FOR_ALL, *ALONE, *FRONT, "extensions"}


@pytest.mark.costly("it is the first that parses the whole source tree")
def test_a_room_imports_only_the_rooms_before_it() -> None:
    may_import = {
        room: {*ROOMS[: place + 1], *FOR_ALL, "__init__"} for place, room in enumerate(ROOMS)
    }
    may_import |= {front: {*ROOMS, *FOR_ALL} for front in FRONT}
    may_import["extensions"] = {*ROOMS, *FOR_ALL, "extensions", "__init__"}
    lines = [(file, line, other) for file in FILES for line, other in imports(file)]
    assert len(lines) > len(FILES)
    kernel = [
        line
        for line in lines
        if room_of(line[2]) != "extensions" or room_of(line[0]) == "extensions"
    ]
    wrong = [
        line for line in kernel if room_of(line[2]) not in may_import.get(room_of(line[0]), ())
    ]
    assert wrong == []


def test_the_kernel_imports_no_extension() -> None:
    arrows = {
        (file, other)
        for file in FILES
        for _, other in imports(file)
        if room_of(other) == "extensions"
    }
    assert [f"{file} -> {other}" for file, other in arrows if room_of(file) != "extensions"] == []


def test_extensions_import_only_those_that_are_listed() -> None:
    wrong = []
    for file in FILES:
        for line, other in imports(file):
            both = room_of(file) == room_of(other) == "extensions"
            importer, imported = extension_of(file), extension_of(other)
            if both and imported not in {importer, "", *EXTENSIONS.get(importer, ())}:
                wrong.append(f"{file}:{line} {other}")
    assert wrong == []


def test_there_is_no_circle() -> None:
    """Imports for types and inside functions count."""
    assert len(levels([file for file in FILES if file != "__init__.py"])) > 100


@pytest.mark.parametrize("room", [*ROOMS, *EXTENSIONS])
def test_imports_inside_a_room_are_not_deep(room: str) -> None:
    """A declaration doesn't count: it imports what it names only if that is used, and no file imports it."""
    depth = levels([file for file in FILES if room in (room_of(file), extension_of(file))])
    depth = {file: level for file, level in depth.items() if file not in DECLARATIONS}
    assert max(depth.values()) <= LEVELS, sorted(depth.items(), key=lambda each: -each[1])


def test_every_file_and_public_name_has_a_docstring() -> None:
    bare = [file for file in FILES if not ast.get_docstring(tree(file))]
    named = (
        (file, node) for file in FILES for node in public(tree(file)) if not is_hook(file, node)
    )
    bare += [
        f"{file}:{node.lineno} {node.name}" for file, node in named if not ast.get_docstring(node)
    ]
    assert bare == []


def test_options_of_the_command_line_are_spelled_in_its_room_alone() -> None:
    """Errors say what is wrong; which option changes it is for ``cli`` to say, as not everybody comes from there."""
    known = options(typer.main.get_command(app))
    assert {"--model", "--out"} <= known
    spelled = [
        f"{file}:{line} {option}"
        for file in FILES
        if not of_command_line(file)
        for line, text in texts(file)
        for option in re.findall(r"(?<![\w-])--[a-z][a-z-]*", text)
        if option in known
    ]
    assert spelled == []


NUMBERS = ("results/", "scoring/")
"""Rooms whose dataclasses hold numbers: a field that is added in the middle must not move one in silence."""


def dataclasses_of(file: str) -> Iterator[tuple[ast.ClassDef, str]]:
    """Yield the dataclasses of a file, each with the spelling of its decorator."""
    for node in nodes(file):
        if isinstance(node, ast.ClassDef):
            decorators = [ast.unparse(decorator) for decorator in node.decorator_list]
            yield from (
                (node, decorator) for decorator in decorators if decorator.startswith("dataclass")
            )


def test_numbers_are_filled_by_name() -> None:
    found = [
        (file, *each) for file in FILES if file.startswith(NUMBERS) for each in dataclasses_of(file)
    ]
    positional = []
    for file, node, decorator in found:
        fields = [line for line in node.body if isinstance(line, ast.AnnAssign)]
        if len(fields) > 4 and "kw_only=True" not in decorator:
            positional.append((file, node.name))
    assert positional == []
    names = {node.name for _, node, _ in found}
    starred = []
    for file in FILES:
        for call in nodes(file):
            filled = (
                file.startswith(NUMBERS)
                and isinstance(call, ast.Call)
                and ast.unparse(call.func) in names
            )
            if filled and any(isinstance(argument, ast.Starred) for argument in call.args):
                starred.append((file, call.lineno))
    assert starred == []


def test_no_name_says_only_that_something_was_found() -> None:
    assert [
        f"{file}:{line}" for file in FILES for line, name in names(file) if name == "found"
    ] == []


@cache
def mechanisms(file: str) -> list[tuple[int, str]]:
    """(line, mechanism) of whatever a file does by itself that is done in one place for all."""
    foreign, done = set(), list[tuple[int, str]]()
    for node in nodes(file):
        if isinstance(node, ast.Import):
            foreign |= {(alias.asname or alias.name).split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and str(node.module).split(".")[0] != "choicewise":
            foreign |= {alias.asname or alias.name for alias in node.names}
    for node in nodes(file):
        named: set[str] = set()
        match node:
            case ast.Import(names=aliases):
                named = {alias.name.split(".")[0] for alias in aliases}
            case ast.ImportFrom(module=str(module), names=aliases):
                named = {module.split(".")[0]} | {f"{module}.{alias.name}" for alias in aliases}
                own = module.split(".")[0] in ("choicewise", "__future__")
                if not own and any(private(alias.name) for alias in aliases):
                    done.append((node.lineno, "private name"))
            case ast.Call(func=ast.Attribute(attr="replace" | "rename"), args=[_], keywords=[]):
                done.append((node.lineno, "file replacement"))
            case ast.Attribute(value=value, attr=attr):
                if attr in ("write_table", "ParquetWriter", "CSVWriter", "write_csv", "DictWriter"):
                    done.append((node.lineno, "table writer"))
                owner = value.id if isinstance(value, ast.Name) else ""
                named = {f"{owner}.{attr}"} if owner else set()
                if attr in ("__bases__", "__mro__") or (
                    owner in foreign and private(attr) and attr != "_exit"
                ):
                    done.append((node.lineno, "private name"))
        done += [(node.lineno, BY_NAME[name]) for name in named if name in BY_NAME]  # type: ignore[attr-defined]
    return done


def private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


BY_NAME = {
    **dict.fromkeys(("os.replace", "os.rename", "shutil.move"), "file replacement"),
    **dict.fromkeys(
        ("subprocess", "multiprocessing", "os.fork", "os.posix_spawn"), "child process"
    ),
    **dict.fromkeys(("threading.Thread", "threading.Timer", "_thread"), "thread"),
    **dict.fromkeys(("json.dumps", "json.dump", "json.JSONEncoder"), "JSON writer"),
    "csv.writer": "table writer",
    **dict.fromkeys(("httpx2.Client", "httpx2.AsyncClient"), "HTTP client"),
}
"""A module or a name in one → the mechanism that it is a part of."""


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_there_is_one_of_each_mechanism(mechanism: str) -> None:
    """A second one is written where the first one is, so that all have what either can do."""
    allowed = MECHANISMS[mechanism] | {*OTHERS.get(mechanism, ())}
    users = [
        (file, line) for file in FILES for line, which in mechanisms(file) if which == mechanism
    ]
    assert [f"{file}:{line}" for file, line in users if file not in allowed] == []


def test_what_a_package_is_takes_more_than_a_line() -> None:
    assert [
        file
        for file in FILES
        if file.endswith("__init__.py") and len(SOURCES[file].splitlines()) == 1
    ] == []


IMPORT = re.compile(
    r"^ *(?:from (choicewise[\w.]*) import (\([^)]*\)|.*)|import (choicewise[\w.]*))", re.MULTILINE
)


@cache
def imported_by_tests() -> dict[str, set[str]]:
    """``MODULE`` and ``MODULE.NAME`` that tests import → the files that do, below ``tests``."""
    importers: dict[str, set[str]] = {}
    for path in (ROOT / "tests").rglob("*.py"):
        for module, names, plain in IMPORT.findall(path.read_text(encoding="utf-8")):
            words = re.findall(r"\w+", re.sub(r" as \w+|#.*", "", names))
            for name in {module or plain, *(f"{module}.{word}" for word in words)}:
                importers.setdefault(name, set()).add(str(path.relative_to(ROOT / "tests")))
    return importers


def test_every_module_has_a_test_that_imports_it() -> None:
    """But packages that are a docstring, and modules of the command line, which tests reach as commands."""
    without = []
    for module, file in MODULES.items():
        docstring = file.endswith("__init__.py") and len(tree(file).body) <= 1
        declaration = file in DECLARATIONS  # tests load them by the ports
        if not docstring and not declaration and not of_command_line(file):
            folders = (*TESTS, NOT_DIRECTLY.get(module, TESTS[0]))
            if not any(test.startswith(folders) for test in imported_by_tests().get(module, ())):
                without.append(module)
    assert without == []


def test_no_test_imports_a_private_name() -> None:
    wrong = {
        name: tests
        for name, tests in imported_by_tests().items()
        if any(map(private, name.split(".")))
    }
    assert wrong == {}


def test_nothing_is_unpickled_evaluated_or_kept_in_a_database() -> None:
    """What is read as a pickle or evaluated is code of whoever wrote it; a database is damaged by a kill or a copy."""
    modules = {
        "pickle",
        "cPickle",
        "shelve",
        "marshal",
        "dill",
        "cloudpickle",
        "joblib",
        "sqlite3",
        "dbm",
        "diskcache",
    }
    wrong = []
    for file in FILES:
        for node in nodes(file):
            match node:
                case ast.Import(names=aliases):
                    named = {alias.name.split(".")[0] for alias in aliases} & modules
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


def test_the_words_of_the_code_have_types() -> None:
    page = (ROOT / "docs" / "design" / "words.md").read_text(encoding="utf-8")
    types = re.findall(r"^\| \w+ \| `([\w.]+)` \|", page, re.MULTILINE)
    assert len(types) == 12
    for path in types:
        module, name = path.rsplit(".", 1)
        assert hasattr(import_module(module), name), path


REFERENCE = re.compile(r":(?:class|func|meth|attr|data|mod|exc):`~?([\w.]+)`")
"""A reference in a docstring or a comment, with the name that it points to."""


@cache
def definitions(file: str) -> set[str]:
    """Return the names that a file defines or imports: "name" of the module, "Class.name" of a class."""
    defined = set(members(tree(file)))
    for node in nodes(file):
        if isinstance(node, ast.ClassDef):
            defined |= {f"{node.name}.{name}" for name in members(node)}
        elif isinstance(node, ast.Import | ast.ImportFrom):
            defined |= {alias.asname or alias.name for alias in node.names}
    return defined


def members(owner: ast.Module | ast.ClassDef) -> Iterator[str]:
    """Yield the names in the body of a module or class, and those that methods set on ``self``."""
    for node in ast.walk(owner):
        match node:
            case ast.Attribute(value=ast.Name(id="self"), attr=name, ctx=ast.Store()):
                yield name
    for node in owner.body:
        match node:
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
                yield name
            case ast.AnnAssign(target=ast.Name(id=name)):
                yield name
            case ast.Assign(targets=[ast.Name(id=name)]):
                yield name


def is_defined(name: str, file: str, line: int) -> bool:
    """Return whether ``name``, as a docstring of ``file`` writes it, points to something."""
    if not name.startswith((".", "choicewise.")):
        enclosing = [
            node.name
            for node in nodes(file)
            if isinstance(node, ast.ClassDef) and node.lineno <= line <= (node.end_lineno or line)
        ]
        inside = [name, *(f"{owner}.{name}" for owner in enclosing)]
        if any(spelling in definitions(file) for spelling in inside):
            return True
        # An attribute of a class that the file imports.
        is_imported = name.split(".")[0] in definitions(file)
        return is_imported and any(name in definitions(other) for other in FILES)
    for module, other in MODULES.items():
        at_end = name.startswith(".") and f"{module}.".endswith(f"{name.rpartition('.')[0]}.")
        if at_end and name.rpartition(".")[2] in definitions(other):
            return True
        if name == module or name.removeprefix(f"{module}.") in definitions(other):
            return True
    return name.removeprefix("choicewise.") in choicewise.__all__


def test_references_in_docstrings_point_to_something() -> None:
    references = [
        (match[1], file, text.count("\n", 0, match.start()) + 1)
        for file, text in SOURCES.items()
        for match in REFERENCE.finditer(text)
    ]
    assert len(references) > 100
    dead = [
        f"{file}:{line} {name}"
        for name, file, line in references
        if not is_defined(name, file, line)
    ]
    assert dead == []


POINTING = frozenset(
    "each own known told said shown asked about place more alike held adding".split()
)
"""Words that point to something and do not name it."""

NOT_YET = ("models/local/attention.py", "models/local/paths.py")
"""What is not rewritten yet, or is about to be replaced."""

LEFT = {
    "data/decisions.py": {"place"},
    "data/intake.py": {"more"},
    "extensions/analyses/charts/chain.py": {"about"},
    "extensions/analyses/multiverse_report.py": {"alike"},
    "extensions/board/commands.py": {"asked"},
    "extensions/board/library.py": {"place"},
    "extensions/board/queue.py": {"asked"},
    "extensions/board/worker.py": {"shown"},
    "extensions/endpoints/decisions/minus_own.py": {"own"},
    "models/fake.py": {"place"},
    "models/local/causal_lm.py": {"known"},
    "models/local/files.py": {"held"},
    "page/document.py": {"more"},
    "page/embed.py": {"known"},
    "page/item_views.py": {"asked"},
    "page/metrics.py": {"about"},
    "page/sections.py": {"about"},
    "records.py": {"asked"},
    "report/brief.py": {"about"},
    "requests/blocks.py": {"shown"},
    "requests/render.py": {"shown"},
    "results/comparison.py": {"place"},
    "results/published.py": {"place"},
    "results/explain.py": {"asked"},
    "running/shards.py": {"held"},
    "util/text.py": {"shown"},
}
"""Names that are keys of files, words of a port, or not renamed yet."""


def test_names_name_things() -> None:
    pointing = [
        f"{file}:{line} {name}"
        for file in FILES
        if not file.startswith(NOT_YET)
        for line, name in names(file)
        if name in POINTING - LEFT.get(file, set())
    ]
    assert pointing == []


PHRASE = re.compile(r"[A-Za-z']+(?: [A-Za-z']+){4}")
"""Five words in a row, which a better sentence would change."""

EXACT = {
    "test_a_server_that_replays_traces_is_asked_so": "the name of a route",
    "test_a_terminal_has_one_line_that_goes_away": "the name of a model",
    "test_broken_models_end_no_worker": "an error that the test itself raises",
    "test_d1_reads_codes_of_two_spellings_and_answers_of_three": "prompts",
    "test_lighteval_asks_truthfulqa_as_on_the_leaderboard_but_with_a_bos": "a prompt",
    "test_one_layout_becomes_another_by_one_change_at_a_time": "a prompt",
    "test_prompts_prints_the_message_where_no_model_is_named": "a prompt",
    "test_reasons_that_differ_in_numbers_or_the_id_of_the_item_are_one": "reasons of the test",
    "test_the_request_says_where_the_options_stand": "a prompt",
    "test_views_and_proposals_render_the_whole_chat_again_and_continuations_keep_their_space": (
        "a prompt"
    ),
    "test_what_can_be_fetched_is_though_something_else_cannot": "a command to type",
    "test_what_else_is_found": "names of cases",
}
"""Tests whose assertions hold five words in a row that are no message, and what they are."""


def pins_a_phrase(code: str) -> bool:
    """Return whether an assertion or a ``match=`` in a piece of code holds five words in a row."""
    for node in ast.walk(ast.parse(code)):
        match node:
            case ast.Assert(test=checked) | ast.keyword(arg="match", value=checked):
                parts = [part for part in ast.walk(checked) if isinstance(part, ast.Constant)]
                texts = [part.value for part in parts if isinstance(part.value, str)]
                if any(map(PHRASE.search, texts)):
                    return True
    return False


def test_tests_pin_numbers_names_and_commands_but_no_phrases() -> None:
    pinned = set()
    for path in (ROOT / "tests").rglob("test_*.py"):
        # Only pieces with a phrase are parsed: all of the tests would take seconds.
        for piece in path.read_text(encoding="utf-8").split("\n\n\n"):
            name = re.search(r"^ *def (test_\w+)", piece, re.MULTILINE)
            if name and PHRASE.search(piece) and pins_a_phrase(piece):
                pinned.add(name[1])
    assert pinned == set(EXACT)
