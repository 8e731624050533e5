"""Exports: one writer a format, and the tables of scores and rows."""

import csv
import json
import os
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

import choicewise
from choicewise import Run, export
from choicewise.data.dataset import Dataset
from choicewise.data.items import Item
from choicewise.errors import StoreError, UsageError
from choicewise.extensions.interop.export import MARK
from choicewise.extensions.interop.write.inspect import letter
from choicewise.extensions.interop.write.tables import SCORE_SCHEMA as SCHEMA
from choicewise.extensions.interop.write.tables import row_schema, row_table
from choicewise.extensions.interop.write.trackers import server_of
from choicewise.models.fake import HashModel
from choicewise.page.study import make_study
from choicewise.ports import Writer, all_of
from choicewise.results.summary import summarize
from choicewise.results.sweep import Average, PartValue, ScoredPart, Stratum
from choicewise.store.folder import read_manifest, write_manifest
from choicewise.table import table_csv
from choicewise.util import files as atomic
from tests.helpers.commands import choicewise as command
from tests.helpers.export_runs import questions, quiz, strict
from tests.helpers.mmlu_data import write_mmlu
from tests.helpers.rows import altered
from tests.helpers.study import Study
from tests.helpers.suite_data import TRIO, known_suites, write_benchmarks

FORMATS = ("harness", "every-eval-ever")


@pytest.fixture(scope="module")
def runs(study: Study, tmp_path_factory: pytest.TempPathFactory) -> list[Run]:
    """Of two models under few protocols; nobody changes them."""
    out, line = (
        tmp_path_factory.mktemp("runs"),
        {"data": study.data, "protocols": ["mmlu/original"]},
    )
    return [
        choicewise.evaluate(model=f"fake:{name}", out=out / name, **line)
        for name in ("hash", "oracle")
    ]


@pytest.fixture
def run(runs: list[Run]) -> Run:
    return runs[0]


def content(folder: Path) -> dict[str, bytes]:
    return {
        str(file.relative_to(folder)): file.read_bytes()
        for file in folder.rglob("*")
        if file.is_file()
    }


def test_every_format_has_a_writer_and_an_unknown_one_is_refused_with_the_nearest(
    run: Run, tmp_path: Path
) -> None:
    assert all(writer.summary for writer in all_of(Writer))
    with pytest.raises(UsageError, match="did you mean harness"):
        choicewise.export(run, "harnes", tmp_path / "out")


