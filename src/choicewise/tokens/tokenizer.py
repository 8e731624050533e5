"""What a tokenizer is, its vocabulary in bytes, and the bytes of every token.

Lengths in bytes are the unit of truth for normalised scores, so they come from the vocabulary itself: the decoder that
the file declares is applied to each token alone.  Offset mappings are never used; some published tokenizers return
empty ones (tokenizers #1553, #1517)."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from functools import cached_property, wraps
from threading import Lock
from types import MappingProxyType
from typing import Any, Protocol, TypeVar
from weakref import WeakKeyDictionary

import numpy as np

from choicewise.errors import ModelError
from choicewise.questions import Ids, TokenSet
from choicewise.thoughts import MARKS
from choicewise.tokens.chat_template import ChatTemplate

Value = TypeVar("Value")
_BYTE_TOKEN = re.compile(r"<0x([0-9A-F]{2})>")
# Fuse joins, Strip removes the dummy space of a whole text, splitters change no text.
_SILENT = {
    *(
        "ByteFallback",
        "Fuse",
        "Strip",
        "WordPiece",
        "Split",
        "Whitespace",
        "WhitespaceSplit",
        "Punctuation",
        "Digits",
    ),
    *("BertPreTokenizer", "UnicodeScripts"),
}
BYTES = 256  # tokens of :class:`ByteTokenizer` that are bytes


class Tokenizer(Hashable, Protocol):
    """Text to token ids, and the bytes every token stands for.

    ``token_bytes[i]`` holds the bytes of token ``i``; special tokens stand for no bytes, and ``special`` has the names
    of those that have one.  ``unknown_id`` is the token that stands for text the vocabulary can't spell, ``mask_id``
    the one that hides others from a masked model, when there are such.  ``digest`` (64 hex) identifies the tokenizer.
    ``chat``: the template of the model's chats, where it has one; it is no part of the digest.
    """

    bos_id: int | None
    eos_id: int | None
    unknown_id: int | None
    mask_id: int | None
    token_bytes: Sequence[bytes]
    special: Mapping[int, str]
    digest: str

    @property
    def chat(self) -> ChatTemplate | None:
        """The chat template that comes with it."""

    def encode(self, texts: Sequence[str], *, special: bool) -> list[Ids]:
        """Token ids of each text; ``special`` adds what the tokenizer adds by default (a BOS, usually)."""

    def words(self, texts: Sequence[str]) -> list[Ids]:
        """For each token of each text, without special ones, a number that all tokens of its word share."""

    def decode(self, ids: Ids) -> str:
        """The text of ``ids`` without special tokens; bytes that are not UTF-8 become U+FFFD."""


class ByteTokenizer:
    """Every UTF-8 byte is a token, 256 is BOS and hides bytes: for the fakes and for tests."""

    bos_id: int | None = BYTES
    eos_id: int | None = None
    unknown_id: int | None = None
    mask_id: int | None = BYTES
    digest = "0" * 64
    special: Mapping[int, str] = MappingProxyType({})
    chat: ChatTemplate | None = None

    def __init__(self) -> None:
        self.token_bytes: Sequence[bytes] = [*(bytes([byte]) for byte in range(BYTES)), b""]

    def encode(self, texts: Sequence[str], *, special: bool) -> list[Ids]:
        """Token ids of each text, with a BOS in front when ``special``."""
        start = np.asarray([BYTES] if special else [], dtype=np.int32)
        return [
            np.concatenate([start, np.frombuffer(text.encode(), dtype=np.uint8)], dtype=np.int32)
            for text in texts
        ]

    def words(self, texts: Sequence[str]) -> list[Ids]:
        """For each byte of each text the number of its word; white space begins one."""
        return [numbered_words(chr(byte).isspace() for byte in text.encode()) for text in texts]

    def decode(self, ids: Ids) -> str:
        """The text of ``ids``; bytes that are not UTF-8 become U+FFFD."""
        return spelled(self, ids).decode(errors="replace")


class Vocabulary:
    """The tokens of ``tokenizer`` in the order of their bytes.  Tokens that stand for no bytes spell nothing."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._table = tokenizer.token_bytes
        self._eos = [] if tokenizer.eos_id is None else [tokenizer.eos_id]
        entries = sorted((spelled, token) for token, spelled in enumerate(self._table) if spelled)
        self._bytes = [spelled for spelled, _ in entries]
        self._ids = [token for _, token in entries]
        self._continuing: dict[bytes, TokenSet] = {}

    @cached_property
    def longest(self) -> int:
        """Bytes of the longest token."""
        return max(map(len, self._bytes), default=0)

    def spelled(self, tokens: Iterable[int]) -> bytes:
        """The bytes that ``tokens`` stand for."""
        return b"".join(self._table[token] for token in tokens)

    def spelling(self, text: bytes) -> list[int]:
        """The tokens that stand for exactly ``text``; there may be several (``A`` and ``<0x41>``)."""
        return self._ids[bisect_left(self._bytes, text) : bisect_right(self._bytes, text)]

    def continuing(self, text: bytes) -> TokenSet:
        """The tokens whose bytes start with ``text``, itself included."""
        if text not in self._continuing:
            low = bisect_left(self._bytes, text)
            high = bisect_right(self._bytes, text, low, key=lambda spelled: spelled[: len(text)])
            if low == high:
                return TokenSet([])
            self._continuing[text] = TokenSet(self._ids[low:high])
        return self._continuing[text]

    @cached_property
    def spaced(self) -> TokenSet:
        """The tokens by which a word ends and the next may begin: those that start with white space, and EOS."""
        return TokenSet(
            [*(i for i, spelled in enumerate(self._table) if spelled[:1].isspace()), *self._eos]
        )

    @cached_property
    def unspaced(self) -> TokenSet:
        """The tokens by which a word begins after white space or at the start of a text: the others, and EOS."""
        inside = (
            i for i, spelled in enumerate(self._table) if spelled and not spelled[:1].isspace()
        )
        return TokenSet([*inside, *self._eos])

    @cached_property
    def marks_words(self) -> bool:
        """Whether words begin with their white space (``Ġ``, ``▁``) and do not end with it (``</w>``)."""
        starts = any(spelled[:1].isspace() for spelled in self._bytes)
        ends = any(spelled[-1:].isspace() and not spelled[:1].isspace() for spelled in self._bytes)
        begins = any(spelled[:1].isspace() and not spelled.isspace() for spelled in self._bytes)
        return starts and (begins or not ends)


