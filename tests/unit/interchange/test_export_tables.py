"""Tables of results in Markdown and LaTeX: they say what the rows say, and no text becomes markup."""

import math
import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

import choicewise
from choicewise.errors import UsageError
from choicewise.interchange.export import export
from choicewise.interchange.write import paper
from choicewise.interchange.write.paper import Cell, Note, PaperTable, latex, markdown, paper_tables
from choicewise.page.study import make_study
from choicewise.protocols.protocol import parse_signature
from choicewise.results.outcomes import Summary
from choicewise.results.summary import summarize
from choicewise.util.text import safe
from tests.helpers.mmlu_data import write_mmlu

NASTY = r"a_b*c*|d [x](http://y) <b>&amp; $1$ `q` ~~s~~ \cmd{50%} #1 ^2 www.x.com 'q' --, „Ü 模 é" + "\n\u202e"
"""A name with everything that a markup language could take for its own."""

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
    return replace(summary, manifest=manifest, rows=tuple(replace(row, model=name) for row in summary.rows))


def cells(table: PaperTable) -> dict[tuple[str, str], Cell]:
    return {(row[0].text, head): cell for row in table.rows for head, cell in zip(table.heads, row, strict=True)}


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
    cell = f"| a | b |\n| --- | --- |\n| x{paper.markdown_escape(text)}y | z |\n"
    assert shown(cell) == f"abx{safe(text)}yz"


@given(TEXTS)
@example("``a` b```")
@example(" `")
def test_markdown_shows_code_as_it_is(text: str) -> None:
    plain = safe(text)
    seen = plain if plain.strip(" ") else f" {plain} "  # a reader takes no blanks off code of blanks alone
    assert shown(f"x {paper.markdown_code(text)}") == f"x {seen}"


SPELLED = {r"\textbackslash{}": "\\", r"\textasciicircum{}": "^", r"\textasciitilde{}": "~", r"\textbar{}": "|"}
SPELLED |= {r"\textless{}": "<", r"\textgreater{}": ">", r"\textasciigrave{}": "`", r"\textquotesingle{}": "'"}


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
        elif match := re.match(r"\\([{}$&#_%])", rest):
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
    assert set_text(paper.latex_escape(text)) == safe(text)
    typed = paper.latex_code(text)
    assert typed.startswith(r"\texttt{")
    assert set_text(typed.removeprefix(r"\texttt{").removesuffix("}")) == safe(text)
    for pair in ("--", ",,", "<<", ">>"):
        assert pair not in typed


@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="there is no pdflatex here")
def test_latex_compiles_whatever_the_names(folders: list[Path], tmp_path: Path) -> None:
    summary = summarize(folders[0])
    rows = tuple(replace(row, dataset=NASTY) for row in summary.rows)
    tables = paper_tables(make_study([called(replace(summary, rows=rows), name) for name in (NASTY, "[a]", "*b")]))
    many = replace(tables[0], name="long", rows=tables[0].rows * 20)
    text = latex([*tables, many])
    head = "\\documentclass{article}\\usepackage{booktabs,longtable}\\begin{document}\n"
    (tmp_path / "t.tex").write_text(f"{head}{text}\n\\end{{document}}\n", encoding="utf-8")
    line = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "t.tex"]
    told = subprocess.run(line, cwd=tmp_path, capture_output=True, text=True, errors="replace", check=False)
    assert told.returncode == 0, told.stdout[-3000:]
    assert "multiply defined" not in told.stdout


def test_one_run_has_a_line_per_protocol(folders: list[Path]) -> None:
    one = summarize(folders[0])
    (table,) = paper_tables(make_study([one]))
    assert table.heads == ("protocol", "%", "95 % interval", "n", "id")
    for row in one.rows:
        own = {head: cell.text for (name, head), cell in cells(table).items() if name == row.protocol}
        assert own["%"] == f"{100 * row.value:.1f}"
        assert own["95 % interval"] == f"{100 * row.ci_low:.1f}–{100 * row.ci_high:.1f}"
        assert (own["n"], own["id"]) == (str(row.n), row.id)
    codes = [note.code for note in table.notes if note.code]
    assert codes == [row.signature for row in one.rows]
    assert all(parse_signature(code) for code in codes)


def test_several_models_stand_beside_the_protocols_and_one_on_two_datasets_is_one_table(folders: list[Path]) -> None:
    one = summarize(folders[0])
    (table,) = paper_tables(make_study([called(one, f"m{letter}") for letter in "ab"]))
    assert table.heads == ("protocol", "ma", "mb", "n", "id")
    for row in one.rows:
        cell = cells(table)[row.protocol, "mb"]
        assert cell.text == f"{100 * row.value:.1f}"
        assert cell.interval == f"[{100 * row.ci_low:.1f}, {100 * row.ci_high:.1f}]"
    (table,) = paper_tables(make_study([one, summarize(folders[1])]))
    names = {row[0].text for row in table.rows}
    assert names == {f"{name} on {data}" for name in one.manifest.protocols for data in ("tides", "waves")}


