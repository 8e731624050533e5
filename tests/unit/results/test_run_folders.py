"""A folder that holds runs stands for them, wherever a command takes run folders."""

import shutil
from pathlib import Path

import pytest

import choicewise
from choicewise.cli.commands import invoke
from choicewise.errors import StoreError, UsageError
from choicewise.page.study import read_study
from choicewise.results.run import open_run
from choicewise.results.sweep import one_run, run_folders


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with two runs, a page and a folder of something else."""
    folder = tmp_path_factory.mktemp("made") / "runs"
    for name, model in (("second", "fake:oracle"), ("first", "fake:hash")):
        choicewise.evaluate(
            model=model,
            data="bundled:merrowick",
            protocols=["mmlu/cloze", "mmlu/harness-v0", "mmlu/letter-text"],
            out=folder / name,
            limit=2,
        )
    (folder / "notes").mkdir()
    (folder / "page.html").write_text("<p>a page</p>", encoding="utf-8")
    return folder


def test_it_stands_for_the_runs_directly_in_it(made: Path) -> None:
    assert run_folders([made]) == [made / "first", made / "second"]
    assert run_folders([made / "second", made]) == [made / "second", made / "first"]
    assert run_folders([made / "first"]) == [made / "first"]
    assert one_run(made / "first") == made / "first"
    with pytest.raises(UsageError, match="holds 2 runs"):
        one_run(made)


def test_a_folder_without_runs_is_still_none(made: Path) -> None:
    for folder in (made.parent, made / "notes", made / "page.html", made / "nothing"):
        assert run_folders([folder]) == [folder]
        with pytest.raises(StoreError, match="is not a run folder"):
            open_run(run_folders([folder])[0])


@pytest.mark.costly("runs are evaluated and compared")
def test_every_command_takes_it(
    made: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert invoke(["report", str(made)]) == 0
    printed = capsys.readouterr().out
    assert all(name in printed for name in ("fake:hash", "fake:oracle"))
    assert invoke(["report", "--multiverse", str(made)]) == 0
    assert invoke(["export", str(made), "--format", "markdown", "--out", "table.md"]) == 0
    assert len(read_study([made]).runs) == 2
    table = Path("table.md").read_text(encoding="utf-8")
    assert all(name in table for name in ("fake:hash", "fake:oracle"))


@pytest.mark.costly("runs are evaluated and compared")
def test_a_folder_of_one_run_is_that_run(made: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.copytree(made / "first", tmp_path / "alone" / "first")
    assert invoke(["compare", str(tmp_path / "alone"), str(made / "second")]) == 0
    assert "second" in capsys.readouterr().out


def test_a_ladder_is_named_for_one_run_only(made: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert invoke(["report", str(made)]) == 0
    assert "choicewise ladder" not in capsys.readouterr().err
    assert invoke(["report", str(made / "first")]) == 0
    (line,) = [line for line in capsys.readouterr().err.splitlines() if "choicewise ladder" in line]
    assert invoke(line.split("`")[1].split()[1:]) == 0
