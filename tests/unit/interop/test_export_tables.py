"""Tables of results in Markdown and LaTeX: they say what the rows say, and no text becomes markup."""

import math
import re
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

import choicewise
from choicewise.errors import UsageError
from choicewise.extensions.interop.export import export, find_writer, table_of
from choicewise.extensions.interop.write import markup
from choicewise.extensions.interop.write.models_table import MOST, UNTESTED, models_tables
from choicewise.extensions.interop.write.paper import (
    NONE,
    Cell,
    Note,
    PaperTable,
    latex,
    markdown,
    paper_tables,
)
from choicewise.page.study import make_study
from choicewise.ports import Writer, all_of
from choicewise.protocols.catalogue import resolve
from choicewise.protocols.protocol import parse_signature
from choicewise.results.headline import matrix
from choicewise.results.outcomes import Summary
from choicewise.results.summary import summarize
from choicewise.util.text import percent, safe
from tests.helpers.latex import NASTY, faults
from tests.helpers.messages import Gist
from tests.helpers.mmlu_data import write_mmlu
from tests.helpers.rows import altered
from tests.helpers.study import Study

PROTOCOLS = ["mmlu/original", "mmlu/cloze:sum", "mmlu/helm"]
TEXTS = st.text(st.characters(codec="utf-8"), max_size=40)
READER = MarkdownIt("commonmark").enable(["table", "strikethrough"])


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Two runs: of one model on two datasets that are called differently."""
    places = {name: tmp_path_factory.mktemp(name) for name in ("tides", "waves")}
    for questions, (name, place) in zip((6, 4), places.items(), strict=True):
        data = write_mmlu(place / name, questions=questions)
        choicewise.evaluate(model="fake:hash", data=data, protocols=PROTOCOLS, out=place / "run")
    return [place / "run" for place in places.values()]


def called(summary: Summary, name: str) -> Summary:
    """The same of a model of another name."""
    manifest = replace(summary.manifest, model=replace(summary.manifest.model, name=name))
    return replace(
        summary, manifest=manifest, rows=tuple(altered(row, model=name) for row in summary.rows)
    )


def cells(table: PaperTable) -> dict[tuple[str, str], Cell]:
    return {
        (row[0].text, head): cell
        for row in table.rows
        for head, cell in zip(table.heads, row, strict=True)
    }


def shown(html_text: str) -> str:
    """What a reader of rendered Markdown sees."""
    tokens = [token for block in READER.parse(html_text) for token in (block.children or [])]
    kinds = {token.type for token in tokens}
    assert kinds <= {"text", "text_special", "code_inline"}, kinds
    return "".join(token.content for token in tokens)


@given(TEXTS)
@example(NASTY)
@example("a:smile:b https://x.y a@b.c #12 @me !")
def test_markdown_shows_a_text_as_it_is(text: str) -> None:
    assert (
        shown(f"| a | b |\n| --- | --- |\n| x{markup.markdown_escape(text)}y | z |\n")
        == f"abx{safe(text)}yz"
    )


@given(TEXTS)
@example("``a` b```")
@example(" `")
def test_markdown_shows_code_as_it_is(text: str) -> None:
    plain = safe(text)
    seen = (
        plain if plain.strip(" ") else f" {plain} "
    )  # a reader takes no blanks off code of blanks alone
    assert shown(f"x {markup.markdown_code(text)}") == f"x {seen}"


SPELLED = {
    r"\textbackslash{}": "\\",
    r"\textasciicircum{}": "^",
    r"\textasciitilde{}": "~",
    r"\textbar{}": "|",
}
SPELLED |= {
    r"\textless{}": "<",
    r"\textgreater{}": ">",
    r"\textasciigrave{}": "`",
    r"\textquotesingle{}": "'",
}


def set_text(text: str) -> str:
    """What LaTeX sets, by a strict reading: every character that is not plain is one of the spellings known here."""
    out, rest = "", text
    while rest:
        if known := next((command for command in SPELLED if rest.startswith(command)), None):
            out, rest = out + SPELLED[known], rest[len(known) :]
        elif match := re.match(r"\\choicewisechar\{(.)\}\{U\+[0-9A-F]{4,}\}", rest, re.DOTALL):
            out, rest = out + match[1], rest[match.end() :]
        elif match := re.match(r"\\char(\d+)\{\}", rest):
            out, rest = out + chr(int(match[1])), rest[match.end() :]
        elif match := re.match(r"\\([{}$&#_% ])", rest):
            out, rest = out + match[1], rest[match.end() :]
        elif match := re.match(r"\\allowbreak\{\}|\{\}", rest):
            rest = rest[match.end() :]
        elif rest[0] == "~":
            out, rest = out + "\xa0", rest[1:]
        else:
            assert rest[0] not in "\\{}$&#_%^~", rest
            out, rest = out + rest[0], rest[1:]
    return out


@given(TEXTS)
@example(NASTY)
def test_latex_sets_a_text_as_it_is(text: str) -> None:
    assert set_text(markup.latex_escape(text)) == safe(text)
    typed = markup.latex_code(text)
    assert typed.startswith(r"\texttt{")
    assert set_text(typed.removeprefix(r"\texttt{").removesuffix("}")) == safe(text)
    for pair in ("--", ",,", "<<", ">>"):
        assert pair not in typed


def test_no_name_breaks_a_table(folders: list[Path]) -> None:
    summary = summarize(folders[0])
    rows = tuple(altered(row, dataset=NASTY) for row in summary.rows)
    tables = paper_tables(
        make_study([called(replace(summary, rows=rows), name) for name in (NASTY, "[a]", "*b")])
    )
    many = replace(tables[0], name="long", rows=tables[0].rows * 20)
    assert faults(latex([*tables, many])) == []


def test_code_keeps_the_number_of_its_spaces() -> None:
    assert markup.latex_code("a b  c   d") == r"\texttt{a b \ c \ \ d}"


def test_one_run_has_a_line_per_protocol(folders: list[Path]) -> None:
    one = summarize(folders[0])
    (table,) = paper_tables(make_study([one]))
    assert table.heads == ("protocol", "%", "95 % interval", "n", "id")
    for row in one.rows:
        own = {
            head: cell.text
            for (name, head), cell in cells(table).items()
            if name == row.identity.protocol
        }
        assert own["%"] == f"{100 * row.value:.1f}"
        assert own["95 % interval"] == f"{100 * row.interval.low:.1f}–{100 * row.interval.high:.1f}"
        assert (own["n"], own["id"]) == (str(row.counts.n), row.identity.id)
    codes = [note.code for note in table.notes if note.code]
    assert codes == [row.identity.signature for row in one.rows]
    assert all(parse_signature(code) for code in codes)


def test_several_models_stand_beside_the_protocols_and_one_on_two_datasets_is_one_table(
    folders: list[Path],
) -> None:
    one = summarize(folders[0])
    (table,) = paper_tables(make_study([called(one, f"m{letter}") for letter in "ab"]))
    assert table.heads == ("protocol", "ma", "mb", "n", "id")
    for row in one.rows:
        cell = cells(table)[row.identity.protocol, "mb"]
        assert cell.text == f"{100 * row.value:.1f}"
        assert cell.interval == f"[{100 * row.interval.low:.1f}, {100 * row.interval.high:.1f}]"
    (table,) = paper_tables(make_study([one, summarize(folders[1])]))
    names = {row[0].text for row in table.rows}
    assert names == {
        f"{name} on {data}" for name in one.manifest.protocols for data in ("tides", "waves")
    }


def test_more_models_than_protocols_go_down_the_page_and_wide_tables_are_parted(
    folders: list[Path],
) -> None:
    one = summarize(folders[0])
    models = [called(one, f"m{n}") for n in range(7)]
    (table,) = paper_tables(make_study(models))
    assert table.heads == ("model", *(row.identity.protocol for row in one.rows))
    assert [row[0].text for row in table.rows] == [*(f"m{n}" for n in range(7)), "n", "id"]
    assert [cell.text for cell in table.rows[-1][1:]] == [row.identity.id for row in one.rows]
    quarters = [
        (f"{row.identity.protocol}{n}", f"#P{n}{row.identity.id[3:]}", row)
        for row in one.rows
        for n in range(4)
    ]
    several = [
        replace(each, rows=tuple(altered(row, protocol=name, id=id) for name, id, row in quarters))
        for each in models
    ]
    tables = paper_tables(make_study(several))
    assert [len(each.heads) for each in tables] == [7, 6]
    assert {each.name for each in tables} == {
        "tides-acc-exact-match-part-1-of-2",
        "tides-acc-exact-match-part-2-of-2",
    }


def test_perplexities_stand_apart_from_shares(folders: list[Path]) -> None:
    one = summarize(folders[0])
    named = altered(one.rows[0], protocol="lambada/x", id="#P000000")
    odd = altered(named, metric="perplexity", value=1234567.8, ci_low=math.nan)
    shares, others = paper_tables(make_study([replace(one, rows=(*one.rows, odd))]))
    assert ({row[0].text for row in others.rows}, others.heads[1]) == ({"lambada/x"}, "value")
    assert (others.rows[0][1].text, others.rows[0][2].text, len(shares.rows)) == (
        "1.23e+06",
        "–",
        len(one.rows),
    )


def test_every_metric_has_a_table_with_its_unit_and_direction(folders: list[Path]) -> None:
    one = summarize(folders[0])
    named = altered(
        one.rows[0], protocol="lambada/x", id="#P000000", value=0.0953, ci_low=0.0124, ci_high=0.2
    )
    bits = altered(named, metric="bpb")
    errors = [altered(named, metric="brier", protocol=name, id=f"#P00000{name}") for name in "ab"]
    shares, brier, bpb = paper_tables(
        make_study([replace(one, rows=(errors[0], bits, *one.rows, errors[1]))])
    )
    assert len(shares.rows) == len(one.rows)
    assert [row[0].text for row in brier.rows] == ["a", "b"]
    assert (brier.heads[1], bpb.heads[1]) == ("value", "bits/byte")
    assert bpb.caption.startswith("bpb in bits/byte of ")
    assert [cell.text for cell in bpb.rows[0][:3]] == ["lambada/x", "0.0953", "0.0124–0.200"]
    assert brier.notes[0].text.startswith("brier (less is better): Brier score")
    assert not any("is better" in note.text for note in shares.notes)


def test_what_a_number_lacks_is_a_numbered_note_and_many_lines_run_over_pages(
    folders: list[Path],
) -> None:
    one = summarize(folders[0])
    first, second, *_ = one.rows
    lacking = altered(
        first, value=float("nan"), ci_low=float("nan"), ci_high=float("nan"), n=0, missing=12
    )
    partly = altered(second, selection="incomplete: 6 of 12 items")
    (table,) = paper_tables(make_study([replace(one, rows=(lacking, partly))]))
    assert table.heads == ("protocol", "%", "95 % interval", "n", "missing", "id")
    assert (table.rows[0][1], table.rows[1][1].marks) == (Cell("–", marks=(1,)), (2,))
    texts = [note.text for note in table.notes if note.mark]
    assert texts == [Gist("12 of 12 items"), "incomplete: 6 of 12 items"]
    assert "–¹" in markdown([table])
    assert r"–\textsuperscript{1}" in latex([table])
    rows = tuple((Cell(f"p{n}"), Cell("1.0", "[0.9, 1.1]")) for n in range(30))
    table = PaperTable(
        name="t", caption="c", heads=("protocol", "m"), rows=rows, notes=(Note("note"),)
    )
    assert r"\begin{longtable}{lr}" in latex([table])
    few = replace(table, rows=rows[:5])
    assert [word for word in (r"\begin{table}", r"\label{tab:t}") if word not in latex([few])] == []


@pytest.mark.parametrize(
    ("half", "digits"), [(0.02, "50.0"), (0.0004, "50.00"), (0.000004, "50.0000")]
)
def test_narrow_intervals_have_more_digits(folders: list[Path], half: float, digits: str) -> None:
    one = summarize(folders[0])
    row = altered(one.rows[0], value=0.5, ci_low=0.5 - half, ci_high=0.5 + half)
    (table,) = paper_tables(make_study([replace(one, rows=(row,))]))
    assert table.rows[0][1].text == digits


@pytest.mark.parametrize("form", ["markdown", "latex", "csv", "parquet"])
def test_a_file_that_is_no_export_is_left_alone(
    form: str, folders: list[Path], tmp_path: Path
) -> None:
    out = tmp_path / "notes"
    out.write_text("mine", encoding="utf-8")
    with pytest.raises(UsageError, match="not an earlier"):
        export(folders, form, out)
    assert out.read_text(encoding="utf-8") == "mine"
    out.unlink()
    export(folders, form, out)
    first = out.read_bytes()
    export(folders, form, out)
    assert (out.read_bytes(), [file.name for file in tmp_path.iterdir()]) == (first, ["notes"])


HEADLINE = "mmlu/original"


@pytest.fixture(scope="module")
def study_folders(study: Study, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Those of the study, and two of its models on a second dataset."""
    place = tmp_path_factory.mktemp("second")
    data = write_mmlu(place / "waves", questions=8)
    for model in ("hash", "oracle"):
        choicewise.evaluate(
            model=f"fake:{model}", data=data, protocols=["mmlu/original"], out=place / model
        )
    return [*study.folders, place / "hash", place / "oracle"]


