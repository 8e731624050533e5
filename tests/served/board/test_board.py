"""The board as a value: what shares a column, what a word stands for, ranks, filters and orders."""

import csv
import io
import json
import math
import os
import shlex
import shutil
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any
from urllib.parse import parse_qsl

import pytest
from hypothesis import given
from hypothesis import strategies as st

from choicewise.errors import StoreError
from choicewise.extensions.board import records
from choicewise.extensions.board.library import Decisions, Library, discover
from choicewise.extensions.board.model import (
    Board,
    Cell,
    ListedRun,
    Snapshot,
    State,
    board,
    short,
    slug,
)
from choicewise.extensions.board.pages import Links, board_page, guessed, run_command
from choicewise.extensions.board.records import (
    View,
    board_csv,
    chosen_columns,
    handful,
    known_view,
    read_view,
    sorted_by,
    visible_board,
)
from choicewise.extensions.board.runs import RunProcess
from choicewise.protocols.metrics import METRICS
from choicewise.records import MANIFEST, SUMMARY
from choicewise.results.number import Number
from choicewise.results.outcomes import Outcomes, bounded, outcomes_of, ranked
from choicewise.results.run import open_run
from choicewise.results.summary import summarize
from choicewise.table import table_csv
from tests.helpers.board import PROTOCOLS, change, read_runs_here, rename, write_run
from tests.helpers.processes import eventually
from tests.helpers.rows import altered

LINKS = Links({"page.css": "a", "board.css": "b"})
UNKNOWN = {"mmlu/later": "axis-of-a-later-version:x"}


@pytest.fixture(scope="module", autouse=True)
def reading_here() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        read_runs_here(patch)
        yield


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Runs of two models on the same questions, and of one on others; who changes them takes a copy."""
    folder = tmp_path_factory.mktemp("runs")
    write_run(folder / "hash")
    write_run(folder / "oracle", model="fake:oracle")
    write_run(folder / "long", questions=9)
    return folder


@pytest.fixture(scope="module")
def models(runs: Path) -> Snapshot:
    """Two models on the same questions."""
    return snapshot(runs / "hash", runs / "oracle")


@pytest.fixture(scope="module")
def datasets(runs: Path) -> Board:
    """One model on two datasets."""
    return snapshot(runs / "hash", runs / "long").board


@pytest.fixture(scope="module")
def one(runs: Path) -> ListedRun:
    return read_listed(runs / "hash", "one")


@pytest.fixture(scope="module")
def sample(one: ListedRun) -> tuple[ListedRun, Number]:
    """A run of one number between 0.4 and 0.6."""
    row = altered(one.rows[0], value=0.5, ci_low=0.4, ci_high=0.6)
    return replace(one, rows=(row,)), row


def snapshot(*folders: Path) -> Snapshot:
    library = Library(folders)
    library.catch_up()
    library.stop()
    return library.snapshot


def copied(runs: Path, to: Path, *names: str) -> Path:
    for name in names:
        shutil.copytree(runs / name, to / name)
    return to


def cells(board: Board) -> dict[tuple[str, str], Cell]:
    """By model and protocol, of boards with one part of the data."""
    protocols = {column.id: column.protocol for column in board.columns}
    return {
        (line.model, protocols[name]): cell
        for line in board.lines
        for name, cell in line.cells.items()
    }


def change_json(file: Path, changed: Callable[[Any], Any]) -> None:
    """``changed`` changes the content, or returns another one."""
    content = json.loads(file.read_text())
    file.write_text(json.dumps(changed(content) or content))


def reasons(snapshot: Snapshot) -> dict[str, str]:
    """Of the runs that can't be read, by the name of their folder."""
    return {
        run.folder.name: run.reason for run in snapshot.board.runs if run.state is State.UNREADABLE
    }


