"""`choicewise ladder` as a user types it: what a run can show, and the line that asks the rest."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from choicewise import evaluate, open_dataset
from choicewise.errors import ChoicewiseError, ProtocolError, UsageError
from choicewise.protocols.catalogue import resolve
from choicewise.records import BLOCK_FOLDER
from choicewise.results.run import open_run
from choicewise.store.folder import read_manifest, write_manifest
from choicewise.util.text import command_line
from tests.helpers.commands import CommandResult, choicewise
from tests.helpers.mmlu_data import write_mmlu


def refused(*words: str | Path) -> CommandResult:
    told = choicewise(*words)
    assert told.code > 1
    return told


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return write_mmlu(tmp_path / "it's $HOME" / "data")


@pytest.fixture
def folder(data: Path, tmp_path: Path) -> Path:
    """A run of three protocols on the first items of one subject."""
    where = tmp_path / "a run"
    asked = ["--protocol", "mmlu/original", "--protocol", "mmlu/harness-v0", "--subject", "tides", "--limit", "4"]
    choicewise("run", "--model", "fake:hash", "--data", data, "--out", where, *asked, code=0)
    return where


@pytest.mark.costly("whole commands")
def test_the_line_that_is_printed_asks_the_rest_when_it_is_pasted(folder: Path, tmp_path: Path) -> None:
    shown = choicewise("ladder", "mmlu/original", "mmlu/harness-v0", folder)
    assert "header, question, answer, 8 more *" in shown.stdout
    told = re.fullmatch(r"an item that \w+ turns (right|wrong): `(.*) --item tides/test/\d`\n", shown.stderr)
    assert told is not None
    assert told[2] == command_line("explain", folder)
    assert "* not one by one: the run did not ask the protocols between" in shown.stdout
    lead, line = shown.stdout.splitlines()[-2:]
    assert lead == "this asks the protocols between:"
    assert "--subject tides" in line
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "choicewise").write_text(
        f'#!/bin/sh\nexec {sys.executable} -c "from choicewise.cli import main; main()" "$@"\n'
    )
    (tmp_path / "bin" / "choicewise").chmod(0o755)
    places = {**os.environ, "PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}"}
    pasted = subprocess.run(["bash", "-c", line], env=places, capture_output=True, text=True, check=False)
    assert pasted.returncode == 0, pasted.stderr
    again = choicewise("ladder", "mmlu/original", "mmlu/harness-v0", folder, "--json")
    content = json.loads(again.stdout)
    assert content["rest"] is None
    assert all(len(turn["axes"]) == 1 for turn in content["turns"])
    assert [step["n"] for step in content["in_order"]["steps"]] == [4] * 14


def test_a_run_that_was_begun_by_no_line_names_its_parts(data: Path, tmp_path: Path) -> None:
    asked = {"model": "fake:hash", "data": open_dataset(data), "subjects": ["trees"], "limit": 2}
    evaluate(**asked, protocols=["mmlu/original", "mmlu/helm"], out=tmp_path / "run")
    shown = choicewise("ladder", "mmlu/original", "mmlu/helm", tmp_path / "run")
    line = "choicewise run --model fake:hash --data data --protocol mmlu/original..mmlu/helm --subject trees --limit 2"
    assert line in shown.stdout
    assert "note: the run does not say where model and data lie" in shown.stderr


@pytest.mark.costly("whole commands")
def test_all_at_once_is_the_same_as_the_line(data: Path, folder: Path, tmp_path: Path) -> None:
    asked = ["--model", "fake:hash", "--data", data, "--subject", "tides", "--limit", "4", "--out", tmp_path / "all"]
    ends = "mmlu/original", "mmlu/harness-v0"
    shown = choicewise("ladder", *ends, *asked)
    assert shown.code == 0
    assert "this asks" not in shown.stdout
    assert f"`{command_line('ladder', *ends, tmp_path / 'all')}` shows this again" in shown.stderr
    assert choicewise("ladder", *ends, tmp_path / "all").stdout == shown.stdout
    assert choicewise("ladder", *ends, *asked).stdout == shown.stdout
    choicewise("run", *asked[:-1], folder, "--protocol", "..".join(ends))
    assert choicewise("ladder", *ends, folder).stdout == shown.stdout
    assert set(resolve("..".join(ends))) == set(open_run(tmp_path / "all").protocols)


def test_a_protocol_that_only_rescores_needs_no_line(folder: Path) -> None:
    shown = choicewise("ladder", "mmlu/harness-v0:sum", "mmlu/harness-v0:token_mean", folder)
    assert "this asks" not in shown.stdout
    assert shown.code == 0


@pytest.mark.costly("whole commands")
def test_protocols_of_files_and_of_the_run_alone_are_named_by_signature(data: Path, tmp_path: Path) -> None:
    mine = tmp_path / "mine.toml"
    mine.write_text('name = "mine/bare"\nbase = "mmlu/original"\n[protocol]\nheader = ""\nshots = 0\n')
    asked = ["--model", "fake:hash", "--data", data, "--out", tmp_path / "run"]
    choicewise("run", *asked, "--protocol", mine, "--protocol", "mmlu/original")
    by_file = choicewise("ladder", mine, "mmlu/original", tmp_path / "run").stdout.splitlines()
    assert f"--protocol {mine}..mmlu/original " in by_file[-1]
    by_name = choicewise("ladder", "mine/bare", "mmlu/original", tmp_path / "run").stdout.splitlines()
    assert by_name[:-1] == by_file[:-1]
    assert "--protocol 'benchmark:mmlu|split:test|" in by_name[-1]
    choicewise("ladder", mine, "mmlu/original", *asked, code=0)
    assert "not one by one" not in choicewise("ladder", "mine/bare", "mmlu/original", tmp_path / "run").stdout


@pytest.mark.parametrize(
    ("words", "kind", "message"),
    [
        (("mmlu/original", "mmlu/original"), UsageError, "mmlu/original and mmlu/original are the same protocol"),
        (("mmlu/harness-v0", "mmlu/harness-v0:acc_norm"), UsageError, "are the same protocol; name two that differ"),
        (("mmlu/original", "mmlu"), ProtocolError, "mmlu stands for several protocols; name one"),
        (("mmlu/original", "mmlu/hlem"), ProtocolError, "did you mean mmlu/helm"),
        (
            ("mmlu/original", "mmlu/helm"),
            UsageError,
            "was not asked what mmlu/helm asks; `choicewise run --model fake:",
        ),
    ],
)
def test_what_no_ladder_leads_between_is_refused(
    folder: Path, words: tuple[str, str], kind: type[ChoicewiseError], message: str
) -> None:
    told = refused("ladder", *words, folder)
    assert told.code == kind.exit_code
    assert message in told.stderr


def test_ways_are_protocols_for_other_commands(data: Path, folder: Path) -> None:
    way = "mmlu/original..mmlu/harness-v0"
    lines = choicewise("prompts", "--data", data, "--protocol", way, "--limit", "1").stdout.splitlines()
    assert {f"{way}:header", "mmlu/harness-v0..mmlu/original:sampler"} <= {
        json.loads(line)["protocol"] for line in lines
    }
    planned = choicewise("run", "--dry-run", "--model", "fake:hash", "--data", data, "--protocol", way)
    assert "requests" in planned.stdout
    assert "axis" not in choicewise("protocols", "show", f"{way}:header").stderr
    assert "not asked what" in refused("report", "--protocol", f"{way}:header", folder).stderr


def test_a_folder_and_a_model_are_two_ways_of_asking(folder: Path, data: Path) -> None:
    ends = "mmlu/original", "mmlu/helm"
    assert "--model and --data and --out missing" in refused("ladder", *ends).stderr
    assert "--out missing" in refused("ladder", *ends, "--model", "fake:hash", "--data", data).stderr
    more = ["--model", "fake:hash", "--limit", "3", "--on-bad-item", "skip"]
    assert "no use for --model and --limit and --on-bad-item" in refused("ladder", *ends, folder, *more).stderr
    more = ["--model", "fake:hash", "--data", data, "--out", folder, "--dtype", "float32"]
    assert "fake:hash has no use for --dtype" in refused("ladder", *ends, *more).stderr


def test_a_run_without_observations_says_what_it_lacks(folder: Path, tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    (empty / BLOCK_FOLDER).mkdir(parents=True)
    (empty / "items.parquet").write_bytes((folder / "items.parquet").read_bytes())
    write_manifest(empty, replace(read_manifest(folder), blocks=(), complete=False))
    told = refused("ladder", "mmlu/original", "mmlu/harness-v0", empty)
    assert "was not asked what mmlu/original and mmlu/harness-v0:char_mean_bare ask" in told.stderr


def test_items_that_only_one_side_scores_are_counted(tmp_path: Path) -> None:
    rows = [{"question": f"Which {n}?", "choices": list("pqrs"[: 3 + (n > 0)]), "answer": "A"} for n in range(5)]
    (tmp_path / "quiz.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    for name, choices in (("four", "4"), ("any", '"any"')):
        text = f'base = "mmlu/original"\n[protocol]\nsplit = "-"\nshots = 0\nchoices = {choices}\n'
        (tmp_path / f"{name}.toml").write_text(text)
    asked = ["--model", "fake:hash", "--data", tmp_path / "quiz.jsonl", "--on-bad-item", "skip"]
    ends = tmp_path / "four.toml", tmp_path / "any.toml"
    shown = choicewise("ladder", *ends, *asked, "--out", tmp_path / "run", "--json")
    (step,) = json.loads(shown.stdout)["in_order"]["steps"]
    assert (step["n"], step["missing"], step["gained"], step["lost"]) == (4, 1, 0, 0)
    assert step["se"] is not None
    again = choicewise("ladder", *ends, tmp_path / "run").stdout
    assert "% of 4 items to any" in again
    assert "% of 5 items" in again


def test_effects_are_a_report_of_their_own(folder: Path) -> None:
    shown = choicewise("report", "--effects", folder)
    assert "a run, " not in shown.stdout
    assert "fake:hash on data: what one axis changes, in points, of 4 items" in shown.stdout
    (content,) = json.loads(choicewise("report", "--effects", "--json", folder).stdout)
    assert {effect["axis"] for effect in content["effects"]} >= {"score", "null"}
    assert content["effects"][0]["absolute"] == max(effect["absolute"] for effect in content["effects"])
    assert "--multiverse and --effects" in refused("report", "--effects", "--multiverse", folder).stderr
    alone = refused("report", "--effects", "--protocol", "mmlu/original", folder).stderr
    assert "no two protocols of the run of fake:hash differ in one axis alone" in alone


def test_one_item_is_one(tmp_path: Path) -> None:
    data = write_mmlu(tmp_path / "data", ("tides",), 1)
    evaluate(model="fake:hash", data=data, protocols=["mmlu/cloze"], out=tmp_path / "run")
    ends = ("mmlu/cloze:sum", "mmlu/cloze:token_mean")
    told = choicewise("ladder", *ends, str(tmp_path / "run")).stdout
    assert re.search(r"% of 1 item to mmlu/cloze:token_mean \d+\.\d % of 1 item,", told)
    told = choicewise("compare", str(tmp_path / "run"), "--protocol", ends[0], "--protocol", ends[1])
    assert "points over 1 item" in told.stdout
    assert "1 items" not in told.stdout
