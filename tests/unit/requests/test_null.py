"""What is scored after a null context: the same text as after the question, but for a space that moved."""

import re
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from choicewise import evaluate, open_dataset
from choicewise.data.dataset import Dataset
from choicewise.data.items import Item
from choicewise.errors import ModelError
from choicewise.models.fake import HashModel
from choicewise.protocols.catalogue import resolve
from choicewise.protocols.protocol import BOUNDARIES, Protocol
from choicewise.questions import Ids, Span
from choicewise.records import Selection, SpanRow
from choicewise.requests import blocks
from choicewise.requests import prompters as choices_module
from choicewise.requests.blocks import (
    Block,
    Section,
    cut_blocks,
    list_request_specs,
    list_sections,
    prepare_block,
    with_split,
)
from choicewise.requests.prompters import OTHER_TEXT, add_prompts
from choicewise.requests.render import render
from choicewise.requests.request import (
    FittedRequest,
    PreparedBlock,
    PromptRows,
    Request,
    fit_requests,
)
from choicewise.tokens.byte_coverings import ByteProbability
from choicewise.tokens.tokenizer import ByteTokenizer, Tokenizer
from tests.helpers.messages import Gist
from tests.helpers.mmlu_data import write_mmlu
from tests.helpers.protocols import mmlu_protocol
from tests.helpers.real_tokenizers import tokenizer_with_bos
from tests.helpers.toy_tokenizers import WORDS, ToyTokenizer

TOKENIZERS = [
    *(
        "models/stories260K",
        "models/babyllama-tok105",
        "tokenizers/gpt2",
        "tokenizers/gpt-neox-20b",
    ),
    *("tokenizers/mistral-7b-v0.2", "bytes", "toy", "toy words"),
]
TEXT = st.text(" \nabehlot.A你", min_size=1, max_size=8)
PLAIN = {
    "question": "{question}",
    "option": "",
    "answer": "",
    "continuation": "{choice}",
    "separator": "",
}


@cache
def tokenizer(name: str) -> Tokenizer:
    if name in ("toy", "toy words"):
        return ToyTokenizer(TOYS if name == "toy" else WORDS)
    return ByteTokenizer() if name == "bytes" else tokenizer_with_bos(name)


TOYS = (b" ", b"\n", b"a", b"b", b"ab", b" a", b"ba", b"aab", b"")


WHO = Item("1", "Who?", ("the cat", "a hat"), (0,))


def recipe(null: str, **axes: object) -> Protocol:
    shared = {
        "benchmark": "any",
        "choices": None,
        "shots": 0,
        "shot_split": None,
        "sampler": "none",
        "score": "pmi",
    }
    return Protocol(**{**shared, **PLAIN, "null": null, **axes})


def asked(
    tokens: Tokenizer, protocol: Protocol, items: Sequence[Item], window: int = 1000
) -> PreparedBlock:
    block, model = PreparedBlock(), SimpleNamespace(window=window, tokenizer=tokens)
    requests = [render(protocol, item, ()) for item in items]
    add_prompts(block, protocol, requests, model)
    add_prompts(block, protocol, requests, model, protocol.null or "")
    return block


def sides(block: PreparedBlock) -> list[tuple[SpanRow, SpanRow]]:
    """Each choice after its question and after the null context."""
    rows = sorted(
        block.spans, key=lambda row: (row.item, row.choice, row.part, row.null is not None)
    )
    return list(pairwise(rows))[::2]


