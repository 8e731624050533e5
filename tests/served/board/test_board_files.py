"""The board as files in a folder."""

from pathlib import Path

import pytest

from choicewise import evaluate
from choicewise.data.dataset import Dataset
from choicewise.data.items import Item
from choicewise.errors import UsageError
from choicewise.extensions.board.files import write_files
from tests.paths import ROOT


@pytest.mark.costly("a board is written")
def test_the_board_is_written_with_its_style_and_script(tmp_path: Path) -> None:
    items = tuple(Item(name, "Where?", ("in a tree", "in the sea"), (0,)) for name in "abc")
    data = Dataset("quiz", {"test": items})
    evaluate(
        model="fake:hash", data=data, protocols=["options/cloze:sum"], out=tmp_path / "runs" / "run"
    )
    (tmp_path / "runs" / "lost").mkdir()
    (tmp_path / "runs" / "lost" / "run.json").write_text("{")
    out = tmp_path / "board"
    *_, last = write_files([tmp_path / "runs"], out, ())
    assert last.startswith(f"wrote {out / 'index.html'}, the board of 1 model and ")
    page = (out / "index.html").read_text("utf-8")
    style = (ROOT / "src/choicewise/extensions/board/static/board.css").read_text("utf-8")
    for part in ("fake:hash", style.splitlines()[0], "addEventListener"):
        assert part in page
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "thesis.tex").write_text("mine")
    with pytest.raises(UsageError, match="no board"):
        list(write_files([tmp_path / "runs"], tmp_path / "other", ()))
