"""Eight benchmarks against LM Evaluation Harness itself: what tests/goldens/make_benchmarks.py had from it."""

import hashlib
import json
from functools import cache
from pathlib import Path

import numpy as np
import pytest

import choicewise
from choicewise.data.benchmarks import benchmark
from choicewise.data.dataset import Dataset
from choicewise.data.items import Item
from choicewise.data.open import open_dataset
from choicewise.data.tables import read_tabular
from choicewise.models.load import load_model
from choicewise.protocols.catalogue import resolve
from choicewise.protocols.protocol import Protocol, stop_texts
from choicewise.results.measurement import Measurement
from choicewise.running.evaluate import evaluate
from choicewise.scoring.combine import compare
from choicewise.scoring.decide import mc1, mc2
from tests.helpers.imported_runs import write_lines
from tests.helpers.protocols import requests
from tests.paths import GOLDENS

MODEL = Path(choicewise.__file__).parent / "bundled" / "models"
FOLDER = GOLDENS / "benchmarks"
ROWS, TODAY, V1 = (json.loads((FOLDER / f"{name}.json").read_text("utf-8")) for name in ("rows", "today", "v1"))
PROTOCOLS = {
    **{f"truthfulqa_{metric}": f"truthfulqa/harness:{metric}" for metric in ("mc1", "mc2")},
    **dict.fromkeys(("blimp_wh_island", "blimp_npi_present_1"), "blimp/harness"),
    "lambada_openai": "lambada/harness:acc",
    "gsm8k": "gsm8k/harness:strict",
    "leaderboard_gpqa_main": "gpqa/leaderboard",
    "gpqa_main_zeroshot": "gpqa/harness:acc",
    **{f"leaderboard_musr_{name}": "musr/harness" for name in ("murder_mysteries", "object_placements")},
    **{f"leaderboard_bbh_{name}": "bbh/harness" for name in ("boolean_expressions", "date_understanding", "snarks")},
}
"""Task → the protocol that is it."""

