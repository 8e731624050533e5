"""Token bytes and real tokenizers: the bytes of the tokens are the bytes of the text."""

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from choicewise.errors import ModelError
from choicewise.models.local.tokenizer import HfTokenizer
from choicewise.tokens.tokenizer import byte_alphabet, token_bytes
from tests.helpers.real_tokenizers import BYTE_LEVEL, LOSSLESS, LOSSY, PIECES
from tests.helpers.real_tokenizers import read_tokenizer as tokenizer
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
    if name == "tokenizers/gpt-neox-20b":  # its normaliser composes characters, by its own Unicode version
        text = NFC().normalize_str(text)
    if name in DUMMY_SPACE:  # a ▁ in the text is a space to these, and the texts of specials are specials
        text = text.replace("▁", "_").replace("<", "(")
    for each in (text, *TEXTS):
        assert spelled(name, each) == each.encode()


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
    names = ("tokenizers/gpt2", "tokenizers/gpt-neox-20b", "tokenizers/mistral-7b-v0.2")
    gpt2, neox, mistral = (tokenizer(name).token_bytes for name in names)
    assert (gpt2[50256], neox[50276], mistral[3 + 0x0A]) == (b"", b"  ", b"\n")
    assert mistral[:3] == [b"", b"", b""]


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
