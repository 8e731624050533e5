"""The tokenizer of a model folder: of tokenizer.json, or of a SentencePiece file."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from functools import cached_property
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import numpy as np

from choicewise.bundled import MODELS, PREFIX, bundled_folder, is_bundled
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

_MASKS = ("[MASK]", "<mask>")  # in published masked models whose files do not name it
_MARKER = re.compile(
    r"<\W*\w+\W*>|\[\w+\]|[\x00-\x08]"
)  # "<s>", "<|endoftext|>", "[CLS]", NUL; not always special
_VOCABULARIES = (
    "vocab.json",
    "vocab.txt",
    "merges.txt",
)  # of these transformers makes a tokenizer, too
_SHOWN = 6  # tokens that an error shows, from the first one that differs


BYTE_TOKENS: Final = "bytes"
"""The name of the tokenizer whose tokens are bytes."""

NAME_IT: Final = (
    "name the tokenizer: a model folder, a name on the Hub as ORG/NAME, or bundled:NAME"
)


def named_tokenizer(name: str, progress: Download | None = None) -> Tokenizer:
    """The tokenizer called ``name``: of a folder, of a model on the Hub, ``bundled:...`` or ``bytes``.

    ``progress`` hears of a download.  Raises ModelError where there is none.
    """
    if name == BYTE_TOKENS:
        return ByteTokenizer()
    if find_spec("tokenizers") is None:
        raise ModelError(f"a tokenizer needs the package tokenizers; run: {install_line('server')}")
    tokenizer = HfTokenizer(tokenizer_folder(name, progress))
    return PartwiseTokenizer(tokenizer, tokenizer.cut)


def tokenizer_folder(name: str, progress: Download | None = None) -> Path:
    """Where the files of the tokenizer called ``name`` lie, fetched from the Hub first where it is there alone.

    A tokenizer of ``bytes`` has none.  Raises ModelError where there is none.
    """
    if is_bundled(name):
        if (bundled := bundled_folder(name, MODELS)) is None:
            known = ", ".join(PREFIX + folder.name for folder in MODELS)
            raise ModelError(f"{name} is no bundled model; these are {known}")
        return bundled
    if (folder := Path(name)).is_dir():
        return folder
    if (on_hub := hub_name(name)) is None:
        raise ModelError(f"there is no tokenizer {name}; {NAME_IT}")
    snapshot = open_snapshot(on_hub, MODEL)
    snapshot.download([path for path in FILES if path in snapshot.files], progress)
    return snapshot.folder


class HfTokenizer:
    """The tokenizer that ``folder/tokenizer.json`` describes, exactly as the file says.

    Where there is a SentencePiece file alone, it is what transformers makes of that, and every text that is encoded is
    held against the original (:class:`~choicewise.models.local.tokenizer._Original`).

    The file is read by the ``tokenizers`` library, not by ``AutoTokenizer``: transformers 5 rebuilds some classes
    (``LlamaTokenizer``, ``Qwen2Tokenizer``) from the vocabulary alone and then splits ``" A"`` otherwise than the
    published file does.  For every class that takes the file as it is, :meth:`encode` equals the tokenizer's own call;
    as there, ``add_bos_token`` in ``tokenizer_config.json`` does not change what the file adds by default.  The names
    of BOS and EOS come from ``tokenizer_config.json`` or ``special_tokens_map.json``.  Where neither names one, their
    ids come from ``config.json``, unless the tokens there are words.
    """

    def __init__(self, folder: str | Path) -> None:
        """Read the tokenizer of ``folder``; ModelError when there is none or it can't be used."""
        self._folder = folder = Path(folder)
        file, *_ = tokenizer_files(folder)
        spelled = file if file.name in SENTENCEPIECE else None
        self._backend = _backend(file) if spelled is None else _convert(folder, spelled)
        self._backend.no_truncation()
        self._backend.no_padding()
        self._original = None if spelled is None else _Original(spelled, self._backend)
        content = json.loads(self._backend.to_str())
        self.token_bytes: Sequence[bytes] = token_bytes(content)
        added = content.get("added_tokens") or ()
        self.special: Mapping[int, str] = {
            int(token["id"]): str(token["content"]) for token in added if token["special"]
        }
        self.cut = (
            find_split_rule(content) if spelled is None else None
        )  # so that whole texts are checked
        names = read_object(folder / "special_tokens_map.json") | read_object(
            folder / "tokenizer_config.json"
        )
        self.bos_id, self.eos_id = (
            _id(names.get(f"{role}_token"), self._backend) for role in ("bos", "eos")
        )
        if self.bos_id is None and self.eos_id is None:
            config = read_object(folder / "config.json")
            self.bos_id = self._marker(config.get("bos_token_id"))
            self.eos_id = self._marker(config.get("eos_token_id"))
        model = content["model"]
        unknown = model.get("unk_id")
        self.unknown_id = (
            unknown if isinstance(unknown, int) else _id(model.get("unk_token"), self._backend)
        )
        self.mask_id = _id(names.get("mask_token"), self._backend)
        if self.mask_id is None:
            ids = {name: token for token, name in self.special.items()}
            self.mask_id = next((ids[name] for name in _MASKS if name in ids), None)
        self._splits = content.get("pre_tokenizer") is not None
        identity = f"{json.dumps(content, sort_keys=True, ensure_ascii=False)}\n{self.bos_id} {self.eos_id}"
        self.digest = hashlib.sha256(identity.encode()).hexdigest()

    @cached_property
    def chat(self) -> ChatTemplate | None:
        """The chat template of the folder; ModelError where it is none."""
        return read_chat_template(self._folder)

    def encode(self, texts: Sequence[str], *, special: bool) -> list[Ids]:
        """Token ids of each text, never truncated or padded; ``special`` adds what the file adds by default."""
        encodings = self._backend.encode_batch_fast(list(texts), add_special_tokens=special)
        tokens = [np.asarray(encoding.ids, dtype=np.int32) for encoding in encodings]
        if self._original is not None:
            added = [
                np.asarray(encoding.special_tokens_mask, dtype=np.bool_) for encoding in encodings
            ]
            self._original.check(
                texts, [own[~mask] for own, mask in zip(tokens, added, strict=True)]
            )
        return tokens

    def words(self, texts: Sequence[str]) -> list[Ids]:
        """For each token of each text the number of its word, as the file splits a text before it looks tokens up.

        So a word is what ``word_ids`` of transformers calls one; a special token is one by itself.  Where the file does
        not split, a word begins with its white space.
        """
        if not self._splits:
            spelled = (
                [self.token_bytes[token] for token in ids]
                for ids in self.encode(texts, special=False)
            )
            return [
                numbered_words(piece[:1].isspace() or not piece for piece in pieces)
                for pieces in spelled
            ]
        encodings = self._backend.encode_batch(list(texts), add_special_tokens=False)
        numbers = ([None, *encoding.word_ids] for encoding in encodings)
        return [
            numbered_words(one is None or one != before for before, one in pairwise(each))
            for each in numbers
        ]

    def decode(self, ids: Ids) -> str:
        """The text of ``ids`` without special tokens, a dummy space kept; bytes not UTF-8 become U+FFFD.

        Ids beyond the tokenizer's, which a model with a padded vocabulary may find likeliest, stand for no text.
        """
        known = len(self.token_bytes)
        return b"".join(self.token_bytes[token] for token in ids if token < known).decode(
            errors="replace"
        )

    def _marker(self, ids: Any) -> int | None:
        """Return the token that a configuration names as BOS or EOS; None if it names none, or one that is a word.

        Configurations of transformers have ids by default, whatever the vocabulary has there.
        """
        token = _first(ids)
        if token is None or token in self.special or token >= len(self.token_bytes):
            return token
        spelled = self.token_bytes[token].decode(errors="replace")
        if spelled and _MARKER.fullmatch(spelled) is None:
            return None
        return token


