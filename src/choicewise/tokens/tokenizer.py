"""Describe what a tokenizer is, its vocabulary in the order of bytes, and the bytes of every token.

Lengths in bytes are the unit of truth for normalised scores, so they come from the vocabulary
itself: the decoder that the file declares is applied to each token alone.  Offset mappings are
never used; some published tokenizers return empty ones (tokenizers #1553, #1517).
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from functools import cached_property, wraps
from threading import Lock
from types import MappingProxyType
from typing import TYPE_CHECKING, Protocol, TypeVar
from weakref import WeakKeyDictionary

import numpy as np

from choicewise.errors import ModelError
from choicewise.questions import Ids, TokenSet
from choicewise.thoughts import MARKS
from choicewise.util.jsonio import JsonMapping

if TYPE_CHECKING:
    from choicewise.tokens.chat_template import ChatTemplate

Value = TypeVar("Value")
_BYTE_TOKEN = re.compile(r"<0x([0-9A-F]{2})>")

# Steps that change no bytes of a token: Fuse joins, Strip removes the dummy space of a text,
# splitters only split.
_SILENT = {
    "ByteFallback",
    "Fuse",
    "Strip",
    "WordPiece",
    "Split",
    "Whitespace",
    "WhitespaceSplit",
    "Punctuation",
    "Digits",
    "BertPreTokenizer",
    "UnicodeScripts",
}

# Tokens of :class:`ByteTokenizer` that are bytes.
BYTES = 256


class Tokenizer(Hashable, Protocol):
    """Turn text into token ids, and know the bytes that every token stands for.

    ``token_bytes[i]`` holds the bytes of token ``i``; special tokens stand for no bytes, and
    ``special`` holds the names of special tokens.  ``unknown_id`` is the token that stands for text
    the vocabulary can't spell, ``mask_id`` the one that hides others from a masked model, if there
    are such.  ``digest`` (64 hex) identifies the tokenizer.
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
        """Return the template of the model's chats, if it has one; it is no part of the digest."""

    def encode(self, texts: Sequence[str], *, special: bool) -> list[Ids]:
        """Return the token ids of each text.

        ``special`` adds the tokenizer's defaults (a BOS, usually).
        """

    def words(self, texts: Sequence[str]) -> list[Ids]:
        """Return for each token of each text, without special ones, the number of its word."""

    def decode(self, ids: Ids) -> str:
        """Return the text of ``ids`` without special tokens.

        Bytes that are not UTF-8 become U+FFFD.
        """


class ByteTokenizer:
    """Turn every UTF-8 byte into a token, for the fakes and for tests; 256 is BOS and hides bytes."""

    bos_id: int | None = BYTES
    eos_id: int | None = None
    unknown_id: int | None = None
    mask_id: int | None = BYTES
    digest = "0" * 64
    special: Mapping[int, str] = MappingProxyType({})
    chat: ChatTemplate | None = None

    def __init__(self) -> None:
        self.token_bytes: Sequence[bytes] = [bytes([byte]) for byte in range(BYTES)] + [b""]

    def encode(self, texts: Sequence[str], *, special: bool) -> list[Ids]:
        """Return the token ids of each text, with a BOS in front if ``special``."""
        encoded = []
        for text in texts:
            ids = np.frombuffer(text.encode(), dtype=np.uint8).astype(np.int32)
            if special:
                ids = np.insert(ids, 0, BYTES)
            encoded.append(ids)
        return encoded

    def words(self, texts: Sequence[str]) -> list[Ids]:
        """Return for each byte of each text the number of its word; white space begins one."""
        return [numbered_words(chr(byte).isspace() for byte in text.encode()) for text in texts]

    def decode(self, ids: Ids) -> str:
        """Return the text of ``ids``; bytes that are not UTF-8 become U+FFFD."""
        return spelled(self, ids).decode(errors="replace")


