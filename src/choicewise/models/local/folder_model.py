"""Open a model in a folder: check its files without torch, and load it for its first answer."""

from __future__ import annotations

import gc
import importlib
import json
import math
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property, partial
from importlib.metadata import version
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any

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
from choicewise.models.local.products import check_products, products_of, use_products
from choicewise.models.local.tokenizer import HfTokenizer, tokenizer_files
from choicewise.models.model import Model, Recipe, SelfCheck
from choicewise.questions import Answers, Prompt
from choicewise.tokens.encode import PartwiseTokenizer
from choicewise.tokens.tokenizer import Tokenizer
from choicewise.util.jsonio import JsonDict, JsonMapping
from choicewise.util.text import text_digest

if TYPE_CHECKING:
    from choicewise.models.local.local_model import LocalModel
    from choicewise.models.local.networks import PaddedModel, PathCache, Spread


_DTYPES = ("float32", "bfloat16", "float16", "auto")
# What an allocator takes for each byte in use, as measured on CPUs with vocabularies of 128,000.
_UNUSED = 1.25
_FLOATS = {"F64", "F32", "F16", "BF16"}
_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}
# Modules that import torch.
_HEAVY = ("choicewise.models.local.networks", "choicewise.models.local.local_model")
_IMPORTING = Lock()  # of several models that are loaded at once, one imports