def tokenizer_files(folder: Path) -> list[Path]:
    """The files that :class:`HfTokenizer` reads, the vocabulary first.

    ModelError without a ``tokenizer.json`` or a SentencePiece file.
    """
    first = next(
        (name for name in ("tokenizer.json", *SENTENCEPIECE) if (folder / name).is_file()), None
    )
    if first is None:
        if any((folder / name).is_file() for name in _VOCABULARIES):
            raise ModelError(
                f'{folder} holds no tokenizer.json; make one: python -c "from transformers import AutoTokenizer as T; '
                f"T.from_pretrained('{folder}').save_pretrained('{folder}')\""
            )
        raise ModelError(
            f"{folder} holds no tokenizer.json; copy tokenizer.json and tokenizer_config.json into it from the model"
            " that it was trained from: `hf download ORG/NAME tokenizer.json tokenizer_config.json"
            f" --local-dir {folder}`"
        )
    names = (first, "tokenizer_config.json", "special_tokens_map.json", "config.json")
    return [folder / name for name in names if (folder / name).is_file()]


def _backend(path: Path) -> Any:
    try:
        import tokenizers
    except ImportError as error:
        raise ModelError(f"tokenizers is not installed; run: {install_line('hf')}") from error
    try:
        with open_file(path, DOCUMENT):  # whose errors say more
            pass
        backend = tokenizers.Tokenizer.from_file(str(path))
    except OSError:
        raise
    except Exception as error:  # the library raises plain Exception for every malformed file
        raise ModelError(f"{path} is not a tokenizer: {error}; fetch the file again") from error
    return backend


