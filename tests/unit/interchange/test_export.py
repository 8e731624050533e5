"""Where exports go, what they replace, and what they refuse."""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

import choicewise
from choicewise.data.dataset import Dataset
from choicewise.errors import StoreError, UsageError
from choicewise.interchange.export import MARK, WRITERS, Writer, writer
from choicewise.results.run import Run
from choicewise.util import files as atomic
from tests.helpers.commands import choicewise as command
from tests.helpers.export_runs import questions, quiz, strict
from tests.helpers.mmlu_data import write_mmlu

FORMATS = ("harness", "every-eval-ever")


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_mmlu(tmp_path_factory.mktemp("own") / "data7")


@pytest.fixture(scope="module")
def run(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Run:
    return evaluated(data, tmp_path_factory.mktemp("runs") / "a")


@pytest.fixture(scope="module")
def other(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Run:
    return evaluated(data, tmp_path_factory.mktemp("runs") / "b", model="fake:oracle")


def evaluated(data: Path | Dataset, out: Path, *protocols: str, model: str = "fake:hash") -> Run:
    return choicewise.evaluate(model=model, data=data, protocols=protocols or ["mmlu/original"], out=out)


def content(folder: Path) -> dict[str, bytes]:
    return {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


@pytest.mark.parametrize("name", list(WRITERS))
def test_every_format_has_a_writer(name: str) -> None:
    assert isinstance(writer(name), Writer)


def test_an_unknown_format_is_refused_with_the_nearest(run: Run, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="did you mean harness"):
        choicewise.export(run, "harnes", tmp_path / "out")


@pytest.mark.parametrize("form", FORMATS)
def test_the_same_run_exported_again_is_the_same(form: str, run: Run, tmp_path: Path) -> None:
    once = choicewise.export(run, form, tmp_path / "out")
    before = content(tmp_path / "out")
    assert {str(file.relative_to(tmp_path / "out")) for file in once.files} == before.keys() - {MARK}
    again = choicewise.export(run.folder, form, str(tmp_path / "out"))
    assert content(tmp_path / "out") == before
    assert once == again
    assert [file.name for file in tmp_path.iterdir()] == ["out"]


@pytest.mark.parametrize("form", FORMATS)
def test_more_runs_replace_an_export_and_fewer_do_not(form: str, run: Run, other: Run, tmp_path: Path) -> None:
    choicewise.export(run, form, tmp_path / "out")
    choicewise.export([run, other], form, tmp_path / "out")
    before = content(tmp_path / "out")
    with pytest.raises(UsageError, match="holds an export of fake:oracle on"):
        choicewise.export(run, form, tmp_path / "out")
    assert content(tmp_path / "out") == before


def test_an_empty_folder_is_taken(run: Run, tmp_path: Path) -> None:
    assert choicewise.export(run, "harness", tmp_path).files


def test_a_link_to_a_folder_stays_a_link(run: Run, tmp_path: Path) -> None:
    (tmp_path / "far").mkdir()
    (tmp_path / "near").symlink_to(tmp_path / "far")
    choicewise.export(run, "harness", tmp_path / "near")
    assert (tmp_path / "near").is_symlink()
    assert (tmp_path / "far" / MARK).is_file()


@pytest.mark.parametrize(
    ("made", "named"),
    [
        ("thesis.tex", "holds thesis.tex, no export"),
        ("deep/down/notes.md", "holds deep/down/notes.md, no export"),
        (MARK, f"holds {MARK}, no export"),
    ],
)
def test_a_folder_of_something_else_is_left_alone(made: str, named: str, run: Run, tmp_path: Path) -> None:
    (tmp_path / made).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / made).write_text("mine")
    with pytest.raises(UsageError, match=named):
        choicewise.export(run, "harness", tmp_path)
    assert content(tmp_path) == {made: b"mine"}


def test_a_file_in_the_way_is_left_alone(run: Run, tmp_path: Path) -> None:
    (tmp_path / "out").write_text("mine")
    with pytest.raises(UsageError, match="is a file"):
        choicewise.export(run, "harness", tmp_path / "out")
    assert (tmp_path / "out").read_text() == "mine"


def test_an_export_with_something_beside_or_changed_in_it_is_left_alone(run: Run, tmp_path: Path) -> None:
    filled = choicewise.export(run, "harness", tmp_path / "out")
    (tmp_path / "out" / "notes.md").write_text("mine")
    with pytest.raises(UsageError, match="holds notes.md beside an export"):
        choicewise.export(run, "harness", tmp_path / "out")
    (tmp_path / "out" / "notes.md").unlink()
    filled.files[0].write_text("better numbers")
    with pytest.raises(UsageError, match="changed since the export"):
        choicewise.export(run, "harness", tmp_path / "out")
    with pytest.raises(UsageError, match="export of the format harness"):
        choicewise.export(run, "every-eval-ever", tmp_path / "out")


def test_a_failure_leaves_the_earlier_export(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    choicewise.export(run, "harness", tmp_path / "out")
    before = content(tmp_path)

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("choicewise.interchange.write.harness.json_text", full)
    with pytest.raises(StoreError, match="the disk is full"):
        choicewise.export(run, "harness", tmp_path / "out")
    assert content(tmp_path) == before
    assert not list(tmp_path.glob(f"*{atomic.PARTIAL}"))


def test_nothing_to_export_is_an_error_with_its_reasons(run: Run, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="on no repository of the Hub that is known"):
        choicewise.export(run, "eval-results", tmp_path / "out")
    assert not (tmp_path / "out").exists()
    with pytest.raises(UsageError, match="name a run folder"):
        choicewise.export([], "harness", tmp_path / "out")


def test_only_the_protocols_that_are_named(run: Run, tmp_path: Path) -> None:
    filled = choicewise.export(run, "harness", tmp_path / "out", protocols=["mmlu/original@ties=split"])
    results = json.loads(filled.files[0].read_text())["results"]
    assert list(results) == [
        "data7@mmlu-original@ties-split",
        *(f"data7@mmlu-original@ties-split_{each}" for each in ("tides", "trees")),
    ]
    assert all("choicewise_acc_sum,none" in each and "acc,none" not in each for each in results.values())


def test_a_run_that_is_not_complete_is_refused_or_marked(data: Path, tmp_path: Path) -> None:
    run = evaluated(data, tmp_path / "run")
    text = (run.folder / "manifest.json").read_text()
    block = run.folder / "blocks" / "00000" / "spans.parquet"
    block.write_bytes(block.read_bytes()[:-1])
    assert text.count('"complete": true') == 1
    with pytest.warns(UserWarning, match="left out"), pytest.raises(UsageError, match="has damaged blocks"):
        choicewise.export(run.folder, "harness", tmp_path / "out")
    with pytest.warns(UserWarning, match="left out"):
        filled = choicewise.export(run.folder, "harness", tmp_path / "out", incomplete=True)
    results = json.loads(filled.files[0].read_text())
    assert all(entry["alias"].endswith(" (incomplete)") for entry in results["results"].values())
    assert not any(config["metadata"]["choicewise"]["complete"] for config in results["configs"].values())


def test_the_command_prints_the_files_and_nothing_else(run: Run, tmp_path: Path) -> None:
    out = tmp_path / "out"
    shown = command("export", run.folder, "--format", "every-eval-ever", "--out", out)
    assert (shown.code, shown.stderr) == (0, "")
    assert sorted(shown.stdout.splitlines()) == sorted(map(str, out.rglob("data/*/*/*/*")))
    told = json.loads(command("export", run.folder, "--format", "every-eval-ever", "--out", out, "--json").stdout)
    assert told["files"] == [
        {"path": str(file), "bytes": file.stat().st_size} for file in sorted(out.rglob("*-*.json*"))
    ]
    assert (told["format"], told["out"], told["notes"]) == ("every-eval-ever", str(out), [])


def test_the_command_says_what_is_missing(tmp_path: Path) -> None:
    items = [*questions(3), *(replace(item, id=f"{item.id}-four") for item in questions(2, choices=4))]
    run = quiz(items, tmp_path / "run", choices=3)
    shown = command("export", run.folder, "--format", "harness", "--out", tmp_path / "out")
    assert shown.stderr.count("2 items are missing and have no line in the samples") == 5
    assert command("export", tmp_path / "no", "--format", "harness", "--out", tmp_path / "x").code == 6
    assert command("export", run.folder, "--format", "no", "--out", tmp_path / "x").code == 2


def test_a_folder_that_is_named_twice_is_exported_once(run: Run, tmp_path: Path) -> None:
    once = choicewise.export(run.folder, "every-eval-ever", tmp_path / "one")
    twice = choicewise.export([run.folder, f"{run.folder}/", run], "every-eval-ever", tmp_path / "two")
    assert [file.name for file in twice.files] == [file.name for file in once.files]


def test_copies_of_a_run_are_told_apart_or_refused(run: Run, tmp_path: Path) -> None:
    copy = shutil.copytree(run.folder, tmp_path / "copy")
    results = strict(choicewise.export([run, copy], "harness", tmp_path / "out").files[0].read_text())["results"]
    assert len(results) == 2 * 3
    with pytest.raises(UsageError, match="same model, data and selection as another run"):
        choicewise.export([run, copy], "every-eval-ever", tmp_path / "records")


def test_an_address_with_a_login_is_refused(run: Run, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="holds a login"):
        choicewise.export(run, "every-eval-ever", tmp_path / "out", url="https://me:secret@example.org/page")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("form", ["harness", "csv"])
def test_nothing_is_put_into_a_run_folder(form: str, run: Run) -> None:
    before = content(run.folder)
    for out in (run.folder, run.folder / "more" / "out"):
        with pytest.raises(UsageError, match="is in the run folder"):
            choicewise.export(run, form, out)
    assert content(run.folder) == before


def test_a_pipe_is_refused_and_not_read(run: Run, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(UsageError, match="a device or a pipe"):
        choicewise.export(run, "latex", tmp_path / "pipe")


def test_a_link_to_a_file_stays_a_link_and_one_to_nothing_is_refused(run: Run, tmp_path: Path) -> None:
    choicewise.export(run, "latex", tmp_path / "real.tex")
    (tmp_path / "link.tex").symlink_to("real.tex")
    choicewise.export(run, "latex", tmp_path / "link.tex")
    assert (tmp_path / "link.tex").is_symlink()
    for name, target in {"nothing": "nowhere", "circle": "circle"}.items():
        (tmp_path / name).symlink_to(target)
        with pytest.raises(UsageError, match="a link to nothing"):
            choicewise.export(run, "latex", tmp_path / name)
        assert (tmp_path / name).is_symlink()
    with pytest.raises(UsageError, match="circle is a file"):
        choicewise.export(run, "harness", tmp_path / "circle")
