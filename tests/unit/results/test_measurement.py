"""What one protocol makes of a run's scores."""

import json
from pathlib import Path

import numpy as np
import pytest

from choicewise import evaluate
from choicewise.models.fake import HashModel


def test_mc2_split_follows_the_order_of_the_file(tmp_path: Path) -> None:
    """The best answer is asked first; where a wrong one stands before it in the file it does not count."""
    best = {"choices": ["d", "c"], "labels": [1, 0]}
    row = {
        "question": "Q",
        "mc2_targets": {"choices": ["a", "b", "c", "d"], "labels": [1, 1, 0, 1]},
        "mc1_targets": best,
    }
    (tmp_path / "rows.jsonl").write_text(
        json.dumps(row) + "\n" + json.dumps(row | {"question": "R"}) + "\n"
    )
    names = [f"options/cloze:sum@metric={metric}" for metric in ("mc2", "mc2-split")]
    run = evaluate(
        model=HashModel(), data=tmp_path / "rows.jsonl", protocols=names, out=tmp_path / "run"
    )
    all_right, counted = (run.measurements[name] for name in names)
    scores = np.exp(all_right.scores.reshape(2, 4))  # d, a, b, c
    shares = scores / scores.sum(axis=1, keepdims=True)
    assert all_right.credit == pytest.approx(shares[:, :3].sum(axis=1))
    assert counted.credit == pytest.approx(shares[:, 1:3].sum(axis=1))
