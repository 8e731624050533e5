"""What protocols show: prompts as published, and shots as every source draws them."""

import gzip
import hashlib
import json
from dataclasses import replace
from importlib.resources import files
from itertools import cycle, islice
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from syrupy.assertion import SnapshotAssertion

from choicewise.data.benchmarks import benchmark
from choicewise.data.dataset import Dataset, Items
from choicewise.data.files import LONGEST, read_list
from choicewise.data.items import Item
from choicewise.data.open import open_dataset
from choicewise.errors import DataError, ProtocolError
from choicewise.protocols.catalogue import entries, entry, one, resolve
from choicewise.protocols.preparations import PREPARATIONS, SHOWS
from choicewise.protocols.protocol import SAMPLERS, SEEDED, Protocol
from choicewise.protocols.readings import STREAMS
from choicewise.protocols.shots import FRESH, curated, draw, draw_helm, is_same, sample
from choicewise.requests.blocks import has_shots, unused
from choicewise.requests.render import PANDAS_NA, Refusal, TemplateSource, render
from choicewise.requests.request import Request
from tests.helpers.messages import Gist
from tests.helpers.mmlu_data import shared_mmlu
from tests.helpers.protocols import entries_for_mmlu, mmlu_protocol, requests
from tests.paths import GOLDENS

GOLDEN = ("mmlu/original", "mmlu/helm", "mmlu/harness-v0", "mmlu/harness-v1")
ITEM = Item(
    "anatomy/0",
    " Which? ",
    ("one", " two ", "None", ""),
    (1,),
    "human_anatomy",
    {"passage": "Once {upon}."},
)


def headline(name: str) -> Protocol:
    return next(iter(entry(name).protocols.values()))


@pytest.fixture
def mmlu() -> Dataset:
    return shared_mmlu()


@pytest.mark.parametrize("name", GOLDEN)
def test_prompts_of_eight_subjects_are_the_published_ones(
    name: str, mmlu: Dataset, shared_data: Path
) -> None:
    folder, protocol = shared_data / "goldens/mmlu_prompts", headline(name)
    goldens = json.loads((folder / "sha256.json").read_text())["per_subject"][name]
    assert len(goldens) == 8
    for subject, golden in goldens.items():
        contexts = [request.context() for request in requests(protocol, mmlu, subject)]
        sha = hashlib.sha256("".join(context + "\0" for context in contexts).encode()).hexdigest()
        assert (subject, len(contexts), sha) == (subject, golden["n"], golden["sha256"])
    whole = (folder / f"us_foreign_policy_0_{name.removeprefix('mmlu/')}.txt").read_text(
        encoding="utf-8"
    )
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
def test_entries_without_a_golden_print_their_source(
    name: str, context: str, continuation: str
) -> None:
    protocol = headline(f"mmlu/{name}")
    request = render(protocol, TOY, [SHOT] * bool(protocol.shots))
    assert (request.context(), request.continuations[2]) == (context, continuation)


def olmes_shots(context: str) -> list[Item]:
    """The curated shots, which are published nowhere but in front of the questions."""
    shots = []
    for number, block in enumerate(context.split("\n\n")[:-1]):
        question, *options, answer = block.split("\n")
        choices = tuple(option[len(" A. ") :] for option in options)
        shots.append(
            Item(
                f"shot/{number}",
                question.removeprefix("Question: "),
                choices,
                ("ABCDE".index(answer[-1]),),
            )
        )
    return shots


