"""JSON files of other tools part by part, against the whole at once, and what is wrong with broken ones."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from choicewise.errors import DataError
from choicewise.interchange.logs import files as json_parts
from choicewise.interchange.logs.files import parts, whole

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=10,
)


@pytest.mark.costly("runs are written and read again")
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.dictionaries(st.text(), VALUES), st.lists(VALUES), st.integers(1, 9), st.sampled_from([None, 1]))
def test_parts_are_the_whole(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    members: dict[str, Any],
    elements: list[Any],
    chunk: int,
    indent: int | None,
) -> None:
    monkeypatch.setattr(json_parts, "_CHUNK", chunk)
    members.pop("samples", None)
    file = tmp_path / "log.json"
    file.write_text(json.dumps({**members, "samples": elements}, indent=indent), encoding="utf-8")
    read = list(parts(file, "samples"))
    assert dict(each for each in read if each[0] != "samples") == members
    assert [value for key, value in read if key == "samples"] == elements
    file.write_text(json.dumps(elements, indent=indent), encoding="utf-8")
    assert [value for _, value in parts(file, "samples")] == elements == whole(file)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "ends too early"),
        (b'{"samples": [1, 2', "ends too early"),
        (b'{"samples": [{"a": 1}, {"a": 2', "delimiter"),
        (b'{"samples": [1 2]}', "a comma is expected"),
        (b'{"eval": "x', "Unterminated"),
        (b'{"eval" 1}', "a key is expected"),
        (b"[" * 100_000, "nested too deeply"),
        (b'{"eval": "\xff"}', "not UTF-8"),
        (b"7", "begins with no object"),
    ],
)
def test_broken_files_say_where(tmp_path: Path, content: bytes, reason: str) -> None:
    file = tmp_path / "log.json"
    file.write_bytes(content)
    with pytest.raises(DataError, match=f"(?s)log.json is no JSON after character .*{reason}"):
        list(parts(file, "samples"))


def test_a_part_has_a_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_parts, "LONGEST", 100)
    monkeypatch.setattr(json_parts, "_CHUNK", 10)
    file = tmp_path / "log.json"
    file.write_text(json.dumps({"samples": ["x" * 1000]}), encoding="utf-8")
    with pytest.raises(DataError, match="more than 100 characters"):
        list(parts(file, "samples"))


def test_an_absent_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="none.json can't be read"):
        list(parts(tmp_path / "none.json", "samples"))
