"""The memory that a model takes, without loading it.

Weights are counted from the headers of the safetensors files.  What computing takes beside them is an allowance: where
it is too small, packs of questions get smaller and the answers stay the same (``engine``), so it errs on the side of
starting.  ``benchmarks/footprint.py`` compares it with measured peaks.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple

from choicewise.models.local import files as model_files

DEEPEST: Final = 4096
"""Tokens of the longest question where nobody says: few published protocols send more."""

PROBE: Final = 1024
"""Tokens of the longest sequence of a self-check that are allowed for: 128 in most models, more where layers look
back at a window; three of them are computed as one batch with all their logits."""

TOGETHER: Final = 128
"""Generations that go on together."""

PACKS: Final = {"cpu": 2048, "cuda": 16384}
"""Tokens of a pack."""

LOGITS: Final = {"cpu": 25_000_000, "cuda": 1_000_000_000}
"""Bytes of logits in float32 that are held at once."""

CONTEXT: Final = {"cpu": 0, "cuda": 1_000_000_000}
"""Bytes of a device that a process takes before it computes: of CUDA its context, the kernels and their workspace."""

HOST: Final = {"cpu": 750_000_000, "cuda": 3_000_000_000}
"""Bytes of main memory of a process with torch and transformers, questions and answers; with CUDA its libraries."""

_UNUSED: Final = 1.25
"""How many times as much an allocator takes as is in use: as measured on CPUs, with vocabularies of 128,000 tokens."""

_FLOATS: Final = {"F64": 8, "F32": 4, "F16": 2, "BF16": 2}
_BYTES: Final = {"float32": 4, "bfloat16": 2, "float16": 2}


@dataclass(frozen=True)
class Footprint:
    """Bytes of a device that a model needs: ``weights``; ``workspace``, an allowance for the keys, values, activations
    and logits of a pack of questions; ``context``, what a process takes there at all.

    ``layer``: the weights of its largest part that lies on one device.  ``host``: bytes of main memory; on a CPU, the
    device's are among them.
    """

    weights: int
    workspace: int
    context: int
    layer: int
    host: int

    @property
    def device(self) -> int:
        """Bytes of the one device that it is loaded on."""
        return self.weights + self.workspace + self.context

    def on_each(self, devices: int) -> int:
        """Bytes of each of so many devices that it is spread over: none splits a layer, and each computes a pack."""
        if devices == 1:
            return self.device
        return -(-self.weights // devices) + self.layer + self.workspace + self.context

    def devices(self, size: int, most: int) -> int | None:
        """The fewest devices of ``size`` bytes each that hold it, at most ``most``; None where those are too few."""
        return next((count for count in range(1, most + 1) if self.on_each(count) <= size), None)


NOTHING: Final = Footprint(0, 0, 0, 0, 200_000_000)
"""Of a model without weights: a process with the package."""


def footprint(
    folder: Path,
    *,
    dtype: str = "auto",
    device: str = "cpu",
    window: int | None = None,
    batch_tokens: int | None = None,
    deepest: int | None = None,
    generated: int = 0,
) -> Footprint:
    """What the model in ``folder`` needs on a kind of device, ``cpu`` or else as ``cuda``, with weights in ``dtype``.

    ``dtype``: ``float32``, ``bfloat16``, ``float16``, or ``auto`` for the files' own; quantised weights stay as they
    are.  ``window``: input tokens of the model, by default what its configuration states; ``deepest``: of the longest
    question, by default up to :data:`DEEPEST`; ``generated``: of the longest generation.  ``batch_tokens``: as in
    :class:`~choicewise.models.local.local_model.LocalModel`.  Raises ModelError when files are missing or damaged.
    """
    device = "cpu" if device == "cpu" else "cuda"
    with model_files.readable(folder):
        config = model_files.read_config(folder)
        quantised = "quantization_config" in config
        each = None if quantised else _BYTES.get(dtype) or _BYTES.get(model_files.dtype_of(config, folder) or "")
        layers = defaultdict[str, int](int)
        for name, size, numbers, kind in _tensors(model_files.weight_files(folder)):
            layers[_part(name)] += size if each is None or kind not in _FLOATS else numbers * each
        known = window or model_files.window_of(config, folder)
    weights = sum(layers.values())
    shape = _shape(config, each or _BYTES.get(dtype, 2 if quantised else 4))
    path, pack = min(known, deepest or DEEPEST), batch_tokens or PACKS[device]
    workspace = shape.workspace(path, pack, min(known, PROBE), LOGITS[device], generated)
    on_host = weights + workspace if device == "cpu" else max(layers.values(), default=0)
    return Footprint(weights, workspace, CONTEXT[device], max(layers.values(), default=0), HOST[device] + on_host)


def adapter_bytes(file: Path) -> int:
    """Memory that the weights of an adapter take: PEFT computes adapters in float32."""
    return sum(numbers * 4 if kind in _FLOATS else size for _, size, numbers, kind in _tensors([file]))


class _Shape(NamedTuple):
    """What of a configuration decides how large activations are; ``size``: bytes of a number."""

    layers: int
    hidden: int
    inner: int
    queries: int
    keys: int
    vocabulary: int
    size: int

    def workspace(self, path: int, pack: int, probe: int, logits: int, generated: int) -> int:
        """Keys and values, and the larger of what a pack and a self-check take in passing.

        Those of the path to a pack, and of the path to the next one; while generations go on, of path and pack once
        more, and of what is generated.  In a layer a token has its hidden state six times (residual, normed, in and out
        of both halves), three rows of the inner layer, and queries, keys, values and their result, rotated and not.  An
        entry of the logits is there as it is, compared, as a bit, and as a float32 log-probability: at most 13 bytes;
        while tokens are drawn, 24.  A self-check has three sequences with all their logits.
        """
        tokens = 2 * path + (path + pack + TOGETHER * generated if generated else 0)
        states = 2 * self.layers * self.keys * self.size * tokens
        activations = pack * self.size * (6 * self.hidden + 3 * self.inner + 3 * (self.queries + self.keys))
        entries = min(logits // 4, pack * self.vocabulary)
        read = max((5 + 2 * self.size) * entries, 24 * min(TOGETHER, pack) * self.vocabulary if generated else 0)
        checked = 3 * probe * self.vocabulary * self.size
        return int(_UNUSED * (states + max(activations + read, checked)))


def _shape(config: Mapping[str, Any], size: int) -> _Shape:
    """From whatever names a configuration has for its sizes."""
    text = {**config, **(config.get("text_config") or {})}

    def number(*names: str, default: int) -> int:
        return next((text[name] for name in names if isinstance(text.get(name), int) and text[name] > 0), default)

    hidden = number("hidden_size", "n_embd", "d_model", default=1024)
    heads = number("num_attention_heads", "n_head", "n_heads", "num_heads", default=max(1, hidden // 64))
    width = number("head_dim", "d_kv", default=max(1, hidden // heads))
    inner = number("intermediate_size", "n_inner", "ffn_dim", "d_ff", default=4 * hidden)
    experts = number("num_experts_per_tok", "num_experts_per_token", "top_k", default=1)
    chosen = experts * number("moe_intermediate_size", default=inner) if experts > 1 else 0
    return _Shape(
        layers=number("num_hidden_layers", "n_layer", "n_layers", "num_layers", default=32),
        hidden=hidden,
        inner=max(inner, chosen),
        queries=heads * width,
        keys=width * number("num_key_value_heads", "n_head_kv", default=heads),
        vocabulary=number("vocab_size", default=50_000),
        size=size,
    )


def _tensors(files: list[Path]) -> Iterator[tuple[str, int, int, str]]:
    """(name, bytes, numbers, kind) of every tensor of safetensors files."""
    for file in files:
        for name, entry in json.loads(model_files.read_header(file)).items():
            if name != "__metadata__":
                start, end = entry["data_offsets"]
                numbers = 1
                for side in entry["shape"]:
                    numbers *= side
                yield name, end - start, numbers, entry["dtype"]


def _part(name: str) -> str:
    """The layer that a tensor belongs to, or else the module: what lies on one device."""
    words = name.split(".")
    place = next((index for index, word in enumerate(words) if word.isdigit()), len(words) - 2)
    return ".".join(words[: place + 1])
