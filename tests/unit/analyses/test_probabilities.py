"""The chain from log-probability to accuracy, calibration, and numbers that are no shares, on a page and on a board."""

import math
from pathlib import Path

import numpy as np
import pytest

from choicewise.extensions.analyses.charts import calibration as diagram
from choicewise.extensions.analyses.charts import chain as chart
from choicewise.extensions.analyses.charts.chain import MOST
from choicewise.extensions.analyses.charts.probabilities import (
    Chain,
    StatedProbabilities,
    bin_rows,
    calibration_rows,
    chain_table,
    errors_in_words,
    lacks_probabilities,
    stated_probabilities,
)
from choicewise.extensions.analyses.charts.stored import NAME
from choicewise.extensions.board.library import read_snapshot
from choicewise.extensions.board.model import Snapshot
from choicewise.extensions.board.pages import guessed
from choicewise.extensions.board.records import View, board_record, sorted_by, visible_board
from choicewise.page.document import Content, document, inside_items
from choicewise.page.metrics import metric_tables
from choicewise.page.study import Study, read_study
from choicewise.protocols.metrics import CHAIN
from choicewise.report.tables import value_text
from choicewise.results import summary
from choicewise.results.run import open_run
from choicewise.util.text import plain
from tests.helpers.page_runs import Page, write_run
from tests.helpers.rows import altered

pytest.importorskip("vl_convert", reason="pages need choicewise[page]")

BPB, ECE = "mmlu/olmes-cf:byte_mean@metric=bpb", "mmlu/original@metric=ece"
ASKED = (
    "mmlu/original",
    "mmlu/cloze:sum",
    "mmlu/cloze:pmi-answer",
    BPB,
    "mmlu/original@metric=brier",
    ECE,
)
MODELS = {"oracle": "oracle", "hash": "hash", "anti": "anti-oracle"}


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("believed")
    return [write_run(folder / name, f"fake:{model}", ASKED) for name, model in MODELS.items()]


@pytest.fixture(scope="module")
def study(folders: list[Path]) -> Study:
    return read_study(folders)


@pytest.fixture(scope="module")
def read(study: Study) -> StatedProbabilities:
    (each,) = stated_probabilities(study)
    return each


@pytest.fixture(scope="module")
def snapshot(folders: list[Path]) -> Snapshot:
    return read_snapshot(folders)


def plain_softmax(folder: Path) -> list[tuple[list[float], int]]:
    """The softmax of every item's log-likelihoods under mmlu/original, and the place of its right choice."""
    run = open_run(folder)
    scores = run.scores("mmlu/original").to_pylist()
    right = run.measurements["mmlu/original"].evidence.gold_index.tolist()
    items: dict[str, list[float]] = {}
    for row in scores:
        items.setdefault(row["item"], []).append(row["score"])
    shares = []
    for own in items.values():
        each = [math.exp(score - max(own)) for score in own]
        shares.append([one / sum(each) for one in each])
    return list(zip(shares, right, strict=True))


def test_the_calibration_is_the_plain_one(folders: list[Path], read: StatedProbabilities) -> None:
    place = list(MODELS).index("hash")
    own, items = read.calibrated[place], plain_softmax(folders[place])
    brier = np.mean([sum((p - (at == gold)) ** 2 for at, p in enumerate(ps)) for ps, gold in items])
    assert own.brier.value == pytest.approx(brier)
    assert own.brier.chance == pytest.approx(0.75)
    bins: dict[int, list[tuple[float, bool]]] = {}
    for ps, gold in items:
        bins.setdefault(min(int(max(ps) * 10), 9), []).append((max(ps), ps.index(max(ps)) == gold))
    gaps = [abs(sum(p - hit for p, hit in each)) for each in bins.values()]
    assert own.ece.value == pytest.approx(sum(gaps) / len(items))
    assert [bin.n for bin in own.bins] == [len(bins[number]) for number in sorted(bins)]
    drawn = [each for each in diagram.values(own) if each["kind"] == "bin"]
    for record, number in zip(drawn, sorted(bins), strict=True):
        assert record["confidence"] == pytest.approx(np.mean([p for p, _ in bins[number]]))
        assert record["right"] == pytest.approx(np.mean([hit for _, hit in bins[number]]))
        assert record["low"] <= record["right"] <= record["high"]
    assert sum(record["share"] for record in drawn) == pytest.approx(1)
    assert f"{plain(own.ece.calibrated)} if calibrated" in errors_in_words(own)[0]
    assert "0.750 uniform" in errors_in_words(own)[1]


