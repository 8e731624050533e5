"""Against LM Evaluation Harness, HELM and lighteval: what the programs make_*.py beside this file had of them."""

import hashlib
import json
from collections.abc import Iterable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import choicewise
from choicewise import evaluate, load_model, open_dataset
from choicewise.bundled import MODELS
from choicewise.data.benchmarks import benchmark
from choicewise.data.dataset import Dataset
from choicewise.data.items import Item
from choicewise.data.tables import read_tabular
from choicewise.errors import DataError
from choicewise.models.model import Model
from choicewise.protocols.catalogue import one, resolve
from choicewise.protocols.protocol import Protocol, stop_texts
from choicewise.requests.request import Request
from choicewise.results.measurement import Measurement
from choicewise.scoring.combine import compare
from choicewise.scoring.decide import mc1, mc2
from tests.helpers.imported_runs import write_lines
from tests.helpers.protocols import requests
from tests.paths import GOLDENS

FOLDER = GOLDENS / "harness"
FILES = ("today", "v1", "digests", "ports")
GOLDEN: dict[str, Any] = {
    name: json.loads((FOLDER / f"{name}.json").read_text("utf-8")) for name in FILES
}
VARIANTS = {"today": "harness", "v1": "harness-v1"}
CASES = [
    (era, name, int(n))
    for era in VARIANTS
    for name, own in GOLDEN[era]["benchmarks"].items()
    for n in own
]


@cache
def data(name: str) -> Dataset:
    return open_dataset(FOLDER / "rows" / name, columns=benchmark(name).columns)


def protocol(era: str, name: str, shots: int) -> Protocol:
    return replace(one(f"{name}/{VARIANTS[era]}").protocol, shots=shots)


def pairs(request: Request) -> list[list[str]]:
    """Context and continuation of every choice."""
    proposals = request.proposals or ("",) * len(request.continuations)
    return [
        [request.context() + each, text]
        for each, text in zip(proposals, request.continuations, strict=True)
    ]


def in_one_order(name: str, sent: Iterable[list[list[str]]]) -> list[list[list[str]]]:
    """BoolQ's answers are no and yes today, and were yes and no; here yes is always first."""
    return [sorted(each, reverse=True) if name == "boolq" else each for each in sent]


@pytest.mark.parametrize(("era", "name", "shots"), CASES)
def test_what_is_sent_equals_what_the_harness_sends(era: str, name: str, shots: int) -> None:
    golden = GOLDEN[era]["benchmarks"][name][str(shots)]["sent"]
    ours = [pairs(request) for request in requests(protocol(era, name, shots), data(name), "")]
    assert ours == in_one_order(name, golden)


def test_a_limit_leaves_the_shots_as_they_are() -> None:
    golden = GOLDEN["today"]["benchmarks"]["hellaswag"]["3"]["sent"]
    ours = list(requests(protocol("today", "hellaswag", 3), data("hellaswag"), "", limit=2))
    assert [pairs(request) for request in ours] == golden[:2]


@pytest.mark.parametrize("name", GOLDEN["digests"])
def test_whole_published_files_are_sent_alike(name: str, shared_data: Path) -> None:
    golden = GOLDEN["digests"][name]
    file = shared_data / "hf_rows" / golden["file"]
    recipe = replace(protocol("today", name, 0), split="test")
    sha, count = hashlib.sha256(), 0
    for request in requests(recipe, read_tabular(name, {"test": [file]}), ""):
        count += 1
        for context, continuation in sorted(pairs(request), key=lambda pair: pair[1]):
            sha.update(f"{context}\0{continuation}\0".encode())
    assert (count, sha.hexdigest()) == (golden["items"], golden["sha256"])


def test_cleaned_rows_of_hellaswag_are_shown_as_they_stand(shared_data: Path) -> None:
    file = shared_data / "hf_rows" / "hellaswag.validation.first2000.jsonl"
    rows = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    dataset = read_tabular("hellaswag", {"validation": [file]})
    for request, row in zip(
        requests(protocol("today", "hellaswag", 0), dataset, ""), rows, strict=True
    ):
        assert pairs(request) == [[row["query"], f" {ending}"] for ending in row["endings"]]


def test_shots_of_race_would_be_the_rows_that_are_tested() -> None:
    with pytest.raises(DataError, match="split 'test'"):
        next(requests(protocol("today", "race", 1), data("race"), ""))


MODEL = next(path for path in MODELS if path.name == GOLDEN["today"]["model"])


