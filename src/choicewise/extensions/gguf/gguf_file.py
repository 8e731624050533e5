"""Read what a GGUF file states before its weights, within bounds, and refuse what is no language
model.
"""

from __future__ import annotations

import mmap
import re
import struct
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from math import prod
from pathlib import Path
from typing import Any

from choicewise.errors import ModelError, install_line
from choicewise.models.local.files import is_installed, readable
from choicewise.util.text import quoted

SERVE_IT = (
    "serve it with llama.cpp (command in docs/servers.md) and use model "
    "server:http://127.0.0.1:8000/v1#NAME"
)
_VERSIONS = (2, 3)
_LONGEST_STRING = 1 << 24  # bytes; the longest published chat template has 30,000
_LONGEST_HEAD = 1 << 26
"""Most bytes before the weights; a vocabulary of 262,144 takes 6 million."""
_MOST_ENTRIES = 1 << 16  # keys, and tensors; published files have some thousands at most
_MOST_VALUES = 1 << 22  # in one list; the largest published vocabulary has 262,144 tokens
_MOST_DIMENSIONS = 4  # of ggml
_COUNT_OF_KEYS = 16  # the offset in bytes of the number of keys
_ALIGNMENT = 32  # bytes, where the file states no other

# Value types of the format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
_NUMBERS = {
    0: "B",
    1: "b",
    2: "H",
    3: "h",
    4: "I",
    5: "i",
    6: "f",
    7: "?",
    10: "Q",
    11: "q",
    12: "d",
}
_STRING = 8
_ARRAY = 9

_KINDS: Mapping[str, type] = {
    "general.architecture": str,
    "general.alignment": int,
    "split.count": int,
    "tokenizer.chat_template": str,
    "tokenizer.ggml.model": str,
    "tokenizer.ggml.pre": str,
    "tokenizer.ggml.add_bos_token": bool,
    "tokenizer.ggml.add_eos_token": bool,
    "tokenizer.ggml.add_space_prefix": bool,
    "tokenizer.ggml.bos_token_id": int,
    "tokenizer.ggml.eos_token_id": int,
}
"""Keys that decide what is computed, and the type that the format gives them."""
_TEXTS = ("tokenizer.ggml.tokens", "tokenizer.ggml.merges")
"""Keys that hold lists of texts."""

_SHARD = re.compile(r"(?P<stem>.+)-(?P<number>\d{5})-of-(?P<count>\d{5})\.gguf", re.IGNORECASE)
_OTHER_KINDS = {
    "adapter": "an adapter (LoRA)",
    "mmproj": "a projector for images or sound (mmproj)",
    "imatrix": "an importance matrix for quantising",
    "vocab": "a vocabulary without weights",
}
"""``general.type`` of files that hold no language model, in words."""


@dataclass(frozen=True)
class Tensor:
    """Describe one tensor: its shape in torch's order, ggml's name of its type, and where its bytes
    lie.

    ``offset`` counts bytes from the first weight on.
    """

    name: str
    shape: tuple[int, ...]
    kind: str
    offset: int
    bytes: int

    @property
    def values(self) -> int:
        """Return the number of values."""
        return prod(self.shape)


@dataclass(frozen=True)
class GgufFile:
    """Hold the metadata and the list of tensors of the GGUF file at ``path``, whose weights begin
    at byte ``start``.

    ``entries`` has the bytes of every key with its value; the list of tensors follows the last one.
    """

    path: Path
    metadata: Mapping[str, Any]
    entries: Mapping[str, range]
    tensors: tuple[Tensor, ...]
    start: int

    @property
    def architecture(self) -> str:
        """Return llama.cpp's name of the architecture."""
        return str(self.metadata.get("general.architecture", ""))

    def setting(self, name: str, default: Any = None) -> Any:
        """Return the value of the architecture's key ``name``, such as ``rope.freq_base``."""
        return self.metadata.get(f"{self.architecture}.{name}", default)

    @cached_property
    def quantisation(self) -> str:
        """Return the name of the quantisation, such as ``Q4_K_M``: as stated, else the type of most
        bytes.
        """
        from gguf import LlamaFileType

        stated = self.metadata.get("general.file_type")
        if stated in {kind.value for kind in LlamaFileType}:
            name = LlamaFileType(stated).name.removeprefix("ALL_").removeprefix("MOSTLY_")
            if name != "GUESSED":
                return name
        sizes = Counter[str]()
        for tensor in self.tensors:
            sizes[tensor.kind] += tensor.bytes
        return sizes.most_common(1)[0][0]


def read_gguf(path: Path) -> GgufFile:
    """Read the head of the GGUF file at ``path``.

    Raises ModelError if it is damaged, of another format or version, a part of a split model, or no
    language model.
    """
    if not is_installed("gguf"):
        raise ModelError(f"{path.name} needs the package gguf; run: {install_line('gguf')}")
    if not path.is_file():
        raise ModelError(f"there is no file {path}; pass a GGUF file or a model folder")
    if path.stat().st_size < 24:
        raise ModelError(
            f"{path} has only {path.stat().st_size} bytes, too few for a GGUF file; fetch it again"
        )
    size = path.stat().st_size
    with (
        readable(path),
        path.open("rb") as stream,
        mmap.mmap(stream.fileno(), min(size, _LONGEST_HEAD), access=mmap.ACCESS_READ) as content,
    ):
        file = _Reader(path, content, size).file()
    _refuse_shard(file)
    _refuse_other_kinds(file)
    return file


