"""The table that the board opens on: one column a part of the data, means, ranks, filters."""

import hashlib
import json
import math
import random
import re
import shutil
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote

import pytest

from choicewise.errors import ChoicewiseError, StoreError, UsageError
from choicewise.extensions.analyses.invariance import panels
from choicewise.extensions.board.headlines import (
    headlines,
    headlines_record,
    lead_sentence,
    mean_ranges,
)
from choicewise.extensions.board.library import Library, disputed
from choicewise.extensions.board.model import ListedRun, Snapshot, State, board, slug
from choicewise.extensions.board.pages import Links, board_page, check_place, write_board
from choicewise.extensions.board.records import View
from choicewise.extensions.board.runs import RunProcess
from choicewise.results.run import open_run
from choicewise.results.summary import summarize
from tests.helpers.board import change, read_runs_here, rename, write_run
from tests.helpers.commands import choicewise
from tests.helpers.rows import altered

LINKS = Links({"page.css": "a", "board.css": "b"})
MODELS = ("a", "b", "c", "d")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs")
    write_run(folder / "hash")
    write_run(folder / "oracle", model="fake:oracle")
    return folder


@pytest.fixture(scope="module")
def snapshot(folder: Path) -> Snapshot:
    with pytest.MonkeyPatch.context() as patch:
        read_runs_here(patch)
        library = Library([folder])
        library.catch_up()
        library.stop()
    return library.snapshot


@pytest.fixture(scope="module")
def sample(folder: Path) -> ListedRun:
    summary = summarize(folder / "hash")
    rows = tuple(row for row in summary.rows if row.identity.subject == "all")
    return ListedRun(
        id=slug("one"),
        label="one",
        folder=folder,
        state=State.READ,
        version="one",
        manifest=summary.manifest,
        computed="#R000000",
        rows=rows,
    )


