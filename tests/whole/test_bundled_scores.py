"""What the bundled models are for: they know different things, so that their order turns on how they are asked."""

from __future__ import annotations

from pathlib import Path

import pytest

from choicewise import evaluate
from choicewise.bundled import MODELS
from choicewise.page.sections import orders
from choicewise.page.study import make_study
from choicewise.report.findings import reversal_sentence
from choicewise.results.finding import guess, reversal
from choicewise.results.summary import keep_summary

LETTERS, CLOZE = "mmlu/original", "mmlu/cloze:sum"


def test_models_that_know_letters_and_one_that_knows_answers_alone_change_places(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    names = {folder.name: f"bundled:{folder.name}" for folder in MODELS}
    runs = [
        evaluate(model=name, data="bundled:merrowick", protocols=[LETTERS, CLOZE], out=tmp_path / own)
        for own, name in names.items()
    ]
    summaries = [keep_summary(run) for run in runs]
    rows = {(row.model, row.protocol): row for each in summaries for row in each.rows}
    assert sum(rows[name, LETTERS].value > 0.6 for name in names) >= 2
    assert [name for name in names if rows[name, CLOZE].value > 0.8 and guess(rows[name, LETTERS])]
    turned = reversal(summaries)
    assert turned is not None
    assert {turned.start.protocol, turned.end.protocol} == {LETTERS, CLOZE}
    assert max(turned.start.p, turned.end.p) < 0.001
    (order,) = orders(make_study(summaries), [])
    assert order.reversal == reversal_sentence(turned)
