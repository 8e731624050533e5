"""Cells: what counts as text, and what is kept of everything else."""

import datetime

import pytest

from choicewise.data.files import Number, is_number, spell, text, value_at
from choicewise.errors import UnusableRow


def test_text_is_unchanged() -> None:
    for cell in ("", " None ", "007", "1e5", "\ufeff", "a\x00b", "\r\n"):
        assert text(cell, "x") == cell
    assert text(Number("-10"), "x") == "-10"
    assert type(text(Number("1"), "x")) is str
    assert text(12, "x") == "12"


@pytest.mark.parametrize(
    ("cell", "reason"),
    [
        (None, "null"),
        (0.5, "binary number 0.5"),
        (Number("1.50"), "number 1.50, which other tools spell otherwise; quote it"),
        (Number("1e5"), "number 1e5"),
        (Number("-0"), "number -0"),
        (True, "true or false"),
        ([], "a list"),
        ({}, "nested"),
        (b"", "bytes"),
    ],
)
def test_text_refuses(cell: object, reason: str) -> None:
    with pytest.raises(UnusableRow, match=f"column why.*{reason}"):
        text(cell, "why")


def test_is_number() -> None:
    assert all(map(is_number, (1, 1.5, Number("1"))))
    assert not any(map(is_number, ("1", True, None)))


def test_spell() -> None:
    assert spell("a", "x") == "a"
    assert spell(True, "x") == "true"
    assert spell({"a": [Number("1e5"), "1", None, 2]}, "x") == '{"a": [1e5, "1", null, 2]}'
    assert spell(datetime.date(2024, 1, 2), "x") == '"2024-01-02"'
    with pytest.raises(UnusableRow, match="column x holds bytes"):
        spell(b"1", "x")


def test_value_at() -> None:
    row = {"a": {"b": 1}, "a.c": 2}
    assert value_at(row, "a.b") == 1
    assert value_at(row, "a.c") == 2, "a column whose own name has a dot"
    for path in ("a.d", "b", "a.b.c"):
        with pytest.raises(UnusableRow, match=f"column {path} is missing"):
            value_at(row, path)
