"""Readers and writers of other packages, beside those that come with Choicewise."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest

import choicewise
from choicewise import ports
from choicewise.errors import DataError, UsageError
from choicewise.extensions.interop.logs.files import readers, recognise
from choicewise.extensions.interop.logs.verdicts import HARNESS, acc
from choicewise.logs import Log, LoggedChoice, LoggedItem, Verdict
from choicewise.ports import Export, Extension, LogReader, Port, Writer
from choicewise.store.folder import read_manifest
from tests.helpers.export_runs import questions, quiz
from tests.helpers.messages import Gist


def right_if_first(log: Log, item: LoggedItem) -> float:
    return float(0 in item.gold)


class Diary(LogReader):
    """Lines of an item, its right choice, whether it was answered right, and log-likelihoods."""

    name = "diary"
    summary = "a diary (*.csv that begins with a heart)"

    def recognises(self, path: Path) -> bool:
        return path.read_text("utf-8").startswith("\u2665")

    def read(self, paths: Sequence[Path], results: Path | None) -> Iterator[Log]:
        for path in paths:
            items = []
            for line in path.read_text("utf-8").splitlines()[1:]:
                name, right, credit, *numbers = line.split(",")
                choices = tuple(LoggedChoice(loglikelihood=float(number)) for number in numbers)
                recorded = {"hits": float(credit)}
                items.append(
                    LoggedItem(id=name, gold=(int(right),), choices=choices, recorded=recorded)
                )
            yield Log(tool="diary", model="someone", task=path.stem, items=items)

    def verdicts(self) -> Mapping[str, Verdict]:
        return {"hits": acc}


class Values(Writer):
    name = "values"
    summary = "a line for each number"
    output = "file"
    tables = ("all", "first")
    has_source = True

    def write(self, export: Export, out: Path) -> Sequence[str]:
        lines = [
            f"{row.identity.protocol} {row.value}" for run in export.runs for row in run.rows()
        ]
        shown = lines[:1] if export.table == "first" else lines
        out.write_text("\n".join(["values", *shown]), "utf-8")
        for file in export.beside:
            file.write_text(f"values of {export.organization}", "utf-8")
        return ["intervals: no place"]

    def replaces(self, file: Path) -> bool:
        return file.read_text("utf-8").startswith("values")

    def endings(self, table: str) -> Sequence[str]:
        return [".authors"]


@pytest.fixture(autouse=True)
def stranger(monkeypatch: pytest.MonkeyPatch) -> None:
    additions: list[Port] = [Diary(), Values()]
    monkeypatch.setattr(ports, "other_extensions", lambda: (Extension("stranger", additions),))


def diary(folder: Path, credit: float) -> Path:
    path = folder / "week.csv"
    path.write_text(
        f"\u2665item,choice,loglikelihood,gold\nmonday,1,{credit},-2,-1\ntuesday,0,1,-1,-2\n",
        "utf-8",
    )
    return path


def test_a_reader_of_another_package_is_tried_before_tables(tmp_path: Path) -> None:
    assert [reader.name for reader in readers()][-2:] == ["diary", "table"]
    path = diary(tmp_path, 1.0)
    assert recognise(path).name == "diary"
    (run,) = choicewise.import_log(path, tmp_path / "run")
    assert {row.identity.protocol: row.value for row in run.rows()}["week:sum"] == 1.0
    assert run.manifest.imported is not None
    assert run.manifest.imported.tool == "diary"
    (same,) = choicewise.import_log(path, tmp_path / "named", format="diary")
    assert read_manifest(same.folder).dataset == run.manifest.dataset


def test_its_verdicts_are_held_against_the_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (run,) = choicewise.import_log(diary(tmp_path, 0.0), tmp_path / "run")
    assert run.manifest.imported is not None
    (note,) = run.manifest.imported.unused
    assert note == Gist("hits of 1 of 2 items ... monday")
    monkeypatch.setattr(Diary, "verdicts", lambda reader: {"hits": right_if_first})
    (run,) = choicewise.import_log(diary(tmp_path, 0.0), tmp_path / "first")
    assert run.manifest.imported is not None
    assert run.manifest.imported.unused == ()


def test_a_reader_without_verdicts_has_those_of_the_harness(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Diary, "verdicts", lambda reader: {})
    (run,) = choicewise.import_log(diary(tmp_path, 0.0), tmp_path / "run")
    assert run.manifest.imported is not None
    assert "hits" not in HARNESS
    assert run.manifest.imported.unused == (Gist("values hits, "),)


def test_a_file_of_two_tools_is_of_the_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Other(Diary):
        name = "other"

    both = Extension("stranger", [Diary(), Other()])
    monkeypatch.setattr(ports, "other_extensions", lambda: (both,))
    assert recognise(diary(tmp_path, 1.0)).name == "diary"


def test_a_file_that_no_reader_recognises_names_all(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("?", "utf-8")
    with pytest.raises(
        DataError,
        match=r"not a log .*\(harness: .*; diary: .*; table: ",
    ):
        recognise(tmp_path / "notes.txt")


def test_a_writer_of_another_package_writes_its_files_and_replaces_its_own(tmp_path: Path) -> None:
    run = quiz(questions(3), tmp_path / "run")
    out = tmp_path / "out.txt"
    filled = choicewise.export(run, "values", out, organization="we")
    assert filled.files == (out, tmp_path / "out.authors.txt")
    assert filled.notes == ("intervals: no place",)
    assert filled.files[1].read_text("utf-8") == "values of we"
    everything = out.read_text("utf-8").splitlines()
    choicewise.export(run, "values", out, table="first")
    assert out.read_text("utf-8").splitlines() == everything[:2]
    out.write_text("mine", "utf-8")
    with pytest.raises(UsageError, match="earlier values export"):
        choicewise.export(run, "values", out)
    with pytest.raises(UsageError, match="did you mean values"):
        choicewise.export(run, "value", out)
    with pytest.raises(UsageError, match="no table 'last'"):
        choicewise.export(run, "values", out, table="last")
