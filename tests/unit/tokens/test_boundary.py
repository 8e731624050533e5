"""Boundary policies against a plain reference, with real tokenizers and random texts, and the window behind them."""

from collections.abc import Sequence
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from choicewise.errors import ModelError, ProtocolError
from choicewise.models.local.tokenizer import HfTokenizer
from choicewise.protocols.protocol import BOUNDARIES
from choicewise.questions import Span
from choicewise.tokens.boundary import ChoiceQuestion, choice_questions_batch, cut, fit_span
from choicewise.tokens.encode import Encodings
from choicewise.tokens.tokenizer import ByteTokenizer, Tokenizer, common_prefix
from tests.helpers.protocols import choice_questions
from tests.paths import SHARED

POLICIES = ["joint", "separate", "lcp", "last-token", "count", "moved-space"]
TOKENIZERS = ["models/stories260K", "models/babyllama-tok105", "tokenizers/gpt2", "tokenizers/mistral-7b-v0.2"]
SURROGATE_FREE = st.characters(exclude_categories=["Cs"])
TEXT = st.text(st.one_of(st.sampled_from(" \n\tabetho.A你👍"), SURROGATE_FREE), max_size=12)
Pair = tuple[list[int], list[int]]


@cache
def tokenizer(name: str) -> Tokenizer:
    if name == "bytes":
        return ByteTokenizer()
    if not SHARED.is_dir():
        pytest.skip(f"no shared data at {SHARED}")
    pytest.importorskip("tokenizers")
    found = HfTokenizer(SHARED / name)
    if name.startswith("tokenizers/"):  # these folders name no special tokens
        found.bos_id = {"gpt2": 50256}.get(name.split("/")[1], 1)
    return found


def plain_reference(tokens: Tokenizer, policy: str, bos: str, context: str, choices: Sequence[str]) -> list[Pair]:
    """(context, continuation) ids one choice at a time, straight from the definitions."""

    def encode(text: str, special: bool = bos == "default") -> list[int]:
        ids = tokens.encode([text], special=special)[0].tolist()
        return encode(text, False) if special and ids[:2] == [tokens.bos_id] * 2 else ids

    def start(text: str) -> list[int]:
        return (encode(text) if text else []) or [tokens.bos_id or tokens.eos_id]

    def whole(before: str, after: str) -> list[int]:
        ids = encode(before + after) if before else encode(after, False)
        lacks_prefix = not (before and encode(before)) and ids[:1] != start("")
        return start("") + ids if lacks_prefix else ids

    if policy == "separate":
        return [(start(context), encode(choice, False)) for choice in choices]
    if policy == "last-token":
        return [(start(context), encode(choice)[-1:] if encode(choice, False) else []) for choice in choices]
    if policy == "count":
        wholes = [whole(context, choice) for choice in choices]
        return [(ids[: len(start(context))], ids[len(start(context)) :]) for ids in wholes]
    if policy in ("joint", "moved-space"):
        bare = context if policy == "joint" else context.rstrip()
        return [(start(bare), whole(bare, context[len(bare) :] + choice)[len(start(bare)) :]) for choice in choices]
    texts = [start(context), *(whole(context, choice) for choice in choices)]
    shared = next(
        (n for n, column in enumerate(zip(*texts, strict=False)) if len(set(column)) > 1), min(map(len, texts))
    )
    return [((text[:shared] or start("")), text[shared:]) for text in texts[1:]]


def pairs(asked: Sequence[ChoiceQuestion]) -> list[Pair | None]:
    return [one.span and (one.span.context.tolist(), one.span.continuation.tolist()) for one in asked]


@pytest.mark.costly("real tokenizers")
@pytest.mark.parametrize("name", [*TOKENIZERS, "bytes"])
@given(
    policy=st.sampled_from(POLICIES),
    bos=st.sampled_from(["default", "none"]),
    context=TEXT | st.sampled_from(["", "<s>", "<s> a", "<|endoftext|>x", "  ", "Answer:\n\n"]),
    choices=st.lists(TEXT | st.sampled_from([" A", "A", "<s>", ""]), min_size=1, max_size=4),
)
@settings(deadline=None, max_examples=60)
def test_spans_equal_the_plain_reference(name: str, policy: str, bos: str, context: str, choices: list[str]) -> None:
    tokens = tokenizer(name)
    asked = choice_questions(tokens, policy, bos, context, choices, [0])
    expected = plain_reference(tokens, policy, bos, context, choices)
    for one, found, wanted, choice in zip(asked, pairs(asked), expected, choices, strict=True):
        assert (one.missing is None) == (one.span is not None) == (bool(wanted[1]) and choice != "")
        if found is None:
            assert repr(choice)[1:-1] in (one.missing or "")
        else:
            assert found == wanted
            assert one.unknown == wanted[1].count(-1 if tokens.unknown_id is None else tokens.unknown_id)


