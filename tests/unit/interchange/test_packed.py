"""Zip archives of other tools: both ways of packing, and the archives that are refused."""

import struct
import zipfile
from pathlib import Path

import pyarrow as pa
import pytest

from choicewise.errors import DataError
from choicewise.interchange.logs import files as packed
from choicewise.interchange.logs.files import ZSTANDARD, unpacked

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


def test_members_are_read_whichever_way_they_are_packed(tmp_path: Path) -> None:
    for name in ("log.zip", "other.zip"):
        path = tmp_path / name
        made = archive(path, {"samples/a.json": TEXT}) if name == "log.zip" else zstandard(path, "samples/a.json", TEXT)
        with unpacked(made) as members:
            assert members.names == ("samples/a.json",)
            assert members.read("samples/a.json") == TEXT


def test_a_bomb_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packed, "_CHUNK", 1 << 12)
    monkeypatch.setattr(packed, "LARGEST", 1 << 16)
    for made in (
        archive(tmp_path / "deflate.zip", {"a": bytes(1 << 20)}),
        zstandard(tmp_path / "zstd.zip", "a", bytes(1 << 20)),
    ):
        with unpacked(made) as members, pytest.raises(DataError, match="a unpacks to more than .* bytes"):
            members.read("a")


def test_overlapping_members_are_refused(tmp_path: Path) -> None:
    path = archive(tmp_path / "log.zip", {"a": TEXT, "b": TEXT}, zipfile.ZIP_STORED)
    data = bytearray(path.read_bytes())
    first = data.index(b"PK\x01\x02")
    struct.pack_into("<I", data, first + 20, 100_000)
    path.write_bytes(bytes(data))
    with pytest.raises(DataError, match="members that overlap"), unpacked(path):
        pass


def test_damage_is_named(tmp_path: Path) -> None:
    path = archive(tmp_path / "log.zip", {"a": TEXT}, zipfile.ZIP_STORED)
    data = bytearray(path.read_bytes())
    data[60] ^= 1
    path.write_bytes(bytes(data))
    with unpacked(path) as members, pytest.raises(DataError, match="log.zip: a .*copy the log again"):
        members.read("a")
    path.write_bytes(bytes(data[:200]))
    with pytest.raises(DataError, match="no zip archive, or cut off"), unpacked(path):
        pass
    cut = zstandard(tmp_path / "cut.zip", "a", TEXT)
    content = bytearray(cut.read_bytes())
    content[40] ^= 0xFF
    cut.write_bytes(bytes(content))
    with unpacked(cut) as members, pytest.raises(DataError, match="a (can't be unpacked|is damaged)"):
        members.read("a")


def test_encrypted_members_are_refused(tmp_path: Path) -> None:
    path = archive(tmp_path / "log.zip", {"a": TEXT}, zipfile.ZIP_STORED)
    data = bytearray(path.read_bytes())
    data[data.index(b"PK\x01\x02") + 8] |= 1
    path.write_bytes(bytes(data))
    with unpacked(path) as members, pytest.raises(DataError, match="a is encrypted"):
        members.read("a")