@pytest.fixture(scope="module")
def summaries(study_folders: list[Path]) -> list[Summary]:
    return [summarize(folder) for folder in study_folders]


@pytest.fixture(scope="module")
def tested_summaries(tmp_path_factory: pytest.TempPathFactory) -> list[Summary]:
    """As many questions as bold needs, on two datasets."""
    place = tmp_path_factory.mktemp("tested")
    summaries = []
    models = {"data": ("hash", "oracle", "anti-oracle"), "waves": ("hash", "oracle")}
    questions = {"data": 10, "waves": 11}
    for name in models:
        data = write_mmlu(place / name, questions=questions[name])
        for model in models[name]:
            out = place / f"{model} on {name}"
            choicewise.evaluate(
                model=f"fake:{model}", data=data, protocols=["mmlu/original"], out=out
            )
            summaries.append(summarize(out))
    return summaries


def changed(summary: Summary, model: str = "", **about: object) -> Summary:
    """The same of another model or dataset, as its rows say it."""
    about = {**about, **({"model": model} if model else {})}
    manifest = replace(
        summary.manifest,
        model=replace(summary.manifest.model, name=model or summary.manifest.model.name),
    )
    outcomes = replace(summary.outcomes, model=model or summary.outcomes.model)
    rows = tuple(altered(row, **about) for row in summary.rows)
    return replace(summary, manifest=manifest, rows=rows, outcomes=outcomes)