CASES = [
    (name, subject, task)
    for name, subjects in TODAY["benchmarks"].items()
    for subject, tasks in subjects.items()
    for task in tasks
]
LIKELIHOODS = [case for case in CASES if case[0] != "gsm8k"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The rows as files, benchmark/subject/split.jsonl."""
    rows_of = tmp_path_factory.mktemp("rows")
    for name, subjects in ROWS.items():
        for subject, splits in subjects.items():
            for split, rows in splits.items():
                write_lines(rows_of / name / subject / f"{split}.jsonl", rows)
    return rows_of


def data(folder: Path, name: str) -> Dataset:
    splits: dict[str, list[Path]] = {}
    subjects = {}
    for subject, of_subject in ROWS[name].items():
        for split in of_subject:
            file = folder / name / subject / f"{split}.jsonl"
            splits.setdefault("validation" if name == "truthfulqa" else split, []).append(file)
            subjects[file] = subject
    known = subjects if any(subjects.values()) else None
    return read_tabular(name, splits, columns=benchmark(name).columns, subjects=known)


def protocol(name: str) -> Protocol:
    return resolve(name)[name]


def sent(protocol: Protocol, dataset: Dataset, subject: str) -> list[list[list[str]]]:
    """[item][choice] → context and continuation."""
    asked = requests(protocol, dataset, subject)
    return [[[request.context(), text] for text in request.continuations] for request in asked]


@pytest.mark.parametrize(("name", "subject", "task"), LIKELIHOODS)
def test_what_is_sent_equals_what_the_harness_sends(folder: Path, name: str, subject: str, task: str) -> None:
    golden = TODAY["benchmarks"][name][subject][task]["sent"]
    ours = sent(protocol(PROTOCOLS[task]), data(folder, name), subject)
    if task == "truthfulqa_mc1":  # the other true answers are asked for mc2 alone
        ours = [[pair for pair in pairs if pair in theirs] for pairs, theirs in zip(ours, golden, strict=True)]
    assert ours == golden


@pytest.mark.parametrize(("name", "subject"), [(name, subject) for name in V1["benchmarks"] for subject in ROWS[name]])
def test_what_is_sent_equals_what_the_harness_of_2023_sends(folder: Path, name: str, subject: str) -> None:
    golden = V1["benchmarks"][name][subject]["sent"]
    recipe = next(iter(resolve(f"{name}/harness-v1").values()))
    ours = sent(recipe, data(folder, name), subject)
    if name == "gsm8k":
        assert [pairs[0][0] for pairs in ours] == [asked[0][0] for asked in golden]
        assert all([*stop_texts(recipe.stop)] == asked[0][1]["until"] for asked in golden)
        return
    if name == "truthfulqa":  # it asks the choices of mc1, then those of mc2
        rows = ROWS[name][""]["test"]
        golden = [asked[len(row["mc1_targets"]["choices"]) :] for asked, row in zip(golden, rows, strict=True)]
    if name == "lambada":  # one request, which gives two results
        golden = [asked[:1] for asked in golden]
    assert ours == golden


def test_gsm8k_is_asked_and_read_as_by_the_harness(folder: Path) -> None:
    golden = TODAY["benchmarks"]["gsm8k"][""]["gsm8k"]
    recipe, dataset = protocol("gsm8k/harness:strict"), data(folder, "gsm8k")
    assert [pairs[0][0] for pairs in sent(recipe, dataset, "")] == golden["sent"]
    assert set(golden["until"]) >= set(stop_texts(recipe.stop))
    solutions = [item.choices for item in dataset.splits["test"]]
    rules = {
        "gsm8k-strict@4e7e0d4": golden["verdicts"]["strict-match"],
        "gsm8k-flexible@4e7e0d4": golden["verdicts"]["flexible-extract"],
        "gsm8k@b281b09": V1["benchmarks"]["gsm8k"][""]["verdicts"],
    }
    for rule, verdicts in rules.items():
        for text, right in verdicts.items():
            assert compare(rule, [text] * len(solutions), solutions).credit.tolist() == right, (rule, text)
    assert any(any(right) for right in rules["gsm8k@b281b09"].values())


@cache
def measured(folder: Path, name: str) -> dict[str, Measurement]:
    """The benchmark under its protocols on the bundled model."""
    chosen = [full for full in resolve(name) if "harness-v1" not in full]
    model = load_model(str(MODEL / TODAY["model"]), dtype="float32")
    out = folder / f"run-{name}"
    return dict(evaluate(model=model, data=data(folder, name), protocols=chosen, out=out).measurements)


@pytest.mark.parametrize(("name", "subject", "task"), LIKELIHOODS)
def test_numbers_and_log_likelihoods_are_those_of_the_harness(folder: Path, name: str, subject: str, task: str) -> None:
    weights = (MODEL / TODAY["model"] / "model.safetensors").read_bytes()
    if hashlib.sha256(weights).hexdigest() != TODAY["weights"]:
        pytest.skip(f"the goldens are of another {TODAY['model']}; make them again with make_benchmarks.py")
    golden = TODAY["benchmarks"][name][subject][task]
    of_task = measured(folder, name)[PROTOCOLS[task]]
    places = [place for place, own in enumerate(of_task.subjects) if own == subject]
    names = {"lambada_openai": "acc", "truthfulqa_mc1": "acc", "truthfulqa_mc2": "acc"}
    key = names.get(task) or next(key for key in ("acc_norm", "acc") if key in golden["metrics"][0])
    assert of_task.credit[places] == pytest.approx([each[key] for each in golden["metrics"]], abs=2e-5)
    if name == "lambada":
        perplexity = measured(folder, name)["lambada/harness:perplexity"]
        assert perplexity.credit == pytest.approx([each["perplexity"] for each in golden["metrics"]], abs=1e-3)
        assert perplexity.values()["all"].value == pytest.approx(golden["means"]["perplexity"], rel=1e-4)
    if of_task.protocol.score == "greedy" or task == "truthfulqa_mc1":
        return  # its scores are no sums over the same choices
    assert of_task.scores is not None
    offsets = of_task.evidence.item_offsets
    lengths = 3 if name == "gpqa" and of_task.protocol.score == "char_mean_bare" else 1
    for place, theirs, texts in zip(places, golden["loglikelihoods"], golden["sent"], strict=True):
        ours = of_task.scores[offsets[place] : offsets[place + 1]]
        if of_task.protocol.score == "char_mean_bare" and name != "gpqa":
            ours = ours * np.array([len(text.removeprefix(" ")) for _, text in texts])
        assert ours * lengths == pytest.approx(theirs, abs=1e-3)


def test_both_layouts_of_truthfulqa_give_the_same_items(tmp_path: Path) -> None:
    """The best answer comes first, wherever it stands among the true ones; the other orders stay."""
    options, generation = ROWS["truthfulqa"][""]["test"], []
    for row in options:
        flags = list(zip(row["mc2_targets"]["choices"], row["mc2_targets"]["labels"], strict=True))
        best, *others = [text for text, flag in flags if flag]
        texts = {"correct_answers": [*others, best], "incorrect_answers": [text for text, flag in flags if not flag]}
        generation.append({"question": row["question"], "best_answer": row["mc1_targets"]["choices"][0], **texts})
    items: list[list[Item]] = []
    for name, rows in (("options", options), ("generation", generation)):
        write_lines(tmp_path / f"{name}.jsonl", rows)
        items.append(list(open_dataset(tmp_path / f"{name}.jsonl").splits["test"]))
    for one, other in zip(*items, strict=True):
        assert (one.choices, one.gold) == (other.choices, other.gold)


def test_both_metrics_of_real_rows_equal_plain_ones(shared_data: Path) -> None:
    items = list(open_dataset(shared_data / "hf_rows" / "truthfulqa.en.jsonl").splits["test"])
    rng = np.random.default_rng(0)
    scores = [rng.normal(-20, 6, len(item.choices)) for item in items]
    offsets = np.concatenate([[0], np.cumsum([len(each) for each in scores])])
    gold = np.concatenate([[index in item.gold for index in range(len(item.choices))] for item in items])
    flat = np.concatenate(scores)
    credits = [metric(flat, offsets, gold, "first").credit for metric in (mc1, mc2)]
    for item, own, one, two in zip(items, scores, *credits, strict=True):
        false = [score for index, score in enumerate(own) if index not in item.gold]
        assert item.choices[0] == item.fields["best_answer"]
        assert one == float(np.argmax([own[0], *false]) == 0)
        weights = np.exp(own)
        assert two == pytest.approx(weights[list(item.gold)].sum() / weights.sum())
