"""Decisions of a bundled model with a chat template, against transformers' released module and the model's logits."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("transformers.decision", reason="transformers decides since 5.22")
from transformers.decision.configuration_utils import DecisionConfig
from transformers.decision.template_utils import DECISION_PROMPT, Question
from transformers.utils.chat_template_utils import _compile_jinja_template

from choicewise import Run, evaluate
from choicewise.data.dataset import Dataset
from choicewise.data.decisions import decision_drafts
from choicewise.data.items import Item
from choicewise.errors import ModelError, UsageError
from choicewise.models.load import load_model
from choicewise.protocols.catalogue import one, resolve
from choicewise.requests.render import render
from choicewise.results.ladder import both_ways
from choicewise.tokens.chat_template import MessageAlone
from tests.helpers.deciding_models import save_deciding, winds
from tests.paths import GOLDENS, ROOT

MODEL = ROOT / "src" / "choicewise" / "bundled" / "models" / "merrow-bpe-512"
CHATML = json.loads((GOLDENS / "chat" / "chatml.json").read_text(encoding="utf-8"))["template"]

TEXT = st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=6).filter(
    lambda text: text.strip()
)
VALUE = st.recursive(
    TEXT | st.integers() | st.none() | st.booleans(),
    lambda each: st.lists(each, max_size=2),
    max_leaves=3,
)
STATE = TEXT | st.dictionaries(TEXT, VALUE, max_size=2) | st.lists(VALUE, max_size=2)
DESCRIBED = st.none() | TEXT | st.dictionaries(TEXT, VALUE, min_size=1, max_size=2)
CRITERIA = {
    "choice": st.dictionaries(TEXT, DESCRIBED, min_size=2, max_size=4),
    "noul": st.none() | st.fixed_dictionaries({}, optional={"true": DESCRIBED, "false": DESCRIBED}),
    "score": st.lists(TEXT, min_size=2, max_size=4),
}


@pytest.mark.costly("the released module is imported")
@pytest.mark.parametrize("kind", CRITERIA)
@settings(max_examples=30, deadline=None)
@given(data=st.data())
def test_messages_are_those_of_transformers_for_any_state_and_question(
    kind: str, data: st.DataObject
) -> None:
    state, criteria, asked = data.draw(STATE), data.draw(CRITERIA[kind]), data.draw(TEXT)
    question = {"type": kind, "instructions": asked, "criteria": criteria}
    answer = {"choice": lambda: next(iter(criteria)), "noul": lambda: True, "score": lambda: 0}[
        kind
    ]()
    (make,) = decision_drafts({"state": state, "question": question, "expected": answer}, "0")
    ours = render(
        one(f"decision/transformers-5.23:{kind}").protocol, make(), (), template=MessageAlone()
    ).context()
    parsed = Question.from_request("q", question, DecisionConfig())
    assert ours == _compile_jinja_template(DECISION_PROMPT).render(state=state, question=parsed)


def typed(id: str, kind: str, criteria: object, answer: object) -> Item:
    question = {"type": kind, "criteria": criteria, "instructions": "Which one is right?"}
    (make,) = decision_drafts(
        {"id": id, "state": {"isle": id}, "question": question, "expected": answer}, id
    )
    return make()


CHOICES = [
    typed(str(number), "choice", {"north": None, "south": "of the sea", "east": ""}, "south")
    for number in range(3)
]
SCORES = [typed(f"s{number}", "score", ["bad", "fair", "good"], number) for number in range(3)]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp("decisions")
    shutil.copytree(MODEL, folder / "chatty")
    (folder / "chatty" / "chat_template.jinja").write_text(CHATML)
    recipes = {
        name: protocol
        for name, protocol in resolve("decision").items()
        if protocol.kind != "noul"
        and protocol.chat == "message"
        and not protocol.proposal
        and protocol.views == "given"
    }
    data = Dataset("isles", {"test": (*CHOICES, *SCORES)})
    return evaluate(model=folder / "chatty", data=data, protocols=recipes, out=folder / "run")


@pytest.mark.costly("a model runs")
def test_labels_have_the_models_own_probabilities_after_the_whole_vocabulary(run: Run) -> None:
    """So that every normalisation, label mass and whether the likeliest token is a label follow from what is kept."""
    model = transformers.AutoModelForCausalLM.from_pretrained(MODEL)
    tokenizer = transformers.AutoTokenizer.from_pretrained(MODEL)
    tables = run.tables
    logprobs = {row["key"]: row for row in tables.observations.to_pylist()}
    contexts = {(row["prompt"], row["item"]): row["context"] for row in tables.requests.to_pylist()}
    by_context: dict[str, dict[str, dict]] = {}
    for span in tables.spans.to_pylist():
        context = contexts[span["prompt"], span["item"]]
        by_context.setdefault(context, {})[span["continuation"]] = logprobs[span["key"]]
    assert len(by_context) >= 18
    for context, labels in by_context.items():
        with torch.no_grad():
            logits = (
                model(**tokenizer(context, return_tensors="pt", add_special_tokens=False))
                .logits[0, -1]
                .double()
            )
        whole = torch.log_softmax(logits, 0).numpy()
        ids = {label: tokenizer(label, add_special_tokens=False)["input_ids"] for label in labels}
        for label, row in labels.items():
            assert row["tokens"] == ids[label]
            np.testing.assert_allclose(row["logprobs"][0], whole[ids[label][0]], atol=1e-4)
        own = np.array([row["logprobs"][0] for row in labels.values()])
        mass, shares = np.exp(own).sum(), np.exp(own) / np.exp(own).sum()
        np.testing.assert_allclose(
            shares, torch.softmax(logits[[each[0] for each in ids.values()]], 0), atol=1e-4
        )
        assert mass <= 1
        np.testing.assert_allclose(shares.max() * mass, np.exp(own.max()))  # vLLM's confidence
        assert any(row["ranks"] == [0] for row in labels.values()) == (
            int(whole.argmax()) in {each[0] for each in ids.values()}
        )


@pytest.mark.costly("a model runs")
def test_a_temperature_and_metrics_of_a_run_ask_nothing_again(run: Run) -> None:
    (row,) = (
        run.under(resolve("decision/vllm-0.32:choice@metric=norm-prob,temperature=2"))
        .report()
        .to_pylist()
    )
    scores = [
        each for each in run.scores().to_pylist() if each["protocol"] == "decision/vllm-0.32:choice"
    ]
    shares = []
    for item in CHOICES:
        own = np.array([each["score"] for each in scores if each["item"] == item.id]) / 2
        shares.append(np.exp(own[1]) / np.exp(own).sum())
    assert row["value"] == pytest.approx(np.mean(shares), abs=1e-5)


def test_no_ladder_goes_from_one_kind_to_another(run: Run) -> None:
    start, end = one("decision/vllm-0.32:choice"), one("decision/vllm-0.32:score")
    with pytest.raises(
        UsageError,
        match="choice questions, decision/vllm-0.32:score for score questions",
    ):
        both_ways(run, start, end, {})


@pytest.mark.costly("a model is loaded")
def test_a_base_model_has_no_such_layout_and_is_refused_by_name(tmp_path: Path) -> None:
    recipes = resolve("decision/vllm-0.32:choice")
    with pytest.raises(
        ModelError,
        match=r"can't run decision/vllm-0.32:choice: .* no chat template .*vllm-0.32-no-chat",
    ):
        evaluate(
            model=MODEL,
            data=Dataset("isles", {"test": tuple(CHOICES)}),
            protocols=recipes,
            out=tmp_path / "run",
        )


SEVEN = (
    *("vllm-0.32", "vllm-02cc9cd5", "vllm-pr", "liquid-d1", "transformers-5.23", "sglang-1"),
    "evalscope-mcq+vllm-0.32",
)


@pytest.mark.costly("a model runs")
def test_numbers_of_seven_layouts_come_from_one_pass_over_the_unique_tokens(tmp_path: Path) -> None:
    """The unique tokens are counted plainly: a token for every different beginning of what is asked."""
    chatty = load_model(save_deciding(tmp_path / "tiny"), device="cpu")
    data = Dataset("winds", {"test": tuple(winds(3))})
    run = evaluate(
        model=chatty,
        data=data,
        protocols=[f"decision/{name}" for name in SEVEN],
        out=tmp_path / "run",
    )
    rows = run.report().to_pylist()
    assert len({row["protocol"].partition(":")[0] for row in rows}) == 7
    assert {(row["n"], row["missing"]) for row in rows} == {(3, 0)}
    tables = run.tables
    contexts = {(row["prompt"], row["item"]): row["context"] for row in tables.requests.to_pylist()}
    beginnings = set()
    for span in tables.spans.to_pylist():
        context = (
            contexts[span["prompt"], span["item"]] if span["context"] is None else span["context"]
        )
        ids = chatty.tokenizer.encode([context], special=False)[0].tolist()
        beginnings |= {tuple(ids[:end]) for end in range(1, len(ids) + 1)}
    spent = run.manifest.engine.spent
    assert spent is not None
    assert spent.tokens_computed == len(beginnings) < spent.tokens_asked / 4


@pytest.mark.costly("a model runs")
def test_a_base_model_is_asked_without_a_chat_under_a_layout_of_that_name(tmp_path: Path) -> None:
    (save_deciding(tmp_path / "base") / "chat_template.jinja").unlink()
    recipes = [
        f"decision/{name}-no-chat:choice" for name in ("vllm-0.32", "sglang-1", "transformers-5.23")
    ]
    data = Dataset("winds", {"test": tuple(winds(3))})
    run = evaluate(model=tmp_path / "base", data=data, protocols=recipes, out=tmp_path / "run")
    assert {(row["n"], row["missing"]) for row in run.report().to_pylist()} == {(3, 0)}
    assert {row["continuation"] for row in run.tables.spans.to_pylist()} == {" A", " B", " C"}
    assert all(row["context"].endswith("\nAnswer:") for row in run.tables.requests.to_pylist())