class FolderModel:
    """The model in the folder ``path``, a language model in the format of Hugging Face
    transformers.

    Its configuration says if it is a causal model, a masked one or an encoder-decoder, and so what
    it ``supports`` (:mod:`choicewise.models.local.files`).

    ``dtype``: of weights and arithmetic; ``auto`` takes the checkpoint's; by default float32 on a
    CPU and the checkpoint's elsewhere.  ``device``: by default a CUDA device if there is one, else
    the CPU; ``auto`` spreads the model over all GPUs if there are several, ``cuda:0..3`` over
    these; processes that ``torchrun`` started share it instead.  ``window``: the most input tokens,
    by default and at most what the configuration states.  ``rung``, ``batch_tokens``: as in
    :class:`~choicewise.models.local.local_model.LocalModel`.  Only safetensors files are opened,
    nothing is downloaded, and code in the folder runs only with ``trust_remote_code``, and only if
    transformers has none for the model.  ``adapter``: the folder of an adapter that PEFT trained
    beside the model; its digest is part of the model's, its name follows the model's.
    ``products``: which library multiplies (:mod:`choicewise.models.local.products`).
    ``elsewhere``: others load the weights, on a ``device`` that this machine need not have.

    The headers of the files are checked here, without torch: raises ModelError if something is
    missing, damaged or can't be read.  Whether the model can be loaded and computes what it should
    shows with the first answer.
    """

    source = ""
    """The repository on the Hub and the commit that the folder was downloaded from."""
    kind_name = "local"
    recipe: Recipe | None = None
    """The arguments of ``load_model``, if it made this."""
    number: int | None = None
    """The number of the model among several processes that share it; rank 0 gives it."""

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
        if elsewhere and device is not None:
            self.device = device
        else:
            self.device = device_of(device)
        default_dtype = "float32" if self.device.partition(":")[0] == "cpu" else "auto"
        self.asked_dtype = dtype or default_dtype
        if self.asked_dtype not in _DTYPES:
            raise ModelError(f"dtype is {dtype!r}; it must be one of {', '.join(_DTYPES)}")
        for option, tokens in (("window", window), ("batch_tokens", batch_tokens)):
            if tokens is not None and tokens < 1:
                raise ModelError(f"{option} is {tokens} tokens; it must be at least 1, or left out")
        self.batch_tokens = batch_tokens
        self._options: JsonDict = {"rung": rung, "batch_tokens": batch_tokens}
        self._trusted = trust_remote_code
        check_products(self.device, self.asked_dtype, products)
        self._wanted_products = products
        self._loading = Lock()
        with model_files.readable(self.folder):
            model_files.refuse_adapter(self.folder)
            self.config = model_files.read_config(self.folder)
            self.kind = model_files.model_kind(self.config)
            self.supports = model_files.supported(self.config)
            self.quantisation = self._read_quantisation()
            self.digest = self._identify()
            self.window = model_files.window_of(self.config, self.folder, window)
            self.name = self._name_of_files()
            self.adapter: model_files.Adapter | None = None
            if adapter is not None:
                self._add(model_files.read_adapter(Path(adapter)))

    def _add(self, adapter: model_files.Adapter) -> None:
        """Make the ``adapter`` a part of the model's identity."""
        digest = model_files.remembered(adapter.files, "adapter 1", lambda: adapter.digest)
        self.adapter = adapter
        self.digest = text_digest(f"{self.digest} {digest}")
        self.name = f"{self.name}+{adapter.name}"

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
        how = (
            f"choicewise 1, tokenizers {version('tokenizers')}, transformers "
            f"{version('transformers')}"
        )
        return model_files.remembered(
            files, how, lambda: model_files.digest(self.folder, self.tokenizer.digest)
        )

    def tensors(self) -> Iterator[tuple[str, JsonDict]]:
        """Yield the name of every tensor with its ``dtype``, ``shape`` and ``data_offsets``
        (bytes).
        """
        return model_files.tensors(model_files.weight_files(self.folder))

    def _load(self, spread: Spread | None) -> Any:
        """Return the torch module in evaluation mode on its device."""
        from choicewise.models.local.networks import load_network

        return load_network(
            self.folder, self.config, self.asked_dtype, self.device, self._trusted, spread
        )

    @property
    def packages(self) -> tuple[str, ...]:
        """Return the packages that it needs beside torch and transformers, by their names for pip."""
        names: list[str] = []
        if self.quantisation is not None:
            names += PACKAGES.get(self.quantisation.method, {}).values()
        if self.adapter is not None:
            names.append("peft")
        if devices_of(self.device):
            names.append("accelerate")
        return tuple(dict.fromkeys(names))

    @cached_property
    def tokenizer(self) -> Tokenizer:
        """Read the tokenizer of the folder."""
        with model_files.readable(self.folder):
            tokenizer = HfTokenizer(self.folder)
        return PartwiseTokenizer(tokenizer, tokenizer.cut)

    @cached_property
    def products(self) -> str:
        """Return which library multiplies; the first time on a machine that imports torch."""
        return products_of(self.device, self.asked_dtype, self._wanted_products)

    @cached_property
    def dtype(self) -> str:
        """Return the dtype of weights and arithmetic.

        The weights are loaded if the files leave it open.  Of quantised weights it names both:
        ``int8 (torchao), float32``.
        """
        if self.quantisation is not None:
            return f"{self.quantisation.weights} ({self.quantisation.method}), {self.local.dtype}"
        if self.asked_dtype == "auto":
            return model_files.dtype_of(self.config, self.folder) or self.local.dtype
        return self.asked_dtype

    @property
    def local(self) -> LocalModel | PaddedModel:
        """Return the model in memory.

        Raises ModelError if it can't be loaded, looks ahead though it is to be causal, or its
        weights do not fit.
        """
        with self._loading:
            if "_local" in self.__dict__ or not is_shared(self.device):
                return self._local
            _import_transformers()
            parallel.refuse(self.config, self.folder, self._unshareable())
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

    def _unshareable(self) -> str | None:
        """Return why several processes can't share it, or None."""
        if self.kind is not CAUSAL:
            return "it is no causal model"
        if self.quantisation is not None:
            return "its weights are quantised"
        if self.adapter is not None:
            return "it has an adapter"
        return None

    @cached_property
    def _local(self) -> LocalModel | PaddedModel:
        _import_transformers()
        from choicewise.models.local.local_model import LocalModel, SharedModel
        from choicewise.models.local.networks import EncoderDecoder, MaskedLM, Spread
        from choicewise.models.local.plain import looks_ahead

        spread = None
        if devices_of(self.device):
            spread = Spread(self.folder, self.device, footprint_of(self))
        network = self._load(spread)
        if self.adapter is not None:
            self.adapter.attach(network)
        use_products(network, self.products)
        causal: type[LocalModel] = LocalModel
        if is_shared(self.device):
            parallel.joined().watch(network)
            causal = SharedModel
        kinds: dict[ModelKind, type[LocalModel | PaddedModel]] = {
            CAUSAL: causal,
            MASKED: MaskedLM,
            ENCODER_DECODER: EncoderDecoder,
        }
        model = kinds[self.kind](
            network,
            self.tokenizer,
            self.name,
            self.digest,
            self.window,
            paths=self._paths(network),
            **self._options,
        )
        if isinstance(model, SharedModel):
            assert self.number is not None
            model.number = self.number
        if isinstance(model, LocalModel) and looks_ahead(network, model.vocabulary):
            kind = type(network).__name__
            raise ModelError(
                f"{self.name} holds a model that looks ahead ({kind}), which gives no scores; use "
                "a causal one"
            )
        if self.quantisation is None:
            # What the files say is compared with what was loaded, if anybody has read it.
            stated = self.__dict__.setdefault("dtype", model.dtype)
            if stated != model.dtype:
                raise ModelError(
                    f"{self.folder} computes in {model.dtype}, but its files state {stated}; pass "
                    "dtype "
                    f"{model.dtype}"
                )
        return model

    def _paths(self, network: Any) -> PathCache | None:
        """Return the cache of compute paths that self-checks chose; None if it can't be used.

        Code that the folder brings is no part of its digest, and a given rung is no choice.  Ranks
        that share a model could find different entries.
        """
        from choicewise.models.local.networks import PathCache

        if self._options["rung"] != "auto" or self._trusted or is_shared(self.device):
            return None
        versions = [version(name) for name in self.packages]
        dtype = str(network.dtype)
        return PathCache((self.digest, dtype, self.device, self.window, self.products, versions))

    @property
    def selfcheck(self) -> SelfCheck | None:
        """Return the deepest self-check so far, or one for the window; None if the rung is plain."""
        return self.local.selfcheck

    def check(self, depth: int) -> SelfCheck | None:
        """Choose the path for questions of up to ``depth`` input tokens, and return its check."""
        return self.local.check(depth)

    @property
    def computed(self) -> int:
        """Return the input tokens that went through the model, with those of the self-check."""
        return self._local.computed if "_local" in self.__dict__ else 0

    @property
    def planned(self) -> int:
        """Return the input tokens needed for all questions so far, and those computed."""
        return self._local.planned if "_local" in self.__dict__ else 0

    def objection(self, question: Prompt) -> str | None:
        """Return None: it answers every question of the kinds that it supports."""
        return None

    def answer(self, questions: Sequence[Prompt]) -> Answers:
        """Yield the answers, in any order, as results become available."""
        return self.local.answer(questions)

    def __repr__(self) -> str:
        return f"FolderModel({json.dumps(str(self.folder))}, {self.dtype} on {self.device})"


