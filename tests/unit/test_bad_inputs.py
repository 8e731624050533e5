"""The page of bad inputs: every row is there once, and names tests that exist."""

from __future__ import annotations

import ast
import re
from functools import cache

import pytest

from tests.paths import ROOT

ROW = re.compile(r"^\| (\d+) \| (.+) \| (.+) \| (.+) \|$", re.MULTILINE)
NAMED = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")
COUNT = 70


@cache
def in_file(file: str) -> set[str]:
    """The tests that stand in a file."""
    tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")}


def page() -> str:
    return (ROOT / "docs/bad-inputs.md").read_text(encoding="utf-8")


def test_every_bad_input_is_there_once_and_in_order() -> None:
    assert [int(number) for number, *_ in ROW.findall(page())] == [*range(1, COUNT + 1)]


def test_every_row_names_tests() -> None:
    for number, *_, shown in ROW.findall(page()):
        assert len(NAMED.findall(shown)) == shown.count("`") // 2 > 0, f"row {number} names something else than a test"


@pytest.mark.costly("the whole source tree")
def test_every_test_that_is_named_exists() -> None:
    named = NAMED.findall(page())
    assert len(named) > COUNT
    assert [each for each in named if not (ROOT / each[0]).is_file() or each[1] not in in_file(each[0])] == []
