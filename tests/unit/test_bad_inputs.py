"""The page of bad inputs: every row is there once, and names tests that exist."""

import re
from functools import cache

from tests.paths import ROOT

ROW = re.compile(r"^\| (\d+) \| (.+) \| (.+) \| (.+) \|$", re.MULTILINE)
NAMED = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")
COUNT = 73


@cache
def in_file(file: str) -> set[str]:
    """The tests that stand in a file."""
    path = ROOT / file
    return (
        {*re.findall(r"^def (test_\w+)", path.read_text(encoding="utf-8"), re.MULTILINE)}
        if path.is_file()
        else set()
    )


def page() -> str:
    return (ROOT / "docs/bad-inputs.md").read_text(encoding="utf-8")


def test_every_bad_input_is_there_once_in_order_and_names_tests() -> None:
    assert [int(number) for number, *_ in ROW.findall(page())] == [*range(1, COUNT + 1)]
    for number, *_, shown in ROW.findall(page()):
        assert len(NAMED.findall(shown)) == shown.count("`") // 2 > 0, (
            f"row {number} names something else than a test"
        )


def test_every_test_that_is_named_exists() -> None:
    named = NAMED.findall(page())
    assert len(named) > COUNT
    assert [(file, name) for file, name in named if name not in in_file(file)] == []
