"""Token bytes, real tokenizers, and encoding in parts, whose tokens are those of the whole text."""

import json
from collections.abc import Sequence
from functools import cache
from pathlib import Path
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
from choicewise.tokens.encode import (
    NEWLINE_ENDS,
    NEWLINE_STARTS,
    SPLITS,
    PartwiseTokenizer,
    SplitRule,
    find_split_rule,
)
from choicewise.tokens.tokenizer import ByteTokenizer, byte_alphabet, token_bytes
from tests.helpers.mmlu_data import shared_mmlu
from tests.helpers.protocols import choice_prompts, requests
from tests.helpers.real_tokenizers import BYTE_LEVEL, LOSSLESS, LOSSY, PIECES, read_tokenizer
from tests.paths import SHARED

NFC = pytest.importorskip("tokenizers.normalizers").NFC

TEXTS = [
    "The quick brown fox, isn't it?  Two spaces; a tab\tand\r\nnew lines.\n\nQuestion: what?\nAnswer:",
    "你好，世界。以下哪一个是正确的？\n甲、乙、丙、丁",
    "family 👩‍👩‍👧‍👦 flag 🏳️‍🌈 skin 👍🏽 keycap 1️⃣",
    "def f(x):\n    if x > 1:\n\t\treturn {'a': x ** 2}  # café naïve\n",
    "",
]
DUMMY_SPACE = {*PIECES, "models/babyllama-tok105"}


def spelled(name: str, text: str) -> bytes:
    """What the tokens of ``text`` spell, without the dummy space in front."""
    table = tokenizer(name).token_bytes
    (ids,) = tokenizer(name).encode([text], special=True)
    joined = b"".join(table[token] for token in ids)
    if name in DUMMY_SPACE and text:
        assert joined[:1] == b" "
        return joined[1:]
    return joined


@pytest.mark.parametrize("name", LOSSLESS)
@given(text=st.text(st.characters(exclude_categories=["Cs"]), max_size=40))
@settings(max_examples=25)
def test_token_bytes_spell_the_text(name: str, text: str) -> None:
    if (
        name == "tokenizers/gpt-neox-20b"
    ):  # its normaliser composes characters, by its own Unicode version
        text = NFC().normalize_str(text)
    if (
        name in DUMMY_SPACE
    ):  # a ▁ in the text is a space to these, and the texts of specials are specials
        text = text.replace("▁", "_").replace("<", "(")
    for each in (text, *TEXTS):
        assert spelled(name, each) == each.encode()


def test_token_bytes_of_lossy_tokenizers() -> None:
    """English survives; what the vocabulary can't spell becomes the unknown token, which stands for no bytes."""
    assert spelled("tokenizers/t5", "A cat sat.") == b" A cat sat."
    assert (
        spelled("tokenizers/bert-base-uncased", "A cat unbelievably sat.")
        == b" a cat unbelievably sat ."
    )
    assert spelled("models/babyllama-tok105", "a cat") == b"a cat"
    for name, text in zip(LOSSY, ["你好", "你好 👍🏽", "👍🏽"], strict=True):
        (ids,) = tokenizer(name).encode([text], special=False)
        assert tokenizer(name).unknown_id in ids
        assert tokenizer(name).token_bytes[tokenizer(name).unknown_id or 0] == b""


def test_token_bytes_of_special_and_added_tokens() -> None:
    names = ("tokenizers/gpt2", "tokenizers/gpt-neox-20b", "tokenizers/mistral-7b-v0.2")
    gpt2, neox, mistral = (tokenizer(name).token_bytes for name in names)
    assert (gpt2[50256], neox[50276], mistral[3 + 0x0A], mistral[:3]) == (
        b"",
        b"  ",
        b"\n",
        [b"", b"", b""],
    )


def test_token_bytes_of_files_made_up_here() -> None:
    decoder = {"type": "BPEDecoder", "suffix": "</w>"}
    table = token_bytes({"model": {"vocab": {"low</w>": 0, "est": 3}}, "decoder": decoder})
    assert table == [b"low ", b"", b"", b"est"], "with word endings and holes"
    for unknown in ({}, {"model": {"vocab": {"a": 0}}, "decoder": {"type": "CTC"}}):
        with pytest.raises(ModelError, match=r"tokenizer\.json"):
            token_bytes(unknown)
    alphabet = byte_alphabet()
    assert sorted(alphabet.values()) == [bytes([byte]) for byte in range(256)]
    assert (alphabet["Ġ"], alphabet["Ċ"]) == (b" ", b"\n")


