"""What a run will cost is what it then costs."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from choicewise import evaluate, load_model, open_dataset
from choicewise.bundled import MODELS
from choicewise.cli.run import token_savings
from choicewise.models.fake import HashModel
from choicewise.protocols.catalogue import resolve
from choicewise.questions import Generation, Span
from choicewise.records import Spent
from choicewise.running.plan import Plan, measure_speed, plan, unique_tokens
from choicewise.tokens.tokenizer import ByteTokenizer
from tests.helpers.commands import CommandResult, choicewise
from tests.helpers.mmlu_data import write_mmlu

PROTOCOLS = ["mmlu/original", "mmlu/cloze", "mmlu/helm"]
MODEL = next(folder for folder in MODELS if folder.name == "merrow-bpe-512")

ids = st.lists(st.integers(0, 2), min_size=1, max_size=5).map(lambda found: np.asarray(found, dtype=np.int32))


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return write_mmlu(tmp_path / "data", questions=3)


@given(st.lists(st.tuples(ids, ids), max_size=8))
def test_unique_tokens_are_the_distinct_beginnings(pairs: list[tuple[np.ndarray, np.ndarray]]) -> None:
    sequences = [[*context, *continuation][:-1] for context, continuation in pairs]
    beginnings = {tuple(sequence[:end]) for sequence in sequences for end in range(1, len(sequence) + 1)}
    assert unique_tokens([Span(*pair) for pair in pairs], ByteTokenizer()) == len(beginnings)


def test_a_generation_counts_to_its_full_length() -> None:
    context = np.arange(4, dtype=np.int32)
    assert unique_tokens([Generation(context, 3), Generation(context[:2], 2)], ByteTokenizer()) == 4 + 2 + 1
    assert Generation(context, 3).inputs == 6
    assert Span(context, context[:2]).inputs == 5


def test_a_generation_of_one_token_shares_its_beginning_with_spans() -> None:
    context = np.arange(4, dtype=np.int32)
    span = Span(context[:3], np.asarray([5], dtype=np.int32))
    assert unique_tokens([span, Generation(context, 1)], ByteTokenizer()) == 4
    assert unique_tokens([span, Generation(context, 2)], ByteTokenizer()) == 3 + 4 + 1


@pytest.mark.costly("whole commands")
def test_a_plan_counts_what_the_run_then_computes(data: Path, tmp_path: Path) -> None:
    model, recipes = load_model(MODEL), resolve(*PROTOCOLS)
    planned = plan(model, open_dataset(data), recipes, probe=False)
    assert planned.speed is None
    assert planned.seconds is None
    run = evaluate(model=model, data=data, protocols=recipes, out=tmp_path / "run")
    spent = run.manifest.engine.spent
    assert (spent.tokens_asked, spent.tokens_computed) == (planned.tokens_asked, planned.tokens_unique)
    assert spent.seconds > 0
    assert planned.ratio == planned.tokens_asked / planned.tokens_unique > 5
    again = evaluate(model=model, data=data, protocols=recipes, out=tmp_path / "run")
    assert again.manifest.engine.spent == spent


def test_a_protocol_without_a_split_is_planned_on_the_one_it_would_run_on(data: Path, tmp_path: Path) -> None:
    model, recipes = load_model(MODEL), resolve("options/cloze:sum")
    assert next(iter(recipes.values())).split is None
    planned = plan(model, open_dataset(data), recipes, probe=False)
    spent = evaluate(model=model, data=data, protocols=recipes, out=tmp_path / "run").manifest.engine.spent
    assert (spent.tokens_asked, spent.tokens_computed) == (planned.tokens_asked, planned.tokens_unique)
    assert planned.requests > 0


def test_losses_and_cosines_are_planned_as_they_are_computed(data: Path, tmp_path: Path) -> None:
    """They come from one tree of hidden states."""
    model, recipes = load_model(MODEL), resolve("options/quoted-mean-masked", "options/embedding")
    planned = plan(model, open_dataset(data), recipes, probe=False)
    spent = evaluate(model=model, data=data, protocols=recipes, out=tmp_path / "run").manifest.engine.spent
    assert spent.tokens_computed == planned.tokens_unique


@pytest.mark.costly("whole commands")
def test_what_blocks_cost_adds_up(data: Path, tmp_path: Path) -> None:
    model = load_model(MODEL, rung="plain")
    evaluate(model=model, data=data, protocols=["mmlu/original"], out=tmp_path / "run")
    both = evaluate(model=model, data=data, protocols=["mmlu/original", "mmlu/cloze:sum"], out=tmp_path / "run")
    alone = evaluate(model=model, data=data, protocols=["mmlu/cloze:sum"], out=tmp_path / "alone")
    first = evaluate(model=model, data=data, protocols=["mmlu/original"], out=tmp_path / "first")
    spent = [run.manifest.engine.spent.tokens_asked for run in (both, alone, first)]
    assert spent[0] == spent[1] + spent[2]
    assert both.manifest.engine.spent.tokens_computed <= spent[0]


def test_a_plan_counts_what_is_missing_or_shortened(data: Path) -> None:
    model = HashModel()
    model.window = 700
    planned = plan(model, open_dataset(data), resolve("mmlu/original"), probe=False)
    assert (planned.requests, planned.shots_dropped, planned.tokens_dropped, planned.missing) == (6, 6, 0, {})
    model.window = 40
    planned = plan(model, open_dataset(data), resolve("mmlu/original"), probe=False)
    assert sum(planned.missing.values()) == planned.requests == 6
    assert planned.tokens_unique == 0


def test_a_probe_asks_more_until_it_takes_long_enough() -> None:
    context = np.arange(4, dtype=np.int32)
    spans = [Span(context, np.asarray([token, token], dtype=np.int32)) for token in range(8)]
    asked: list[int] = []

    class Counted(HashModel):
        def answer(self, questions):  # type: ignore[no-untyped-def]
            asked.append(len(questions))
            return super().answer(questions)

    speed = measure_speed(Counted(), spans, seconds=1e9)
    assert asked == [1, 2, 4, 8]
    assert speed is not None
    assert speed > 0
    asked.clear()
    measure_speed(Counted(), spans, seconds=0.0)
    assert asked == [1]
    assert measure_speed(Counted(), []) is None


def test_an_estimate_is_tokens_by_speed() -> None:
    assert Plan(1, 600, 300, {}, 0, 0, 100.0).seconds == 3.0
    assert token_savings(Spent(575660, 22836, 1.0)) == "asked 575,660 tokens, computed 22,836: 25.2 × fewer"
    served = token_savings(Spent(1000, 100, 1.0, requests=7))
    assert served == "asked 1,000 tokens in 7 requests; the server computed 100 at most: 10.0 × fewer"


@pytest.mark.costly("whole commands")
def test_the_command_says_what_it_plans_and_what_it_saved(data: Path, tmp_path: Path) -> None:
    def told_of(*more: str) -> CommandResult:
        asked = ["--model", MODEL, "--data", data, "--protocol", "mmlu/original"]
        found = choicewise("run", *asked, *more)
        assert found.code == 0, found.stderr
        return found

    told = told_of("--dry-run").stdout
    assert "requests         6" in told
    assert "estimated time" in told
    assert "tree path" in told
    planned = json.loads(told_of("--dry-run", "--json").stdout)
    ran = told_of("--batch-tokens", "64", "--out", str(tmp_path / "run")).stderr
    assert token_savings(Spent(planned["tokens_asked"], planned["tokens_unique"], 1.0)) in ran
