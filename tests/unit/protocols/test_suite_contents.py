"""What the suites of OLMES and of MMLU hold, and that published protocols stand side by side on one split."""

import re
from pathlib import Path

import pytest

from choicewise import evaluate
from choicewise.data.benchmarks import benchmark
from choicewise.data.dataset import Dataset
from choicewise.data.items import Item
from choicewise.errors import DataError
from choicewise.models.fake import HashModel
from choicewise.protocols.catalogue import resolve
from choicewise.protocols.shots import curated


def test_olmes_asks_ten_benchmarks_in_two_formulations() -> None:
    named = list(resolve("olmes").items())
    pairs = list(zip(named[::2], named[1::2], strict=True))
    assert len(pairs) == len({protocol.benchmark for _, protocol in named}) == 10
    for (mcf, listed), (cf, plain) in pairs:
        assert mcf == f"{listed.benchmark}/olmes-mcf"
        assert cf.partition(":")[0] == f"{plain.benchmark}/olmes-cf"
        assert "{options}" in listed.question
        assert "{options}" not in plain.question
        assert listed.split == plain.split
        assert (listed.split, plain.aggregation) in {
            ("test", "macro" if plain.benchmark == "mmlu" else "micro"),
            ("validation", "micro"),
        }
        assert benchmark(plain.benchmark).files.keys() >= {plain.split}


@pytest.mark.parametrize(
    ("task", "score"),
    [
        *((task, "acc_uncond") for task in ("arc-challenge", "commonsenseqa", "openbookqa")),
        *((task, "acc_per_char") for task in ("arc-easy", "hellaswag", "piqa", "siqa")),
        ("boolq", "acc_raw"),
    ],
)
def test_texts_count_by_the_score_that_olmes_takes_for_the_task(task: str, score: str) -> None:
    assert f"{task}/olmes-cf:{score}" in resolve("olmes")
    assert next(iter(resolve(f"{task}/olmes-cf"))) == f"{task}/olmes-cf:{score}"


def test_mmlu_1001_is_all_of_mmlu() -> None:
    assert resolve("mmlu-1001") == resolve("mmlu")
    assert len(resolve("mmlu-1001")) > 30


def test_harness_and_olmes_stand_side_by_side_on_the_split_that_is_there(tmp_path: Path) -> None:
    """Examples of one set as the questions of another: ARC-Challenge's shots under ARC-Easy's protocols."""
    items = tuple(Item(each.id, each.question, each.choices, each.gold) for each in curated("olmes/arc-challenge"))
    data = Dataset("arc", {"validation": items})
    with pytest.raises(DataError, match=re.escape("has no split 'test', only validation; ask another one by")) as error:
        evaluate(model=HashModel(), data=data, protocols=["arc-easy/harness:acc"], out=tmp_path / "test")
    change = re.search(r"@split=\w+", str(error.value))
    assert change
    named = [f"{name}{change[0]}" for name in ("arc-easy/harness:acc", "arc-easy/olmes-mcf", "arc-easy/olmes-cf")]
    run = evaluate(model=HashModel(), data=data, protocols=named, out=tmp_path / "run")
    assert len(run.rows()) == 7
