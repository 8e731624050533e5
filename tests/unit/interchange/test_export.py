"""Where exports go, what they replace, and what they refuse."""

import json
import os
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

import choicewise
from choicewise.errors import StoreError, UsageError
from choicewise.interchange.export import MARK, WRITERS, Writer, writer
from choicewise.interchange.write.inspect import letter
from choicewise.interchange.write.trackers import server_of
from choicewise.results.run import Run
from choicewise.store.folder import read_manifest
from choicewise.util import files as atomic
from tests.helpers.commands import choicewise as command
from tests.helpers.export_runs import questions, quiz, strict
from tests.helpers.study import Study

FORMATS = ("harness", "every-eval-ever")


@pytest.fixture(scope="module")
def runs(study: Study, tmp_path_factory: pytest.TempPathFactory) -> list[Run]:
    """Of two models under few protocols; nobody changes them."""
    out, line = tmp_path_factory.mktemp("runs"), {"data": study.data, "protocols": ["mmlu/original"]}
    return [choicewise.evaluate(model=f"fake:{name}", out=out / name, **line) for name in ("hash", "oracle")]


@pytest.fixture
def run(runs: list[Run]) -> Run:
    return runs[0]


def content(folder: Path) -> dict[str, bytes]:
    return {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


def test_every_format_has_a_writer_and_an_unknown_one_is_refused_with_the_nearest(run: Run, tmp_path: Path) -> None:
    assert all(isinstance(writer(name), Writer) and writer(name).about for name in WRITERS)
    with pytest.raises(UsageError, match="did you mean harness"):
        choicewise.export(run, "harnes", tmp_path / "out")


@pytest.mark.parametrize("form", ["inspect", "wandb", "mlflow"])
def test_a_library_that_is_absent_is_named_with_its_extra(
    form: str, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("choicewise.interchange.export.find_spec", lambda name: None)
    with pytest.raises(UsageError, match=rf"pip install --constraint constraints\.txt '\.\[{form}\]'"):
        choicewise.export(run, form, tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("out", ["https://me:pass@host/x", "https://token@host", "http://host/?token=pass"])
def test_a_login_in_an_address_is_refused_and_not_repeated(out: str) -> None:
    with pytest.raises(UsageError, match="no login") as refused:
        server_of(Path(out))
    assert "pass" not in str(refused.value).lower().replace("password", "")


def test_addresses_are_servers_of_mlflow_and_choices_have_the_letters_of_inspect() -> None:
    servers = ("http://host:5000", "https://host/mlflow", "runs", "/tmp/http:/x")
    assert [server_of(Path(out)) for out in servers] == [*servers[:2], None, None]
    assert [letter(place) for place in (0, 25, 26, 27)] == ["A", "Z", "1", "2"]


@pytest.mark.parametrize("form", FORMATS)
def test_the_same_or_more_runs_replace_an_export_and_fewer_do_not(form: str, runs: list[Run], tmp_path: Path) -> None:
    once, out = choicewise.export(runs[0], form, tmp_path / "out"), tmp_path / "out"
    before = content(out)
    assert {str(file.relative_to(out)) for file in once.files} == before.keys() - {MARK}
    assert choicewise.export(runs[0].folder, form, str(out)) == once
    assert content(out) == before
    assert [file.name for file in tmp_path.iterdir()] == ["out"]
    choicewise.export(runs, form, out)
    before = content(out)
    with pytest.raises(UsageError, match="holds an export of fake:oracle on"):
        choicewise.export(runs[0], form, out)
    assert content(out) == before


def test_an_empty_folder_is_taken_and_a_link_to_one_stays_a_link(run: Run, tmp_path: Path) -> None:
    (tmp_path / "far").mkdir()
    (tmp_path / "near").symlink_to(tmp_path / "far")
    choicewise.export(run, "harness", tmp_path / "near")
    assert (tmp_path / "near").is_symlink()
    assert (tmp_path / "far" / MARK).is_file()


@pytest.mark.parametrize("name", ["thesis.tex", "deep/down/notes.md", MARK])
def test_files_of_somebody_else_are_left_alone(name: str, run: Run, tmp_path: Path) -> None:
    (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / name).write_text("mine")
    for out, says in ((tmp_path, f"holds {name}, no export"), (tmp_path / name, "is a file")):
        with pytest.raises(UsageError, match=says):
            choicewise.export(run, "harness", out)
    assert content(tmp_path) == {name: b"mine"}


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


def test_nothing_to_export_a_login_and_a_pipe_are_refused(run: Run, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="on no repository of the Hub that is known"):
        choicewise.export(run, "eval-results", tmp_path / "out")
    with pytest.raises(UsageError, match="name a run folder"):
        choicewise.export([], "harness", tmp_path / "out")
    with pytest.raises(UsageError, match="holds a login"):
        choicewise.export(run, "every-eval-ever", tmp_path / "out", url="https://me:secret@example.org/page")
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(UsageError, match="a device or a pipe"):
        choicewise.export(run, "latex", tmp_path / "pipe")
    assert not (tmp_path / "out").exists()


def test_only_the_protocols_that_are_named(run: Run, tmp_path: Path) -> None:
    filled = choicewise.export(run, "harness", tmp_path / "out", protocols=["mmlu/original@ties=split"])
    results = json.loads(filled.files[0].read_text())["results"]
    task = "data-@mmlu-original@ties-split"
    assert list(results) == [task, f"{task}_tides", f"{task}_trees"]
    assert all("choicewise_acc_sum,none" in each and "acc,none" not in each for each in results.values())


def test_a_run_that_is_not_complete_is_refused_or_marked(run: Run, tmp_path: Path) -> None:
    folder = shutil.copytree(run.folder, tmp_path / "run")
    block = folder / "blocks" / "00000" / "spans.parquet"
    block.write_bytes(block.read_bytes()[:-1])
    assert read_manifest(folder).complete
    with pytest.warns(UserWarning, match="left out"), pytest.raises(UsageError, match="has damaged blocks"):
        choicewise.export(folder, "harness", tmp_path / "out")
    with pytest.warns(UserWarning, match="left out"):
        filled = choicewise.export(folder, "harness", tmp_path / "out", incomplete=True)
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


def test_copies_of_a_run_are_told_apart_or_refused_and_one_folder_counts_once(run: Run, tmp_path: Path) -> None:
    copy = shutil.copytree(run.folder, tmp_path / "copy")
    filled = choicewise.export([run, copy], "harness", tmp_path / "out")
    assert len(strict(filled.files[0].read_text())["results"]) == 2 * 3
    with pytest.raises(UsageError, match="same model, data and selection as another run"):
        choicewise.export([run, copy], "every-eval-ever", tmp_path / "records")
    named = ([run.folder], [run.folder, f"{run.folder}/", run])
    once, twice = (choicewise.export(each, "every-eval-ever", tmp_path / str(len(each))) for each in named)
    assert [file.name for file in twice.files] == [file.name for file in once.files]


@pytest.mark.parametrize("form", ["harness", "csv"])
def test_nothing_is_put_into_a_run_folder(form: str, run: Run) -> None:
    before = content(run.folder)
    for out in (run.folder, run.folder / "more" / "out"):
        with pytest.raises(UsageError, match="is in the run folder"):
            choicewise.export(run, form, out)
    assert content(run.folder) == before


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
