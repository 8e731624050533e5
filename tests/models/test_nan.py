"""A model that answers with NaN here and there: what it says elsewhere counts, and nothing that is NaN is right."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from choicewise import evaluate
from choicewise.cli.run import run
from choicewise.models.fake import HashModel
from choicewise.models.local import causal_lm as sampling
from choicewise.models.local import plain
from choicewise.models.local.local_model import LocalModel, nan_fallback
from choicewise.models.model import SelfCheck
from choicewise.protocols.catalogue import resolve
from choicewise.questions import Cosine, Generation, MaskedLoss, Mass, Sampling, Span, TokenScores, TokenSet
from choicewise.running.work import observe
from choicewise.tokens.tokenizer import ByteTokenizer
from tests.helpers.mmlu_data import write_mmlu
from tests.helpers.tiny_models import VOCABULARY, tiny

DAMAGED = 7
RUNGS = ("tree", "mask", "prefix", "plain")


def ids(*tokens: int) -> np.ndarray:
    return np.asarray(tokens, dtype=np.int32)


@pytest.fixture(scope="module")
def network() -> Any:
    model = tiny("llama")
    with torch.no_grad():
        model.get_input_embeddings().weight[DAMAGED] = float("nan")
    return model


def loaded(network: Any, rung: str, monkeypatch: pytest.MonkeyPatch) -> LocalModel:
    """A model that passed its check, since the probe holds the damaged token."""
    monkeypatch.setattr("choicewise.models.local.local_model.check", chosen)
    return LocalModel(network, ByteTokenizer(), name="damaged", digest="", window=64, rung=rung, batch_tokens=64)


def chosen(lm: Any, ladder: Mapping[str, Any], deepest: int | None = None) -> SelfCheck:
    (rung,) = ladder
    return SelfCheck(rung, 0.0, 0.0, 0.0, 0.0, lm.window, ())


@pytest.mark.parametrize("rung", RUNGS)
def test_one_token_spoils_no_neighbour(network: Any, rung: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model = loaded(network, rung, monkeypatch)
    questions = [
        Span(ids(1, DAMAGED, 3), ids(4, 5)),
        Span(ids(1, 2, 3), ids(4, 5)),
        Span(ids(1, 9), ids(4)),
        Mass(ids(1, 2), TokenSet(ids(3, 4))),
    ]
    seen = dict(model.answer(questions))
    assert np.isnan(seen[0].logprobs).all()
    assert (seen[0].ranks == -1).all()
    for index, question in enumerate(questions[1:], start=1):
        truth = plain.score(network, VOCABULARY, question)
        np.testing.assert_allclose(seen[index].logprobs, truth.logprobs, atol=1e-4)
        assert (seen[index].ranks == truth.ranks).all()
    said = dict(model.answer([Generation(question.context, 2) for question in questions]))
    assert [bool(np.isnan(said[index].logprobs).any()) for index in range(4)] == [True, False, False, False]


@pytest.mark.parametrize("rung", RUNGS)
def test_losses_and_states_of_neighbours(network: Any, rung: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model = loaded(network, rung, monkeypatch)
    spans = [Span(ids(1, DAMAGED), ids(4)), Span(ids(1, 2), ids(4))]
    pairs = [Cosine(ids(1, DAMAGED), ids(2), True), Cosine(ids(1, 2), ids(3), True)]
    answers = dict(model.answer([*map(MaskedLoss, spans), *pairs]))
    values = [answers[index].value for index in range(4)]
    assert np.isnan(values).tolist() == [True, False, True, False]
    assert values[1] == pytest.approx(plain.loss(network, spans[1]), abs=1e-4)
    assert values[3] == pytest.approx(plain.cosine(network, pairs[1]), abs=1e-4)


def test_a_chain_of_nan_is_greedy_nowhere(network: Any) -> None:
    table = [b"%d " % token for token in range(VOCABULARY)]
    sampled = Generation(ids(1, DAMAGED), 3, (b"x",), Sampling.of(0, "item", 0))
    one, other = (way(network, VOCABULARY, sampled, [], table) for way in (plain.generate, sampling.sample))
    assert one.tokens.tolist() == other.tokens.tolist()
    assert np.isnan([*one.logprobs, *other.logprobs]).all()
    assert one.ranks.tolist() == other.ranks.tolist() == [-1] * 3


def test_a_generation_of_nan_says_nothing(network: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    model = loaded(network, "tree", monkeypatch)
    generations = {"bad": Generation(ids(1, DAMAGED), 1), "good": Generation(ids(1, 2), 1)}
    rows = {row.key: row for row in observe(model, generations)}
    assert rows["bad"].text is None
    assert isinstance(rows["good"].text, str)
    masked = {"loss": MaskedLoss(Span(ids(1, DAMAGED), ids(4)))}
    assert np.isnan(next(observe(model, masked)).value)


def test_only_what_is_nan_is_asked_again() -> None:
    number, nan, lost = Cosine.answer(0.5), Cosine.answer(float("nan")), TokenScores.of([1], [np.nan], [-1])
    plainly = {0: Cosine.answer(0.0), 1: Cosine.answer(1.0)}
    assert list(nan_fallback(iter([(1, number), (0, nan)]), range(2), plainly.__getitem__)) == [
        (1, number),
        (0, plainly[0]),
    ]
    assert list(nan_fallback(iter([(0, lost)]), range(1), plainly.__getitem__)) == [(0, plainly[0])]
    assert list(nan_fallback(None, range(2), plainly.__getitem__)) == list(plainly.items())


def test_the_command_names_an_item_that_is_answered_with_nan(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    answers = HashModel.answer

    def damaged(self: HashModel, questions: list[Any]) -> Iterator[tuple[int, TokenScores]]:
        for index, answer in answers(self, questions):
            yield index, replace(answer, logprobs=answer.logprobs * (np.nan if index == 0 else 1.0))

    monkeypatch.setattr(HashModel, "answer", damaged)
    data, out = write_mmlu(tmp_path / "data", subjects=("tides",)), tmp_path / "run"
    run(model="fake:hash", data=data, protocol=["mmlu/cloze:sum"], out=out)
    shown = capsys.readouterr()
    assert "1 missing" in shown.out
    assert f"answers with NaN about 1 item, missing where that is read; `choicewise explain {out} --item" in shown.err


def test_nan_in_a_correction_is_named_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    answers = HashModel.answer

    def damaged(self: HashModel, questions: list[Any]) -> Iterator[tuple[int, TokenScores]]:
        for index, answer in answers(self, questions):
            lost = isinstance(questions[index], Mass)
            yield index, replace(answer, logprobs=answer.logprobs * (np.nan if lost else 1.0))

    monkeypatch.setattr(HashModel, "answer", damaged)
    cloze = resolve("mmlu/cloze:sum")["mmlu/cloze:sum"]
    recipes = {"word": replace(cloze, boundary="word", continuation=" {letter}")}
    found = evaluate(model=HashModel(), data=write_mmlu(tmp_path / "data"), protocols=recipes, out=tmp_path / "run")
    missing = [row["item"] for row in found.scores().to_pylist() if row["score"] is None or np.isnan(row["score"])]
    assert missing
    assert sorted(found.unanswered) == sorted(set(missing))
