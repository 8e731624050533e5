"""The OLMES entries, held against the requests that its authors published."""

import gzip
import json
import re
import tomllib
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies

from choicewise.data.benchmarks import benchmark
from choicewise.data.dataset import Dataset
from choicewise.data.items import Item
from choicewise.data.open import open_dataset
from choicewise.data.splits import SPLITS
from choicewise.errors import DataError
from choicewise.protocols.catalogue import entry, one
from choicewise.protocols.preparations import PREPARATIONS
from choicewise.protocols.protocol import Protocol
from choicewise.protocols.shots import sample
from choicewise.requests.render import render
from choicewise.requests.request import Request
from tests.helpers.protocols import requests
from tests.paths import GOLDENS

Line = dict[str, Any]
NULL = "Answer:"
SHORT = {"mcf": "mc", "cf": "rc"}
FIRST_REQUESTS = "goldens/olmes_requests/{}/{}_5shot.first.jsonl"


def read(file: Path) -> list[Line]:
    content = gzip.decompress(file.read_bytes()) if file.suffix == ".gz" else file.read_bytes()
    return [json.loads(line) for line in content.splitlines()]


def ask(protocol: Protocol, items: Sequence[Item]) -> list[Request]:
    """The requests of ``items``, rendered as a run renders them."""
    return list(requests(protocol, Dataset("golden", {protocol.split or "": items}), ""))


def lines(rendered: Request, doc: int, null: str | None = None) -> list[Line]:
    """The lines that OLMES prints for a request: its document's number, and one for every choice."""
    begun = rendered.proposals or [""] * len(rendered.options)
    contexts = [rendered.context() + each if null is None else null for each in begun]
    asked = zip(contexts, rendered.continuations, strict=True)
    return [
        {
            "request": {"context": context, "continuation": text},
            "idx": place,
            "doc_id": doc,
            "label": rendered.gold[0],
        }
        for place, (context, text) in enumerate(asked)
    ]


def published(line: Line) -> Line:
    return {key: line[key] for key in ("request", "idx", "doc_id", "label")}


@cache
def arc_items(folder: Path) -> list[Item]:
    """The questions of ARC in the order of its requests."""
    docs = {
        line["native_id"]: line["doc"] for line in read(folder / "test_rc_5shot/requests.jsonl.gz")
    }
    shown = {
        id: doc["query"].removeprefix("Question: ").removesuffix("\nAnswer:")
        for id, doc in docs.items()
    }
    return [Item(id, shown[id], tuple(doc["choices"]), (doc["gold"],)) for id, doc in docs.items()]


@pytest.mark.costly("all of its thousands of published requests")
@pytest.mark.parametrize(("task", "choices"), [("arc-easy", 9501), ("arc-challenge", 4687)])
def test_every_published_request_of_arc_is_ours(task: str, choices: int, shared_data: Path) -> None:
    folder = shared_data / "goldens/olmes_requests" / task.replace("-", "_")
    items = arc_items(folder)
    mcf, cf = (
        one(f"{task}/olmes-mcf").protocol,
        entry(f"{task}/olmes-cf").protocols[f"{task}/olmes-cf:acc_uncond"],
    )
    assert cf.null == NULL
    listed, plain = ask(mcf, items), ask(cf, items)
    golden = read(folder / "test_mc_5shot/requests.jsonl.gz")
    assert len(golden) == choices
    ours = [line for doc, request in enumerate(listed) for line in lines(request, doc)]
    assert ours == [published(line) for line in golden]
    golden = read(folder / "test_rc_5shot/requests.jsonl.gz")
    assert len(golden) == 2 * choices
    after = [line for doc, request in enumerate(plain) for line in lines(request, doc)]
    after += [
        line for doc, request in enumerate(plain) for line in lines(request, 1000000 + doc, cf.null)
    ]
    both = {(line["doc_id"], line["idx"]): line for line in after}
    assert len(both) == len(golden)
    for line in golden:
        assert both[line["doc_id"], line["idx"]] == published(line)


