"""What is scored after a null context: the same text as after the question, but for a space that moved."""

import re
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from itertools import pairwise
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from choicewise.data.items import Item
from choicewise.errors import ModelError
from choicewise.protocols.catalogue import resolve
from choicewise.protocols.protocol import BOUNDARIES, Protocol
from choicewise.records import SpanRow
from choicewise.requests import ask as choices_module
from choicewise.requests.ask import OTHER_TEXT, add_null, add_requests
from choicewise.requests.render import render
from choicewise.requests.request import PreparedBlock
from choicewise.tokens.byte_coverings import ByteProbability
from choicewise.tokens.tokenizer import ByteTokenizer, Tokenizer
from tests.helpers.real_tokenizers import tokenizer_with_bos
from tests.helpers.toy_tokenizers import WORDS, ToyTokenizer

TOKENIZERS = [
    *("models/stories260K", "models/babyllama-tok105", "tokenizers/gpt2", "tokenizers/gpt-neox-20b"),
    *("tokenizers/mistral-7b-v0.2", "bytes", "toy", "toy words"),
]
TEXT = st.text(" \nabehlot.A你", min_size=1, max_size=8)
PLAIN = {"question": "{question}", "option": "", "answer": "", "continuation": "{choice}", "separator": ""}


@cache
def tokenizer(name: str) -> Tokenizer:
    if name in ("toy", "toy words"):
        return ToyTokenizer(TOYS if name == "toy" else WORDS)
    return ByteTokenizer() if name == "bytes" else tokenizer_with_bos(name)


TOYS = (b" ", b"\n", b"a", b"b", b"ab", b" a", b"ba", b"aab", b"")


WHO = Item("1", "Who?", ("the cat", "a hat"), (0,))


def recipe(null: str, **axes: object) -> Protocol:
    shared = {"benchmark": "any", "choices": None, "shots": 0, "shot_split": None, "sampler": "none", "score": "pmi"}
    return Protocol(**{**shared, **PLAIN, "null": null, **axes})


def asked(tokens: Tokenizer, protocol: Protocol, items: Sequence[Item], window: int = 1000) -> PreparedBlock:
    block, model = PreparedBlock(), SimpleNamespace(window=window, tokenizer=tokens)
    requests = [render(protocol, item, ()) for item in items]
    add_requests(block, protocol, requests, model)
    add_null(block, protocol, protocol.null or "", requests, model)
    return block


def sides(block: PreparedBlock) -> list[tuple[SpanRow, SpanRow]]:
    """Each choice after its question and after the null context."""
    rows = sorted(block.spans, key=lambda row: (row.item, row.choice, row.part, row.null is not None))
    return list(pairwise(rows))[::2]


def scored(block: PreparedBlock, tokens: Tokenizer, row: SpanRow) -> bytes:
    assert row.key is not None, row.missing
    question = block.wanted[row.key]
    table = [bytes([byte]) for byte in range(256)] if isinstance(question, ByteProbability) else tokens.token_bytes
    return b"".join(table[token] for token in question.continuation)


@pytest.mark.costly("real tokenizers")
@pytest.mark.parametrize("name", TOKENIZERS)
@given(
    boundary=st.sampled_from(BOUNDARIES),
    context=TEXT | st.sampled_from(["the hell", "Answer:", "Answer: ", "aa", "\n\n"]),
    choices=st.lists(TEXT | st.sampled_from(["o", "fire", " A", "b"]), min_size=2, max_size=3),
    reading=st.sampled_from(["loglikelihood", "loglikelihood", "masked", "surprisal"]),
    window=st.sampled_from([1000, 6]),
)
@settings(max_examples=60)
def test_after_the_context_itself_the_very_same_is_asked(
    name: str, boundary: str, context: str, choices: list[str], reading: str, window: int
) -> None:
    """So that PMI is exactly 0."""
    if boundary in ("heal", "word", "bytes"):
        reading = "loglikelihood"
    if name.startswith("toy"):
        context, *choices = (re.sub(r"[^ \nab]", "b", text) for text in (context, *choices))
    protocol = recipe(context, boundary=boundary, reading=reading, fit="cut-start" if window < 10 else "refuse")
    try:
        block = asked(tokenizer(name), protocol, [Item("1", context, tuple(choices), (0,))], window)
    except ModelError:
        if boundary != "word":  # tokens that mark no words
            raise
        return
    if any(request.missing for request in block.requests):
        return  # a choice longer than the window: nothing of its request is asked
    for own, null in sides(block):
        assert (own.key, own.before, own.after) == (null.key, null.before, null.after)
        assert (own.missing, own.tokens_dropped) == (null.missing, null.tokens_dropped)


