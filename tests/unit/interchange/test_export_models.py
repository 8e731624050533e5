"""Models by benchmarks for a paper: one number each, bold what is not worse than the best, signatures beside it."""

import math
import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

import choicewise
from choicewise.errors import UsageError
from choicewise.interchange.export import TABLES, WRITERS, export, writer
from choicewise.interchange.write.models_table import MOST, UNTESTED, models_tables
from choicewise.interchange.write.paper import NONE, PaperTable, latex, markdown
from choicewise.protocols.catalogue import resolve
from choicewise.protocols.protocol import parse_signature
from choicewise.results.headline import matrix
from choicewise.results.outcomes import Summary
from choicewise.results.summary import summarize
from choicewise.util.text import percent
from tests.helpers.mmlu_data import write_mmlu
from tests.helpers.study import Study

NASTY = r"a_b*c*|d <b>&amp; $1$ `q` \cmd{50%} #1 ^2 „Ü 模" + "\n\u202e"
HEADLINE = "mmlu/original"


@pytest.fixture(scope="module")
def folders(study: Study, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Those of the study, and two of its models on a second dataset."""
    place = tmp_path_factory.mktemp("second")
    data = write_mmlu(place / "waves", questions=8)
    for model in ("hash", "oracle"):
        choicewise.evaluate(model=f"fake:{model}", data=data, protocols=["mmlu/original"], out=place / model)
    return [*study.folders, place / "hash", place / "oracle"]


@pytest.fixture(scope="module")
def summaries(folders: list[Path]) -> list[Summary]:
    return [summarize(folder) for folder in folders]


def changed(summary: Summary, model: str = "", **about: object) -> Summary:
    """The same of another model or dataset, as its rows say it."""
    about = {**about, **({"model": model} if model else {})}
    manifest = replace(
        summary.manifest, model=replace(summary.manifest.model, name=model or summary.manifest.model.name)
    )
    outcomes = replace(summary.outcomes, model=model or summary.outcomes.model)
    rows = tuple(replace(row, **about) for row in summary.rows)
    return replace(summary, manifest=manifest, rows=rows, outcomes=outcomes)


def text(table: PaperTable) -> list[list[str]]:
    return [[cell.text for cell in row] for row in table.rows]


def bold(table: PaperTable) -> dict[str, list[bool]]:
    return {row[0].text: [cell.bold for cell in row[1:]] for row in table.rows}


def test_a_line_has_a_models_numbers_with_their_errors_mean_and_rank(summaries: list[Summary]) -> None:
    (table,), _ = models_tables(summaries)
    rows = {(row.model, row.dataset): row for each in summaries for row in each.rows if row.protocol == HEADLINE}
    first, second = dict.fromkeys(row.dataset for row in rows.values())
    assert table.heads == ("model", first, second, "mean", "rank")
    shown = matrix([row for each in summaries for row in each.rows], [each.outcomes for each in summaries])
    for line, standing in zip(text(table), shown.standings, strict=False):
        own = [rows.get((standing.model, name)) for name in (first, second)]
        spelled = [NONE if row is None else f"{percent(row.value)} ± {percent(row.se)}" for row in own]
        mean = NONE if math.isnan(standing.mean) else percent(standing.mean)
        span = NONE if standing.rank is None else str(standing.rank)
        span = span if standing.low in (None, standing.high) else f"{standing.low}–{standing.high}"
        assert line == [standing.model, *spelled, mean, span]
    counts = [f"{rows['fake:hash', name].n}" for name in (first, second)]
    assert text(table)[-2:] == [["n", *counts, "", ""], ["id", *[rows["fake:hash", first].id] * 2, "", ""]]
    assert text(table)[2][0] == "fake:anti-oracle"  # it lacks a benchmark, and is last


def test_the_best_of_a_column_is_bold_and_what_is_not_significantly_worse(summaries: list[Summary]) -> None:
    (table,), _ = models_tables(summaries)
    assert bold(table) == {
        "fake:oracle": [True, True, True, False],
        "fake:hash": [False, False, False, False],
        "fake:anti-oracle": [False, False, False, False],
        "n": [False] * 4,
        "id": [False] * 4,
    }
    (note,) = (note.text for note in table.notes if note.text.startswith("Bold"))
    assert "paired sign-flip test over the items that both score, 5 %, Holm's correction for 3 tests" in note
    few = [changed(each, selection="x") for each in summaries[:2]]
    few = [
        replace(
            each,
            outcomes=replace(
                each.outcomes,
                outcomes=tuple(
                    replace(one, selection="x", items=one.items[:4], codes=one.codes[:4], predicted=one.predicted[:4])
                    for one in each.outcomes.outcomes
                ),
            ),
        )
        for each in few
    ]
    (table,), _ = models_tables(few)  # four items can't tell them apart
    assert bold(table)["fake:hash"][0] is True


def test_other_texts_about_the_same_items_are_not_tested_and_that_is_noted(summaries: list[Summary]) -> None:
    (table,), _ = models_tables([summaries[1], changed(summaries[0], i="#I999999")])
    (note,) = (note for note in table.notes if note.mark)
    assert (note.text, table.rows[1][1].marks, table.rows[1][1].bold) == (UNTESTED, (note.mark,), False)


def test_what_a_number_lacks_is_noted(summaries: list[Summary]) -> None:
    short = replace(summaries[0], rows=tuple(replace(row, missing=3) for row in summaries[0].rows))
    (table,), _ = models_tables([short, summaries[1]])
    assert [note.text for note in table.notes if note.mark] == ["3 of 15 items could not be scored"]


def test_of_one_model_and_one_benchmark_there_is_the_number_alone(summaries: list[Summary]) -> None:
    (table,), _ = models_tables(summaries[:1])
    assert table.heads[2:] == ()
    assert not any(cell.bold for row in table.rows for cell in row)
    assert not any("Bold" in note.text or "ank" in note.text for note in table.notes)
    assert table.caption.endswith("of 1 model on 1 benchmark")


def test_a_table_that_is_too_wide_is_in_parts_and_the_last_has_mean_and_rank(summaries: list[Summary]) -> None:
    many = [
        changed(each, dataset=f"set {number}", data=f"#D{number:06}")
        for number in range(MOST + 1)
        for each in summaries[:2]
    ]
    parts, protocols = models_tables(many)
    assert [len(part.heads) for part in parts] == [5, 6]
    assert [part.name for part in parts] == ["models-1", "models-2"]
    assert parts[0].heads == ("model", *(f"set {number}" for number in range(4)))
    assert parts[1].heads == ("model", *(f"set {number}" for number in range(4, 7)), "mean", "rank")
    assert [row[0].text for row in protocols.rows] == [f"set {number}" for number in range(7)]


def test_a_model_that_was_computed_in_two_ways_is_tested_as_two(summaries: list[Summary]) -> None:
    one, other = summaries[1], changed(summaries[0], "fake:oracle")
    (table,), _ = models_tables([one, other])
    names = [row[0].text for row in table.rows[:2]]
    assert all(re.fullmatch("fake:oracle #R[0-9a-f]{6}", name) for name in names)
    assert len({*names}) == 2
    assert [bold(table)[name][0] for name in names] == [True, False]
    assert not any(note.mark for note in table.notes)


def test_without_a_number_over_all_items_there_is_no_table(summaries: list[Summary]) -> None:
    with pytest.raises(UsageError, match="no run has a number over all its items"):
        models_tables([changed(summaries[0], subject="tides")])


@pytest.mark.parametrize("format", ["latex", "markdown"])
def test_the_signatures_stand_in_a_file_of_their_own(format: str, folders: list[Path], tmp_path: Path) -> None:
    out = tmp_path / "new" / "table.x"
    filled = export(folders, format, out, table="models")
    beside = tmp_path / "new" / "table.signatures.x"
    assert filled.files == (out, beside)
    assert sorted(out.parent.iterdir()) == [beside, out]
    assert "benchmark:mmlu" not in out.read_text()
    assert "benchmark:mmlu" in beside.read_text()
    _, protocols = models_tables([summarize(folder) for folder in folders])
    (code,) = (note.code for note in protocols.notes if note.code)
    assert parse_signature(code) == resolve(HEADLINE)[HEADLINE]
    again = export(folders, format, out, table="models")  # replaces both
    assert again == filled


@pytest.mark.parametrize("taken", ["t.md", "t.signatures.md"])
def test_neither_file_replaces_one_that_is_not_ours(taken: str, folders: list[Path], tmp_path: Path) -> None:
    (tmp_path / taken).write_text("mine")
    with pytest.raises(UsageError, match=re.escape(f"{taken} is there and no earlier markdown export")):
        export(folders, "markdown", tmp_path / "t.md", table="models")
    assert [file.read_text() for file in tmp_path.iterdir()] == ["mine"]


def test_an_export_that_fails_leaves_both_files(
    folders: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "t.md"
    files = export(folders, "markdown", out, table="models").files
    before = {file: file.read_text() for file in files}
    monkeypatch.setattr("choicewise.interchange.write.models_table.origins", lambda rows: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        export(folders[:2], "markdown", out, table="models")
    assert {file: file.read_text() for file in tmp_path.iterdir()} == before


def test_names_are_no_markup(summaries: list[Summary], tmp_path: Path) -> None:
    own = [changed(each, NASTY + str(place), dataset=NASTY) for place, each in enumerate(summaries[:2])]
    parts, protocols = models_tables(own)
    spelled = latex([*parts, protocols])
    assert r"\cmd" not in spelled
    assert "<b>" not in markdown(parts)
    assert (
        max(line.count("|") - line.count(r"\|") for line in markdown(parts).splitlines() if line.startswith("|")) == 4
    )
    if shutil.which("pdflatex"):
        head = "\\documentclass{article}\\usepackage{booktabs,longtable}\\begin{document}\n"
        (tmp_path / "t.tex").write_text(f"{head}{spelled}\n\\end{{document}}\n", encoding="utf-8")
        line = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "t.tex"]
        told = subprocess.run(line, cwd=tmp_path, capture_output=True, text=True, errors="replace", check=False)
        assert told.returncode == 0, told.stdout[-3000:]


def test_bold_and_errors_in_both_formats(summaries: list[Summary]) -> None:
    parts, _ = models_tables(summaries)
    assert r"fake:oracle & \textbf{100.0 ± 0.0} & \textbf{100.0 ± 0.0} & \textbf{100.0} & 1 \\" in latex(parts)
    assert "| fake:oracle | **100.0 ± 0.0** | **100.0 ± 0.0** | **100.0** | 1 |" in markdown(parts)


@pytest.mark.parametrize("format", [name for name in WRITERS if name not in TABLES["models"]])
def test_a_format_without_tables_refuses_the_choice(format: str) -> None:
    for table in TABLES:
        with pytest.raises(UsageError, match=f"{format} has no tables to choose among, latex and markdown have"):
            writer(format, table)


def test_a_table_that_nobody_knows_is_refused() -> None:
    with pytest.raises(UsageError, match="no table 'model'; did you mean models"):
        writer("latex", "model")
