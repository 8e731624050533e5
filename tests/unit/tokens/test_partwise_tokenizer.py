"""Encoding in parts: the tokens are those of the whole text, for every tokenizer, and nothing is encoded twice."""

from collections.abc import Sequence
from functools import cache
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from choicewise.errors import ModelError
from choicewise.models.local.tokenizer import HfTokenizer
from choicewise.protocols.catalogue import resolve
from choicewise.questions import Ids
from choicewise.tokens import encode
from choicewise.tokens.encode import NEWLINE_ENDS, NEWLINE_STARTS, SPLITS, PartwiseTokenizer, SplitRule, find_split_rule
from choicewise.tokens.tokenizer import ByteTokenizer
from tests.helpers.mmlu_data import shared_mmlu
from tests.helpers.protocols import requests
from tests.helpers.real_tokenizers import LOSSLESS, LOSSY, read_tokenizer

tokenizers = pytest.importorskip("tokenizers")

TRAINED = [*SPLITS, "Metaspace", "hazards"]
SUBJECTS = ["abstract_algebra", "high_school_computer_science"]

NASTY = ["\n", "\n\n", "\r\n", " ", "  ", "\t", "\u00a0", "\x85", "\u2028", "\x1c", "\x00", "/", "'", "'s", ".", "?!"]
NASTY += ["▁", "a", "B", "12345", "é", "e\u0301", "\u0301", "\u212b", "\u037e", "你", "👩‍👩‍👧", "<0x0A>", "Ċ", "<s>"]
NASTY += ["</s>", "Question: What", "A. one", "\nB: two", "\n(C) x", ") e", ": ", "Q.E.D. is"]
NASTY += ["<|endoftext|>", "<mask>", "<word>", "Answer:", " A", "The answer is"]
PIECE = st.sampled_from(NASTY) | st.text(st.characters(exclude_categories=["Cs"]), max_size=3)
TEXT = st.lists(PIECE, max_size=25).map("".join)


@cache
def tokenizer(name: str) -> HfTokenizer:
    if name not in TRAINED:
        return read_tokenizer(name)
    with TemporaryDirectory() as folder:
        trained(name).save(f"{folder}/tokenizer.json")
        return HfTokenizer(folder)


def trained(name: str) -> Any:
    """A small BPE with the pipeline ``name``, whose merges cross every newline that the pipeline lets them cross."""
    found = tokenizers.Tokenizer(tokenizers.models.BPE())
    pre, added = tokenizers.pre_tokenizers, []
    if name == "Metaspace":
        found.pre_tokenizer = pre.Metaspace(prepend_scheme="first", split=False)
    elif name == "hazards":
        found.pre_tokenizer = pre.ByteLevel(add_prefix_space=False)
        added = [tokenizers.AddedToken("<mask>", lstrip=True), tokenizers.AddedToken("<s>", rstrip=True)]
        added += [tokenizers.AddedToken("<word>", single_word=True), tokenizers.AddedToken("\n\n")]
    else:
        split = pre.Split(tokenizers.Regex(SPLITS[name]), "isolated")
        found.pre_tokenizer = pre.Sequence([split, pre.ByteLevel(add_prefix_space=False, use_regex=False)])
        found.normalizer = tokenizers.normalizers.NFC() if name == "Qwen 2" else None
    words = ["one.\n\n", "two?\n", "\n\n\n", "  \n", "Answer: A", "it's 1234", "x/\n", "\n/y", "é", "\t\n"]
    alphabet = pre.ByteLevel.alphabet() if name != "Metaspace" else ["▁", *map(chr, range(1, 127))]
    trainer = tokenizers.trainers.BpeTrainer(vocab_size=420, initial_alphabet=alphabet, show_progress=False)
    corpus = [word.replace("\n", "") if name == "Metaspace" else word for word in words]
    found.train_from_iterator(corpus * 20, trainer)
    found.add_tokens(added)
    return found


def same(found: Sequence[Ids], wanted: Sequence[Ids]) -> bool:
    return len(found) == len(wanted) and all(
        a.dtype == b.dtype == np.int32 and a.tolist() == b.tolist() for a, b in zip(found, wanted, strict=True)
    )


@pytest.mark.parametrize("name", [*LOSSLESS, *TRAINED, "tokenizers/t5"])
@given(start=TEXT, ends=st.lists(TEXT | TEXT.map(" a{}".format), min_size=1, max_size=4), special=st.booleans())
@settings(max_examples=25)
def test_texts_in_parts_have_the_tokens_of_the_whole(name: str, start: str, ends: list[str], special: bool) -> None:
    inner = tokenizer(name)
    partwise = PartwiseTokenizer(inner, inner.cut)
    assert (partwise.rule is None) == (name in LOSSY)
    starts = [start, ends[0]]
    continued = partwise.continued(starts, [ends] * 2, special=special)
    for own, found in zip(starts, continued, strict=True):
        if found is not None:
            tail, rests = found
            assert own.endswith(tail)
            alone, *whole = inner.encode([own, *(own + end for end in ends)], special=special)
            before = alone[: len(alone) - len(rests[0])]
            assert same([np.concatenate([before, rest]) for rest in rests], [alone, *whole])
    texts = [start, *(start + end for end in ends), *ends]
    assert same(partwise.encode(texts, special=special), inner.encode(texts, special=special))


