"""Parquet files: what is written is read again, and what would take too much memory is refused before it is read."""

import io

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from choicewise.util import tables as module
from choicewise.util.files import Refused
from choicewise.util.tables import open_parquet, unpacked, write_parquet

TABLE = pa.table(
    {"text": ["the same long text" * 50] * 3000, "number": pa.array(range(3000), pa.int64())}
)


def written(*tables: pa.Table, **options: object) -> io.BytesIO:
    write_parquet(file := io.BytesIO(), iter(tables), tables[0].schema, **options)
    return file


def test_what_is_written_is_read_again() -> None:
    write_parquet(whole := io.BytesIO(), TABLE)
    parts, bare = (
        written(TABLE[:1000], TABLE[1000:]),
        written(TABLE, repeated=["text"], statistics=False),
    )
    for file, groups in ((whole, 1), (parts, 2), (bare, 1)):
        opened = open_parquet(file)
        assert (opened.read(), opened.num_row_groups) == (TABLE, groups)
    columns = [
        [open_parquet(file).metadata.row_group(0).column(n) for n in (0, 1)]
        for file in (whole, bare)
    ]
    assert [[each.has_dictionary_page for each in own] for own in columns] == [
        [True, True],
        [True, False],
    ]
    assert [[each.is_stats_set for each in own] for own in columns] == [
        [True, True],
        [False, False],
    ]
    assert {each.compression for own in columns for each in own} == {"ZSTD"}


def test_the_memory_of_a_table_is_known_before_it_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    file = written(TABLE[:1000], TABLE[1000:])
    assert (
        TABLE.nbytes <= unpacked(file) <= 1.1 * TABLE.nbytes
    )  # though the file has a hundredth of that
    assert 8 * 3000 <= unpacked(file, ["number"]) <= 3 * 8 * 3000
    assert unpacked(file, []) == 0
    # Every text is counted as the longest one, unless they are counted one by one.
    uneven = pa.table({"text": ["x" * 9000, *["y"] * 999]})
    repeated = written(uneven)
    assert unpacked(repeated) > 9_000_000 > 30_000 > unpacked(repeated, counted=True) > 9999
    monkeypatch.setattr(module, "AT_ONCE", TABLE.nbytes * 3 // 4)
    with pytest.raises(Refused, match=r"[\d,]+ bytes of memory; .* 2,0\d\d,000"):
        unpacked(file)
    assert unpacked(file, whole=False) >= TABLE.nbytes  # no row group is too much
    monkeypatch.setattr(module, "IN_ALL", TABLE.nbytes // 2)
    with pytest.raises(Refused, match="bytes of memory"):
        unpacked(file, whole=False)


def test_a_damaged_file_is_refused() -> None:
    content = written(TABLE).getvalue()
    start = pq.read_metadata(io.BytesIO(content)).row_group(0).column(1).dictionary_page_offset
    holed = content[:start] + b"\xff" * 40 + content[start + 40 :]
    with pytest.raises(Refused, match=f"what lies at byte {start:,} is no page"):
        unpacked(io.BytesIO(holed))
    with pytest.raises(Refused, match="its footer is damaged"):
        unpacked(io.BytesIO(b"\0" * 100 + content[-8:]))
    with pytest.raises(Refused, match="its footer .* 10,000,000 bytes"):
        open_parquet(io.BytesIO(b"\0" * 10_000_100 + (10_000_001).to_bytes(4, "little") + b"PAR1"))
    with pytest.raises(pa.ArrowException):
        open_parquet(io.BytesIO(b"no Parquet file"))
