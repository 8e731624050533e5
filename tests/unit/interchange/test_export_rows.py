"""Rows, scores and items as CSV and Parquet: they hold the numbers of the run, and read back equal."""

from __future__ import annotations

import csv
import json
import math
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
from choicewise.cli.commands import invoke
from choicewise.data.dataset import Dataset
from choicewise.data.items import Item
from choicewise.errors import UsageError
from choicewise.interchange.export import export
from choicewise.interchange.write.tables import SCORE_SCHEMA as SCHEMA
from choicewise.interchange.write.tables import row_schema, row_table
from choicewise.models.fake import HashModel
from choicewise.page.study import make_study
from choicewise.results.rows import Row
from choicewise.results.run import Run, open_run
from choicewise.results.summary import summarize
from choicewise.results.sweep import Average, PartValue, ScoredPart, Stratum
from tests.helpers.mmlu_data import write_mmlu
from tests.helpers.suite_data import TRIO, known_suites, write_benchmarks

PROTOCOLS = ["mmlu/original", "mmlu/cloze", "mmlu/helm"]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    place = tmp_path_factory.mktemp("rows")
    return choicewise.evaluate(
        model="fake:hash", data=write_mmlu(place / "tides"), protocols=PROTOCOLS, out=place / "run"
    )


def cells(path: Path) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_rows_read_back_with_every_number_of_the_report(run: Run, tmp_path: Path) -> None:
    export(run.folder, "parquet", tmp_path / "rows.parquet")
    export(run.folder, "csv", tmp_path / "rows.csv")
    table = pq.read_table(tmp_path / "rows.parquet")
    assert table.schema.equals(row_schema())
    told = [row.as_json() for row in run.rows()]
    for mine, row, text in zip(table.to_pylist(), told, cells(tmp_path / "rows.csv"), strict=True):
        for name, value in row.items():
            plain = json.dumps(value) if isinstance(value, list | dict) else value
            if name != "rank":
                assert mine[name] == plain, name
            assert text[name] == ("" if mine[name] is None else str(mine[name])), name
        assert float(text["value"]) == row["value"]
    assert {name for row in told for name in row} <= set(table.column_names)


def test_a_text_that_a_spreadsheet_would_compute_is_a_text(run: Run, tmp_path: Path) -> None:
    summary = summarize(run.folder)
    for start in "=+-@":
        model = replace(summary.manifest.model, name=f'{start}cmd|" /C calc"!A0')
        named = replace(summary, manifest=replace(summary.manifest, model=model))
        table = row_table(make_study([named]))
        assert table["model"][0].as_py() == model.name
        from choicewise.page.study import table_csv

        (tmp_path / "rows.csv").write_text(
            table_csv(table.column_names, table.to_pylist()), encoding="utf-8", newline=""
        )
        assert {row["model"] for row in cells(tmp_path / "rows.csv")} == {f"'{model.name}"}


def test_perplexities_and_averages_are_told_by_their_metric(run: Run) -> None:
    summary = summarize(run.folder)
    nan = float("nan")
    odd = replace(summary.rows[0], metric="perplexity", value=12.5, se=nan, ci_low=nan)
    part = PartValue("mmlu", (ScoredPart("mmlu/original", "acc", 0.5, 0.5, 0.1, 12, 0, (Stratum(6.0, 12),)),))
    study = make_study([replace(summary, rows=(summary.rows[1], odd))])
    table = row_table(replace(study, averages=(Average("suite", "hash", False, (part,)),)))
    metrics = table["metric"].to_pylist()
    assert metrics == [summary.rows[1].metric, "perplexity", "average"]
    assert table["value"].to_pylist()[1:] == [12.5, 0.5]
    assert table["se"].to_pylist()[1] is None
    assert json.loads(table["parts"][2].as_py())[0]["benchmark"] == "mmlu"
    assert table["parts"].null_count == 2