def test_the_rows_of_arc_give_its_requests(shared_data: Path) -> None:
    """In the file's own order, which is that of the requests."""
    rows = open_dataset(shared_data / "hf_rows/arc_challenge.test.original.jsonl").splits["test"]
    of_requests = arc_items(shared_data / "goldens/olmes_requests/arc_challenge")
    told, wanted = (
        [(i.id, i.question, i.choices, i.gold) for i in items] for items in (rows, of_requests)
    )
    assert told == wanted


def row(folder: Path, file: str, position: int) -> Item:
    """One row of a file with the Hub's field names."""
    (items,) = open_dataset(folder / "hf_rows" / file).splits.values()
    return items[position]


FIRST = {
    "openbookqa": ("openbookqa", "openbookqa.validation.jsonl", 0),
    "commonsenseqa": ("csqa", "commonsense_qa.validation.jsonl", 0),
    "piqa": ("piqa", "piqa.validation.jsonl", 1593),
    "siqa": ("socialiqa", "social_i_qa.validation.jsonl", 1593),
    "winogrande": ("winogrande", "winogrande.validation.jsonl", 0),
}
"""Task → the folder of its first request, and the row that it asks (the first that Random(1234) draws, or row 0)."""


@pytest.mark.parametrize("formulation", ["mcf", "cf"])
@pytest.mark.parametrize("task", FIRST)
def test_the_first_published_request_is_ours(
    task: str, formulation: str, shared_data: Path
) -> None:
    published_as, file, position = FIRST[task]
    golden = read(shared_data / FIRST_REQUESTS.format(published_as, SHORT[formulation]))
    (request,) = ask(
        one(f"{task}/olmes-{formulation}").protocol, [row(shared_data, file, position)]
    )
    assert lines(request, 0) == [published(line) for line in golden]


@pytest.mark.parametrize("formulation", ["mcf", "cf"])
def test_boolq_shows_the_passage_with_its_title(formulation: str, shared_data: Path) -> None:
    """The row is taken from the request itself: other editions of BoolQ lack the title."""
    golden = read(shared_data / FIRST_REQUESTS.format("boolq", SHORT[formulation]))
    passage, _, rest = golden[0]["doc"]["query"].partition("\nQuestion: ")
    question = rest.partition("?")[0]
    item = Item(
        "3187", question, ("yes", "no"), (golden[0]["doc"]["gold"],), fields={"passage": passage}
    )
    (request,) = ask(one(f"boolq/olmes-{formulation}").protocol, [item])
    assert lines(request, 0) == [published(line) for line in golden]


@pytest.mark.parametrize("formulation", ["mcf", "cf"])
def test_hellaswag_is_cleaned_as_published(formulation: str, shared_data: Path) -> None:
    """The question is given as it is after cleaning; what cleaning does is seen in the five examples."""
    forms = (SHORT[formulation], "rc")
    golden, cleaned = (
        read(shared_data / FIRST_REQUESTS.format("hellaswag", form)) for form in forms
    )
    doc = cleaned[0]["doc"]
    label, _, first = doc["query"].partition(": ")
    fields = {"activity_label": label, "ctx_a": first, "ctx_b": ""}
    item = Item(str(doc["ind"]), first, tuple(doc["choices"]), (doc["gold"],), fields=fields)
    (request,) = ask(one(f"hellaswag/olmes-{formulation}").protocol, [item])
    assert lines(request, 0) == [published(line) for line in golden]


def cleaned_prompt(item: Item) -> str:
    """What OLMES does with the whole prompt at once."""
    text = "{activity_label}: {ctx_a} ".format(**item.fields) + item.fields["ctx_b"].capitalize()
    options = "\n".join(
        f" {letter}. {text}" for letter, text in zip("ABCD", item.choices, strict=True)
    )
    text = f"{text}\nChoose the best continuation:\n{options}\nAnswer:".strip()
    text = re.sub(r"\[.*?\]", "", re.sub(r"\.? \[title\]", ". ", text))
    return text.replace("  ", " ")


