"""What guessing is expected to give, under the aggregation of the number beside it."""

from pathlib import Path

import pytest

from choicewise import evaluate
from choicewise.data.dataset import Dataset
from choicewise.data.items import Item

SIZES = [("tides", 2, 1), ("trees", 5, 1), ("trees", 4, 2), ("trees", 4, 1)]
"""Subject, choices, right ones."""

ITEMS = [
    Item(f"{n}", "?", [f"{n} {choice}" for choice in range(size)], tuple(range(right)), subject)
    for n, (subject, size, right) in enumerate(SIZES)
]
TREES = (1 / 5 + 2 / 4 + 1 / 4) / 3
EXPECTED = {None: {"all": (1 / 2 + 1 / 5 + 2 / 4 + 1 / 4) / 4}, "macro": {"all": (1 / 2 + TREES) / 2}}
EXPECTED |= {"subjects": {"tides": 1 / 2, "trees": TREES}}


def test_chance_is_averaged_as_the_value_is(tmp_path: Path) -> None:
    data = Dataset("quiz", {"test": ITEMS})
    run = evaluate(model="fake:hash", data=data, protocols=["options/cloze:sum"], out=tmp_path / "run")
    for by, expected in EXPECTED.items():
        assert {row.subject: row.chance for row in run.rows(by=by)} == pytest.approx(expected)