def test_items_keep_their_names_on_the_way_to_the_board(
    sample: ListedRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By their texts and right answers, ranks of means tell the same questions."""
    read_runs_here(monkeypatch)
    _, outcomes = RunProcess().read(replace(sample, folder=sample.folder / "hash"))
    assert outcomes is not None
    stored = summarize(sample.folder / "hash").outcomes.outcomes
    for one, other in zip(outcomes.outcomes, stored, strict=True):
        assert one.items.to_pydict() == other.items.to_pydict()


def listed(sample: ListedRun, model: str, data: str, values: dict[str, float]) -> ListedRun:
    """A run of ``model`` on the dataset ``data``, with these numbers by protocol."""
    manifest = sample.manifest
    assert manifest is not None
    digest = data.encode().hex().ljust(64, "0")
    dataset = replace(manifest.dataset, name=data, digest=digest)
    about = replace(manifest, model=replace(manifest.model, name=model), dataset=dataset)
    rows = tuple(
        altered(
            row,
            model=model,
            dataset=data,
            data=f"#D{digest[:6]}",
            value=values[row.identity.protocol],
        )
        for row in sample.rows
        if row.identity.protocol in values
    )
    name = f"{model} on {data}"
    return replace(sample, id=slug(name), label=name, version=name, manifest=about, rows=rows)


@pytest.mark.parametrize("seed", range(6))
def test_means_and_ranks_are_the_plain_ones(sample: ListedRun, seed: int) -> None:
    """Against a plain reference: the mean of the headline numbers, ranked among the models that have all."""
    chance = random.Random(seed)
    protocols = [row.identity.protocol for row in sample.rows]
    own = {
        (model, data): {protocol: round(chance.random(), 2) for protocol in protocols}
        for model in MODELS
        for data in ("one", "two")
        if (model, data) != ("d", "two") or seed % 2
    }
    seen = headlines(board([listed(sample, *name, values) for name, values in own.items()]), View())
    assert [column.dataset for column in seen.columns] == list(seen.titles)
    shown = {column.dataset: column.protocol for column in seen.columns}
    means = {
        model: sum(own[model, data][shown[data]] for data in shown) / len(shown)
        for model in MODELS
        if all((model, data) in own for data in shown)
    }
    for each in seen.lines:
        mean = means.get(each.line.model)
        if mean is None:
            assert math.isnan(each.mean)
            assert each.rank is None
        else:
            assert each.mean == pytest.approx(mean)
            assert each.rank == 1 + sum(other > mean + 1e-12 for other in means.values())
    placed = [each.mean for each in seen.lines if not math.isnan(each.mean)]
    assert placed == sorted(placed, reverse=True)
    assert len(seen.lines) == len(MODELS), "who lacks a number comes last"


def test_filters_hide_models_and_numbers_and_never_leave_an_empty_row(snapshot: Snapshot) -> None:
    told = snapshot.board
    assert [each.line.model for each in headlines(told, View()).lines] == [
        "fake:oracle",
        "fake:hash",
    ]
    assert [each.line.model for each in headlines(told, View(model="ORACLE")).lines] == [
        "fake:oracle"
    ]
    assert headlines(told, View(model="ORACLE")).lines[0].rank == 1, "among all, whatever is shown"
    assert headlines(told, View(family=("cloze",))).columns[0].family == "cloze"
    for warning in ("none", "any", "chance", "length"):
        assert all(each.cells for each in headlines(told, View(warning=warning)).lines)
    assert [each.line.model for each in headlines(told, View(sort="mean", order="up")).lines] == [
        "fake:hash",
        "fake:oracle",
    ]
    assert [each.line.model for each in headlines(told, View(sort="model")).lines] == [
        "fake:hash",
        "fake:oracle",
    ]


def test_the_range_of_a_rank_is_known_and_told(snapshot: Snapshot) -> None:
    seen = headlines(snapshot.board, View(), snapshot.means)
    assert seen.measured in snapshot.means
    assert all(
        (one.rank_low or 99) <= (one.rank or 0) <= (one.rank_high or 0) for one in seen.lines
    )
    assert (
        headlines_record(snapshot, View())["headlines"]["models"][0]["rank_low"]
        == seen.lines[0].rank_low
    )
    assert mean_ranges(snapshot.board, seen.measured, lambda run: None) == {}


def test_the_first_line_names_who_leads_significantly(snapshot: Snapshot) -> None:
    seen = headlines(snapshot.board, View(), snapshot.means)
    (better, worse) = seen.lines
    one = replace(better, rank=1, rank_low=1, rank_high=1)
    other = replace(worse, rank=2, rank_low=2, rank_high=2)
    assert lead_sentence(replace(seen, lines=(one, other))).startswith(f"{one.line.model} leads")
    level = replace(other, rank_low=1)
    assert "all 2 models" in lead_sentence(replace(seen, lines=(one, level)))
    third = replace(other, rank=3, rank_low=3, rank_high=3)
    assert "2 of 3 models" in lead_sentence(replace(seen, lines=(one, level, third)))
    untested = replace(seen, lines=(one, replace(other, rank_low=None)))
    assert lead_sentence(untested).startswith(f"{one.line.model} is ahead")
    assert lead_sentence(replace(seen, lines=(one,))) == ""
    page = board_page(snapshot, View(), LINKS)
    assert lead_sentence(seen) in page


def test_the_board_opens_on_it_and_then_shows_each_protocol(snapshot: Snapshot) -> None:
    page = board_page(snapshot, View(), LINKS)
    assert 0 < page.index('aria-label="Models by benchmarks"') < page.index("Under each protocol")
    assert 'class="mean"' not in page, "of one benchmark it is the number"


def test_items_are_listed_with_their_questions(folder: Path, snapshot: Snapshot) -> None:
    listed = [each for items in snapshot.disputed.values() for each in items]
    assert listed
    assert all(each.question and each.question != each.item for each in listed)
    assert listed[0].question.split("<")[0] in board_page(snapshot, View(), LINKS)


def test_a_run_that_went_away_leaves_the_ids(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read_runs_here(monkeypatch)
    for name in ("hash", "oracle"):
        shutil.copytree(folder / name, tmp_path / name)
    library = Library([tmp_path])
    library.catch_up()

    def gone(run: ListedRun, items: object) -> dict[str, str]:
        raise StoreError("it went away")

    listed = disputed(library.snapshot.board, library.decisions, gone)
    library.stop()
    assert all(each.question == "" for items in listed.values() for each in items)


HOSTILE = "<script>alert(1)</script>\"'&\u202e\u2028\x1b]0;x\x07../../etc" + "w" * 300


class PageLinks(HTMLParser):
    """Every address that a page names, and every attribute with a script or a style."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.addresses: list[str] = []
        self.inline: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.addresses += [
            value or "" for name, value in attrs if name in ("href", "src", "action")
        ]
        self.inline += [name for name, _ in attrs if name.startswith("on") or name == "style"]


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The board of two complete runs, one with a hostile name, and of one that goes on."""
    folder = tmp_path_factory.mktemp("runs")
    write_run(folder / "hash")
    rename(write_run(folder / "oracle", model="fake:oracle"), HOSTILE)
    change(
        write_run(folder / "slow", model="fake:anti-oracle"),
        lambda manifest: replace(manifest, complete=False),
    )
    out = tmp_path_factory.mktemp("out") / "board"
    with pytest.MonkeyPatch.context() as patch:
        read_runs_here(patch)
        choicewise("page", folder, "--out", out, code=0)
    return out


def test_there_is_a_page_for_everything_and_artefacts_are_what_their_names_say(out: Path) -> None:
    told = json.loads((out / "board.json").read_text())
    assert {model["model"] for model in told["models"]} == {
        "fake:hash",
        HOSTILE,
        "fake:anti-oracle",
    }
    counts = {"run/*": 3, "model/*.html": 3, "protocol/*": 12, "strip/*": 2}
    assert {pattern: len(list(out.glob(pattern))) for pattern in counts} == counts
    assert "incomplete" in (out / "index.html").read_text()
    files = list((out / "artefact").iterdir())
    assert {file.suffix for file in files} == {".csv", ".parquet"}
    assert all(hashlib.sha256(file.read_bytes()).hexdigest() == file.stem for file in files)


def test_every_link_leads_to_a_file_beside_it_and_pages_say_what_they_may_load(out: Path) -> None:
    for page in out.rglob("*.html"):
        links, in_run = PageLinks(page.read_text()), page.parent.name == "run"
        assert links.inline == [], page
        policy = re.search(r'Content-Security-Policy" content="([^"]*)"', page.read_text())
        assert policy is not None, page
        assert "default-src 'none'" in policy[1].replace("&#39;", "'")
        assert "unsafe" not in policy[1]
        for address in links.addresses:
            path = unquote(address.partition("#")[0])
            # a citation, or a download that the document holds itself
            if (
                not path
                or address == "data:,"
                or address.startswith("https://")
                or (in_run and address[:5] == "data:")
            ):
                continue
            assert not path.startswith(("/", "http:", "javascript:")), (page, address)
            assert (page.parent / path).exists(), (page, address)


def test_nothing_of_a_hostile_name_is_markup(out: Path) -> None:
    for file in out.rglob("*"):
        assert re.fullmatch(r"[A-Za-z0-9._-]+", file.name)
        if file.suffix in (".html", ".json", ".csv"):
            text = file.read_bytes().decode()
            assert "<script>alert" not in text or file.suffix == ".csv"
            assert not {"\x1b", "\u202e", "\u2028", "\x07"} & set(text), file


@pytest.mark.parametrize(
    ("run", "place", "more", "kind", "words"),
    [
        ("run", "other", (), UsageError, "holds other files"),
        ("run", "file", (), UsageError, "is a file"),
        ("run", "new", ("--items", "3"), UsageError, "--items"),
        ("nowhere", "new", (), StoreError, "no run lies in"),
    ],
)
def test_places_that_are_no_board_are_refused(
    tmp_path: Path,
    run: str,
    place: str,
    more: tuple[str, ...],
    kind: type[ChoicewiseError],
    words: str,
) -> None:
    write_run(tmp_path / "run", protocols=["mmlu/original"])
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "file").touch()
    (tmp_path / "file").touch()
    assert (
        words
        in choicewise(
            "page", tmp_path / run, "--out", tmp_path / place, *more, code=kind.exit_code
        ).stderr
    )
    assert not (tmp_path / "new").exists()


@pytest.mark.costly("a board is written twice")
def test_a_board_that_a_full_disk_stopped_can_be_written_again(
    snapshot: Snapshot, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    board = tmp_path / "board"

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(Path, "write_bytes", full)
        with pytest.raises(StoreError):
            write_board(snapshot, board)
    assert any(board.iterdir())
    check_place(board)
    assert "<table" in write_board(snapshot, board).read_text()


@pytest.mark.costly("two runs, one with its panel, and a board")
def test_a_run_with_its_panel_has_flips_beside_its_accuracy(tmp_path: Path) -> None:
    """As its own report says; a model without a panel has none, and a board without one no such column."""
    asked = (
        "--model",
        "fake:hash",
        "--data",
        "bundled:merrowick",
        "--limit",
        "2",
        "--protocol",
        "mmlu/harness-v0.4",
    )
    choicewise("run", *asked, "--shots", "0", "--panel", "--out", tmp_path / "runs" / "hash")
    choicewise(
        "run",
        "--model",
        "fake:oracle",
        *asked[2:],
        "--shots",
        "0",
        "--out",
        tmp_path / "runs" / "oracle",
    )
    (panel,) = panels(open_run(tmp_path / "runs" / "hash"))
    orders = next(check for check in panel.checks if check.check == "order")
    with pytest.MonkeyPatch.context() as patch:
        read_runs_here(patch)
        library = Library([tmp_path / "runs"])
        library.catch_up()
        library.stop()
    seen = headlines(library.snapshot.board, View())
    assert seen.turned
    assert {each.line.model: (each.flips, each.net) for each in seen.lines} == {
        "fake:hash": (pytest.approx(orders.flips.value), pytest.approx(orders.net)),
        "fake:oracle": (None, None),
    }
    page = board_page(library.snapshot, View(), LINKS)
    assert f"{100 * orders.flips.value:.1f} <small>net" in page
