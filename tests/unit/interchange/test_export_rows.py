"""Rows, scores and items as CSV and Parquet: they hold the numbers of the run, and read back equal."""

import csv
import json
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
from choicewise.data.dataset import Dataset
from choicewise.data.items import Item
from choicewise.errors import UsageError
from choicewise.interchange.export import export
from choicewise.interchange.write.tables import SCORE_SCHEMA as SCHEMA
from choicewise.interchange.write.tables import row_schema, row_table
from choicewise.models.fake import HashModel
from choicewise.page.study import make_study, table_csv
from choicewise.results.rows import Row
from choicewise.results.run import Run
from choicewise.results.summary import summarize
from choicewise.results.sweep import Average, PartValue, ScoredPart, Stratum
from choicewise.store.folder import read_manifest, write_manifest
from tests.helpers.commands import choicewise as command
from tests.helpers.mmlu_data import write_mmlu
from tests.helpers.suite_data import TRIO, known_suites, write_benchmarks

PROTOCOLS = ["mmlu/original", "mmlu/cloze", "mmlu/helm"]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    place = tmp_path_factory.mktemp("rows")
    data = write_mmlu(place / "tides", questions=3)
    return choicewise.evaluate(model="fake:hash", data=data, protocols=PROTOCOLS, out=place / "run")


def cells(path: Path) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_rows_read_back_with_every_number_of_the_report(run: Run, tmp_path: Path) -> None:
    export(run.folder, "parquet", tmp_path / "rows.parquet")
    told = command("export", run.folder, "--format", "csv", "--out", tmp_path / "rows.csv", code=0)
    assert told.stdout.strip() == str(tmp_path / "rows.csv")
    table = pq.read_table(tmp_path / "rows.parquet")
    assert table.schema.equals(row_schema())
    rows = [row.as_json() for row in run.rows()]
    for mine, row, text in zip(table.to_pylist(), rows, cells(tmp_path / "rows.csv"), strict=True):
        for name, value in row.items():
            plain = json.dumps(value) if isinstance(value, list | dict) else value
            if name != "rank":
                assert mine[name] == plain, name
            assert text[name] == ("" if mine[name] is None else str(mine[name])), name
        assert float(text["value"]) == row["value"]
    assert {name for row in rows for name in row} | {*Row.__dataclass_fields__} <= set(table.column_names)
    assert table.schema.field("value").type == pa.float64()


def test_a_text_that_a_spreadsheet_would_compute_is_a_text(run: Run, tmp_path: Path) -> None:
    summary = summarize(run.folder)
    for start in "=+-@":
        model = replace(summary.manifest.model, name=f'{start}cmd|" /C calc"!A0')
        named = replace(summary, manifest=replace(summary.manifest, model=model))
        table = row_table(make_study([named]))
        assert table["model"][0].as_py() == model.name
        text = table_csv(table.column_names, table.to_pylist())
        (tmp_path / "rows.csv").write_text(text, encoding="utf-8", newline="")
        assert {row["model"] for row in cells(tmp_path / "rows.csv")} == {f"'{model.name}"}


def test_perplexities_and_averages_are_told_by_their_metric(run: Run) -> None:
    summary = summarize(run.folder)
    nan = float("nan")
    odd = replace(summary.rows[0], metric="perplexity", value=12.5, se=nan, ci_low=nan)
    part = PartValue("mmlu", (ScoredPart("mmlu/original", "acc", 0.5, 0.5, 0.1, 12, 0, (Stratum(6.0, 12),)),))
    study = make_study([replace(summary, rows=(summary.rows[1], odd))])
    table = row_table(replace(study, averages=(Average("suite", "hash", False, (part,)),)))
    assert table["metric"].to_pylist() == [summary.rows[1].metric, "perplexity", "average"]
    assert table["value"].to_pylist()[1:] == [12.5, 0.5]
    assert table["se"].to_pylist()[1] is None
    assert json.loads(table["parts"][2].as_py())[0]["benchmark"] == "mmlu"
    assert table["parts"].null_count == 2


