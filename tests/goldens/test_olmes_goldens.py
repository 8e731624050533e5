"""The OLMES entries, held against the requests that its authors published."""

import gzip
import json
import re
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies

from choicewise.data.dataset import Dataset
from choicewise.data.items import Item
from choicewise.data.open import open_dataset
from choicewise.protocols.catalogue import entry, one
from choicewise.protocols.protocol import Protocol
from choicewise.requests.render import render
from choicewise.requests.request import Request
from tests.helpers.protocols import requests

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
        {"request": {"context": context, "continuation": text}, "idx": place, "doc_id": doc, "label": rendered.gold[0]}
        for place, (context, text) in enumerate(asked)
    ]


def published(line: Line) -> Line:
    return {key: line[key] for key in ("request", "idx", "doc_id", "label")}


@cache
def arc_items(folder: Path) -> list[Item]:
    """The questions of ARC in the order of its requests."""
    docs = {line["native_id"]: line["doc"] for line in read(folder / "test_rc_5shot/requests.jsonl.gz")}
    shown = {id: doc["query"].removeprefix("Question: ").removesuffix("\nAnswer:") for id, doc in docs.items()}
    return [Item(id, shown[id], tuple(doc["choices"]), (doc["gold"],)) for id, doc in docs.items()]


@pytest.mark.costly("all of its thousands of published requests")
@pytest.mark.parametrize(("task", "choices"), [("arc-easy", 9501), ("arc-challenge", 4687)])
def test_every_published_request_of_arc_is_ours(task: str, choices: int, shared_data: Path) -> None:
    folder = shared_data / "goldens/olmes_requests" / task.replace("-", "_")
    items = arc_items(folder)
    mcf, cf = one(f"{task}/olmes-mcf").protocol, entry(f"{task}/olmes-cf").protocols[f"{task}/olmes-cf:acc_uncond"]
    assert cf.null == NULL
    listed, plain = ask(mcf, items), ask(cf, items)
    golden = read(folder / "test_mc_5shot/requests.jsonl.gz")
    assert len(golden) == choices
    ours = [line for doc, request in enumerate(listed) for line in lines(request, doc)]
    assert ours == [published(line) for line in golden]
    golden = read(folder / "test_rc_5shot/requests.jsonl.gz")
    assert len(golden) == 2 * choices
    after = [line for doc, request in enumerate(plain) for line in lines(request, doc)]
    after += [line for doc, request in enumerate(plain) for line in lines(request, 1000000 + doc, cf.null)]
    both = {(line["doc_id"], line["idx"]): line for line in after}
    assert len(both) == len(golden)
    for line in golden:
        assert both[line["doc_id"], line["idx"]] == published(line)


def test_the_rows_of_arc_give_its_requests(shared_data: Path) -> None:
    """In the file's own order, which is that of the requests."""
    rows = open_dataset(shared_data / "hf_rows/arc_challenge.test.original.jsonl").splits["test"]
    of_requests = arc_items(shared_data / "goldens/olmes_requests/arc_challenge")
    told, wanted = ([(i.id, i.question, i.choices, i.gold) for i in items] for items in (rows, of_requests))
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
def test_the_first_published_request_is_ours(task: str, formulation: str, shared_data: Path) -> None:
    published_as, file, position = FIRST[task]
    golden = read(shared_data / FIRST_REQUESTS.format(published_as, SHORT[formulation]))
    (request,) = ask(one(f"{task}/olmes-{formulation}").protocol, [row(shared_data, file, position)])
    assert lines(request, 0) == [published(line) for line in golden]


@pytest.mark.parametrize("formulation", ["mcf", "cf"])
def test_boolq_shows_the_passage_with_its_title(formulation: str, shared_data: Path) -> None:
    """The row is taken from the request itself: other editions of BoolQ lack the title."""
    golden = read(shared_data / FIRST_REQUESTS.format("boolq", SHORT[formulation]))
    passage, _, rest = golden[0]["doc"]["query"].partition("\nQuestion: ")
    question = rest.partition("?")[0]
    item = Item("3187", question, ("yes", "no"), (golden[0]["doc"]["gold"],), fields={"passage": passage})
    (request,) = ask(one(f"boolq/olmes-{formulation}").protocol, [item])
    assert lines(request, 0) == [published(line) for line in golden]


@pytest.mark.parametrize("formulation", ["mcf", "cf"])
def test_hellaswag_is_cleaned_as_published(formulation: str, shared_data: Path) -> None:
    """The question is given as it is after cleaning; what cleaning does is seen in the five examples."""
    forms = (SHORT[formulation], "rc")
    golden, cleaned = (read(shared_data / FIRST_REQUESTS.format("hellaswag", form)) for form in forms)
    doc = cleaned[0]["doc"]
    label, _, first = doc["query"].partition(": ")
    fields = {"activity_label": label, "ctx_a": first, "ctx_b": ""}
    item = Item(str(doc["ind"]), first, tuple(doc["choices"]), (doc["gold"],), fields=fields)
    (request,) = ask(one(f"hellaswag/olmes-{formulation}").protocol, [item])
    assert lines(request, 0) == [published(line) for line in golden]


def cleaned_prompt(item: Item) -> str:
    """What OLMES does with the whole prompt at once."""
    text = "{activity_label}: {ctx_a} ".format(**item.fields) + item.fields["ctx_b"].capitalize()
    options = "\n".join(f" {letter}. {text}" for letter, text in zip("ABCD", item.choices, strict=True))
    text = f"{text}\nChoose the best continuation:\n{options}\nAnswer:".strip()
    text = re.sub(r"\[.*?\]", "", re.sub(r"\.? \[title\]", ". ", text))
    return text.replace("  ", " ")


PIECES = strategies.lists(
    strategies.sampled_from([" ", "  ", ".", "[title]", "[step]", "[", "]", "the dog", "Runs", " [title] "])
).map("".join)


@given(PIECES, PIECES, PIECES, strategies.lists(PIECES, min_size=4, max_size=4))
def test_options_cleaned_one_by_one_are_those_of_the_prompt_cleaned_at_once(
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
