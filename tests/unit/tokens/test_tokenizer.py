"""Token bytes and real tokenizers: the bytes of the tokens are the bytes of the text."""

import json
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from choicewise.errors import ModelError
from choicewise.models.local.tokenizer import HfTokenizer
from choicewise.tokens.tokenizer import byte_alphabet, token_bytes
from tests.paths import SHARED

NFC = pytest.importorskip("tokenizers.normalizers").NFC

TEXTS = {
    "english": "The quick brown fox, isn't it?  Two spaces; a tab\tand\r\nnew lines.\n\nQuestion: what?\nAnswer:",
    "chinese": "你好，世界。以下哪一个是正确的？\n甲、乙、丙、丁",
    "emoji": "family 👩‍👩‍👧‍👦 flag 🏳️‍🌈 skin 👍🏽 keycap 1️⃣",
    "code": "def f(x):\n    if x > 1:\n\t\treturn {'a': x ** 2}  # café naïve\n",
    "empty": "",
}
EXACT = ["models/stories260K", "models/aidreams260K", "models/tiny-rwkv-4v0-660K"]
EXACT += ["tokenizers/gpt2", "tokenizers/gpt-neox-20b", "tokenizers/mistral-7b-v0.2"]
LOSSY = ["models/babyllama-tok105", "tokenizers/t5", "tokenizers/bert-base-uncased"]
DUMMY_SPACE = {"models/stories260K", "models/aidreams260K", "models/babyllama-tok105", "tokenizers/mistral-7b-v0.2"}


@cache
def tokenizer(name: str) -> HfTokenizer:
    if not SHARED.is_dir():
        pytest.skip(f"no shared data at {SHARED}")
    return HfTokenizer(SHARED / name)


def spelled(name: str, text: str) -> bytes:
    """What the tokens of ``text`` spell, without the dummy space in front."""
    table = tokenizer(name).token_bytes
    (ids,) = tokenizer(name).encode([text], special=True)
    joined = b"".join(table[token] for token in ids)
    if name in DUMMY_SPACE and text:
        assert joined[:1] == b" "
        return joined[1:]
    return joined


@pytest.mark.costly("real tokenizers")
@pytest.mark.parametrize("name", EXACT)
@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS.keys())
def test_token_bytes_spell_the_text(name: str, text: str) -> None:
    assert spelled(name, text) == text.encode()


@pytest.mark.parametrize("name", EXACT)
@given(text=st.text(st.characters(exclude_categories=["Cs"]), max_size=40))
@settings(deadline=None, max_examples=25)
def test_token_bytes_spell_random_text(name: str, text: str) -> None:
    if name == "tokenizers/gpt-neox-20b":  # its normaliser composes characters, by its own Unicode version
        text = NFC().normalize_str(text)
    if name in DUMMY_SPACE:  # a ▁ in the text is a space to these, and the texts of specials are specials
        text = text.replace("▁", "_").replace("<", "(")
    assert spelled(name, text) == text.encode()


@pytest.mark.costly("real tokenizers")
def test_token_bytes_of_lossy_tokenizers() -> None:
    """English survives; what the vocabulary can't spell becomes the unknown token, which stands for no bytes."""
    assert spelled("tokenizers/t5", "A cat sat.") == b" A cat sat."
    assert spelled("tokenizers/bert-base-uncased", "A cat unbelievably sat.") == b" a cat unbelievably sat ."
    assert spelled("models/babyllama-tok105", "a cat") == b"a cat"
    for name, text in zip(LOSSY, ["你好", "你好 👍🏽", "👍🏽"], strict=True):
        (ids,) = tokenizer(name).encode([text], special=False)
        assert tokenizer(name).unknown_id in ids
        assert tokenizer(name).token_bytes[tokenizer(name).unknown_id or 0] == b""


def test_token_bytes_of_special_and_added_tokens() -> None:
    assert tokenizer("tokenizers/gpt2").token_bytes[50256] == b""
    assert tokenizer("tokenizers/gpt-neox-20b").token_bytes[50276] == b"  "
    assert tokenizer("tokenizers/mistral-7b-v0.2").token_bytes[:3] == [b"", b"", b""]
    assert tokenizer("tokenizers/mistral-7b-v0.2").token_bytes[3 + 0x0A] == b"\n"


def test_token_bytes_of_word_endings_and_holes() -> None:
    table = token_bytes(
        {"model": {"vocab": {"low</w>": 0, "est": 3}}, "decoder": {"type": "BPEDecoder", "suffix": "</w>"}}
    )
    assert table == [b"low ", b"", b"", b"est"]


@pytest.mark.parametrize("content", [{}, {"model": {"vocab": {"a": 0}}, "decoder": {"type": "CTC"}}])
def test_token_bytes_refuses_what_it_does_not_know(content: dict) -> None:
    with pytest.raises(ModelError, match=r"tokenizer\.json"):
        token_bytes(content)


def test_byte_alphabet_is_a_bijection() -> None:
    alphabet = byte_alphabet()
    assert sorted(alphabet.values()) == [bytes([byte]) for byte in range(256)]
    assert alphabet["Ġ"] == b" "
    assert alphabet["Ċ"] == b"\n"


@pytest.mark.parametrize("name", [*EXACT[:3], LOSSY[0]])
def test_hf_tokenizer_equals_the_tokenizers_own_call(name: str) -> None:
    transformers = pytest.importorskip("transformers")
    ours = tokenizer(name)
    theirs = transformers.AutoTokenizer.from_pretrained(SHARED / name)
    texts = [*TEXTS.values(), " A", "<s> text that starts with the BOS"]
    for special in (True, False):
        for text, ids in zip(texts, ours.encode(texts, special=special), strict=True):
            assert ids.dtype == np.int32
            assert ids.tolist() == theirs(text, add_special_tokens=special).input_ids
    assert (ours.bos_id, ours.eos_id) == ((0, 0) if "rwkv" in name else (theirs.bos_token_id, theirs.eos_token_id))


def test_hf_tokenizer_decodes() -> None:
    ours = tokenizer("models/stories260K")
    (ids,) = ours.encode(["Once upon 👍🏽"], special=True)
    assert ours.decode(ids) == " Once upon 👍🏽"
    assert ours.decode(ids[:-1]) == " Once upon 👍" + "\ufffd"
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
    ],
)
def test_hf_tokenizer_finds_bos_and_eos(shared_data: Path, tmp_path: Path, files: dict, expected: tuple) -> None:
    found = HfTokenizer(copy_of(tmp_path, **files))
    assert (found.bos_id, found.eos_id) == expected
    assert found.unknown_id == 0


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
    assert HfTokenizer(copy_of(tmp_path, tokenizer=source, tokenizer_config=specials)).digest != original


@pytest.mark.parametrize("content", [None, "{", '{"model": {}}'])
def test_hf_tokenizer_refuses_a_broken_folder(tmp_path: Path, content: str | None) -> None:
    if content is not None:
        (tmp_path / "tokenizer.json").write_text(content)
    with pytest.raises(ModelError, match=r"tokenizer"):
        HfTokenizer(tmp_path)
