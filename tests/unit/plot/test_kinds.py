"""What runs must have to be drawn as a chart of their numbers."""

from pathlib import Path

import pytest

from choicewise import evaluate
from choicewise.extensions.plot import kinds
from choicewise.page.charts.kinds import chart_kinds
from choicewise.page.study import Study, make_study
from choicewise.results.summary import keep_summary
from tests.helpers.mmlu_data import write_mmlu


@pytest.fixture
def study(tmp_path: Path) -> Study:
    """One run under one protocol."""
    data = write_mmlu(tmp_path / "data", questions=2)
    run = evaluate(model="fake:hash", data=data, protocols=["mmlu/original"], out=tmp_path / "run")
    return make_study([keep_summary(run)])


def test_one_run_under_one_protocol_is_a_strip_and_nothing_else(study: Study) -> None:
    assert kinds.strip_lacks(study) == ""
    assert "1 protocol" in kinds.ladder_lacks(study)
    assert kinds.effects_lacks(study)
    alone = kinds.pair_lacks(study)
    assert alone
    assert kinds.bump_lacks(study) == kinds.ranks_lacks(study) == alone


def test_the_charts_of_the_numbers_come_first_in_the_order_of_the_page() -> None:
    names = [kind.name for kind in chart_kinds()]
    assert names[:6] == ["strip", "ladder", "effects", "bump", "ranks", "pair"]