def read_listed(folder: Path, label: str) -> ListedRun:
    summary = summarize(folder)
    return ListedRun(
        id=slug(label),
        label=label,
        folder=folder,
        state=State.READ,
        version=label,
        manifest=summary.manifest,
        computed="#R000000",
        rows=summary.rows,
    )


def changed_run(run: ListedRun, label: str = "other", **changes: str) -> ListedRun:
    rows = tuple(replace(row, identity=replace(row.identity, **changes)) for row in run.rows)  # type: ignore[arg-type]
    return replace(
        run,
        id=slug(label),
        label=label,
        version=label,
        rows=rows,
        computed=f"#R{short(label, digits=6)}",
    )


def measured(board: Board) -> set[int]:
    """How many models the columns have."""
    return {column.measured for column in board.columns}


def test_numbers_of_the_same_question_share_a_column_and_others_do_not(
    models: Snapshot, datasets: Board
) -> None:
    assert [line.model for line in models.board.lines] == ["fake:hash", "fake:oracle"]
    assert (len(models.board.columns), measured(models.board)) == (12, {2})
    for column in models.board.columns:
        rows = [row for line in models.board.lines if (row := line.cells[column.id].row)]
        assert (
            len(
                {
                    (
                        row.identity.data,
                        row.identity.selection,
                        row.identity.signature,
                        row.identity.i,
                        row.identity.metric,
                        row.identity.subject,
                    )
                    for row in rows
                }
            )
            == 1
        )
    assert (len(datasets.columns), measured(datasets)) == (24, {1})
    assert len(datasets.lines) == 1, "one model as it was computed, on two datasets"
    assert sorted({column.n for column in datasets.columns}) == [12, 18]


@pytest.mark.parametrize("field", ["i", "metric", "signature", "subject"])
def test_numbers_that_differ_in_anything_never_share_a_column(one: ListedRun, field: str) -> None:
    other = changed_run(
        one,
        **{
            field: {"signature": one.rows[1].identity.signature, "metric": "mc1"}.get(
                field, "another"
            )
        },
    )
    if field == "signature":
        one, other = replace(one, rows=one.rows[:1]), replace(other, rows=other.rows[:1])
    told = board([one, other])
    assert (measured(told), len(told.columns)) == ({1}, len(one.rows) + len(other.rows))


def test_other_datasets_of_the_same_name_selections_and_texts_are_told_apart(
    one: ListedRun,
) -> None:
    assert one.manifest is not None
    dataset = replace(one.manifest.dataset, digest="f" * 64)
    told = board([one, replace(changed_run(one), manifest=replace(one.manifest, dataset=dataset))])
    assert measured(told) == {1}
    parts = records.headings(told, told.columns)
    assert len({part.part.data for part in parts}) == len(parts) == 2
    limited = replace(one.manifest, selection=replace(one.manifest.selection, limit=3))
    other = replace(changed_run(one, selection="first 3 of each subject"), manifest=limited)
    assert measured(board([one, other])) == {1}
    told = board([one, changed_run(one, i="#I123456")])
    families = [
        family for part in records.headings(told, told.columns) for family in part.families.values()
    ]
    assert all(ambiguous for family in families for _, ambiguous in family)
    assert "#I123456" in board_page(
        Snapshot(board=told, ranges={}, problems=(), finding=("Told.",), number=1, disputed={}),
        View(),
        LINKS,
    )


def test_two_runs_of_one_model_are_told_apart(runs: Path, tmp_path: Path) -> None:
    copied(runs, tmp_path, "hash")
    shutil.copytree(runs / "hash", tmp_path / "again")
    told = snapshot(tmp_path).board
    assert [line.told_apart for line in told.lines] == [
        f"{tmp_path.name}/again",
        f"{tmp_path.name}/hash",
    ]
    assert measured(told) == {2}
    change(
        tmp_path / "again",
        lambda manifest: replace(manifest, versions={**manifest.versions, "numpy": "0"}),
    )
    told = snapshot(tmp_path).board
    assert all(line.told_apart.startswith("#R") for line in told.lines)
    assert len({line.told_apart for line in told.lines}) == 2


