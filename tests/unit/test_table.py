"""Tables of results: values survive for programs, and no text becomes markup for people."""

import csv
import io
import json
import math
from html.parser import HTMLParser
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from rich.cells import cell_len

from choicewise.table import (
    KINDS,
    Column,
    Share,
    Table,
    as_html,
    as_json,
    cell_texts,
    table_csv,
    terminal,
)
from choicewise.util.jsonio import exact_json
from choicewise.util.text import safe
from tests.helpers.latex import NASTY
from tests.helpers.printed import printed

TEXTS = st.text(st.characters(codec="utf-8"), max_size=20)
NUMBERS = st.floats(allow_infinity=False) | st.integers(-(10**9), 10**9)
ROWS = st.lists(st.tuples(TEXTS, st.none() | NUMBERS, st.none() | NUMBERS), max_size=4)
COLUMNS = (
    Column(name="model"),
    Column(name="share", kind="share"),
    Column(name="error", joined=" ± ", kind="number"),
)


def table(rows: Any, columns: Any = COLUMNS) -> Table:
    return Table(name="scores", title="Scores", columns=columns, rows=rows)


def is_same(read: Any, value: Any) -> bool:
    if isinstance(value, float) and math.isnan(value):
        return read is None
    return bool(read == value)


@settings(max_examples=40)
@given(ROWS)
def test_values_survive_json(rows: list[tuple[Any, ...]]) -> None:
    read = json.loads(exact_json(as_json(table(rows))))
    assert read["table"] == "scores"
    assert len(read["rows"]) == len(rows)
    for cells, row in zip(read["rows"], rows, strict=True):
        assert all(
            is_same(cells[column.name], value) for column, value in zip(COLUMNS, row, strict=True)
        )


@settings(max_examples=40)
@given(ROWS)
@example([("=1+1", 0.1, None)])
def test_values_survive_csv(rows: list[tuple[Any, ...]]) -> None:
    names = [column.name for column in COLUMNS]
    text = table_csv(names, [dict(zip(names, row, strict=True)) for row in rows])
    header, *lines = csv.reader(io.StringIO(text, newline=""))
    assert header == names
    assert len(lines) == len(rows)
    for (text, *numbers), (name, *values) in zip(lines, rows, strict=True):
        assert text.removeprefix("'") == safe(name).removeprefix("'")
        for spelled, value in zip(numbers, values, strict=True):
            assert is_same(float(spelled) if spelled else None, value)


class Cells(HTMLParser):
    """The tags of a page, and the texts of its cells."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.texts: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.tags.append(tag)
        if tag in ("td", "th"):
            self.texts.append("")

    def handle_data(self, data: str) -> None:
        if self.tags[-1] in ("td", "th"):
            self.texts[-1] += data


@given(TEXTS)
@example(NASTY)
@example("<script>")
def test_html_shows_a_text_as_it_is(text: str) -> None:
    page = Cells(as_html(table([(f"x{text}y", 0.5, 0.25)])))
    assert [one.strip() for one in page.texts] == [
        "model",
        "share",
        f"x{safe(text)}y",
        "50.0 ± 0.250",
    ]
    assert {*page.tags} == {"table", "caption", "thead", "tbody", "tr", "th", "td"}


def test_the_name_of_a_variant_in_a_heading_breaks_between_its_parts() -> None:
    columns = [Column("model"), Column("share", "share", heading="cloze\na:b@shots=0,choices=any")]
    html = as_html(Table(name="t", title="", columns=columns, rows=[["m", 0.5]]))
    assert "<small>a<wbr>:b<wbr>@shots=0,<wbr>choices=any</small>" in html


@settings(max_examples=20)
@given(st.text(st.characters(min_codepoint=0x4E00, max_codepoint=0x9FFF), min_size=1, max_size=12))
def test_numbers_are_aligned_in_a_terminal_below_wide_characters(name: str) -> None:
    lines = printed(terminal(table([(name, 0.5, None), ("x", 0.25, None)])))
    assert len({cell_len(line) for line in lines[1:4]}) == 1


@pytest.mark.parametrize("width", [40, 60, 100])
def test_numbers_stand_whole_in_a_narrow_terminal_and_words_where_they_can(width: int) -> None:
    columns = (
        Column(name="protocol"),
        Column(name="share", kind="share"),
        Column(name="question", kind="excerpt"),
    )
    rows = [
        (
            "options/quoted-mean-forward",
            0.123,
            "What do people of Merrowick do with their neighbours on Bellnight?",
        )
    ]
    lines = printed(terminal(table(rows, columns)), width=width)
    assert max(map(len, lines)) <= width
    assert any("12.3" in line.split() for line in lines)
    words = " ".join(lines).split()
    assert "neighbours" in words
    assert width < 60 or "options/quoted-mean-forward" in words


def test_people_and_programs_read_the_same_values() -> None:
    columns = (
        Column(name="protocol"),
        Column(name="right", kind="number", meaning="how many are right"),
        Column(name="low", heading="95 % interval", kind="share"),
        Column(name="high", kind="share", joined=" – "),
        Column(name="id", data=True),
        Column(name="warning", optional=True),
    )
    rows = [["a", Share(0.5), 0.25, 0.75, "#1", None], ["b", 0.5, None, None, "#2", None]]
    shown = table(rows, columns)
    assert cell_texts(shown) == [["a", "50.0", "25.0 – 75.0"], ["b", "0.500", "-"]]
    assert as_json(shown)["rows"][0] == {
        **{"protocol": "a", "right": 0.5, "low": 0.25, "high": 0.75, "id": "#1"},
        "warning": None,
    }
    lines = printed(terminal(shown, most=1))
    assert lines[-2:] == ["1 more row", "right: how many are right"]
    assert "warning" not in lines[1]
    assert printed(terminal(Table(name="none", title="nothing to show"))) == ["nothing to show"]


def test_a_table_that_is_none_is_refused() -> None:
    with pytest.raises(ValueError, match="1 values for 3 columns"):
        table([("a",)])
    with pytest.raises(ValueError, match="can't be called title"):
        Table(name="x", title="x", facts={"title": "y"})
    with pytest.raises(ValueError, match="kind is 'percent'; .* text"):
        Column(name="x", kind="percent")


@pytest.mark.parametrize(
    "kind",
    [kind for kind in KINDS if kind not in ("text", "excerpt", "names", "lines", "tally", "ranks")],
)
@given(number=st.floats(-1e9, 1e9) | st.integers(-(10**9), 10**9))
def test_every_kind_of_number_is_written_on_one_line(kind: str, number: float) -> None:
    text = KINDS[kind](number)
    assert text == text.strip() != ""
    assert "\n" not in text
