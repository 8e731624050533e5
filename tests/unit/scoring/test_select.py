"""SGLang's select: which tokens it scores, and its numbers by hand from the code of its front end."""

import math
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from choicewise.errors import ProtocolError
from choicewise.protocols.readings import SELECT as NAMES
from choicewise.questions import Ids
from choicewise.scoring.combine import (
    SELECT,
    greedy_token_selection,
    token_length_normalized,
    token_length_normalized_with_prompt,
    unconditional_likelihood_normalized,
)
from choicewise.scoring.observed import Continuations
from choicewise.tokens.boundary import select_spans
from choicewise.tokens.encode import Encodings
from choicewise.tokens.tokenizer import ByteTokenizer
from tests.helpers.observed import Row, continuations, row
from tests.helpers.protocols import mmlu_protocol


class Merging(ByteTokenizer):
    """Bytes, but for one pair of letters that is a token where it stands in a text."""

    def __init__(self, pair: str, bos: bool = True) -> None:
        super().__init__()
        self._pair, self._bos = pair, bos
        self.token_bytes = [*self.token_bytes, pair.encode()]

    def encode(self, texts: list[str], *, special: bool) -> list[Ids]:
        """Bytes around the merged pair, behind a BOS when ``special``."""
        start = [256] if special and self._bos else []
        found = []
        for text in texts:
            ids = list(start)
            for number, part in enumerate(text.split(self._pair)):
                ids += [257] * (number > 0) + list(part.encode())
            found.append(np.asarray(ids, dtype=np.int32))
        return found


def texts(tokenizer: Merging | ByteTokenizer, ids: Ids) -> list[bytes]:
    return [tokenizer.token_bytes[token] for token in ids.tolist()]


def test_select_spans_takes_the_prompts_last_token_away_again() -> None:
    tokens = ByteTokenizer()
    asked = select_spans(Encodings(tokens, "default"), "ab", "cd", True)
    assert asked.span is not None
    assert texts(tokens, asked.span.context) == [b"", b"a", b"b"]
    assert texts(tokens, asked.span.continuation) == [b"c", b"d"]
    removed, alone = asked.parts
    assert removed is not None
    assert alone is not None
    assert (texts(tokens, removed.context), texts(tokens, removed.continuation)) == ([b"", b"a"], [b"b"])
    assert (texts(tokens, alone.context), texts(tokens, alone.continuation)) == ([b"c"], [b"d"])
    assert (asked.merged, asked.bos, asked.span.gold) == (False, 1, True)
    assert select_spans(Encodings(tokens, "default"), "ab", "c", None).parts[1] is None


def test_select_spans_scores_a_healed_token() -> None:
    tokens = Merging("bc")
    asked = select_spans(Encodings(tokens, "default"), "ab", "cd", None)
    assert asked.span is not None
    assert texts(tokens, asked.span.continuation) == [b"bc", b"d"]
    assert asked.parts[0] is None
    assert asked.merged


def test_select_spans_scores_the_end_of_a_character_again() -> None:
    """The last byte of the Chinese character decodes to no text that the prompt could end with."""
    asked = select_spans(Encodings(ByteTokenizer(), "default"), "你", "b", None)
    assert asked.span is not None
    assert asked.span.continuation.tolist() == ["你".encode()[-1], ord("b")]
    assert not asked.merged


@pytest.mark.parametrize(
    ("context", "continuation", "message"),
    [
        ("xab", "", "leaves select no token"),
        ("xyb", "c", None),
        ("x", "yz", "too short for select"),
    ],
)
def test_select_spans_says_where_select_stops(context: str, continuation: str, message: str | None) -> None:
    asked = select_spans(Encodings(Merging("bc", bos=False), "default"), context, continuation, None)
    assert (asked.span is None) == (message is not None)
    assert (message or "") in (asked.missing or "")


def test_select_spans_goes_back_no_further_than_the_second_token() -> None:
    """The server has no number for the first token, and nothing is taken away where the prompt does not end with it."""
    asked = select_spans(Encodings(Merging("bc", bos=False), "default"), "ab", "d", None)
    assert asked.span is not None
    assert asked.span.continuation.tolist() == [ord("b"), ord("d")]
    after_bos = select_spans(Encodings(ByteTokenizer(), "default"), "", "cd", None)
    assert after_bos.span is not None
    assert after_bos.span.continuation.tolist() == [ord("c"), ord("d")]


