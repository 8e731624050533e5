"""A model in a folder: what is known of it before torch is imported, and its first answer."""

from __future__ import annotations

import gc
import hashlib
import importlib
import json
import math
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from importlib.metadata import version
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any, Final

from choicewise.errors import ModelError
from choicewise.models.local import devices, parallel
from choicewise.models.local import files as model_files
from choicewise.models.local.devices import NOTHING, Footprint, device_of, devices_of, is_shared
from choicewise.models.local.files import (
    CAUSAL,
    ENCODER_DECODER,
    MASKED,
    PACKAGES,
    WEIGHTS,
    ModelKind,
)
from choicewise.models.local.products import products_of, use_products
from choicewise.models.local.tokenizer import HfTokenizer, tokenizer_files
from choicewise.models.model import Model, Recipe, SelfCheck
from choicewise.questions import Answers, Prompt
from choicewise.tokens.encode import PartwiseTokenizer
from choicewise.tokens.tokenizer import Tokenizer

if TYPE_CHECKING:
    from choicewise.models.local.local_model import LocalModel
    from choicewise.models.local.networks import PaddedModel, Spread


_DTYPES = ("float32", "bfloat16", "float16", "auto")
_UNUSED: Final = 1.25  # times what is in use an allocator takes, as measured on CPUs with vocabularies of 128,000
_FLOATS: Final = {"F64", "F32", "F16", "BF16"}
_BYTES: Final = {"float32": 4, "bfloat16": 2, "float16": 2}
_HEAVY = tuple(
    f"choicewise.models.local.{name}" for name in ("networks", "local_model")
)  # import torch
_IMPORTING = Lock()  # of several models that are loaded at once, one imports


