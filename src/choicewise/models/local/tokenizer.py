"""Read the tokenizer of a model folder, from tokenizer.json or a SentencePiece file."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from functools import cached_property
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from choicewise.bundled import MODELS, PREFIX, bundled_folder
from choicewise.data.hub import MODEL, Download, hub_name, open_snapshot
from choicewise.errors import ModelError, install_line
from choicewise.models.local.files import (
    FILES,
    SENTENCEPIECE,
    is_installed,
    quiet,
    read_chat_template,
    read_object,
    token_text,
)
from choicewise.questions import Ids
from choicewise.tokens.chat_template import ChatTemplate
from choicewise.tokens.encode import PartwiseTokenizer, find_split_rule
from choicewise.tokens.tokenizer import ByteTokenizer, Tokenizer, numbered_words, token_bytes
from choicewise.util.files import DOCUMENT, open_file
from choicewise.util.text import text_digest

# The mask of published masked models whose files do not name it.
_MASKS = ("[MASK]", "<mask>")
# "<s>", "<|endoftext|>", "[CLS]", NUL; such tokens are not always special.
_MARKER = re.compile(r"<\W*\w+\W*>|\[\w+\]|[\x00-\x08]")
# Files of which transformers makes a tokenizer, too.
_VOCABULARIES = ("vocab.json", "vocab.txt", "merges.txt")
_QUOTED = 6  # tokens that an error names, from the first one that differs

BYTE_TOKENS = "bytes"
"""The name of the tokenizer whose tokens are bytes."""

NAME_IT = "pass a tokenizer: a model folder, ORG/NAME on the Hub, or bundled:NAME"


def named_tokenizer(name: str, progress: Download | None = None) -> Tokenizer:
    """Return the tokenizer of a folder, of a model on the Hub, ``bundled:...`` or ``bytes``.

    ``progress`` hears of a download.  Raises ModelError if there is none.
    """
    if name == BYTE_TOKENS:
        return ByteTokenizer()
    if find_spec("tokenizers") is None:
        raise ModelError(f"a tokenizer needs the package tokenizers; run: {install_line('server')}")
    tokenizer = HfTokenizer(tokenizer_folder(name, progress))
    return PartwiseTokenizer(tokenizer, tokenizer.cut)


def tokenizer_folder(name: str, progress: Download | None = None) -> Path:
    """Return the folder of a tokenizer's files, fetched from the Hub if they are only there.

    A tokenizer of ``bytes`` has none.  Raises ModelError if there is none.
    """
    if name.startswith(PREFIX):
        bundled = bundled_folder(name, MODELS)
        if bundled is None:
            names = ", ".join(PREFIX + folder.name for folder in MODELS)
            raise ModelError(f"there is no bundled model {name}; there are {names}")
        return bundled
    folder = Path(name)
    if folder.is_dir():
        return folder
    on_hub = hub_name(name)
    if on_hub is None:
        raise ModelError(f"there is no tokenizer {name}; {NAME_IT}")
    snapshot = open_snapshot(on_hub, MODEL)
    snapshot.download([path for path in FILES if path in snapshot.files], progress)
    return snapshot.folder


class HfTokenizer:
    """The tokenizer that ``folder/tokenizer.json`` describes, exactly as the file says.

    If there is only a SentencePiece file, it is what transformers makes of that, and every text
    that is encoded is held against the original (:class:`_Original`).

    The file is read by the ``tokenizers`` library, not by ``AutoTokenizer``: transformers 5
    rebuilds some classes (``LlamaTokenizer``, ``Qwen2Tokenizer``) from the vocabulary alone and
    then splits ``" A"`` otherwise than the published file does.  For every class that takes the
    file as it is, :meth:`encode` equals the tokenizer's call; as there, ``add_bos_token`` in
    ``tokenizer_config.json`` does not change what the file adds by default.  The names of BOS and
    EOS come from ``tokenizer_config.json`` or ``special_tokens_map.json``.  If neither names one,
    their ids come from ``config.json``, unless the tokens there are words.
    """

    def __init__(self, folder: str | Path) -> None:
        """Read the tokenizer of ``folder``.  Raises ModelError if there is none that can be used."""
        folder = Path(folder)
        file = tokenizer_files(folder)[0]
        is_converted = file.name in SENTENCEPIECE
        self.folder = folder
        self._backend = _convert(folder, file) if is_converted else _backend(file)
        self._backend.no_truncation()
        self._backend.no_padding()
        self._original = _Original(file, self._backend) if is_converted else None
        content = json.loads(self._backend.to_str())
        self.token_bytes: Sequence[bytes] = token_bytes(content)
        self.special: Mapping[int, str] = {
            int(token["id"]): str(token["content"])
            for token in content.get("added_tokens") or ()
            if token["special"]
        }
        # A converted tokenizer is checked on whole texts, which are not cut.
        self.cut = None if is_converted else find_split_rule(content)
        names = read_object(folder / "special_tokens_map.json") | read_object(
            folder / "tokenizer_config.json"
        )
        self.bos_id = _id(names.get("bos_token"), self._backend)
        self.eos_id = _id(names.get("eos_token"), self._backend)
        if self.bos_id is None and self.eos_id is None:
            config = read_object(folder / "config.json")
            self.bos_id = self._marker(config.get("bos_token_id"))
            self.eos_id = self._marker(config.get("eos_token_id"))
        model = content["model"]
        self.unknown_id = _id(model.get("unk_token"), self._backend)
        if isinstance(model.get("unk_id"), int):
            self.unknown_id = model["unk_id"]
        self.mask_id = _id(names.get("mask_token"), self._backend)
        if self.mask_id is None:
            self.mask_id = self._published_mask()
        self._splits = content.get("pre_tokenizer") is not None
        identity = (
            f"{json.dumps(content, sort_keys=True, ensure_ascii=False)}\n{self.bos_id} "
            f"{self.eos_id}"
        )
        self.digest = text_digest(identity)

    @cached_property
    def chat(self) -> ChatTemplate | None:
        """Return the chat template of the folder.  Raises ModelError if it can't be read."""
        return read_chat_template(self.folder)

    def encode(self, texts: Sequence[str], *, special: bool) -> list[Ids]:
        """Return the token ids of each text, never truncated or padded.

        ``special`` adds what the file adds by default.
        """
        encodings = self._backend.encode_batch_fast(list(texts), add_special_tokens=special)
        tokens = [np.asarray(encoding.ids, dtype=np.int32) for encoding in encodings]
        if self._original is not None:
            plain = []
            for ids, encoding in zip(tokens, encodings, strict=True):
                is_added = np.asarray(encoding.special_tokens_mask, dtype=np.bool_)
                plain.append(ids[~is_added])
            self._original.check(texts, plain)
        return tokens

    def words(self, texts: Sequence[str]) -> list[Ids]:
        """Return for each token of each text the number of its word.

        Words are what the file splits a text into before it looks tokens up, as ``word_ids`` of
        transformers; a special token is a word by itself.  If the file does not split, a word
        begins with its white space.
        """
        if self._splits:
            encodings = self._backend.encode_batch(list(texts), add_special_tokens=False)
            return [_word_numbers(encoding.word_ids) for encoding in encodings]
        words = []
        for ids in self.encode(texts, special=False):
            pieces = [self.token_bytes[token] for token in ids]
            words.append(numbered_words(piece[:1].isspace() or not piece for piece in pieces))
        return words

    def decode(self, ids: Ids) -> str:
        """Return the text of ``ids`` without special tokens, a dummy space kept.

        Bytes that are not UTF-8 become U+FFFD.  Ids beyond the tokenizer's, which a model with a
        padded vocabulary may find likeliest, stand for no text.
        """
        count = len(self.token_bytes)
        text = b"".join(self.token_bytes[token] for token in ids if token < count)
        return text.decode(errors="replace")

    def _published_mask(self) -> int | None:
        ids = {name: token for token, name in self.special.items()}
        for name in _MASKS:
            if name in ids:
                return ids[name]
        return None

    def _marker(self, ids: Any) -> int | None:
        """Return the token that a configuration names as BOS or EOS, if it is no word.

        Configurations of transformers have ids by default, whatever the vocabulary has there.
        """
        token = _first(ids)
        if token is None or token in self.special or token >= len(self.token_bytes):
            return token
        spelled = self.token_bytes[token].decode(errors="replace")
        if spelled and _MARKER.fullmatch(spelled) is None:
            return None
        return token


