"""Who leads is counted once, wherever a page says it."""

import pytest

from choicewise import evaluate
from choicewise.models.fake import HashModel
from choicewise.page.sections import orders, pair_data
from choicewise.page.study import Study, pairs, read_study
from choicewise.results.finding import lead
from tests.helpers.mmlu_data import write_mmlu


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Study:
    """Two guessers on subjects of different sizes, under protocols that count questions or subjects."""
    folder = tmp_path_factory.mktemp("runs")
    data = write_mmlu(folder / "data", questions=12)
    protocols = ["mmlu/cloze", "mmlu/original", "mmlu/cloze:sum@aggregation=macro"]
    for seed in (1, 2):
        evaluate(model=HashModel(seed), data=data, protocols=protocols, out=folder / f"{seed}")
    return read_study([folder / "1", folder / "2"])


def test_sentence_columns_and_pair_count_the_same(study: Study) -> None:
    (pair,) = pairs(study)
    found = lead(study.rows)
    assert found is not None
    (order,) = orders(study, [pair])
    ahead = [contest.lead for contest in pair.ordered]
    side = 1 if found.models[0] == study.labels[0] else -1
    assert (found.alone, found.contests) == (ahead.count(side), len(ahead))
    assert found.significant == pair.ahead[0 if side == 1 else 1]
    assert f"{found.models[0]} leads" in order.sentences[0]
    assert f"under {found.alone} of {found.contests} protocols" in order.sentences[0]
    said = pair_data(study, pair)["said"]
    assert (
        f"under {ahead.count(1)} of {len(ahead)} protocols, behind under {ahead.count(-1)}, level under"
        in said
    )