def footprint_of(model: Model, *, deepest: int | None = None, generated: int = 0) -> Footprint:
    """Return what ``model`` needs when it is loaded; arguments as of :func:`footprint`."""
    if not isinstance(model, FolderModel):
        return NOTHING
    needed = footprint(
        model.folder,
        dtype=model.asked_dtype,
        device=model.device,
        window=model.window,
        tensors=model.tensors(),
        batch_tokens=model.batch_tokens,
        deepest=deepest,
        generated=generated,
    )
    if model.adapter is None:
        return needed
    # PEFT computes adapters in float32.
    tensors = model_files.tensors([model.adapter.folder / WEIGHTS])
    added = sum(_bytes(entry, 4) for _, entry in tensors)
    host = needed.host
    if needed.context == 0:
        # On a CPU.
        host += added
    return replace(needed, weights=needed.weights + added, host=host)


def footprint(
    folder: Path,
    *,
    dtype: str = "auto",
    device: str = "cpu",
    window: int | None = None,
    batch_tokens: int | None = None,
    deepest: int | None = None,
    generated: int = 0,
    tensors: Iterable[tuple[str, JsonMapping]] | None = None,
) -> Footprint:
    """Return what the model in ``folder`` needs on a kind of device, in bytes.

    ``device``: ``cpu``, or any other, which is taken for a GPU.  ``dtype``: ``float32``,
    ``bfloat16``, ``float16``, or ``auto`` for that of the files; quantised weights stay as they
    are.  ``window``: input tokens of the model, by default what its configuration states;
    ``deepest``: of the longest question, by default up to
    :data:`~choicewise.models.local.devices.DEEPEST`; ``generated``: of the longest generation.
    ``tensors``: the weights, by default those of the folder's safetensors files.
    ``batch_tokens``: as in :class:`~choicewise.models.local.local_model.LocalModel`.

    Raises ModelError if files are missing or damaged.
    """
    device = "cpu" if device.partition(":")[0] == "cpu" else "cuda"
    with model_files.readable(folder):
        config = model_files.read_config(folder)
        quantised = "quantization_config" in config
        width = None
        if not quantised:
            width = _BYTES.get(dtype) or _BYTES.get(model_files.dtype_of(config, folder) or "")
        layers = defaultdict[str, int](int)
        if tensors is None:
            tensors = model_files.tensors(model_files.weight_files(folder))
        for name, entry in tensors:
            layers[_part(name)] += _bytes(entry, width)
        longest = window or model_files.window_of(config, folder)
    weights = sum(layers.values())
    layer = max(layers.values(), default=0)
    workspace = _workspace(
        config,
        size=width or _BYTES.get(dtype, 2 if quantised else 4),
        path=min(longest, deepest or devices.DEEPEST),
        pack=batch_tokens or devices.PACKS[device],
        probe=min(longest, devices.PROBE),
        logits=devices.LOGITS[device],
        generated=generated,
    )
    host = devices.HOST[device]
    if device == "cpu":
        host += weights + workspace
    else:
        host += layer
    return Footprint(
        weights=weights,
        workspace=workspace,
        context=devices.CONTEXT[device],
        layer=layer,
        host=host,
    )