def per_tokenizer(make: Callable[[Tokenizer], Value]) -> Callable[[Tokenizer], Value]:
    """``make``, called once for each tokenizer, however many models answer at once; they are told apart by identity."""
    values, lock = WeakKeyDictionary[Tokenizer, Value](), Lock()

    @wraps(make)
    def value(tokenizer: Tokenizer) -> Value:
        with lock:
            if tokenizer not in values:
                values[tokenizer] = make(tokenizer)
            return values[tokenizer]

    return value


@per_tokenizer
def thought_marks(tokenizer: Tokenizer) -> Mapping[int, bytes]:
    """The special tokens by which a thought is told from an answer, with their names."""
    return {token: name.encode() for token, name in tokenizer.special.items() if name in MARKS}


@per_tokenizer
def vocabulary(tokenizer: Tokenizer) -> Vocabulary:
    """The vocabulary of a tokenizer, sorted once."""
    return Vocabulary(tokenizer)


def token_bytes(tokenizer: Mapping[str, Any]) -> list[bytes]:
    """Bytes of every token id, from the parsed ``tokenizer.json``.

    Joined over the tokens of a text they give the text's bytes, up to one leading space where the tokenizer adds a
    dummy one, and up to what its normaliser and its unknown token lose.  Special tokens and unused ids stand for no
    bytes; added tokens that are not special stand for their text.  WordPiece words each start with a space.

    Raises ModelError when the file declares no vocabulary or a decoder that is not known here.
    """
    vocabulary = tokenizer.get("model", {}).get("vocab")
    if not vocabulary:
        raise ModelError(
            "tokenizer.json holds no model.vocab; save the tokenizer again with save_pretrained()"
        )
    if isinstance(vocabulary, Mapping):
        ids: dict[str, int] = dict(vocabulary)
    else:  # a unigram model lists [piece, score] in the order of the ids
        ids = {piece: token for token, (piece, _) in enumerate(vocabulary)}
    added = tokenizer.get("added_tokens") or []
    table = [b""] * (1 + max([*ids.values(), *(token["id"] for token in added)]))
    spell = _spelling(tokenizer)
    for piece, token in ids.items():
        table[token] = spell(piece)
    for token in added:
        table[token["id"]] = b"" if token["special"] else token["content"].encode()
    return table


