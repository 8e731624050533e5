"""`--metric` of runs that were not asked for it: every command shows the numbers that `report` shows."""

import csv
import json
import math
from pathlib import Path

import numpy as np
import pytest

from choicewise.extensions.board.library import read_snapshot
from choicewise.page.document import Content, document, inside_items
from choicewise.page.metrics import metric_tables
from choicewise.page.study import read_study
from choicewise.protocols.between import under_metrics
from choicewise.results.outcomes import read_together
from choicewise.results.run import open_run
from choicewise.util.text import plain
from tests.helpers.commands import choicewise
from tests.helpers.mmlu_data import write_mmlu
from tests.helpers.page_runs import Page

NAMES = ["mmlu/original", "mmlu/cloze:byte_mean", "mmlu/cloze:sum", "mmlu/cloze:pmi-answer"]
METRICS = "bpb,brier"


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Two models that were asked for accuracies."""
    folder = tmp_path_factory.mktemp("runs")
    data = write_mmlu(folder / "data")
    for model in ("hash", "anti-oracle"):
        words = [word for name in NAMES for word in ("--protocol", name)]
        choicewise(
            "run",
            "--model",
            f"fake:{model}",
            "--data",
            data,
            *words,
            "--out",
            folder / model,
            code=0,
        )
    return [folder / "hash", folder / "anti-oracle"]


@pytest.fixture(scope="module")
def reported(folders: list[Path]) -> dict[tuple[str, str], dict[str, object]]:
    """What `report` says, by model and protocol."""
    rows = json.loads(choicewise("report", *folders, "--metric", METRICS, "--json", code=0).stdout)
    return {(row["model"], row["protocol"]): row for row in rows}


def command_of(verb: str, folders: list[Path], out: Path) -> list[object]:
    own: dict[str, list[object]] = {
        "report": ["report", *folders],
        "compare": ["compare", *folders],
        "ladder": ["ladder", NAMES[3], NAMES[2], folders[0]],
        "page": ["page", *folders, "--out", out / "page.html"],
        "board": ["page", *folders, "--out", out / "board"],
        "plot": ["plot", *folders, "ranks", "--out", out / "ranks.svg"],
        "export": ["export", *folders, "--format", "csv", "--out", out / "rows.csv"],
        "serve": ["serve", folders[0].parent],
    }
    return own[verb]


@pytest.mark.costly("many commands")
@pytest.mark.parametrize(
    "verb", ["report", "compare", "ladder", "page", "board", "plot", "export", "serve"]
)
def test_metrics_that_are_unknown_or_no_protocol_can_have_are_refused(
    verb: str, folders: list[Path], tmp_path: Path
) -> None:
    command = command_of(verb, folders, tmp_path)
    unknown = choicewise(*command, "--metric", "brier,bier")
    assert unknown.code == 2
    assert "metric is called 'bier'" in unknown.stderr
    if verb not in ("board", "serve"):  # which show all runs, whatever some of them lack
        lacking = choicewise(*command, "--metric", "flip-rate")
        assert lacking.code == 2
        assert "has the metric flip-rate" in lacking.stderr
        assert "views cyclic or full" in lacking.stderr
    assert not any(tmp_path.iterdir())


@pytest.mark.costly("a page and a board")
@pytest.mark.parametrize("verb", ["report", "page", "board", "plot", "export"])
def test_what_some_protocols_can_not_have_is_said_with_their_names(
    verb: str, folders: list[Path], tmp_path: Path
) -> None:
    done = choicewise(*command_of(verb, folders, tmp_path), "--metric", "bpb", code=0)
    for model in ("hash", "anti-oracle"):
        (line,) = [
            line for line in done.stderr.splitlines() if line.startswith("note: ") and model in line
        ]
        assert "mmlu/cloze:pmi-answer:" in line


@pytest.mark.costly("a page and a board")
def test_export_page_and_board_have_the_numbers_of_the_report(
    folders: list[Path], reported: dict[tuple[str, str], dict[str, object]], tmp_path: Path
) -> None:
    choicewise(
        "export",
        *folders,
        "--format",
        "csv",
        "--metric",
        METRICS,
        "--out",
        tmp_path / "rows.csv",
        code=0,
    )
    with (tmp_path / "rows.csv").open(newline="") as file:
        exported = {
            (row["model"], row["protocol"]): float(row["value"]) for row in csv.DictReader(file)
        }
    values = {key: row["value"] for key, row in reported.items()}
    assert exported == pytest.approx(values)

    study = read_study(folders, METRICS.split(","))
    by_metric = {table.metric: table for table in metric_tables(study)}
    tables = {metric: table.table.rows for metric, table in by_metric.items()}
    assert {tuple(row[:2]) for rows in tables.values() for row in rows} == values.keys()
    for metric, rows in tables.items():
        assert {tuple(row[:2]): row[2] for row in rows} == {
            key: plain(float(str(row["value"])))
            for key, row in reported.items()
            if row["metric"] == metric
        }
    assert [bool(table.notes) for table in by_metric.values()] == [True, False]
    assert {run.row_of.keys() == {*NAMES} for run in study.runs} == {True}, "their own numbers stay"

    board = read_snapshot([folders[0].parent], METRICS.split(",")).board
    shown = {
        (line.model, column.protocol): line.cells[column.id].value
        for line in board.lines
        for column in board.columns
        if column.key.metric != "acc"
    }
    assert shown == pytest.approx(values)


def test_bits_of_letters_are_said_to_say_nothing_once(folders: list[Path]) -> None:
    told = choicewise("report", *folders, "--metric", "bpb", "--all", code=0).stdout
    assert told.count("byte of letters") == 1
    brier = choicewise("report", *folders, "--metric", "brier", "--all", code=0).stdout
    assert "of letters" not in brier
    texts = ["--protocol", NAMES[1], "--metric", "bpb"]
    assert "of letters" not in choicewise("report", folders[0], *texts, code=0).stdout
    letters = ["--protocol", NAMES[0], "--metric", "bpb"]
    assert "letters, not of texts" in choicewise("report", folders[0], *letters, code=0).stdout


def test_a_ladder_of_another_metric_has_its_numbers_and_its_direction(
    folders: list[Path], reported: dict[tuple[str, str], dict[str, object]]
) -> None:
    done = choicewise(
        "ladder", NAMES[3], NAMES[2], folders[0], "--metric", "brier,log-score", "--json", code=0
    )
    brier, log = json.loads(done.stdout)
    (step,) = brier["in_order"]["steps"]
    ends = [reported["fake:hash", f"{name}@metric=brier"]["value"] for name in (NAMES[3], NAMES[2])]
    assert [brier["in_order"]["start_value"], brier["in_order"]["end_value"]] == pytest.approx(ends)
    assert log["in_order"]["metric"] == "log-score"
    run = open_run(folders[0])
    made = run.under(
        under_metrics({name: run.protocols[name] for name in (NAMES[3], NAMES[2])}, ["brier"])
    )
    before, after = (each.credit for each in made.measurements.values())
    assert (step["gained"], step["lost"]) == (
        int((after < before).sum()),
        int((after > before).sum()),
    )
    shown = choicewise("ladder", NAMES[3], NAMES[2], folders[0], "--metric", "brier", code=0).stdout
    assert "(less is better) ± standard" in shown
    assert "get better, and worse" in " ".join(shown.split())
    assert "%" not in shown


def test_charts_of_shares_take_no_metric(folders: list[Path], tmp_path: Path) -> None:
    done = choicewise(
        "plot", folders[0], "strip", "--metric", "bpb", "--out", tmp_path / "strip.svg"
    )
    assert (done.code, "--metric does not apply" in done.stderr) == (2, True)


def test_a_run_without_accuracies_shows_its_numbers_and_how_to_get_them(tmp_path: Path) -> None:
    folder, data = tmp_path / "run", write_mmlu(tmp_path / "data")
    names = ["mmlu/original@metric=brier", "mmlu/cloze:byte_mean@metric=bpb"]
    words = [word for name in names for word in ("--protocol", name)]
    choicewise("run", "--model", "fake:hash", "--data", data, *words, "--out", folder, code=0)
    study = read_study([folder])
    page = Page(document(content := Content(study), "21 Nov 2026", inside_items(content, 1)))
    titles = {about["id"] for tag, about in page.elements if tag == "section"}
    assert {"metrics", "protocols", "again"} <= titles
    assert "numbers" not in titles
    assert "All numbers" in page.text
    for row in study.other_metrics:
        (line,) = [
            line
            for line in page.tables[row.identity.metric][1:]
            if line[1] == row.identity.protocol
        ]
        assert line[2] == plain(row.value)
    assert page.tables["bpb"][0][2] == "bits/byte"
    assert {*study.runs[0].run_protocols} == {*names}
    assert all(name in page.text for name in names)


def test_metrics_that_are_read_together_are_not_read_again(
    folders: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """And their rows are those that each has alone."""
    run = open_run(folders[0])
    parts = [
        run.under(under_metrics(run.protocols, [metric]))
        for metric in ("bpb", "brier", "margin", "ece")
    ]
    alone = [open_run(folders[0]).under(part.protocols).rows() for part in parts]
    run.rows()  # with the texts
    read_together(run, [part.protocols for part in parts])
    monkeypatch.setattr(type(run.evidence), "portion_tables", lambda *_: pytest.fail("read again"))
    together = [part.rows() for part in parts]
    for one, other in zip(
        (row for own in together for row in own), (row for own in alone for row in own), strict=True
    ):
        assert one.identity.protocol == other.identity.protocol
        assert one.value == other.value or math.isnan(one.value)
        assert one.diagnosis == other.diagnosis or np.isnan(one.diagnosis.mass)