def test_incomplete_or_with_a_damaged_block_is_a_word_and_not_a_lower_number(
    runs: Path, tmp_path: Path
) -> None:
    copied(runs, tmp_path, "hash", "oracle")
    change(
        tmp_path / "oracle",
        lambda manifest: replace(manifest, complete=False, blocks=manifest.blocks[:1]),
    )
    told = snapshot(tmp_path)
    for (model, _), cell in cells(told.board).items():
        expected = (True, "incomplete", None) if model == "fake:oracle" else (False, "", 1)
        assert (cell.row is None, cell.words, cell.rank) == expected
    assert len(told.board.columns) == 12
    run = told.board.runs[1]
    assert (run.state, run.reason[:15]) == (State.INCOMPLETE, "6 of 12 items a")
    assert "incomplete" in board_page(told, View(), LINKS)
    assert {row["state"] for row in csv.DictReader(io.StringIO(board_csv(told, View())))} == {
        "",
        "incomplete",
    }
    alone = snapshot(tmp_path / "oracle").board
    assert {cell.words for cell in cells(alone).values()} == {"incomplete"}, (
        "a lone one has its columns"
    )
    assert len(visible_board(alone, View()).lines) == 1
    copied(runs, tmp_path / "damaged", "hash", "oracle")
    block = next((tmp_path / "damaged" / "oracle" / "blocks").rglob("*.parquet"))
    block.write_bytes(block.read_bytes()[:-20])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        damaged = snapshot(tmp_path / "damaged").board
    assert {
        cell.words for (model, _), cell in cells(damaged).items() if model == "fake:oracle"
    } == {"incomplete"}
    run = next(run for run in damaged.runs if run.model == "fake:oracle")
    assert [word for word in ("6 of 12 items", "damaged") if word not in run.reason] == []


def test_what_can_not_be_read_is_listed_with_its_reason(runs: Path, tmp_path: Path) -> None:
    copied(runs, tmp_path, "hash", "oracle", "long")
    for name in ("no items", "growing", "deep", "odd", "later"):
        shutil.copytree(runs / "hash", tmp_path / name)
    (tmp_path / "oracle" / MANIFEST).write_text("{")
    change_json(tmp_path / "long" / MANIFEST, lambda content: {**content, "version": 99})
    (tmp_path / "items").mkdir()
    (tmp_path / "no items" / "items.parquet").unlink()
    change(tmp_path / "later", lambda manifest: replace(manifest, protocols=UNKNOWN))
    change(
        tmp_path / "growing", lambda manifest: replace(manifest, protocols=UNKNOWN, complete=False)
    )
    (tmp_path / "deep" / MANIFEST).write_text("[" * 200_000)
    change_json(tmp_path / "odd" / MANIFEST, lambda content: content["model"].update(name="\ud800"))
    told = snapshot(tmp_path)
    assert set(reasons(told)) == {"oracle", "long", "no items", "growing", "deep", "odd", "later"}
    unknown = "protocol 'mmlu/later'"
    words = {"oracle": "damaged", "long": "version 99", "later": unknown, "deep": "damaged"}
    assert [name for name in words if words[name] not in reasons(told)[name]] == []
    assert str(tmp_path) not in "".join(reasons(told).values()), (
        "where the folder lies is nobody's business"
    )
    assert told.board.models == ("fake:hash",)
    page = board_page(told, View(), LINKS)
    assert all(word in page for word in ("unreadable", "version 99"))
    with pytest.raises(StoreError, match=r"made by Choicewise \d.*; use that version"):
        open_run(tmp_path / "later")