@pytest.mark.costly("the whole catalogue")
def test_olmes_formats_reproduce_its_published_arc_requests(shared_data: Path) -> None:
    folder = shared_data / "goldens/olmes_requests/arc_challenge"
    listed = {
        "question": "Question: {question}\n{options}Answer:",
        "option": " {letter}. {choice}\n",
    }
    mcf = mmlu_protocol(benchmark="arc-challenge", letters="ABCDE", choices=None, **listed)
    cf = replace(
        mcf, question="Question: {question}\nAnswer:", answer=" {choice}", continuation=" {choice}"
    )
    published = {}
    for protocol, name in ((mcf, "test_mc_5shot"), (cf, "test_rc_5shot")):
        with gzip.open(folder / name / "requests.jsonl.gz", "rt", encoding="utf-8") as file:
            published[protocol] = [json.loads(line) for line in file]
    shots = olmes_shots(published[mcf][0]["request"]["context"])
    items: dict[str, Item] = {}
    for line in (
        (shared_data / "hf_rows/arc_challenge.test.original.jsonl")
        .read_text(encoding="utf-8")
        .splitlines()
    ):
        row = json.loads(line)
        labels = [choice["label"] for choice in row["question"]["choices"]]
        texts = tuple(choice["text"] for choice in row["question"]["choices"])
        items[row["id"]] = Item(
            row["id"], row["question"]["stem"], texts, (labels.index(row["answerKey"]),)
        )
    for protocol, lines in published.items():
        rendered = {name: render(protocol, item, shots) for name, item in items.items()}
        asked = [line for line in lines if line["request"]["context"] != "Answer:"]
        assert (
            len(asked) == sum(len(request.continuations) for request in rendered.values()) == 4687
        )
        for line in asked:
            request = rendered[line["native_id"]]
            assert line["request"] == {
                "context": request.context(),
                "continuation": request.continuations[line["idx"]],
            }
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
    stripped = {
        "none": (" Which? ", " two "),
        "question": ("Which?", " two "),
        "all": ("Which?", "two"),
    }
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
    assert (
        render(protocol, ITEM, [replace(ITEM, question="null")])
        .shots[0]
        .startswith("nan\nA. one\nB. two\nC. nan\n")
    )


def test_pandas_na_changes_the_ten_prompts_of_mmlu_that_pandas_2_changes(mmlu: Dataset) -> None:
    plain = headline("mmlu/original")
    quirky = replace(plain, quirk="pandas-na")
    changed = {}
    for subject in (
        "electrical_engineering",
        "college_mathematics",
        "college_computer_science",
        "college_physics",
    ):
        pairs = zip(requests(plain, mmlu, subject), requests(quirky, mmlu, subject), strict=True)
        changed[subject] = sum(left != right for left, right in pairs)
    assert list(changed.values()) == [4, 3, 2, 1]


def test_templates_know_the_items_own_fields_and_never_read_them_again() -> None:
    protocol = mmlu_protocol(question="{passage} {{{subject}}}: {question}", header="{subject}\n")
    assert (
        render(protocol, ITEM, []).context()
        == "human anatomy\nOnce {upon}. {human anatomy}:  Which? "
    )
    with pytest.raises(DataError, match="no column passage"):
        render(protocol, TOY, [])
    with pytest.raises(ProtocolError, match=r"axis option .* hole \{passage\}"):
        render(mmlu_protocol(option="{passage}"), TOY, [])


@pytest.mark.parametrize(
    ("choices", "expected", "message"),
    [
        (
            3,
            4,
            "item s/0 of subject 'us_law' has 3 choices, ... 4; ",
        ),
        (
            5,
            4,
            "asks for 4; ... @choices=any,letters=ABCDE",
        ),
        (
            5,
            None,
            "4 letters; ... @letters=ABCDE",
        ),
    ],
)
def test_render_refuses_other_numbers_of_choices(
    choices: int, expected: int | None, message: str
) -> None:
    odd = replace(TOY, choices=tuple("abcdefg"[:choices]), gold=(0,))
    for item, shots in ((odd, []), (replace(TOY, id="t/0"), [odd])):
        with pytest.raises(DataError) as refused:
            render(mmlu_protocol(choices=expected), item, shots)
        assert str(refused.value) == Gist(message)


MANY = replace(TOY, choices=tuple(f"c{number}" for number in range(500)), gold=(499,))


@pytest.mark.parametrize("name", ["options/cloze:sum", "compat/lm-eval:acc", "options/yes-no"])
def test_choices_without_letters_are_as_many_as_there_are(name: str) -> None:
    protocol = headline(name)
    few, many = (
        render(protocol, item, [])
        for item in (replace(MANY, choices=MANY.choices[:5], gold=(0,)), MANY)
    )
    assert len(many.continuations) == len(many.options) == 500
    assert (many.continuations[:5], many.proposals[:5]) == (few.continuations, few.proposals)
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
def test_choices_beyond_the_letters_are_refused_where_a_letter_is_used(
    axes: dict[str, Any],
) -> None:
    plain = {"question": "{question}", "continuation": " {choice}", "choices": None, "shots": 0}
    protocol = mmlu_protocol(**plain | axes)
    with pytest.raises(DataError, match="has 500 choices, the protocol has 4 letters"):
        render(protocol, MANY, [])
    with pytest.raises(ProtocolError, match=r"axis answer .* hole \{letter\}"):
        render(
            mmlu_protocol(**plain), TOY, [MANY]
        )  # where shots come with a protocol that has none