@pytest.mark.parametrize("form", ["inspect", "wandb", "mlflow"])
def test_an_absent_library_is_named(
    form: str, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("choicewise.extensions.interop.export.find_spec", lambda name: None)
    with pytest.raises(
        UsageError, match=rf"pip install --constraint constraints\.txt '\.\[{form}\]'"
    ):
        choicewise.export(run, form, tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    "out", ["https://me:pass@host/x", "https://token@host", "http://host/?token=pass"]
)
def test_a_login_in_an_address_is_refused_and_not_repeated(out: str) -> None:
    with pytest.raises(UsageError, match="holds a login") as refused:
        server_of(Path(out))
    assert "pass" not in str(refused.value).lower().replace("password", "")


def test_addresses_are_servers_of_mlflow_and_choices_have_the_letters_of_inspect() -> None:
    servers = ("http://host:5000", "https://host/mlflow", "runs", "/tmp/http:/x")
    assert [server_of(Path(out)) for out in servers] == [*servers[:2], None, None]
    assert [letter(place) for place in (0, 25, 26, 27)] == ["A", "Z", "1", "2"]


@pytest.mark.parametrize("form", FORMATS)
def test_the_same_or_more_runs_replace_an_export_and_fewer_do_not(
    form: str, runs: list[Run], tmp_path: Path
) -> None:
    once, out = choicewise.export(runs[0], form, tmp_path / "out"), tmp_path / "out"
    before = content(out)
    assert {str(file.relative_to(out)) for file in once.files} == before.keys() - {MARK}
    assert (choicewise.export(runs[0].folder, form, str(out)), content(out)) == (once, before)
    assert [file.name for file in tmp_path.iterdir()] == ["out"]
    choicewise.export(runs, form, out)
    before = content(out)
    with pytest.raises(UsageError, match="an export of fake:oracle"):
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
    for out, says in ((tmp_path, f"holds {name}, not an export"), (tmp_path / name, "is a file")):
        with pytest.raises(UsageError, match=says):
            choicewise.export(run, "harness", out)
    assert content(tmp_path) == {name: b"mine"}


def test_an_export_with_something_beside_or_changed_in_it_is_left_alone(
    run: Run, tmp_path: Path
) -> None:
    filled = choicewise.export(run, "harness", tmp_path / "out")
    (tmp_path / "out" / "notes.md").write_text("mine")
    with pytest.raises(UsageError, match="holds notes.md next"):
        choicewise.export(run, "harness", tmp_path / "out")
    (tmp_path / "out" / "notes.md").unlink()
    filled.files[0].write_text("better numbers")
    with pytest.raises(UsageError, match="changed since the export"):
        choicewise.export(run, "harness", tmp_path / "out")
    with pytest.raises(UsageError, match="of the format harness"):
        choicewise.export(run, "every-eval-ever", tmp_path / "out")


def test_a_failure_leaves_the_earlier_export(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    choicewise.export(run, "harness", tmp_path / "out")
    before = content(tmp_path)

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("choicewise.extensions.interop.write.harness.json_text", full)
    with pytest.raises(StoreError, match="the disk is full"):
        choicewise.export(run, "harness", tmp_path / "out")
    assert content(tmp_path) == before
    assert not list(tmp_path.glob(f"*{atomic.PARTIAL}"))


def test_nothing_to_export_a_login_and_a_pipe_are_refused(run: Run, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="repository of the Hub"):
        choicewise.export(run, "eval-results", tmp_path / "out")
    with pytest.raises(UsageError, match="name a run folder"):
        choicewise.export([], "harness", tmp_path / "out")
    with pytest.raises(UsageError, match="holds a login"):
        choicewise.export(
            run, "every-eval-ever", tmp_path / "out", url="https://me:secret@example.org/page"
        )
    with pytest.raises(UsageError, match="csv .* organization"):
        choicewise.export(run, "csv", tmp_path / "out", url="https://example.org/page")
    with pytest.raises(UsageError, match="harness .* organization"):
        choicewise.export(run, "harness", tmp_path / "out", organization="Isle Lab")
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(UsageError, match="device or a pipe"):
        choicewise.export(run, "latex", tmp_path / "pipe")
    assert not (tmp_path / "out").exists()


def test_only_the_protocols_that_are_named(run: Run, tmp_path: Path) -> None:
    filled = choicewise.export(
        run, "harness", tmp_path / "out", protocols=["mmlu/original@ties=split"]
    )
    results = json.loads(filled.files[0].read_text())["results"]
    task = "data-@mmlu-original@ties-split"
    assert list(results) == [task, f"{task}_tides", f"{task}_trees"]
    assert all(
        "choicewise_acc_sum,none" in each and "acc,none" not in each for each in results.values()
    )


def test_a_run_that_is_not_complete_is_refused_or_marked(run: Run, tmp_path: Path) -> None:
    folder = shutil.copytree(run.folder, tmp_path / "run")
    block = folder / "blocks" / "00000" / "spans.parquet"
    block.write_bytes(block.read_bytes()[:-1])
    assert read_manifest(folder).complete
    with (
        pytest.warns(UserWarning, match="left out"),
        pytest.raises(UsageError, match="has damaged blocks"),
    ):
        choicewise.export(folder, "harness", tmp_path / "out")
    with pytest.warns(UserWarning, match="left out"):
        filled = choicewise.export(folder, "harness", tmp_path / "out", incomplete=True)
    results = json.loads(filled.files[0].read_text())
    assert all(entry["alias"].endswith(" (incomplete)") for entry in results["results"].values())
    assert not any(
        config["metadata"]["choicewise"]["complete"] for config in results["configs"].values()
    )


def test_the_command_prints_the_files_and_nothing_else(run: Run, tmp_path: Path) -> None:
    out = tmp_path / "out"
    shown = command("export", run.folder, "--format", "every-eval-ever", "--out", out)
    assert (shown.code, shown.stderr) == (0, "")
    assert sorted(shown.stdout.splitlines()) == sorted(map(str, out.rglob("data/*/*/*/*")))
    told = json.loads(
        command("export", run.folder, "--format", "every-eval-ever", "--out", out, "--json").stdout
    )
    assert told["files"] == [
        {"path": str(file), "bytes": file.stat().st_size} for file in sorted(out.rglob("*-*.json*"))
    ]
    assert (told["format"], told["out"], told["notes"]) == ("every-eval-ever", str(out), [])


def test_the_command_says_what_is_missing(tmp_path: Path) -> None:
    items = [
        *questions(3),
        *(replace(item, id=f"{item.id}-four") for item in questions(2, choices=4)),
    ]
    run = quiz(items, tmp_path / "run", choices=3)
    shown = command("export", run.folder, "--format", "harness", "--out", tmp_path / "out")
    assert shown.stderr.count("2 items have no answer") == 5
    assert (
        command("export", tmp_path / "no", "--format", "harness", "--out", tmp_path / "x").code == 6
    )
    assert command("export", run.folder, "--format", "no", "--out", tmp_path / "x").code == 2


def test_copies_of_a_run_are_told_apart_or_refused_and_one_folder_counts_once(
    run: Run, tmp_path: Path
) -> None:
    copy = shutil.copytree(run.folder, tmp_path / "copy")
    filled = choicewise.export([run, copy], "harness", tmp_path / "out")
    assert len(strict(filled.files[0].read_text())["results"]) == 2 * 3
    with pytest.raises(UsageError, match="selection as another run"):
        choicewise.export([run, copy], "every-eval-ever", tmp_path / "records")
    named = ([run.folder], [run.folder, f"{run.folder}/", run])
    once, twice = (
        choicewise.export(each, "every-eval-ever", tmp_path / str(len(each))) for each in named
    )
    assert [file.name for file in twice.files] == [file.name for file in once.files]


@pytest.mark.parametrize("form", ["harness", "csv"])
def test_nothing_is_put_into_a_run_folder(form: str, run: Run) -> None:
    before = content(run.folder)
    for out in (run.folder, run.folder / "more" / "out"):
        with pytest.raises(UsageError, match="in the run folder"):
            choicewise.export(run, form, out)
    assert content(run.folder) == before


def test_a_link_to_a_file_stays_a_link_and_one_to_nothing_is_refused(
    run: Run, tmp_path: Path
) -> None:
    choicewise.export(run, "latex", tmp_path / "real.tex")
    (tmp_path / "link.tex").symlink_to("real.tex")
    choicewise.export(run, "latex", tmp_path / "link.tex")
    assert (tmp_path / "link.tex").is_symlink()
    for name, target in {"nothing": "nowhere", "circle": "circle"}.items():
        (tmp_path / name).symlink_to(target)
        with pytest.raises(UsageError, match="broken link"):
            choicewise.export(run, "latex", tmp_path / name)
        assert (tmp_path / name).is_symlink()
    with pytest.raises(UsageError, match="circle is a file"):
        choicewise.export(run, "harness", tmp_path / "circle")


PROTOCOLS = ["mmlu/original", "mmlu/cloze", "mmlu/helm"]


@pytest.fixture(scope="module")
def hostile_run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    place = tmp_path_factory.mktemp("rows")
    data = write_mmlu(place / "tides", questions=3)
    return choicewise.evaluate(model="fake:hash", data=data, protocols=PROTOCOLS, out=place / "run")


def cells(path: Path) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_rows_read_back_with_every_number_of_the_report(hostile_run: Run, tmp_path: Path) -> None:
    export(hostile_run.folder, "parquet", tmp_path / "rows.parquet")
    told = command(
        "export", hostile_run.folder, "--format", "csv", "--out", tmp_path / "rows.csv", code=0
    )
    assert told.stdout.strip() == str(tmp_path / "rows.csv")
    table = pq.read_table(tmp_path / "rows.parquet")
    assert table.schema.equals(row_schema())
    rows = [row.as_json() for row in hostile_run.rows()]
    for mine, row, text in zip(table.to_pylist(), rows, cells(tmp_path / "rows.csv"), strict=True):
        for name, value in row.items():
            plain = json.dumps(value) if isinstance(value, list | dict) else value
            if name != "rank":
                assert mine[name] == plain, name
            assert text[name] == ("" if mine[name] is None else str(mine[name])), name
        assert float(text["value"]) == row["value"]
    assert {name for row in rows for name in row} <= set(table.column_names)
    assert table.schema.field("value").type == pa.float64()


def test_a_text_that_a_spreadsheet_would_compute_is_a_text(
    hostile_run: Run, tmp_path: Path
) -> None:
    summary = summarize(hostile_run.folder)
    for start in "=+-@":
        model = replace(summary.manifest.model, name=f'{start}cmd|" /C calc"!A0')
        table = row_table(
            make_study([replace(summary, manifest=replace(summary.manifest, model=model))])
        )
        assert table["model"][0].as_py() == model.name
        text = table_csv(table.column_names, table.to_pylist())
        (tmp_path / "rows.csv").write_text(text, encoding="utf-8", newline="")
        assert {row["model"] for row in cells(tmp_path / "rows.csv")} == {f"'{model.name}"}


def test_perplexities_and_averages_are_told_by_their_metric(hostile_run: Run) -> None:
    summary = summarize(hostile_run.folder)
    nan = float("nan")
    odd = altered(summary.rows[0], metric="perplexity", value=12.5, se=nan, ci_low=nan)
    part = PartValue(
        "mmlu",
        (
            ScoredPart(
                protocol="mmlu/original",
                metric="acc",
                value=0.5,
                raw=0.5,
                se=0.1,
                n=12,
                missing=0,
                strata=(Stratum(6.0, 12),),
            ),
        ),
    )
    study = make_study([replace(summary, rows=(summary.rows[1], odd))])
    table = row_table(
        replace(
            study, averages=(Average(suite="suite", model="hash", normalised=False, parts=(part,)),)
        )
    )
    assert table["metric"].to_pylist() == [summary.rows[1].identity.metric, "perplexity", "average"]
    assert (table["value"].to_pylist()[1:], table["se"].to_pylist()[1]) == ([12.5, 0.5], None)
    assert (json.loads(table["parts"][2].as_py())[0]["benchmark"], table["parts"].null_count) == (
        "mmlu",
        2,
    )


def test_averages_come_with_the_folder_of_a_suite(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_benchmarks(tmp_path / "data", monkeypatch)
    with known_suites(tmp_path, monkeypatch, trio=TRIO.format(more="")):
        command(
            "run",
            "--model",
            "fake:hash",
            "--protocol",
            "tests/trio",
            "--out",
            tmp_path / "out",
            code=0,
        )
    export(tmp_path / "out", "parquet", tmp_path / "rows.parquet")
    rows = pq.read_table(tmp_path / "rows.parquet").to_pylist()
    (average,) = [row for row in rows if row["metric"] == "average"]
    assert (average["protocol"], len(json.loads(average["parts"]))) == ("tests/trio", 3)
    single = min(file.parent for file in (tmp_path / "out").rglob("manifest.json"))
    for folder, name in ((tmp_path / "out", "rows.md"), (single, "one.md")):
        export(folder, "markdown", tmp_path / name)
        assert ("tests/trio" in (tmp_path / name).read_text(encoding="utf-8")) == (
            name == "rows.md"
        )


@pytest.mark.parametrize("form", ["scores-csv", "scores-parquet"])
def test_scores_are_those_of_the_run(form: str, hostile_run: Run, tmp_path: Path) -> None:
    export(hostile_run.folder, form, tmp_path / "scores")
    read = pyarrow.csv.read_csv if form == "scores-csv" else pq.read_table
    table = read(tmp_path / "scores")
    assert table.column_names == SCHEMA.names
    scored = table.filter(pc.is_valid(table["score"]))
    told = hostile_run.scores()
    for name in ("protocol", "item", "choice", "score", "credit"):
        assert scored[name].to_pylist() == told[name].to_pylist(), name
    chosen = scored.filter(scored["predicted"])["choice"].to_pylist()
    assert chosen == told.filter(pc.equal(told["choice"], told["prediction"]))["choice"].to_pylist()
    right = {item["item"]: item["gold"] for item in hostile_run.tables.items.to_pylist()}
    for row in table.to_pylist():
        assert row["gold"] == (row["choice"] in right[row["item"]])
    written = table.filter(pc.equal(table["protocol"], "mmlu/helm"))
    assert written["score"].null_count == len(written) == 4 * len(right)


@pytest.mark.parametrize("form", ["items-csv", "items-parquet"])
def test_items_are_imported_with_the_same_numbers(
    form: str, hostile_run: Run, tmp_path: Path
) -> None:
    path = tmp_path / f"items.{form.partition('-')[2]}"
    notes = export(hostile_run.folder, form, path, protocols=["mmlu/cloze", "mmlu/helm"]).notes
    assert [note for note in notes if "mmlu/helm" in note]
    (back,) = choicewise.import_log(path, tmp_path / "back")
    assert back.manifest.model.name == hostile_run.manifest.model.name
    order = [("item", "ascending"), ("choice", "ascending")]
    for name in ("sum", "token_mean", "char_mean", "byte_mean_bare", "pmi"):
        of_run = f"mmlu/cloze:{name}{'-empty' * (name == 'pmi')}"
        mine, own = (
            back.scores(f"mmlu/cloze:{name}").sort_by(order),
            hostile_run.scores(of_run).sort_by(order),
        )
        np.testing.assert_allclose(mine["score"].to_numpy(), own["score"].to_numpy(), rtol=1e-12)
        for column in ("item", "prediction", "credit"):
            assert mine[column].to_pylist() == own[column].to_pylist()
    again = path.with_stem("again")
    export(back.folder, form, again)
    assert rows_of(again, form) == rows_of(path, form)


@pytest.mark.parametrize("form", ["items-csv", "items-parquet"])
def test_subjects_are_averaged_as_they_were(form: str, tmp_path: Path) -> None:
    items = []
    for number, subject in enumerate("abbbbbbbb"):
        choices = tuple(f"{word} {number}" for word in ("stone", "wall", "gate", "sand"))
        items.append(Item(f"{number}", f"{number}?", choices, (number % 4,), subject))
    data, path = Dataset("parts", {"test": tuple(items)}), tmp_path / f"t.{form.partition('-')[2]}"
    # Of the last prompt both averages were taken.
    protocols = {
        "mmlu/harness-v1@shots=0": ":sum",
        "mmlu/harness-v0.4@shots=0": ":sum",
        "mmlu/harness-v0.4@shots=0,header=-,aggregation=categories": ":sum",
        "mmlu/cloze:sum": "",
        "mmlu/cloze:sum@aggregation=micro": "",
    }
    asked = choicewise.evaluate(
        model="fake:hash", data=data, protocols=[*protocols], out=tmp_path / "run"
    )
    export(asked, form, path)
    numbers = {}
    for run in choicewise.import_log(path, tmp_path / "back"):
        numbers |= {name: measured.overall for name, measured in run.measurements.items()}
    before = {name: measured.overall for name, measured in asked.measurements.items()}
    assert {name: numbers[name + score] for name, score in protocols.items()} == before
    assert before["mmlu/cloze:sum"] != before["mmlu/cloze:sum@aggregation=micro"]


def rows_of(path: Path, form: str) -> list[tuple[Any, ...]]:
    table = (pyarrow.csv.read_csv if form == "items-csv" else pq.read_table)(path)
    return sorted((tuple(row.values()) for row in table.to_pylist()), key=repr)


def test_items_of_two_prompts_are_two_tasks_in_a_file_that_import_knows(
    hostile_run: Run, tmp_path: Path
) -> None:
    with pytest.raises(UsageError, match="does not end in .csv"):
        export(hostile_run.folder, "items-csv", tmp_path / "items")
    assert list(tmp_path.iterdir()) == []
    export(hostile_run.folder, "items-parquet", tmp_path / "items.parquet")
    table = pq.read_table(tmp_path / "items.parquet")
    assert sorted(set(table["task"].to_pylist())) == ["mmlu/cloze", "mmlu/original"]
    assert len(choicewise.import_log(tmp_path / "items.parquet", tmp_path / "back")) == 2


def test_runs_of_one_name_are_told_apart(hostile_run: Run, tmp_path: Path) -> None:
    data, line = write_mmlu(tmp_path / "tides", ("trees",)), {"protocols": ["mmlu/original"]}
    other = choicewise.evaluate(model=HashModel(), data=data, out=tmp_path / "run", **line)
    export([hostile_run, other], "items-parquet", tmp_path / "items.parquet", **line)
    names = set(pq.read_table(tmp_path / "items.parquet")["model"].to_pylist())
    assert len(names) == 2
    assert all(name.startswith(hostile_run.manifest.model.name) for name in names)


def test_texts_and_contexts_of_items_stand_as_they_are(tmp_path: Path) -> None:
    choices = {'=1+1, is\n"it"?': ("-3", "@a,b", "'=c", "d"), "+": ("\u202ex", "y z", " y ", "e")}
    items = tuple(
        Item(f"{place}", question, choices[question], (1,))
        for place, question in enumerate(choices)
    )
    data = Dataset("signs", {"test": items})
    asked = choicewise.evaluate(
        model="fake:hash", data=data, protocols=["mmlu/cloze:sum"], out=tmp_path / "run"
    )
    export(asked, "items-csv", tmp_path / "items.csv")
    rows = cells(tmp_path / "items.csv")
    assert [row["text"] for row in rows] == [
        " -3",
        " @a,b",
        " '=c",
        " d",
        " \u202ex",
        " y z",
        "  y ",
        " e",
    ]
    assert [row["question"] for row in rows[::4]] == [*choices]
    export(asked, "scores-csv", tmp_path / "scores.csv")
    assert {row["item"] for row in cells(tmp_path / "scores.csv")} == {row["item"] for row in rows}
    items = (Item("0", "Ann thanked Bo because _ helped.", ("Ann", "Bo"), (1,)),)
    data, out = Dataset("pairs", {"validation": items}), tmp_path / "contexts"
    asked = choicewise.evaluate(
        model="fake:hash", data=data, protocols=["winogrande/harness"], out=out / "run"
    )
    export(asked, "items-csv", out / "items.csv")
    rows = cells(out / "items.csv")
    assert [row["context"] for row in rows] == [
        f"Ann thanked Bo because {name}" for name in ("Ann", "Bo")
    ]
    assert [row["text"] for row in rows] == [" helped."] * 2
    (back,) = choicewise.import_log(out / "items.csv", out / "back")
    name = next(name for name in back.protocols if name.endswith(":sum"))
    assert back.scores(name)["score"].to_pylist() == pytest.approx(
        asked.scores()["score"].to_pylist()
    )


def test_a_run_that_is_not_complete_is_marked(hostile_run: Run, tmp_path: Path) -> None:
    folder = shutil.copytree(hostile_run.folder, tmp_path / "run")
    manifest = read_manifest(folder)
    write_manifest(folder, replace(manifest, complete=False, blocks=manifest.blocks[:1]))
    with pytest.raises(UsageError, match="not complete"):
        export(folder, "csv", tmp_path / "rows.csv")
    export(folder, "csv", tmp_path / "rows.csv", incomplete=True)
    rows = cells(tmp_path / "rows.csv")
    assert {row["complete"] for row in rows} == {"False"}
    assert all("incomplete" in row["selection"] for row in rows)
    for form in ("scores-csv", "items-csv"):
        notes = export(folder, form, tmp_path / f"{form}.csv", incomplete=True).notes
        assert any("not complete" in note for note in notes)
    export(folder, "markdown", tmp_path / "t.md", incomplete=True)
    assert "incomplete" in (tmp_path / "t.md").read_text(encoding="utf-8")