@pytest.mark.costly("transformers is imported")
@pytest.mark.parametrize("name", [*PIECES[1:], BYTE_LEVEL[2], LOSSY[0]])
def test_hf_tokenizer_equals_the_tokenizers_own_call(name: str) -> None:
    transformers = pytest.importorskip("transformers")
    ours = tokenizer(name)
    theirs = transformers.AutoTokenizer.from_pretrained(SHARED / name)
    texts = [*TEXTS, " A", "<s> text that starts with the BOS"]
    for special in (True, False):
        for text, ids in zip(texts, ours.encode(texts, special=special), strict=True):
            assert ids.dtype == np.int32
            assert ids.tolist() == theirs(text, add_special_tokens=special).input_ids
    assert (ours.bos_id, ours.eos_id) == (
        (0, 0) if "rwkv" in name else (theirs.bos_token_id, theirs.eos_token_id)
    )


def test_hf_tokenizer_decodes() -> None:
    ours = tokenizer("models/stories260K")
    (ids,) = ours.encode(["Once upon 👍🏽"], special=True)
    assert (ours.decode(ids), ours.decode(ids[:-1])) == (
        " Once upon 👍🏽",
        " Once upon 👍" + "\ufffd",
    )
    padding = np.asarray([len(ours.token_bytes), len(ours.token_bytes) + 7], dtype=np.int32)
    assert ours.decode(np.concatenate([ids, padding])) == " Once upon 👍🏽"


def copy_of(tmp_path: Path, **files: object) -> Path:
    """A folder with a small tokenizer and more files."""
    source = json.loads((SHARED / "models/stories260K/tokenizer.json").read_text())
    for name, content in {"tokenizer": source, **files}.items():
        (tmp_path / f"{name}.json").write_text(json.dumps(content))
    return tmp_path


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({}, (None, None)),
        ({"tokenizer_config": {"bos_token": "<s>", "eos_token": {"content": "</s>"}}}, (1, 2)),
        ({"special_tokens_map": {"eos_token": "</s>"}, "config": {"bos_token_id": 1}}, (None, 2)),
        ({"config": {"bos_token_id": 1, "eos_token_id": [2, 0]}}, (1, 2)),
        ({"config": {"bos_token_id": 300, "eos_token_id": 301}}, (None, None)),  # words
    ],
)
def test_hf_tokenizer_finds_bos_and_eos(
    shared_data: Path, tmp_path: Path, files: dict, expected: tuple
) -> None:
    found = HfTokenizer(copy_of(tmp_path, **files))
    assert ((found.bos_id, found.eos_id), found.unknown_id) == (expected, 0)


def test_hf_tokenizer_digest_is_of_the_content(shared_data: Path, tmp_path: Path) -> None:
    """Truncation settings and the order of keys don't matter; the vocabulary and the special tokens do."""
    original = HfTokenizer(SHARED / "models/stories260K").digest
    source = json.loads((SHARED / "models/stories260K/tokenizer.json").read_text())
    specials = {"bos_token": "<s>", "eos_token": "</s>"}
    truncation = {"direction": "Right", "max_length": 4, "strategy": "LongestFirst", "stride": 0}
    shuffled = dict(reversed(list(source.items()))) | {"truncation": truncation}
    same = HfTokenizer(copy_of(tmp_path, tokenizer=shuffled, tokenizer_config=specials))
    assert same.digest == original
    assert len(same.encode(["a much longer text"], special=False)[0]) > 4
    assert HfTokenizer(copy_of(tmp_path, tokenizer_config={"bos_token": "</s>"})).digest != original
    source["normalizer"] = None
    assert (
        HfTokenizer(copy_of(tmp_path, tokenizer=source, tokenizer_config=specials)).digest
        != original
    )


@pytest.mark.parametrize("content", [None, "{", '{"model": {}}'])
def test_hf_tokenizer_refuses_a_broken_folder(tmp_path: Path, content: str | None) -> None:
    if content is not None:
        (tmp_path / "tokenizer.json").write_text(content)
    with pytest.raises(ModelError, match=r"tokenizer"):
        HfTokenizer(tmp_path)


tokenizers = pytest.importorskip("tokenizers")

TRAINED = [*SPLITS, "Metaspace", "hazards"]
SUBJECTS = ["abstract_algebra", "high_school_computer_science"]

