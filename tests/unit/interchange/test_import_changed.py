"""Logs in which any one value is another: they are read, or refused by name; nothing ends in a crash."""

import json
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from choicewise.errors import DataError
from choicewise.interchange.logs.import_log import read_logs, read_state
from tests.helpers.golden_logs import LOGS

HELM = next(LOGS.glob("helm/*failed*"))
VALUES: list[Any] = [None, True, -1, 2.5, float("nan"), "", "text", [], ["text"], {}, {"key": "text"}, [[1]]]
"""What a value becomes."""


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


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
@pytest.mark.parametrize("name", ["inspect/one-failed.json", "inspect/finished.json"])
def test_inspect(tmp_path: Path, data: st.DataObject, name: str) -> None:
    log = changed(json.loads((LOGS / name).read_text(encoding="utf-8")), data)
    (tmp_path / "changed.json").write_text(json.dumps({"version": 2, "status": "success", **log}), encoding="utf-8")
    read_whole(tmp_path / "changed.json", "inspect-log")


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data(), wrong=st.sampled_from(["scenario_state.json", "run_spec.json"]))
def test_helm(tmp_path: Path, data: st.DataObject, wrong: str) -> None:
    for file in ("scenario_state.json", "run_spec.json"):
        content = json.loads((HELM / file).read_text(encoding="utf-8"))
        value = changed(content, data) if file == wrong else content
        (tmp_path / file).write_text(json.dumps(value), encoding="utf-8")
    read_whole(tmp_path)


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
@pytest.mark.parametrize("layout", ["until-0.9", "since-0.10", "from-0.4"])
def test_lighteval(tmp_path: Path, data: st.DataObject, layout: str) -> None:
    source = next(file for file in (LOGS / "lighteval" / layout).rglob("*.parquet") if "text" not in file.name)
    try:
        table = pa.Table.from_pylist(changed(pq.read_table(source).to_pylist(), data))
        pq.write_table(table, tmp_path / "details_changed.parquet")
    except (pa.ArrowException, AttributeError, TypeError, ValueError):  # a column has one type
        return
    read_whole(tmp_path)
