"""Files and folders of users: one writer at a time."""

import fcntl
import os
from pathlib import Path

import pytest

from choicewise.errors import StoreError
from choicewise.util.files import PARTIAL, new_folder


def test_a_folder_has_one_writer_and_the_second_one_damages_nothing(tmp_path: Path) -> None:
    out = tmp_path / "out"
    with new_folder(out) as partial:
        (partial / "first").write_text("")
        with pytest.raises(StoreError, match=f"another process is writing to {out}; wait for it"), new_folder(out):
            pass
        (partial / "second").write_text("")
    assert sorted(path.name for path in out.iterdir()) == ["first", "second"]


def test_what_a_killed_writer_left_is_removed(tmp_path: Path) -> None:
    left = tmp_path / f"out{PARTIAL}"
    left.mkdir()
    (left / "half").write_text("")
    with new_folder(tmp_path / "out") as partial:
        (partial / "whole").write_text("")
    assert [path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*")] == ["out", "out/whole"]


def test_a_folder_is_written_where_no_file_system_has_locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(95, os.strerror(95))

    monkeypatch.setattr(fcntl, "flock", refuse)
    with new_folder(tmp_path / "out") as partial:
        (partial / "file").write_text("")
    assert (tmp_path / "out" / "file").exists()