def text(table: PaperTable) -> list[list[str]]:
    return [[cell.text for cell in row] for row in table.rows]


def bold(table: PaperTable) -> dict[str, list[bool]]:
    return {row[0].text: [cell.bold for cell in row[1:]] for row in table.rows}


def test_a_line_has_a_models_numbers_with_their_errors_mean_and_rank(
    summaries: list[Summary],
) -> None:
    (table,), _ = models_tables(summaries)
    rows = {
        (row.identity.model, row.identity.dataset): row
        for each in summaries
        for row in each.rows
        if row.identity.protocol == HEADLINE
    }
    first, second = dict.fromkeys(row.identity.dataset for row in rows.values())
    assert table.heads == ("model", first, second, "mean", "rank")
    shown = matrix(
        [row for each in summaries for row in each.rows], [each.outcomes for each in summaries]
    )
    for line, standing in zip(text(table), shown.standings, strict=False):
        own = [rows.get((standing.model, name)) for name in (first, second)]
        spelled = [
            NONE if row is None else f"{percent(row.value)} ± {percent(row.se)}" for row in own
        ]
        mean = NONE if math.isnan(standing.mean) else percent(standing.mean)
        span = NONE if standing.rank is None else str(standing.rank)
        span = (
            span
            if standing.rank_low in (None, standing.rank_high)
            else f"{standing.rank_low}–{standing.rank_high}"
        )
        assert line == [standing.model, *spelled, mean, span]
    counts = [f"{rows['fake:hash', name].counts.n}" for name in (first, second)]
    assert text(table)[-2:] == [
        ["n", *counts, "", ""],
        ["id", *[rows["fake:hash", first].identity.id] * 2, "", ""],
    ]
    assert text(table)[2][0] == "fake:anti-oracle"  # it lacks a benchmark, and is last


