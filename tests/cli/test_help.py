"""What the help of commands says: the options that most people need first, every other one in a line, and no more."""

import re
from typing import Any

import pytest
import typer

from choicewise.cli import app
from choicewise.cli.commands import FEW, FIRST, MANY
from choicewise.cli.listing import all_commands, help_lines
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
    return re.findall(r"^  (--[a-z-]+)", text, re.MULTILINE)


def options(name: str) -> list[Any]:
    return [each for each in ROOT.commands[name].params if each.param_type_name == "option"]


def unwrapped(text: str) -> str:
    return " ".join(text.split())


def bare(text: str) -> str:
    """Without white space: a line may end after a hyphen."""
    return "".join(text.split())


def first_sentence(text: str) -> str:
    return re.split(r"(?<=[^.]\.) ", unwrapped(text))[0]


def test_run_shows_eight_options_first_and_each_of_the_others_in_a_line() -> None:
    text = told("run")
    first, _, more = text.partition("\nMore (in full in docs/reference/commands.md):\n")
    assert tuple(listed(first)) == FIRST
    assert len(FIRST) == 8
    assert len(more.splitlines()) == len(listed(more))
    assert len(text.splitlines()) <= 60
    by_name = {name: each for each in options("run") for name in each.opts}
    for name in FIRST:
        assert bare(by_name[name].help) in bare(first)


@pytest.mark.parametrize("name", OWN)
def test_every_option_of_a_command_stands_there_once(name: str) -> None:
    text = told(name)
    own = [each.opts[0] for each in options(name)]
    assert sorted(listed(text)) == sorted([*own, "--help"])
    if "More (" not in text:
        assert all(bare(each.help) in bare(text) for each in options(name))
        assert len(own) < MANY or sum(each in own for each in FIRST) < FEW
    else:
        required = [each.opts[0] for each in options(name) if each.required]
        assert {*required} <= {*listed(text.partition("\nMore (")[0])}


@pytest.mark.parametrize("columns", [60, 100])
@pytest.mark.parametrize("name", ["run", "sweep"])
def test_a_line_about_an_option_is_a_line(name: str, columns: int) -> None:
    text = told(name, columns=columns)
    more = text.partition("\nMore (")[2].splitlines()[1:]
    helps = {each.opts[0]: each.help for each in options(name)}
    for line in more:
        assert len(line) <= columns
        option, said = re.fullmatch(r"  (--[a-z-]+) +(.*)", line).groups()
        if option != "--help":
            assert unwrapped(helps[option]).startswith(said.removesuffix(" …"))
            whole = re.split(r"(?<!\.)\. ", helps[option])[0]
            assert said.endswith(" …") or said == whole.removesuffix(
                "." if not whole.endswith("...") else ""
            )


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