@pytest.mark.parametrize("name", TOKENIZERS[:6])
@pytest.mark.parametrize("boundary", BOUNDARIES)
def test_the_space_stands_in_the_null_context_instead_of_before_the_choice(name: str, boundary: str) -> None:
    if boundary == "word" and name in ("models/babyllama-tok105", "bytes"):
        pytest.skip("tokens that mark no words")
    tokens = tokenizer(name)
    protocol = recipe("Answer: ", question="{question} Answer:", continuation=" {choice}", boundary=boundary)
    block = asked(tokens, protocol, [WHO])
    for (own, null), text in zip(sides(block), ("the cat", "a hat"), strict=True):
        assert (own.continuation, null.continuation) == (" " + text, text)
        if boundary in ("joint", "count", "bytes"):
            assert scored(block, tokens, own) == f" {text}".encode()
            assert scored(block, tokens, null) == text.encode()
        elif boundary in ("separate", "last-token"):
            assert scored(block, tokens, own).strip() == scored(block, tokens, null).strip()
        else:  # from the tokens that the joined texts share, or with the space moved back
            assert scored(block, tokens, null).lstrip() == text.encode()


def test_the_tokens_after_a_null_context_with_the_space_are_gpt3s() -> None:
    """Those of "Answer: " and of the bare text, which GPT-2's tokenizer would merge into "Answer" ":" " the"."""
    tokens = tokenizer("tokenizers/gpt2")
    protocol = recipe("Answer: ", question="{question} Answer:", continuation=" {choice}")
    block = asked(tokens, protocol, [WHO])
    ((_, null), _) = sides(block)
    span = block.wanted[null.key or ""]
    assert span.context.tolist() == tokens.encode(["Answer: "], special=False)[0].tolist() == [33706, 25, 220]
    assert span.continuation.tolist() == tokens.encode(["the cat"], special=False)[0].tolist()
    assert (null.merged, null.noncanonical) == (True, True)


@pytest.mark.parametrize("entry", ["cloze", "olmes-cf", "letter-text", "harness-v0"])
def test_every_entry_with_nulls_scores_one_space_less_after_the_one_that_ends_with_it(entry: str) -> None:
    tokens = tokenizer("tokenizers/mistral-7b-v0.2")
    for name, protocol in resolve(f"mmlu/{entry}").items():
        if protocol.null is None:
            continue
        block = asked(tokens, protocol, [replace(WHO, choices=(*WHO.choices, "none", "all"))])
        for own, null in sides(block):
            after_question, after_null = scored(block, tokens, own), scored(block, tokens, null)
            if name.endswith("pmi-answer-space"):
                assert after_question == b" " + after_null
            elif name.endswith("pmi-empty") and entry != "harness-v0":
                assert after_null == b" " + after_question, "this tokenizer puts a space before every text"
            else:
                assert after_question == after_null


def test_other_text_after_the_null_context_is_missing_with_the_reason() -> None:
    """Where a token straddles the end of the null context alone, a part of the choice would not be scored."""
    tokens = ToyTokenizer(TOYS)
    for boundary in ("joint", "count"):
        for null_context, question, text in (("a", "b", b"bb"), ("b", "a", b"b")):  # of the last, one is in the context
            item = Item("1", question, ("bb", "a"), (0,))
            block = asked(tokens, recipe(null_context, boundary=boundary), [item])
            (own, null), _ = sides(block)
            assert (scored(block, tokens, own), null.missing) == (text, OTHER_TEXT)


def test_equal_choices_are_located_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """MMLU asks the same four letters after the same null context for every item."""
    located: list[int] = []
    batch = choices_module.choice_questions_batch

    def counting(encodings: object, policy: str, contexts: Sequence[str], *rest: object) -> object:
        located.append(len(contexts))
        return batch(encodings, policy, contexts, *rest)

    monkeypatch.setattr(choices_module, "choice_questions_batch", counting)
    items = [Item(str(number), f"Who is {number}?", ("a", "b"), (0,)) for number in range(50)]
    block = asked(ByteTokenizer(), recipe("Answer:", continuation=" {choice}"), items)
    assert located == [50, 1]  # no text begins without its space
    assert len(block.spans) == 200


def test_without_tokens_of_its_own_a_choice_is_missing_with_the_reason() -> None:
    """A tokenizer that puts a space before every word has no tokens for a text that the space does not precede."""

    class Spaced(ToyTokenizer):
        def encode(self, texts: Sequence[str], *, special: bool) -> list:
            return super().encode([" " + text.strip() if text.strip() else "" for text in texts], special=special)

    tokens = Spaced(TOYS)
    protocol = recipe("b ", question="{question}", continuation=" {choice}")
    ((own, null), _) = sides(asked(tokens, protocol, [Item("1", "b", ("a", "b"), (0,))]))
    assert own.key is not None
    assert null.missing == "continuation 'a' has no tokens without a space before it, which its null context holds"