def test_the_best_of_a_column_is_bold_and_what_is_not_significantly_worse(
    tested_summaries: list[Summary],
) -> None:
    (table,), _ = models_tables(tested_summaries)
    assert bold(table) == {
        "fake:oracle": [True, True, True, False],
        "fake:hash": [False, False, False, False],
        "fake:anti-oracle": [False, False, False, False],
        "n": [False] * 4,
        "id": [False] * 4,
    }
    (note,) = (note.text for note in table.notes if note.text.startswith("Bold"))
    assert note == Gist("paired sign-flip test ... 5 % ... Holm's ... 4 pairs")


def test_of_few_questions_nothing_is_bold(summaries: list[Summary]) -> None:
    (table,), _ = models_tables(summaries)
    assert not any(cell.bold for row in table.rows for cell in row[:2])
    assert table.rows[0][1].text == "100.0 ± 0.0"
    assert "fewer than 20 items" in next(note.text for note in table.notes if note.mark)


def test_other_texts_about_the_same_items_are_not_tested_and_that_is_noted(
    summaries: list[Summary],
) -> None:
    (table,), _ = models_tables([summaries[1], changed(summaries[0], i="#I999999")])
    (note,) = (note for note in table.notes if note.mark)
    assert (note.text, table.rows[1][1].marks, table.rows[1][1].bold) == (
        UNTESTED,
        (note.mark,),
        False,
    )


