"""Questions for a decision endpoint: what is sent of each item, who can be asked, and probabilities of 0."""

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from choicewise import evaluate
from choicewise.data.dataset import Dataset
from choicewise.data.decisions import KINDS, decision_drafts, read_typed, typed_text
from choicewise.data.items import PEOPLE, Item
from choicewise.errors import DataError, ModelError
from choicewise.extensions.endpoints.decisions.summary import endpoint_summary
from choicewise.models.fake import HashModel
from choicewise.models.load import load_model
from choicewise.protocols.between import change_axes
from choicewise.protocols.catalogue import one, resolve
from choicewise.protocols.protocol import Protocol
from choicewise.questions import Answers, Prompt, TokenScores, TypedQuestion
from choicewise.requests.blocks import Block, list_request_specs, prepare_block
from choicewise.requests.render import render, rendered_line

NAMED, LETTERED = "decision/endpoint:choice", "decision/endpoint-letter"


def sent(protocol: str, item: Item) -> Any:
    """The question as JSON."""
    return json.loads(
        rendered_line(render(one(protocol).protocol, item, ()), "decision")["context"]
    )


def typed(kind: str, criteria: Any, answer: Any, state: Any) -> Item:
    question = {"type": kind, "criteria": criteria, "instructions": "Which one is right?"}
    (make,) = decision_drafts(
        {"id": "1", "state": state, "question": question, "expected": answer}, "test/0"
    )
    return make()


@pytest.mark.parametrize(
    ("kind", "criteria", "answer", "state"),
    [
        (
            "choice",
            {"b": "O2", "a": None, "c": {"x": [1, "é"]}, "d": ""},
            "a",
            {"z": 1.5, "a": None},
        ),
        ("noul", None, True, '{"looks": "like JSON"}'),
        ("noul", {"false": "it is not"}, "no", ["a", 1]),
        ("score", ["bad", "fair", "good"], 2, "text"),
    ],
)
def test_a_typed_question_is_sent_as_the_data_has_it(
    kind: str, criteria: Any, answer: Any, state: Any
) -> None:
    """Order of the options, descriptions that are no texts, and a string apart from an object."""
    body = sent(f"decision/endpoint:{kind}", typed(kind, criteria, answer, state))
    question = {"type": kind, "instructions": "Which one is right?", "criteria": criteria}
    assert body == {
        "state": state,
        "questions": {"q": {key: each for key, each in question.items() if each is not None}},
    }
    told = body["questions"]["q"].get("criteria")
    assert not isinstance(criteria, dict) or [*told] == [*criteria]


def test_a_multiple_choice_question_is_sent_by_names_or_by_letters() -> None:
    plain = Item("1", "Which is blue?", ("sky", "grass"), (0,))
    head = {"type": "choice", "instructions": "Which option correctly answers `question`?"}
    for protocol, criteria in (
        (NAMED, {"sky": None, "grass": None}),
        (LETTERED, {"A": "sky", "B": "grass"}),
    ):
        question = {"q": {**head, "criteria": criteria}}
        assert sent(protocol, plain) == {
            "state": {"question": "Which is blue?"},
            "questions": question,
        }


@pytest.mark.parametrize(
    ("protocol", "item", "words"),
    [
        (
            NAMED,
            Item("7", "Which?", ("sky", "grass", "sky"), (0,)),
            "item 7 .* 'sky' twice.*endpoint-letter",
        ),
        (
            LETTERED,
            typed("choice", {"a": "x", "b": None}, "a", "text"),
            "item 1 describes its options.*decision/endpoint$",
        ),
    ],
)
def test_what_can_not_be_sent_is_missing_by_name_and_not_sent_otherwise(
    protocol: str, item: Item, words: str
) -> None:
    with pytest.raises(DataError, match=words) as refused:
        sent(protocol, item)
    data, model = Dataset("d", {"test": (item,)}), load_model("fake:hash")
    block = Block(
        split="test",
        subject=item.subject,
        start=0,
        items=(item,),
        positions=(0,),
        specs=list_request_specs(resolve(f"{protocol}@split=test")),
        work=0,
    )
    prepared = prepare_block(data, block, model, skip_bad_items=False)
    assert [row.missing for row in prepared.requests] == [str(refused.value)]
    assert not prepared.wanted


JSONS = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)
STATES = (st.text() | st.dictionaries(st.text(), JSONS) | st.lists(JSONS)).map(json.dumps)