NASTY = [
    "\n",
    "\n\n",
    "\r\n",
    " ",
    "  ",
    "\t",
    "\u00a0",
    "\x85",
    "\u2028",
    "\x1c",
    "\x00",
    "/",
    "'",
    "'s",
    ".",
    "?!",
]
NASTY += [
    "▁",
    "a",
    "B",
    "12345",
    "é",
    "e\u0301",
    "\u0301",
    "\u212b",
    "\u037e",
    "你",
    "👩‍👩‍👧",
    "<0x0A>",
    "Ċ",
    "<s>",
]
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
        added = [
            tokenizers.AddedToken("<mask>", lstrip=True),
            tokenizers.AddedToken("<s>", rstrip=True),
        ]
        added += [tokenizers.AddedToken("<word>", single_word=True), tokenizers.AddedToken("\n\n")]
    else:
        split = pre.Split(tokenizers.Regex(SPLITS[name]), "isolated")
        found.pre_tokenizer = pre.Sequence(
            [split, pre.ByteLevel(add_prefix_space=False, use_regex=False)]
        )
        found.normalizer = tokenizers.normalizers.NFC() if name == "Qwen 2" else None
    words = [
        "one.\n\n",
        "two?\n",
        "\n\n\n",
        "  \n",
        "Answer: A",
        "it's 1234",
        "x/\n",
        "\n/y",
        "é",
        "\t\n",
    ]
    alphabet = pre.ByteLevel.alphabet() if name != "Metaspace" else ["▁", *map(chr, range(1, 127))]
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=420, initial_alphabet=alphabet, show_progress=False
    )
    corpus = [word.replace("\n", "") if name == "Metaspace" else word for word in words]
    found.train_from_iterator(corpus * 20, trainer)
    found.add_tokens(added)
    return found


def same(found: Sequence[Ids], wanted: Sequence[Ids]) -> bool:
    return len(found) == len(wanted) and all(
        a.dtype == b.dtype == np.int32 and a.tolist() == b.tolist()
        for a, b in zip(found, wanted, strict=True)
    )


@pytest.mark.parametrize("name", [*LOSSLESS, *TRAINED, "tokenizers/t5"])
@given(
    start=TEXT,
    ends=st.lists(TEXT | TEXT.map(" a{}".format), min_size=1, max_size=4),
    special=st.booleans(),
)
@settings(max_examples=25)
def test_texts_in_parts_have_the_tokens_of_the_whole(
    name: str, start: str, ends: list[str], special: bool
) -> None:
    inner = tokenizer(name)
    partwise = PartwiseTokenizer(inner, inner.cut)
    assert (partwise.rule is None) == (name in LOSSY)
    starts = [start, ends[0]]
    for own, found in zip(
        starts, partwise.continued(starts, [ends] * 2, special=special), strict=True
    ):
        if found is not None:
            tail, rests = found
            assert own.endswith(tail)
            alone, *whole = inner.encode([own, *(own + end for end in ends)], special=special)
            before = alone[: len(alone) - len(rests[0])]
            assert same([np.concatenate([before, rest]) for rest in rests], [alone, *whole])
    texts = [start, *(start + end for end in ends), *ends]
    assert same(partwise.encode(texts, special=special), inner.encode(texts, special=special))


@pytest.mark.costly("half a second where the first of its file pays for imports")
@pytest.mark.parametrize("name", [*LOSSLESS, *LOSSY])
def test_real_prompts_have_the_tokens_of_the_whole(name: str) -> None:
    """And go on after their last line, where the tokenizer is one that splits texts; they lose as little."""
    inner, data = tokenizer(name), shared_mmlu()
    partwise = PartwiseTokenizer(inner, inner.cut)
    protocols = resolve("mmlu/original", "mmlu/helm", "mmlu/harness-v0:acc").values()
    for asked in (
        list(requests(recipe, data, subject, 3)) for recipe in protocols for subject in SUBJECTS
    ):
        contexts, continuations = (
            [each.context() for each in asked],
            [each.continuations for each in asked],
        )
        continued = partwise.continued(contexts, continuations, special=True)
        assert all((rests is None) == (name in LOSSY) for rests in continued)
        texts = [each.context() + end for each in asked for end in ("", *each.continuations)]
        assert same(partwise.encode(texts, special=True), inner.encode(texts, special=True))
        own, whole = (
            [
                one.lossy
                for one in choice_prompts(each, "joint", "none", contexts[0], continuations[0], [])
            ]
            for each in (partwise, inner)
        )
        assert own == whole


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
    for text in ["a" * 60 + f"\n{number}" for number in range(10)] * 2:
        assert same(partwise.encode([text], special=True), inner.encode([text], special=True))
        assert partwise.remembered <= 100 + len(text)


