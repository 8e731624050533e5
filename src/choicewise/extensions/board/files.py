"""The board as files in a folder."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from choicewise.extensions.board.library import read_snapshot
from choicewise.extensions.board.model import State
from choicewise.extensions.board.pages import check_place, write_board
from choicewise.page.embed import check_libraries
from choicewise.protocols.between import check_metrics
from choicewise.util.text import counted


def write_files(folders: Sequence[Path], out: Path, metrics: Sequence[str]) -> Iterator[str]:
    """Write the board of all runs below ``folders`` into ``out``; yield what runs lack, and what
    was written.

    Raises UsageError if ``out`` holds something else, and StoreError if nothing can be written.
    """
    check_libraries()
    check_place(out)
    check_metrics(metrics)
    snapshot = read_snapshot(folders, metrics)
    for run in snapshot.board.runs:
        if run.state is not State.READ:
            yield f"{run.label} is {run.state}: {run.reason}"
        elif run.reason:
            yield f"{run.label}: {run.reason}"
        for note in run.notes:
            yield f"note: {run.label}: {note}"
    first = write_board(snapshot, out)
    models = counted(len(snapshot.board.models), "model")
    runs = counted(len(snapshot.board.runs), "run")
    yield (
        f"wrote {first}, the board of {models} and {runs}; it opens from disk, and any web server "
        f"can show {out}"
    )
