"""The tokenizer that transformers makes of a folder, which the harness encodes with, as the engine takes it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from typing import Any

import numpy as np

from choicewise.questions import Ids
from choicewise.tokens.chat_template import ChatTemplate
from choicewise.tokens.partwise_tokenizer import PartwiseTokenizer
from choicewise.tokens.split_rule import find_split_rule
from choicewise.tokens.token_bytes import token_bytes
from choicewise.tokens.tokenizer import Tokenizer


class AdoptedTokenizer:
    """A tokenizer of transformers, ``inner``, behind the engine's interface.

    It gives the tokens of ``inner`` itself, which may differ from those of the folder's ``tokenizer.json``, because
    transformers rebuilds some classes from their vocabulary
    (:class:`~choicewise.models.local.hf_tokenizer.HfTokenizer`).
    ``token_bytes`` is empty where ``inner`` is written in Python and does not say them.
    """

    mask_id: int | None = None
    chat: ChatTemplate | None = None

    def __init__(self, inner: Any) -> None:
        self.inner = inner
        self.bos_id, self.eos_id, self.unknown_id = inner.bos_token_id, inner.eos_token_id, inner.unk_token_id
        self.content: dict[str, Any] | None = json.loads(inner.backend_tokenizer.to_str()) if inner.is_fast else None
        self.token_bytes: Sequence[bytes] = [] if self.content is None else token_bytes(self.content)
        vocabulary = inner.get_vocab() if self.content is None else self.content
        identity = f"{json.dumps(vocabulary, sort_keys=True)} {self.bos_id} {self.eos_id}"
        self.digest = hashlib.sha256(identity.encode()).hexdigest()

    def encode(self, texts: Sequence[str], *, special: bool) -> list[Ids]:
        """Token ids of each text, as ``inner`` encodes it alone."""
        if not texts:
            return []
        if self.inner.is_fast:
            rows = self.inner(list(texts), add_special_tokens=special, verbose=False)["input_ids"]
        else:
            rows = [self.inner.encode(text, add_special_tokens=special) for text in texts]
        return [np.asarray(row, dtype=np.int32) for row in rows]

    def words(self, texts: Sequence[str]) -> list[Ids]:
        """For each token of each text the number of its word; a special token is one by itself."""
        encodings = (self.inner(text, add_special_tokens=False, verbose=False) for text in texts)
        return [np.asarray(encoding.word_ids(), dtype=np.int32) for encoding in encodings]

    def decode(self, ids: Ids) -> str:
        """The text of ``ids`` without special tokens."""
        text: str = self.inner.decode(ids.tolist(), skip_special_tokens=True)
        return text


def adopt(inner: Any) -> Tokenizer:
    """``inner`` behind the engine's interface; what texts share is encoded once where that is proven to be exact."""
    own = AdoptedTokenizer(inner)
    return own if own.content is None else PartwiseTokenizer(own, find_split_rule(own.content))
