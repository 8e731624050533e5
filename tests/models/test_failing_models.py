"""A model that answers with NaN here and there, which counts as missing there alone, or that breaks down."""

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from choicewise import evaluate
from choicewise.bundled import BENCHMARK
from choicewise.errors import ModelError
from choicewise.models.fake import HashModel
from choicewise.models.local import causal_lm as sampling
from choicewise.models.local import plain
from choicewise.models.local.local_model import LocalModel, nan_fallback
from choicewise.models.model import SelfCheck
from choicewise.protocols.catalogue import resolve
from choicewise.questions import (
    Cosine,
    Generation,
    MaskedLoss,
    Mass,
    Prompt,
    Sampling,
    Span,
    TokenScores,
    TokenSet,
)
from choicewise.running.observe import observe
from choicewise.tokens.tokenizer import ByteTokenizer
from tests.helpers.answers import assert_same_scores, ids, in_order
from tests.helpers.commands import choicewise
from tests.helpers.mmlu_data import write_mmlu
from tests.helpers.tiny_models import VOCABULARY, tiny

DAMAGED = 7
RUNGS = ("tree", "mask", "prefix", "plain")


@pytest.fixture(scope="module")
def network() -> Any:
    model = tiny("llama")
    with torch.no_grad():
        model.get_input_embeddings().weight[DAMAGED] = float("nan")
    return model


def loaded(network: Any, rung: str, monkeypatch: pytest.MonkeyPatch) -> LocalModel:
    """A model that passed its check, since the probe holds the damaged token."""

    def chosen(lm: Any, ladder: Mapping[str, Any], deepest: int | None = None) -> SelfCheck:
        (rung,) = ladder
        return SelfCheck(rung, 0.0, 0.0, 0.0, 0.0, lm.window, ())

    monkeypatch.setattr("choicewise.models.local.local_model.check", chosen)
    return LocalModel(
        network, ByteTokenizer(), name="damaged", digest="", window=64, rung=rung, batch_tokens=64
    )