def scored(block: PreparedBlock, tokens: Tokenizer, row: SpanRow) -> bytes:
    assert row.key is not None, row.missing
    question = block.wanted[row.key]
    table = (
        [bytes([byte]) for byte in range(256)]
        if isinstance(question, ByteProbability)
        else tokens.token_bytes
    )
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
def test_a_context_is_null_of_itself(
    name: str, boundary: str, context: str, choices: list[str], reading: str, window: int
) -> None:
    """So that PMI is exactly 0."""
    if boundary in ("heal", "word", "bytes"):
        reading = "loglikelihood"
    if name.startswith("toy"):
        context, *choices = (re.sub(r"[^ \nab]", "b", text) for text in (context, *choices))
    protocol = recipe(
        context, boundary=boundary, reading=reading, fit="cut-start" if window < 10 else "refuse"
    )
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
def test_the_space_stands_in_the_null_context_instead_of_before_the_choice(
    name: str, boundary: str
) -> None:
    if boundary == "word" and name in ("models/babyllama-tok105", "bytes"):
        pytest.skip("tokens that mark no words")
    tokens = tokenizer(name)
    protocol = recipe(
        "Answer: ", question="{question} Answer:", continuation=" {choice}", boundary=boundary
    )
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
    block = asked(
        tokens, recipe("Answer: ", question="{question} Answer:", continuation=" {choice}"), [WHO]
    )
    ((_, null), _) = sides(block)
    span = block.wanted[null.key or ""]
    assert (
        span.context.tolist()
        == tokens.encode(["Answer: "], special=False)[0].tolist()
        == [33706, 25, 220]
    )
    assert span.continuation.tolist() == tokens.encode(["the cat"], special=False)[0].tolist()
    assert (null.merged, null.noncanonical) == (True, True)


@pytest.mark.parametrize("entry", ["cloze", "olmes-cf", "letter-text", "harness-v0"])
def test_every_entry_with_nulls_scores_one_space_less_after_the_one_that_ends_with_it(
    entry: str,
) -> None:
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
                assert after_null == b" " + after_question, (
                    "this tokenizer puts a space before every text"
                )
            else:
                assert after_question == after_null


def test_other_text_after_the_null_context_is_missing_with_the_reason() -> None:
    """Where a token straddles the end of the null context alone, a part of the choice would not be scored."""
    tokens = ToyTokenizer(TOYS)
    for boundary in ("joint", "count"):
        for null_context, question, text in (
            ("a", "b", b"bb"),
            ("b", "a", b"b"),
        ):  # of the last, one is in the context
            item = Item("1", question, ("bb", "a"), (0,))
            block = asked(tokens, recipe(null_context, boundary=boundary), [item])
            (own, null), _ = sides(block)
            assert (scored(block, tokens, own), null.missing) == (text, OTHER_TEXT)


def test_equal_choices_are_located_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """MMLU asks the same four letters after the same null context for every item."""
    located: list[int] = []
    batch = choices_module.choice_prompts_batch

    def counting(encodings: object, policy: str, contexts: Sequence[str], *rest: object) -> object:
        located.append(len(contexts))
        return batch(encodings, policy, contexts, *rest)

    monkeypatch.setattr(choices_module, "choice_prompts_batch", counting)
    items = [Item(str(number), f"Who is {number}?", ("a", "b"), (0,)) for number in range(50)]
    block = asked(ByteTokenizer(), recipe("Answer:", continuation=" {choice}"), items)
    assert located == [50, 1]  # no text begins without its space
    assert len(list(block.spans)) == 200


def test_without_tokens_of_its_own_a_choice_is_missing_with_the_reason() -> None:
    """A tokenizer that puts a space before every word has no tokens for a text that the space does not precede."""

    class Spaced(ToyTokenizer):
        def encode(self, texts: Sequence[str], *, special: bool) -> list:
            return super().encode(
                [" " + text.strip() if text.strip() else "" for text in texts], special=special
            )

    tokens = Spaced(TOYS)
    protocol = recipe("b ", question="{question}", continuation=" {choice}")
    ((own, null), _) = sides(asked(tokens, protocol, [Item("1", "b", ("a", "b"), (0,))]))
    assert own.key is not None
    assert null.missing == Gist("continuation 'a' ... without a space")


POLICIES = ("drop-last-shot", "drop-last-shot-then-cut-end", "cut-start", "refuse")
ITEM = Item("i", "q", ("a", "b"), (0,))


