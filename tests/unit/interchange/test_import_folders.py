"""What becomes of the folder of an import: nothing is done twice or mixed, and one broken log loses no other."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from choicewise import evaluate, import_log, open_run
from choicewise.errors import ChoicewiseError, DataError, StoreError, UsageError
from choicewise.interchange.logs.import_log import read_logs, read_state, run_of_log
from choicewise.interchange.logs.log import Log, LoggedChoice, LoggedItem, checked_item
from choicewise.store.folder import RunFolder, read_sweep, write_manifest
from choicewise.store.tables import file_record
from tests.helpers.golden_logs import LOGS, golden
from tests.helpers.harness_logs import sums, table_rows, texts
from tests.helpers.imported_runs import one_run, values, write_csv
from tests.helpers.study import Study

BLOCK_ITEMS = "choicewise.interchange.logs.import_log.BLOCK_ITEMS"


def test_an_import_done_before_changes_nothing_and_something_else_is_refused(tmp_path: Path) -> None:
    path, out = write_csv(tmp_path / "t.csv", table_rows()), tmp_path / "run"
    run = one_run(path, out)
    before = {file: file.stat().st_mtime_ns for file in out.rglob("*")}
    import_log(path, out)
    assert before == {file: file.stat().st_mtime_ns for file in before}
    with pytest.raises(StoreError, match="another log"):
        import_log(write_csv(tmp_path / "u.csv", table_rows(7)), out)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "notes.txt").write_text("mine")
    with pytest.raises(StoreError, match="holds other files"):
        import_log(path, tmp_path / "full")
    assert values(run) == values(open_run(out))


def test_runs_that_were_asked_here_and_imports_do_not_mix(study: Study, tmp_path: Path) -> None:
    path, out = write_csv(tmp_path / "t.csv", table_rows()), tmp_path / "run"
    with pytest.raises(StoreError, match="asked here"):
        import_log(path, study.hash)
    import_log(path, out)
    with pytest.raises(StoreError, match="no model can go on with it"):
        evaluate(model="fake:hash", data=study.data, protocols=["mmlu/original"], out=out)


def test_a_killed_import_is_finished(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(BLOCK_ITEMS, 2)
    path, out = write_csv(tmp_path / "t.csv", table_rows(7)), tmp_path / "run"
    whole = one_run(path, tmp_path / "whole")
    add, blocks = RunFolder.add_block, iter(range(2))

    def killed(*arguments: Any) -> None:
        if next(blocks, None) is None:
            raise KeyboardInterrupt
        add(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(RunFolder, "add_block", killed)
        with pytest.raises(KeyboardInterrupt):
            import_log(path, out)
    assert not open_run(out).manifest.complete
    run = one_run(path, out)
    assert values(run) == values(whole)
    assert len(run.manifest.blocks) == 4


def test_mixed_subjects_make_blocks_of_their_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_csv(tmp_path / "t.csv", table_rows(11, subject=lambda item, choice: f"s{item % 3}"))
    scores = []
    for size in (3, 1000):
        monkeypatch.setattr(BLOCK_ITEMS, size)
        scores.append(one_run(path, tmp_path / f"{size}").scores("log:sum").sort_by("item"))
    assert scores[0].equals(scores[1])


def test_two_logs_of_the_same_are_refused(tmp_path: Path) -> None:
    paths = [write_csv(tmp_path / name, table_rows()) for name in ("a.csv", "b.csv")]
    with pytest.raises(UsageError, match=r"two of the logs \(a.csv and b.csv\) are of same on log"):
        import_log(paths, tmp_path / "runs", model="same")


def test_a_log_may_be_made_by_hand(tmp_path: Path) -> None:
    choices = tuple(LoggedChoice(value, f" {text}") for value, text in zip(sums(0), texts(0), strict=True))
    item = LoggedItem("1", (0,), choices, "Q:")
    log = Log("a tool", "m", "t", [item], null=None)
    run_of_log(log, tmp_path / "run")
    assert values(open_run(tmp_path / "run"))["sum"][1] == 1
    with pytest.raises(DataError, match="holds no items"):
        read_state(replace(log, items=[]))
    with pytest.raises(DataError, match="has no choices"):
        checked_item(replace(item, choices=()), "a tool")
    with pytest.raises(DataError, match="item '1' twice"):
        read_state(replace(log, items=[item, item]))


def test_formats_are_recognised_or_named(tmp_path: Path) -> None:
    path = write_csv(tmp_path / "t.csv", table_rows())
    (log,) = read_logs([path])
    assert log.tool == "a table"
    with pytest.raises(ChoicewiseError):
        read_logs([path], "harness")


def test_folders_without_the_later_columns_are_read(study: Study, tmp_path: Path) -> None:
    """Observations had no counts and flags before other tools' logs could have them."""
    run = evaluate(model="fake:hash", data=study.data, protocols=["mmlu/cloze:sum"], out=tmp_path / "run")
    expected, blocks = values(run), []
    for block in run.manifest.blocks:
        path = run.folder / "blocks" / block.name / "observations.parquet"
        pq.write_table(pq.ParquetFile(path).read().drop_columns(["token_count", "greedy"]), path)
        blocks.append(replace(block, files={**block.files, path.name: file_record(path)}))
    write_manifest(run.folder, replace(run.manifest, blocks=tuple(blocks), complete=False))
    assert values(open_run(run.folder)) == expected
    assert open_run(run.folder).observations()["token_count"].null_count > 0
    more = evaluate(model="fake:hash", data=study.data, protocols=["mmlu/cloze:token_mean"], out=run.folder)
    assert values(more)["sum"][1] == 12


