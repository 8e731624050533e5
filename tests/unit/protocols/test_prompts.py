"""Prompts, held against the published ones byte for byte."""

import gzip
import hashlib
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from choicewise.data.dataset import Dataset
from choicewise.data.items import Item
from choicewise.data.open import open_dataset
from choicewise.errors import DataError, ProtocolError
from choicewise.protocols.catalogue import entry
from choicewise.protocols.protocol import Protocol
from choicewise.requests.render import PANDAS_NA, render
from choicewise.requests.request import Request
from tests.helpers.protocols import entries_for_mmlu, mmlu_protocol, requests

GOLDEN = ("mmlu/original", "mmlu/helm", "mmlu/harness-v0", "mmlu/harness-v1")
ITEM = Item("anatomy/0", " Which? ", ("one", " two ", "None", ""), (1,), "human_anatomy", {"passage": "Once {upon}."})


def headline(name: str) -> Protocol:
    return next(iter(entry(name).protocols.values()))


@pytest.fixture(scope="module")
def mmlu(shared_data: Path) -> Dataset:
    """All of MMLU, as a user opens it."""
    return open_dataset(shared_data / "mmlu")


@pytest.mark.parametrize("name", GOLDEN)
def test_prompts_of_eight_subjects_are_the_published_ones(name: str, mmlu: Dataset, shared_data: Path) -> None:
    goldens = json.loads((shared_data / "goldens/mmlu_prompts/sha256.json").read_text())["per_subject"][name]
    assert len(goldens) == 8
    for subject, golden in goldens.items():
        contexts = [request.context() for request in requests(headline(name), mmlu, subject)]
        sha = hashlib.sha256("".join(context + "\0" for context in contexts).encode()).hexdigest()
        assert (subject, len(contexts), sha) == (subject, golden["n"], golden["sha256"])


@pytest.mark.parametrize("name", GOLDEN)
def test_one_prompt_is_the_published_one_to_the_space(name: str, mmlu: Dataset, shared_data: Path) -> None:
    golden = shared_data / f"goldens/mmlu_prompts/us_foreign_policy_0_{name.removeprefix('mmlu/')}.txt"
    request = next(requests(headline(name), mmlu, "us_foreign_policy"))
    assert request.context() == golden.read_text(encoding="utf-8")


TOY = Item("s/0", "Q?", ("w", "x", "y", "z"), (2,), "us_law")
SHOT = Item("s/1", "P?", ("a", "b", "c", "d"), (1,), "us_law")
MC = "The following are multiple choice questions (with answers) about us law.\n\n"
WIDE = MC.replace("about us", "about  us")


@pytest.mark.parametrize(
    ("name", "context", "continuation"),
    [
        ("original", f"{WIDE}P?\nA. a\nB. b\nC. c\nD. d\nAnswer: B\n\nQ?\nA. w\nB. x\nC. y\nD. z\nAnswer:", " C"),
        ("original-pr13", f"{WIDE}P?\nA. a\nB. b\nC. c\nD. d\nAnswer: B\n\nQ?\nA. w\nB. x\nC. y\nD. z\nAnswer:", "C"),
        ("harness-v0.4", f"{MC}P?\nA. a\nB. b\nC. c\nD. d\nAnswer: B\n\nQ?\nA. w\nB. x\nC. y\nD. z\nAnswer:", " C"),
        (
            "harness-v0.4-early",
            f"{MC[:-1]}P?\nA. a\nB. b\nC. c\nD. d\nAnswer: B\n\nQ?\nA. w\nB. x\nC. y\nD. z\nAnswer:",
            " C",
        ),
        (
            "olmes-mcf",
            f"{MC}Question: P?\n A. a\n B. b\n C. c\n D. d\nAnswer: B\n\n"
            "Question: Q?\n A. w\n B. x\n C. y\n D. z\nAnswer:",
            " C",
        ),
        ("olmes-cf", f"{MC}Question: P?\nAnswer: b\n\nQuestion: Q?\nAnswer:", " y"),
        ("cloze", "The following are questions about us law.\nQuestion: Q?\nAnswer:", " y"),
        (
            "letter-text",
            f"{WIDE}P?\nA. a\nB. b\nC. c\nD. d\nAnswer: B. b\n\nQ?\nA. w\nB. x\nC. y\nD. z\nAnswer:",
            " C. y",
        ),
    ],
)
def test_entries_without_a_golden_of_their_own_print_what_their_source_prints(
    name: str, context: str, continuation: str
) -> None:
    protocol = headline(f"mmlu/{name}")
    request = render(protocol, TOY, [SHOT] * bool(protocol.shots))
    assert request.context() == context
    assert request.continuations[2] == continuation