def test_any_number_of_choices_shows_as_many_letters_and_shots_answer_with_the_first_right_one() -> (
    None
):
    request = render(mmlu_protocol(choices=None), replace(TOY, choices=("w", "x"), gold=(0,)), [])
    assert (request.query, request.continuations) == ("Q?\nA. w\nB. x\nAnswer:", (" A", " B"))
    assert render(mmlu_protocol(), TOY, [replace(SHOT, gold=(1, 3))]).shots[0].endswith("Answer: B")


@pytest.mark.costly("half a second where the first of its file pays for imports")
def test_every_entry_renders_all_of_a_subject(mmlu: Dataset) -> None:
    for known in entries_for_mmlu():
        rendered = list(requests(headline(known.name), mmlu, "anatomy"))
        assert len(rendered) == 135
        assert all(
            isinstance(request, Request) and len(request.continuations) == 4 for request in rendered
        )


PARTS = ("activity_label", "ctx_a", "ctx_b")
ROWS = GOLDENS / "harness" / "rows"


@given(
    st.text(),
    st.lists(st.text(), min_size=3, max_size=3),
    st.lists(st.text(), min_size=2, max_size=5),
)
def test_choices_keep_their_number_and_gold(
    question: str, parts: list[str], choices: list[str]
) -> None:
    fields = {**dict(zip(PARTS, parts, strict=True)), "asks_for": "cause", "support": parts[0]}
    fields |= {"article": parts[1], "problems": "[{}]"}
    item = Item("1", f"{question} _ ", tuple(choices), (1,), "", fields)
    for name, prepare in PREPARATIONS.items():
        try:
            prepared = prepare(item)
        except DataError:  # an item of another kind
            continue
        assert (len(prepared.choices), prepared.gold, prepared.id) == (len(choices), (1,), "1"), (
            name
        )


def test_a_preparation_shows_fields_that_no_template_names() -> None:
    assert set(SHOWS) <= set(PREPARATIONS)
    assert unused(one("copa/harness").protocol, ["asks_for", "note"]) == ("note",)


@pytest.mark.parametrize(
    ("name", "fields", "message"),
    [
        ("gap", {}, r"item 7 has no gap _ in its question"),
        ("copa", {}, r"item 7 .* cause or effect"),
        ("copa", {"asks_for": "reason"}, r"item 7 has 'reason'"),
        (
            "hellaswag",
            {"ctx_a": "A", "ctx_b": "b"},
            r"item 7 lacks activity_label of activity_label, ctx_a, ctx_b",
        ),
        (
            "race",
            {"article": "A"},
            r"item 7 has no field problems",
        ),
        (
            "race",
            {"article": "A", "problems": "open('x')"},
            r"item 7 has problems",
        ),
        (
            "race-v0",
            {"article": "A", "problems": "[{}, {}]"},
            r"item 7 has problems",
        ),
    ],
)
def test_an_item_that_lacks_what_is_needed_is_refused_by_name(
    name: str, fields: dict[str, str], message: str
) -> None:
    with pytest.raises(DataError, match=message):
        PREPARATIONS[name](Item("7", "Why?", ("x", "y"), (0,), "", fields))


def test_a_question_of_race_by_itself_is_refused(tmp_path: Path) -> None:
    row = {
        "example_id": "a",
        "article": "A tale.",
        "question": "Who?",
        "options": ["a", "b", "c", "d"],
        "answer": "A",
    }
    (tmp_path / "test.jsonl").write_text(json.dumps(row))
    columns = replace(benchmark("race").columns or pytest.fail("race has columns"), last_of=None)
    with pytest.raises(DataError, match="one row per question"):
        next(requests(one("race/harness").protocol, open_dataset(tmp_path, columns=columns), ""))