class FolderModel:
    """The model in the folder ``path``, a language model in the format of Hugging Face transformers.

    Whether it is a causal model, a masked one or an encoder-decoder, and so what it ``supports``, is what its
    configuration says (:mod:`choicewise.models.local.files`).

    ``dtype``: of weights and arithmetic; ``auto`` takes the checkpoint's own; by default float32 on a CPU and the
    checkpoint's own elsewhere.  ``device``: by default a CUDA device where there is one, else the CPU; ``auto`` spreads
    the model over all GPUs where there are several, ``cuda:0..3`` over these; processes that ``torchrun`` started share
    it instead.  ``window``: the most input tokens, by
    default and at most what the configuration states.  ``rung``, ``batch_tokens``: as in
    :class:`~choicewise.models.local.local_model.LocalModel`.  Only safetensors files are opened, nothing is downloaded,
    and code in the folder runs only with ``trust_remote_code``, and only where transformers has none of its own.
    ``adapter``: the folder of an adapter that PEFT trained beside the model; its digest is part of the model's, its
    name follows the model's.  ``products``: which library multiplies (:mod:`choicewise.models.local.products`).
    ``elsewhere``: others load the weights, on a ``device`` that this machine need not have.

    What the files' headers tell is checked here, without torch: ModelError when something is missing, damaged or can't
    be read.  Whether it can be loaded and computes what it should shows when something is first answered.
    """

    source = ""
    """The repository on the Hub and the commit that the folder was downloaded from."""
    kind_name = "local"
    recipe: Recipe | None = None
    """What ``load_model`` was given, where it made this."""
    number: int | None = None
    """By which several processes that share it know it; rank 0 gives it."""

    def __init__(
        self,
        path: str | Path,
        dtype: str | None = None,
        device: str | None = None,
        window: int | None = None,
        rung: str = "auto",
        batch_tokens: int | None = None,
        trust_remote_code: bool = False,
        adapter: str | Path | None = None,
        products: str | None = None,
        elsewhere: bool = False,
    ) -> None:
        self.folder = Path(path)
        self.device = device if elsewhere and device is not None else device_of(device)
        self.asked_dtype = dtype or (
            "float32" if self.device.partition(":")[0] == "cpu" else "auto"
        )
        if self.asked_dtype not in _DTYPES:
            raise ModelError(f"dtype is {dtype!r}; it must be one of {', '.join(_DTYPES)}")
        for option, tokens in (("window", window), ("batch_tokens", batch_tokens)):
            if tokens is not None and tokens < 1:
                raise ModelError(f"{option} is {tokens} tokens; it must be at least 1, or left out")
        self.batch_tokens = batch_tokens
        self._options: dict[str, Any] = {"rung": rung, "batch_tokens": batch_tokens}
        self._trusted = trust_remote_code
        self.products = products_of(self.device, self.asked_dtype, products)
        self._loading = Lock()
        with model_files.readable(self.folder):
            model_files.refuse_adapter(self.folder)
            self.config = model_files.read_config(self.folder)
            self.kind = model_files.model_kind(self.config)
            self.supports = model_files.supported(self.config)
            self.quantisation = self._read_quantisation()
            self.digest = self._identify()
            self.window = model_files.window_of(self.config, self.folder, window)
            self.name, self.adapter = self._name_of_files(), None
            if adapter is not None:
                self.adapter = added = model_files.read_adapter(Path(adapter))
                both = f"{self.digest} {model_files.remembered(added.files, 'adapter 1', lambda: added.digest)}"
                self.digest = hashlib.sha256(both.encode()).hexdigest()
                self.name = f"{self.name}+{added.name}"

    def _name_of_files(self) -> str:
        return self.folder.resolve().name

    def _read_quantisation(self) -> model_files.Quantisation | None:
        """Return how the weights are quantised, once their files are checked."""
        model_files.check_layers(self.config, self.folder)
        return model_files.read_quantisation(self.config, self.folder)

    def _identify(self) -> str:
        """Return the digest (64 hex) over configuration, tokenizer and weights."""
        files = [
            self.folder / "config.json",
            *tokenizer_files(self.folder),
            *model_files.weight_files(self.folder),
        ]
        how = f"choicewise 1, tokenizers {version('tokenizers')}, transformers {version('transformers')}"
        return model_files.remembered(
            files, how, lambda: model_files.digest(self.folder, self.tokenizer.digest)
        )

    def tensors(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """Yield the name of every tensor with its ``dtype``, ``shape`` and ``data_offsets`` (bytes)."""
        return model_files.tensors(model_files.weight_files(self.folder))

    def _load(self, spread: Spread | None) -> Any:
        """Return the torch module in evaluation mode on its device."""
        from choicewise.models.local.networks import load_network

        return load_network(
            self.folder, self.config, self.asked_dtype, self.device, self._trusted, spread
        )

    @property
    def packages(self) -> tuple[str, ...]:
        """What is needed beside torch and transformers to compute it, by the names for pip."""
        quantised = (
            () if self.quantisation is None else PACKAGES.get(self.quantisation.method, {}).values()
        )
        spread = ("accelerate",) if devices_of(self.device) else ()
        return (
            *dict.fromkeys((*quantised, *(() if self.adapter is None else ("peft",)), *spread)),
        )

    @cached_property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer of the folder, read when first used."""
        with model_files.readable(self.folder):
            tokenizer = HfTokenizer(self.folder)
        return PartwiseTokenizer(tokenizer, tokenizer.cut)

    @cached_property
    def dtype(self) -> str:
        """The dtype of weights and arithmetic; the weights are loaded where the files leave it open.

        Of quantised weights what they are, and the arithmetic: ``int8 (torchao), float32``.
        """
        if self.quantisation is not None:
            return f"{self.quantisation.weights} ({self.quantisation.method}), {self.local.dtype}"
        if self.asked_dtype == "auto":
            return model_files.dtype_of(self.config, self.folder) or self.local.dtype
        return self.asked_dtype

    @property
    def local(self) -> LocalModel | PaddedModel:
        """The model in memory.

        Raises ModelError when it can't be loaded, looks ahead though it is to be causal, or its weights do not fit.
        """
        with self._loading:
            if "_local" in self.__dict__ or not is_shared(self.device):
                return self._local
            _import_transformers()
            objections = {
                "it is no causal model": self.kind is not CAUSAL,
                "its weights are quantised": self.quantisation is not None,
                "it has an adapter": self.adapter is not None,
            }
            parallel.refuse(
                self.config,
                self.folder,
                next((each for each in objections if objections[each]), None),
            )
            ranks = parallel.joined()
            if self.number is None:
                self.number = ranks.number(self)
            options = {
                "dtype": self.asked_dtype,
                "device": self.device,
                "window": self.window,
                **self._options,
            }
            ranks.announce(("load", self.number, (str(self.folder.absolute()), options)))
            with ranks.together():
                return self._local

    @cached_property
    def _local(self) -> LocalModel | PaddedModel:
        _import_transformers()
        from choicewise.models.local.local_model import LocalModel, SharedModel
        from choicewise.models.local.networks import EncoderDecoder, MaskedLM, PathCache, Spread
        from choicewise.models.local.plain import looks_ahead

        is_spread = bool(devices_of(self.device))
        spread = Spread(self.folder, self.device, footprint_of(self)) if is_spread else None
        network = self._load(spread)
        if self.adapter is not None:
            self.adapter.attach(network)
        use_products(network, self.products)
        identity = (
            self.digest,
            str(network.dtype),
            self.device,
            self.window,
            self.products,
            [version(name) for name in self.packages],
        )
        # Code that the folder brings is no part of its digest, and a rung that was asked for is no choice.
        # Ranks that share a model could find other entries each.
        shared = is_shared(self.device)
        paths = (
            PathCache(identity)
            if self._options["rung"] == "auto" and not self._trusted and not shared
            else None
        )
        options = {**self._options, "paths": paths}
        kinds: dict[ModelKind, type[PaddedModel]] = {
            MASKED: MaskedLM,
            ENCODER_DECODER: EncoderDecoder,
        }
        if shared:
            parallel.joined().watch(network)
        causal = SharedModel if shared else LocalModel
        model = kinds.get(self.kind, causal)(
            network, self.tokenizer, self.name, self.digest, self.window, **options
        )
        if isinstance(model, SharedModel):
            assert self.number is not None
            model.number = self.number
        if isinstance(model, LocalModel) and looks_ahead(network, model.vocabulary):
            kind = type(network).__name__
            raise ModelError(
                f"{self.name} holds a model that looks ahead ({kind}); only causal ones give scores"
            )
        stated = (
            model.dtype
            if self.quantisation is not None
            else self.__dict__.setdefault("dtype", model.dtype)
        )
        if stated != model.dtype:
            raise ModelError(
                f"{self.folder} computes in {model.dtype}, though its files say {stated}; pass a dtype: {model.dtype}"
            )
        return model

    @property
    def selfcheck(self) -> SelfCheck | None:
        """The deepest self-check so far, or one as deep as the window needs; None where the rung is plain."""
        return self.local.selfcheck

    def check(self, depth: int) -> SelfCheck | None:
        """Choose the path for questions of up to ``depth`` input tokens, where that was not done; then its check."""
        return self.local.check(depth)

    @property
    def computed(self) -> int:
        """Input tokens that went through the model so far, those of the self-check included."""
        return self._local.computed if "_local" in self.__dict__ else 0

    @property
    def planned(self) -> int:
        """Input tokens known to be needed for all that was asked so far, and those computed."""
        return self._local.planned if "_local" in self.__dict__ else 0

    def objection(self, question: Prompt) -> str | None:
        """None: it answers every question of the kinds that it supports."""
        return None

    def answer(self, questions: Sequence[Prompt]) -> Answers:
        """The answers, in any order, as results become available."""
        return self.local.answer(questions)

    def __repr__(self) -> str:
        return f"FolderModel({json.dumps(str(self.folder))}, {self.dtype} on {self.device})"


def footprint_of(model: Model, *, deepest: int | None = None, generated: int = 0) -> Footprint:
    """What ``model`` needs where it is loaded; arguments as of :func:`footprint`."""
    if not isinstance(model, FolderModel):
        return NOTHING
    known: dict[str, Any] = {
        "dtype": model.asked_dtype,
        "device": model.device,
        "window": model.window,
    }
    known["tensors"] = model.tensors()
    needed = footprint(
        model.folder, **known, batch_tokens=model.batch_tokens, deepest=deepest, generated=generated
    )
    files = [] if model.adapter is None else [model.adapter.folder / WEIGHTS]
    added = sum(
        _bytes(entry, 4) for _, entry in model_files.tensors(files)
    )  # PEFT computes adapters in float32
    host = needed.host + (added if needed.context == 0 else 0)
    return Footprint(needed.weights + added, needed.workspace, needed.context, needed.layer, host)


def footprint(
    folder: Path,
    *,
    dtype: str = "auto",
    device: str = "cpu",
    window: int | None = None,
    batch_tokens: int | None = None,
    deepest: int | None = None,
    generated: int = 0,
    tensors: Iterable[tuple[str, Mapping[str, Any]]] | None = None,
) -> Footprint:
    """What the model in ``folder`` needs on a kind of device, ``cpu`` or else as ``cuda``, with weights in ``dtype``.

    ``dtype``: ``float32``, ``bfloat16``, ``float16``, or ``auto`` for the files' own; quantised weights stay as they
    are.  ``window``: input tokens of the model, by default what its configuration states; ``deepest``: of the longest
    question, by default up to :data:`DEEPEST`; ``generated``: of the longest generation.  ``tensors``: the weights, by
    default those of the folder's safetensors files.  ``batch_tokens``: as in
    :class:`~choicewise.models.local.local_model.LocalModel`.  Raises ModelError when files are missing or damaged.
    """
    device = "cpu" if device.partition(":")[0] == "cpu" else "cuda"
    with model_files.readable(folder):
        config = model_files.read_config(folder)
        quantised = "quantization_config" in config
        each = (
            None
            if quantised
            else _BYTES.get(dtype) or _BYTES.get(model_files.dtype_of(config, folder) or "")
        )
        layers = defaultdict[str, int](int)
        if tensors is None:
            tensors = model_files.tensors(model_files.weight_files(folder))
        for name, entry in tensors:
            layers[_part(name)] += _bytes(entry, each)
        known = window or model_files.window_of(config, folder)
    weights = sum(layers.values())
    size = each or _BYTES.get(dtype, 2 if quantised else 4)
    path, pack = min(known, deepest or devices.DEEPEST), batch_tokens or devices.PACKS[device]
    workspace = _workspace(
        config, size, path, pack, min(known, devices.PROBE), devices.LOGITS[device], generated
    )
    layer = max(layers.values(), default=0)
    host = devices.HOST[device] + (weights + workspace if device == "cpu" else layer)
    return Footprint(weights, workspace, devices.CONTEXT[device], layer, host)


def _import_transformers() -> None:
    """Import torch and transformers, in one thread, once, without looking for garbage meanwhile and among them later.

    They make half a million objects that stay: each look at them takes 0.2 s, and the one at exit a second.
    """
    with _IMPORTING:
        if all(name in sys.modules for name in _HEAVY):
            return
        gc.collect()  # what is garbage now would stay, too
        collecting = gc.isenabled()
        gc.disable()
        try:
            for name in _HEAVY:
                importlib.import_module(name)
        finally:
            gc.freeze()
            if collecting:
                gc.enable()


def _workspace(
    config: Mapping[str, Any],
    size: int,
    path: int,
    pack: int,
    probe: int,
    logits: int,
    generated: int,
) -> int:
    """Keys and values, and the larger of what a pack and a self-check take in passing; ``size``: bytes of a number.

    Those of the path to a pack, and of the path to the next one; while generations go on, of path and pack once
    more, and of what is generated.  In a layer a token has its hidden state six times (residual, normed, in and out
    of both halves), three rows of the inner layer, and queries, keys, values and their result, rotated and not.  An
    entry of the logits is there as it is, compared, as a bit, and as a float32 log-probability: at most 13 bytes;
    while tokens are drawn, 24.  A self-check has three sequences with all their logits.
    """
    text = {**config, **(config.get("text_config") or {})}

    def number(*names: str, default: int) -> int:
        return next(
            (text[name] for name in names if isinstance(text.get(name), int) and text[name] > 0),
            default,
        )

    hidden = number("hidden_size", "n_embd", "d_model", default=1024)
    heads = number(
        "num_attention_heads", "n_head", "n_heads", "num_heads", default=max(1, hidden // 64)
    )
    width = number("head_dim", "d_kv", default=max(1, hidden // heads))
    inner = number("intermediate_size", "n_inner", "ffn_dim", "d_ff", default=4 * hidden)
    experts = number("num_experts_per_tok", "num_experts_per_token", "top_k", default=1)
    chosen = experts * number("moe_intermediate_size", default=inner) if experts > 1 else 0
    layers = number("num_hidden_layers", "n_layer", "n_layers", "num_layers", default=32)
    keys = width * number("num_key_value_heads", "n_head_kv", default=heads)
    vocabulary = number("vocab_size", default=50_000)
    tokens = 2 * path + (path + pack + devices.TOGETHER * generated if generated else 0)
    states = 2 * layers * keys * size * tokens
    activations = pack * size * (6 * hidden + 3 * max(inner, chosen) + 3 * (heads * width + keys))
    entries = min(logits // 4, pack * vocabulary)
    read = max(
        (5 + 2 * size) * entries, 24 * min(devices.TOGETHER, pack) * vocabulary if generated else 0
    )
    return int(_UNUSED * (states + max(activations + read, 3 * probe * vocabulary * size)))


def _bytes(entry: Mapping[str, Any], each: int | None) -> int:
    """Memory of a tensor, whose floating-point numbers take ``each`` so many bytes, or None for as many as stored."""
    start, end = entry["data_offsets"]
    return (
        end - start
        if each is None or entry["dtype"] not in _FLOATS
        else each * math.prod(entry["shape"])
    )


def _part(name: str) -> str:
    """The layer that a tensor belongs to, or else the module: what lies on one device."""
    words = name.split(".")
    place = next((index for index, word in enumerate(words) if word.isdigit()), len(words) - 2)
    return ".".join(words[: place + 1])
