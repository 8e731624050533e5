"""One broken log among others: it is named, and the others become runs, whichever tool wrote them."""

from __future__ import annotations

from pathlib import Path

import pytest

from choicewise import import_log, open_run
from choicewise.errors import DataError
from choicewise.store.folder import read_sweep
from tests.helpers.golden_logs import LOGS, golden


def imported(folder: Path, out: Path, says: str) -> dict[str, bool]:
    """Task → whether it is a run, of an import that names what is broken."""
    with pytest.raises(DataError, match=says):
        import_log(folder, out)
    cells = {cell.dataset: cell for cell in read_sweep(out).cells}
    for cell in cells.values():
        assert bool(cell.failure) != cell.done
        assert not cell.done or open_run(out / cell.folder).manifest.complete
    return {task: cell.done for task, cell in cells.items()}


def test_of_inspect(tmp_path: Path) -> None:
    folder = tmp_path / "logs"
    folder.mkdir()
    (folder / "whole.eval").write_bytes((LOGS / "inspect" / "finished.eval").read_bytes())
    (folder / "cut.eval").write_bytes((LOGS / "inspect" / "finished.eval").read_bytes()[:-300])
    assert imported(folder, tmp_path / "runs", "cut.eval.*the others are in") == {"town": True, "cut": False}


def test_of_helm(tmp_path: Path) -> None:
    suite = golden("helm", tmp_path)
    folders = sorted({file.parent for file in suite.rglob("scenario_state.json")})
    assert len(folders) > 1
    state = folders[0] / "scenario_state.json"
    state.write_text(state.read_text()[:-200])
    done = imported(suite, tmp_path / "runs", "scenario_state.json.*the others are in")
    assert sorted(done.values()).count(False) == 1
    assert any(done.values())


def test_of_lighteval(tmp_path: Path) -> None:
    folder = golden("lighteval/since-0.10", tmp_path)
    file = min(folder.rglob("details_*.parquet"))
    other = file.with_name(file.name.replace("details_", "details_other"))
    other.write_bytes(file.read_bytes()[:-200])
    done = imported(folder, tmp_path / "runs", "can't be read as Parquet.*the others are in")
    assert [*done.values()].count(False) == 1
    assert any(done.values())