@pytest.mark.parametrize("name", TOKENIZERS)
@given(context=TEXT, choices=st.lists(TEXT, min_size=1, max_size=3))
@settings(deadline=None, max_examples=30)
def test_what_the_policies_have_in_common(name: str, context: str, choices: list[str]) -> None:
    """Without a merge lcp is joint where every choice starts apart; joint is then the true tokens of the whole."""
    tokens = tokenizer(name)
    joint = choice_questions(tokens, "joint", "default", context, choices, [])
    lcp = choice_questions(tokens, "lcp", "default", context, choices, [])
    for one, other, choice in zip(joint, lcp, choices, strict=True):
        if not context or one.span is None:
            continue
        (whole,) = Encodings(tokens, "default").contexts([context + choice])
        assert one.merged == (np.concatenate([one.span.context, one.span.continuation]).tolist() != whole.tolist())
        if not any(asked.merged for asked in joint):
            assert pairs([one]) == pairs([other])


@pytest.mark.costly("real tokenizers")
@given(context=TEXT, choices=st.lists(TEXT, min_size=1, max_size=3))
def test_joint_equals_separate_without_merges(context: str, choices: list[str]) -> None:
    """Bytes never merge, so nothing but moved white space tells the policies apart."""
    tokens = ByteTokenizer()
    joint, separate, lcp, moved = (
        choice_questions(tokens, policy, "default", context, choices, [])
        for policy in ("joint", "separate", "lcp", "moved-space")
    )
    assert not any(asked.merged for asked in (*joint, *separate, *lcp, *moved))
    assert pairs(joint) == pairs(separate) == pairs(lcp)
    assert pairs(moved) == pairs(joint) or context != context.rstrip()


@pytest.mark.parametrize("policy", BOUNDARIES)
@pytest.mark.parametrize("name", TOKENIZERS)
def test_an_empty_choice_leaves_nothing_to_score(name: str, policy: str) -> None:
    """Not the BOS, nor the end of a context that a token straddles."""
    if policy == "word" and name.endswith("babyllama-tok105"):
        pytest.skip("the tokens of a character vocabulary mark no words")
    empty, _, _ = choice_questions(tokenizer(name), policy, "default", "the hell", ["", "o", " of it"], [0])
    assert empty.span is None
    assert empty.missing == "continuation '' leaves nothing to score: it has no tokens"


def test_spans_batch_shares_contexts_and_encodes_in_few_calls() -> None:
    calls = []

    class Counting(ByteTokenizer):
        def encode(self, texts: Sequence[str], *, special: bool) -> list:
            calls.append(list(texts))
            return super().encode(texts, special=special)

    contexts, choices = [f"question {number}" for number in range(50)], [[" A", " B"]] * 50
    asked = choice_questions_batch(
        Encodings(Counting(), "default"), "separate", contexts, choices, [[number % 2] for number in range(50)]
    )
    assert len(calls) <= 6
    assert max(calls, key=len).count("question 1 A") == 1
    for number, (first, second) in enumerate(asked):
        assert first.span
        assert second.span
        assert first.span.context is second.span.context
        assert (first.span.gold, second.span.gold) == (number % 2 == 0, number % 2 == 1)
    one_by_one = [
        choice_questions(ByteTokenizer(), "separate", "default", *rest, [])
        for rest in zip(contexts, choices, strict=True)
    ]
    assert [pairs(request) for request in asked] == [pairs(request) for request in one_by_one]


def test_published_boundaries() -> None:
    """GPT-2 and Mistral on the letters of MMLU: one token where the text continues, the dummy space where not."""
    gpt2, mistral = tokenizer("tokenizers/gpt2"), tokenizer("tokenizers/mistral-7b-v0.2")
    (joint,) = pairs(choice_questions(gpt2, "joint", "default", "Answer:", [" A"], []))
    assert joint == ([33706, 25], [317])
    (joint,) = pairs(choice_questions(gpt2, "joint", "default", "Answer:\n", ["A"], []))
    assert joint == ([33706, 25, 198], [32])
    (moved,) = pairs(choice_questions(gpt2, "moved-space", "default", "Answer:\n\n", ["A"], []))
    assert moved == ([33706, 25], [198, 198, 32])
    (separate,) = choice_questions(mistral, "separate", "default", "Answer:", [" A"], [])
    assert separate.span
    assert [mistral.token_bytes[token] for token in separate.span.continuation] == [b" ", b" A"]
    (last,) = choice_questions(mistral, "last-token", "default", "Answer:", ["A"], [])
    assert last.span
    assert [mistral.token_bytes[token] for token in last.span.continuation] == [b" A"]


def test_a_merge_is_flagged_and_lcp_undoes_it() -> None:
    tokens = tokenizer("tokenizers/gpt2")
    joint, other = choice_questions(tokens, "joint", "default", "the hell", ["o", "fire"], [0])
    assert joint.merged
    assert joint.span is None
    assert "merge" in (joint.missing or "")
    hello, hellfire = choice_questions(tokens, "lcp", "default", "the hell", ["o", "fire"], [0])
    assert hello.span
    assert hellfire.span
    assert tokens.decode(hello.span.continuation) == " hello"
    assert tokens.decode(hellfire.span.continuation) == " hellfire"
    assert other.merged == hellfire.merged


