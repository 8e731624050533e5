"""Logs that other tools wrote: all of them is read and verdicts follow; with any value changed, nothing crashes."""

import json
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, astuple, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from syrupy.assertion import SnapshotAssertion

from choicewise.errors import DataError
from choicewise.interchange.logs.files import recognise
from choicewise.interchange.logs.import_log import read_logs, read_state
from tests.helpers.golden_logs import LOGS, golden

NAMES = ["helm", "inspect/finished.json", "inspect/one-failed.json"]
NAMES += ["lighteval/until-0.9", "lighteval/from-0.4", "lighteval/since-0.10"]


@pytest.mark.parametrize("name", NAMES)
def test_all_of_a_log_is_read_and_its_verdicts_follow(name: str, tmp_path: Path, snapshot: SnapshotAssertion) -> None:
    path = golden(name, tmp_path)
    logs = read_logs([path])
    assert {(log.tool, log.task): read_state(log).notes for log in logs if read_state(log).notes} == {}
    lines = [line for log in logs for line in (asdict(replace(log, items=())), *map(astuple, log.items))]
    assert "\n".join(map(str, (recognise(path), *lines))) == snapshot


def test_a_file_alone_is_recognised_as_its_folder_is_and_an_archive_says_what_json_says(tmp_path: Path) -> None:
    assert recognise(next(golden("helm", tmp_path).rglob("scenario_state.json"))) == "helm"
    assert recognise(next(golden("lighteval/until-0.9", tmp_path).rglob("*town_pmi*.parquet"))) == "lighteval"
    assert recognise(LOGS / "inspect" / "finished.eval") == "inspect-log"
    logs = [read_logs([LOGS / "inspect" / f"finished.{ending}"])[0] for ending in ("eval", "json")]
    one, other = (replace(log, items=list(log.items), settings={**log.settings, "created": ""}) for log in logs)
    assert one == other


def test_cells_of_lighteval_that_are_text_say_what_columns_say(tmp_path: Path) -> None:
    (text,) = read_logs([golden("lighteval/from-0.4", tmp_path)])
    columns = {log.task: log for log in read_logs([golden("lighteval/until-0.9", tmp_path)])}
    bells = [item for item in columns["leaderboard|town|5|0"].items if item.subject == "bells"]
    assert [(item.choices, item.recorded) for item in text.items] == [(item.choices, item.recorded) for item in bells]


# The same with any one value changed

HELM = next(LOGS.glob("helm/*failed*"))
VALUES: list[Any] = [None, True, -1, 2.5, float("nan"), "", "text", [], ["text"], {}, {"key": "text"}, [[1]]]
"""What a value becomes."""

FORTY = settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])


def places(value: Any) -> Iterator[list[Any]]:
    """The paths to every value in a JSON value."""
    pairs = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in pairs:
        yield [key]
        yield from ([key, *rest] for rest in places(inner))


def changed(value: Any, data: st.DataObject) -> Any:
    """The same with another value in one place."""
    path = data.draw(st.sampled_from(list(places(value))))
    inner = value
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = data.draw(st.sampled_from(VALUES))
    return value


def read_whole(path: Path, format: str | None = None) -> None:
    with suppress(DataError):
        for log in read_logs([path], format):
            read_state(log)


@FORTY
@given(data=st.data())
@pytest.mark.parametrize("name", ["inspect/one-failed.json", "inspect/finished.json"])
def test_a_changed_log_of_inspect_is_read_or_refused(tmp_path: Path, data: st.DataObject, name: str) -> None:
    log = changed(json.loads((LOGS / name).read_text(encoding="utf-8")), data)
    (tmp_path / "changed.json").write_text(json.dumps({"version": 2, "status": "success", **log}), encoding="utf-8")
    read_whole(tmp_path / "changed.json", "inspect-log")


@FORTY
@given(data=st.data(), wrong=st.sampled_from(["scenario_state.json", "run_spec.json"]))
def test_a_changed_run_of_helm_is_read_or_refused(tmp_path: Path, data: st.DataObject, wrong: str) -> None:
    for file in ("scenario_state.json", "run_spec.json"):
        content = json.loads((HELM / file).read_text(encoding="utf-8"))
        value = changed(content, data) if file == wrong else content
        (tmp_path / file).write_text(json.dumps(value), encoding="utf-8")
    read_whole(tmp_path)


@FORTY
@given(data=st.data())
@pytest.mark.parametrize("layout", ["until-0.9", "since-0.10", "from-0.4"])
def test_changed_details_of_lighteval_are_read_or_refused(tmp_path: Path, data: st.DataObject, layout: str) -> None:
    source = next(file for file in (LOGS / "lighteval" / layout).rglob("*.parquet") if "text" not in file.name)
    try:
        table = pa.Table.from_pylist(changed(pq.read_table(source).to_pylist(), data))
        pq.write_table(table, tmp_path / "details_changed.parquet")
    except (pa.ArrowException, AttributeError, TypeError, ValueError):  # a column has one type
        return
    read_whole(tmp_path)
