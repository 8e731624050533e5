"""Options that would do nothing are refused, and every name that is accepted is listed."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from choicewise import __version__
from choicewise.cli.listing import COMMANDS
from choicewise.errors import UsageError
from choicewise.protocols.catalogue import entries, groups, resolve, suite_names
from tests.helpers.commands import choicewise

FAKE = ["--model", "fake:hash"]
RUN = ["run", *FAKE, "--data", "nowhere", "--protocol", "mmlu/original", "--out", "nowhere"]
LOCAL = ["run", "--model", "nowhere", "--data", "nowhere", "--protocol", "mmlu/original", "--out", "nowhere"]
SCORE = ["score", *FAKE, "--context", "a", "--choice", "b"]


@pytest.mark.parametrize(
    ("line", "useless"),
    [
        *[
            ([*line, option, value], option)
            for line in (RUN, SCORE, ["check", *FAKE])
            for option, value in (("--dtype", "float32"), ("--device", "cpu"), ("--window", "8"))
        ],
        ([*RUN, "--batch-tokens", "8"], "--batch-tokens"),
        *[
            (["report", "nowhere", view, option, value], option)
            for view in ("--multiverse", "--agreement", "--distribution")
            for option, value in (("--by", "macro"), ("--interval", "wilson"))
        ],
        *[
            (["report", "nowhere", *view, option, value], option)
            for view in ([], ["--multiverse"], ["--agreement"])
            for option, value in (("--temperature", "1"), ("--condition", "x"))
        ],
        (["report", "nowhere", "--multiverse", "--agreement"], "--agreement"),
        (["report", "nowhere", "--distribution", "--agreement"], "--agreement"),
        ([*RUN, "--limit", "1", "--limit", "2"], "--limit"),
        ([*RUN, "--model", "other"], "--model"),
        ([*SCORE, "--boundary", "lcp", "--boundary=joint"], "--boundary"),
        (["protocols", "--json", "show", "mmlu"], "--json"),
        (["protocols", "--json", "diff", "mmlu", "mmlu"], "--json"),
    ],
)
def test_an_option_without_use_is_refused_before_anything_is_opened(line: list[str], useless: str) -> None:
    assert useless in choicewise(*line, code=UsageError.exit_code).stderr


@pytest.mark.parametrize("line", [[*RUN, "--limit", "0"], [*RUN, "--limit", "-1"], ["report"], ["nonsense"], []])
def test_wrong_use_ends_with_2(line: list[str]) -> None:
    assert choicewise(*line).code == 2


@pytest.mark.parametrize("line", [["-m", "choicewise"], ["-c", "from choicewise.cli import main; main()"]])
def test_the_version_is_told(line: list[str]) -> None:
    told = subprocess.run([sys.executable, *line, "--version"], capture_output=True, text=True, check=True)
    assert (told.stdout, told.stderr) == (f"choicewise {__version__}\n", "")


def test_the_commands_are_listed_without_importing_typer() -> None:
    line = [sys.executable, "-X", "importtime", "-m", "choicewise", "--help"]
    told = subprocess.run(line, capture_output=True, text=True, check=True, env={"COLUMNS": "80"})
    shown = told.stdout.partition("Commands:\n")[2].splitlines()
    assert [line.split()[0] for line in shown] == [*COMMANDS]
    assert not [each for each in told.stderr.splitlines() if each.rpartition("|")[2].strip() == "typer"]


@pytest.mark.costly("whole commands")
def test_every_name_that_resolves_is_listed() -> None:
    listed = {line.split(" ")[0] for line in choicewise("protocols").stdout.splitlines()}
    names = {name for entry in entries() for name in (entry.name, *entry.protocols, *entry.published)}
    names.update(suite_names())
    beginnings = {name[:end] for name in names for end in range(1, len(name) + 1)}
    accepted = {name for name in beginnings if resolves(name)}
    shown = {
        line.split(" ")[0]
        for name in listed & names
        for line in choicewise("protocols", "show", name).stdout.split("\n")
    }
    assert {"options/quoted", "mmlu/harness", "mmlu", "compat"} <= listed
    assert accepted == (listed | shown) & accepted
    assert {row["name"] for row in json.loads(choicewise("protocols", "--json").stdout)} == listed & accepted


def resolves(name: str) -> bool:
    try:
        return bool(resolve(name))
    except Exception:
        return False


def test_a_group_is_all_of_its_members() -> None:
    for name, members in groups().items():
        assert resolve(name) == {full: protocol for each in members for full, protocol in each.protocols.items()}
        assert all(member.name.startswith(name) for member in members)