def test_a_board_that_can_not_be_made_says_so_and_goes_on(
    runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(runs: object) -> Board:
        raise ZeroDivisionError("secret")

    library = Library([runs / "hash"], 0.05)
    with monkeypatch.context() as broken_for_a_while:
        broken_for_a_while.setattr("choicewise.extensions.board.library.board", broken)
        library.start()
        eventually(lambda: bool(library.snapshot.problems))
    assert "ZeroDivisionError" in library.snapshot.problems[0]
    assert "secret" not in library.snapshot.problems[0]
    eventually(
        lambda: library.snapshot.board.models == ("fake:hash",) and not library.snapshot.problems
    )
    library.stop()


def test_links_out_of_a_run_are_no_artefacts(runs: Path, tmp_path: Path) -> None:
    copied(runs, tmp_path, "hash")
    (run,) = snapshot(tmp_path).board.runs
    assert len(run.artefacts) == 3
    summary = tmp_path / "hash" / SUMMARY
    summary.symlink_to(summary.rename(tmp_path / "elsewhere"))
    (run,) = snapshot(tmp_path).board.runs
    assert [each.file for each in run.artefacts] == ["rows.csv", "rows.parquet"]


def test_a_catalogued_name_is_that_of_its_only_variant_on_the_board(models: Snapshot) -> None:
    column = models.board.columns[0]
    variant = replace(column, protocol="mmlu/original@shots=0")
    board = replace(models.board, columns=(variant,))
    typed = read_view([("protocol", "mmlu/original")])
    assert known_view(board, typed) == (View(protocol=("mmlu/original@shots=0",)), True)
    several = replace(board, columns=(variant, replace(column, protocol="mmlu/original@shots=1")))
    assert known_view(several, typed) == (typed, False)


def test_views_of_what_the_board_lacks_are_not_kept_and_what_no_state_means_is_left_out(
    models: Snapshot,
) -> None:
    column = models.board.columns[0]
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
        assert known_view(models.board, view) == (view, known), query
    assert known_view(models.board, read_view([("sort", "nonsense"), ("further", "x")])) == (
        View(),
        True,
    )
    pairs = [
        ("columns", "x"),
        ("order", "sideways"),
        ("model", ""),
        ("nonsense", "1"),
        ("sort", "a"),
        ("sort", "b"),
    ]
    assert read_view(pairs) == View(sort="b", order="down")


def test_an_error_of_any_kind_ends_nothing(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(folder: Path, metrics: object) -> None:
        raise ZeroDivisionError("x")

    monkeypatch.setattr("choicewise.extensions.board.runs.summarize", broken)
    assert "ZeroDivisionError" in reasons(snapshot(runs / "hash"))["hash"]


def test_ranks_are_those_of_the_report(runs: Path, models: Snapshot) -> None:
    opened = [open_run(runs / name) for name in ("hash", "oracle")]
    rows = [row for run in opened for row in run.rows()]
    reported = {
        (row.identity.model, row.identity.protocol): row
        for row in bounded(ranked(rows), [outcomes_of(run) for run in opened])
    }
    columns = {column.protocol: column.id for column in models.board.columns}
    assert set(models.ranges) == {*columns.values()}
    for (model, protocol), cell in cells(models.board).items():
        row = reported[model, protocol]
        assert (cell.rank, *models.ranges[columns[protocol]][cell.run.id]) == (
            row.ranks.rank,
            row.ranks.low,
            row.ranks.high,
        )


@given(
    values=st.lists(st.sampled_from([0.0, 0.3, 0.1 + 0.2, 1.0, math.nan]), min_size=1, max_size=8)
)
def test_ranks_are_the_plain_ones(
    sample: tuple[ListedRun, Number], values: Sequence[float]
) -> None:
    run, row = sample
    listed = [
        replace(run, id=str(place), label=str(place), rows=(replace(row, value=each),))
        for place, each in enumerate(values)
    ]
    told = {line.runs[0].id: cell for line in board(listed).lines for cell in line.cells.values()}
    plain = [
        None if math.isnan(each) else 1 + sum(other > each + 1e-9 for other in values)
        for each in values
    ]
    assert [told[str(place)].rank for place in range(len(values))] == plain


SHARES = [name for name, metric in METRICS.items() if metric.share]


@given(
    lines=st.lists(
        st.lists(st.none() | st.floats(0, 1), min_size=3, max_size=3), min_size=1, max_size=5
    )
)
def test_medians_of_the_same_numbers(
    sample: tuple[ListedRun, Number], lines: Sequence[Sequence[float | None]]
) -> None:
    run, row = sample
    listed = []
    for place, values in enumerate(lines):
        rows = [
            altered(row, value=each, metric=SHARES[number])
            for number, each in enumerate(values)
            if each is not None
        ]
        listed.append(replace(run, id=str(place), label=str(place), rows=tuple(rows)))
    told = board(listed)
    for line in told.lines:
        ((part, spread),) = line.spreads.items() if line.spreads else ((("", None),))
        numbers = {name: cell.value for name, cell in line.cells.items()}
        panel = told.panels[part]
        assert spread is not None
        if panel <= set(numbers):
            own = [numbers[name] for name in panel]
            assert (spread.median, spread.low, spread.high) == (median(own), min(own), max(own))
        else:
            assert math.isnan(spread.median)
            assert spread.n < spread.of


def test_the_columns_most_models_have_make_the_median(sample: tuple[ListedRun, Number]) -> None:
    run, row = sample
    rows = tuple(altered(row, metric=SHARES[number]) for number in range(3))
    full = [replace(run, id=f"{place}", label=f"{place}", rows=rows) for place in range(2)]
    told = board([*full, replace(run, id="less", label="less", rows=rows[:1])])
    (panel,) = told.panels.values()
    assert len(panel) == 3
    less = next(line for line in told.lines if line.runs[0].id == "less")
    assert [(spread.n, spread.of) for spread in less.spreads.values()] == [(1, 3)]


def test_columns_are_a_handful_of_headlines_or_those_chosen(
    datasets: Board, models: Snapshot
) -> None:
    part = datasets.columns[0].key.part
    assert {
        column.key.part for column in chosen_columns(datasets, View(data=(part.id,), columns="all"))
    } == {part}
    assert [column.family for column in chosen_columns(datasets, View(family=("cloze",)))] == [
        "cloze"
    ] * 20
    assert [
        column.protocol for column in chosen_columns(datasets, View(protocol=("mmlu/helm",)))
    ] == ["mmlu/helm"] * 2
    assert chosen_columns(datasets, View(family=("nothing",))) == ()
    names = [column.protocol for column in visible_board(models.board, View()).columns]
    assert sorted(names) == ["mmlu/cloze:char_mean_bare", "mmlu/helm", "mmlu/original"]
    assert len(visible_board(models.board, View(columns="all")).columns) == 12
    assert len(handful(models.board.columns, 2)) == 2
    assert len({column.family for column in handful(models.board.columns, 2)}) == 2, (
        "no family twice before all others"
    )


def test_numbers_are_chosen_by_their_warnings_and_models_by_a_part_of_their_name(
    models: Snapshot,
) -> None:
    every = [cell.row.diagnosis.warnings for cell in cells(models.board).values() if cell.row]
    flag = next(flag for each in every for flag in each)
    tests: dict[str, Callable[[Sequence[str]], bool]] = {
        flag: lambda warnings: flag in warnings,
        "any": bool,
    }
    tests["none"] = lambda warnings: not warnings
    for warning, fits in tests.items():
        record = json.loads(
            records.as_json(records.board_record(models, View(columns="all", warning=warning)))
        )
        left = [cell["warnings"] for model in record["models"] for cell in model["cells"].values()]
        assert left
        assert all(map(fits, left))
        assert len(left) == sum(map(fits, every))
    assert [line.model for line in visible_board(models.board, View(model="ORAC")).lines] == [
        "fake:oracle"
    ]
    assert visible_board(models.board, View(model="nobody")).lines == ()
    ranks = {
        line.cells[c].rank
        for line in visible_board(models.board, View(model="hash")).lines
        for c in line.cells
    }
    assert ranks != {1}, "ranks stay those among all"


def test_lines_are_sorted_by_any_column_and_a_click_turns_round(
    runs: Path, tmp_path: Path, models: Snapshot
) -> None:
    for name in "abc":
        rename(shutil.copytree(runs / "hash", tmp_path / name), name)
    change(tmp_path / "c", lambda manifest: replace(manifest, complete=False))
    told = snapshot(tmp_path, runs / "oracle").board
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
        assert [line.model for line in visible_board(told, view).lines] == expected, view
    seen = visible_board(models.board, View())
    helm = next(column.id for column in models.board.columns if column.protocol == "mmlu/helm")
    assert (records.order_of(seen, seen.sort), records.order_of(seen, helm)) == ("descending", "")
    once = sorted_by(seen, helm)
    twice = sorted_by(visible_board(models.board, once), helm)
    assert [(each.sort, each.order) for each in (once, twice)] == [(helm, ""), (helm, "up")]
    assert sorted_by(visible_board(models.board, twice), helm).order == ""
    names = visible_board(models.board, sorted_by(seen, "model"))
    assert (records.order_of(names, "model"), sorted_by(names, "model").order) == (
        "ascending",
        "down",
    )


CHOSEN = st.lists(st.text(min_size=1), unique=True, max_size=2).map(tuple)
WORDS = {
    "columns": ["", "all"],
    "warning": ["", "none", "any", "chance"],
    "order": ["", "up", "down"],
}
AXES = {name: st.sampled_from(words) for name, words in WORDS.items()}
AXES |= {name: st.text(max_size=5) for name in ("model", "sort")}
VIEWS = st.builds(View, **dict.fromkeys(("data", "family", "protocol"), CHOSEN), **AXES)


@given(VIEWS)
def test_every_state_has_an_address(view: View) -> None:
    assert read_view(parse_qsl(view.query())) == view


@given(st.lists(st.text(max_size=60), unique=True, max_size=5))
def test_slugs_are_safe_and_differ(names: Sequence[str]) -> None:
    slugs = [slug(name) for name in names]
    assert len(set(slugs)) == len(names)
    assert short("ab", "c") != short("a", "bc"), "parts of a digest can't be moved"
    for each in slugs:
        assert set(each) <= set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-")
        assert not each.startswith(".")
        assert len(each) < 64


def test_runs_are_discovered_once_at_any_depth_and_links_are_not_followed(
    runs: Path, tmp_path: Path
) -> None:
    served, outside = tmp_path / "served", tmp_path / "outside"
    run = copied(runs, served / "deep" / "er", "hash") / "hash"
    (served / "link").symlink_to(copied(runs, outside, "oracle"))
    (served / "loop").symlink_to(served)
    (served / "fake").mkdir()
    (served / "fake" / MANIFEST).symlink_to(outside / "oracle" / MANIFEST)
    (run / "inside").mkdir()
    shutil.copy(runs / "hash" / MANIFEST, run / "inside" / MANIFEST)
    for folders, labels in (
        ([served], ["served/deep/er/hash"]),
        ([run], ["hash"]),
        ([run, served], ["hash"]),
        ([served, run], ["served/deep/er/hash"]),
    ):
        assert [place.label for place in discover(folders).places.values()] == labels
    assert "nowhere is missing" in discover([tmp_path / "nowhere"]).problems[0]
    assert (
        len(
            discover([copied(runs, tmp_path / name / "runs", "hash") for name in ("a", "b")]).places
        )
        == 2
    )


@pytest.mark.skipif(os.geteuid() == 0, reason="root may look into every folder")
def test_a_folder_that_may_not_be_read_is_told(tmp_path: Path) -> None:
    (tmp_path / "closed").mkdir(mode=0)
    assert "can't be looked into" in discover([tmp_path]).problems[0]


def test_a_run_is_read_again_only_when_it_changes(
    runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copied(runs, tmp_path, "hash", "oracle")
    library, reads, read = Library([tmp_path]), list[str](), RunProcess.read
    monkeypatch.setattr(
        RunProcess, "read", lambda self, run: (reads.append(run.folder.name), read(self, run))[1]
    )
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
    assert {*library.snapshot.board.models} == {"fake:oracle", "other"}
    assert library.snapshot.ranges.keys() == ranges.keys()


def test_disputed_items_are_half_right(runs: Path, models: Snapshot) -> None:
    ((part, listed),) = models.disputed.items()
    assert part == models.board.columns[0].key.part.id
    columns = {column.protocol for column in handful(models.board.columns, 12)}
    known: dict[str, list[float]] = {}
    for name in ("hash", "oracle"):
        for outcome in summarize(runs / name).outcomes.outcomes:
            if outcome.name in columns:
                for item, credit in zip(
                    outcome.ids.to_pylist(), outcome.credit.tolist(), strict=True
                ):
                    known.setdefault(item, []).extend([] if math.isnan(credit) else [credit])
    distance = {item: abs(sum(own) / len(own) - 0.5) for item, own in known.items()}
    assert [distance[each.item] for each in listed] == sorted(
        distance[each.item] for each in listed
    )
    assert distance[listed[0].item] == min(distance.values())
    for each in listed:
        assert (each.right, each.answers) == (
            pytest.approx(sum(known[each.item])),
            len(known[each.item]),
        )


def test_decisions_are_kept_within_a_budget_and_read_again(runs: Path) -> None:
    read: list[str] = []

    def again(run: ListedRun) -> Outcomes:
        read.append(run.label)
        return summarize(run.folder).outcomes

    one, other = read_listed(runs / "hash", "hash"), read_listed(runs / "oracle", "oracle")
    outcomes = summarize(runs / "hash").outcomes
    size = sum(each.codes.nbytes + each.predicted.nbytes for each in outcomes.outcomes)
    decisions = Decisions(again, budget=1 + size)
    decisions.put(one, outcomes)
    assert decisions.get(one) is not None
    decisions.get(other)
    decisions.get(one)
    assert read == ["oracle", "hash"]
    shared = Decisions(again)
    both = [shared.get(run) for run in (one, other)]
    assert (
        len(
            {
                id(each.items)
                for outcomes in both
                if outcomes is not None
                for each in outcomes.outcomes
            }
        )
        == 1
    )


def test_guesses_reach_down_to_chance(sample: tuple[ListedRun, Number]) -> None:
    run, row = sample
    clear = altered(row, n=40, ci_low=0.3, diagnosis=replace(row.diagnosis, guessing_p=0.01))
    assert not guessed(Cell(run, clear))
    assert guessed(Cell(run, altered(clear, ci_low=0.2)))
    assert guessed(Cell(run, altered(clear, n=19)))
    assert guessed(Cell(run, replace(clear, diagnosis=row.diagnosis)))
    assert not guessed(Cell(run, None))


def test_protocols_are_named_in_the_fewest_words(one: ListedRun) -> None:
    words = shlex.split(run_command(one).line)
    assert [word for before, word in pairwise(words) if before == "--protocol"] == PROTOCOLS, (
        "as they were typed"
    )


def test_csv_is_text_for_a_spreadsheet() -> None:
    rows = [{"a": "=1+1", "b": 0.5, "c": math.nan}, {"a": "-x", "b": None, "c": "two\nlines\x1b"}]
    assert table_csv(("a", "b", "c"), rows).split("\r\n")[1:3] == [
        "'=1+1,0.5,",
        "'-x,,two\\nlines\\x1b",
    ]
