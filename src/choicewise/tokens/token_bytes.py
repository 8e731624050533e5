"""The bytes every token stands for, read from a ``tokenizer.json``.

Lengths in bytes are the unit of truth for normalised scores, so they come from the vocabulary itself: the decoder that
the file declares is applied to each token alone.  Offset mappings are never used; some published tokenizers return
empty ones (tokenizers #1553, #1517).
"""

import re
from collections.abc import Callable, Mapping
from typing import Any

from choicewise.errors import ModelError

_BYTE_TOKEN = re.compile(r"<0x([0-9A-F]{2})>")


def token_bytes(tokenizer: Mapping[str, Any]) -> list[bytes]:
    """Bytes of every token id, from the parsed ``tokenizer.json``.

    Joined over the tokens of a text they give the text's bytes, up to one leading space where the tokenizer adds a
    dummy one, and up to what its normaliser and its unknown token lose.  Special tokens and unused ids stand for no
    bytes; added tokens that are not special stand for their text.  WordPiece words each start with a space.

    Raises ModelError when the file declares no vocabulary or a decoder that is not known here.
    """
    vocabulary = tokenizer.get("model", {}).get("vocab")
    if not vocabulary:
        raise ModelError("tokenizer.json holds no model.vocab; save the tokenizer again with save_pretrained()")
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


def _spelling(tokenizer: Mapping[str, Any]) -> Callable[[str], bytes]:
    """How one vocabulary entry is spelled in bytes."""
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
    """The (old, new) texts by which one declared step changes a token."""
    match step["type"]:
        case "Metaspace":
            return [(step.get("replacement", "▁"), " ")]
        case "Replace" if "String" in step["pattern"]:
            return [(step["pattern"]["String"], step["content"])]
        case "BPEDecoder":
            return [(step["suffix"], " ")]
        # Fuse joins, Strip removes the dummy space of a whole text, splitters change no text.
        case "ByteFallback" | "Fuse" | "Strip" | "WordPiece" | "Split" | "Whitespace" | "WhitespaceSplit":
            return []
        case "Punctuation" | "Digits" | "BertPreTokenizer" | "UnicodeScripts":
            return []
        case kind:
            raise ModelError(
                f"tokenizer.json declares the step {kind!r}, for which the bytes of a token are not known; "
                "use a tokenizer that is byte-level, SentencePiece-like or WordPiece"
            )


def declared_steps(step: Mapping[str, Any] | None) -> list[Mapping[str, Any]]:
    """The steps of a declared normalizer, pre-tokenizer or decoder, those of nested sequences in order."""
    if step is None or step["type"] != "Sequence":
        return [] if step is None else [step]
    parts = (part for key in ("normalizers", "pretokenizers", "decoders") for part in step.get(key, ()))
    return [inner for part in parts for inner in declared_steps(part)]


def byte_alphabet() -> dict[str, bytes]:
    """Character to byte in byte-level vocabularies: printable bytes stand for themselves, the others move up.

    Source: openai/gpt-2 ``src/encoder.py`` ``bytes_to_unicode`` @a74da5d.
    """
    plain = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    moved = [byte for byte in range(256) if byte not in plain]
    alphabet = {chr(byte): bytes([byte]) for byte in plain}
    return alphabet | {chr(256 + place): bytes([byte]) for place, byte in enumerate(moved)}