def test_more_models_than_protocols_go_down_the_page_and_wide_tables_are_parted(folders: list[Path]) -> None:
    one = summarize(folders[0])
    models = [called(one, f"m{n}") for n in range(7)]
    (table,) = paper_tables(make_study(models))
    assert table.heads == ("model", *(row.protocol for row in one.rows))
    assert [row[0].text for row in table.rows] == [*(f"m{n}" for n in range(7)), "n", "id"]
    assert [cell.text for cell in table.rows[-1][1:]] == [row.id for row in one.rows]
    quarters = [(f"{row.protocol}{n}", f"#P{n}{row.id[3:]}", row) for row in one.rows for n in range(4)]
    several = [
        replace(each, rows=tuple(replace(row, protocol=name, id=id) for name, id, row in quarters)) for each in models
    ]
    tables = paper_tables(make_study(several))
    assert [len(each.heads) for each in tables] == [7, 6]
    assert {each.name for each in tables} == {"tides-acc-exact-match-part-1-of-2", "tides-acc-exact-match-part-2-of-2"}


def test_perplexities_stand_apart_from_shares(folders: list[Path]) -> None:
    one = summarize(folders[0])
    named = replace(one.rows[0], protocol="lambada/x", id="#P000000")
    odd = replace(named, metric="perplexity", value=1234567.8, ci_low=math.nan)
    shares, others = paper_tables(make_study([replace(one, rows=(*one.rows, odd))]))
    assert {row[0].text for row in others.rows} == {"lambada/x"}
    assert others.heads[1] == "value"
    assert others.rows[0][1].text == "1.23e+06"
    assert others.rows[0][2].text == "–"
    assert len(shares.rows) == len(one.rows)


def test_what_a_number_lacks_is_a_numbered_note_and_many_lines_run_over_pages(folders: list[Path]) -> None:
    one = summarize(folders[0])
    first, second, *_ = one.rows
    lacking = replace(first, value=float("nan"), ci_low=float("nan"), ci_high=float("nan"), n=0, missing=12)
    partly = replace(second, selection="incomplete: 6 of 12 items")
    (table,) = paper_tables(make_study([replace(one, rows=(lacking, partly))]))
    assert table.heads == ("protocol", "%", "95 % interval", "n", "missing", "id")
    assert table.rows[0][1] == Cell("–", marks=(1,))
    assert table.rows[1][1].marks == (2,)
    texts = [note.text for note in table.notes if note.mark]
    assert texts == ["12 of 12 items could not be scored", "incomplete: 6 of 12 items"]
    assert "–¹" in markdown([table])
    assert r"–\textsuperscript{1}" in latex([table])
    rows = tuple((Cell(f"p{n}"), Cell("1.0", "[0.9, 1.1]")) for n in range(30))
    table = PaperTable("t", "c", ("protocol", "m"), rows, (Note("note"),))
    assert r"\begin{longtable}{lr}" in latex([table])
    few = replace(table, rows=rows[:5])
    assert r"\begin{table}" in latex([few])
    assert r"\label{tab:t}" in latex([few])


@pytest.mark.parametrize(("half", "digits"), [(0.02, "50.0"), (0.0004, "50.00"), (0.000004, "50.0000")])
def test_narrow_intervals_have_more_digits(folders: list[Path], half: float, digits: str) -> None:
    one = summarize(folders[0])
    row = replace(one.rows[0], value=0.5, ci_low=0.5 - half, ci_high=0.5 + half)
    (table,) = paper_tables(make_study([replace(one, rows=(row,))]))
    assert table.rows[0][1].text == digits


@pytest.mark.parametrize("form", ["markdown", "latex", "csv", "parquet"])
def test_a_file_that_is_no_export_is_left_alone(form: str, folders: list[Path], tmp_path: Path) -> None:
    out = tmp_path / "notes"
    out.write_text("mine", encoding="utf-8")
    with pytest.raises(UsageError, match="no earlier"):
        export(folders, form, out)
    assert out.read_text(encoding="utf-8") == "mine"
    out.unlink()
    export(folders, form, out)
    first = out.read_bytes()
    export(folders, form, out)
    assert out.read_bytes() == first
    assert [file.name for file in tmp_path.iterdir()] == ["notes"]