def _word_numbers(word_ids: Sequence[int | None]) -> Ids:
    """Number the words of a text from the library's ids of them, which special tokens lack."""
    begins = (word is None or word != before for before, word in pairwise([None, *word_ids]))
    return numbered_words(begins)


def tokenizer_files(folder: Path) -> list[Path]:
    """Return the files that :class:`HfTokenizer` reads, the vocabulary first.

    Raises ModelError without a ``tokenizer.json`` or a SentencePiece file.
    """
    vocabularies = [
        name for name in ("tokenizer.json", *SENTENCEPIECE) if (folder / name).is_file()
    ]
    if not vocabularies:
        if any((folder / name).is_file() for name in _VOCABULARIES):
            raise ModelError(
                f'{folder} holds no tokenizer.json; make one: python -c "from transformers import AutoTokenizer as T; '
                f"T.from_pretrained('{folder}').save_pretrained('{folder}')\""
            )
        raise ModelError(
            f"{folder} holds no tokenizer.json; copy it from the base model: "
            "`hf download ORG/NAME tokenizer.json tokenizer_config.json "
            f"--local-dir {folder}`"
        )
    names = (vocabularies[0], "tokenizer_config.json", "special_tokens_map.json", "config.json")
    return [folder / name for name in names if (folder / name).is_file()]