class Vocabulary:
    """Find the tokens of ``tokenizer`` by their bytes.  Tokens that stand for no bytes spell
    nothing.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._table = tokenizer.token_bytes
        self._eos: list[int] = []
        if tokenizer.eos_id is not None:
            self._eos.append(tokenizer.eos_id)
        entries = sorted((spelled, token) for token, spelled in enumerate(self._table) if spelled)
        self._bytes = [spelled for spelled, _ in entries]
        self._ids = [token for _, token in entries]
        self._continuing: dict[bytes, TokenSet] = {}

    @cached_property
    def longest(self) -> int:
        """Return the bytes of the longest token."""
        return max(map(len, self._bytes), default=0)

    def spelled(self, tokens: Iterable[int]) -> bytes:
        """Return the bytes that ``tokens`` stand for."""
        return b"".join(self._table[token] for token in tokens)

    def spelling(self, text: bytes) -> list[int]:
        """Return the tokens that stand for exactly ``text``.

        There may be several (``A`` and ``<0x41>``).
        """
        return self._ids[bisect_left(self._bytes, text) : bisect_right(self._bytes, text)]

    def continuing(self, text: bytes) -> TokenSet:
        """Return the tokens whose bytes start with ``text``, or are ``text``."""
        if text not in self._continuing:
            # Sorted by bytes, the tokens that start with a text are neighbours.
            low = bisect_left(self._bytes, text)
            high = bisect_right(self._bytes, text, low, key=lambda spelled: spelled[: len(text)])
            if low == high:
                return TokenSet([])
            self._continuing[text] = TokenSet(self._ids[low:high])
        return self._continuing[text]

    @cached_property
    def spaced(self) -> TokenSet:
        """Return the tokens by which a word ends and the next may begin: with white space at the
        start, and EOS.
        """
        tokens = [token for token, text in enumerate(self._table) if text[:1].isspace()]
        return TokenSet(tokens + self._eos)

    @cached_property
    def unspaced(self) -> TokenSet:
        """Return the tokens by which a word begins after white space or at the start of a text, and
        EOS.
        """
        tokens = [
            token for token, text in enumerate(self._table) if text and not text[:1].isspace()
        ]
        return TokenSet(tokens + self._eos)

    @cached_property
    def marks_words(self) -> bool:
        """Return whether words begin with their white space (``Ġ``, ``▁``) and do not end with it
        (``</w>``).
        """
        starts = [text for text in self._bytes if text[:1].isspace()]
        if not all(text.isspace() for text in starts):
            return True
        ends_words = any(text[-1:].isspace() and not text[:1].isspace() for text in self._bytes)
        return bool(starts) and not ends_words


def per_tokenizer(make: Callable[[Tokenizer], Value]) -> Callable[[Tokenizer], Value]:
    """Call ``make`` once for each tokenizer (by identity), however many models answer at once."""
    values = WeakKeyDictionary[Tokenizer, Value]()
    lock = Lock()

    @wraps(make)
    def value(tokenizer: Tokenizer) -> Value:
        with lock:
            if tokenizer not in values:
                values[tokenizer] = make(tokenizer)
            return values[tokenizer]

    return value


@per_tokenizer
def thought_marks(tokenizer: Tokenizer) -> Mapping[int, bytes]:
    """Return the special tokens that begin or end a thought, with their names."""
    return {token: name.encode() for token, name in tokenizer.special.items() if name in MARKS}


@per_tokenizer
def vocabulary(tokenizer: Tokenizer) -> Vocabulary:
    """Return the vocabulary of a tokenizer, sorted once."""
    return Vocabulary(tokenizer)


def token_bytes(tokenizer: JsonMapping) -> list[bytes]:
    """Return the bytes of every token id, from the parsed ``tokenizer.json``.

    Joined over the tokens of a text they give the text's bytes, up to one leading space if the
    tokenizer adds a dummy one, and up to what its normaliser and its unknown token lose.  Special
    tokens and unused ids stand for no bytes; added tokens that are not special stand for their
    text.  WordPiece words each start with a space.

    Raises ModelError if the file declares no vocabulary or a decoder that is not listed here.
    """
    vocabulary = tokenizer.get("model", {}).get("vocab")
    if not vocabulary:
        raise ModelError(
            "tokenizer.json has no model.vocab; save the tokenizer again with save_pretrained()"
        )
    if isinstance(vocabulary, Mapping):
        ids: dict[str, int] = dict(vocabulary)
    else:
        # A unigram model lists [piece, score] in the order of the ids.
        ids = {piece: token for token, (piece, _) in enumerate(vocabulary)}
    added = tokenizer.get("added_tokens") or []
    last = max([*ids.values(), *(token["id"] for token in added)])
    table = [b""] * (last + 1)
    spell = _spelling(tokenizer)
    for piece, token in ids.items():
        table[token] = spell(piece)
    for token in added:
        text = token["content"].encode()
        if token["special"]:
            text = b""
        table[token["id"]] = text
    return table


def declared_steps(step: JsonMapping | None) -> list[JsonMapping]:
    """Return the steps of a declared normalizer, pre-tokenizer or decoder.

    Nested sequences are unfolded.
    """
    if step is None:
        return []
    if step["type"] != "Sequence":
        return [step]
    steps = []
    for key in ("normalizers", "pretokenizers", "decoders"):
        for part in step.get(key, ()):
            steps += declared_steps(part)
    return steps


def byte_alphabet() -> dict[str, bytes]:
    """Map characters to bytes in byte-level vocabularies: printable bytes stand for themselves, the
    others move up.

    Source: openai/gpt-2 ``src/encoder.py`` ``bytes_to_unicode`` @a74da5d.
    """
    plain = [
        *range(ord("!"), ord("~") + 1),
        *range(ord("¡"), ord("¬") + 1),
        *range(ord("®"), ord("ÿ") + 1),
    ]
    moved = [byte for byte in range(256) if byte not in plain]
    alphabet = {chr(byte): bytes([byte]) for byte in plain}
    for code, byte in enumerate(moved, start=256):
        alphabet[chr(code)] = bytes([byte])
    return alphabet


def spelled(tokenizer: Tokenizer, tokens: Ids) -> bytes:
    """Return the bytes that ``tokens`` stand for."""
    return b"".join([tokenizer.token_bytes[token] for token in tokens.tolist()])


def numbered_words(starts: Iterable[bool]) -> Ids:
    """Number the words of tokens, from whether a word starts with each token."""
    return np.cumsum(list(starts), dtype=np.int32)


def count(ids: Ids, token: int | None) -> int:
    """Count ``token`` among ``ids``; 0 if the tokenizer has no such token."""
    if token is None:
        return 0
    return int(np.count_nonzero(ids == token))


def common_prefix(sequences: Sequence[Ids]) -> int:
    """Return the length (tokens) of the longest prefix that all ``sequences``, at least one, have
    in common.
    """
    length = min(map(len, sequences))
    for sequence in sequences[1:]:
        differ = sequences[0][:length] != sequence[:length]
        if differ.any():
            length = int(differ.argmax())
    return length


def _spelling(tokenizer: JsonMapping) -> Callable[[str], bytes]:
    steps = declared_steps(tokenizer.get("decoder") or tokenizer.get("pre_tokenizer"))
    kinds = {step["type"] for step in steps}
    if "ByteLevel" in kinds:
        alphabet = byte_alphabet()
        return lambda piece: b"".join(alphabet.get(char, char.encode()) for char in piece)
    replacements: list[tuple[str, str]] = []
    word_piece_prefix = None
    for step in steps:
        replacements += _replacements(step)
        if step["type"] == "WordPiece":
            word_piece_prefix = step["prefix"]
    byte_fallback = "ByteFallback" in kinds or bool(tokenizer["model"].get("byte_fallback"))

    def spell(piece: str) -> bytes:
        if byte_fallback and (byte := _BYTE_TOKEN.fullmatch(piece)):
            return bytes([int(byte[1], 16)])
        if word_piece_prefix is not None:
            # A piece without the prefix begins a word.
            if piece.startswith(word_piece_prefix):
                piece = piece.removeprefix(word_piece_prefix)
            else:
                piece = " " + piece
        for old, new in replacements:
            piece = piece.replace(old, new)
        return piece.encode()

    return spell


def _replacements(step: JsonMapping) -> list[tuple[str, str]]:
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
                f"tokenizer.json declares the step {kind!r}, which gives no bytes of tokens; use a "
                "byte-level, SentencePiece-like or WordPiece tokenizer"
            )