PIECES = strategies.lists(
    strategies.sampled_from(
        [" ", "  ", ".", "[title]", "[step]", "[", "]", "the dog", "Runs", " [title] "]
    )
).map("".join)


@given(PIECES, PIECES, PIECES, strategies.lists(PIECES, min_size=4, max_size=4))
def test_options_cleaned_singly_are_those_of_the_prompt(
    label: str, first: str, second: str, endings: list[str]
) -> None:
    fields = {"activity_label": label, "ctx_a": first, "ctx_b": second}
    item = Item("1", first, tuple(endings), (0,), fields=fields)
    protocol = replace(one("hellaswag/olmes-mcf").protocol, shots=0)
    assert render(protocol, item, []).context() == cleaned_prompt(item)


@pytest.mark.parametrize("name", ["hellaswag/olmes-mcf", "hellaswag/olmes-cf"])
def test_hellaswag_that_others_have_cleaned_is_asked_as_it_stands(name: str) -> None:
    item = Item("1", "Dogs: A dog  sits. he", ("runs", " sleeps", "[step] eats", "x"), (0,))
    request = render(replace(one(name).protocol, shots=0), item, [])
    assert request.context().startswith("Dogs: A dog  sits. he")
    assert request.options == item.choices


HERE = GOLDENS / "exams"
ROWS = json.loads((HERE / "rows.json").read_text(encoding="utf-8"))
SENT = json.loads((HERE / "requests.json").read_text(encoding="utf-8"))["requests"]
CASES = [
    (name, shots, subject)
    for name, each in SENT.items()
    for shots, of in each.items()
    for subject in of
]


def dataset(name: str, subject: str, folder: Path) -> Dataset:
    """The rows of one subject as a user's files give them, under the benchmark's own mapping."""
    for split, rows in ROWS[name][subject].items():
        lines = "\n".join(json.dumps(row, ensure_ascii=False) for row in rows)
        (folder / f"{split}.jsonl").write_text(lines, encoding="utf-8")
    opened = open_dataset(folder, columns=benchmark(name).columns)
    named = {
        split: [replace(item, subject=subject) for item in items]
        for split, items in opened.splits.items()
    }
    return Dataset(name, named if subject else opened.splits)


@pytest.mark.parametrize(("name", "shots", "subject"), CASES)
def test_the_harness_sends_the_same(name: str, shots: str, subject: str, tmp_path: Path) -> None:
    protocol = replace(one(name).protocol, shots=int(shots))
    data = dataset(name.partition("/")[0], subject, tmp_path)
    asked = [
        request
        for each in data.subjects(protocol.split or "")
        for request in requests(protocol, data, each)
    ]
    golden = SENT[name][shots][subject]
    assert len(asked) == len(golden)
    for request, sent in zip(asked, golden, strict=True):
        if protocol.reading == "generate":
            ((context, how),) = sent
            assert (request.context(), protocol.stop) == (context, how["until"][0])
        else:
            assert [[request.context(), text] for text in request.continuations] == sent


