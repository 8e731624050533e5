"""A ladder in a table: every axis has a row, or is among those without effect."""

from pathlib import Path

from choicewise import evaluate, ladder
from choicewise.extensions.comparison.ladder_report import ladder_table
from choicewise.protocols.between import MARK
from tests.helpers.mmlu_data import write_mmlu

ENDS = "mmlu/original", "mmlu/harness-v0"


def test_every_axis_has_a_row_or_has_no_effect(tmp_path: Path) -> None:
    data = write_mmlu(tmp_path / "data", ("trees",), 4)
    run = evaluate(model="fake:hash", data=data, protocols=[MARK.join(ENDS)], out=tmp_path / "run")
    both = ladder(run, *ENDS)
    table = ladder_table(both)
    assert all(end in table.title for end in ENDS)
    rows = [row[0] for row in table.rows]
    unmoved = [note for note in table.notes if note.startswith("no effect: ")]
    named = [word.strip(",") for cell in (*rows, *unmoved) for word in cell.split()]
    assert rows
    for turn in both.turns:
        assert set(turn.axes) <= set(named)
