"""Questions in shards: each of them once, nearly no token twice, and the same shards whoever answers them."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from choicewise.engine import DEVICE_TOKENS, SERVER, SHARD_TOKENS, SHARE, cut_shards, shard_tokens
from choicewise.questions import Conclusion, Cosine, Generation, MaskedLoss, Mass, Span, TokenSet
from choicewise.requests.request import BlockQuestion
from choicewise.running.plan import unique_tokens
from choicewise.tokens.tokenizer import ByteTokenizer
from tests.helpers.answers import ids

LETTERS = TokenSet([1, 2])


tokens = st.lists(st.integers(0, 2), min_size=1, max_size=6).map(lambda drawn: ids(*drawn))
spans = st.builds(Span, tokens, tokens)
generations = st.builds(Generation, tokens, st.integers(1, 4))
questions = st.one_of(
    spans,
    st.builds(Mass, tokens, st.just(LETTERS)),
    generations,
    st.builds(Conclusion, generations, spans),
    st.builds(MaskedLoss, spans),
    st.builds(Cosine, tokens, tokens),
)


def by_key(asked: list[BlockQuestion]) -> dict[str, BlockQuestion]:
    return {question.key: question for question in asked}


@given(st.lists(questions, max_size=30), st.integers(1, 60))
def test_every_question_is_in_exactly_one_shard(asked: list[BlockQuestion], size: int) -> None:
    wanted = by_key(asked)
    shards = list(cut_shards(wanted, size))
    keys = [key for shard in shards for key in shard]
    assert sorted(keys) == sorted(wanted)
    assert all(shard and all(wanted[key] is question for key, question in shard.items()) for shard in shards)


@given(st.lists(questions, max_size=30), st.integers(1, 60), st.randoms(use_true_random=False))
def test_shards_follow_from_the_questions_and_not_from_their_order(
    asked: list[BlockQuestion], size: int, random: object
) -> None:
    wanted = by_key(asked)
    shuffled = list(wanted.items())
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    one, other = (list(cut_shards(each, size)) for each in (wanted, dict(shuffled)))
    assert [set(shard) for shard in one] == [set(shard) for shard in other]


@given(st.lists(generations, min_size=1, max_size=12), st.lists(spans, max_size=12), st.integers(1, 20))
def test_what_follows_a_generation_is_in_its_shard(generated: list[Generation], spans: list[Span], size: int) -> None:
    after = [Conclusion(generated[place % len(generated)], span) for place, span in enumerate(spans)]
    shards = list(cut_shards(by_key([*generated, *after]), size))
    place = {key: number for number, shard in enumerate(shards) for key in shard}
    assert all(place[question.key] == place[question.generation.key] for question in after)


@settings(max_examples=80)
@given(st.lists(st.integers(1, 300), min_size=1, max_size=60), st.integers(1, 200), st.integers(50, 400))
def test_a_cut_computes_hardly_anything_twice(texts: list[int], header: int, size: int) -> None:
    """Questions after a common header: what is computed over all shards, against the tree of all of them."""
    shared = np.zeros(header, dtype=np.int32)
    asked = [
        Span(np.concatenate([shared, np.full(length, place, dtype=np.int32)]), ids(7, 8))
        for place, length in enumerate(texts, 1)
    ]
    shards = [list(shard.values()) for shard in cut_shards(by_key(asked), size)]  # type: ignore[arg-type]
    computed = [unique_tokens(shard, ByteTokenizer()) for shard in shards]
    assert sum(computed) <= unique_tokens(asked, ByteTokenizer()) * (1 + 1 / SHARE) + 1
    for before, _ in pairwise(computed):
        assert before >= size, "only the last shard is short"


def test_long_work_is_cut_and_neither_short_work_nor_a_long_common_context_for_a_few_questions() -> None:
    asked = by_key([Span(np.full(50, place, dtype=np.int32), ids(1)) for place in range(100)])
    sizes = [len(shard) for shard in cut_shards(asked, 1000)]
    assert sizes == [20, 20, 20, 20, 20]
    assert len(list(cut_shards(asked, 5000))) == 1
    assert len(list(cut_shards(asked, None))) == 1
    assert list(cut_shards({}, 10)) == []
    header = np.zeros(1000, dtype=np.int32)
    asked = by_key([Span(np.concatenate([header, ids(place, place, place)]), ids(1)) for place in range(100)])
    assert len(list(cut_shards(asked, 200))) == 1


@pytest.mark.parametrize(
    ("device", "size"),
    [("cpu", SHARD_TOKENS["cpu"]), ("cuda:1", DEVICE_TOKENS), ("cuda", DEVICE_TOKENS), (SERVER, None)],
)
def test_a_shard_is_as_long_as_suits_the_device(device: str, size: int | None) -> None:
    assert shard_tokens(device) == size