@pytest.mark.costly("runs are written and read again")
def test_averages_come_with_the_folder_of_a_suite(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_benchmarks(tmp_path / "data", monkeypatch)
    with known_suites(tmp_path, monkeypatch, trio=TRIO.format(more="")):
        line = ["run", "--model", "fake:hash", "--protocol", "tests/trio", "--out", str(tmp_path / "out")]
        assert invoke(line) == 0
    export(tmp_path / "out", "parquet", tmp_path / "rows.parquet")
    rows = pq.read_table(tmp_path / "rows.parquet").to_pylist()
    (average,) = [row for row in rows if row["metric"] == "average"]
    assert average["protocol"] == "tests/trio"
    assert len(json.loads(average["parts"])) == 3
    export(tmp_path / "out", "markdown", tmp_path / "rows.md")
    assert "tests/trio" in (tmp_path / "rows.md").read_text(encoding="utf-8")
    single = min(file.parent for file in (tmp_path / "out").rglob("manifest.json"))
    export(single, "markdown", tmp_path / "one.md")
    assert "tests/trio" not in (tmp_path / "one.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("form", ["scores-csv", "scores-parquet"])
def test_scores_are_those_of_the_run(form: str, run: Run, tmp_path: Path) -> None:
    export(run.folder, form, tmp_path / "scores")
    read = pyarrow.csv.read_csv if form == "scores-csv" else pq.read_table
    table = read(tmp_path / "scores")
    assert table.column_names == SCHEMA.names
    scored = table.filter(pc.is_valid(table["score"]))
    told = run.scores()
    for name in ("protocol", "item", "choice", "score", "credit"):
        assert scored[name].to_pylist() == told[name].to_pylist(), name
    chosen = scored.filter(scored["predicted"])["choice"].to_pylist()
    first = told.filter(pc.equal(told["choice"], told["prediction"]))["choice"].to_pylist()
    assert chosen == first
    right = {item["item"]: item["gold"] for item in run.tables.items.to_pylist()}
    for row in table.to_pylist():
        assert row["gold"] == (row["choice"] in right[row["item"]])
    written = table.filter(pc.equal(table["protocol"], "mmlu/helm"))
    assert written["score"].null_count == len(written) == 4 * len(right)


@pytest.mark.parametrize("form", ["items-csv", "items-parquet"])
def test_items_are_imported_with_the_same_numbers(form: str, run: Run, tmp_path: Path) -> None:
    path = tmp_path / f"items.{form.partition('-')[2]}"
    notes = export(run.folder, form, path, protocols=["mmlu/cloze", "mmlu/helm"]).notes
    assert [note for note in notes if "mmlu/helm" in note]
    (back,) = choicewise.import_log(path, tmp_path / "back")
    assert back.manifest.model.name == run.manifest.model.name
    for name, of_run in {
        "sum": "mmlu/cloze:sum",
        "token_mean": "mmlu/cloze:token_mean",
        "char_mean": "mmlu/cloze:char_mean",
        "byte_mean_bare": "mmlu/cloze:byte_mean_bare",
        "pmi": "mmlu/cloze:pmi-empty",
    }.items():
        mine = back.scores(f"mmlu/cloze:{name}").sort_by([("item", "ascending"), ("choice", "ascending")])
        own = run.scores(of_run).sort_by([("item", "ascending"), ("choice", "ascending")])
        assert mine["item"].to_pylist() == own["item"].to_pylist()
        np.testing.assert_allclose(mine["score"].to_numpy(), own["score"].to_numpy(), rtol=1e-12)
        assert mine["prediction"].to_pylist() == own["prediction"].to_pylist()
        assert mine["credit"].to_pylist() == own["credit"].to_pylist()
    again = path.with_stem("again")
    export(back.folder, form, again)
    assert rows_of(again, form) == rows_of(path, form)


def rows_of(path: Path, form: str) -> list[tuple[Any, ...]]:
    table = (pyarrow.csv.read_csv if form == "items-csv" else pq.read_table)(path)
    return sorted((tuple(row.values()) for row in table.to_pylist()), key=repr)


def test_items_go_to_a_file_that_import_knows(run: Run, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="does not end in .csv"):
        export(run.folder, "items-csv", tmp_path / "items")
    assert list(tmp_path.iterdir()) == []


def test_prompts_are_told_apart_by_their_tasks(run: Run, tmp_path: Path) -> None:
    export(run.folder, "items-parquet", tmp_path / "items.parquet")
    table = pq.read_table(tmp_path / "items.parquet")
    assert sorted(set(table["task"].to_pylist())) == ["mmlu/cloze", "mmlu/original"]
    assert len(choicewise.import_log(tmp_path / "items.parquet", tmp_path / "back")) == 2


def test_runs_of_one_name_are_told_apart(run: Run, tmp_path: Path) -> None:
    model = HashModel()
    data = write_mmlu(tmp_path / "tides", ("trees",))
    choicewise.evaluate(model=model, data=data, protocols=["mmlu/original"], out=tmp_path / "run")
    export([run, open_run(tmp_path / "run")], "items-parquet", tmp_path / "items.parquet", protocols=["mmlu/original"])
    table = pq.read_table(tmp_path / "items.parquet")
    names = set(table["model"].to_pylist())
    assert len(names) == 2
    assert all(name.startswith(run.manifest.model.name) for name in names)


def test_texts_of_items_stand_as_they_are(tmp_path: Path) -> None:
    data = tmp_path / "signs.jsonl"
    lines = [
        {"question": '=1+1, is\n"it"?', "choices": ["-3", "@a,b", "'=c", "d"], "answer": 1},
        {"question": "+", "choices": ["\u202ex", "y z", " y ", "e"], "answer": 0},
    ]
    data.write_text("".join(f"{json.dumps(line)}\n" for line in lines), encoding="utf-8")
    made = choicewise.evaluate(model="fake:hash", data=data, protocols=["mmlu/cloze:sum"], out=tmp_path / "run")
    export(made, "items-csv", tmp_path / "items.csv")
    rows = cells(tmp_path / "items.csv")
    assert [row["text"] for row in rows] == [" -3", " @a,b", " '=c", " d", " \u202ex", " y z", "  y ", " e"]
    assert [row["question"] for row in rows[::4]] == [line["question"] for line in lines]
    export(made, "scores-csv", tmp_path / "scores.csv")
    assert {row["item"] for row in cells(tmp_path / "scores.csv")} == {row["item"] for row in rows}


def test_a_run_that_is_not_complete_is_marked(run: Run, tmp_path: Path) -> None:
    import shutil

    folder = tmp_path / "run"
    shutil.copytree(run.folder, folder)
    from choicewise.store.folder import read_manifest, write_manifest

    manifest = read_manifest(folder)
    write_manifest(folder, replace(manifest, complete=False, blocks=manifest.blocks[:1]))
    with pytest.raises(UsageError, match="not complete"):
        export(folder, "csv", tmp_path / "rows.csv")
    export(folder, "csv", tmp_path / "rows.csv", incomplete=True)
    rows = cells(tmp_path / "rows.csv")
    assert {row["complete"] for row in rows} == {"False"}
    assert all("incomplete" in row["selection"] for row in rows)
    notes = export(folder, "scores-csv", tmp_path / "scores.csv", incomplete=True).notes
    assert any("not complete" in note for note in notes)
    notes = export(folder, "items-csv", tmp_path / "items.csv", incomplete=True).notes
    assert any("not complete" in note for note in notes)
    export(folder, "markdown", tmp_path / "t.md", incomplete=True)
    assert "incomplete" in (tmp_path / "t.md").read_text(encoding="utf-8")


def test_a_missing_number_is_null_and_no_zero(tmp_path: Path) -> None:
    schema = row_schema()
    assert schema.field("value").type == pa.float64()
    assert {field.name for field in schema} >= set(Row.__dataclass_fields__)


def test_the_command_says_what_it_wrote(run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "rows.csv"
    assert invoke(["export", str(run.folder), "--format", "csv", "--out", str(out)]) == 0
    assert capsys.readouterr().out.strip() == str(out)
    assert not math.isnan(float(cells(out)[0]["value"]))


def test_choices_with_contexts_of_their_own_keep_them(tmp_path: Path) -> None:
    items = (Item("0", "Ann thanked Bo because _ helped.", ("Ann", "Bo"), (1,)),)
    made = choicewise.evaluate(
        model="fake:hash",
        data=Dataset("pairs", {"validation": items}),
        protocols=["winogrande/harness"],
        out=tmp_path / "run",
    )
    export(made, "items-csv", tmp_path / "items.csv")
    rows = cells(tmp_path / "items.csv")
    assert [row["context"] for row in rows] == [f"Ann thanked Bo because {name}" for name in ("Ann", "Bo")]
    assert [row["text"] for row in rows] == [" helped."] * 2
    (back,) = choicewise.import_log(tmp_path / "items.csv", tmp_path / "back")
    name = next(name for name in back.protocols if name.endswith(":sum"))
    assert back.scores(name)["score"].to_pylist() == pytest.approx(made.scores()["score"].to_pylist())