def _backend(path: Path) -> Any:
    try:
        import tokenizers
    except ImportError as error:
        raise ModelError(f"tokenizers is not installed; run: {install_line('hf')}") from error
    try:
        with open_file(path, DOCUMENT):
            # The errors of open_file say more.
            pass
        backend = tokenizers.Tokenizer.from_file(str(path))
    except OSError:
        raise
    except Exception as error:
        # The library raises plain Exception for every malformed file.
        raise ModelError(f"{path} is not a tokenizer: {error}; fetch the file again") from error
    return backend


def _id(name: Any, backend: Any) -> int | None:
    """Return the id of a special token, which files name by its text or as an object."""
    text = token_text(name)
    if text is None:
        return None
    token: int | None = backend.token_to_id(text)
    return token


def _first(ids: Any) -> int | None:
    """Return one id of a configuration that may list several, of which the first is the usual."""
    if isinstance(ids, list) and ids:
        ids = ids[0]
    return ids if isinstance(ids, int) else None


def _convert(folder: Path, file: Path) -> Any:
    """Convert a SentencePiece ``file``, as transformers does, to a ``tokenizers.Tokenizer``.

    ``tokenizer_class`` in ``tokenizer_config.json`` decides how, which is why the texts of a run
    are checked (:class:`_Original`).  Raises ModelError if a package is missing or the file is
    none.
    """
    for module, package in (("sentencepiece", "sentencepiece"), ("google.protobuf", "protobuf")):
        if not is_installed(module):
            raise ModelError(
                f"{folder} holds no tokenizer.json, and converting {file.name} needs {package}; "
                "run: "
                f"{install_line('sentencepiece')}"
            )
    from transformers import AutoTokenizer

    try:
        with quiet():
            converted = AutoTokenizer.from_pretrained(folder, local_files_only=True)
        return converted.backend_tokenizer
    except Exception as error:
        # Files are malformed in every way there is.
        raise ModelError(f"{file} can't be converted: {error}; fetch the file again") from error


class _Original:
    """The encoder in a SentencePiece ``file``, against which a converted tokenizer is held."""

    def __init__(self, file: Path, converted: Any) -> None:
        from sentencepiece import SentencePieceProcessor

        self._file = file
        self._converted = converted
        self._encoder = SentencePieceProcessor(model_file=str(file))
        converted_ids = []
        for token in range(self._encoder.get_piece_size()):
            id = converted.token_to_id(self._encoder.id_to_piece(token))
            converted_ids.append(-1 if id is None else id)
        self._converted_ids = np.asarray(converted_ids)
        self._special = [token.content for token in converted.get_added_tokens_decoder().values()]

    def check(self, texts: Sequence[str], tokens: Sequence[Ids]) -> None:
        """Check that ``tokens`` of all ``texts`` are the original's.

        Raises ModelError with an example.  A space that a text begins with does not count: by
        itself the original puts another before it, and what transformers makes of it does not.
        Texts that hold special tokens, which the original knows nothing of, are left out.
        """
        plain = []
        for index, text in enumerate(texts):
            if not any(token in text for token in self._special):
                plain.append(index)
        originals = self._encoder.encode([texts[index].removeprefix(" ") for index in plain])
        for index, original in zip(plain, originals, strict=True):
            due = np.empty(0, dtype=np.int64)
            if original:
                due = self._converted_ids[original]
            if np.array_equal(due, tokens[index]) or texts[index] == " ":
                continue
            ours = [self._converted.id_to_token(int(token)) for token in tokens[index]]
            theirs = [self._encoder.id_to_piece(token) for token in original]
            same = 0
            while ours[same : same + 1] == theirs[same : same + 1] and same < len(theirs):
                same += 1
            rest = slice(same, same + _QUOTED)
            raise ModelError(
                f"{self._file} converted for transformers splits {texts[index][:80]!r} differently "
                "from "
                f"SentencePiece: from token {same} on {ours[rest]}, not {theirs[rest]}. Set the "
                "model's "
                "tokenizer_class in tokenizer_config.json, or get the author's tokenizer.json"
            )