@cache
def model() -> Model:
    return load_model(MODEL)


@pytest.mark.parametrize("name", GOLDEN["today"]["benchmarks"])
def test_every_log_likelihood_comes_out(name: str, tmp_path: Path) -> None:
    """Today's with the BOS that the tokenizer adds, and those of 2023 without."""
    golden = {era: GOLDEN[era] for era in VARIANTS if name in GOLDEN[era]["benchmarks"]}
    weights = hashlib.sha256((MODEL / "model.safetensors").read_bytes()).hexdigest()
    if any(each["weights"] != weights for each in golden.values()):
        pytest.skip(
            "the model has been trained anew; make the numbers again with tests/goldens/make_harness.py"
        )
    cases = {
        f"{era} {shots}": (era, shots)
        for era, each in golden.items()
        for shots in each["benchmarks"][name]
    }
    recipes = {
        case: replace(protocol(era, name, int(shots)), score="sum")
        for case, (era, shots) in cases.items()
    }
    run = evaluate(model=model(), data=data(name), protocols=recipes, out=tmp_path / "run")
    for case, (era, shots) in cases.items():
        wanted = golden[era]["benchmarks"][name][shots]
        turned = (era, name) == ("today", "boolq")
        rows = [each[::-1] if turned else each for each in wanted["loglikelihoods"]]
        scores = run.measurements[case].scores
        assert scores is not None
        assert np.asarray(scores) == pytest.approx(
            [number for row in rows for number in row], abs=2e-4
        ), case


# What lighteval and HELM make of the same rows

PORTS: dict[str, Any] = GOLDEN["ports"]


def sent(selector: str, shots: int = 0) -> list[list[Any]]:
    """Context and continuations of every request of an entry with so many shots."""
    recipe = replace(one(selector).protocol, shots=shots)
    rows = data(recipe.benchmark)
    (subject,) = rows.subjects(recipe.split or "")
    return [[each.context(), list(each.continuations)] for each in requests(recipe, rows, subject)]


@pytest.mark.parametrize("name", PORTS["lighteval"])
def test_lighteval_asks_this(name: str) -> None:
    assert sent(f"{name}/lighteval") == PORTS["lighteval"][name]


TODAY_AT_LIGHTEVAL = {
    "mmlu": ("mmlu-lighteval/v0.13", 5),
    "winogrande": ("winogrande/lighteval-v0.13", 3),
}
TODAY_AT_LIGHTEVAL |= {"arc-challenge": ("arc-challenge/lighteval", 3)}
TODAY_AT_LIGHTEVAL |= {
    name: (f"{name}/lighteval-v0.13", 0) for name in ("hellaswag", "commonsenseqa", "siqa")
}
TODAY_AT_LIGHTEVAL |= {name: (f"{name}/lighteval", 0) for name in ("race", "sciq")}
"""Benchmark → what asks as version 0.13, and how many shots are in the golden."""


@pytest.mark.parametrize("name", PORTS["lighteval-v0.13"])
def test_lighteval_asks_this_today(name: str) -> None:
    assert sent(*TODAY_AT_LIGHTEVAL[name]) == PORTS["lighteval-v0.13"][name]


@pytest.mark.parametrize("name", PORTS["helm"])
def test_helm_scores_every_choice_after_this(name: str) -> None:
    expected = [
        [question, [f" {answer}" for answer in answers]]
        for question, answers in PORTS["helm"][name]
    ]
    assert sent(f"{name}/helm" if name == "hellaswag" else f"{name}/helm-separate") == expected
    assert sent(f"{name}/helm-separate-calibrated") == expected


@pytest.mark.parametrize("name", PORTS["helm-joint"])
def test_helm_lists_options_after_five_shots(name: str) -> None:
    asked = requests(one(f"{name}/helm-joint").protocol, data(name), "")
    assert [request.context() for request in asked] == PORTS["helm-joint"][name]


def test_a_context_that_others_have_cleaned_is_shown_as_it_stands(tmp_path: Path) -> None:
    row = {
        "ind": 7,
        "query": "Rowing:  She [sits]   down. she",
        "endings": ["rows  on. ", "sleeps."],
        "label": 0,
    }
    (tmp_path / "validation.jsonl").write_text(json.dumps(row))
    (request,) = requests(one("hellaswag/harness").protocol, open_dataset(tmp_path), "")
    assert (request.context(), request.continuations) == (row["query"], (" rows  on. ", " sleeps."))