def test_what_a_number_lacks_is_noted(tested_summaries: list[Summary]) -> None:
    first, second = tested_summaries[:2]
    short = replace(first, rows=tuple(altered(row, missing=3) for row in first.rows))
    (table,), _ = models_tables([short, second])
    assert [note.text for note in table.notes if note.mark] == [Gist("3 of 23 items")]


def test_of_one_model_and_one_benchmark_there_is_the_number_alone(summaries: list[Summary]) -> None:
    (table,), _ = models_tables(summaries[:1])
    assert table.heads[2:] == ()
    assert not any(cell.bold for row in table.rows for cell in row)
    assert not any("Bold" in note.text or "ank" in note.text for note in table.notes)
    assert table.caption.endswith("of 1 model on 1 benchmark")


def test_a_table_that_is_too_wide_is_in_parts_and_the_last_has_mean_and_rank(
    summaries: list[Summary],
) -> None:
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


def test_a_model_that_was_computed_in_two_ways_is_tested_as_two(
    tested_summaries: list[Summary],
) -> None:
    one, other = tested_summaries[1], changed(tested_summaries[0], "fake:oracle")
    (table,), _ = models_tables([one, other])
    names = [row[0].text for row in table.rows[:2]]
    assert all(re.fullmatch("fake:oracle #R[0-9a-f]{6}", name) for name in names)
    assert (len({*names}), [bold(table)[name][0] for name in names]) == (2, [True, False])
    assert not any(note.mark for note in table.notes)


def test_without_a_number_over_all_items_there_is_no_table(summaries: list[Summary]) -> None:
    with pytest.raises(UsageError, match="percentage over all its"):
        models_tables([changed(summaries[0], subject="tides")])


@pytest.mark.parametrize("format", ["latex", "markdown"])
def test_the_signatures_stand_in_a_file_of_their_own(
    format: str, study_folders: list[Path], tmp_path: Path
) -> None:
    out = tmp_path / "new" / "table.x"
    filled = export(study_folders, format, out, table="models")
    beside = tmp_path / "new" / "table.signatures.x"
    assert (filled.files, sorted(out.parent.iterdir())) == ((out, beside), [beside, out])
    assert "benchmark:mmlu" not in out.read_text()
    assert "benchmark:mmlu" in beside.read_text()
    _, protocols = models_tables([summarize(folder) for folder in study_folders])
    (code,) = (note.code for note in protocols.notes if note.code)
    assert parse_signature(code) == resolve(HEADLINE)[HEADLINE]
    again = export(study_folders, format, out, table="models")  # replaces both
    assert again == filled


@pytest.mark.parametrize("taken", ["t.md", "t.signatures.md"])
def test_neither_file_replaces_one_that_is_not_ours(
    taken: str, study_folders: list[Path], tmp_path: Path
) -> None:
    (tmp_path / taken).write_text("mine")
    with pytest.raises(UsageError, match=f"{taken} exists .* earlier markdown export"):
        export(study_folders, "markdown", tmp_path / "t.md", table="models")
    assert [file.read_text() for file in tmp_path.iterdir()] == ["mine"]