def by_hand(items: list[list[tuple[list[float], float | None, list[float]]]]) -> list[Continuations]:
    """Parts from (scored, removed, unconditional from the second token on) of every choice."""
    return [
        continuations([[row(" x", *choice[0]) for choice in item] for item in items]),
        continuations(
            [[row("", choice[1]) if choice[1] is not None else Row("") for choice in item] for item in items]
        ),
        continuations([[row("", *choice[2]) for choice in item] for item in items]),
    ]


def test_the_numbers_of_select_by_hand() -> None:
    """lang/choices.py@28f6866d and compute_normalized_prompt_logprobs on fixed log-probabilities."""
    parts = by_hand(
        [
            [
                ([-1.0, -3.0], -0.5, [-2.0]),  # nothing exactly 0: the plain mean
                ([-1.0, 0.0], -0.5, [-2.0]),  # one 0: mean of two numbers times three, less the prompt's
                ([-4.0, 0.0, -2.0], None, [0.0, -1.0]),  # healed
                ([0.0], None, []),  # nothing but 0: select divides by zero
            ]
        ]
    )
    normalized = token_length_normalized(parts)
    assert normalized[:3].tolist() == [-2.0, (-1.5 / 2 * 3 + 0.5) / 2, -3.0]
    assert math.isnan(normalized[3])
    with_prompt = token_length_normalized_with_prompt(parts)
    assert with_prompt[:3].tolist() == [-1.5, -0.75, -3.0]
    unconditional = unconditional_likelihood_normalized(parts)
    assert unconditional.tolist() == [-1.0, 0.5, (-6.0 + 1.0) / 3, 0.0]


def test_greedy_token_selection_pads_short_choices_with_their_mean() -> None:
    """The first two share the best first number; the short one goes on as -2 against -1.5, and loses."""
    parts = by_hand([[([-1.0, -3.0], None, []), ([-1.0, -3.0, -1.5], None, []), ([-2.0, 0.0], None, [])]])
    assert greedy_token_selection(parts).tolist() == [0.0, 1.0, 0.0]
    same = by_hand([[([-1.0], None, []), ([-1.0, -1.0], None, [])], [([-1.0], None, []), ([], None, [])]])
    assert greedy_token_selection(same)[:2].tolist() == [1.0, 1.0]
    assert np.isnan(greedy_token_selection(same)[2:]).all()


LOGPROBS = st.one_of(st.just(0.0), st.floats(-20, 0, width=16))
CHOICES = st.lists(
    st.tuples(st.lists(LOGPROBS, min_size=1, max_size=4), st.one_of(st.none(), LOGPROBS), st.just([])),
    min_size=1,
    max_size=4,
)


@given(st.lists(CHOICES, min_size=1, max_size=3))
def test_select_equals_the_plain_reference(items: list[list[tuple[list[float], float | None, list[float]]]]) -> None:
    parts = by_hand(items)
    found = {name: function(parts) for name, function in SELECT.items()}
    choices = [choice for item in items for choice in item]
    for index, (scored, removed, _) in enumerate(choices):
        entries = ([] if removed is None else [removed]) + scored
        values = [value for value in entries if value]
        mean = sum(values) / len(values) if values else math.nan
        taken = mean if removed is None else (mean * len(entries) - removed) / (len(entries) - 1)
        assert found["token_length_normalized"][index] == pytest.approx(taken, nan_ok=True, abs=1e-9)
        assert found["token_length_normalized_with_prompt"][index] == pytest.approx(mean, nan_ok=True, abs=1e-9)
    offsets = np.cumsum([0, *map(len, items)]).tolist()
    for item, (start, end) in zip(items, pairwise(offsets), strict=True):
        assert found["greedy_token_selection"][start:end].tolist() == plain_greedy([scored for scored, _, _ in item])


def plain_greedy(item: list[list[float]]) -> list[float]:
    left = list(range(len(item)))
    for place in range(max(map(len, item))):
        at = {i: item[i][place] if place < len(item[i]) else sum(item[i]) / len(item[i]) for i in left}
        left = [i for i in left if at[i] == max(at.values())]
    return [float(i in left) for i in range(len(item))]


def test_the_reading_knows_every_number_of_select() -> None:
    assert tuple(SELECT) == NAMES
    with pytest.raises(ProtocolError, match="or refuse, not cut-start"):
        mmlu_protocol(reading="select", score="token_length_normalized", fit="cut-start")
