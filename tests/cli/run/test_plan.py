"""What a run will cost is what it then costs."""

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from choicewise import evaluate, load_model, open_dataset
from choicewise.bundled import MODELS
from choicewise.extensions.run.commands import plan_lines, token_savings
from choicewise.extensions.run.plan import Plan, measure_speed, plan, unique_tokens
from choicewise.models.fake import HashModel
from choicewise.protocols.catalogue import resolve
from choicewise.questions import Generation, Span
from choicewise.records import Spent
from choicewise.running.job import Task
from choicewise.running.work import Work
from choicewise.tokens.tokenizer import ByteTokenizer
from tests.helpers.commands import choicewise
from tests.helpers.messages import Gist
from tests.helpers.mmlu_data import write_mmlu

PROTOCOLS = ["mmlu/original", "mmlu/cloze", "mmlu/helm"]
MODEL = next(folder for folder in MODELS if folder.name == "merrow-bpe-512")

ids = st.lists(st.integers(0, 2), min_size=1, max_size=5).map(
    lambda found: np.asarray(found, dtype=np.int32)
)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return write_mmlu(tmp_path / "data", questions=3)


@given(st.lists(st.tuples(ids, ids), max_size=8))
def test_unique_tokens_are_the_distinct_beginnings(
    pairs: list[tuple[np.ndarray, np.ndarray]],
) -> None:
    sequences = [[*context, *continuation][:-1] for context, continuation in pairs]
    beginnings = {
        tuple(sequence[:end]) for sequence in sequences for end in range(1, len(sequence) + 1)
    }
    assert unique_tokens([Span(*pair) for pair in pairs], ByteTokenizer()) == len(beginnings)


def test_a_generation_counts_to_its_full_length_and_shares_its_beginning_with_spans() -> None:
    context, tokens = np.arange(4, dtype=np.int32), ByteTokenizer()
    assert unique_tokens([Generation(context, 3), Generation(context[:2], 2)], tokens) == 4 + 2 + 1
    assert (Generation(context, 3).inputs, Span(context, context[:2]).inputs) == (6, 5)
    span = Span(context[:3], np.asarray([5], dtype=np.int32))
    assert unique_tokens([span, Generation(context, 1)], tokens) == 4
    assert unique_tokens([span, Generation(context, 2)], tokens) == 3 + 4 + 1


@pytest.mark.costly("whole commands")
@pytest.mark.parametrize(
    "names",
    [
        PROTOCOLS,
        ["options/cloze:sum"],  # it has no split, and is planned on the one it would run on
        [
            "options/quoted-mean-masked",
            "options/embedding",
        ],  # they come from one tree of hidden states
    ],
    ids=len,
)
def test_a_plan_counts_what_the_run_then_computes(
    names: list[str], data: Path, tmp_path: Path
) -> None:
    model, recipes = load_model(MODEL), resolve(*names)
    planned = plan(Task(model, Work.of(model, open_dataset(data), recipes)), probe=False)
    assert (planned.speed, planned.seconds) == (None, None)
    run = evaluate(model=model, data=data, protocols=recipes, out=tmp_path / "run")
    spent = run.manifest.engine.spent
    assert spent.tokens_computed == planned.tokens_unique > 0
    assert planned.requests > 0
    assert spent.seconds > 0
    if len(names) == 2:
        return
    assert spent.tokens_asked == planned.tokens_asked
    if names == PROTOCOLS:
        assert planned.ratio == planned.tokens_asked / planned.tokens_unique > 5
        again = evaluate(model=model, data=data, protocols=recipes, out=tmp_path / "run")
        assert again.manifest.engine.spent == spent


@pytest.mark.costly("whole commands")
def test_what_blocks_cost_adds_up(data: Path, tmp_path: Path) -> None:
    model, spent = load_model(MODEL, rung="plain"), {}
    asked = {
        "run": ["mmlu/original"],
        "alone": ["mmlu/cloze:sum"],
        "both": ["mmlu/original", "mmlu/cloze:sum"],
    }
    for name, protocols in asked.items():
        out = tmp_path / name.replace("both", "run")
        run = evaluate(model=model, data=data, protocols=protocols, out=out)
        spent[name] = run.manifest.engine.spent
    assert spent["both"].tokens_asked == spent["alone"].tokens_asked + spent["run"].tokens_asked
    assert spent["both"].tokens_computed <= spent["both"].tokens_asked


def test_a_plan_counts_what_is_missing_or_shortened(data: Path) -> None:
    model, planned = HashModel(), {}
    for model.window in (700, 40):
        work = Work.of(model, open_dataset(data), resolve("mmlu/original"))
        planned[model.window] = plan(Task(model, work), probe=False)
    short, none = planned.values()
    assert (short.requests, short.shots_dropped, short.tokens_dropped, short.missing) == (
        6,
        6,
        0,
        {},
    )
    assert (sum(none.missing.values()), none.requests, none.tokens_unique) == (6, 6, 0)


def test_a_probe_asks_more_until_it_takes_long_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    context, asked, model = np.arange(4, dtype=np.int32), list[int](), HashModel()
    spans = [Span(context, np.asarray([token, token], dtype=np.int32)) for token in range(8)]
    answer = model.answer
    monkeypatch.setattr(
        model, "answer", lambda questions: asked.append(len(questions)) or answer(questions)
    )
    speed = measure_speed(model, spans, seconds=1e9)
    assert asked == [1, 2, 4, 8]
    assert speed is not None
    assert speed > 0
    asked.clear()
    measure_speed(model, spans, seconds=0.0)
    assert asked == [1]
    assert measure_speed(model, []) is None


def test_an_estimate_is_tokens_by_speed() -> None:
    planned = Plan(
        requests=1,
        tokens_asked=600,
        tokens_unique=300,
        missing={},
        shots_dropped=0,
        tokens_dropped=0,
        speed=100.0,
    )
    assert planned.seconds == 3.0
    assert "22,836 of 575,660 tokens" in token_savings(Spent(575660, 22836, 1.0))
    served = token_savings(Spent(1000, 100, 1.0, requests=7))
    for part in ("7 requests", "100 of 1,000 tokens", "10.0 ×"):
        assert part in served


@pytest.mark.costly("three commands on a network")
def test_the_command_says_what_it_plans_and_what_it_saved(data: Path, tmp_path: Path) -> None:
    asked = ["run", "--model", MODEL, "--data", data, "--protocol", "mmlu/original"]
    told = choicewise(*asked, "--dry-run", code=0).stdout
    assert "requests         6" in told
    assert "estimated time" in told
    assert "tree path" in told
    planned = json.loads(choicewise(*asked, "--dry-run", "--json", code=0).stdout)
    ran = choicewise(*asked, "--batch-tokens", "64", "--out", tmp_path / "run", code=0).stderr
    assert token_savings(Spent(planned["tokens_asked"], planned["tokens_unique"], 1.0)) in ran


def test_reasons_with_one_count_have_a_line_each() -> None:
    missing = {"the context is empty": 3, "a choice is longer than the window": 3}
    planned = Plan(
        requests=9,
        tokens_asked=90,
        tokens_unique=45,
        missing=missing,
        shots_dropped=0,
        tokens_dropped=0,
        speed=None,
        refused={"a:x": "no chat", "b:y": "no letters"},
    )
    lines = plan_lines(planned, HashModel())
    assert lines[3:] == [
        "missing 3        the context is empty",
        Gist("missing 3 ... longer than the window"),
        "refused 1        no chat",
        "refused 1        no letters",
    ]