def test_a_failed_export_leaves_both(
    study_folders: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "t.md"
    files = export(study_folders, "markdown", out, table="models").files
    before = {file: file.read_text() for file in files}
    monkeypatch.setattr(
        "choicewise.extensions.interop.write.models_table.origins", lambda rows: 1 / 0
    )
    with pytest.raises(ZeroDivisionError):
        export(study_folders[:2], "markdown", out, table="models")
    assert {file: file.read_text() for file in tmp_path.iterdir()} == before


def test_names_are_no_markup(summaries: list[Summary]) -> None:
    own = [
        changed(each, NASTY + str(place), dataset=NASTY) for place, each in enumerate(summaries[:2])
    ]
    parts, protocols = models_tables(own)
    spelled = latex([*parts, protocols])
    assert r"\cmd" not in spelled
    assert "<b>" not in markdown(parts)
    assert (
        max(
            row.count("|") - row.count(r"\|")
            for row in markdown(parts).splitlines()
            if row.startswith("|")
        )
        == 4
    )
    assert faults(spelled) == []


@pytest.mark.parametrize(
    "name",
    [
        "commonsenseqa",
        "a_b&c%d#e",
        "-",
        "",
        "[x]",
        "*",
        "a/",
        "no-more-than-a-few-words-of-ten-letters",
    ],
)
def test_a_table_of_any_names_is_whole(summaries: list[Summary], name: str) -> None:
    many = [
        changed(each, f"{name}/{model}", dataset=f"{name} {place}", data=f"#D{place:06d}")
        for place in range(7)
        for model, each in enumerate(summaries[:3])
    ]
    parts, protocols = models_tables(many)
    spelled = latex([*parts, protocols])
    assert faults(spelled) == []
    assert spelled.count(r"\begin{tabular}") == 3
    assert "a_b" not in spelled
    rows = [line for line in spelled.splitlines() if line.startswith(r"a\_b\&c\%d\#e/0 & ")]
    assert len(rows) == (2 if name == "a_b&c%d#e" else 0)


def test_a_head_without_a_place_to_break_stays_on_its_line() -> None:
    table = PaperTable(
        name="t",
        caption="c",
        heads=("model", "commonsenseqa", "arc-challenge"),
        rows=((Cell("m"), Cell("1"), Cell("2")),),
        notes=(),
    )
    assert r"model & commonsenseqa & \shortstack[r]{arc-\\challenge} \\" in latex([table])


def test_long_names_break_where_the_table_is_too_wide() -> None:
    name = "an-organisation/a-model-of-seventy-b"
    narrow = PaperTable(
        name="t", caption="c", heads=("model", "x"), rows=((Cell(name), Cell("1.0")),), notes=()
    )
    assert f"{name} & 1.0" in latex([narrow])
    heads = ("model", *(f"{place} benchmark" for place in range(6)))
    wide = replace(narrow, heads=heads, rows=((Cell(name), *[Cell("10.0 ± 1.0")] * 6),), feet=1)
    assert r"\shortstack[l]{an-organisation/a-\\\enspace model-of-seventy-b} & 10.0" in latex(
        [wide]
    )
    assert r"\footnotesize\setlength" in latex([wide])
    assert latex([wide]).count(r"\midrule") == 2


def test_bold_and_errors_in_both_formats(tested_summaries: list[Summary]) -> None:
    parts, _ = models_tables(tested_summaries)
    assert (
        r"fake:oracle & \textbf{100.0 ± 0.0} & \textbf{100.0 ± 0.0} & \textbf{100.0} & 1 \\"
        in latex(parts)
    )
    assert "| fake:oracle | **100.0 ± 0.0** | **100.0 ± 0.0** | **100.0** | 1 |" in markdown(parts)


@pytest.mark.parametrize("format", [writer.name for writer in all_of(Writer) if not writer.tables])
def test_a_format_without_tables_refuses_the_choice(format: str) -> None:
    for table in ("numbers", "models"):
        with pytest.raises(UsageError, match=f"{format} has no tables .* latex and markdown"):
            table_of(find_writer(format), table)


def test_a_table_that_nobody_knows_is_refused() -> None:
    with pytest.raises(UsageError, match="no table 'model'; did you mean models"):
        table_of(find_writer("latex"), "model")