def request(*shots: str, query: str = "query") -> Request:
    return Request(
        item=ITEM,
        header="header|",
        shots=shots,
        query=query,
        separator=" ",
        continuations=(" A", " B"),
        options=("a", "b"),
        gold=(0,),
        parts=((" A",), (" B",)),
    )


def tokens(text: str) -> int:
    """A BOS and one token per byte."""
    return len(text.encode()) + 1


class Answerer:
    """A tokenizer of bytes that ends sequences with ``appended`` tokens; ``asked``: the texts of every such call."""

    def __init__(self, window: int, appended: int = 0) -> None:
        self.window, self.asked = window, list[list[str]]()
        answerer = self

        class Counting(ByteTokenizer):
            def encode(self, texts: Sequence[str], *, special: bool) -> list[Ids]:
                if (
                    special and len(texts[0]) > 1
                ):  # not the one-letter text that shows what is added to every text
                    answerer.asked.append([*texts])
                end = np.full(appended if special else 0, self.bos_id, np.int32)
                return [
                    np.concatenate([ids, end]) for ids in super().encode(texts, special=special)
                ]

        self.tokenizer = Counting()


def fit(
    protocol: Protocol, requests: list[Request], model: Answerer, reserve: list[int]
) -> list[FittedRequest]:
    return fit_requests(PromptRows(PreparedBlock(), protocol, model), requests, reserve)


def plain_fit(
    protocol: Protocol, request: Request, window: int, reserve: int
) -> tuple[int | None, bool]:
    """(remaining shots or None when missing, cut_end) of one request: the policies as they are written down."""
    limit = min(window, protocol.limit or window)
    if reserve >= limit:
        return None, False
    most = len(request.shots)
    if protocol.fit == "cut-start":
        return most, False
    for left in range(most, -1, -1) if protocol.fit != "refuse" else [most]:
        if tokens(request.context(left)) + reserve <= limit:
            return left, False
    return (0, True) if protocol.fit == "drop-last-shot-then-cut-end" else (None, False)


REQUESTS = st.lists(
    st.builds(
        lambda shots, query: request(*shots, query=query),
        st.lists(st.text(max_size=9), max_size=5),
        st.text(),
    )
)


@given(
    REQUESTS,
    st.sampled_from(POLICIES),
    st.none() | st.integers(1, 60),
    st.integers(1, 60),
    st.data(),
)
def test_fit_is_plain(
    asked: list[Request], policy: str, limit: int | None, window: int, data: st.DataObject
) -> None:
    protocol = mmlu_protocol(fit=policy, limit=limit)
    reserve = [data.draw(st.integers(0, 9)) for _ in asked]
    for one, space, fitted in zip(
        asked, reserve, fit(protocol, asked, Answerer(window), reserve), strict=True
    ):
        shots, cut_end = plain_fit(protocol, one, window, space)
        assert (fitted.missing is None, fitted.cut_end) == (shots is not None, cut_end)
        assert fitted.context == one.context(fitted.shots)
        assert fitted.shots + fitted.shots_dropped == len(one.shots)
        assert fitted.context.startswith(one.header)
        assert fitted.context.endswith(one.query)
        if shots is not None:
            assert fitted.shots == shots


def test_fit_counts_everything_once_and_only_the_long_again() -> None:
    asked = [
        request("one", "two"),
        request("x" * 40, "y"),
        request(query="other"),
        request("one", "z" * 40),
    ]
    model = Answerer(25)
    assert [one.shots for one in fit(mmlu_protocol(), asked, model, [0] * 4)] == [2, 0, 0, 1]
    assert [len(texts) for texts in model.asked] == [4, 2, 1]


ONE = request("shot")
WHOLE = tokens(ONE.context())
DROPPED = FittedRequest(request=ONE, context=ONE.context(0), shots=0, shots_dropped=1)


