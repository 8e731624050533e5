"""Tokenizers of the shared data, each read once a process."""

from copy import copy
from functools import cache

import pytest

from choicewise.models.local.tokenizer import HfTokenizer
from tests.paths import SHARED

BYTE_LEVEL = ["tokenizers/gpt2", "tokenizers/gpt-neox-20b", "models/tiny-rwkv-4v0-660K"]
PIECES = ["tokenizers/mistral-7b-v0.2", "models/stories260K", "models/aidreams260K"]
LOSSLESS = [*BYTE_LEVEL, *PIECES]
LOSSY = ["models/babyllama-tok105", "tokenizers/t5", "tokenizers/bert-base-uncased"]
BOS = {"tokenizers/gpt2": 50256, "tokenizers/mistral-7b-v0.2": 1}


@cache
def read_tokenizer(name: str) -> HfTokenizer:
    """As its folder has it, which may name no special tokens."""
    if not SHARED.is_dir():
        pytest.skip(f"no shared data at {SHARED}")
    pytest.importorskip("tokenizers")
    return HfTokenizer(SHARED / name)


@cache
def tokenizer_with_bos(name: str) -> HfTokenizer:
    """With the BOS that its model has, where its folder names neither BOS nor EOS."""
    found = copy(read_tokenizer(name))
    if found.bos_id is None and found.eos_id is None:
        found.bos_id = BOS.get(name, 0)
    return found