def test_bos_is_never_doubled() -> None:
    tokens = tokenizer("models/stories260K")
    for text in ("a", "<s>a", "<s><s>a"):
        (ids,) = Encodings(tokens, "default").contexts([text])
        assert ids.tolist().count(1) == max(1, text.count("<s>"))
    (bare,) = Encodings(tokens, "none").contexts(["a"])
    assert 1 not in bare


def test_an_empty_context_needs_a_prefix_token() -> None:
    tokens = ByteTokenizer()
    assert pairs(choice_questions(tokens, "joint", "none", "", ["a"], [])) == [([256], [97])]
    tokens.bos_id, tokens.eos_id = None, 7
    assert pairs(choice_questions(tokens, "separate", "none", "", ["a"], [])) == [([7], [97])]
    tokens.eos_id = None
    with pytest.raises(ModelError, match="neither a BOS nor an EOS"):
        choice_questions(tokens, "joint", "none", "", ["a"], [])


def test_a_tokenizer_that_appends_is_refused() -> None:
    tokens = tokenizer("tokenizers/bert-base-uncased")
    with pytest.raises(ModelError, match="appends token 102"):
        choice_questions(tokens, "joint", "default", "a", [" b"], [])
    (asked,) = choice_questions(tokens, "joint", "none", "a cat", [" 👍"], [])
    assert asked.unknown == 1


def test_count_takes_the_tokens_before_it_from_the_whole_text() -> None:
    """After a merge joint feeds the context's own tokens, count the whole's; both lose the same characters."""
    tokens = tokenizer("models/stories260K")
    context, choice = next(
        (text[:cut], text[cut:])
        for text in ("once upon a time there was", "because something happened")
        for cut in range(1, len(text))
        if (asked := choice_questions(tokens, "count", "default", text[:cut], [text[cut:]], [])[0]).merged
        and asked.span
    )
    (counted,), (joint,) = (
        choice_questions(tokens, policy, "default", context, [choice], []) for policy in ("count", "joint")
    )
    assert counted.span is not None
    assert joint.span is not None
    (whole,) = Encodings(tokens, "default").contexts([context + choice])
    assert np.concatenate([counted.span.context, counted.span.continuation]).tolist() == whole.tolist()
    assert not counted.noncanonical
    assert joint.noncanonical
    assert counted.span.continuation.tolist() == joint.span.continuation.tolist()


def test_an_unknown_policy_is_refused() -> None:
    with pytest.raises(ProtocolError, match="it must be one of joint, moved-space"):
        choice_questions(ByteTokenizer(), "guess", "default", "a", ["b"], [])


@given(st.lists(st.lists(st.integers(0, 2), max_size=6), min_size=1, max_size=4))
def test_common_prefix(sequences: list[list[int]]) -> None:
    found = common_prefix([np.asarray(sequence, dtype=np.int32) for sequence in sequences])
    longest = min(map(len, sequences))
    expected = max(n for n in range(longest + 1) if all(one[:n] == sequences[0][:n] for one in sequences))
    assert found == expected


def span(context: int, continuation: int) -> ChoiceQuestion:
    ids = np.arange(context + continuation, dtype=np.int32)
    return ChoiceQuestion(Span(ids[:context], ids[context:], True), True, 3)


@given(context=st.integers(1, 9), continuation=st.integers(1, 9), window=st.integers(1, 12))
def test_fit_span(context: int, continuation: int, window: int) -> None:
    """cut_start keeps the last window + 1 tokens, as the harness does; otherwise it is all or nothing."""
    whole = list(range(context + continuation))
    cut = fit_span(span(context, continuation), window, cut_start=True)
    kept = fit_span(span(context, continuation), window, cut_start=False)
    fits = len(whole) - 1 <= window
    assert (kept.span is not None) == fits
    assert fits or kept.missing == f"{len(whole) - 1} tokens do not fit the window of {window}"
    if continuation > window:
        assert cut.span is None
        assert "does not fit" in (cut.missing or "")
        return
    assert cut.span
    assert [*cut.span.context, *cut.span.continuation] == whole[-(window + 1) :]
    assert len(cut.span.continuation) == continuation
    assert cut.tokens_dropped == max(0, len(whole) - window - 1)
    assert (cut.merged, cut.unknown, cut.span.gold) == (True, 3, True)


def test_fit_span_leaves_the_missing_alone() -> None:
    asked = ChoiceQuestion(None, missing="why")
    assert fit_span(asked, 2, cut_start=True) is asked


@pytest.mark.parametrize(("limit", "kept"), [(9, 5), (5, 4), (3, 2), (1, 0), (0, 0)])
def test_cut_end(limit: int, kept: int) -> None:
    context = np.arange(5, dtype=np.int32)
    found, dropped = cut(context, limit - 1, start=False)
    assert found.tolist() == list(range(kept))
    assert dropped == 5 - kept