@pytest.mark.parametrize(
    ("axes", "window", "reserve", "fitted"),
    [
        ({}, WHOLE + 3, 3, FittedRequest(request=ONE, context=ONE.context(), shots=1)),
        ({}, WHOLE + 2, 3, DROPPED),
        ({"limit": WHOLE - 1}, 2048, 0, DROPPED),
        ({"fit": "drop-last-shot-then-cut-end"}, 10, 1, replace(DROPPED, cut_end=True)),
    ],
)
def test_reserve_and_limit_hold(
    axes: dict[str, Any], window: int, reserve: int, fitted: FittedRequest
) -> None:
    assert fit(mmlu_protocol(**axes), [ONE], Answerer(window), [reserve]) == [fitted]


def test_a_question_that_fits_in_no_way_is_missing_with_its_reason() -> None:
    reasons = {"drop-last-shot": "13 tokens without any shot, 9 fit", "refuse": "18 tokens, 9 fit"}
    for policy, reason in reasons.items():
        missing = f"too long: {reason} (10 minus 1 for the answer)"
        fitted = fit(mmlu_protocol(fit=policy), [ONE], Answerer(10), [1])
        assert fitted == [
            FittedRequest(request=ONE, context=ONE.context(), shots=1, missing=missing)
        ]


def test_an_answer_that_alone_fills_the_window_is_missing() -> None:
    """Under every policy, and all of them agree on what fits."""
    for policy in POLICIES:
        (fitted,) = fit(mmlu_protocol(fit=policy), [request()], Answerer(10), [10])
        assert fitted.missing == Gist("too long: ... 10 of 10 tokens")
    assert (
        len({fit(mmlu_protocol(fit=policy), [ONE], Answerer(99), [1])[0] for policy in POLICIES})
        == 1
    )


@pytest.mark.parametrize(
    "axes",
    [
        {"boundary": "joint"},
        {"reading": "select", "score": "token_length_normalized"},
        {"reading": "embedding", "score": "none"},
        {"reading": "generate", "score": "none", "decision": "letter-match", "new_tokens": 1},
    ],
)
def test_fitting_and_asking_encode_every_text_once(axes: dict[str, Any]) -> None:
    model, block = Answerer(40), PreparedBlock()
    add_prompts(
        block,
        mmlu_protocol(**axes),
        [request("one", "two"), request("x" * 40, "y"), request()],
        model,
    )
    sequences = [text for texts in model.asked for text in texts if len(text) > 1]
    assert {row.context for row in block.requests} <= set(sequences)
    assert len(sequences) == len(set(sequences))


@pytest.mark.parametrize(
    ("axes", "after", "appended"),
    [
        ({"reading": "loglikelihood", "fit": "refuse"}, 1, 0),
        ({"reading": "loglikelihood", "fit": "cut-start"}, 1, 0),
        ({"reading": "masked", "fit": "refuse"}, 2, 0),
        ({"reading": "pseudo-loglikelihood", "boundary": "lcp", "fit": "refuse"}, 2, 3),
        ({"reading": "encoder-decoder", "boundary": "separate", "fit": "refuse"}, 0, 3),
        ({"reading": "encoder-decoder", "boundary": "separate", "fit": "cut-start"}, 0, 3),
        ({"reading": "embedding", "score": "none", "fit": "refuse"}, 0, 0),
    ],
)
def test_a_request_fits_a_window_of_just_its_input_tokens(
    axes: dict[str, str], after: int, appended: int
) -> None:
    """``after``: what the reading feeds behind the context; a causal model is not fed the last token that it scores."""
    needed = WHOLE + after + appended
    for window in (needed, needed - 1):
        block = PreparedBlock()
        add_prompts(block, mmlu_protocol(**axes), [ONE], Answerer(window, appended))
        (row,) = block.requests
        dropped = [span.tokens_dropped for span in block.spans]
        whole = (
            row.missing is None
            and not any(dropped)
            and all(span.missing is None for span in block.spans)
        )
        assert whole == (window == needed), (window, row, dropped)
        assert row.tokens_dropped == max(dropped, default=0)


