"""Boundary policies against a plain reference, spans by their place in the text, and what readings ask of a request."""

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from syrupy.assertion import SnapshotAssertion

from choicewise.data.items import Item
from choicewise.errors import ModelError, ProtocolError
from choicewise.protocols.protocol import BOUNDARIES
from choicewise.questions import Cosine, Ids, MaskedLoss, Span
from choicewise.requests.prompters import PROMPTERS
from choicewise.requests.render import render
from choicewise.tokens.boundary import (
    ChoicePrompt,
    char_spans,
    choice_prompts_batch,
    cut,
    ends_before,
    fit_span,
    package_spans,
)
from choicewise.tokens.encode import Encodings
from choicewise.tokens.tokenizer import ByteTokenizer, Tokenizer, common_prefix
from tests.helpers.hash_models import MergingTokenizer
from tests.helpers.messages import Gist
from tests.helpers.protocols import choice_prompts, mmlu_protocol
from tests.helpers.real_tokenizers import tokenizer_with_bos as tokenizer

POLICIES = ["joint", "separate", "lcp", "last-token", "count", "moved-space"]
TOKENIZERS = [
    "models/stories260K",
    "models/babyllama-tok105",
    "tokenizers/gpt2",
    "tokenizers/mistral-7b-v0.2",
]
SURROGATE_FREE = st.characters(exclude_categories=["Cs"])
TEXT = st.text(st.one_of(st.sampled_from(" \n\tabetho.A你👍"), SURROGATE_FREE), max_size=12)
Pair = tuple[list[int], list[int]]


def plain_reference(
    tokens: Tokenizer, policy: str, bos: str, context: str, choices: Sequence[str]
) -> list[Pair]:
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
        return [
            (start(context), encode(choice)[-1:] if encode(choice, False) else [])
            for choice in choices
        ]
    if policy == "count":
        wholes = [whole(context, choice) for choice in choices]
        return [(ids[: len(start(context))], ids[len(start(context)) :]) for ids in wholes]
    if policy in ("joint", "moved-space"):
        bare = context if policy == "joint" else context.rstrip()
        return [
            (start(bare), whole(bare, context[len(bare) :] + choice)[len(start(bare)) :])
            for choice in choices
        ]
    texts = [start(context), *(whole(context, choice) for choice in choices)]
    columns = enumerate(zip(*texts, strict=False))
    shared = next((n for n, column in columns if len(set(column)) > 1), min(map(len, texts)))
    return [((text[:shared] or start("")), text[shared:]) for text in texts[1:]]


def pairs(asked: Sequence[ChoicePrompt]) -> list[Pair | None]:
    return [
        one.span and (one.span.context.tolist(), one.span.continuation.tolist()) for one in asked
    ]


@pytest.mark.costly("real tokenizers")
@pytest.mark.parametrize("name", [*TOKENIZERS, "bytes"])
@given(
    policy=st.sampled_from(POLICIES),
    bos=st.sampled_from(["default", "none"]),
    context=TEXT | st.sampled_from(["", "<s>", "<s> a", "<|endoftext|>x", "  ", "Answer:\n\n"]),
    choices=st.lists(TEXT | st.sampled_from([" A", "A", "<s>", ""]), min_size=1, max_size=4),
)
@settings(max_examples=60)
def test_spans_equal_the_plain_reference(
    name: str, policy: str, bos: str, context: str, choices: list[str]
) -> None:
    tokens = ByteTokenizer() if name == "bytes" else tokenizer(name)
    asked = choice_prompts(tokens, policy, bos, context, choices, [0])
    expected = plain_reference(tokens, policy, bos, context, choices)
    for one, found, wanted, choice in zip(asked, pairs(asked), expected, choices, strict=True):
        assert (one.missing is None) == (one.span is not None) == (bool(wanted[1]) and choice != "")
        if found is None:
            assert repr(choice)[1:-1] in (one.missing or "")
        else:
            assert found == wanted
            assert one.unknown == wanted[1].count(
                -1 if tokens.unknown_id is None else tokens.unknown_id
            )


@pytest.mark.parametrize("name", TOKENIZERS)
@given(context=TEXT, choices=st.lists(TEXT, min_size=1, max_size=3))
def test_what_the_policies_have_in_common(name: str, context: str, choices: list[str]) -> None:
    """Without a merge lcp is joint where every choice starts apart; joint is then the true tokens of the whole."""
    tokens = tokenizer(name)
    joint, lcp = (
        choice_prompts(tokens, policy, "default", context, choices, [])
        for policy in ("joint", "lcp")
    )
    for one, other, choice in zip(joint, lcp, choices, strict=True):
        if not context or one.span is None:
            continue
        (whole,) = Encodings(tokens, "default").contexts([context + choice])
        assert one.merged == (
            np.concatenate([one.span.context, one.span.continuation]).tolist() != whole.tolist()
        )
        if not any(asked.merged for asked in joint):
            assert pairs([one]) == pairs([other])