@pytest.mark.parametrize("name", [*LOSSLESS, *LOSSY])
def test_real_prompts_have_the_tokens_of_the_whole(name: str) -> None:
    """And go on after their last line, where the tokenizer is one that splits texts."""
    inner, data = tokenizer(name), shared_mmlu()
    partwise = PartwiseTokenizer(inner, inner.cut)
    protocols = resolve("mmlu/original", "mmlu/helm", "mmlu/harness-v0:acc").values()
    for asked in (list(requests(recipe, data, subject, 3)) for recipe in protocols for subject in SUBJECTS):
        contexts, continuations = [each.context() for each in asked], [each.continuations for each in asked]
        continued = partwise.continued(contexts, continuations, special=True)
        assert all((rests is None) == (name in LOSSY) for rests in continued)
        texts = [each.context() + end for each in asked for end in ("", *each.continuations)]
        assert same(partwise.encode(texts, special=True), inner.encode(texts, special=True))


class Counting(ByteTokenizer):
    """Bytes, and how many characters were asked for."""

    def __init__(self) -> None:
        super().__init__()
        self.characters = 0

    def encode(self, texts: Sequence[str], *, special: bool) -> list[Ids]:
        self.characters += sum(map(len, texts))
        return super().encode(texts, special=special)


BYTES = SplitRule(NEWLINE_STARTS, before=True, prefixed=False, hazards=())