@pytest.mark.parametrize("rung", RUNGS)
def test_one_token_spoils_no_neighbour(
    network: Any, rung: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = loaded(network, rung, monkeypatch)
    right = [
        Span(ids(1, 2, 3), ids(4, 5)),
        Span(ids(1, 9), ids(4)),
        Mass(ids(1, 2), TokenSet(ids(3, 4))),
    ]
    questions = [Span(ids(1, DAMAGED, 3), ids(4, 5)), *right]
    spoilt, *seen = in_order(model.answer(questions))
    assert np.isnan(spoilt.logprobs).all()
    assert (spoilt.ranks == -1).all()
    assert_same_scores(
        seen, [plain.score(network, VOCABULARY, question) for question in right], atol=1e-4
    )
    said = in_order(model.answer([Generation(question.context, 2) for question in questions]))
    assert [bool(np.isnan(scores.logprobs).any()) for scores in said] == [True, False, False, False]
    spans = [Span(ids(1, DAMAGED), ids(4)), Span(ids(1, 2), ids(4))]
    pairs = [Cosine(ids(1, DAMAGED), ids(2), True), Cosine(ids(1, 2), ids(3), True)]
    values = [answer.value for answer in in_order(model.answer([*map(MaskedLoss, spans), *pairs]))]
    assert np.isnan(values).tolist() == [True, False, True, False]
    assert values[1] == pytest.approx(plain.loss(network, spans[1]), abs=1e-4)
    assert values[3] == pytest.approx(plain.cosine(network, pairs[1]), abs=1e-4)


def test_a_generation_of_nan_says_nothing_and_is_greedy_nowhere(
    network: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = loaded(network, "tree", monkeypatch)
    generations = {"bad": Generation(ids(1, DAMAGED), 1), "good": Generation(ids(1, 2), 1)}
    rows = {row.key: row for row in observe(model, generations)}
    assert rows["bad"].text is None
    assert isinstance(rows["good"].text, str)
    assert np.isnan(next(observe(model, {"loss": MaskedLoss(Span(ids(1, DAMAGED), ids(4)))})).value)
    table = [b"%d " % token for token in range(VOCABULARY)]
    sampled = Generation(ids(1, DAMAGED), 3, (b"x",), Sampling.of(0, "item", 0))
    one, other = (
        way(network, VOCABULARY, sampled, [], table) for way in (plain.generate, sampling.sample)
    )
    assert one.tokens.tolist() == other.tokens.tolist()
    assert np.isnan([*one.logprobs, *other.logprobs]).all()
    assert one.ranks.tolist() == other.ranks.tolist() == [-1] * 3


def test_only_what_is_nan_is_asked_again() -> None:
    number, nan, lost = (
        Cosine.answer(0.5),
        Cosine.answer(float("nan")),
        TokenScores.of([1], [np.nan], [-1]),
    )
    plainly = {0: Cosine.answer(0.0), 1: Cosine.answer(1.0)}
    half = [(1, number), (0, plainly[0])]
    assert list(nan_fallback(iter([(1, number), (0, nan)]), range(2), plainly.__getitem__)) == half
    assert list(nan_fallback(iter([(0, lost)]), range(1), plainly.__getitem__)) == [(0, plainly[0])]
    assert list(nan_fallback(None, range(2), plainly.__getitem__)) == list(plainly.items())


def damage(monkeypatch: pytest.MonkeyPatch, lost: Callable[[int, Prompt], bool]) -> None:
    """From now on the fake answers with NaN where ``lost`` says so of a question and its index."""
    answers = HashModel.answer

    def damaged(self: HashModel, questions: Sequence[Prompt]) -> Iterator[tuple[int, TokenScores]]:
        for index, answer in answers(self, questions):
            factor = np.nan if lost(index, questions[index]) else 1.0
            yield index, replace(answer, logprobs=answer.logprobs * factor)

    monkeypatch.setattr(HashModel, "answer", damaged)


@pytest.mark.costly("a model is written, loaded and asked")
def test_the_command_names_an_item_that_is_answered_with_nan(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    damage(monkeypatch, lambda index, question: index == 0)
    data, out = write_mmlu(tmp_path / "data", subjects=("tides",)), tmp_path / "run"
    line = (
        "run",
        "--model",
        "fake:hash",
        "--data",
        data,
        "--protocol",
        "mmlu/cloze:sum",
        "--out",
        out,
    )
    told = choicewise(*line, code=0)
    assert "1 of 6 items is missing" in told.stdout
    assert "NaN for 1 item" in told.stderr
    assert f"`choicewise explain {out} --item" in told.stderr


@pytest.mark.costly("whole runs")
def test_nan_in_a_correction_is_named_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    damage(monkeypatch, lambda index, question: isinstance(question, Mass))
    cloze = resolve("mmlu/cloze:sum")["mmlu/cloze:sum"]
    recipes = {"word": replace(cloze, boundary="word", continuation=" {letter}")}
    found = evaluate(
        model=HashModel(),
        data=write_mmlu(tmp_path / "data"),
        protocols=recipes,
        out=tmp_path / "run",
    )
    missing = [
        row["item"]
        for row in found.scores().to_pylist()
        if row["score"] is None or np.isnan(row["score"])
    ]
    assert missing
    assert sorted(found.unanswered) == sorted(set(missing))


class SlowTokenizer(ByteTokenizer):
    calls = 0

    def encode(self, texts: Sequence[str], *, special: bool) -> list[Any]:
        self.calls += 1
        time.sleep(0.1)
        return super().encode(texts, special=special)


class BreakingModel(HashModel):
    """Breaks down as soon as it is asked, or with ``at_check`` when it gets ready."""

    def __init__(self, at_check: bool) -> None:
        super().__init__()
        self.slow = self.tokenizer = SlowTokenizer()
        self._at_check = at_check

    def check(self, depth: int) -> None:
        if self._at_check:
            time.sleep(0.15)
            raise ModelError("its weights are damaged")

    def answer(self, questions: Sequence[Prompt]) -> Iterator[tuple[int, TokenScores]]:
        raise ModelError("it knows no such token")


def test_after_an_error_no_thread_goes_on_tokenizing(tmp_path: Path) -> None:
    calls = {}
    for at_check, reason in ((False, "no such token"), (True, "weights are damaged")):
        threads, model = set(threading.enumerate()), BreakingModel(at_check)
        protocols = ["mmlu/original", "mmlu/cloze", "mmlu/harness-v0", "mmlu/helm"]
        with pytest.raises(ModelError, match=reason) as caught:
            evaluate(
                model=model,
                data=BENCHMARK,
                protocols=protocols,
                limit=2,
                out=tmp_path / str(at_check),
            )
        assert caught.value.__traceback__ is not None  # which keeps every frame of the run alive
        calls[at_check] = model.slow.calls
        assert set(threading.enumerate()) <= threads
        time.sleep(0.3)
        assert model.slow.calls == calls[at_check]
    assert calls[True] < calls[False] / 2, "the block that nobody needs is prepared to its end"
