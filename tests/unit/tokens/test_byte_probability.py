"""Probabilities of bytes by covering sequences, against brute force over every sequence of tokens."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from choicewise.questions import Ids, Mass, Span, TokenScores, TokenSet
from choicewise.tokens.boundary import without
from choicewise.tokens.byte_coverings import (
    ByteProbability,
    all_spellings,
    answer_with_bytes,
    count_spellings,
    parts,
    sizes,
    token_sizes,
)
from choicewise.tokens.tokenizer import ByteTokenizer, Vocabulary, vocabulary
from tests.helpers.toy_tokenizers import EndlessModel, ToyModel, ToyTokenizer

TOY = ToyTokenizer()
TEXT = st.text("ab", min_size=1, max_size=4).map(str.encode)
CONTEXT = st.lists(st.integers(0, 6), min_size=1, max_size=3)


def ids(*tokens: int) -> Ids:
    return np.asarray(tokens, dtype=np.int32)


def probability(context: list[int], text: bytes, *offsets: int) -> ByteProbability:
    return ByteProbability(ids(*context), text, offsets)


def total(model: ToyModel, question: ByteProbability) -> float:
    ((_, seen),) = answer_with_bytes(model.answer, [question], TOY)
    return float(seen.logprobs.sum(dtype=np.float64))


@given(context=CONTEXT, text=TEXT)
@settings(max_examples=25)
def test_probabilities_of_bytes_are_those_of_brute_force(context: list[int], text: bytes) -> None:
    """Of all bytes together, of each after those before it, and of the next one, which is a or b."""
    model = EndlessModel()
    ((_, seen),) = answer_with_bytes(model.answer, [probability(context, text, *range(len(text) + 1))], TOY)
    prefixes = [model.starts_with(context, text[:end]) for end in range(len(text) + 1)]
    assert np.exp(total(model, probability(context, text, 0, len(text)))) == pytest.approx(prefixes[-1], rel=1e-4)
    assert np.exp(seen.logprobs) == pytest.approx(np.divide(prefixes[1:], prefixes[:-1]), rel=1e-4)
    assert seen.tokens.tolist() == list(text)
    assert seen.ranks.tolist() == [-1] * len(text)
    following = [total(model, probability(context, text + byte, len(text), len(text) + 1)) for byte in (b"a", b"b")]
    assert np.exp(following).sum() == pytest.approx(1, rel=1e-5)


@given(context=CONTEXT, left=TEXT, right=TEXT)
@settings(max_examples=25)
def test_bytes_add_up(context: list[int], left: bytes, right: bytes) -> None:
    """S(ab) = S(a) + S(b | a), from the same tokens."""
    whole, model = left + right, ToyModel()
    first = total(model, probability(context, whole, 0, len(left)))
    second = total(model, probability(context, whole, len(left), len(whole)))
    assert total(model, probability(context, whole, 0, len(whole))) == pytest.approx(first + second, abs=1e-5)
    assert total(model, probability(context, left, 0, len(left))) == pytest.approx(first, abs=1e-5)


@given(text=st.text("ab", min_size=1, max_size=7).map(str.encode))
def test_spellings_are_all_there_are_and_counted(text: bytes) -> None:
    table, words = TOY.token_bytes, vocabulary(TOY)

    def plain(start: int) -> list[tuple[int, ...]]:
        fitting = [t for t, spelled in enumerate(table) if spelled and text[start:].startswith(spelled)]
        inside = [token for token in fitting if start + len(table[token]) < len(text)]
        return [(), *((token, *rest) for token in inside for rest in plain(start + len(table[token])))]

    found = list(all_spellings(words, text))
    assert sorted(spelling for spelling, _ in found) == sorted(plain(0))
    assert all(spelled == len(words.spelled(spelling)) for spelling, spelled in found)
    assert count_spellings(words, text) == len(found)


def test_given_spellings_give_less_and_the_empty_one_the_single_tokens() -> None:
    model, text = ToyModel(), b"aab"
    single, some = (total(model, ByteProbability(ids(6), text, (0, 3), paths)) for paths in (((),), ((), (0,))))
    assert np.exp(single) == pytest.approx(model.row([6])[4], rel=1e-5)
    second = model.row([6])[0] * model.row([6, 0])[2]
    assert np.exp(some) == pytest.approx(model.row([6])[4] + second, rel=1e-5)
    assert single < some < total(model, probability([6], text, 0, 3))


def test_bytes_of_a_byte_model_are_its_tokens() -> None:
    tokenizer = ByteTokenizer()
    question = ByteProbability(ids(256), "né".encode(), (0, 1, 2, 3))
    assert {len(part.context) for part in parts(question, tokenizer) if isinstance(part, Mass)} == {1, 2, 3}
    assert count_spellings(vocabulary(tokenizer), "né".encode()) == 3


def test_what_no_token_spells_is_impossible() -> None:
    asked = [probability([6], b"x", 0, 1), probability([6], b"ax", 0, 1, 2), probability([6], b"a", 0, 1)]
    found = dict(answer_with_bytes(ToyModel().answer, asked, TOY))
    assert found[0].logprobs.tolist() == [-np.inf]
    assert found[1].logprobs[1] == -np.inf
    assert np.isfinite(found[2].logprobs).all()
    ((_, after),) = answer_with_bytes(ToyModel().answer, [probability([6], b"xa", 1, 2)], TOY)
    assert np.isnan(after.logprobs).all()


def test_byte_probabilities_are_answered_with_spans_and_masses_in_bounded_groups(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    calls = []

    class Counting(ToyModel):
        def answer(self, questions):  # type: ignore[no-untyped-def]
            calls.append(len(questions))
            return super().answer(questions)

    def answered() -> dict[int, list[float]]:
        asked = [Span(ids(6), ids(0, 1)), probability([6], b"abab", 0, 4)]
        asked += [Mass(ids(6), TokenSet([1, 2])), probability([6], b"ba", 0, 2)]
        return {index: seen.logprobs.tolist() for index, seen in answer_with_bytes(Counting().answer, asked, TOY)}

    whole = answered()
    assert len(calls) == 1
    monkeypatch.setattr("choicewise.tokens.byte_coverings.PARTS", 3)
    assert answered() == whole
    assert len(calls) > 2


def test_keys_sizes_and_inputs() -> None:
    question = probability([6, 0], b"abab", 1, 2, 4)
    others = [probability([6], b"abab", 1, 2, 4), probability([6, 0], b"abaa", 1, 2, 4)]
    others += [probability([6, 0], b"abab", 1, 4), ByteProbability(ids(6, 0), b"abab", (1, 2, 4), ((),))]
    assert probability([6, 0], b"abab", 1, 2, 4).key == question.key
    keys = {each.key for each in (question, *others)}
    assert len(keys) == 5
    assert without(question, 1).context.tolist() == [0]
    assert question.inputs == 5
    assert ByteProbability(ids(6, 0), b"abab", (0, 4), ((), (0,))).inputs == 3
    assert question.continuation.tolist() == list(b"bab")
    bytes_of, beyond = token_sizes(TOY), len(TOY.token_bytes)

    def sized(asked: Span | ByteProbability, *seen: int) -> list[int]:
        return sizes(asked, TokenScores(ids(*seen), np.empty(0, dtype=np.float32), ids()), bytes_of).tolist()

    assert sized(question) == [1, 2]
    assert sized(Span(ids(6), ids(2)), 2, 6) == sized(Span(ids(6), ids(2)), 2, beyond) == [2, 0]


@given(text=st.binary(max_size=3), table=st.lists(st.binary(max_size=3), min_size=1, max_size=12))
def test_vocabulary_by_its_bytes(text: bytes, table: list[bytes]) -> None:
    words = Vocabulary(ToyTokenizer(table))
    assert words.spelling(text) == [token for token, spelled in enumerate(table) if spelled and spelled == text]
    continuing = [token for token, spelled in enumerate(table) if spelled and spelled.startswith(text)]
    assert words.continuing(text).ids.tolist() == continuing
    assert words.longest == max(map(len, table))
    assert words.spelled(range(len(table))) == b"".join(table)
    starting = {token for token, spelled in enumerate(table) if spelled[:1].isspace()}
    assert set(words.spaced.ids.tolist()) == starting
    assert set(words.unspaced.ids.tolist()) == {token for token, spelled in enumerate(table) if spelled} - starting


WORDS = {(b" a", b"b"): True, (b" ", b"a"): True, (b"a", b"b"): False}
WORDS |= {(b"low ", b"est", b" "): False, (b";\n", b" a"): True}


@pytest.mark.parametrize(("table", "marks"), WORDS.items())
def test_which_tokens_mark_words(table: tuple[bytes, ...], marks: bool) -> None:
    assert Vocabulary(ToyTokenizer(table)).marks_words is marks
    assert vocabulary(TOY) is vocabulary(TOY)
    assert len(table) in Vocabulary(ToyTokenizer([*table, b"", b""], eos=True)).spaced.ids