@given(context=TEXT, choices=st.lists(TEXT, min_size=1, max_size=3))
def test_joint_equals_separate_without_merges(context: str, choices: list[str]) -> None:
    """Bytes never merge, so nothing but moved white space tells the policies apart."""
    tokens = ByteTokenizer()
    joint, separate, lcp, moved = (
        choice_prompts(tokens, policy, "default", context, choices, [])
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
    empty, _, _ = choice_prompts(
        tokenizer(name), policy, "default", "the hell", ["", "o", " of it"], [0]
    )
    assert empty.span is None
    assert empty.missing == Gist("continuation '' ... no tokens")


def test_spans_batch_shares_contexts_and_encodes_in_few_calls() -> None:
    calls = []

    class Counting(ByteTokenizer):
        def encode(self, texts: Sequence[str], *, special: bool) -> list:
            calls.append(list(texts))
            return super().encode(texts, special=special)

    contexts, choices = [f"question {number}" for number in range(50)], [[" A", " B"]] * 50
    gold = [[number % 2] for number in range(50)]
    asked = choice_prompts_batch(
        Encodings(Counting(), "default"), "separate", contexts, choices, gold
    )
    assert len(calls) <= 6
    assert max(calls, key=len).count("question 1 A") == 1
    for number, (first, second) in enumerate(asked):
        assert first.span.context is second.span.context
        assert (first.span.gold, second.span.gold) == (number % 2 == 0, number % 2 == 1)
        one_by_one = choice_prompts(
            ByteTokenizer(), "separate", "default", contexts[number], choices[number], []
        )
        assert pairs([first, second]) == pairs(one_by_one)


def test_published_boundaries() -> None:
    """GPT-2 and Mistral on the letters of MMLU: one token where the text continues, the dummy space where not."""
    gpt2, mistral = tokenizer("tokenizers/gpt2"), tokenizer("tokenizers/mistral-7b-v0.2")
    for policy, context, choice, expected in (
        ("joint", "Answer:", " A", ([33706, 25], [317])),
        ("joint", "Answer:\n", "A", ([33706, 25, 198], [32])),
        ("moved-space", "Answer:\n\n", "A", ([33706, 25], [198, 198, 32])),
    ):
        assert pairs(choice_prompts(gpt2, policy, "default", context, [choice], [])) == [expected]
    for policy, choice, spelled in (
        ("separate", " A", [b" ", b" A"]),
        ("last-token", "A", [b" A"]),
    ):
        (one,) = choice_prompts(mistral, policy, "default", "Answer:", [choice], [])
        assert [mistral.token_bytes[token] for token in one.span.continuation] == spelled


def test_a_merge_is_flagged_and_lcp_undoes_it() -> None:
    tokens = tokenizer("tokenizers/gpt2")
    joint, other = choice_prompts(tokens, "joint", "default", "the hell", ["o", "fire"], [0])
    assert (joint.merged, joint.span) == (True, None)
    assert "merge" in (joint.missing or "")
    hello, hellfire = choice_prompts(tokens, "lcp", "default", "the hell", ["o", "fire"], [0])
    assert [tokens.decode(one.span.continuation) for one in (hello, hellfire)] == [
        " hello",
        " hellfire",
    ]
    assert other.merged == hellfire.merged


def test_an_unknown_character_stays_without_the_dummy_space() -> None:
    """A line break hides the dummy space; this tokenizer knows neither it nor the characters."""
    tokens = tokenizer("models/babyllama-tok105")
    encodings = Encodings(tokens, "default")
    texts = ["日本", "\tA tab", "日 本", "a日", " 日", "ab"]
    encodings.add_bare(texts)
    encodings.add_plain(texts)
    for text in texts:
        assert encodings.bare[text].tolist() == encodings.plain[text][1:].tolist(), text


def test_bos_is_never_doubled() -> None:
    tokens = tokenizer("models/stories260K")
    for text in ("a", "<s>a", "<s><s>a"):
        (ids,) = Encodings(tokens, "default").contexts([text])
        assert ids.tolist().count(1) == max(1, text.count("<s>"))
    (bare,) = Encodings(tokens, "none").contexts(["a"])
    assert 1 not in bare


def test_an_empty_context_needs_a_prefix_token() -> None:
    tokens = ByteTokenizer()
    assert pairs(choice_prompts(tokens, "joint", "none", "", ["a"], [])) == [([256], [97])]
    tokens.bos_id, tokens.eos_id = None, 7
    assert pairs(choice_prompts(tokens, "separate", "none", "", ["a"], [])) == [([7], [97])]
    tokens.eos_id = None
    with pytest.raises(ModelError, match="BOS nor an EOS"):
        choice_prompts(tokens, "joint", "none", "", ["a"], [])
    with pytest.raises(ProtocolError, match="one of joint, moved-space"):
        choice_prompts(tokens, "guess", "default", "a", ["b"], [])


@pytest.mark.costly("half a second where the first of its file pays for imports")
def test_a_tokenizer_that_appends_is_refused() -> None:
    tokens = tokenizer("tokenizers/bert-base-uncased")
    with pytest.raises(ModelError, match="appends token 102"):
        choice_prompts(tokens, "joint", "default", "a", [" b"], [])
    (asked,) = choice_prompts(tokens, "joint", "none", "a cat", [" 👍"], [])
    assert asked.unknown == 1


def test_count_takes_the_tokens_before_it_from_the_whole_text() -> None:
    """After a merge joint feeds the context's own tokens, count the whole's; both lose the same characters."""
    tokens = tokenizer("models/stories260K")
    texts = ("once upon a time there was", "because something happened")
    for context, choice in (
        (text[:end], text[end:]) for text in texts for end in range(1, len(text))
    ):
        (counted,), (joint,) = (
            choice_prompts(tokens, policy, "default", context, [choice], [])
            for policy in ("count", "joint")
        )
        if counted.merged and counted.span:
            break
    (whole,) = Encodings(tokens, "default").contexts([context + choice])
    assert (
        np.concatenate([counted.span.context, counted.span.continuation]).tolist() == whole.tolist()
    )
    assert (counted.noncanonical, joint.noncanonical) == (False, True)
    assert counted.span.continuation.tolist() == joint.span.continuation.tolist()


@given(st.lists(st.lists(st.integers(0, 2), max_size=6), min_size=1, max_size=4))
def test_common_prefix(sequences: list[list[int]]) -> None:
    found = common_prefix([np.asarray(sequence, dtype=np.int32) for sequence in sequences])
    longest = min(map(len, sequences))
    assert found == max(
        n for n in range(longest + 1) if all(one[:n] == sequences[0][:n] for one in sequences)
    )


def span(context: int, continuation: int) -> ChoicePrompt:
    ids = np.arange(context + continuation, dtype=np.int32)
    return ChoicePrompt(Span(ids[:context], ids[context:], True), True, 3)


@given(context=st.integers(1, 9), continuation=st.integers(1, 9), window=st.integers(1, 12))
def test_fit_span(context: int, continuation: int, window: int) -> None:
    """cut_start keeps the last window + 1 tokens, as the harness does; otherwise it is all or nothing."""
    whole = list(range(context + continuation))
    cut = fit_span(span(context, continuation), window, cut_start=True)
    kept = fit_span(span(context, continuation), window, cut_start=False)
    fits = len(whole) - 1 <= window
    assert (kept.span is not None) == fits
    assert fits or kept.missing == Gist(f"{len(whole) - 1} tokens ... window of {window}")
    if continuation > window:
        assert cut.span is None
        assert "does not fit" in (cut.missing or "")
        return
    assert [*cut.span.context, *cut.span.continuation] == whole[-(window + 1) :]
    assert len(cut.span.continuation) == continuation
    assert cut.tokens_dropped == max(0, len(whole) - window - 1)
    assert (cut.merged, cut.unknown, cut.span.gold) == (True, 3, True)


def test_fit_span_leaves_the_missing_alone() -> None:
    asked = ChoicePrompt(None, missing="why")
    assert fit_span(asked, 2, cut_start=True) is asked


def test_cut() -> None:
    context = np.arange(5, dtype=np.int32)
    for space, left in ((8, 5), (4, 4), (2, 2), (0, 0), (-1, 0)):
        for start, expected in ((False, [*range(left)]), (True, [*range(5 - left, 5)])):
            found, dropped = cut(context, space, start=start)
            assert (found.tolist(), dropped) == (expected, 5 - left)


MERGING = Encodings(MergingTokenizer(b':"'), "default")
SOME_TEXT = st.text(st.characters(codec="utf-8"), min_size=1, max_size=6)


@given(context=SOME_TEXT, continuation=SOME_TEXT)
def test_without_merges_a_char_span_is_the_tokens_of_the_continuation(
    context: str, continuation: str
) -> None:
    asked = char_spans(Encodings(ByteTokenizer(), "default"), context, continuation, True)
    assert asked.span.context.tolist() == [256, *context.encode()]
    assert asked.span.continuation.tolist() == list(continuation.encode())
    assert (asked.merged, asked.span.gold) == (False, True)


@given(context=SOME_TEXT, continuation=st.text("ab cé", min_size=1, max_size=5))
def test_the_package_counts_a_second_bos_and_characters(context: str, continuation: str) -> None:
    asked = package_spans(Encodings(ByteTokenizer(), "default"), context, continuation, None)
    scored, text = asked.span.continuation.tolist(), continuation.encode()
    assert asked.span.context.tolist()[:2] == [
        256,
        256,
    ]  # one BOS is the tokenizer's, one the package's
    # Of a character of several tokens the span begins with the last one, and ends with the first one.
    first, last = (len(char.encode()) for char in (continuation[0], continuation[-1]))
    expected = text[first - 1 :] if len(continuation) == 1 or last == 1 else text[first - 1 : -1]
    assert bytes(scored) == (text[:1] if len(continuation) == 1 else expected)


def test_a_token_across_the_boundary_is_scored_whole_and_flagged() -> None:
    for find, bos in ((char_spans, [257]), (package_spans, [257, 257])):
        asked = find(MERGING, "say:", '"red"', None)
        assert asked.span.context.tolist() == [*bos, *b"say"]
        assert asked.span.continuation.tolist() == [256, *b'red"']
        assert asked.merged


def test_the_package_needs_a_bos_and_both_need_text() -> None:
    tokens = ByteTokenizer()
    tokens.bos_id = None
    refused = package_spans(Encodings(tokens, "none"), "a", "b", None).missing
    assert refused == Gist("surprisal needs a BOS")
    assert all(find(MERGING, "a", "", None).missing for find in (char_spans, package_spans))

    class Deaf(ByteTokenizer):
        def encode(self, texts: list[str], *, special: bool) -> list[Ids]:
            return super().encode([text.lower() for text in texts], special=special)

    asked = char_spans(Encodings(Deaf(), "default"), "a", "B", None)
    assert (asked.span, asked.missing) == (
        None,
        Gist("do not spell 'B'"),
    )


def test_choices_are_asked_one_by_one() -> None:
    red, blue = (
        char_spans(MERGING, "say:", '"red"', False),
        char_spans(MERGING, "say:", " blue", True),
    )
    assert (red.merged, blue.merged, red.span.gold, blue.span.gold) == (True, False, False, True)


def test_ends_before_stands_in_the_place_of_every_token() -> None:
    span = Span(*Encodings(ByteTokenizer(), "none").contexts(["ab", "cd"]))
    found = [(end.context.tolist(), end.continuation.tolist()) for end in ends_before(span, 7)]
    assert found == [([97, 98], [7]), ([97, 98, 99], [7])]


ITEM = Item("1", "Q?", ("w", "x"), (1,))
BASE = {"shots": 0, "choices": None, "question": "{question}\n", "proposal": "Is it {choice}?"}


@pytest.mark.parametrize(
    "axes",
    [
        {"reading": "yes-no", "continuation": " Yes\n No"},
        {"reading": "rating", "continuation": "1\n2\n3"},
        {"reading": "noisy-channel"},
        {"reading": "spellings", "continuation": " {letter}\n({letter}", "proposal": ""},
        {"continuation": " {choice}\n.", "proposal": ""},
        {
            "continuation": " so"
        },  # what is scored may be the same for all, after another proposal each
    ],
)
def test_groups(axes: dict[str, str], snapshot: SnapshotAssertion) -> None:
    protocol = mmlu_protocol(**{**BASE, **axes})
    found = PROMPTERS[protocol.reading].groups(render(protocol, ITEM, ()), "Q?\n")
    assert [f"{group.context!r} {group.continuations} {group.gold}" for group in found] == snapshot
    assert all(group.differs == bool(protocol.proposal) for group in found)
    slots = [slot for group in found for slot in group.slots]
    assert len(set(slots)) == len(slots)


def test_masked_and_pair_are_questions_of_their_own() -> None:
    left, right = Encodings(ByteTokenizer(), "none").contexts(["ab", "cd"])
    span = Span(left, right)
    assert MaskedLoss(span).key != span.key == Span(left, right, True).key
    assert (span.inputs, MaskedLoss(span).inputs, Cosine(left, right).inputs) == (3, 4, 4)
    assert Cosine(left, right).key != Cosine(right, left).key
    assert Cosine(left, right).key == Cosine(left, right, True).key