@pytest.mark.costly("texts of every form")
@given(
    kind=st.sampled_from(KINDS),
    state=STATES,
    instructions=st.text(),
    options=st.dictionaries(st.text(), st.none() | JSONS, min_size=2, max_size=5),
)
def test_a_question_is_read_back_from_its_text(
    kind: str, state: str, instructions: str, options: Mapping[str, Any]
) -> None:
    names = ("yes", "no") if kind == "noul" else tuple(options)
    own = [
        None if kind == "score" or text is None else json.dumps(text, ensure_ascii=False)
        for text in options.values()
    ]
    state = json.dumps(json.loads(state), ensure_ascii=False)
    asked = TypedQuestion(kind, state, instructions, names, tuple(own[: len(names)]))
    assert read_typed(typed_text(asked)) == asked


def test_options_of_a_question_share_a_request_and_other_questions_have_other_keys() -> None:
    """A description, the order of options and the text of a state are parts of the question."""
    base = typed("choice", {"a": None, "b": "x"}, "a", {"n": 1})
    others = [
        typed("choice", {"b": "x", "a": None}, "a", {"n": 1}),
        typed("choice", {"a": None, "b": None}, "a", {"n": 1}),
        typed("choice", {"a": None, "b": "x"}, "a", '{"n": 1}'),
    ]
    items = (base, *others)
    model, asks = load_model("fake:hash"), list_request_specs(resolve(f"{NAMED}@split=test"))
    prepared = prepare_block(
        Dataset("d", {"test": items}),
        Block(
            split="test",
            subject="1",
            start=0,
            items=items,
            positions=range(len(items)),
            specs=asks,
            work=0,
        ),
        model,
        False,
    )
    assert len(prepared.wanted) == 2 * len(items)
    assert len({question.question for question in prepared.wanted.values()}) == len(items)  # type: ignore[union-attr]


def test_a_model_that_is_no_endpoint_is_refused_with_the_layouts_that_it_has(
    tmp_path: Path,
) -> None:
    words = "merrow-bpe-2048 is no decision endpoint.*decision/sglang-1.*decision/vllm-0.32"
    with pytest.raises(ModelError, match=words):
        evaluate(
            model="bundled:merrow-bpe-2048",
            data="bundled:merrowick",
            protocols=[LETTERED],
            out=tmp_path / "run",
        )


class _Told(HashModel):
    """Gives the option that is named the whole probability, and the others none."""

    def answer(self, questions: Any) -> Answers:
        for index, question in enumerate(questions):
            sure = question.question.names[question.option] == "sure"
            yield (
                index,
                TokenScores.of([question.option], [0.0 if sure else -math.inf], [int(not sure)]),
            )

    def objection(self, question: Prompt) -> str | None:
        return None


def test_a_probability_of_0_is_stored_and_counts_as_the_floor(tmp_path: Path) -> None:
    """-log 1e-12 where the right option has none; a distribution for every other metric."""
    counts = {PEOPLE: "[1, 1, 0]"}
    items = tuple(
        Item(name, "Which?", ("sure", "b", "c"), (gold,), fields=counts)
        for gold, name in enumerate("pqr")
    )
    metrics = ("log-score", "prob", "norm-prob", "brier", "rps", "kl", "tv", "ece", "mae", "margin")
    protocols: dict[str, Protocol] = resolve(f"{NAMED}@split=test")
    for metric in metrics:
        protocols |= change_axes(resolve(f"{NAMED}@split=test"), f"metric={metric}")
    run = evaluate(
        model=_Told(), data=Dataset("d", {"test": items}), protocols=protocols, out=tmp_path / "run"
    )
    assert sum(row == [-math.inf] for row in run.observations()["logprobs"].to_pylist()) == 6
    floor = -math.log(1e-12)
    values = {row.identity.metric: row.value for row in run.rows()}
    third, kl = 1 / 3, math.log(0.5) + 0.5 * floor
    wanted = {
        "acc": third,
        "log-score": 2 * floor / 3,
        "prob": third,
        "norm-prob": third,
        "brier": 4 / 3,
        "rps": 0.5,
    }
    wanted |= {"kl": kl, "tv": 0.5, "ece": 2 / 3, "mae": 1.0, "margin": (1 - 2) / 3}
    assert values == pytest.approx(wanted, abs=1e-9)
    assert endpoint_summary(run) is None  # no server said anything
    assert np.isfinite([row.value for row in run.rows()]).all()
