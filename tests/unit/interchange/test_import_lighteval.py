"""Details of lighteval become runs, in every layout of their columns; its verdicts follow from them."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from choicewise.errors import DataError
from choicewise.interchange.logs.import_log import read_logs, read_state
from choicewise.interchange.logs.lighteval import detail
from choicewise.interchange.logs.log import Log
from tests.helpers.golden_logs import edited, golden
from tests.helpers.imported_runs import one_run, values

TOWN = "leaderboard|town|5|0"
NORM = "acc:logprob_normalization=LogProb"


def logs(path: Path, results: Path | None = None) -> dict[str, Log]:
    return {log.task: log for log in read_logs([path], None, results)}


def details(folder: Path, task: str) -> Path:
    (file,) = (each for each in folder.rglob("*.parquet") if each.name.startswith(f"details_{task}_"))
    return file


def changed(file: Path, change: Callable[[dict[str, Any]], object]) -> Path:
    """The details after ``change`` of their first row, without the types that the file had."""
    rows = pq.read_table(file).to_pylist()
    change(rows[0])
    pq.write_table(pa.Table.from_pylist(rows), file)
    return file


def test_values_whose_meaning_is_not_known_are_named(tmp_path: Path) -> None:
    log = logs(golden("lighteval/until-0.9", tmp_path))[TOWN]
    first, *others = log.items
    named = replace(log, items=(replace(first, recorded={**first.recorded, "f1": 0.5}), *others))
    assert read_state(log).unused == ()
    assert read_state(named).unused == ("values f1, of which it is not known how they follow from the answers",)


def test_a_verdict_that_does_not_follow_is_told(tmp_path: Path) -> None:
    folder = golden("lighteval/since-0.10", tmp_path)
    name = f"{NORM}PMINorm(name='norm_pmi')"
    changed(details(folder, "town|0"), lambda row: row["metric"].update({name: 1 - row["metric"][name]}))
    (log,) = logs(folder).values()
    (note,) = read_state(log).notes
    assert note.startswith(f"{name} of 1 of 3 items is another than its own answers give, such as 0")
    changed(details(folder, "town|0"), lambda row: row["metric"].update(acc=1 - row["metric"]["acc"]))
    (log,) = logs(folder).values()
    with pytest.raises(DataError, match="does not agree with itself"):
        read_state(log)


def test_a_run_has_the_numbers_of_lighteval_and_more(tmp_path: Path) -> None:
    folder = golden("lighteval/since-0.10", tmp_path)
    numbers = {name: value for name, (value, *_) in values(one_run(folder, tmp_path / "run")).items()}
    names = {"sum": "acc", "char_mean": f"{NORM}CharNorm(name='norm', ignore_first_space=False)"}
    names |= {"token_mean": f"{NORM}TokenNorm(name='norm_token')", "pmi": f"{NORM}PMINorm(name='norm_pmi')"}
    (log,) = logs(folder).values()
    for name, recorded in names.items():
        assert numbers[name] == pytest.approx(log.recorded[recorded])
    assert sum(value is not None for value in numbers.values()) > 10


def test_the_newest_of_several_dates_is_taken_of_each_model(tmp_path: Path) -> None:
    folder = golden("lighteval/since-0.10", tmp_path)
    new = details(folder, "town|0")
    old = new.parents[1] / "2020-01-01T00-00-00.000000" / "details_town|0_2020-01-01T00-00-00.000000.parquet"
    old.parent.mkdir()
    old.write_bytes(new.read_bytes())
    (log,) = logs(folder).values()
    assert f"{old.name} is older than another of its task" in log.unused
    folder = golden("lighteval/from-0.4", tmp_path)
    file = next(folder.rglob("*.parquet"))
    other = folder / "details" / "other" / "model" / file.parent.name / file.name
    other.parent.mkdir(parents=True)
    other.write_bytes(file.read_bytes())
    assert sorted(log.model for log in read_logs([folder])) == ["made-up/words", "other/model"]


def test_results_of_something_else_are_refused(tmp_path: Path) -> None:
    folder = golden("lighteval/since-0.10", tmp_path)
    (results,) = folder.rglob("results_*.json")
    file = details(folder, "town|0")
    assert logs(file, results)["town|0"].recorded["acc"] == pytest.approx(1 / 3)
    with pytest.raises(DataError, match="says nothing of the task town"):
        logs(file, edited(results, lambda said: said["results"].pop("town|0") and None))
    with pytest.raises(DataError, match="is no file of results of lighteval"):
        logs(file, edited(results, lambda said: said.pop("config_general") and None))
    results.write_text(json.dumps({"config_general": {}})[:-3], encoding="utf-8")
    with pytest.raises(DataError, match="results_.* is no JSON"):
        logs(file)


@pytest.mark.parametrize(
    ("numbers", "missing"),
    [
        ([-1.0, -2.0, -3.0], "the log has 3 predictions for 4 choices"),
        ([float("nan"), -2.0, -3.0, -4.0], "its log-likelihood in the log is nan"),
        ([None, -2.0, -3.0, -4.0], "its log-likelihood in the log is None"),
    ],
)
def test_what_the_log_lacks_and_no_gold_are_missing(tmp_path: Path, numbers: list[float | None], missing: str) -> None:
    folder = golden("lighteval/since-0.10", tmp_path)
    changed(details(folder, "town|0"), lambda row: row["model_response"].update(logprobs=numbers))
    (log,) = logs(folder).values()
    assert next(iter(log.items)).choices[0].missing == missing
    golden("lighteval/since-0.10", tmp_path)
    changed(details(folder, "town|0"), lambda row: row["doc"].update(gold_index=9))
    assert values(one_run(folder, tmp_path / "run"))["sum"][1:] == (2, 1)


def test_other_files_and_text_alone_are_refused_by_name(tmp_path: Path) -> None:
    file = tmp_path / "details_x.parquet"
    pq.write_table(pa.table({"item": [1]}), file)
    with pytest.raises(DataError, match="row 0 has neither the column predictions nor doc"):
        read_logs([file])
    pq.write_table(pa.table({"predictions": pa.array([], pa.list_(pa.float64()))}), file)
    with pytest.raises(DataError, match="holds no rows"):
        read_logs([file])
    file.write_bytes(b"PAR1" + bytes(20))
    with pytest.raises(DataError, match="can't be read as Parquet"):
        read_logs([file])
    with pytest.raises(DataError, match=r"town_text\|0 is no multiple choice"):
        read_logs([details(golden("lighteval/since-0.10", tmp_path), "town_text|0")])


@pytest.mark.parametrize(
    ("cell", "value"),
    [
        ("[(-1.5, False), (nan, True)]", [(-1.5, False), (None, True)]),
        ("[-inf, 2.0]", [float("-inf"), 2.0]),
        ("[np.float64(-1.5)]", [-1.5]),
        ("['nan', \"it's inf\"]", ["nan", "it's inf"]),
    ],
)
def test_cells_spell_values_of_python(cell: str, value: object) -> None:
    row = detail({"predictions": cell, "metrics": "{'acc': 1}"}, 0, "a row")
    assert (row.predictions, row.metrics) == (value, {"acc": 1})


@pytest.mark.parametrize("cell", ["__import__('os').remove('x')", "[" * 100_000, "[1, 2", "x" * 2_000_000])
def test_cells_run_no_code(cell: str) -> None:
    with pytest.raises(DataError, match="a row, column predictions holds"):
        detail({"predictions": cell}, 0, "a row")