def _import_transformers() -> None:
    """Import torch and transformers, in one thread, once, without collecting garbage.

    They make half a million objects that stay: to look for garbage among them takes 0.2 s each
    time, and at exit a second.
    """
    with _IMPORTING:
        if all(name in sys.modules for name in _HEAVY):
            return
        # Garbage of before would stay as well.
        gc.collect()
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
    config: JsonMapping,
    *,
    size: int,
    path: int,
    pack: int,
    probe: int,
    logits: int,
    generated: int,
) -> int:
    """Return the bytes of keys and values, and of what a pack or a self-check computes in passing.

    ``size``: bytes of a number; ``path``, ``pack``, ``probe``, ``generated``: tokens of a path to a
    pack, of a pack, of a sequence of the self-check, of a generation; ``logits``: bytes of logits
    at once.
    """
    number = partial(_number, {**config, **(config.get("text_config") or {})})
    hidden = number("hidden_size", "n_embd", "d_model", default=1024)
    default_heads = max(1, hidden // 64)
    heads = number("num_attention_heads", "n_head", "n_heads", "num_heads", default=default_heads)
    width = number("head_dim", "d_kv", default=max(1, hidden // heads))
    inner = number("intermediate_size", "n_inner", "ffn_dim", "d_ff", default=4 * hidden)
    experts = number("num_experts_per_tok", "num_experts_per_token", "top_k", default=1)
    if experts > 1:
        inner = max(inner, experts * number("moe_intermediate_size", default=inner))
    layers = number("num_hidden_layers", "n_layer", "n_layers", "num_layers", default=32)
    keys = width * number("num_key_value_heads", "n_head_kv", default=heads)
    vocabulary = number("vocab_size", default=50_000)

    # Keys and values are those of the path to a pack, and of the path to the next one; while
    # generations go on, those of path and pack once more, and of the generated tokens.
    tokens = 2 * path
    if generated:
        tokens += path + pack + devices.TOGETHER * generated
    states = 2 * layers * keys * size * tokens

    # In a layer a token has its hidden state six times (residual, normed, in and out of both
    # halves), three rows of the inner layer, and queries, keys, values and their result, rotated
    # and not.
    activations = pack * size * (6 * hidden + 3 * inner + 3 * (heads * width + keys))

    # An entry of the logits is there as it is, compared, as a bit, and as a float32
    # log-probability: at most 13 bytes; while tokens are drawn, 24.
    read = (5 + 2 * size) * min(logits // 4, pack * vocabulary)
    if generated:
        read = max(read, 24 * min(devices.TOGETHER, pack) * vocabulary)

    # A self-check has three sequences with all their logits.
    checked = 3 * probe * vocabulary * size
    return int(_UNUSED * (states + max(activations + read, checked)))


def _number(config: JsonMapping, *names: str, default: int) -> int:
    """Return the first positive whole number that a configuration has under one of ``names``."""
    for name in names:
        number = config.get(name)
        if isinstance(number, int) and number > 0:
            return number
    return default


def _bytes(entry: JsonMapping, width: int | None) -> int:
    """Return the memory of a tensor; ``width``: bytes of a float, None for as many as stored."""
    if width is not None and entry["dtype"] in _FLOATS:
        return width * math.prod(entry["shape"])
    start, end = entry["data_offsets"]
    return int(end - start)


def _part(name: str) -> str:
    """Return the layer that a tensor belongs to, or else the module: it lies on one device."""
    words = name.split(".")
    for index, word in enumerate(words):
        if word.isdigit():
            return ".".join(words[: index + 1])
    return ".".join(words[:-1])
