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


def test_an_import_done_before_changes_nothing_and_other_runs_are_refused(study: Study, tmp_path: Path) -> None:
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
    with pytest.raises(StoreError, match="asked here"):
        import_log(path, study.hash)
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


def test_two_logs_of_the_same_and_logs_of_another_format_are_refused(tmp_path: Path) -> None:
    paths = [write_csv(tmp_path / name, table_rows()) for name in ("a.csv", "b.csv")]
    with pytest.raises(UsageError, match=r"two of the logs \(a.csv and b.csv\) are of same on log"):
        import_log(paths, tmp_path / "runs", model="same")
    assert read_logs(paths[:1])[0].tool == "a table"
    with pytest.raises(ChoicewiseError):
        read_logs(paths[:1], "harness")


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


def logs_with_a_broken_one(kind: str, folder: Path) -> Path | list[Path]:
    if kind == "table":
        rows = {"a": table_rows(), "b": [row | {"loglikelihood": 1.0} for row in table_rows()]}
        return [write_csv(folder / f"{name}.csv", own) for name, own in rows.items()]
    if kind == "inspect":
        (folder / "logs").mkdir()
        content = (LOGS / "inspect" / "finished.eval").read_bytes()
        for name, end in (("town", None), ("cut", -300)):
            (folder / "logs" / f"{name}.eval").write_bytes(content[:end])
        return folder / "logs"
    suite = golden("helm" if kind == "helm" else "lighteval/since-0.10", folder)
    file = min(suite.rglob("scenario_state.json" if kind == "helm" else "details_*.parquet"))
    broken = file if kind == "helm" else file.with_name(file.name.replace("details_", "details_other"))
    broken.write_bytes(file.read_bytes()[:-200])
    return suite


BROKEN = {"table": "b on log", "inspect": "cut.eval", "helm": "scenario_state.json"}
BROKEN |= {"lighteval": "can't be read as Parquet"}


@pytest.mark.parametrize("kind", BROKEN)
def test_one_broken_log_is_named_and_leaves_the_others(kind: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=f"(?s){BROKEN[kind]}.*the others are in"):
        import_log(logs_with_a_broken_one(kind, tmp_path), tmp_path / "runs")
    cells = read_sweep(tmp_path / "runs").cells
    for cell in cells:
        assert bool(cell.failure) != cell.done
        assert not cell.done or open_run(tmp_path / "runs" / cell.folder).manifest.complete
    done = [cell.done for cell in cells]
    assert (done.count(False), any(done)) == (1, True)
    named = {"table": [("a", True), ("b", False)], "inspect": [("cut", False), ("town", True)]}
    if kind in named:
        assert sorted((cell.model if kind == "table" else cell.dataset, cell.done) for cell in cells) == named[kind]