def test_a_list_of_problems_may_be_a_list(tmp_path: Path) -> None:
    """As a dataset that no script made would have it."""
    rows = [
        json.loads(line)
        for line in (ROWS / "race" / "test.jsonl").read_text(encoding="utf-8").splitlines()
    ]
    lists = [{**row, "problems": read_list(row["problems"], "problems")} for row in rows]
    (tmp_path / "test.jsonl").write_text("\n".join(map(json.dumps, lists)))
    protocol, columns = one("race/harness").protocol, benchmark("race").columns
    texts, nested = (
        [
            (each.context(), each.continuations)
            for each in requests(protocol, open_dataset(place, columns=columns), "")
        ]
        for place in (ROWS / "race", tmp_path)
    )
    assert texts == nested


@pytest.mark.parametrize(
    "text",
    [
        "",
        "1",
        "{}",
        "[" * 5000,
        "[1, __import__('os')]",
        "-" * 150_000 + "1",
        "[0" + ", 0" * LONGEST + "]",
    ],
)
def test_only_lists_of_bounded_size_are_read_from_texts(text: str) -> None:
    with pytest.raises(DataError, match=r"column problems .*(list|characters)"):
        read_list(text, "problems")


BONES = Item(
    "1", "Which bone is longest? ", ("femur", " ulna", "Rib", "femur"), (0,), "human_sexuality"
)
ASKED = Item("2", "Q2", ("1", "2", "3", "4"), (3,), "human_sexuality")
PROMPT = (
    "The following are multiple choice questions (with answers) about {}human sexuality.\n\n"
    "Which bone is longest? \nA. femur\nB.  ulna\nC. Rib\nD. femur\nAnswer: A\n\n"
    "Q2\nA. 1\nB. 2\nC. 3\nD. 4\nAnswer:"
)


@pytest.mark.parametrize(
    ("name", "space", "letters"),
    [
        ("mmlu/lighteval", "", (" A", " B", " C", " D")),
        ("mmlu/lighteval-original", " ", ("A", "B", "C", "D")),
    ],
)
def test_lighteval_asks_mmlu_like_this(name: str, space: str, letters: tuple[str, ...]) -> None:
    recipe = replace(one(name).protocol, shots=1)
    (request,) = requests(
        recipe, Dataset("mmlu", {"dev": [BONES], "test": [ASKED]}), "human_sexuality"
    )
    assert (request.context(), tuple(request.continuations)) == (PROMPT.format(space), letters)


def test_lighteval_asks_truthfulqa_as_on_the_leaderboard_but_with_a_bos() -> None:
    item = Item("1", "Is it? ", ("Yes.", " Maybe", "No."), (0, 1))
    recipe = one("truthfulqa/lighteval").protocol
    (request,) = requests(recipe, Dataset("truthfulqa", {"validation": [item]}), "")
    assert request.context().startswith(
        "Q: What is human life expectancy in the United States?\nA: Human life "
    )
    assert request.context().endswith("Spain.\n\nQ: Is it? \nA:")
    assert tuple(request.continuations) == (" Yes.", "  Maybe", " No.")
    old = resolve("truthfulqa/harness-v1:mc2")["truthfulqa/harness-v1:mc2"]
    assert replace(recipe, bos="none") == old


HARNESS = mmlu_protocol(sampler="harness-v0", seed=42, shot_split="validation", shots=2)


def item(number: int, right: str = "") -> Item:
    return Item(
        f"s/{number}", f"question {number}?", (right or f"right {number}", "x", "y", "z"), (0,), "s"
    )


def dataset(**sizes: int) -> Dataset:
    starts = {"test": 0, "dev": 100, "validation": 200}
    rows = {
        split: tuple(map(item, range(starts[split], starts[split] + size)))
        for split, size in sizes.items()
    }
    return Dataset("made up", rows)


def test_sample_first_takes_the_first_rows_for_every_item_and_needs_no_pool_without_shots() -> None:
    data = dataset(test=3, dev=4)
    assert sample(mmlu_protocol(shots=2), data, "s") == [tuple(data.rows("dev", "s")[:2])] * 3
    assert sample(mmlu_protocol(shots=0), dataset(test=2), "s") == [(), ()]


def helm(pool: list[Item], count: int, seed: int) -> list[Item]:
    return list(Items.of(pool).take(draw_helm(Items.of(pool).right_texts(), count, seed)))


