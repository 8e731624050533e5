"""What a notebook or a prompt shows of a run and of a dataset, and the scores of one protocol."""

from __future__ import annotations

from pathlib import Path

import pytest

import choicewise
from choicewise.data.dataset import Dataset
from choicewise.data.items import Item
from choicewise.errors import ProtocolError
from tests.helpers.mmlu_data import write_mmlu

EVIL = "<b>\x1b[31m\n&"


@pytest.fixture
def run(tmp_path: Path) -> choicewise.Run:
    data = write_mmlu(tmp_path / "data")
    protocols = ["mmlu/original", "mmlu/cloze"]
    return choicewise.evaluate(model="fake:hash", data=data, protocols=protocols, out=tmp_path / "a <run>")


def test_a_run_is_a_line_and_a_small_table(run: choicewise.Run) -> None:
    folder = str(run.folder)
    count = len(run.protocols)
    shown = f"<Run of 'fake:hash' on 'data': 12 items, {count} protocols, complete, in {folder!r}>"
    assert repr(run) == shown
    html = run._repr_html_()
    assert "<td>12</td>" in html
    assert "a &lt;run&gt;" in html
    assert "a <run>" not in html


def test_a_dataset_is_a_line_and_a_small_table() -> None:
    item = Item("1", EVIL, ("a", "b"), (0,), "")
    dataset = Dataset(EVIL, {"test": (item,) * 1000, "dev": (item,)})
    assert repr(dataset) == "<Dataset '<b>\\x1b[31m\\n&': 1000 test, 1 dev items, 0 rows skipped>"
    assert repr(Dataset("empty", {})) == "<Dataset 'empty': no items, 0 rows skipped>"
    html = dataset._repr_html_()
    assert "&lt;b&gt;" in html
    assert "<b>" not in html
    assert "<td>1000</td>" in html


def test_scores_of_one_protocol(run: choicewise.Run) -> None:
    every = run.scores().to_pylist()
    (name,) = [name for name in run.protocols if name == "mmlu/original"]
    assert run.scores(name).to_pylist() == [row for row in every if row["protocol"] == name]
    family = run.scores("mmlu/cloze").to_pylist()
    assert family == [row for row in every if row["protocol"].startswith("mmlu/cloze")]
    assert len({row["protocol"] for row in family}) > 1
    with pytest.raises(ProtocolError, match="did you mean mmlu/original"):
        run.scores("mmlu/orginal")