def test_shared_parts_are_encoded_once() -> None:
    inner, start = Counting(), "x" * 50 + "\n\n" + "y" * 50 + "\n"
    partwise = PartwiseTokenizer(inner, BYTES)
    inner.characters = 0
    partwise.encode([start + str(number) for number in range(100)], special=False)
    first = inner.characters
    partwise.encode([start + str(number) for number in range(100)], special=False)
    assert first < 100 * len(start) / 10
    assert inner.characters == first
    for _ in range(encode.COMPARED // 100):
        partwise.encode([start + str(number) for number in range(100)], special=False)
    assert inner.characters - first == len(start) + 2, "only the text that is compared"


def test_what_is_remembered_is_bounded() -> None:
    inner = Counting()
    partwise = PartwiseTokenizer(inner, BYTES, remembered=100)
    texts = ["a" * 60 + f"\n{number}" for number in range(10)]
    for text in texts * 2:
        assert same(partwise.encode([text], special=True), inner.encode([text], special=True))
        assert partwise.remembered <= 100 + len(text)


class Crossing(ByteTokenizer):
    """Bytes, but two newlines between letters, or ``late`` anywhere, are one token: no cut is right."""

    late = "\n\n"

    def encode(self, texts: Sequence[str], *, special: bool) -> list[Ids]:
        return super().encode([text.replace(self.late, "N") for text in texts], special=special)


def test_a_probe_that_disagrees_leaves_every_text_whole_and_a_text_that_disagrees_later_is_an_error() -> None:
    inner = Crossing()
    inner.late = "e.\n"
    partwise = PartwiseTokenizer(inner, BYTES)
    assert partwise.rule is None
    assert same(partwise.encode(["e.\n"], special=True), inner.encode(["e.\n"], special=True))
    inner.late = "q\nq"
    with pytest.raises(ModelError, match="has other tokens than as a whole"):
        PartwiseTokenizer(inner, BYTES).encode(["q\nq"], special=False)


def test_the_wrapper_is_the_tokenizer_it_wraps() -> None:
    inner = ByteTokenizer()
    partwise = PartwiseTokenizer(inner, BYTES)
    assert (partwise.bos_id, partwise.eos_id, partwise.unknown_id) == (256, None, None)
    assert partwise.token_bytes is inner.token_bytes
    assert partwise.digest == inner.digest
    assert partwise.decode(np.asarray([104, 105], dtype=np.int32)) == "hi"
    assert partwise.encode([], special=True) == []


@pytest.mark.parametrize(
    ("newline", "before", "parts", "head"),
    [
        (NEWLINE_STARTS, True, ["one", "\n\ntwo \né\n x", "\n"], "a\n\nb"),
        (NEWLINE_ENDS, False, ["one\n\n", "two \né\n x\n"], "a\n\nb\n\n"),
    ],
)
def test_parts_and_the_last_paragraph(newline: Any, before: bool, parts: list[str], head: str) -> None:
    rule = SplitRule(newline, before, prefixed=False, hazards=())
    assert rule.parts("one\n\ntwo \né\n x\n") == parts
    text = "a\n\nb\n\nc\nd"
    assert text[: rule.last_paragraph(text)] == head
    assert {rule.last_paragraph(nowhere) for nowhere in ("", "a\nb", "é\n\né", "\n\n é")} == {0}


BPE = {"type": "BPE", "vocab": {"a": 0, "\n": 1, "Ċ": 2}, "merges": []}
LEVEL = {"type": "ByteLevel", "add_prefix_space": False, "use_regex": True}
BARE = {**LEVEL, "use_regex": False}
LLAMA3 = {"type": "Split", "pattern": {"Regex": SPLITS["Llama 3"]}, "behavior": "Isolated", "invert": False}
PREPEND = {"type": "Prepend", "prepend": "▁"}
SPACES = {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}
PLAIN = {"content": "<x>", "lstrip": False, "rstrip": False, "single_word": False, "normalized": False}


def pipeline(pre: Any = LEVEL, normalizer: Any = None, added: Any = None, **model: Any) -> dict[str, Any]:
    splitter = {"type": "Sequence", "pretokenizers": pre} if isinstance(pre, list) else pre
    return {"model": {**BPE, **model}, "pre_tokenizer": splitter, "normalizer": normalizer, "added_tokens": added}


def test_find_split_rule_where_it_is_proven() -> None:
    starts = SplitRule(NEWLINE_STARTS, True, False, (), words=True)
    assert find_split_rule(pipeline()) == starts
    assert find_split_rule(pipeline([LLAMA3, BARE])) == SplitRule(NEWLINE_ENDS, False, False, (), words=True)
    assert find_split_rule(pipeline(added=[{**PLAIN, "content": ") x"}])) == starts._replace(words=False)
    spaced = {"type": "Sequence", "normalizers": [PREPEND, SPACES]}
    assert find_split_rule(pipeline(None, spaced)) == SplitRule(NEWLINE_STARTS, True, True, ())
    assert find_split_rule(pipeline(None, merges=[["\n", "\n"]])) is not None
    stripping = [PLAIN, {**PLAIN, "content": "<y>", "rstrip": True}]
    assert find_split_rule(pipeline(added=stripping)) == starts._replace(hazards=("<y>",))
    assert find_split_rule(pipeline(None, PREPEND, [{**PLAIN, "normalized": True}])) is not None


@pytest.mark.parametrize(
    "unproven",
    [
        pipeline(type="Unigram"),
        pipeline(dropout=0.1),
        pipeline(normalizer={"type": "Lowercase"}),
        pipeline(normalizer={**SPACES, "pattern": {"Regex": "\\s"}}),
        pipeline(normalizer={**PREPEND, "prepend": "\n"}),
        pipeline({**LEVEL, "add_prefix_space": True}),
        pipeline({"type": "Whitespace"}),
        pipeline({"type": "Metaspace", "split": True}),
        pipeline([{**LLAMA3, "pattern": {"Regex": "\\s+"}}, BARE]),
        pipeline([{**LLAMA3, "behavior": "Removed"}, BARE]),
        pipeline([{**LLAMA3, "invert": True}, BARE]),
        pipeline([LLAMA3, LEVEL]),
        pipeline([LLAMA3, BARE], PREPEND),
        pipeline([BARE, BARE]),
        pipeline(None, merges=[["a", "\n"]]),
        pipeline(None, vocab={"a": 0}, merges=[]),
        pipeline(None, vocab={"<0x0A>": 0}, merges=[["a", "<0x0A>"]], byte_fallback=True),
        pipeline(BARE, merges=[["a", "Ċa"]]),
        pipeline(None, ignore_merges=True),
        pipeline(None, end_of_word_suffix="</w>"),
        pipeline(added=[{**PLAIN, "content": "a\nb"}]),
        pipeline(normalizer={"type": "NFC"}, added=[{**PLAIN, "normalized": True, "lstrip": True}]),
        pipeline(None, PREPEND, [{**PLAIN, "content": "a b", "normalized": True}]),
    ],
)
def test_find_split_rule_leaves_what_is_not_proven(unproven: dict[str, Any]) -> None:
    assert find_split_rule(unproven) is None


@pytest.mark.parametrize("name", SPLITS)
def test_splitting_before_these_newlines_would_be_wrong(name: str) -> None:
    """Or the tests above would show nothing: the trained tokenizers have tokens across the other side."""
    inner = tokenizer(name)
    whole, *parts = inner.encode(["one.\n\ntwo", "one.", "\n\ntwo"], special=False)
    assert whole.tolist() != np.concatenate(parts).tolist()