def published_helm(pool: list[Item], count: int, seed: int) -> list[Item]:
    """HELM's own way, with all rows at hand."""
    random = Random(seed)
    groups: dict[str, list[Item]] = {}
    for row in pool:
        groups.setdefault(row.choices[row.gold[0]], []).append(row)
    order: list[str] = []
    for size in sorted({len(group) for group in groups.values()}, reverse=True):
        tied = sorted(answer for answer, group in groups.items() if len(group) == size)
        random.shuffle(tied)
        order += tied
    chosen: list[Item] = []
    for answer in cycle(order):
        if len(chosen) == min(count, len(pool)):
            break
        if group := groups[answer]:
            chosen.append(group.pop(random.randrange(len(group))))
    return chosen


@given(
    st.lists(st.text(max_size=2) | st.sampled_from("abcd"), min_size=1, max_size=9),
    st.integers(1, 9),
    st.integers(0, 99),
)
def test_helm_draws_what_helm_itself_draws(rights: list[str], count: int, seed: int) -> None:
    pool = [item(number, right) for number, right in enumerate(rights)]
    shots = helm(pool, count, seed)
    assert len({shot.id for shot in shots}) == len(shots) == min(count, len(pool))
    assert helm(pool, count, seed) == shots == published_helm(pool, count, seed)
    # random.Random(0).shuffle of five labels in alphabetical order, as measured on HELM itself.
    five = helm([item(number, right) for number, right in enumerate("abcde")], 5, 0)
    assert [shot.choices[0] for shot in five] == ["c", "b", "a", "e", "d"]


def harness_v0(
    items: list[Item], pool: list[Item], count: int, seed: int
) -> list[tuple[Item, ...]]:
    """The early harness's own way, with all rows at hand."""
    random = Random(seed)
    order = list(range(len(items)))
    random.shuffle(order)
    drawn = {index: random.sample(pool, count + 1) for index in order}
    return [
        tuple(row for row in drawn[index] if row != asked)[:count]
        for index, asked in enumerate(items)
    ]