@pytest.mark.parametrize(
    ("name", "subject", "query", "shot", "continuation"),
    [
        (
            *("mmlu-pro/olmes-mcf", "math"),
            "Question: What is 7 times 8?\n A. 48\n B. 49\n C. 50\n D. 52\n E. 54\n F. 55\n G. 56\n H. 58\n I. 63\n"
            " J. 64\nAnswer:",
            *(
                "Question: Which is a set?\n{1, 2}\n A. {{1}}\n B. a\n C. b\n D. c\n E. d\nAnswer: A",
                " G",
            ),
        ),
        (
            *("mmlu-pro/olmes-cf", "math", "Question: What is 7 times 8?\nAnswer:"),
            *("Question: Which is a set?\n{1, 2}\nAnswer: {{1}}", " 56"),
        ),
        (
            *("cmmlu/original", "ancient_chinese"),
            "题目：“目”字的意思是什么？\nA. 耳朵\nB. 鼻子\nC. 嘴\nD. 眼睛\n答案是：",
            *("题目：“走”在古汉语中的意思是什么？\nA. 走路\nB. 跑\nC. 坐\nD. 站\n答案是：B", "D"),
        ),
        (
            *("ceval/original", "accountant"),
            "下列哪项是资产？ \nA. 应付工资\nB. 现金\nC. 借款\nD. 应交税费\n答案：",
            *("下列哪项是负债？\nA. 现金\nB. 应付账款\nC. 存货\nD. 设备\n答案：B", "B"),
        ),
    ],
)
def test_entries_without_a_golden_print_their_source(
    name: str, subject: str, query: str, shot: str, continuation: str, tmp_path: Path
) -> None:
    protocol, benchmark_name = replace(one(name).protocol, shots=2), name.partition("/")[0]
    data = dataset(benchmark_name, subject if subject in ROWS[benchmark_name] else "", tmp_path)
    request = next(requests(protocol, data, subject))
    assert request.context().endswith(f"\n\n{shot}\n\n{query}")
    assert request.continuations[request.gold[0]] == continuation


def test_examples_of_the_leaderboard_are_the_same_for_every_subject(tmp_path: Path) -> None:
    data = dataset("mmlu-pro", "", tmp_path)
    protocol = one("mmlu-pro/harness").protocol
    shots = {sample(protocol, data, subject)[0] for subject in data.subjects("test")}
    assert len(data.subjects("test")) == 3
    assert [[item.id for item in own] for own in shots] == [["0", "1", "2", "3", "4"]]
    with pytest.raises(DataError, match="has 6 rows in split 'validation'; 7 shots"):
        sample(replace(protocol, shots=7), data, "math")
    with pytest.raises(DataError, match="would show answers"):
        sample(replace(protocol, shots=1, shot_split="test"), data, "math")


@pytest.mark.parametrize("name", SENT)
def test_a_benchmark_has_the_shots_of_its_task_and_the_splits_it_needs(name: str) -> None:
    protocol = one(name).protocol
    assert protocol.shots == (5 if name == "mmlu-pro/harness" else 0)
    needed = {protocol.split, *([protocol.shot_split] if protocol.shot_split else [])}
    assert needed <= set(benchmark(protocol.benchmark).files) <= set(SPLITS.values())


@pytest.mark.parametrize(("exam", "subjects"), [("cmmlu", 67), ("ceval", 52)])
def test_every_subject_has_its_name_in_chinese(exam: str, subjects: int) -> None:
    table = (
        files("choicewise.protocols")
        .joinpath("preparations", "chinese_subjects.toml")
        .read_text(encoding="utf-8")
    )
    items = [Item("1", "Q", ("a", "b"), (0,), subject) for subject in tomllib.loads(table)[exam]]
    names = [PREPARATIONS[f"{exam}-subjects"](item).fields["chinese_subject"] for item in items]
    assert len(names) == subjects
    assert all(not name.isascii() and name == name.strip() for name in names)


def test_a_subject_that_the_exam_has_not_and_questions_with_an_error_are_refused() -> None:
    item = Item("1", "Q", ("a", "b", "c", "d"), (0,), "agronomie")
    with pytest.raises(DataError, match="subject 'agronomie'.* agronomy"):
        PREPARATIONS["cmmlu-subjects"](item)
    assert PREPARATIONS["redux-ok"](item) is item
    wrong = replace(item, fields={"error_type": "wrong_groundtruth"})
    for name, refused, says in (
        ("ceval/harness", item, "which ceval has not"),
        (
            "mmlu-redux/harness",
            wrong,
            "item 1 has the error_type 'wrong_groundtruth' and does not count",
        ),
    ):
        with pytest.raises(DataError, match=says):
            render(one(name).protocol, refused, [])
