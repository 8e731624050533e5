"""Analyses by name: ``report DIR... NAME``, their own options, and what is a folder after all."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from choicewise.cli.analysis import split_analysis
from choicewise.errors import StoreError, UsageError
from choicewise.ports import Analysis, all_of
from tests.helpers.commands import choicewise
from tests.helpers.study import Study

WITH_VALUE = {"--metric", "--protocol"}
FLAGS = {"--all", "--json"}


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that holds the folders ``run`` and ``other``, in which commands are typed."""
    for name in ("run", "other"):
        (tmp_path / name).mkdir()
    monkeypatch.chdir(tmp_path)
    return tmp_path


def split(*line: str) -> tuple[list[str], str]:
    rest, chosen = split_analysis(line, WITH_VALUE, FLAGS)
    return rest, "" if chosen is None else chosen.analysis.name


def test_the_last_argument_is_an_analysis_wherever_options_stand(here: Path) -> None:
    assert split("run", "signal") == (["run"], "signal")
    assert split("--all", "run", "other", "audit", "--metric", "bpb") == (
        ["--all", "run", "other", "--metric", "bpb"],
        "audit",
    )
    assert split("run", "--metric", "signal") == (["run", "--metric", "signal"], "")
    assert split("run", "other") == (["run", "other"], "")


def test_a_folder_of_that_name_is_a_folder(here: Path) -> None:
    assert split("run", "./signal") == (["run", "./signal"], "")
    (here / "signal").mkdir()
    assert split("run", "signal") == (["run", "signal"], "")
    assert split("audit") == (["audit"], "")


def test_a_misspelled_analysis_is_told_and_a_misspelled_folder_is_missing(here: Path) -> None:
    assert "folder nor an analysis" in refused("run", "singal")
    assert split("nowhere", "singal") == (["nowhere", "singal"], "")
    assert choicewise("report", "run", "runn2").code == StoreError.exit_code
    assert choicewise("report", "rnu").code == StoreError.exit_code
    assert "signal are two analyses" in refused("run", "audit", "signal")


def refused(*line: str) -> str:
    with pytest.raises(UsageError) as error:
        split(*line)
    return error.value.message


def test_an_analysis_has_options_of_its_own(here: Path) -> None:
    _, chosen = split_analysis(
        ["run", "distribution", "--temperature", "2", "--condition=age", "--json"],
        WITH_VALUE,
        FLAGS,
    )
    assert chosen is not None
    assert chosen.values == {"temperature": 2.0, "condition": "age"}
    assert "--temperature can't be 'warm'" in refused(
        "run", "distribution", "--temperature", "warm"
    )
    assert "--temperature is given twice" in refused(
        "run", "distribution", "--temperature", "1", "--temperature", "2"
    )
    assert "audit has no option --temperature" in refused("run", "audit", "--temperature", "2")
    message = refused("run", "distribution", "--temprature", "2")
    assert (
        "distribution has no option --temprature; it has --temperature and --condition" in message
    )
    assert "did you mean signal?" in refused("run", "singal", "--top", "3")


@pytest.mark.costly("analyses of three runs")
def test_tables_are_printed_and_json_has_their_values(study: Study) -> None:
    folders = study.hash, study.oracle
    tables = json.loads(choicewise("report", *folders, "multiverse", "--json", code=0).stdout)
    assert [table["table"] for table in tables] == ["spreads", "alike", "duel", "ranks"]
    assert {row["dataset"] for row in tables[0]["rows"]} == {tables[2]["dataset"]}
    printed = choicewise("report", *folders, "multiverse", code=0).stdout
    assert tables[0]["title"] in printed
    assert tables[1]["title"] not in printed  # only programs read it


def test_the_help_lists_every_analysis_and_loads_none() -> None:
    code = (
        "import sys; from choicewise.cli.commands import invoke; invoke(['report', '--help'])\n"
        "print(*sys.modules, file=sys.stderr)"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    shown = "".join(ended.stdout.split())  # a line may end after a hyphen
    for analysis in all_of(Analysis):
        assert analysis.name + "".join(analysis.summary.split()) in shown
    assert "--temperature:softmax" in shown
    assert "[ANALYSIS]" in shown
    assert "choicewise.extensions.analyses.signal" not in ended.stderr.split()
    assert "numpy" not in ended.stderr.split()
