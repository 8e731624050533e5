"""Files and folders of users: one writer at a time; names, JSON and TOML of strangers end in errors."""

import fcntl
import os
from pathlib import Path

import pytest

from choicewise.data.files import read_toml
from choicewise.data.items import people_counts
from choicewise.errors import DataError, StoreError, UsageError
from choicewise.util.files import PARTIAL, new_folder
from choicewise.util.jsonio import DEEPEST, read_json
from choicewise.util.text import check_name


def test_a_folder_has_one_writer_and_the_second_one_damages_nothing(tmp_path: Path) -> None:
    out = tmp_path / "out"
    with new_folder(out) as partial:
        (partial / "first").write_text("")
        with (
            pytest.raises(StoreError, match=f"process is writing to {out}; wait for it"),
            new_folder(out),
        ):
            pass
        (partial / "second").write_text("")
    assert sorted(path.name for path in out.iterdir()) == ["first", "second"]


def test_what_a_killed_writer_left_is_removed(tmp_path: Path) -> None:
    left = tmp_path / f"out{PARTIAL}"
    left.mkdir()
    (left / "half").write_text("")
    with new_folder(tmp_path / "out") as partial:
        (partial / "whole").write_text("")
    assert [path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*")] == [
        "out",
        "out/whole",
    ]


def test_a_folder_is_written_where_no_file_system_has_locks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(95, os.strerror(95))

    monkeypatch.setattr(fcntl, "flock", refuse)
    with new_folder(tmp_path / "out") as partial:
        (partial / "file").write_text("")
    assert (tmp_path / "out" / "file").exists()


@pytest.mark.parametrize("depth", [DEEPEST + 1, 900, 100_000])
def test_json_that_is_nested_too_deeply_is_an_error(depth: int) -> None:
    with pytest.raises(ValueError, match="nested too deeply"):
        read_json("[" * depth + "]" * depth)


def test_json_of_a_usual_depth_is_read() -> None:
    assert read_json("[" * DEEPEST + "1" + "]" * DEEPEST)
    assert read_json('{"a": [1, {"b": null}]}') == {"a": [1, {"b": None}]}


KEY = ".".join(["a"] * 30_000)
DEEP_TOML = [
    f"{KEY} = 1",
    f"[{KEY}]\nb = 1",
    f"[[ {KEY} ]]",
    f"x = {{ {KEY} = 1 }}",
    f"'a' . \"b\" . {KEY} = 1",
]


@pytest.mark.parametrize("text", DEEP_TOML, ids=["key", "table", "list", "inline", "quoted"])
def test_a_key_of_thirty_thousand_parts_is_an_error(text: str) -> None:
    """The parser of Python takes gigabytes for one of the first kind."""
    with pytest.raises(ValueError, match="nested too deeply"):
        read_toml(text)


def test_dots_in_texts_are_no_key() -> None:
    dots = ".".join(["a"] * 300)
    assert read_toml(f'a.b = "{dots}"\nc = """\n{dots}\n"""') == {
        "a": {"b": dots},
        "c": f"{dots}\n",
    }


@pytest.mark.parametrize(
    "counts", ["[1e308, 1e308]", f"[1{'0' * 400}, 1]", "[-1, 1]", "[NaN, 1]", "[true, 1]"]
)
def test_counts_of_people_that_no_question_has_are_an_error(counts: str) -> None:
    with pytest.raises(DataError, match="list of counts .* 1,000,000,000,000"):
        people_counts("q1", counts, 2)


def test_a_name_that_is_no_utf_8_is_an_error() -> None:
    with pytest.raises(UsageError, match=r"--out is 'a\\udcff', which is not UTF-8"):
        check_name(os.fsdecode(b"a\xff"), "--out")
