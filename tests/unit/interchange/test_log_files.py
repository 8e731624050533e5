"""Files of other tools: JSON part by part against the whole at once, zip archives, and what is refused of them."""

import json
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from choicewise.errors import DataError
from choicewise.interchange.logs import files
from choicewise.interchange.logs.files import ZSTANDARD, parts, unpacked, whole

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=10,
)


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
    monkeypatch.setattr(files, "_CHUNK", chunk)
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


def test_a_part_has_a_bound_and_an_absent_file_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "LONGEST", 100)
    monkeypatch.setattr(files, "_CHUNK", 10)
    file = tmp_path / "log.json"
    file.write_text(json.dumps({"samples": ["x" * 1000]}), encoding="utf-8")
    with pytest.raises(DataError, match="more than 100 characters"):
        list(parts(file, "samples"))
    with pytest.raises(DataError, match="none.json can't be read"):
        list(parts(tmp_path / "none.json", "samples"))


# Archives

TEXT = b"a sample " * 1000


def archive(path: Path, members: dict[str, bytes], method: int = zipfile.ZIP_DEFLATED) -> Path:
    with zipfile.ZipFile(path, "w", method) as file:
        for name, content in members.items():
            file.writestr(name, content)
    return path


def zstandard(path: Path, name: str, content: bytes) -> Path:
    """An archive with one member as Inspect packs it, which Python's own module can't write before 3.14."""
    compressed = pa.Codec("zstd").compress(content, asbytes=True)
    archive(path, {name: compressed}, zipfile.ZIP_STORED)
    data = bytearray(path.read_bytes())
    checksum = zipfile.crc32(content)  # type: ignore[attr-defined]
    central = data.index(b"PK\x01\x02")
    for start, method, sizes in ((0, 8, 14), (central, 10, 16)):
        struct.pack_into("<H", data, start + method, ZSTANDARD)
        struct.pack_into("<III", data, start + sizes, checksum, len(compressed), len(content))
    path.write_bytes(bytes(data))
    return path


def both(folder: Path, name: str, content: bytes) -> list[Path]:
    """Archives with one member, packed in each of the ways."""
    return [archive(folder / "deflate.zip", {name: content}), zstandard(folder / "zstd.zip", name, content)]


def test_members_are_read_whichever_way_they_are_packed(tmp_path: Path) -> None:
    for path in both(tmp_path, "samples/a.json", TEXT):
        with unpacked(path) as members:
            assert members.names == ("samples/a.json",)
            assert members.read("samples/a.json") == TEXT


def test_a_bomb_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "_CHUNK", 1 << 12)
    monkeypatch.setattr(files, "LARGEST", 1 << 16)
    for path in both(tmp_path, "a", bytes(1 << 20)):
        with unpacked(path) as members, pytest.raises(DataError, match="a unpacks to more than .* bytes"):
            members.read("a")


def stored(folder: Path, members: str, change: Callable[[bytearray, int], object]) -> Path:
    """An archive that is not packed, changed where its directory begins."""
    path = archive(folder / "log.zip", dict.fromkeys(members, TEXT), zipfile.ZIP_STORED)
    data = bytearray(path.read_bytes())
    change(data, data.index(b"PK\x01\x02"))
    path.write_bytes(bytes(data))
    return path


def test_overlapping_members_are_refused(tmp_path: Path) -> None:
    path = stored(tmp_path, "ab", lambda data, place: struct.pack_into("<I", data, place + 20, 100_000))
    with pytest.raises(DataError, match="members that overlap"), unpacked(path):
        pass


def test_encrypted_members_are_refused(tmp_path: Path) -> None:
    path = stored(tmp_path, "a", lambda data, place: data.__setitem__(place + 8, data[place + 8] | 1))
    with unpacked(path) as members, pytest.raises(DataError, match="a is encrypted"):
        members.read("a")


def test_damage_is_named(tmp_path: Path) -> None:
    path = stored(tmp_path, "a", lambda data, _: data.__setitem__(60, data[60] ^ 1))
    with unpacked(path) as members, pytest.raises(DataError, match="log.zip: a .*copy the log again"):
        members.read("a")
    path.write_bytes(path.read_bytes()[:200])
    with pytest.raises(DataError, match="no zip archive, or cut off"), unpacked(path):
        pass
    cut = zstandard(tmp_path / "cut.zip", "a", TEXT)
    content = bytearray(cut.read_bytes())
    content[40] ^= 0xFF
    cut.write_bytes(bytes(content))
    with unpacked(cut) as members, pytest.raises(DataError, match="a (can't be unpacked|is damaged)"):
        members.read("a")
