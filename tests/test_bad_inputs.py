"""The page of bad inputs: every row is there once, and names tests that exist."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[1]
ROW = re.compile(r"^\| (\d+) \| (.+) \| (.+) \| (.+) \|$", re.MULTILINE)
NAMED = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")
COUNT = 55


@cache
def in_file(file: str) -> set[str]:
    """The tests that stand in a file."""
    tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")}


def rows() -> list[tuple[str, ...]]:
    return ROW.findall((ROOT / "docs/bad-inputs.md").read_text(encoding="utf-8"))


def test_every_bad_input_is_there_once_and_in_order() -> None:
    assert [int(number) for number, *_ in rows()] == [*range(1, COUNT + 1)]


def test_every_row_is_shown_by_tests_that_exist() -> None:
    missing = []
    for number, *_, shown in rows():
        named = NAMED.findall(shown)
        assert len(named) == shown.count("`") // 2 > 0, f"row {number} names something else than a test"
        missing += [
            f"{number}: {file}::{name}"
            for file, name in named
            if not (ROOT / file).is_file() or name not in in_file(file)
        ]
    assert missing == []
