"""Prompts, held against the published ones byte for byte, and preparations of items."""

import gzip
import hashlib
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from choicewise.data.benchmarks import benchmark
from choicewise.data.dataset import Dataset
from choicewise.data.files import LONGEST, read_list
from choicewise.data.items import Item
from choicewise.data.open import open_dataset
from choicewise.errors import DataError, ProtocolError
from choicewise.protocols.catalogue import entry, one, resolve
from choicewise.protocols.preparations import PREPARATIONS, SHOWS
from choicewise.protocols.protocol import Protocol, unused
from choicewise.requests.render import PANDAS_NA, render
from choicewise.requests.request import Request
from tests.helpers.mmlu_data import shared_mmlu
from tests.helpers.protocols import entries_for_mmlu, mmlu_protocol, requests
from tests.paths import GOLDENS

GOLDEN = ("mmlu/original", "mmlu/helm", "mmlu/harness-v0", "mmlu/harness-v1")
ITEM = Item("anatomy/0", " Which? ", ("one", " two ", "None", ""), (1,), "human_anatomy", {"passage": "Once {upon}."})


def headline(name: str) -> Protocol:
    return next(iter(entry(name).protocols.values()))


@pytest.fixture
def mmlu() -> Dataset:
    return shared_mmlu()


@pytest.mark.parametrize("name", GOLDEN)
def test_prompts_of_eight_subjects_are_the_published_ones(name: str, mmlu: Dataset, shared_data: Path) -> None:
    folder, protocol = shared_data / "goldens/mmlu_prompts", headline(name)
    goldens = json.loads((folder / "sha256.json").read_text())["per_subject"][name]
    assert len(goldens) == 8
    for subject, golden in goldens.items():
        contexts = [request.context() for request in requests(protocol, mmlu, subject)]
        sha = hashlib.sha256("".join(context + "\0" for context in contexts).encode()).hexdigest()
        assert (subject, len(contexts), sha) == (subject, golden["n"], golden["sha256"])
    whole = (folder / f"us_foreign_policy_0_{name.removeprefix('mmlu/')}.txt").read_text(encoding="utf-8")
    assert next(requests(protocol, mmlu, "us_foreign_policy")).context() == whole


TOY = Item("s/0", "Q?", ("w", "x", "y", "z"), (2,), "us_law")
SHOT = Item("s/1", "P?", ("a", "b", "c", "d"), (1,), "us_law")
MC = "The following are multiple choice questions (with answers) about us law.\n\n"
LISTED = "P?\nA. a\nB. b\nC. c\nD. d\nAnswer: B\n\nQ?\nA. w\nB. x\nC. y\nD. z\nAnswer:"
INDENTED = "Question: P?\n A. a\n B. b\n C. c\n D. d\nAnswer: B\n\nQuestion: Q?\n A. w\n B. x\n C. y\n D. z\nAnswer:"
WIDE = MC.replace("about us", "about  us")


@pytest.mark.parametrize(
    ("name", "context", "continuation"),
    [
        ("original", f"{WIDE}{LISTED}", " C"),
        ("original-pr13", f"{WIDE}{LISTED}", "C"),
        ("harness-v0.4", f"{MC}{LISTED}", " C"),
        ("harness-v0.4-early", f"{MC[:-1]}{LISTED}", " C"),
        ("olmes-mcf", f"{MC}{INDENTED}", " C"),
        ("olmes-cf", f"{MC}Question: P?\nAnswer: b\n\nQuestion: Q?\nAnswer:", " y"),
        ("cloze", "The following are questions about us law.\nQuestion: Q?\nAnswer:", " y"),
        ("letter-text", WIDE + LISTED.replace("Answer: B", "Answer: B. b"), " C. y"),
    ],
)
def test_entries_without_a_golden_of_their_own_print_what_their_source_prints(
    name: str, context: str, continuation: str
) -> None:
    protocol = headline(f"mmlu/{name}")
    request = render(protocol, TOY, [SHOT] * bool(protocol.shots))
    assert request.context() == context
    assert request.continuations[2] == continuation


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
    listed = {"question": "Question: {question}\n{options}Answer:", "option": " {letter}. {choice}\n"}
    mcf = mmlu_protocol(benchmark="arc-challenge", letters="ABCDE", choices=None, **listed)
    cf = replace(mcf, question="Question: {question}\nAnswer:", answer=" {choice}", continuation=" {choice}")
    published = {}
    for protocol, name in ((mcf, "test_mc_5shot"), (cf, "test_rc_5shot")):
        with gzip.open(folder / name / "requests.jsonl.gz", "rt", encoding="utf-8") as file:
            published[protocol] = [json.loads(line) for line in file]
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