def test_averages_come_with_the_folder_of_a_suite(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_benchmarks(tmp_path / "data", monkeypatch)
    with known_suites(tmp_path, monkeypatch, trio=TRIO.format(more="")):
        command("run", "--model", "fake:hash", "--protocol", "tests/trio", "--out", tmp_path / "out", code=0)
    export(tmp_path / "out", "parquet", tmp_path / "rows.parquet")
    rows = pq.read_table(tmp_path / "rows.parquet").to_pylist()
    (average,) = [row for row in rows if row["metric"] == "average"]
    assert average["protocol"] == "tests/trio"
    assert len(json.loads(average["parts"])) == 3
    single = min(file.parent for file in (tmp_path / "out").rglob("manifest.json"))
    for folder, name in ((tmp_path / "out", "rows.md"), (single, "one.md")):
        export(folder, "markdown", tmp_path / name)
        text = (tmp_path / name).read_text(encoding="utf-8")
        assert ("tests/trio" in text) == (name == "rows.md")


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
    order = [("item", "ascending"), ("choice", "ascending")]
    for name in ("sum", "token_mean", "char_mean", "byte_mean_bare", "pmi"):
        of_run = f"mmlu/cloze:{name}{'-empty' * (name == 'pmi')}"
        mine, own = back.scores(f"mmlu/cloze:{name}").sort_by(order), run.scores(of_run).sort_by(order)
        np.testing.assert_allclose(mine["score"].to_numpy(), own["score"].to_numpy(), rtol=1e-12)
        for column in ("item", "prediction", "credit"):
            assert mine[column].to_pylist() == own[column].to_pylist()
    again = path.with_stem("again")
    export(back.folder, form, again)
    assert rows_of(again, form) == rows_of(path, form)


def rows_of(path: Path, form: str) -> list[tuple[Any, ...]]:
    table = (pyarrow.csv.read_csv if form == "items-csv" else pq.read_table)(path)
    return sorted((tuple(row.values()) for row in table.to_pylist()), key=repr)


def test_items_of_two_prompts_are_two_tasks_in_a_file_that_import_knows(run: Run, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="does not end in .csv"):
        export(run.folder, "items-csv", tmp_path / "items")
    assert list(tmp_path.iterdir()) == []
    export(run.folder, "items-parquet", tmp_path / "items.parquet")
    table = pq.read_table(tmp_path / "items.parquet")
    assert sorted(set(table["task"].to_pylist())) == ["mmlu/cloze", "mmlu/original"]
    assert len(choicewise.import_log(tmp_path / "items.parquet", tmp_path / "back")) == 2


def test_runs_of_one_name_are_told_apart(run: Run, tmp_path: Path) -> None:
    data, line = write_mmlu(tmp_path / "tides", ("trees",)), {"protocols": ["mmlu/original"]}
    other = choicewise.evaluate(model=HashModel(), data=data, out=tmp_path / "run", **line)
    export([run, other], "items-parquet", tmp_path / "items.parquet", **line)
    names = set(pq.read_table(tmp_path / "items.parquet")["model"].to_pylist())
    assert len(names) == 2
    assert all(name.startswith(run.manifest.model.name) for name in names)


def test_texts_and_contexts_of_items_stand_as_they_are(tmp_path: Path) -> None:
    choices = {'=1+1, is\n"it"?': ("-3", "@a,b", "'=c", "d"), "+": ("\u202ex", "y z", " y ", "e")}
    items = tuple(Item(f"{place}", question, choices[question], (1,)) for place, question in enumerate(choices))
    data = Dataset("signs", {"test": items})
    asked = choicewise.evaluate(model="fake:hash", data=data, protocols=["mmlu/cloze:sum"], out=tmp_path / "run")
    export(asked, "items-csv", tmp_path / "items.csv")
    rows = cells(tmp_path / "items.csv")
    assert [row["text"] for row in rows] == [" -3", " @a,b", " '=c", " d", " \u202ex", " y z", "  y ", " e"]
    assert [row["question"] for row in rows[::4]] == [*choices]
    export(asked, "scores-csv", tmp_path / "scores.csv")
    assert {row["item"] for row in cells(tmp_path / "scores.csv")} == {row["item"] for row in rows}
    items = (Item("0", "Ann thanked Bo because _ helped.", ("Ann", "Bo"), (1,)),)
    data, out = Dataset("pairs", {"validation": items}), tmp_path / "contexts"
    asked = choicewise.evaluate(model="fake:hash", data=data, protocols=["winogrande/harness"], out=out / "run")
    export(asked, "items-csv", out / "items.csv")
    rows = cells(out / "items.csv")
    assert [row["context"] for row in rows] == [f"Ann thanked Bo because {name}" for name in ("Ann", "Bo")]
    assert [row["text"] for row in rows] == [" helped."] * 2
    (back,) = choicewise.import_log(out / "items.csv", out / "back")
    name = next(name for name in back.protocols if name.endswith(":sum"))
    assert back.scores(name)["score"].to_pylist() == pytest.approx(asked.scores()["score"].to_pylist())


def test_a_run_that_is_not_complete_is_marked(run: Run, tmp_path: Path) -> None:
    folder = shutil.copytree(run.folder, tmp_path / "run")
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