def write_head(file: GgufFile, copy: Path) -> None:
    """Write ``file`` to ``copy`` without its vocabulary, and with zeros, which take no space, as
    weights.

    gguf's reader takes seconds for a vocabulary.
    """
    kept = [key for key in file.metadata if not _is_vocabulary(file, key)]
    with file.path.open("rb") as stream:
        head = stream.read(file.start)
    end_of_entries = max(entry.stop for entry in file.entries.values())
    with copy.open("wb") as stream:
        stream.write(head[:_COUNT_OF_KEYS])
        stream.write(struct.pack("<Q", len(kept)))
        for key in kept:
            entry = file.entries[key]
            stream.write(head[entry.start : entry.stop])
        stream.write(head[end_of_entries:])
        weights = file.path.stat().st_size - file.start
        alignment = file.metadata.get("general.alignment", _ALIGNMENT)
        stream.truncate(_padded(stream.tell(), alignment) + weights)


def _is_vocabulary(file: GgufFile, key: str) -> bool:
    return key.startswith("tokenizer.") and isinstance(file.metadata[key], list)


class _Reader:
    """Read a GGUF file from its first byte on; every length is held against the bytes that are
    left.
    """

    def __init__(self, path: Path, content: mmap.mmap, size: int) -> None:
        self._path = path
        self._content = content
        self._size = size
        self._at = 0

    def file(self) -> GgufFile:
        """Return the head of the file."""
        self._check_version()
        tensor_count = self._number("Q")
        entry_count = self._number("Q")
        metadata: dict[str, Any] = {}
        entries: dict[str, range] = {}
        for _ in range(self._bounded(entry_count, "keys")):
            start = self._at
            key = self._string()
            if key in metadata:
                raise self._damaged(f"it has the key {key[:80]!r} twice")
            metadata[key] = self._value(key, self._number("I"))
            entries[key] = range(start, self._at)
        self._check_kinds(metadata)
        tensors = self._tensors(self._bounded(tensor_count, "tensors"))
        alignment = metadata.get("general.alignment", _ALIGNMENT)
        if alignment < 1 or alignment & (alignment - 1):
            raise self._damaged(f"its general.alignment is {alignment!r}")
        start = _padded(self._at, alignment)
        end = start
        for tensor in tensors:
            # As in ggml, tensors follow each other without gaps, so none can overlap.
            if start + tensor.offset != _padded(end, alignment):
                raise self._damaged(f"its tensor {tensor.name[:80]!r} is not where it should be")
            end = start + tensor.offset + tensor.bytes
        # A file without tensors has nothing to align after its metadata.
        if tensors and end > self._size:
            raise ModelError(
                f"{self._path} is cut short: it should have {end:,} bytes and has {self._size:,}; "
                "fetch it again"
            )
        return GgufFile(self._path, metadata, entries, tensors, start)

    def _bounded(self, count: int, what: str) -> int:
        if count > _MOST_ENTRIES:
            raise self._damaged(f"it has {count:,} {what}")
        return count

    def _check_kinds(self, metadata: Mapping[str, Any]) -> None:
        """Raise ModelError if a key has a value of another type than the format gives it."""
        for key, kind in _KINDS.items():
            if key in metadata and type(metadata[key]) is not kind:
                raise self._damaged(f"its {key} is {str(metadata[key])[:80]!r}")
        for key in _TEXTS:
            texts = metadata.get(key, [])
            # All values of a list have the type of the first one.
            if not isinstance(texts, list) or not isinstance((texts or [""])[0], str):
                raise self._damaged(f"its {key} is no list of texts")

    def _check_version(self) -> None:
        magic = self._content[:4]
        if magic != b"GGUF":
            raise ModelError(
                f"{self._path} is not a GGUF file: it begins with {magic!r}; fetch it again"
            )
        self._at = 4
        version = self._number("I")
        if version in _VERSIONS:
            return
        swapped = int.from_bytes(version.to_bytes(4, "little"), "big")
        if swapped in _VERSIONS:
            raise ModelError(f"{self._path} is a big-endian GGUF file; fetch the little-endian one")
        raise ModelError(
            f"{self._path} is GGUF version {version}, but only 2 and 3 can be read; convert the "
            "model with a "
            "current llama.cpp"
        )

    def _tensors(self, count: int) -> tuple[Tensor, ...]:
        from gguf import GGML_QUANT_SIZES, GGMLQuantizationType

        kinds = {kind.value: kind for kind in GGMLQuantizationType}
        tensors = []
        for _ in range(count):
            name = self._string()
            dimensions = self._number("I")
            if dimensions > _MOST_DIMENSIONS:
                raise self._damaged(f"its tensor {name[:80]!r} has {dimensions} dimensions")
            # ggml counts the fastest dimension first, torch last.
            shape = tuple(reversed([self._number("Q") for _ in range(dimensions)]))
            kind = self._number("I")
            offset = self._number("Q")
            if kind not in kinds:
                raise ModelError(
                    f"{self._path} has tensors of a type unknown to gguf ({kind}); {SERVE_IT}"
                )
            block, block_bytes = GGML_QUANT_SIZES[kinds[kind]]
            if not shape or shape[-1] % block:
                raise self._damaged(f"its tensor {name[:80]!r} has the shape {shape}")
            size = prod(shape) // block * block_bytes
            tensors.append(Tensor(name, shape, kinds[kind].name, offset, size))
        return tuple(tensors)

    def _value(self, key: str, kind: int) -> Any:
        if kind == _STRING:
            return self._string()
        if kind == _ARRAY:
            return self._array(key)
        if kind not in _NUMBERS:
            raise self._damaged(f"its {key[:80]!r} has the type {kind}")
        return self._number(_NUMBERS[kind])

    def _array(self, key: str) -> list[Any]:
        kind = self._number("I")
        count = self._number("Q")
        if count > _MOST_VALUES:
            raise self._damaged(f"its {key[:80]!r} has {count:,} values")
        if kind == _STRING:
            return [self._string() for _ in range(count)]
        if kind not in _NUMBERS:
            raise self._damaged(f"its {key[:80]!r} is a list of the type {kind}")
        layout = f"<{count}{_NUMBERS[kind]}"
        values = struct.unpack(layout, self._take(struct.calcsize(layout)))
        return list(values)

    def _string(self) -> str:
        length = self._number("Q")
        if length > _LONGEST_STRING:
            raise self._damaged(f"it has a text of {length:,} bytes at byte {self._at:,}")
        # llama.cpp stores tokens of incomplete characters too; they are compared as they are.
        return self._take(length).decode("utf-8", "surrogateescape")

    def _number(self, code: str) -> Any:
        layout = f"<{code}"
        (value,) = struct.unpack(layout, self._take(struct.calcsize(layout)))
        return value

    def _take(self, length: int) -> bytes:
        end = self._at + length
        if end > self._size:
            raise self._damaged(f"it ends at byte {self._size:,}, before its weights begin")
        if end > _LONGEST_HEAD:
            raise self._damaged(f"its metadata have more than {_LONGEST_HEAD:,} bytes")
        taken = self._content[self._at : end]
        self._at = end
        return taken

    def _damaged(self, reason: str) -> ModelError:
        return ModelError(f"{self._path} is damaged: {reason}; fetch it again")


