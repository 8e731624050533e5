"""What guessing is expected to give, under the aggregation of the number beside it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from choicewise import evaluate, open_dataset
from choicewise.data.dataset import Columns
from choicewise.protocols.catalogue import one
from choicewise.protocols.protocol import signature

ITEMS = [("tides", 2, 1), ("trees", 5, 1), ("trees", 4, 2), ("trees", 4, 1)]
"""Subject, choices, right ones."""


@pytest.mark.parametrize(
    ("by", "expected"),
    [
        (None, {"all": (1 / 2 + 1 / 5 + 2 / 4 + 1 / 4) / 4}),
        ("macro", {"all": (1 / 2 + (1 / 5 + 2 / 4 + 1 / 4) / 3) / 2}),
        ("subjects", {"tides": 1 / 2, "trees": (1 / 5 + 2 / 4 + 1 / 4) / 3}),
    ],
)
def test_chance_is_averaged_as_the_value_is(by: str | None, expected: dict[str, float], tmp_path: Path) -> None:
    lines = [
        {"ask": "?", "texts": [f"{place} {n}" for n in range(size)], "flags": [int(n < right) for n in range(size)]}
        | {"subject": subject}
        for place, (subject, size, right) in enumerate(ITEMS)
    ]
    (tmp_path / "items.jsonl").write_text("\n".join(map(json.dumps, lines)))
    columns = Columns(question="ask", choices="texts", answer="flags", answer_is="flags", subject="subject")
    data = open_dataset(tmp_path / "items.jsonl", columns=columns)
    run = evaluate(
        model="fake:hash", data=data, protocols=[signature(one("options/cloze:sum").protocol)], out=tmp_path / "run"
    )
    assert {row.subject: row.chance for row in run.rows(by=by)} == pytest.approx(expected)
