"""The help of commands: the options that most people need, the names of the others, and all with --help-all."""

import re
import sys
from typing import Any

import pytest
import typer

from choicewise.cli import app
from choicewise.cli.commands import FEW, FIRST, MANY
from choicewise.cli.listing import all_commands, help_lines
from choicewise.errors import install_line
from tests.helpers.commands import choicewise

ROOT: Any = typer.main.get_command(app)
OWN = [name for name in all_commands() if name != "lm-eval"]
"""The commands whose help is ours."""

GROUPS = {
    name: command.commands
    for name, command in ROOT.commands.items()
    if hasattr(command, "commands")
}


def told(*words: str, columns: int = 100) -> str:
    return choicewise(*words, "--help", code=0, COLUMNS=str(columns)).stdout


def listed(text: str) -> list[str]:
    """The options that stand at the beginning of a line, in their order."""
    return re.findall(r"^  (--[a-z-]+)", text.partition("Options:")[2], re.MULTILINE)


def options(name: str) -> list[Any]:
    return [each for each in ROOT.commands[name].params if each.param_type_name == "option"]


def unwrapped(text: str) -> str:
    return " ".join(text.split())


def bare(text: str) -> str:
    """Without white space: a line may end after a hyphen."""
    return "".join(text.split())


def first_sentence(text: str) -> str:
    return re.split(r"(?<=[^.]\.) ", unwrapped(text))[0]


def test_the_harness_need_not_be_installed_for_its_help(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "lm_eval", None)
    text = choicewise("lm-eval", "--help", code=0).stdout
    assert "choicewise lm-eval ARGUMENT" in text
    assert install_line("harness") in text


def test_run_shows_eight_options_and_names_the_others() -> None:
    text = told("run")
    assert len(text.splitlines()) <= 32
    first, _, more = text.partition("\nMore options ")
    assert tuple(listed(first)) == FIRST
    assert len(FIRST) == 8
    assert "`choicewise run --help-all`" in more.splitlines()[0]
    by_name = {name: option for option in options("run") for name in option.opts}
    for name in FIRST:
        assert bare(by_name[name].help) in bare(first)
    assert "…" not in text


@pytest.mark.parametrize("name", OWN)
def test_help_has_every_option_once_and_help_all_describes_it(name: str) -> None:
    text = told(name)
    command_options = [option.opts[0] for option in options(name)]
    names = [*command_options, "--help"]
    _, _, more = text.partition("\nMore options ")
    if not more:
        assert sorted(listed(text)) == sorted(names)
        assert all(bare(option.help) in bare(text) for option in options(name))
        assert len(command_options) < MANY or sum(first in names for first in FIRST) < FEW
        return
    first = listed(text.partition("\nMore options ")[0])
    others = more.partition("\n")[2].split()
    assert sorted([*first, *others]) == sorted(names)
    assert {option.opts[0] for option in options(name) if option.required} <= {*first}
    whole = choicewise(name, "--help-all", code=0, COLUMNS="100").stdout
    assert sorted(listed(whole)) == sorted(names)
    assert all(bare(option.help) in bare(whole) for option in options(name))


@pytest.mark.parametrize("name", OWN)
def test_the_first_sentence_of_a_command_is_whole_and_first(name: str) -> None:
    command = ROOT.commands[name]
    sentence = first_sentence(command.help)
    shown = bare(told(name, columns=80)).partition("Options:")[0]
    assert bare(sentence) in shown
    assert sentence.endswith(".")


def test_the_list_of_commands_has_a_whole_sentence_of_each() -> None:
    shown = unwrapped("\n".join(help_lines()))
    assert all(f"{name} {command.summary}" in shown for name, command in all_commands().items())
    assert all(command.summary.endswith(".") for command in all_commands().values())
    assert "..." not in shown.partition("Commands:")[2]


@pytest.mark.parametrize("columns", [50, 100])
@pytest.mark.parametrize("name", GROUPS)
def test_commands_of_a_command_have_a_whole_sentence_each(name: str, columns: int) -> None:
    shown = unwrapped(told(name, columns=columns).partition("Commands:\n")[2])
    for inner, command in GROUPS[name].items():
        assert f"{inner} {first_sentence(command.help)}" in shown


@pytest.mark.parametrize("columns", [60, 80, 200])
def test_help_fits_the_terminal(columns: int) -> None:
    for name in ("run", "export"):
        lines = [
            line
            for line in told(name, columns=columns).splitlines()
            if not re.search(r"<[\w|-]+>", line)
        ]
        assert max(map(len, lines)) <= columns
