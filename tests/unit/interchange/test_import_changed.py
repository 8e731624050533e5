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

pytestmark = pytest.mark.costly("runs are written and read again")

HELM = next(LOGS.glob("helm/*failed*"))
VALUES: list[Any] = [None, True, -1, 2.5, float("nan"), "", "text", [], ["text"], {}, {"key": "text"}, [[1]]]
"""What a value becomes."""


def places(value: Any) -> Iterator[list[Any]]:
    """The paths to every value in a JSON value."""
    pairs = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in pairs:
        yield [key]
        yield from ([key, *rest] for rest in places(inner))


def put(value: Any, path: list[Any], new: Any) -> None:
    for key in path[:-1]:
        value = value[key]
    value[path[-1]] = new


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
@pytest.mark.parametrize("name", ["inspect/one-failed.json", "inspect/finished.json"])
def test_inspect(tmp_path: Path, data: st.DataObject, name: str) -> None:
    log = json.loads((LOGS / name).read_text(encoding="utf-8"))
    put(log, data.draw(st.sampled_from(list(places(log)))), data.draw(st.sampled_from(VALUES)))
    (tmp_path / "changed.json").write_text(json.dumps({"version": 2, "status": "success", **log}), encoding="utf-8")
    with suppress(DataError):
        for each in read_logs([tmp_path / "changed.json"], "inspect-log"):
            read_state(each)


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data(), file=st.sampled_from(["scenario_state.json", "run_spec.json"]))
def test_helm(tmp_path: Path, data: st.DataObject, file: str) -> None:
    content = {
        name: json.loads((HELM / name).read_text(encoding="utf-8")) for name in ("scenario_state.json", "run_spec.json")
    }
    put(content[file], data.draw(st.sampled_from(list(places(content[file])))), data.draw(st.sampled_from(VALUES)))
    for name, value in content.items():
        (tmp_path / name).write_text(json.dumps(value), encoding="utf-8")
    with suppress(DataError):
        for each in read_logs([tmp_path]):
            read_state(each)


@settings(max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
@pytest.mark.parametrize("layout", ["until-0.9", "since-0.10", "from-0.4"])
def test_lighteval(tmp_path: Path, data: st.DataObject, layout: str) -> None:
    source = next(file for file in (LOGS / "lighteval" / layout).rglob("*.parquet") if "text" not in file.name)
    rows = pq.read_table(source).to_pylist()
    row = data.draw(st.sampled_from(range(len(rows))))
    path = data.draw(st.sampled_from(list(places(rows[row]))))
    put(rows[row], path, data.draw(st.sampled_from(VALUES)))
    try:
        pq.write_table(pa.Table.from_pylist(rows), tmp_path / "details_changed.parquet")
    except (pa.ArrowException, TypeError, ValueError):  # a column has one type
        return
    with suppress(DataError):
        for each in read_logs([tmp_path]):
            read_state(each)