def section(lengths: list[int]) -> tuple[Dataset, Section]:
    items = tuple(
        Item(str(index), "x" * length, ("a", "b"), (0,), "s")
        for index, length in enumerate(lengths)
    )
    data = Dataset("d", {"test": items})
    return data, Section("test", "s", data.rows("test", "s"))


@given(
    lengths=st.lists(st.integers(1, 3000), min_size=1, max_size=40),
    bound=st.integers(500, 20_000),
    cut=st.tuples(st.integers(0, 40), st.integers(0, 40)),
)
def test_blocks_hold_every_item_once_within_their_bound(
    lengths: list[int], bound: int, cut: tuple[int, int]
) -> None:
    data, whole = section(lengths)
    start, stop = sorted(min(edge, len(lengths)) for edge in cut)
    if start == stop:
        start, stop = 0, len(lengths)
    asks = list_request_specs(
        {"p": with_split(resolve("options/cloze:sum")["options/cloze:sum"], data)}
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(blocks, "BLOCK_TOKENS", bound)
        found = list(cut_blocks(whole, start, stop, asks, data, ()))
    assert [item.id for block in found for item in block.items] == [
        str(index) for index in range(start, stop)
    ]
    assert [block.start for block in found] == [
        start + sum(len(b.items) for b in found[:n]) for n in range(len(found))
    ]
    shared = len(found) * max(len("Question: \nAnswer:") - 3, 0)  # beside the text of an item
    assert abs(sum(block.work for block in found) - shared - sum(lengths[start:stop])) <= 3 * len(
        lengths
    ) + len(found)
    for block in found:
        each = 2 * blocks.ROW_TOKENS + blocks.REQUEST_TOKENS
        held = [len(item.question) / blocks.CHARACTERS + each for item in block.items]
        assert sum(held) - max(held) <= bound


def test_however_items_are_cut_the_observations_are_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data, tables = write_mmlu(tmp_path / "data", ("tides",), questions=4), []
    protocols = ["mmlu/helm", "mmlu/harness-v0:pmi-answer", "options/pride"]
    for bound in (10**9, 10_000, 1):
        monkeypatch.setattr(blocks, "BLOCK_TOKENS", bound)
        run = evaluate(model="fake:hash", data=data, protocols=protocols, out=tmp_path / str(bound))
        order = [(name, "ascending") for name in ("prompt", "item", "choice", "part", "null")]
        tables.append((run.observations().sort_by(order), run))
    (whole, one), *others = tables
    assert (
        len(one.manifest.blocks)
        < len(others[0][1].manifest.blocks)
        < len(others[1][1].manifest.blocks)
    )
    for table, run in others:
        assert table.equals(whole)
        assert (
            run.report()
            .drop_columns(["signature"])
            .equals(one.report().drop_columns(["signature"]))
        )


def test_ranks_are_wanted_where_a_protocol_scores_by_them(tmp_path: Path) -> None:
    data = open_dataset(write_mmlu(tmp_path / "data", questions=2))
    recipes = {
        name: with_split(resolve(name)[name], data)
        for name in ("mmlu/original", "mmlu/original@outside=keep")
    }
    by_ranks, without = recipes.values()
    assert by_ranks.prompt_digest == without.prompt_digest
    for chosen, wanted in (([by_ranks], True), ([without], False), ([by_ranks, without], True)):
        (ask,) = list_request_specs({str(number): recipe for number, recipe in enumerate(chosen)})
        assert ask.ranked == wanted
        (first, *_) = list_sections(data, {"": by_ranks}, Selection(limit=1))
        block = Block(
            split=first.split,
            subject=first.subject,
            start=0,
            items=first.items,
            positions=range(len(first.items)),
            specs=[ask],
            work=0,
        )
        asked = prepare_block(data, block, HashModel(), False).wanted.values()
        assert asked
        assert {span.ranked for span in asked if isinstance(span, Span)} == {wanted}