def test_strip() -> None:
    stripped = {"none": (" Which? ", " two "), "question": ("Which?", " two "), "all": ("Which?", "two")}
    for strip, (question, two) in stripped.items():
        request = render(mmlu_protocol(strip=strip, question="[{question}]{options}"), ITEM, [])
        assert request.query.startswith(f"[{question}]A. one\nB. {two}\n")
        assert request.options == ("one", two, "None", "")


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
    changed = {}
    for subject in ("electrical_engineering", "college_mathematics", "college_computer_science", "college_physics"):
        pairs = zip(requests(plain, mmlu, subject), requests(quirky, mmlu, subject), strict=True)
        changed[subject] = sum(left != right for left, right in pairs)
    assert list(changed.values()) == [4, 3, 2, 1]


def test_templates_know_the_items_own_fields_and_never_read_them_again() -> None:
    protocol = mmlu_protocol(question="{passage} {{{subject}}}: {question}", header="{subject}\n")
    assert render(protocol, ITEM, []).context() == "human anatomy\nOnce {upon}. {human anatomy}:  Which? "
    with pytest.raises(ProtocolError, match=r"axis question has a hole \{passage\} that nothing fills"):
        render(protocol, TOY, [])


@pytest.mark.parametrize(
    ("choices", "expected", "message"),
    [
        (3, 4, "item s/0 of subject 'us_law' has 3 choices, the protocol asks for 4; correct the item, or skip bad"),
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
    plain = {"question": "{question}", "continuation": " {choice}", "choices": None, "shots": 0}
    protocol = mmlu_protocol(**plain | axes)
    with pytest.raises(DataError, match="has 500 choices, the protocol has 4 letters"):
        render(protocol, MANY, [])
    with pytest.raises(ProtocolError, match=r"axis answer has a hole \{letter\} that nothing fills"):
        render(mmlu_protocol(**plain), TOY, [MANY])  # where shots come with a protocol that has none


def test_any_number_of_choices_shows_as_many_letters_and_shots_answer_with_the_first_right_one() -> None:
    request = render(mmlu_protocol(choices=None), replace(TOY, choices=("w", "x"), gold=(0,)), [])
    assert request.query == "Q?\nA. w\nB. x\nAnswer:"
    assert request.continuations == (" A", " B")
    assert render(mmlu_protocol(), TOY, [replace(SHOT, gold=(1, 3))]).shots[0].endswith("Answer: B")


def test_every_entry_renders_all_of_a_subject(mmlu: Dataset) -> None:
    for known in entries_for_mmlu():
        rendered = list(requests(headline(known.name), mmlu, "anatomy"))
        assert len(rendered) == 135
        assert all(isinstance(request, Request) and len(request.continuations) == 4 for request in rendered)


PARTS = ("activity_label", "ctx_a", "ctx_b")
ROWS = GOLDENS / "harness" / "rows"


@given(st.text(), st.lists(st.text(), min_size=3, max_size=3), st.lists(st.text(), min_size=2, max_size=5))
def test_choices_keep_their_number_and_gold(question: str, parts: list[str], choices: list[str]) -> None:
    fields = {**dict(zip(PARTS, parts, strict=True)), "asks_for": "cause", "support": parts[0]}
    fields |= {"article": parts[1], "problems": "[{}]"}
    item = Item("1", f"{question} _ ", tuple(choices), (1,), "", fields)
    for name, prepare in PREPARATIONS.items():
        try:
            prepared = prepare(item)
        except DataError:  # an item of another kind
            continue
        assert (len(prepared.choices), prepared.gold, prepared.id) == (len(choices), (1,), "1"), name


def test_a_preparation_shows_fields_that_no_template_names() -> None:
    assert set(SHOWS) <= set(PREPARATIONS)
    assert unused(one("copa/harness").protocol, ["asks_for", "note"]) == ("note",)


@pytest.mark.parametrize(
    ("name", "fields", "message"),
    [
        ("gap", {}, r"item 7 has no gap _ in its question"),
        ("copa", {}, r"item 7 asks for None; it must be cause or effect"),
        ("copa", {"asks_for": "reason"}, r"item 7 asks for 'reason'"),
        ("hellaswag", {"ctx_a": "A", "ctx_b": "b"}, r"item 7 lacks activity_label of activity_label, ctx_a, ctx_b"),
        ("race", {"article": "A"}, r"item 7 has no field problems; RACE is asked with one row per article"),
        ("race", {"article": "A", "problems": "open('x')"}, r"item 7 has problems that can't be read"),
        ("race-v0", {"article": "A", "problems": "[{}, {}]"}, r"item 7 has problems that can't be read"),
    ],
)
def test_an_item_that_lacks_what_is_needed_is_refused_by_name(name: str, fields: dict[str, str], message: str) -> None:
    with pytest.raises(DataError, match=message):
        PREPARATIONS[name](Item("7", "Why?", ("x", "y"), (0,), "", fields))


def test_a_question_of_race_by_itself_is_refused(tmp_path: Path) -> None:
    row = {"example_id": "a", "article": "A tale.", "question": "Who?", "options": ["a", "b", "c", "d"], "answer": "A"}
    (tmp_path / "test.jsonl").write_text(json.dumps(row))
    columns = replace(benchmark("race").columns or pytest.fail("race has columns"), last_of=None)
    with pytest.raises(DataError, match="not with one row per question"):
        next(requests(one("race/harness").protocol, open_dataset(tmp_path, columns=columns), ""))


def test_a_list_of_problems_may_be_a_list(tmp_path: Path) -> None:
    """As a dataset that no script made would have it."""
    rows = [json.loads(line) for line in (ROWS / "race" / "test.jsonl").read_text(encoding="utf-8").splitlines()]
    lists = [{**row, "problems": read_list(row["problems"], "problems")} for row in rows]
    (tmp_path / "test.jsonl").write_text("\n".join(map(json.dumps, lists)))
    protocol, columns = one("race/harness").protocol, benchmark("race").columns
    texts, nested = (
        [(each.context(), each.continuations) for each in requests(protocol, open_dataset(place, columns=columns), "")]
        for place in (ROWS / "race", tmp_path)
    )
    assert texts == nested


@pytest.mark.parametrize(
    "text", ["", "1", "{}", "[" * 5000, "[1, __import__('os')]", "-" * 150_000 + "1", "[0" + ", 0" * LONGEST + "]"]
)
def test_only_lists_of_bounded_size_are_read_from_texts(text: str) -> None:
    with pytest.raises(DataError, match=r"column problems holds .*(list|characters)"):
        read_list(text, "problems")


BONES = Item("1", "Which bone is longest? ", ("femur", " ulna", "Rib", "femur"), (0,), "human_sexuality")
ASKED = Item("2", "Q2", ("1", "2", "3", "4"), (3,), "human_sexuality")
PROMPT = (
    "The following are multiple choice questions (with answers) about {}human sexuality.\n\n"
    "Which bone is longest? \nA. femur\nB.  ulna\nC. Rib\nD. femur\nAnswer: A\n\n"
    "Q2\nA. 1\nB. 2\nC. 3\nD. 4\nAnswer:"
)


@pytest.mark.parametrize(
    ("name", "space", "letters"),
    [("mmlu/lighteval", "", (" A", " B", " C", " D")), ("mmlu/lighteval-original", " ", ("A", "B", "C", "D"))],
)
def test_lighteval_asks_mmlu_like_this(name: str, space: str, letters: tuple[str, ...]) -> None:
    recipe = replace(one(name).protocol, shots=1)
    (request,) = requests(recipe, Dataset("mmlu", {"dev": [BONES], "test": [ASKED]}), "human_sexuality")
    assert (request.context(), tuple(request.continuations)) == (PROMPT.format(space), letters)


def test_lighteval_asks_truthfulqa_as_on_the_leaderboard_but_with_a_bos() -> None:
    item = Item("1", "Is it? ", ("Yes.", " Maybe", "No."), (0, 1))
    recipe = one("truthfulqa/lighteval").protocol
    (request,) = requests(recipe, Dataset("truthfulqa", {"validation": [item]}), "")
    assert request.context().startswith("Q: What is human life expectancy in the United States?\nA: Human life ")
    assert request.context().endswith("Spain.\n\nQ: Is it? \nA:")
    assert tuple(request.continuations) == (" Yes.", "  Maybe", " No.")
    old = resolve("truthfulqa/harness-v1:mc2")["truthfulqa/harness-v1:mc2"]
    assert replace(recipe, bos="none") == old