def test_a_summary_keeps_it_without_the_observations(
    read: StatedProbabilities, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(summary, "MANY", 1)
    monkeypatch.setattr("choicewise.page.study.open_run", None)
    again = [write_run(tmp_path / name, f"fake:{model}", ASKED) for name, model in MODELS.items()]
    study = read_study(again)
    assert {tuple(run.statistics) for run in study.runs} == {(NAME,)}
    assert repr(stated_probabilities(study)) == repr([read])


def test_the_chain_has_every_model_and_metric_at_its_place(
    study: Study, read: StatedProbabilities
) -> None:
    letters, texts = read.chains
    assert (letters.family, letters.protocol) == ("letters", "mmlu/original")
    assert (texts.family, texts.protocol) == ("cloze", "mmlu/cloze:sum")
    assert letters.metrics == list(CHAIN)
    records = chart.values(read.chains)
    dots = [each for each in records if each["kind"] == "dot"]
    assert len(dots) == 2 * len(MODELS) * len(CHAIN)
    values = {row.identity.protocol: row.value for row in study.runs[1].rows}
    for each in dots:
        assert 0 <= each["along"] <= 1
        assert each["across"] // 1 == CHAIN.index(each["metric"]), "in the panel of its metric"
        assert not each["along_low"] > each["along"] > each["along_high"]
        if each["model"] == "hash" and each["metric"] == "acc":
            assert each["along"] == pytest.approx(values[each["protocol"]])
    for layout in ("row", "line"):
        places = [(each[layout], each["across"] // 1 if layout == "row" else 0) for each in dots]
        assert len(set(places)) == len(places), "no two dots share a lane of a panel"
        scales = [each[f"{layout}_below"] for each in records if each["kind"] == "tick"]
        assert not {place for place, _ in places} & set(scales), "a scale has a lane of its own"


def test_dots_of_better_models_stand_on_the_side_that_the_panel_names(
    read: StatedProbabilities,
) -> None:
    records = chart.values(read.chains)
    for metric in CHAIN:
        best, worst = (
            next(
                each["along"]
                for each in records
                if each.get("metric") == metric and each.get("model") == model
            )
            for model in ("oracle", "anti")
        )
        better = {
            each["better"]
            for each in records
            if each["kind"] == "panel" and each["heading"].startswith("Brier")
        }
        assert better == {"less is better"}
        assert (best < worst) == (metric == "brier")


def test_of_many_models_the_best_are_drawn_and_all_stand_in_the_table(
    read: StatedProbabilities,
) -> None:
    letters = read.chains[0]
    (name, rows), *_ = letters.models
    names = [f"{name}-{n}" for n in range(MOST + 5)]
    many = [
        (one, tuple(altered(row, model=one, value=n / 100) for row in rows))
        for n, one in enumerate(names)
    ]
    crowd = Chain(letters.dataset, letters.family, letters.protocol, tuple(many))
    records = chart.values([crowd])
    drawn = {each["model"] for each in records if each["kind"] == "dot"}
    assert drawn == {model for model, _ in many[5:]}
    assert f"{MOST} of {MOST + 5} models" in chart.caption(records)
    columns, lines = chain_table([crowd])
    assert [line[0] for line in lines] == [model for model, _ in many]
    assert columns[2][0] == "log-probability (nats, more is better)"
    assert all(len(line) == len(columns) for line in lines)


def test_a_score_without_log_likelihoods_has_no_probability_and_no_panel_for_it(
    tmp_path: Path,
) -> None:
    folder = write_run(tmp_path / "pmi", protocols=["mmlu/cloze:pmi-answer"])
    (each,) = stated_probabilities(read_study([folder]))
    (texts,) = each.chains
    assert texts.metrics == ["norm-prob", "brier", "acc"]
    assert each.calibrated == ()
    panels = [record["across"] for record in chart.values(each.chains) if record["kind"] == "panel"]
    assert [int(place) for place in panels] == [0, 1, 2]


@pytest.mark.costly("a page")
def test_what_was_generated_has_neither(tmp_path: Path) -> None:
    study = read_study([write_run(tmp_path / "run", protocols=["mmlu/helm"])])
    assert stated_probabilities(study) == []
    assert lacks_probabilities(study)
    page = Page(document(content := Content(study), "21 Nov 2026", inside_items(content, 1)))
    ids = {about.get("id") for tag, about in page.elements if tag == "section"}
    assert not {"chain", "calibration", "metrics"} & ids


def test_every_metric_has_a_table_with_the_best_number_first(study: Study) -> None:
    metrics = metric_tables(study)
    tables = {metric.metric: metric.table for metric in metrics}
    assert list(tables) == ["bpb", "brier", "ece"]
    for table in tables.values():
        assert {len(row) for row in table.rows} == {len(table.columns)}
        assert table.rows[0][0] == "oracle"
        ranks = [row[[name for name, _ in table.columns].index("rank")] for row in table.rows]
        assert [each.partition(" ")[0] for each in ranks] == ["1", "2", "3"]
    assert metrics[0].direction == "bits/byte, less is better"
    assert [name for name, _ in tables["bpb"].columns][2] == "bits/byte"
    brier = [name for name, _ in tables["brier"].columns]
    assert {"uniform", "if calibrated"} <= set(brier)
    assert tables["brier"].rows[0][brier.index("uniform")] == "0.750"
    assert "uniform" not in [name for name, _ in tables["ece"].columns], "guessing is calibrated"


def test_ranks_of_errors_lie_within_their_bounds(study: Study) -> None:
    """Draws of items rank the least first, as the values are ranked; a sample's ece leans to one side and has none."""
    for row in study.other_metrics:
        if row.identity.metric == "ece":
            assert (row.ranks.low, row.ranks.high) == (None, None)
            continue
        assert (row.ranks.low or 9) <= (row.ranks.rank or 0) <= (row.ranks.high or 0), (
            row.identity.protocol
        )


@pytest.mark.costly("a page of three runs")
def test_the_page_shows_all_of_it(study: Study, read: StatedProbabilities) -> None:
    page = Page(document(content := Content(study), "21 Nov 2026", inside_items(content, 1)))
    assert page.tables["From probability to accuracy"][1:] == chain_table(read.chains)[1]
    assert page.tables["Calibration"][1:] == calibration_rows(read.calibrated)
    assert page.tables["Confidence and share right"][1:] == bin_rows(read.calibrated)
    assert {"bpb", "brier", "ece"} <= page.tables.keys()
    said = {
        about.get("aria-label") or ""
        for tag, about in page.elements
        if about.get("role") == "graphics-symbol"
    }
    for record in chart.values(read.chains):
        if record["kind"] == "dot":
            assert record["description"] in said
    row = read.chains[0].models[1][1][0]
    assert any(f"log-probability {value_text(row, row.value)}" in each for each in said)


def test_the_board_has_columns_of_other_metrics_that_mix_with_nothing(snapshot: Snapshot) -> None:
    told_board = snapshot.board
    others = [column for column in told_board.columns if not column.share]
    assert [column.family for column in others] == [
        "bpb (bits/byte, less is better)",
        "brier (less is better)",
        "ece (less is better)",
    ]
    assert not any(column.headline for column in others)
    assert not {column.id for column in others} & {
        name for panel in told_board.panels.values() for name in panel
    }
    for column in others:
        seen = visible_board(told_board, View(columns="all", sort=column.id))
        assert [line.model for line in seen.lines] == [
            "oracle",
            "hash",
            "anti",
        ] or column.key.metric == "ece"
        values = [line.cells[column.id].value for line in seen.lines]
        assert values == sorted(values)
        assert [line.cells[column.id].rank for line in seen.lines] == [1, 2, 3]
        assert not seen.downwards
        assert sorted_by(seen, column.id).order == "down"
        assert not any(guessed(line.cells[column.id]) for line in seen.lines)


def test_the_json_of_the_board_says_unit_and_direction(snapshot: Snapshot) -> None:
    record = board_record(snapshot, View(columns="all"))
    about = {
        column["metric"]: (column["unit"], column["higher_is_better"])
        for column in record["columns"]
    }
    assert about == {
        "acc": ("", True),
        "bpb": ("bits/byte", False),
        "brier": ("", False),
        "ece": ("", False),
    }
