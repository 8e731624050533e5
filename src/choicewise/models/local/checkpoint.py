"""A model folder on disk: its required files, whether they are complete, and its identity."""

import hashlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from choicewise.errors import ModelError

CHUNK, CHUNKS = 1 << 20, 64

_WINDOWS = (
    *("max_position_embeddings", "n_positions", "max_sequence_length", "max_seq_len"),
    *("seq_length", "context_length", "n_ctx"),
)
"""The names under which configurations state how many positions the model knows."""


def read_config(folder: Path) -> dict[str, Any]:
    """``config.json`` of a model folder; ModelError when it is missing or no JSON object."""
    path = folder / "config.json"
    if not path.is_file():
        raise ModelError(f"{folder} holds no config.json, so it is no model folder; pass the folder that holds it")
    config = read_json(path)
    if not isinstance(config, dict):
        raise ModelError(f"{path} is not a JSON object; fetch the file again")
    return config


def read_json(path: Path) -> Any:
    """The content of a JSON file; ModelError when it is not JSON."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ModelError(f"{path} is not JSON: {error}; fetch the file again") from error


def window_of(config: Mapping[str, Any], folder: Path, window: int | None = None) -> int:
    """``window`` input tokens, or as many as the configuration states.

    ModelError when ``window`` is more than it states, or when both are missing.
    """
    places = [(name, place.get(name)) for place in (config, config.get("text_config") or {}) for name in _WINDOWS]
    stated = [(name, tokens) for name, tokens in places if isinstance(tokens, int) and tokens > 0]
    if not stated:
        if window is None:
            raise ModelError(
                f"{folder}/config.json does not say how many tokens fit the model; "
                "pass how many it was trained on as the window, for example 2048"
            )
        return window
    name, known = stated[0]
    if window is not None and window > known:
        raise ModelError(
            f"the model knows {known} positions ({name} in {folder}/config.json), not {window}; "
            f"leave the window out or pass at most {known}"
        )
    return known if window is None else window


def weight_files(folder: Path) -> list[Path]:
    """The safetensors files that hold the weights, as transformers chooses them, each checked to be complete.

    Raises ModelError when there are none (pickled weights are never opened), when a shard is missing, or when a file
    is cut short or no safetensors file.
    """
    index = folder / "model.safetensors.index.json"
    if (folder / "model.safetensors").is_file():
        files = [folder / "model.safetensors"]
    elif index.is_file():
        try:
            files = [folder / name for name in sorted(set(json.loads(index.read_text())["weight_map"].values()))]
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise ModelError(f"{index} is no index of safetensors files; fetch the file again") from error
    else:
        raise ModelError(
            f"{folder} holds no model.safetensors, and other formats (.bin, .pt) can run code when opened; "
            'convert it where you trust it: python -c "from transformers import AutoModelForCausalLM as M; '
            f"M.from_pretrained('{folder}').save_pretrained('{folder}')\""
        )
    for file in files:
        if not file.is_file():
            raise ModelError(f"{file} is missing though {index.name} lists it; fetch the model folder again")
        _header(file)
    return files


def digest(folder: Path, tokenizer: str) -> str:
    """sha256 (64 hex) over the configuration, the digest of the ``tokenizer`` and the weights.

    Of every weight file: name, size, header, and all bytes up to 64 MiB; of larger ones 64 evenly spaced chunks of
    1 MiB, so that the identity of a large model takes seconds.
    """
    identity = hashlib.sha256()
    identity.update(json.dumps(read_config(folder), sort_keys=True).encode())
    identity.update(tokenizer.encode())
    for file in weight_files(folder):
        identity.update(f"\n{file.name} {file.stat().st_size}\n".encode())
        identity.update(_header(file))
        for chunk in _chunks(file):
            identity.update(chunk)
    return identity.hexdigest()


def _chunks(file: Path) -> Iterator[bytes]:
    size = file.stat().st_size
    with file.open("rb") as stream:
        if size <= CHUNK * CHUNKS:
            yield stream.read()
            return
        for number in range(CHUNKS):
            stream.seek((size - CHUNK) * number // (CHUNKS - 1))
            yield stream.read(CHUNK)


def _header(file: Path) -> bytes:
    """The JSON header of a safetensors file, whose offsets must end where the file does."""
    size = file.stat().st_size
    with file.open("rb") as stream:
        length = int.from_bytes(stream.read(8), "little")
        header = stream.read(length) if length <= size else b""
    try:
        tensors = [entry for name, entry in json.loads(header).items() if name != "__metadata__"]
        end = max((entry["data_offsets"][1] for entry in tensors), default=0)
    except (ValueError, AttributeError, KeyError, TypeError, IndexError) as error:
        raise ModelError(
            f"{file} is not a safetensors file; fetch it again (git lfs pull, if it is a pointer)"
        ) from error
    if 8 + length + end != size:
        raise ModelError(f"{file} should have {8 + length + end} bytes but has {size}; fetch it again")
    return header
