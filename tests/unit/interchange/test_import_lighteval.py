"""Details of lighteval become runs, in every layout of their columns; its verdicts follow from them."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from choicewise import import_log
from choicewise.errors import DataError
from choicewise.interchange.logs.files import recognise
from choicewise.interchange.logs.import_log import read_logs, read_state
from choicewise.interchange.logs.lighteval import _value
from choicewise.interchange.logs.log import Log
from tests.helpers.golden_logs import edited, golden

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


def test_the_layout_until_0_9(tmp_path: Path) -> None:
    folder = golden("lighteval/until-0.9", tmp_path)
    assert recognise(folder) == recognise(details(folder, "lighteval|town_pmi|0|0")) == "lighteval"
    read = logs(folder)
    assert sorted(read) == ["helm|town_letters|5|0", TOWN, "lighteval|town_pmi|0|0"]
    assert {log.model for log in read.values()} == {"made-up/words"}
    log = read[TOWN]
    items = list(log.items)
    assert {item.subject for item in items} == {"bells", "ferries", "lamps", "mills", "rivers"}
    assert (items[2].id, items[2].gold) == ("bells/2", (0,))
    assert items[2].context == "Question: So?\nAnswer: So.\n\nQuestion: Who keeps the key?\nAnswer:"
    assert items[2].question == "Question: Who keeps the key?\nAnswer:"
    assert [choice.text for choice in items[2].choices] == [" the miller", " the clerk", " the smith", " nobody at all"]
    assert [choice.tokens for choice in items[2].choices] == [2, 2, 2, 3]
    assert {choice.greedy for item in items for choice in item.choices} == {True, False}
    assert log.settings["truncated"] == "5 of 15 items"
    assert log.settings["shots"] == "5"


def test_values_whose_meaning_is_not_known_are_named(tmp_path: Path) -> None:
    log = logs(golden("lighteval/until-0.9", tmp_path))[TOWN]
    first, *others = log.items
    named = replace(log, items=(replace(first, recorded={**first.recorded, "f1": 0.5}), *others))
    assert read_state(log).unused == ()
    assert read_state(named).unused == ("values f1, of which it is not known how they follow from the answers",)


def test_one_request_for_all_letters(tmp_path: Path) -> None:
    log = logs(golden("lighteval/until-0.9", tmp_path))["helm|town_letters|5|0"]
    first = next(iter(log.items))
    assert [(choice.text, choice.tokens, choice.greedy) for choice in first.choices] == [
        (f" {letter}", 1, None) for letter in "ABCD"
    ]
    assert log.recorded["acc"] == pytest.approx(2 / 3)


def test_pmi_has_the_log_likelihoods_after_the_null_context(tmp_path: Path) -> None:
    log = logs(golden("lighteval/until-0.9", tmp_path))["lighteval|town_pmi|0|0"]
    assert log.null == "Answer:"
    assert all(choice.unconditional is not None for item in log.items for choice in item.choices)


def test_cells_that_are_text_say_the_same(tmp_path: Path) -> None:
    (text,) = logs(golden("lighteval/from-0.4", tmp_path)).values()
    columns = logs(golden("lighteval/until-0.9", tmp_path))[TOWN]
    assert text.task == "leaderboard|town:bells|5|0"
    bells = [item for item in columns.items if item.subject == "bells"]
    assert [item.choices for item in text.items] == [item.choices for item in bells]
    assert [item.recorded for item in text.items] == [item.recorded for item in bells]
    assert text.model == "made-up/words"  # from its folder: there is no file of results


def test_the_layout_since_0_10(tmp_path: Path) -> None:
    (log,) = logs(golden("lighteval/since-0.10", tmp_path)).values()
    assert log.unused == ("town_text|0 is no multiple choice",)
    first, _, last = log.items
    assert (first.id, first.gold, first.context) == ("0", (1,), None)
    assert first.question == "Question: Which river crosses the town?\nAnswer:"
    assert [choice.tokens for choice in last.choices] == [2, 2, 2, 3]  # without the -1 of the batch
    assert {choice.greedy for item in log.items for choice in item.choices} <= {True, False}
    assert log.null == "Answer:"
    assert set(last.recorded) == {
        "acc",
        f"{NORM}CharNorm(name='norm', ignore_first_space=False)",
        f"{NORM}CharNorm(name='norm', ignore_first_space=True)",
        f"{NORM}TokenNorm(name='norm_token')",
        f"{NORM}PMINorm(name='norm_pmi')",
    }


@pytest.mark.parametrize("layout", ["until-0.9", "since-0.10", "from-0.4"])
def test_the_verdicts_follow(tmp_path: Path, layout: str) -> None:
    for log in logs(golden(f"lighteval/{layout}", tmp_path)).values():
        assert read_state(log).notes == ()


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
    (run,) = import_log(golden("lighteval/since-0.10", tmp_path), tmp_path / "run")
    rows = {row["protocol"]: row["value"] for row in run.report().to_pylist()}
    (log,) = logs(tmp_path / "since-0.10").values()
    assert rows["town|0:sum"] == pytest.approx(log.recorded["acc"])
    assert rows["town|0:token_mean"] == pytest.approx(log.recorded[f"{NORM}TokenNorm(name='norm_token')"])
    assert rows["town|0:char_mean"] == pytest.approx(
        log.recorded[f"{NORM}CharNorm(name='norm', ignore_first_space=False)"]
    )
    assert rows["town|0:pmi"] == pytest.approx(log.recorded[f"{NORM}PMINorm(name='norm_pmi')"])
    assert sum(value is not None for value in rows.values()) > 10


def test_the_newest_of_several_dates_is_taken(tmp_path: Path) -> None:
    folder = golden("lighteval/since-0.10", tmp_path)
    new = details(folder, "town|0")
    old = new.parents[1] / "2020-01-01T00-00-00.000000" / "details_town|0_2020-01-01T00-00-00.000000.parquet"
    old.parent.mkdir()
    old.write_bytes(new.read_bytes())
    (log,) = logs(folder).values()
    assert f"{old.name} is older than another of its task" in log.unused


def test_two_models_in_a_folder_are_two_logs(tmp_path: Path) -> None:
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


def set_doc(**members: Any) -> Callable[[dict[str, Any]], object]:
    return lambda row: row["doc"].update(members)


def set_response(**members: Any) -> Callable[[dict[str, Any]], object]:
    return lambda row: row["model_response"].update(members)


@pytest.mark.parametrize(
    ("change", "missing"),
    [
        (set_response(logprobs=[-1.0, -2.0, -3.0]), "the log has 3 predictions for 4 choices"),
        (set_response(logprobs=[float("nan"), -2.0, -3.0, -4.0]), "its log-likelihood in the log is nan"),
        (set_response(logprobs=[None, -2.0, -3.0, -4.0]), "its log-likelihood in the log is None"),
    ],
)
def test_what_the_log_lacks_is_a_missing_choice(tmp_path: Path, change: Any, missing: str) -> None:
    folder = golden("lighteval/since-0.10", tmp_path)
    changed(details(folder, "town|0"), change)
    (log,) = logs(folder).values()
    assert next(iter(log.items)).choices[0].missing == missing


def test_a_gold_that_is_no_choice_is_missing(tmp_path: Path) -> None:
    folder = golden("lighteval/since-0.10", tmp_path)
    changed(details(folder, "town|0"), set_doc(gold_index=9))
    (run,) = import_log(folder, tmp_path / "run")
    rows = {row["protocol"]: row for row in run.report().to_pylist()}
    assert (rows["town|0:sum"]["n"], rows["town|0:sum"]["missing"]) == (2, 1)


def test_other_files_are_refused_by_name(tmp_path: Path) -> None:
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


def test_text_alone_is_no_multiple_choice(tmp_path: Path) -> None:
    folder = golden("lighteval/since-0.10", tmp_path)
    with pytest.raises(DataError, match=r"town_text\|0 is no multiple choice"):
        read_logs([details(folder, "town_text|0")])


@pytest.mark.parametrize(
    ("cell", "value"),
    [
        ("[(-1.5, False), (nan, True)]", [(-1.5, False), (None, True)]),
        ("[-inf, 2.0]", [float("-inf"), 2.0]),
        ("[np.float64(-1.5)]", [-1.5]),
        ("['nan', \"it's inf\"]", ["nan", "it's inf"]),
        ("{'acc': 1}", {"acc": 1}),
    ],
)
def test_cells_spell_values_of_python(cell: str, value: object) -> None:
    assert _value(cell, "a cell") == value


@pytest.mark.parametrize("cell", ["__import__('os').remove('x')", "[" * 100_000, "[1, 2", "x" * 2_000_000])
def test_cells_run_no_code(cell: str) -> None:
    with pytest.raises(DataError, match="a cell holds"):
        _value(cell, "a cell")
