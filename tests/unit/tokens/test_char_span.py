"""Spans by their place in the text, and what the readings ask of one request."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from choicewise.data.items import Item
from choicewise.questions import Cosine, Ids, MaskedLoss, Span
from choicewise.requests.ask import ASKERS, ChoiceAsker
from choicewise.requests.render import render
from choicewise.tokens.boundary import char_spans, ends_before, package_spans
from choicewise.tokens.encode import Encodings
from choicewise.tokens.tokenizer import ByteTokenizer
from tests.helpers.protocols import mmlu_protocol


class Merging(ByteTokenizer):
    """Bytes, and 257 for a colon with a quotation mark."""

    def __init__(self, bos: int | None = 256) -> None:
        super().__init__()
        self.token_bytes = [*self.token_bytes, b':"']
        self.bos_id = bos

    def encode(self, texts: list[str], *, special: bool) -> list[Ids]:
        found = []
        for text in texts:
            parts = [list(part.encode()) for part in text.split(':"')]
            tokens = [256] * (special and self.bos_id is not None) + parts[0]
            for part in parts[1:]:
                tokens += [257, *part]
            found.append(np.asarray(tokens, dtype=np.int32))
        return found


TEXT = st.text(st.characters(codec="utf-8"), min_size=1, max_size=6)


@given(context=TEXT, continuation=TEXT)
def test_without_merges_a_char_span_is_the_tokens_of_the_continuation(context: str, continuation: str) -> None:
    asked = char_spans(Encodings(ByteTokenizer(), "default"), context, continuation, True)
    assert asked.span is not None
    assert asked.span.context.tolist() == [256, *context.encode()]
    assert asked.span.continuation.tolist() == list(continuation.encode())
    assert (asked.merged, asked.span.gold) == (False, True)


@given(context=TEXT, continuation=st.text("ab cé", min_size=1, max_size=5))
def test_the_package_counts_a_second_bos_and_characters(context: str, continuation: str) -> None:
    asked = package_spans(Encodings(ByteTokenizer(), "default"), context, continuation, None)
    assert asked.span is not None
    scored, text = asked.span.continuation.tolist(), continuation.encode()
    assert asked.span.context.tolist()[:2] == [256, 256]  # one BOS is the tokenizer's, one the package's
    # Of a character of several tokens the span begins with the last one, and ends with the first one.
    first, last = (len(char.encode()) for char in (continuation[0], continuation[-1]))
    expected = text[first - 1 :] if len(continuation) == 1 or last == 1 else text[first - 1 : -1]
    assert bytes(scored) == (text[:1] if len(continuation) == 1 else expected)


def test_a_token_across_the_boundary_is_scored_whole_and_flagged() -> None:
    for find, bos in ((char_spans, [256]), (package_spans, [256, 256])):
        asked = find(Encodings(Merging(), "default"), "say:", '"red"', None)
        assert asked.span is not None
        assert asked.span.context.tolist() == [*bos, *b"say"]
        assert asked.span.continuation.tolist() == [257, *b'red"']
        assert asked.merged


def test_the_package_needs_a_bos_and_both_need_text() -> None:
    assert package_spans(Encodings(Merging(None), "default"), "a", "b", None).missing == (
        "the package surprisal needs a BOS, and the tokenizer names none"
    )
    for find in (char_spans, package_spans):
        assert find(Encodings(Merging(), "default"), "a", "", None).missing

    class Deaf(ByteTokenizer):
        def encode(self, texts: list[str], *, special: bool) -> list[Ids]:
            return super().encode([text.lower() for text in texts], special=special)

    asked = char_spans(Encodings(Deaf(), "default"), "a", "B", None)
    assert (asked.span, asked.missing) == (None, "the tokens do not spell 'B', so it has no character span")


def test_choices_are_asked_one_by_one() -> None:
    red = char_spans(Encodings(Merging(), "default"), "say:", '"red"', False)
    blue = char_spans(Encodings(Merging(), "default"), "say:", " blue", True)
    assert red.span is not None
    assert blue.span is not None
    assert (red.merged, blue.merged, red.span.gold, blue.span.gold) == (True, False, False, True)


def test_ends_before_stands_in_the_place_of_every_token() -> None:
    span = Span(*Encodings(ByteTokenizer(), "none").contexts(["ab", "cd"]))
    assert [(end.context.tolist(), end.continuation.tolist()) for end in ends_before(span, 7)] == [
        ([97, 98], [7]),
        ([97, 98, 99], [7]),
    ]


ITEM = Item("1", "Q?", ("w", "x"), (1,))
BASE = {"shots": 0, "choices": None, "question": "{question}\n", "proposal": "Is it {choice}?"}


@pytest.mark.parametrize(
    ("axes", "expected"),
    [
        (
            {"reading": "yes-no", "continuation": " Yes\n No"},
            [("Q?\nIs it w?", (" Yes", " No"), (1,)), ("Q?\nIs it x?", (" Yes", " No"), (0,))],
        ),
        (
            {"reading": "rating", "continuation": "1\n2\n3"},
            [("Q?\nIs it w?", ("1", "2", "3"), (0,)), ("Q?\nIs it x?", ("1", "2", "3"), (2,))],
        ),
        ({"reading": "noisy-channel"}, [("Is it w?", ("Q?\n",), ()), ("Is it x?", ("Q?\n",), (0,))]),
        (
            {"reading": "spellings", "continuation": " {letter}\n({letter}", "proposal": ""},
            [("Q?\n", (" A", "(A", " B", "(B"), (2, 3))],
        ),
        ({"continuation": " {choice}\n.", "proposal": ""}, [("Q?\n", (" w\n.", " x\n."), (1,))]),
        (
            {"continuation": " so"},  # what is scored may be the same for all, after another proposal each
            [("Q?\nIs it w?", (" so",), ()), ("Q?\nIs it x?", (" so",), (0,))],
        ),
    ],
)
def test_groups(axes: dict[str, str], expected: list[tuple[str, tuple[str, ...], tuple[int, ...]]]) -> None:
    protocol = mmlu_protocol(**{**BASE, **axes})
    asking = ASKERS[protocol.reading]
    assert isinstance(asking, ChoiceAsker)
    found = asking.groups(render(protocol, ITEM, ()), "Q?\n")
    assert [(group.context, group.continuations, group.gold) for group in found] == expected
    assert all(group.own == bool(protocol.proposal) for group in found)
    places = [place for group in found for place in group.places]
    assert len(set(places)) == len(places)


def test_masked_and_pair_are_questions_of_their_own() -> None:
    left, right = Encodings(ByteTokenizer(), "none").contexts(["ab", "cd"])
    span = Span(left, right)
    assert MaskedLoss(span).key != span.key == Span(left, right, True).key
    assert (span.inputs, MaskedLoss(span).inputs, Cosine(left, right).inputs) == (3, 4, 4)
    assert Cosine(left, right).key != Cosine(right, left).key
    assert Cosine(left, right).key == Cosine(left, right, True).key
