"""The board as a value: what shares a column, what a word stands for, ranks, filters and orders."""

from __future__ import annotations

import csv
import io
import json
import math
import os
import shlex
import shutil
import tempfile
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from itertools import pairwise
from pathlib import Path
from statistics import median
from urllib.parse import parse_qsl

import pytest
from hypothesis import given
from hypothesis import strategies as st

from choicewise.board import runs as module
from choicewise.board.library import Decisions, Library, discover
from choicewise.board.model import (
    Board,
    Cell,
    ListedRun,
    Snapshot,
    State,
    board,
    short,
    slug,
)
from choicewise.board.pages import Links, board_page, guessed, run_command
from choicewise.board.records import (
    View,
    as_json,
    board_csv,
    board_record,
    chosen_columns,
    handful,
    headings,
    known_view,
    order_of,
    read_view,
    shown,
    sorted_by,
)
from choicewise.board.runs import RunProcess
from choicewise.errors import StoreError
from choicewise.page.study import table_csv
from choicewise.records import MANIFEST, SUMMARY
from choicewise.results.outcomes import OutcomeKeeper, Outcomes, bounded, ranked
from choicewise.results.rows import Row
from choicewise.results.run import open_run
from choicewise.results.summary import summarize
from tests.helpers.board import PROTOCOLS, change, rename, write_run

