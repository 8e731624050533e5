"""Ports: every example in ``ports.py`` runs, and names are unambiguous."""

import inspect
from textwrap import dedent
from types import SimpleNamespace

import pytest

from choicewise import ports
from choicewise.errors import UsageError
from choicewise.ports import Extension, Port, all_of, built_in_extensions, find
from choicewise.table import as_json

PORTS = [port for _, port in inspect.getmembers(ports, inspect.isclass) if issubclass(port, Port) and port is not Port]


def example(port: type[Port]) -> Port:
    """Return an instance of the class in the example of a port's docstring."""
    code = dedent(str(port.__doc__).split("Example::")[1])
    names: dict[str, object] = dict(vars(ports))
    exec(code, names)  # noqa: S102
    classes = [thing for name, thing in names.items() if name not in vars(ports) and inspect.isclass(thing)]
    (written,) = [thing for thing in classes if issubclass(thing, port)]
    addition = written()
    assert isinstance(addition, Port)
    return addition


@pytest.fixture
def stranger(monkeypatch: pytest.MonkeyPatch) -> list[Port]:
    """The additions of another package, which a test fills."""
    additions: list[Port] = []
    monkeypatch.setattr(ports, "other_extensions", lambda: (Extension("stranger", additions),))
    return additions


@pytest.mark.parametrize("port", PORTS)
def test_the_example_of_a_port_is_found_by_its_name(port: type[Port], stranger: list[Port]) -> None:
    addition = example(port)
    stranger.append(addition)
    assert find(port, addition.name) is addition
    assert addition in all_of(port)


def test_a_name_that_two_packages_add_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    both = [Extension(name, [example(ports.Command)]) for name in ("first", "second")]
    monkeypatch.setattr(ports, "other_extensions", lambda: both)
    with pytest.raises(UsageError, match="first and second"):
        find(ports.Command, "hello")


@pytest.mark.parametrize("port", PORTS)
def test_built_in_names_are_given_once(port: type[Port]) -> None:
    names = [thing.name for extension in built_in_extensions() for thing in extension.adds if type(thing) is port]
    assert len(names) == len({*names})


def test_an_analysis_answers_in_tables() -> None:
    analysis = example(ports.Analysis)
    assert isinstance(analysis, ports.Analysis)
    run = SimpleNamespace(manifest=SimpleNamespace(model=SimpleNamespace(name="hash")), rows=[None, None])
    (counts,) = analysis.tables([run])
    assert as_json(counts)["rows"] == [{"model": "hash", "numbers": 2}]
