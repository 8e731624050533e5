"""What a notebook or a prompt shows of a run and of a dataset, and the scores of one protocol."""

from pathlib import Path

import pytest

import choicewise
from choicewise.data.dataset import Dataset
from choicewise.data.items import Item
from choicewise.errors import ProtocolError
from tests.helpers.study import Study

EVIL = "<b>\x1b[31m\n&"


def test_a_run_is_a_line_and_a_small_table(study: Study, tmp_path: Path) -> None:
    run = choicewise.open_run(study.copy(tmp_path / "a <run>"))
    about = f"12 items, {len(run.protocols)} protocols, complete, in {str(run.folder)!r}"
    assert repr(run) == f"<Run of 'fake:hash' on 'data': {about}>"
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


def test_scores_of_one_protocol(study: Study) -> None:
    run = study.runs[0]
    every = run.scores().to_pylist()
    assert run.scores("mmlu/original").to_pylist() == [
        row for row in every if row["protocol"] == "mmlu/original"
    ]
    family = run.scores("mmlu/cloze").to_pylist()
    assert family == [row for row in every if row["protocol"].startswith("mmlu/cloze")]
    assert len({row["protocol"] for row in family}) > 1
    with pytest.raises(ProtocolError, match="did you mean mmlu/original"):
        run.scores("mmlu/orginal")
