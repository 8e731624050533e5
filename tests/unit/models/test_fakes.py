"""The fakes: a guesser that is the same everywhere, one that is always right and one that never is."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from choicewise.errors import ModelError
from choicewise.models.fake import FAKES, AntiOracle, HashModel, Oracle
from choicewise.models.load import load_model
from choicewise.models.model import Model
from choicewise.questions import Generation, Ids, Span
from tests.helpers import answers

TEXT = st.text(min_size=1, max_size=8)
PUBLISHED = ([-4.7337441, -14.2153578], [34, 255])


def ids(text: str) -> Ids:
    return answers.ids(*text.encode())


def total(model: Model, context: str, continuation: str, gold: bool | None = None) -> float:
    ((_, seen),) = model.answer([Span(ids(context), ids(continuation), gold)])
    assert seen.tokens.tolist() == ids(continuation).tolist()
    assert (seen.logprobs.dtype, seen.ranks.dtype) == (np.float32, np.int32)
    return float(seen.logprobs.sum(dtype=np.float64))


def test_hash_model_gives_these_numbers_of_text_not_tokens_on_every_machine() -> None:
    """Written down once; another machine or library version must not change them."""
    ((_, seen),) = HashModel().answer([Span(ids("Answer:"), ids(" A"))])
    assert seen.logprobs.tolist() == pytest.approx(PUBLISHED[0], abs=1e-6)
    assert seen.ranks.tolist() == PUBLISHED[1]
    assert total(HashModel(1), "Answer:", " A") != total(HashModel(), "Answer:", " A")
    assert HashModel(1).digest != HashModel().digest
    ((_, seen),) = HashModel().answer([Span(answers.ids(256, *b"Once"), ids("x"))])
    assert float(seen.logprobs.sum()) == pytest.approx(total(HashModel(), "Once", "x"))


def test_hash_model_is_normalised_and_generates_what_it_finds_most_probable() -> None:
    spans = [Span(ids("Once"), answers.ids(token)) for token in range(257)]
    seen = [scores for _, scores in HashModel().answer(spans)]
    assert sum(np.exp(float(scores.logprobs[0])) for scores in seen) == pytest.approx(1, abs=1e-6)
    best = min(range(257), key=lambda token: seen[token].ranks[0])
    assert seen[best].ranks[0] == 0
    assert seen[best].logprobs[0] == max(scores.logprobs[0] for scores in seen)
    prompt = Generation(ids("Once"), 5)
    ((_, made),) = HashModel().answer([prompt])
    assert len(made.tokens) == 5
    assert made.ranks.tolist() == [0] * 5
    ((_, scored),) = HashModel().answer([Span(prompt.context, made.tokens)])
    assert scored.logprobs.tolist() == made.logprobs.tolist()


@given(context=TEXT, first=TEXT, second=TEXT)
def test_hash_model_adds_up(context: str, first: str, second: str) -> None:
    model = HashModel()
    parts = total(model, context, first) + total(model, context + first, second)
    assert total(model, context, first + second) == pytest.approx(parts, abs=1e-4)


@given(context=TEXT, choices=st.lists(TEXT, min_size=2, max_size=5), gold=st.integers(0, 4))
def test_oracle_and_anti_oracle_are_sure(context: str, choices: list[str], gold: int) -> None:
    """By sum, by mean and against a null context: the right choice wins with the one and loses with the other."""
    gold %= len(choices)
    for model, sign in ((Oracle(), 1), (AntiOracle(), -1)):
        sums = np.asarray(
            [total(model, context, choice, index == gold) for index, choice in enumerate(choices)]
        )
        sizes = np.asarray([len(ids(choice)) for choice in choices])
        for null in (None, False):
            unconditional = np.asarray([total(model, "x", choice, null) for choice in choices])
            for scores in (sums, sums / sizes, sums - unconditional):
                others = np.delete(scores, gold)
                assert (sign * scores[gold] > sign * others).all()


def test_oracle_and_anti_oracle_generate_answers() -> None:
    prompt = Generation(ids("Answer:"), 2, right=ids(" B and more"), wrong=ids(" C"))
    for model, text in ((Oracle(), " B"), (AntiOracle(), " C")):
        ((index, made),) = model.answer([prompt])
        assert index == 0
        assert model.tokenizer.decode(made.tokens) == text
        assert made.ranks.tolist() == [0, 0]


@given(context=TEXT, start=st.integers(0, 30), size=st.integers(1, 3))
def test_fakes_end_before_the_token_that_completes_a_stop(
    context: str, start: int, size: int
) -> None:
    for model in (HashModel(), Oracle(), AntiOracle()):
        generation = Generation(
            ids(context), 60, right=ids("a few words\nand more"), wrong=ids("others")
        )
        ((_, endless),) = model.answer([generation])
        texts = [
            bytes(token for token in endless.tokens[:length] if token < 256) for length in range(60)
        ]
        stop = texts[-1][start : start + size] or b"never"
        ((_, stopped),) = model.answer([replace(generation, stops=(stop, b"never either"))])
        length = next(
            (length - 1 for length in range(60) if stop in texts[length]), len(endless.tokens)
        )
        assert stopped.tokens.tolist() == endless.tokens[:length].tolist()
        assert stopped.logprobs.tolist() == endless.logprobs[:length].tolist()


@pytest.mark.parametrize("name", [*FAKES, "bundled:merrow-byte"])
def test_models_here_are_known_by_name_and_object_to_nothing_that_they_support(name: str) -> None:
    model = load_model(name)
    assert Span in model.supports
    assert model.objection(Span(answers.ids(1), answers.ids(2, 3))) is None
    assert name not in FAKES or (model.name, len(model.digest), model.window) == (
        name,
        64,
        1_000_000,
    )
    with pytest.raises(ModelError, match="fake:hash, fake:oracle, fake:anti-oracle"):
        load_model("fake:genius")