BUNDLED = Path(choicewise.__file__).parent / "bundled" / "models"
BENCHMARKS = GOLDENS / "benchmarks"
ROWS, TODAY, V1 = (
    json.loads((BENCHMARKS / f"{name}.json").read_text("utf-8")) for name in ("rows", "today", "v1")
)
PROTOCOLS = {
    **{f"truthfulqa_{metric}": f"truthfulqa/harness:{metric}" for metric in ("mc1", "mc2")},
    **dict.fromkeys(("blimp_wh_island", "blimp_npi_present_1"), "blimp/harness"),
    "lambada_openai": "lambada/harness:acc",
    "gsm8k": "gsm8k/harness:strict",
    "leaderboard_gpqa_main": "gpqa/leaderboard",
    "gpqa_main_zeroshot": "gpqa/harness:acc",
    **{
        f"leaderboard_musr_{name}": "musr/harness"
        for name in ("murder_mysteries", "object_placements")
    },
    **{
        f"leaderboard_bbh_{name}": "bbh/harness"
        for name in ("boolean_expressions", "date_understanding", "snarks")
    },
}
"""Task → the protocol that is it."""

BENCHMARK_CASES = [
    (name, subject, task)
    for name, subjects in TODAY["benchmarks"].items()
    for subject, tasks in subjects.items()
    for task in tasks
]
LIKELIHOODS = [case for case in BENCHMARK_CASES if case[0] != "gsm8k"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The rows as files, benchmark/subject/split.jsonl."""
    rows_of = tmp_path_factory.mktemp("rows")
    for name, subjects in ROWS.items():
        for subject, splits in subjects.items():
            for split, rows in splits.items():
                write_lines(rows_of / name / subject / f"{split}.jsonl", rows)
    return rows_of


def dataset_of(folder: Path, name: str) -> Dataset:
    splits: dict[str, list[Path]] = {}
    subjects = {}
    for subject, of_subject in ROWS[name].items():
        for split in of_subject:
            file = folder / name / subject / f"{split}.jsonl"
            splits.setdefault("validation" if name == "truthfulqa" else split, []).append(file)
            subjects[file] = subject
    known = subjects if any(subjects.values()) else None
    return read_tabular(name, splits, columns=benchmark(name).columns, subjects=known)


def harness_protocol(name: str) -> Protocol:
    return resolve(name)[name]


def sent_to(protocol: Protocol, dataset: Dataset, subject: str) -> list[list[list[str]]]:
    """[item][choice] → context and continuation."""
    asked = requests(protocol, dataset, subject)
    return [[[request.context(), text] for text in request.continuations] for request in asked]


@pytest.mark.parametrize(("name", "subject", "task"), LIKELIHOODS)
def test_what_is_sent_for_benchmarks_is_what_the_harness_sends(
    folder: Path, name: str, subject: str, task: str
) -> None:
    golden = TODAY["benchmarks"][name][subject][task]["sent"]
    ours = sent_to(harness_protocol(PROTOCOLS[task]), dataset_of(folder, name), subject)
    if task == "truthfulqa_mc1":  # the other true answers are asked for mc2 alone
        ours = [
            [pair for pair in pairs if pair in theirs]
            for pairs, theirs in zip(ours, golden, strict=True)
        ]
    assert ours == golden


@pytest.mark.parametrize(
    ("name", "subject"), [(name, subject) for name in V1["benchmarks"] for subject in ROWS[name]]
)
def test_what_is_sent_equals_what_the_harness_of_2023_sends(
    folder: Path, name: str, subject: str
) -> None:
    golden = V1["benchmarks"][name][subject]["sent"]
    recipe = next(iter(resolve(f"{name}/harness-v1").values()))
    ours = sent_to(recipe, dataset_of(folder, name), subject)
    if name == "gsm8k":
        assert [pairs[0][0] for pairs in ours] == [asked[0][0] for asked in golden]
        assert all([*stop_texts(recipe.stop)] == asked[0][1]["until"] for asked in golden)
        return
    if name == "truthfulqa":  # it asks the choices of mc1, then those of mc2
        rows = ROWS[name][""]["test"]
        golden = [
            asked[len(row["mc1_targets"]["choices"]) :]
            for asked, row in zip(golden, rows, strict=True)
        ]
    if name == "lambada":  # one request, which gives two results
        golden = [asked[:1] for asked in golden]
    assert ours == golden


def test_gsm8k_is_asked_and_read_as_by_the_harness(folder: Path) -> None:
    golden = TODAY["benchmarks"]["gsm8k"][""]["gsm8k"]
    recipe, dataset = harness_protocol("gsm8k/harness:strict"), dataset_of(folder, "gsm8k")
    assert [pairs[0][0] for pairs in sent_to(recipe, dataset, "")] == golden["sent"]
    assert set(golden["until"]) >= set(stop_texts(recipe.stop))
    solutions = [item.choices for item in dataset.splits["test"]]
    rules = {
        "gsm8k-strict@4e7e0d4": golden["verdicts"]["strict-match"],
        "gsm8k-flexible@4e7e0d4": golden["verdicts"]["flexible-extract"],
        "gsm8k@b281b09": V1["benchmarks"]["gsm8k"][""]["verdicts"],
    }
    for rule, verdicts in rules.items():
        for text, right in verdicts.items():
            compared = compare(rule, [text] * len(solutions), solutions)
            assert (compared == 1).tolist() == right, (rule, text)
    assert any(any(right) for right in rules["gsm8k@b281b09"].values())


@cache
def measured(folder: Path, name: str) -> dict[str, Measurement]:
    """The benchmark under its protocols on the bundled model."""
    chosen = [full for full in resolve(name) if "harness-v1" not in full]
    model = load_model(str(BUNDLED / TODAY["model"]), dtype="float32")
    out = folder / f"run-{name}"
    return dict(
        evaluate(model=model, data=dataset_of(folder, name), protocols=chosen, out=out).measurements
    )


@pytest.mark.parametrize(("name", "subject", "task"), LIKELIHOODS)
def test_numbers_and_log_likelihoods_are_those_of_the_harness(
    folder: Path, name: str, subject: str, task: str
) -> None:
    weights = (BUNDLED / TODAY["model"] / "model.safetensors").read_bytes()
    if hashlib.sha256(weights).hexdigest() != TODAY["weights"]:
        pytest.skip(
            f"the goldens are of another {TODAY['model']}; make them again with make_benchmarks.py"
        )
    golden = TODAY["benchmarks"][name][subject][task]
    of_task = measured(folder, name)[PROTOCOLS[task]]
    places = [place for place, own in enumerate(of_task.subjects) if own == subject]
    names = {"lambada_openai": "acc", "truthfulqa_mc1": "acc", "truthfulqa_mc2": "acc"}
    key = names.get(task) or next(key for key in ("acc_norm", "acc") if key in golden["metrics"][0])
    assert of_task.credit[places] == pytest.approx(
        [each[key] for each in golden["metrics"]], abs=2e-5
    )
    if name == "lambada":
        perplexity = measured(folder, name)["lambada/harness:perplexity"]
        assert perplexity.credit == pytest.approx(
            [each["perplexity"] for each in golden["metrics"]], abs=1e-3
        )
        assert perplexity.values()["all"].value == pytest.approx(
            golden["means"]["perplexity"], rel=1e-4
        )
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
        texts = {
            "correct_answers": [*others, best],
            "incorrect_answers": [text for text, flag in flags if not flag],
        }
        generation.append(
            {"question": row["question"], "best_answer": row["mc1_targets"]["choices"][0], **texts}
        )
    items: list[list[Item]] = []
    for name, rows in (("options", options), ("generation", generation)):
        write_lines(tmp_path / f"{name}.jsonl", rows)
        items.append(list(open_dataset(tmp_path / f"{name}.jsonl").splits["test"]))
    for first, other in zip(*items, strict=True):
        assert (first.choices, first.gold) == (other.choices, other.gold)


def test_both_metrics_of_real_rows_equal_plain_ones(shared_data: Path) -> None:
    items = list(open_dataset(shared_data / "hf_rows" / "truthfulqa.en.jsonl").splits["test"])
    rng = np.random.default_rng(0)
    scores = [rng.normal(-20, 6, len(item.choices)) for item in items]
    offsets = np.concatenate([[0], np.cumsum([len(each) for each in scores])])
    gold = np.concatenate(
        [[index in item.gold for index in range(len(item.choices))] for item in items]
    )
    flat = np.concatenate(scores)
    credits = [metric(flat, offsets, gold, "first").credit for metric in (mc1, mc2)]
    for item, own, first, two in zip(items, scores, *credits, strict=True):
        false = [score for index, score in enumerate(own) if index not in item.gold]
        assert item.choices[0] == item.fields["best_answer"]
        assert first == float(np.argmax([own[0], *false]) == 0)
        weights = np.exp(own)
        assert two == pytest.approx(weights[list(item.gold)].sum() / weights.sum())