def _padded(length: int, alignment: int) -> int:
    return -(-length // alignment) * alignment


def _refuse_shard(file: GgufFile) -> None:
    """Raise ModelError if ``file`` is one of several files of a model; say which are there and how
    to join them.
    """
    match = _SHARD.fullmatch(file.path.name)
    count = file.metadata.get("split.count", 0)
    if match is None and count <= 1:
        return
    if match is None:
        command = _join(Path("FIRST.gguf"), Path("WHOLE.gguf"))
        raise ModelError(f"{file.path} is one of {count} parts of a model; join them: {command}")
    folder = file.path.parent
    first = folder / f"{match['stem']}-00001-of-{match['count']}.gguf"
    command = _join(first, folder / f"{match['stem']}.gguf")
    parts = [
        folder / f"{match['stem']}-{number:05}-of-{match['count']}.gguf"
        for number in range(1, int(match["count"]) + 1)
    ]
    missing = [part.name for part in parts if not part.is_file()]
    if missing:
        raise ModelError(
            f"{file.path} is one of {len(parts)} parts, and {missing[0]} is missing "
            f"({len(missing)} in all); fetch all parts, then join them: {command}"
        )
    raise ModelError(f"{file.path} is one of {len(parts)} parts; join them: {command}")


def _join(first: Path, whole: Path) -> str:
    return f"llama-gguf-split --merge {quoted(first)} {quoted(whole)}"


def _refuse_other_kinds(file: GgufFile) -> None:
    """Raise ModelError if ``file`` holds no language model."""
    kind = str(file.metadata.get("general.type", "model"))
    if file.architecture == "clip":
        kind = "mmproj"
    if kind in _OTHER_KINDS:
        raise ModelError(
            f"{file.path} holds {_OTHER_KINDS[kind]} and no language model; pass the model's file"
        )
    if not file.architecture:
        raise ModelError(
            f"{file.path} names no general.architecture, so it is no language model; fetch it again"
        )
    if not file.tensors:
        raise ModelError(f"{file.path} holds {_OTHER_KINDS['vocab']}; pass the model's file")
    if "tokenizer.ggml.tokens" not in file.metadata:
        raise ModelError(
            f"{file.path} holds no tokenizer, so it is no language model; pass the model's file"
        )


def is_part(name: str) -> bool:
    """Return True if a file called ``name`` is one of several parts of a model."""
    return _SHARD.fullmatch(name) is not None