@given(st.integers(1, 12), st.integers(1, 4), st.integers(0, 99))
def test_harness_v0_draws_distinct_shots_that_are_never_the_item(
    size: int, count: int, seed: int
) -> None:
    items = [item(number) for number in range(size)]
    pool = items + [item(number) for number in range(100, 105)]
    data = Dataset("made up", {"test": items, "train": pool})
    protocol = mmlu_protocol(sampler="harness-v0", seed=seed, shot_split="train", shots=count)
    shots = sample(protocol, data, "s")
    assert shots == harness_v0(items, pool, count, seed)
    assert sample(protocol, data, "s", range(size // 2, size)) == shots[size // 2 :]
    for asked, examples in zip(items, shots, strict=True):
        assert len({shot.id for shot in examples}) == count
        assert asked not in examples
    assert len(set(sample(HARNESS, dataset(test=20, validation=9), "s"))) > 10, (
        "each item has its own"
    )


@pytest.mark.parametrize(
    "protocol", [HARNESS, mmlu_protocol(sampler="helm", seed=0, shots=2), mmlu_protocol(shots=2)]
)
def test_asking_fewer_items_leaves_their_shots_as_they_are(protocol: Protocol) -> None:
    data = dataset(test=9, dev=5, validation=7)
    every = list(requests(protocol, data, "s"))
    assert list(islice(requests(protocol, data, "s"), 4)) == every[:4]
    assert [request.item for request in every] == list(data.rows("test", "s"))


@pytest.mark.parametrize(
    ("protocol", "sizes", "message"),
    [
        (
            mmlu_protocol(),
            {"test": 2, "dev": 4},
            "4 rows in split 'dev'; ",
        ),
        (mmlu_protocol(), {"test": 2}, "subject 's' has 0 rows in split 'dev'"),
        (HARNESS, {"test": 2, "validation": 2}, "sampler harness-v0 need 3"),
        (
            mmlu_protocol(),
            {"dev": 5},
            "no rows in split 'test'; ",
        ),
        (
            mmlu_protocol(shot_split="test"),
            {"test": 9},
            "shots from split 'test'",
        ),
    ],
)
def test_sample_says_what_is_missing(
    protocol: Protocol, sizes: dict[str, int], message: str
) -> None:
    with pytest.raises(DataError) as caught:
        sample(protocol, dataset(**sizes), "s")
    assert [word for word in (message, "protocol file") if word not in str(caught.value)] == []


def train_item(number: int, **fields: str) -> Item:
    return Item(f"{number}", f"question {number}?", ("yes", "no"), (0,), "", fields)


def recipe(sampler: str, shots: int, shot_split: str = "train") -> Protocol:
    return mmlu_protocol(sampler=sampler, seed=7, shots=shots, shot_split=shot_split, choices=None)


def plain(sampler: str, items: int, pool: int, count: int, seed: int) -> list[list[int]]:
    """As lm_eval does it: today train_item by train_item, in 2023 in the order of the shuffled items."""
    random, order, drawn = Random(seed), list(range(items)), {}
    if sampler.startswith("harness-v0"):
        random.shuffle(order)
    for index in order:
        drawn[index] = random.sample(
            range(pool), count + (sampler in ("harness-v0", "harness-spare"))
        )
    return [drawn[index] for index in range(items)]


@given(
    st.sampled_from(sorted(STREAMS)),
    st.integers(1, 8),
    st.integers(5, 40),
    st.integers(1, 4),
    st.integers(0, 99),
)
def test_every_stream_draws_what_the_harness_draws(
    name: str, items: int, pool: int, count: int, seed: int
) -> None:
    assert draw(STREAMS[name], items, pool, count, seed).tolist() == plain(
        name, items, pool, count, seed
    )
    assert set(STREAMS) == set(FRESH) < set(SAMPLERS)
    assert set(STREAMS) < set(SEEDED)


@pytest.mark.parametrize("name", ["harness", "harness-spare"])
@given(st.integers(1, 6), st.integers(0, 6), st.integers(0, 99))
def test_early_items_have_the_same_shots_however_many_follow(
    name: str, items: int, more: int, seed: int
) -> None:
    whole = draw(STREAMS[name], items + more, 9, 3, seed)
    assert draw(STREAMS[name], items, 9, 3, seed).tolist() == whole[:items].tolist()


@pytest.mark.parametrize(
    ("sampler", "needed"), [("harness", 4), ("harness-v0-train", 4), ("harness-spare", 5)]
)
def test_a_pool_that_is_too_small_is_refused(sampler: str, needed: int) -> None:
    data = Dataset(
        "made up",
        {"test": [train_item(0)], "train": [train_item(each) for each in range(1, needed)]},
    )
    with pytest.raises(
        DataError,
        match=f"has {needed - 1} rows in split 'train'; 4 shots .* {sampler} need {needed}",
    ):
        sample(recipe(sampler, 4), data, "")
    enough = Dataset(
        "made up",
        {"test": [train_item(0)], "train": [train_item(each) for each in range(1, needed + 1)]},
    )
    assert len(sample(recipe(sampler, 4), enough, "")[0]) == 4
    if sampler != "harness-spare":
        with pytest.raises(DataError, match="shots from split 'test'"):
            sample(
                recipe(sampler, 2, "test"),
                Dataset("made up", {"test": [*map(train_item, range(9))]}),
                "",
            )


def test_a_spare_row_takes_the_place_of_the_item_itself() -> None:
    items = [train_item(each) for each in range(5)]
    shots = sample(recipe("harness-spare", 4, "test"), Dataset("made up", {"test": items}), "")
    assert all(
        asked not in examples and len(examples) == 4
        for asked, examples in zip(items, shots, strict=True)
    )


@pytest.mark.parametrize("sampler", ["harness", "harness-v0-train", "first"])
def test_an_item_among_its_own_shots_is_refused(sampler: str) -> None:
    data = Dataset(
        "made up",
        {"test": [train_item(3), train_item(9)], "train": [*map(train_item, range(1, 4))]},
    )
    source = TemplateSource(recipe(sampler, 3), data)
    refused, asked = source.requests("", data.rows("test", ""))
    assert isinstance(refused, Refusal)
    assert str(refused.reason) == Gist("item 3 ... shots")
    assert isinstance(asked, Request)
    assert len(asked.shots) == 3
    told = [(name, str(reason)) for name, reason in source.problems("", data.rows("test", ""))]
    assert told == [("3", str(refused.reason))]
    later = data.rows("test", "")[1:]
    assert not list(source.problems("", later, range(1, 1 + len(later))))


def test_problems_before_a_run_are_those_of_the_run() -> None:
    """Some of the items that stand in train are drawn for themselves, others are not."""
    pool = [train_item(each) for each in range(40)]
    data = Dataset("made up", {"test": [train_item(each) for each in range(60)], "train": pool})
    source = TemplateSource(recipe("harness", 9), data)
    refused = [
        each.item.id
        for each in source.requests("", data.rows("test", ""))
        if isinstance(each, Refusal)
    ]
    assert 0 < len(refused) < 40
    assert [name for name, _ in source.problems("", data.rows("test", ""))] == refused
    later = data.rows("test", "")[10:]
    assert [name for name, _ in source.problems("", later, range(10, 60))] == [
        id for id in refused if int(id) >= 10
    ]


def test_items_with_another_passage_are_others() -> None:
    first = train_item(1, passage="The mill stands.", idx="1")
    assert is_same(first, train_item(1, passage="The mill stands.", idx="2"))
    assert not is_same(first, train_item(1, passage="The mill turns.", idx="1"))


@pytest.mark.parametrize(("name", "shots"), [("arc-challenge", 25), ("winogrande", 5)])
def test_the_leaderboard_says_when_train_is_too_small(name: str, shots: int) -> None:
    protocol = one(f"{name}/harness-v1").protocol
    pool = [train_item(each) for each in range(1, shots)]
    data = Dataset(name, {protocol.split or "": [train_item(0)], "train": pool})
    needed = f"{shots - 1} rows in split 'train'; {shots} shots .* harness-v0-train need {shots}"
    with pytest.raises(DataError, match=needed):
        sample(protocol, data, "")


def test_the_streams_of_tasks_without_a_test_split_differ() -> None:
    """None is None: where a task names neither test nor shots, one row more is drawn."""
    golden = json.loads((GOLDENS / "harness" / "today.json").read_text(encoding="utf-8"))
    spare = {
        name
        for name in golden["benchmarks"]
        if one(f"{name}/harness").protocol.sampler == "harness-spare"
    }
    assert spare == {"boolq", "commonsenseqa", "copa", "hellaswag", "piqa", "siqa", "winogrande"}


ROOT = Path(str(files("choicewise.protocols"))) / "curated"
SETS = sorted(str(file.relative_to(ROOT)).removesuffix(".jsonl") for file in ROOT.rglob("*.jsonl"))
QUIZ = Dataset(
    "quiz", {"test": (Item("1", "Where do birds live?", ("in a tree", "in the sea"), (0,)),)}
)


def test_the_texts_of_every_set_are_fixed(snapshot: SnapshotAssertion) -> None:
    """A name is part of protocols: rename a set that changes."""
    assert {
        name: hashlib.sha256((ROOT / f"{name}.jsonl").read_bytes()).hexdigest()[:40]
        for name in SETS
    } == snapshot


def test_the_catalogue_uses_every_set_and_no_other() -> None:
    protocols = [protocol for known in entries() for protocol in known.protocols.values()]
    used = {protocol.shot_split for protocol in protocols if protocol.sampler == "curated"}
    assert {
        name if name in used else f"{name.partition('/')[0]}/{{subject}}" for name in SETS
    } == used


def test_a_set_has_examples_with_an_answer() -> None:
    for name in SETS:
        examples = curated(name)
        assert (
            len(examples)
            == len({each.id for each in examples})
            == (5 if name.startswith("olmes/") else 3)
        )
        assert all(0 <= each.gold[0] < len(each.choices) and each.question for each in examples)


OLMES = one("arc-easy/olmes-mcf").protocol


def test_the_sampler_shows_the_first_examples_to_every_item() -> None:
    for shots in (5, 2, 0):
        assert sample(replace(OLMES, shots=shots), QUIZ, "") == [curated("olmes/arc-easy")[:shots]]
    assert OLMES.shots == 5


def test_another_samplers_split_is_no_set_so_that_ways_between_protocols_pass_it_by() -> None:
    assert has_shots(QUIZ, None, OLMES)
    assert not has_shots(QUIZ, None, replace(OLMES, shot_split="train"))
    assert not has_shots(QUIZ, None, replace(OLMES, sampler="first"))


def test_too_many_shots_and_unknown_sets_are_refused() -> None:
    with pytest.raises(DataError, match="olmes/arc-easy has 5 examples, .* 6 shots"):
        sample(replace(OLMES, shots=6), QUIZ, "")
    with pytest.raises(DataError, match="'olmes/arc'; did you mean olmes/arc-"):
        sample(replace(OLMES, shot_split="olmes/arc"), QUIZ, "")
    with pytest.raises(DataError, match="no curated examples"):
        curated("../olmes/arc-easy")