class Crossing(ByteTokenizer):
    """Bytes, but two newlines between letters, or ``late`` anywhere, are one token: no cut is right."""

    late = "\n\n"

    def encode(self, texts: Sequence[str], *, special: bool) -> list[Ids]:
        return super().encode([text.replace(self.late, "N") for text in texts], special=special)


def test_a_probe_that_disagrees_leaves_every_text_whole_and_a_text_that_disagrees_later_is_an_error() -> (
    None
):
    inner = Crossing()
    inner.late = "e.\n"
    partwise = PartwiseTokenizer(inner, BYTES)
    assert partwise.rule is None
    assert same(partwise.encode(["e.\n"], special=True), inner.encode(["e.\n"], special=True))
    inner.late = "q\nq"
    with pytest.raises(ModelError, match="has other tokens"):
        PartwiseTokenizer(inner, BYTES).encode(["q\nq"], special=False)


def test_the_wrapper_is_the_tokenizer_it_wraps() -> None:
    inner = ByteTokenizer()
    partwise = PartwiseTokenizer(inner, BYTES)
    assert (partwise.bos_id, partwise.eos_id, partwise.unknown_id) == (256, None, None)
    assert partwise.token_bytes is inner.token_bytes
    assert (partwise.digest, partwise.decode(np.asarray([104, 105], dtype=np.int32))) == (
        inner.digest,
        "hi",
    )
    assert partwise.encode([], special=True) == []


@pytest.mark.parametrize(
    ("newline", "before", "parts", "head"),
    [
        (NEWLINE_STARTS, True, ["one", "\n\ntwo \né\n x", "\n"], "a\n\nb"),
        (NEWLINE_ENDS, False, ["one\n\n", "two \né\n x\n"], "a\n\nb\n\n"),
    ],
)
def test_parts_and_the_last_paragraph(
    newline: Any, before: bool, parts: list[str], head: str
) -> None:
    rule = SplitRule(newline, before, prefixed=False, hazards=())
    assert rule.parts("one\n\ntwo \né\n x\n") == parts
    text = "a\n\nb\n\nc\nd"
    assert text[: rule.last_paragraph(text)] == head
    assert {rule.last_paragraph(nowhere) for nowhere in ("", "a\nb", "é\n\né", "\n\n é")} == {0}


BPE = {"type": "BPE", "vocab": {"a": 0, "\n": 1, "Ċ": 2}, "merges": []}
LEVEL = {"type": "ByteLevel", "add_prefix_space": False, "use_regex": True}
BARE = {**LEVEL, "use_regex": False}
LLAMA3 = {
    "type": "Split",
    "pattern": {"Regex": SPLITS["Llama 3"]},
    "behavior": "Isolated",
    "invert": False,
}
PREPEND = {"type": "Prepend", "prepend": "▁"}
SPACES = {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}
PLAIN = {
    "content": "<x>",
    "lstrip": False,
    "rstrip": False,
    "single_word": False,
    "normalized": False,
}


def pipeline(
    pre: Any = LEVEL, normalizer: Any = None, added: Any = None, **model: Any
) -> dict[str, Any]:
    splitter = {"type": "Sequence", "pretokenizers": pre} if isinstance(pre, list) else pre
    return {
        "model": {**BPE, **model},
        "pre_tokenizer": splitter,
        "normalizer": normalizer,
        "added_tokens": added,
    }


def test_find_split_rule_where_it_is_proven() -> None:
    starts = SplitRule(NEWLINE_STARTS, True, False, (), words=True)
    assert find_split_rule(pipeline()) == starts
    assert find_split_rule(pipeline([LLAMA3, BARE])) == SplitRule(
        NEWLINE_ENDS, False, False, (), words=True
    )
    assert find_split_rule(pipeline(added=[{**PLAIN, "content": ") x"}])) == starts._replace(
        words=False
    )
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
    whole, *parts = tokenizer(name).encode(["one.\n\ntwo", "one.", "\n\ntwo"], special=False)
    assert whole.tolist() != np.concatenate(parts).tolist()