# One broken log among others


def imported(path: Path | list[Path], out: Path, says: str) -> list[bool]:
    """Whether each log is a run, of an import that names what is broken."""
    with pytest.raises(DataError, match=f"(?s){says}.*the others are in"):
        import_log(path, out)
    cells = read_sweep(out).cells
    for cell in cells:
        assert bool(cell.failure) != cell.done
        assert not cell.done or open_run(out / cell.folder).manifest.complete
    return [cell.done for cell in cells]


def test_one_broken_table_leaves_the_others(tmp_path: Path) -> None:
    one = write_csv(tmp_path / "a.csv", table_rows())
    other = write_csv(tmp_path / "b.csv", [row | {"loglikelihood": 1.0} for row in table_rows()])
    assert imported([one, other], tmp_path / "runs", "b on log") == [True, False]
    assert [cell.model for cell in read_sweep(tmp_path / "runs").cells] == ["a", "b"]


def test_one_broken_log_of_inspect_leaves_the_others(tmp_path: Path) -> None:
    content = (LOGS / "inspect" / "finished.eval").read_bytes()
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "whole.eval").write_bytes(content)
    (tmp_path / "logs" / "cut.eval").write_bytes(content[:-300])
    assert sorted(imported(tmp_path / "logs", tmp_path / "runs", "cut.eval")) == [False, True]
    assert {cell.dataset: cell.done for cell in read_sweep(tmp_path / "runs").cells} == {"town": True, "cut": False}


def test_one_broken_run_of_helm_leaves_the_others(tmp_path: Path) -> None:
    suite = golden("helm", tmp_path)
    state = min(suite.rglob("scenario_state.json"))
    state.write_text(state.read_text()[:-200])
    done = imported(suite, tmp_path / "runs", "scenario_state.json")
    assert done.count(False) == 1
    assert any(done)


def test_one_broken_file_of_lighteval_leaves_the_others(tmp_path: Path) -> None:
    folder = golden("lighteval/since-0.10", tmp_path)
    file = min(folder.rglob("details_*.parquet"))
    file.with_name(file.name.replace("details_", "details_other")).write_bytes(file.read_bytes()[:-200])
    done = imported(folder, tmp_path / "runs", "can't be read as Parquet")
    assert done.count(False) == 1
    assert any(done)