pytestmark = pytest.mark.costly("servers and boards on loopback")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Runs to copy: of two models on the same questions, and of one on others."""
    folder = tmp_path_factory.mktemp("made")
    write_run(folder / "hash")
    write_run(folder / "oracle", model="fake:oracle")
    write_run(folder / "long", questions=9)
    return folder


def snapshot(*folders: Path) -> Snapshot:
    library = Library(folders)
    library.catch_up()
    library.stop()
    return library.snapshot


def copied(made: Path, to: Path, *names: str) -> Path:
    for name in names:
        shutil.copytree(made / name, to / name)
    return to


def cells(board: Board) -> dict[tuple[str, str], Cell]:
    """By model and protocol, of boards with one part of the data."""
    protocols = {column.id: column.protocol for column in board.columns}
    return {(line.model, protocols[name]): cell for line in board.lines for name, cell in line.cells.items()}


def test_numbers_of_the_same_question_share_a_column(made: Path, tmp_path: Path) -> None:
    told = snapshot(copied(made, tmp_path, "hash", "oracle")).board
    assert [line.model for line in told.lines] == ["fake:hash", "fake:oracle"]
    assert len(told.columns) == 12
    for column in told.columns:
        rows = [line.cells[column.id].row for line in told.lines]
        assert column.measured == 2
        assert (
            len({(row.data, row.selection, row.signature, row.i, row.metric, row.subject) for row in rows if row}) == 1
        )


def test_other_data_are_other_columns(made: Path, tmp_path: Path) -> None:
    told = snapshot(copied(made, tmp_path, "hash", "long")).board
    assert len(told.columns) == 24
    assert {column.measured for column in told.columns} == {1}
    assert len(told.lines) == 1, "one model as it was computed, on two datasets"
    assert sorted({column.n for column in told.columns}) == [12, 18]


def _read(folder: Path, label: str) -> ListedRun:
    summary = summarize(folder)
    return ListedRun(slug(label), label, folder, State.READ, label, "", summary.manifest, "#R000000", summary.rows)


def _changed(run: ListedRun, label: str, **changes: str) -> ListedRun:
    rows = tuple(replace(row, **changes) for row in run.rows)  # type: ignore[arg-type]
    return replace(run, id=slug(label), label=label, version=label, rows=rows, computed=f"#R{short(label, digits=6)}")


@pytest.mark.parametrize("field", ["i", "metric", "signature", "subject"])
def test_numbers_that_differ_in_anything_never_share_a_column(made: Path, field: str) -> None:
    one = _read(made / "hash", "one")
    value = one.rows[1].signature if field == "signature" else "another"
    rows = tuple(row for row in one.rows if field != "signature" or row is not one.rows[1])
    one = replace(one, rows=rows)
    other = _changed(one, "other", **{field: value})
    if field == "signature":
        one, other = replace(one, rows=one.rows[:1]), replace(other, rows=other.rows[:1])
    told = board([one, other])
    assert {column.measured for column in told.columns} == {1}
    assert len(told.columns) == len(one.rows) + len(other.rows)


def test_another_dataset_with_the_same_name_is_told_apart(made: Path) -> None:
    one = _read(made / "hash", "one")
    assert one.manifest is not None
    dataset = replace(one.manifest.dataset, digest="f" * 64)
    other = replace(_changed(one, "other"), manifest=replace(one.manifest, dataset=dataset))
    told = board([one, other])
    assert {column.measured for column in told.columns} == {1}
    parts = headings(told, told.columns)
    assert len({part.part.data for part in parts}) == len(parts) == 2


def test_another_selection_is_another_column(made: Path) -> None:
    one = _read(made / "hash", "one")
    assert one.manifest is not None
    limited = replace(one.manifest, selection=replace(one.manifest.selection, limit=3))
    other = replace(_changed(one, "other", selection="first 3 of each subject"), manifest=limited)
    assert {column.measured for column in board([one, other]).columns} == {1}


def test_texts_that_differ_are_said_in_the_heading(made: Path) -> None:
    one = _read(made / "hash", "one")
    told = board([one, _changed(one, "other", i="#I123456")])
    families = [family for part in headings(told, told.columns) for family in part.families.values()]
    assert all(ambiguous for family in families for _, ambiguous in family)
    page = board_page(Snapshot(told, {}, (), "", 1, {}), View(), Links({"page.css": "a", "board.css": "b"}))
    assert "#I123456" in page


def test_two_runs_of_one_model_are_told_apart(made: Path, tmp_path: Path) -> None:
    copied(made, tmp_path, "hash")
    shutil.copytree(made / "hash", tmp_path / "again")
    told = snapshot(tmp_path).board
    assert [line.told_apart for line in told.lines] == [f"{tmp_path.name}/again", f"{tmp_path.name}/hash"]
    assert {column.measured for column in told.columns} == {2}
    change(tmp_path / "again", lambda manifest: replace(manifest, versions={**manifest.versions, "numpy": "0"}))
    told = snapshot(tmp_path).board
    assert all(line.told_apart.startswith("#R") for line in told.lines)
    assert len({line.told_apart for line in told.lines}) == 2


def test_incomplete_is_a_word_and_not_a_lower_number(made: Path, tmp_path: Path) -> None:
    copied(made, tmp_path, "hash", "oracle")
    change(tmp_path / "oracle", lambda manifest: replace(manifest, complete=False, blocks=manifest.blocks[:1]))
    told = snapshot(tmp_path)
    for (model, _), cell in cells(told.board).items():
        assert (cell.row is None, cell.words, cell.rank) == (
            (True, "incomplete", None) if model == "fake:oracle" else (False, "", 1)
        )
    assert len(told.board.columns) == 12
    run = told.board.runs[1]
    assert (run.state, run.reason[:15]) == (State.INCOMPLETE, "6 of 12 items a")
    assert "incomplete" in board_page(told, View(), Links({"page.css": "a", "board.css": "b"}))
    assert {row["state"] for row in csv.DictReader(io.StringIO(board_csv(told, View())))} == {"", "incomplete"}


def test_a_lone_incomplete_run_has_its_columns(made: Path, tmp_path: Path) -> None:
    copied(made, tmp_path, "hash")
    change(tmp_path / "hash", lambda manifest: replace(manifest, complete=False))
    told = snapshot(tmp_path).board
    assert {cell.words for cell in cells(told).values()} == {"incomplete"}
    assert len(shown(told, View()).lines) == 1


def test_a_damaged_block_makes_a_run_incomplete(made: Path, tmp_path: Path) -> None:
    copied(made, tmp_path, "hash", "oracle")
    block = next((tmp_path / "oracle" / "blocks").rglob("*.parquet"))
    block.write_bytes(block.read_bytes()[:-20])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        told = snapshot(tmp_path).board
    assert {cell.words for (model, _), cell in cells(told).items() if model == "fake:oracle"} == {"incomplete"}
    run = next(run for run in told.runs if run.model == "fake:oracle")
    assert "6 of 12 items" in run.reason
    assert "damaged" in run.reason


def test_what_can_not_be_read_is_listed_with_its_reason(made: Path, tmp_path: Path) -> None:
    copied(made, tmp_path, "hash", "oracle", "long")
    (tmp_path / "oracle" / MANIFEST).write_text("{")
    content = json.loads((tmp_path / "long" / MANIFEST).read_text())
    (tmp_path / "long" / MANIFEST).write_text(json.dumps({**content, "version": 99}))
    (tmp_path / "items").mkdir()
    shutil.copytree(made / "hash", tmp_path / "no items")
    (tmp_path / "no items" / "items.parquet").unlink()
    told = snapshot(tmp_path)
    reasons = {run.folder.name: run.reason for run in told.board.runs if run.state is State.UNREADABLE}
    assert set(reasons) == {"oracle", "long", "no items"}
    assert "damaged" in reasons["oracle"]
    assert "version 99" in reasons["long"]
    assert not any(str(tmp_path) in reason for reason in reasons.values()), "where the folder lies is nobody's business"
    page = board_page(told, View(), Links({"page.css": "a", "board.css": "b"}))
    assert all(word in page for word in ("unreadable", "version 99"))


def test_a_run_that_no_version_here_can_read_ends_nothing(made: Path, tmp_path: Path) -> None:
    copied(made, tmp_path, "hash", "oracle", "long")
    shutil.copytree(made / "hash", tmp_path / "growing")
    shutil.copytree(made / "hash", tmp_path / "odd")
    unknown = {"mmlu/later": "axis-of-a-later-version:x"}
    change(tmp_path / "oracle", lambda manifest: replace(manifest, protocols=unknown))
    change(tmp_path / "growing", lambda manifest: replace(manifest, protocols=unknown, complete=False))
    (tmp_path / "long" / MANIFEST).write_text("[" * 200_000)
    content = json.loads((tmp_path / "odd" / MANIFEST).read_text())
    content["model"]["name"] = "\ud800"
    (tmp_path / "odd" / MANIFEST).write_text(json.dumps(content))
    told = snapshot(tmp_path)
    reasons = {run.folder.name: run.reason for run in told.board.runs if run.state is State.UNREADABLE}
    assert set(reasons) == {"oracle", "growing", "long", "odd"}
    assert "whose protocol 'mmlu/later' this version does not know" in reasons["oracle"]
    assert "damaged" in reasons["long"]
    assert told.board.models == ("fake:hash",)
    with pytest.raises(StoreError, match="read it with that version"):
        open_run(tmp_path / "oracle")


def test_a_board_that_can_not_be_made_says_so_and_goes_on(
    made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(runs: object) -> Board:
        raise ZeroDivisionError("secret")

    copied(made, tmp_path, "hash")
    library = Library([tmp_path], 0.05)
    with monkeypatch.context() as broken_for_a_while:
        broken_for_a_while.setattr("choicewise.board.library.board", broken)
        library.start()
        _until(lambda: bool(library.snapshot.problems))
    assert "ZeroDivisionError" in library.snapshot.problems[0]
    assert "secret" not in library.snapshot.problems[0]
    _until(lambda: library.snapshot.board.models == ("fake:hash",) and not library.snapshot.problems)
    library.stop()


def _until(ready: Callable[[], bool]) -> None:
    for _ in range(600):
        if ready():
            return
        time.sleep(0.05)
    raise AssertionError("the library did not get that far")


def test_links_out_of_a_run_are_no_artefacts(made: Path, tmp_path: Path) -> None:
    copied(made, tmp_path, "hash")
    (run,) = snapshot(tmp_path).board.runs
    assert len(run.artefacts) == 3
    kept = tmp_path / "hash" / SUMMARY
    elsewhere = kept.rename(tmp_path / "elsewhere")
    kept.symlink_to(elsewhere)
    (run,) = snapshot(tmp_path).board.runs
    assert [each.file for each in run.artefacts] == ["rows.csv", "rows.parquet"]


def test_a_run_below_two_folders_is_listed_once(made: Path, tmp_path: Path) -> None:
    copied(made, tmp_path, "hash")
    assert [place.label for place in discover([tmp_path / "hash", tmp_path]).places.values()] == ["hash"]
    assert len(discover([tmp_path, tmp_path / "hash"]).places) == 1


def test_a_run_that_harms_whoever_reads_it_costs_itself_alone(
    made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    harmful = {
        "hangs-at-look": "gives no answer within 0 seconds",
        "hangs-at-read": "gives no answer within 0 seconds",
        "loops": "takes more than its time on the processor",
        "eats": "takes more than 1024 MB of memory",
        "dies": "ended its process",
    }
    for name in harmful:
        shutil.copytree(made / "oracle", tmp_path / "a" / name)
    copied(made, tmp_path / "b", "hash")
    ask = RunProcess._ask

    def asked(self: RunProcess, question: dict[str, str], wait: float | None = None) -> dict[str, object]:
        """As ever, but that what is known to hang is not waited for."""
        hangs = Path(question["folder"]).name == f"hangs-at-{question['task']}"
        return ask(self, question, 0.0 if hangs else None)

    monkeypatch.setattr(RunProcess, "_ask", asked)
    monkeypatch.setattr(RunProcess, "module", "tests.helpers.hostile_worker")
    monkeypatch.setattr(RunProcess, "limits", replace(RunProcess.limits, seconds=20, memory=1 << 30))
    told = {run.folder.name: run for run in snapshot(tmp_path).board.runs}
    assert told["hash"].state is State.READ
    assert told["hash"].rows
    for name, words in harmful.items():
        assert (told[name].state, words in told[name].reason) == (State.UNREADABLE, True), told[name].reason
        assert "choicewise doctor" in told[name].reason


def test_views_of_what_the_board_lacks_are_not_kept(made: Path, tmp_path: Path) -> None:
    board = snapshot(copied(made, tmp_path, "hash")).board
    (column, *_) = board.columns
    for query, known in {
        "": True,
        f"sort={column.id}&order=up": True,
        f"sort=median-{column.key.part.id}": True,
        f"data={column.key.part.id}&family={column.family}&protocol={column.protocol}&columns=all&warning=any": True,
        "warning=nonsense": False,
        "data=nonsense": False,
        "family=nonsense": False,
        f"protocol={column.protocol}&protocol=nonsense": False,
        "model=h": False,
    }.items():
        view = read_view(parse_qsl(query))
        assert known_view(board, view) == (view, known), query
    assert known_view(board, read_view([("sort", "nonsense"), ("further", "x")])) == (View(), True)


def test_an_error_of_any_kind_ends_nothing(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    copied(made, tmp_path, "hash")

    def broken(folder: Path) -> None:
        raise ZeroDivisionError("x")

    monkeypatch.setattr("choicewise.board.runs.summarize", broken)
    monkeypatch.setattr(RunProcess, "_ask", lambda self, question, wait=None: module.answer(question))
    (run,) = snapshot(tmp_path).board.runs
    assert (run.state, "ZeroDivisionError" in run.reason) == (State.UNREADABLE, True)


def test_ranks_are_those_of_the_report(made: Path, tmp_path: Path) -> None:
    copied(made, tmp_path, "hash", "oracle")
    runs = [open_run(tmp_path / name) for name in ("hash", "oracle")]
    keeper = OutcomeKeeper()
    rows = [row for run in runs for row in run.rows()]
    reported = {(row.model, row.protocol): row for row in bounded(ranked(rows), [keeper.keep(run) for run in runs])}
    told = snapshot(tmp_path)
    columns = {column.id: column.protocol for column in told.board.columns}
    assert set(told.ranges) == set(columns)
    for (model, protocol), cell in cells(told.board).items():
        row = reported[model, protocol]
        column = next(name for name, label in columns.items() if label == protocol)
        assert (cell.rank, *told.ranges[column][cell.run.id]) == (row.rank, row.rank_low, row.rank_high)


@cache
def sample() -> tuple[ListedRun, Row]:
    """A run of one number between 0.4 and 0.6."""
    with tempfile.TemporaryDirectory() as folder:
        run = _read(write_run(Path(folder) / "run", protocols=["mmlu/original"]), "run")
    row = replace(run.rows[0], value=0.5, ci_low=0.4, ci_high=0.6)
    return replace(run, rows=(row,)), row


@given(st.lists(st.sampled_from([0.0, 0.3, 0.1 + 0.2, 1.0, math.nan]), min_size=1, max_size=8))
def test_ranks_are_the_plain_ones(values: Sequence[float]) -> None:
    run, row = sample()
    runs = [
        replace(run, id=str(place), label=str(place), rows=(replace(row, value=each),))
        for place, each in enumerate(values)
    ]
    told = {line.runs[0].id: cell for line in board(runs).lines for cell in line.cells.values()}
    plain = [None if math.isnan(each) else 1 + sum(other > each + 1e-9 for other in values) for each in values]
    assert [told[str(place)].rank for place in range(len(values))] == plain


@given(st.lists(st.lists(st.one_of(st.none(), st.floats(0, 1)), min_size=3, max_size=3), min_size=1, max_size=5))
def test_medians_are_over_the_same_numbers(lines: Sequence[Sequence[float | None]]) -> None:
    run, row = sample()
    runs = []
    for place, values in enumerate(lines):
        rows = [replace(row, value=each, metric=f"m{number}") for number, each in enumerate(values) if each is not None]
        runs.append(replace(run, id=str(place), label=str(place), rows=tuple(rows)))
    told = board(runs)
    for line in told.lines:
        ((part, spread),) = line.spreads.items() if line.spreads else ((("", None),))
        values = {name: cell.value for name, cell in line.cells.items()}
        panel = told.panels[part]
        if panel <= set(values):
            own = [values[name] for name in panel]
            assert spread is not None
            assert (spread.median, spread.low, spread.high) == (median(own), min(own), max(own))
        else:
            assert spread is not None
            assert math.isnan(spread.median)
            assert spread.n < spread.of


def test_the_columns_most_models_have_make_the_median() -> None:
    run, row = sample()
    rows = tuple(replace(row, metric=f"m{number}") for number in range(3))
    full = [replace(run, id=f"{place}", label=f"{place}", rows=rows) for place in range(2)]
    told = board([*full, replace(run, id="less", label="less", rows=rows[:1])])
    (panel,) = told.panels.values()
    assert len(panel) == 3
    less = next(line for line in told.lines if line.runs[0].id == "less")
    assert [(spread.n, spread.of) for spread in less.spreads.values()] == [(1, 3)]


def test_the_first_view_is_a_handful_of_headlines(made: Path, tmp_path: Path) -> None:
    told = snapshot(copied(made, tmp_path, "hash", "oracle")).board
    names = [column.protocol for column in shown(told, View()).columns]
    assert sorted(names) == ["mmlu/cloze:char_mean_bare", "mmlu/helm", "mmlu/original"]
    assert len(shown(told, View(columns="all")).columns) == 12
    assert len(handful(told.columns, 2)) == 2
    families = {column.family for column in handful(told.columns, 2)}
    assert len(families) == 2, "no family twice before each has one"


def test_columns_are_chosen_by_data_family_and_protocol(made: Path, tmp_path: Path) -> None:
    told = snapshot(copied(made, tmp_path, "hash", "long")).board
    part = told.columns[0].key.part
    assert {column.key.part for column in chosen_columns(told, View(data=(part.id,), columns="all"))} == {part}
    assert {column.family for column in chosen_columns(told, View(family=("cloze",)))} == {"cloze"}
    assert len(chosen_columns(told, View(family=("cloze",)))) == 20
    assert [column.protocol for column in chosen_columns(told, View(protocol=("mmlu/helm",)))] == ["mmlu/helm"] * 2
    assert chosen_columns(told, View(family=("nothing",))) == ()


def test_warnings_leave_only_numbers_with_or_without_them(made: Path, tmp_path: Path) -> None:
    told = snapshot(copied(made, tmp_path, "hash", "oracle"))
    flags = {cell.row.diagnosis.warnings for cell in cells(told.board).values() if cell.row}
    flag = next(flag for each in flags for flag in each)
    for warning, fits in (
        (flag, lambda row: flag in row["warnings"]),
        ("any", lambda row: row["warnings"]),
        ("none", lambda row: not row["warnings"]),
    ):
        record = json.loads(as_json(board_record(told, View(columns="all", warning=warning))))
        left = [cell for model in record["models"] for cell in model["cells"].values()]
        every = [cell.row for cell in cells(told.board).values() if cell.row]
        assert left
        assert all(map(fits, left))
        assert len(left) == sum(bool(fits({"warnings": row.diagnosis.warnings})) for row in every)


def test_models_are_chosen_by_a_part_of_their_name(made: Path, tmp_path: Path) -> None:
    told = snapshot(copied(made, tmp_path, "hash", "oracle")).board
    assert [line.model for line in shown(told, View(model="ORAC")).lines] == ["fake:oracle"]
    assert shown(told, View(model="nobody")).lines == ()
    assert {line.cells[c].rank for line in shown(told, View(model="hash")).lines for c in line.cells} != {1}, (
        "ranks stay those among all"
    )


def test_lines_are_sorted_by_any_column_and_by_the_median(made: Path, tmp_path: Path) -> None:
    copied(made, tmp_path, "hash", "oracle")
    rename(tmp_path / "hash", "b")
    shutil.copytree(made / "hash", tmp_path / "third")
    rename(tmp_path / "third", "a")
    shutil.copytree(made / "hash", tmp_path / "fourth")
    change(rename(tmp_path / "fourth", "c"), lambda manifest: replace(manifest, complete=False))
    told = snapshot(tmp_path).board
    helm = next(column.id for column in told.columns if column.protocol == "mmlu/helm")
    for view, expected in (
        (View(), ["fake:oracle", "a", "b", "c"]),
        (View(order="up"), ["a", "b", "fake:oracle", "c"]),
        (View(sort=helm), ["fake:oracle", "a", "b", "c"]),
        (View(sort=helm, order="up"), ["a", "b", "fake:oracle", "c"]),
        (View(sort="model"), ["a", "b", "c", "fake:oracle"]),
        (View(sort="model", order="down"), ["fake:oracle", "c", "b", "a"]),
        (View(sort="not there any more"), ["fake:oracle", "a", "b", "c"]),
    ):
        assert [line.model for line in shown(told, view).lines] == expected, view


def test_a_click_sorts_and_the_next_one_turns_round(made: Path, tmp_path: Path) -> None:
    told = snapshot(copied(made, tmp_path, "hash", "oracle")).board
    seen = shown(told, View())
    helm = next(column.id for column in told.columns if column.protocol == "mmlu/helm")
    assert order_of(seen, seen.sort) == "descending"
    assert order_of(seen, helm) == ""
    once = sorted_by(seen, helm)
    assert (once.sort, once.order) == (helm, "")
    twice = sorted_by(shown(told, once), helm)
    assert (twice.sort, twice.order) == (helm, "up")
    assert sorted_by(shown(told, twice), helm).order == ""
    names = sorted_by(seen, "model")
    assert order_of(shown(told, names), "model") == "ascending"
    assert sorted_by(shown(told, names), "model").order == "down"


VIEWS = st.builds(
    View,
    data=st.lists(st.text(min_size=1), unique=True, max_size=2).map(tuple),
    family=st.lists(st.text(min_size=1), unique=True, max_size=2).map(tuple),
    protocol=st.lists(st.text(min_size=1), unique=True, max_size=2).map(tuple),
    columns=st.sampled_from(["", "all"]),
    model=st.text(max_size=5),
    warning=st.sampled_from(["", "none", "any", "chance"]),
    sort=st.text(max_size=5),
    order=st.sampled_from(["", "up", "down"]),
)


@given(VIEWS)
def test_every_state_has_an_address(view: View) -> None:
    from urllib.parse import parse_qsl

    assert read_view(parse_qsl(view.query())) == view


def test_what_no_state_means_is_left_out() -> None:
    pairs = [("columns", "x"), ("order", "sideways"), ("model", ""), ("nonsense", "1"), ("sort", "a"), ("sort", "b")]
    assert read_view(pairs) == View(sort="b", order="down")


@given(st.lists(st.text(max_size=60), unique=True, max_size=5))
def test_slugs_are_safe_and_differ(names: Sequence[str]) -> None:
    slugs = [slug(name) for name in names]
    assert len(set(slugs)) == len(names)
    for each in slugs:
        assert each.isascii()
        assert set(each) <= set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-")
        assert not each.startswith(".")
        assert len(each) < 64


def test_parts_of_a_digest_can_not_be_moved() -> None:
    assert short("ab", "c") != short("a", "bc")


def test_runs_are_discovered_at_any_depth_and_links_are_not_followed(made: Path, tmp_path: Path) -> None:
    served = tmp_path / "served"
    copied(made, served / "deep" / "er", "hash")
    outside = copied(made, tmp_path / "outside", "oracle")
    (served / "link").symlink_to(outside)
    (served / "loop").symlink_to(served)
    (served / "fake").mkdir()
    (served / "fake" / MANIFEST).symlink_to(outside / "oracle" / MANIFEST)
    (served / "deep" / "er" / "hash" / "inside").mkdir()
    shutil.copy(made / "hash" / MANIFEST, served / "deep" / "er" / "hash" / "inside" / MANIFEST)
    discovery = discover([served])
    assert [place.label for place in discovery.places.values()] == ["served/deep/er/hash"]
    assert [place.label for place in discover([made / "hash"]).places.values()] == ["hash"]
    assert "nowhere is not there" in discover([tmp_path / "nowhere"]).problems[0]


def test_folders_of_one_name_stay_apart(made: Path, tmp_path: Path) -> None:
    for name in ("a", "b"):
        copied(made, tmp_path / name / "runs", "hash")
    places = discover([tmp_path / "a" / "runs", tmp_path / "b" / "runs"]).places
    assert len(places) == 2


@pytest.mark.skipif(os.geteuid() == 0, reason="root may look into every folder")
def test_a_folder_that_may_not_be_read_is_told(tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    closed.mkdir(mode=0)
    assert "can't be looked into" in discover([tmp_path]).problems[0]


def test_a_run_is_read_again_only_when_it_changes(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    copied(made, tmp_path, "hash", "oracle")
    library, reads, read = Library([tmp_path]), list[str](), RunProcess.read
    monkeypatch.setattr(RunProcess, "read", lambda self, run: (reads.append(run.folder.name), read(self, run))[1])
    library.catch_up()
    library.catch_up()
    assert sorted(reads) == ["hash", "oracle"]
    (tmp_path / "hash" / MANIFEST).touch()
    library.catch_up()
    assert sorted(reads) == ["hash", "oracle"], "the same content with another time"
    ranges = library.snapshot.ranges
    rename(tmp_path / "hash", "other")
    library.catch_up()
    assert sorted(reads) == ["hash", "hash", "oracle"]
    assert library.snapshot.board.models == ("fake:oracle", "other") or set(library.snapshot.board.models) == {
        "other",
        "fake:oracle",
    }
    assert library.snapshot.ranges.keys() == ranges.keys()


def test_disputed_items_are_half_right(made: Path, tmp_path: Path) -> None:
    copied(made, tmp_path, "hash", "oracle")
    told = snapshot(tmp_path)
    ((part, listed),) = told.disputed.items()
    assert part == told.board.columns[0].key.part.id
    columns = {column.protocol for column in handful(told.board.columns, 12)}
    credits: dict[str, list[float]] = {}
    for name in ("hash", "oracle"):
        for outcome in summarize(tmp_path / name).outcomes.outcomes:
            if outcome.name in columns:
                for item, credit in zip(outcome.ids.to_pylist(), outcome.credit.tolist(), strict=True):
                    credits.setdefault(item, []).append(credit)
    known = {item: [credit for credit in own if not math.isnan(credit)] for item, own in credits.items()}
    apart = {item: abs(sum(own) / len(own) - 0.5) for item, own in known.items()}
    assert [apart[each.item] for each in listed] == sorted(apart[each.item] for each in listed)
    assert apart[listed[0].item] == min(apart.values())
    for each in listed:
        assert (each.right, each.answers) == (pytest.approx(sum(known[each.item])), len(known[each.item]))


def test_decisions_are_kept_within_a_budget_and_read_again(made: Path) -> None:
    read: list[str] = []

    def again(run: ListedRun) -> Outcomes:
        read.append(run.label)
        return summarize(run.folder).outcomes

    one, other = _read(made / "hash", "hash"), _read(made / "oracle", "oracle")
    size = sum(each.codes.nbytes + each.predicted.nbytes for each in summarize(made / "hash").outcomes.outcomes)
    decisions = Decisions(again, budget=size + 1)
    decisions.put(one, summarize(made / "hash").outcomes)
    assert decisions.get(one) is not None
    decisions.get(other)
    decisions.get(one)
    assert read == ["oracle", "hash"]
    shared = Decisions(again)
    both = [shared.get(run) for run in (one, other)]
    tables = {id(each.items) for outcomes in both if outcomes is not None for each in outcomes.outcomes}
    assert len(tables) == 1


def test_guesses_reach_down_to_chance() -> None:
    run, row = sample()
    assert guessed(Cell(run, replace(row, ci_low=0.2)))
    assert not guessed(Cell(run, replace(row, ci_low=0.3)))
    assert not guessed(Cell(run, None))


def test_protocols_are_named_in_the_fewest_words(made: Path) -> None:
    words = shlex.split(run_command(_read(made / "hash", "one")))
    assert [word for before, word in pairwise(words) if before == "--protocol"] == sorted(PROTOCOLS)


def test_csv_is_text_for_a_spreadsheet() -> None:
    rows = [{"a": "=1+1", "b": 0.5, "c": math.nan}, {"a": "-x", "b": None, "c": "two\nlines\x1b"}]
    assert table_csv(("a", "b", "c"), rows).split("\r\n")[1:3] == ["'=1+1,0.5,", "'-x,,two\\nlines\\x1b"]