def _id(name: Any, backend: Any) -> int | None:
    """The id of a special token, which the files name by its text or as an object with ``content``."""
    text = token_text(name)
    token = None if text is None else backend.token_to_id(text)
    return None if token is None else int(token)


def _first(ids: Any) -> int | None:
    """One id where a configuration may list several, the first being the usual one."""
    if isinstance(ids, list):
        ids = ids[0] if ids else None
    return ids if isinstance(ids, int) else None


def _convert(folder: Path, file: Path) -> Any:
    """The tokenizer of ``folder`` as transformers converts its SentencePiece ``file``: a ``tokenizers.Tokenizer``.

    ``tokenizer_class`` in ``tokenizer_config.json`` decides how, which is why the texts of a run are checked
    (:class:`_Original`).  Raises ModelError where a package is missing or the file is none.
    """
    for module, package in (("sentencepiece", "sentencepiece"), ("google.protobuf", "protobuf")):
        if not is_installed(module):
            raise ModelError(
                f"{folder} holds no tokenizer.json, and to convert {file.name} {package} is missing; run: "
                f"{install_line('sentencepiece')}"
            )
    from transformers import AutoTokenizer

    try:
        with quiet():
            converted = AutoTokenizer.from_pretrained(folder, local_files_only=True)
        return converted.backend_tokenizer
    except Exception as error:  # files are malformed in every way there is
        raise ModelError(f"{file} can't be converted: {error}; fetch the file again") from error


class _Original:
    """The encoder in a SentencePiece ``file``, against which ``converted``, the tokenizer made of it, is held."""

    def __init__(self, file: Path, converted: Any) -> None:
        from sentencepiece import SentencePieceProcessor

        self._file, self._converted = file, converted
        self._encoder = SentencePieceProcessor(model_file=str(file))
        pieces = [
            self._encoder.id_to_piece(token) for token in range(self._encoder.get_piece_size())
        ]
        self._id_of = np.asarray(
            [-1 if (own := converted.token_to_id(piece)) is None else own for piece in pieces]
        )
        self._special = [token.content for token in converted.get_added_tokens_decoder().values()]

    def check(self, texts: Sequence[str], tokens: Sequence[Ids]) -> None:
        """ModelError, with an example, where ``tokens`` of one of ``texts`` are not the original's.

        A space that a text begins with does not count: by itself the original puts another before it, and what
        transformers makes of it does not.  Texts that hold special tokens, which the original knows nothing of, are
        left out.
        """
        plain = [
            index
            for index, text in enumerate(texts)
            if not any(token in text for token in self._special)
        ]
        originals = self._encoder.encode([texts[index].removeprefix(" ") for index in plain])
        for index, original in zip(plain, originals, strict=True):
            due = self._id_of[original] if original else np.empty(0, dtype=np.int64)
            if np.array_equal(due, tokens[index]) or texts[index] == " ":
                continue
            ours = [self._converted.id_to_token(int(token)) for token in tokens[index]]
            theirs = [self._encoder.id_to_piece(token) for token in original]
            pairs = enumerate(zip(ours, theirs, strict=False))
            same = next((at for at, pair in pairs if pair[0] != pair[1]), len(theirs))
            rest = slice(same, same + _SHOWN)
            raise ModelError(
                f"{self._file}, converted as transformers does, splits {texts[index][:80]!r} otherwise than "
                f"SentencePiece itself: token {same} and those after it are {ours[rest]}, not {theirs[rest]}; name the "
                "model's tokenizer_class in tokenizer_config.json, or use the tokenizer.json of whoever made the model"
            )