def declared_steps(step: Mapping[str, Any] | None) -> list[Mapping[str, Any]]:
    """The steps of a declared normalizer, pre-tokenizer or decoder, those of nested sequences in order."""
    if step is None or step["type"] != "Sequence":
        return [] if step is None else [step]
    parts = (
        part for key in ("normalizers", "pretokenizers", "decoders") for part in step.get(key, ())
    )
    return [inner for part in parts for inner in declared_steps(part)]


def byte_alphabet() -> dict[str, bytes]:
    """Character to byte in byte-level vocabularies: printable bytes stand for themselves, the others move up.

    Source: openai/gpt-2 ``src/encoder.py`` ``bytes_to_unicode`` @a74da5d.
    """
    plain = [
        *range(ord("!"), ord("~") + 1),
        *range(ord("¡"), ord("¬") + 1),
        *range(ord("®"), ord("ÿ") + 1),
    ]
    moved = [byte for byte in range(256) if byte not in plain]
    alphabet = {chr(byte): bytes([byte]) for byte in plain}
    return alphabet | {chr(256 + place): bytes([byte]) for place, byte in enumerate(moved)}


def spelled(tokenizer: Tokenizer, tokens: Ids) -> bytes:
    """The bytes that ``tokens`` stand for."""
    return b"".join([tokenizer.token_bytes[token] for token in tokens.tolist()])


def numbered_words(starts: Iterable[bool]) -> Ids:
    """The number of the word of each token, from whether a word starts with it."""
    return np.cumsum(list(starts), dtype=np.int32)


def count(ids: Ids, token: int | None) -> int:
    """How often ``token`` is among ``ids``; never where the tokenizer has no such token."""
    return 0 if token is None else int(np.count_nonzero(ids == token))


def common_prefix(sequences: Sequence[Ids]) -> int:
    """Length (tokens) of the longest prefix that all ``sequences``, at least one, have in common."""
    length = min(map(len, sequences))
    for sequence in sequences[1:]:
        differ = sequences[0][:length] != sequence[:length]
        length = int(differ.argmax()) if differ.any() else length
    return length


def _spelling(tokenizer: Mapping[str, Any]) -> Callable[[str], bytes]:
    steps = declared_steps(tokenizer.get("decoder") or tokenizer.get("pre_tokenizer"))
    kinds = {step["type"] for step in steps}
    if "ByteLevel" in kinds:
        alphabet = byte_alphabet()
        return lambda piece: b"".join(alphabet.get(char, char.encode()) for char in piece)
    replacements = [pair for step in steps for pair in _replacements(step)]
    byte_fallback = "ByteFallback" in kinds or bool(tokenizer["model"].get("byte_fallback"))
    prefix = next((step["prefix"] for step in steps if step["type"] == "WordPiece"), None)

    def spell(piece: str) -> bytes:
        if byte_fallback and (byte := _BYTE_TOKEN.fullmatch(piece)):
            return bytes([int(byte[1], 16)])
        if prefix is not None:
            piece = piece.removeprefix(prefix) if piece.startswith(prefix) else " " + piece
        for old, new in replacements:
            piece = piece.replace(old, new)
        return piece.encode()

    return spell


def _replacements(step: Mapping[str, Any]) -> list[tuple[str, str]]:
    match step["type"]:
        case "Metaspace":
            return [(step.get("replacement", "▁"), " ")]
        case "Replace" if "String" in step["pattern"]:
            return [(step["pattern"]["String"], step["content"])]
        case "BPEDecoder":
            return [(step["suffix"], " ")]
        case kind if kind in _SILENT:
            return []
        case kind:
            raise ModelError(
                f"tokenizer.json declares the step {kind!r}, for which the bytes of a token are not known; "
                "use a tokenizer that is byte-level, SentencePiece-like or WordPiece"
            )