def read_olmes(folder: Path) -> list[dict[str, Any]]:
    with gzip.open(folder / "requests.jsonl.gz", "rt", encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def olmes_shots(context: str) -> list[Item]:
    """The curated shots, which are published nowhere but in front of the questions."""
    shots = []
    for number, block in enumerate(context.split("\n\n")[:-1]):
        question, *options, answer = block.split("\n")
        choices = tuple(option[len(" A. ") :] for option in options)
        shots.append(Item(f"shot/{number}", question.removeprefix("Question: "), choices, ("ABCDE".index(answer[-1]),)))
    return shots


@pytest.mark.costly("the whole catalogue")
def test_olmes_formats_reproduce_its_published_arc_requests(shared_data: Path) -> None:
    folder = shared_data / "goldens/olmes_requests/arc_challenge"
    mcf = mmlu_protocol(
        benchmark="arc-challenge",
        question="Question: {question}\n{options}Answer:",
        option=" {letter}. {choice}\n",
        letters="ABCDE",
        choices=None,
    )
    cf = replace(mcf, question="Question: {question}\nAnswer:", answer=" {choice}", continuation=" {choice}")
    published = {mcf: read_olmes(folder / "test_mc_5shot"), cf: read_olmes(folder / "test_rc_5shot")}
    shots = olmes_shots(published[mcf][0]["request"]["context"])
    items: dict[str, Item] = {}
    for line in (shared_data / "hf_rows/arc_challenge.test.original.jsonl").read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        labels = [choice["label"] for choice in row["question"]["choices"]]
        texts = tuple(choice["text"] for choice in row["question"]["choices"])
        items[row["id"]] = Item(row["id"], row["question"]["stem"], texts, (labels.index(row["answerKey"]),))
    for protocol, lines in published.items():
        rendered = {name: render(protocol, item, shots) for name, item in items.items()}
        asked = [line for line in lines if line["request"]["context"] != "Answer:"]
        assert len(asked) == sum(len(request.continuations) for request in rendered.values()) == 4687
        for line in asked:
            request = rendered[line["native_id"]]
            assert line["request"] == {"context": request.context(), "continuation": request.continuations[line["idx"]]}
            assert (line["label"],) == request.gold


def test_dropping_shots_keeps_header_and_query_whole() -> None:
    request = render(headline("mmlu/original"), TOY, [SHOT] * 5)
    for left in range(6):
        context = request.context(left)
        assert context.startswith(request.header)
        assert context.endswith("Answer: B\n\n" * bool(left) + request.query)
        assert context.count("Answer: B") == left
    assert request.context(5) == request.context()


@pytest.mark.parametrize(
    ("strip", "question", "options"),
    [
        ("none", " Which? ", ("one", " two ", "None", "")),
        ("question", "Which?", ("one", " two ", "None", "")),
        ("all", "Which?", ("one", "two", "None", "")),
    ],
)
def test_strip(strip: str, question: str, options: tuple[str, ...]) -> None:
    request = render(mmlu_protocol(strip=strip, question="[{question}]{options}"), ITEM, [])
    assert request.query.startswith(f"[{question}]A. {options[0]}\nB. {options[1]}\n")
    assert request.options == options


def test_pandas_na_prints_missing_fields_as_nan() -> None:
    assert len(PANDAS_NA) == 19
    protocol = mmlu_protocol(quirk="pandas-na", strip="all", continuation=" {choice}")
    request = render(protocol, replace(ITEM, question="NA"), [])
    assert request.options == ("one", "two", "nan", "nan")
    assert request.continuations == (" one", " two", " nan", " nan")
    assert request.query.startswith("nan\nA. one\n")
    assert render(protocol, ITEM, [replace(ITEM, question="null")]).shots[0].startswith("nan\nA. one\nB. two\nC. nan\n")


def test_pandas_na_changes_the_ten_prompts_of_mmlu_that_pandas_2_changes(mmlu: Dataset) -> None:
    plain = headline("mmlu/original")
    quirky = replace(plain, quirk="pandas-na")
    changed = {
        subject: sum(
            left != right for left, right in zip(*(requests(p, mmlu, subject) for p in (plain, quirky)), strict=True)
        )
        for subject in ("electrical_engineering", "college_mathematics", "college_computer_science", "college_physics")
    }
    assert list(changed.values()) == [4, 3, 2, 1]


def test_templates_know_the_items_own_fields_and_never_read_them_again() -> None:
    protocol = mmlu_protocol(question="{passage} {{{subject}}}: {question}", header="{subject}\n")
    assert render(protocol, ITEM, []).context() == "human anatomy\nOnce {upon}. {human anatomy}:  Which? "
    with pytest.raises(ProtocolError, match=r"axis question has a hole \{passage\} that nothing fills"):
        render(protocol, TOY, [])


@pytest.mark.parametrize(
    ("choices", "expected", "message"),
    [
        (
            3,
            4,
            "item s/0 of subject 'us_law' has 3 choices, the protocol asks for 4; correct the item, or skip bad items",
        ),
        (5, 4, "has 5 choices, the protocol asks for 4"),
        (5, None, "has 5 choices, the protocol has 4 letters; correct the item, or skip bad items, or use"),
    ],
)
def test_render_refuses_other_numbers_of_choices(choices: int, expected: int | None, message: str) -> None:
    odd = replace(TOY, choices=tuple("abcdefg"[:choices]), gold=(0,))
    for item, shots in ((odd, []), (replace(TOY, id="t/0"), [odd])):
        with pytest.raises(DataError, match=re.escape(message)):
            render(mmlu_protocol(choices=expected), item, shots)


MANY = replace(TOY, choices=tuple(f"c{number}" for number in range(500)), gold=(499,))


@pytest.mark.parametrize("name", ["options/cloze:sum", "compat/lm-eval:acc", "options/yes-no"])
def test_choices_without_letters_are_as_many_as_there_are(name: str) -> None:
    protocol = headline(name)
    few, many = (render(protocol, item, []) for item in (replace(MANY, choices=MANY.choices[:5], gold=(0,)), MANY))
    assert len(many.continuations) == len(many.options) == 500
    assert many.continuations[:5] == few.continuations
    assert many.proposals[:5] == few.proposals
    assert many.query == few.query


@pytest.mark.parametrize(
    "axes",
    [
        {"question": "{question}\n{options}Answer:"},
        {"shots": 1},
        {"continuation": " {letter}"},
        {"proposal": " {letter}:"},
        {"reading": "generate", "score": "none", "decision": "letter-match", "new_tokens": 1},
    ],
)
def test_choices_beyond_the_letters_are_refused_where_a_letter_is_used(axes: dict[str, Any]) -> None:
    protocol = mmlu_protocol(
        **{"question": "{question}", "continuation": " {choice}", "choices": None, "shots": 0, **axes}
    )
    with pytest.raises(DataError, match="has 500 choices, the protocol has 4 letters"):
        render(protocol, MANY, [])


def test_a_letter_that_is_not_there_is_never_shown() -> None:
    """Shots come with a protocol that has some; where they don't, the answer has no letter to name."""
    protocol = mmlu_protocol(question="{question}", continuation=" {choice}", choices=None, shots=0)
    with pytest.raises(ProtocolError, match=r"axis answer has a hole \{letter\} that nothing fills"):
        render(protocol, TOY, [MANY])


def test_any_number_of_choices_shows_as_many_letters() -> None:
    request = render(mmlu_protocol(choices=None), replace(TOY, choices=("w", "x"), gold=(0,)), [])
    assert request.query == "Q?\nA. w\nB. x\nAnswer:"
    assert request.continuations == (" A", " B")


def test_shots_answer_with_the_first_right_choice() -> None:
    assert render(mmlu_protocol(), TOY, [replace(SHOT, gold=(1, 3))]).shots[0].endswith("Answer: B")


@pytest.mark.costly("the whole catalogue")
def test_every_entry_renders_all_of_a_subject(mmlu: Dataset) -> None:
    for known in entries_for_mmlu():
        rendered = list(requests(headline(known.name), mmlu, "anatomy"))
        assert len(rendered) == 135
        assert all(isinstance(request, Request) and len(request.continuations) == 4 for request in rendered)
