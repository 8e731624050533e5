"""Single requests: what our model of the harness answers, against its own model in float32."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from choicewise.errors import ModelError

from .harness_compared import NAMES, near, ours, requests, theirs

PIECES = ["Question: ", "What is it?", "\n", "\n\n", " ", "  ", "\t", "Answer:", " A", "B", " the", "the", "ing", "wor"]
PIECES += ["ld", "<s>", "</s>", "é", "e\u0301", "\u00a0", "你好", "🙂", ".", "'s", " (A)", "1234", "\u3000"]
PIECES += ["\u200b", "\x1f"]
TEXTS = st.lists(st.sampled_from(PIECES), max_size=8).map("".join)
PAIRS = st.lists(st.tuples(TEXTS, TEXTS.filter(bool)), min_size=1, max_size=6)
BOS, LENGTHS = {"add_bos_token": st.booleans(), "prefix_token_id": st.sampled_from([3, 7])}, st.sampled_from([6, 24])
ARGUMENTS = st.fixed_dictionaries({}, optional={**BOS, "max_length": LENGTHS})


def answered(model: Any, pair: tuple[str, str]) -> tuple[float, bool] | None:
    """The answer, or None where the model refuses to give one."""
    try:
        return tuple(model.loglikelihood(requests("loglikelihood", [pair]), disable_tqdm=True)[0])
    except (AssertionError, IndexError, ModelError):
        return None


@pytest.mark.parametrize("name", NAMES)
@given(pairs=PAIRS, arguments=ARGUMENTS)
@settings(max_examples=40)
def test_pairs_have_the_harness_s_tokens(name: str, pairs: list[tuple[str, str]], arguments: dict[str, Any]) -> None:
    hf, encoder = theirs(name, **arguments), ours(name, **arguments)._encoder
    encoded = encoder.pairs(pairs)
    for (context, continuation), own in zip(pairs, encoded, strict=True):
        if context:
            before, after = hf._encode_pair(context, continuation)
            assert (own.context.tolist(), own.continuation.tolist()) == (before, after)
            assert (own.missing is None) == bool(before and after)
        elif after := hf.tok_encode(continuation, add_special_tokens=False):
            prefix = hf.prefix_token_id
            expected = (after[:1], after[1:]) if after[0] == prefix else ([prefix], after)
            assert (own.context.tolist(), own.continuation.tolist()) == expected
        else:
            assert own.missing


@pytest.mark.parametrize("name", NAMES)
@given(pairs=PAIRS, arguments=ARGUMENTS)
@settings(max_examples=12)
def test_pairs_have_the_harness_s_numbers(name: str, pairs: list[tuple[str, str]], arguments: dict[str, Any]) -> None:
    known = [(pair, answer) for pair in pairs if (answer := answered(theirs(name, **arguments), pair))]
    refused = [pair for pair in pairs if pair not in [answerable for answerable, _ in known]]
    own = ours(name, **arguments).loglikelihood(requests("loglikelihood", [pair for pair, _ in known]))
    for (total, greedy), (_, (expected, also)) in zip(own, known, strict=True):
        assert near(total, expected)
        assert greedy == also
    assert [answered(ours(name, **arguments), pair) for pair in refused] == [None] * len(refused)


@pytest.mark.parametrize("name", NAMES)
@given(texts=st.lists(st.lists(st.sampled_from(PIECES), max_size=40).map("".join), max_size=3), arguments=ARGUMENTS)
@settings(max_examples=10)
def test_rolling_texts_have_the_harness_s_numbers(name: str, texts: list[str], arguments: dict[str, Any]) -> None:
    asked = requests("loglikelihood_rolling", texts)
    expected = theirs(name, **arguments).loglikelihood_rolling(asked, disable_tqdm=True)
    own = ours(name, **arguments).loglikelihood_rolling(asked)
    assert all(map(near, own, expected))
    assert len(own) == len(expected)


STOPS = st.lists(st.sampled_from(["\n", "\n\n", ".", " the", "e", "", "</s>", " a", "on"]), max_size=2)
GREEDY = {"until": STOPS, "do_sample": st.just(False), "temperature": st.just(0.0)}
ANSWERS = st.tuples(TEXTS.filter(bool), st.fixed_dictionaries({"max_gen_toks": st.integers(1, 24)}, optional=GREEDY))


@pytest.mark.parametrize("name", NAMES)
@given(asked=st.lists(ANSWERS, min_size=1, max_size=4), length=st.sampled_from([None, 40]))
@settings(max_examples=8)
def test_answers_are_the_harness_s(name: str, asked: list[tuple[str, dict[str, Any]]], length: int | None) -> None:
    arguments = {} if length is None else {"max_length": length}
    hf, model, known = theirs(name, **arguments), ours(name, **arguments), []
    for each in asked:
        (one,) = requests("generate_until", [each])
        try:
            known.append((each, hf.generate_until([one], disable_tqdm=True)[0]))
        except (IndexError, ValueError, RuntimeError):  # a context without tokens
            with pytest.raises(ModelError):
                model.generate_until([one])
    own = model.generate_until(requests("generate_until", [each for each, _ in known]))
    assert own == [answer for _, answer in known]
