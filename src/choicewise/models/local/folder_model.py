"""A model in a folder: what is known of it before torch is imported, and its first answer."""

from __future__ import annotations

import gc
import hashlib
import importlib
import json
import sys
from collections.abc import Sequence
from functools import cached_property
from importlib.metadata import version
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any

from choicewise.errors import ModelError
from choicewise.models.footprint import NOTHING, Footprint, adapter_bytes, footprint
from choicewise.models.local import files as model_files
from choicewise.models.local.devices import device_of, devices_of
from choicewise.models.local.files import (
    ENCODER_DECODER,
    MASKED,
    PACKAGES,
    WEIGHTS,
    ModelKind,
    model_kind,
    read_adapter,
    read_quantisation,
    refuse_adapter,
    remembered,
)
from choicewise.models.local.tokenizer import HfTokenizer, tokenizer_files
from choicewise.models.model import Model, Recipe, SelfCheck
from choicewise.questions import Answers, Question
from choicewise.tokens.encode import PartwiseTokenizer
from choicewise.tokens.tokenizer import Tokenizer

if TYPE_CHECKING:
    from choicewise.models.local.local_model import LocalModel
    from choicewise.models.local.other_kinds import PaddedModel


_DTYPES = ("float32", "bfloat16", "float16", "auto")

_HEAVY = tuple(f"choicewise.models.local.{name}" for name in ("loading", "local_model", "other_kinds"))
"""What imports torch and transformers."""

_IMPORTING = Lock()
"""Of several models that are loaded at once, one imports."""


class FolderModel:
    """The model in the folder ``path``, a language model in the format of Hugging Face transformers.

    Whether it is a causal model, a masked one or an encoder-decoder, and so what it ``supports``, is what its
    configuration says (:mod:`choicewise.models.local.files`).

    ``dtype``: of weights and arithmetic; ``auto`` takes the checkpoint's own; by default float32 on a CPU and the
    checkpoint's own elsewhere.  ``device``: by default a CUDA device where there is one, else the CPU; ``auto`` spreads
    the model over all GPUs where there are several, ``cuda:0..3`` over these.  ``window``: the most input tokens, by
    default and at most what the configuration states.  ``rung``, ``batch_tokens``: as in
    :class:`~choicewise.models.local.local_model.LocalModel`.  Only safetensors files are opened, nothing is downloaded,
    and code in the folder runs only with ``trust_remote_code``, and only where transformers has none of its own.
    ``adapter``: the folder of an adapter that PEFT trained beside the model; its digest is part of the model's, its
    name follows the model's.  ``elsewhere``: others load the weights, on a ``device`` that this machine need not have.

    What the files' headers tell is checked here, without torch: ModelError when something is missing, damaged or can't
    be read.  Whether it can be loaded and computes what it should shows when something is first answered.
    """

    source = ""
    """The repository on the Hub and the commit that the folder was downloaded from."""
    recipe: Recipe | None = None
    """What ``load_model`` was given, where it made this."""

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
        elsewhere: bool = False,
    ) -> None:
        self.folder = Path(path)
        self.device = device if elsewhere and device is not None else device_of(device)
        self.asked_dtype = dtype or ("float32" if self.device == "cpu" else "auto")
        if self.asked_dtype not in _DTYPES:
            raise ModelError(f"dtype is {dtype!r}; it must be one of {', '.join(_DTYPES)}")
        for option, tokens in (("window", window), ("batch_tokens", batch_tokens)):
            if tokens is not None and tokens < 1:
                raise ModelError(f"{option} is {tokens} tokens; it must be at least 1, or left out")
        self.batch_tokens = batch_tokens
        self._options: dict[str, Any] = {"rung": rung, "batch_tokens": batch_tokens}
        self._trusted = trust_remote_code
        self._loading = Lock()
        with model_files.readable(self.folder):
            refuse_adapter(self.folder)
            self.config = model_files.read_config(self.folder)
            self.kind = model_kind(self.config)
            self.supports = self.kind.supports
            files = [self.folder / "config.json", *tokenizer_files(self.folder), *model_files.weight_files(self.folder)]
            model_files.check_layers(self.config, self.folder)
            self.quantisation = read_quantisation(self.config, self.folder)
            how = f"choicewise 1, tokenizers {version('tokenizers')}, transformers {version('transformers')}"
            self.digest = remembered(files, how, lambda: model_files.digest(self.folder, self.tokenizer.digest))
            self.window = model_files.window_of(self.config, self.folder, window)
            self.name, self.adapter = self.folder.resolve().name, None
            if adapter is not None:
                self.adapter = added = read_adapter(Path(adapter))
                both = f"{self.digest} {remembered(added.files, 'adapter 1', lambda: added.digest)}"
                self.digest = hashlib.sha256(both.encode()).hexdigest()
                self.name = f"{self.name}+{added.name}"

    @property
    def packages(self) -> tuple[str, ...]:
        """What is needed beside torch and transformers to compute it, by the names for pip."""
        quantised = () if self.quantisation is None else PACKAGES.get(self.quantisation.method, {}).values()
        spread = ("accelerate",) if devices_of(self.device) else ()
        return (*dict.fromkeys((*quantised, *(() if self.adapter is None else ("peft",)), *spread)),)

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
            return self.quantisation.described(self.local.dtype)
        if self.asked_dtype == "auto":
            return model_files.dtype_of(self.config, self.folder) or self.local.dtype
        return self.asked_dtype

    @property
    def local(self) -> LocalModel | PaddedModel:
        """The model in memory.

        Raises ModelError when it can't be loaded, looks ahead though it is to be causal, or its weights do not fit.
        """
        with self._loading:
            return self._local

    @cached_property
    def _local(self) -> LocalModel | PaddedModel:
        _import_transformers()
        from choicewise.models.local.loading import Spread, load_network
        from choicewise.models.local.local_model import LocalModel
        from choicewise.models.local.other_kinds import EncoderDecoder, MaskedLM
        from choicewise.models.local.selfcheck import PathCache

        is_spread = bool(devices_of(self.device))
        spread = Spread(self.folder, self.device, footprint_of(self)) if is_spread else None
        network = load_network(self.folder, self.config, self.asked_dtype, self.device, self._trusted, spread)
        if self.adapter is not None:
            self.adapter.attach(network)
        identity = self.digest, str(network.dtype), self.device, self.window, [version(name) for name in self.packages]
        # Code that the folder brings is no part of its digest, and a rung that was asked for is no choice.
        paths = PathCache(identity) if self._options["rung"] == "auto" and not self._trusted else None
        options = {**self._options, "paths": paths}
        kinds: dict[ModelKind, type[PaddedModel]] = {MASKED: MaskedLM, ENCODER_DECODER: EncoderDecoder}
        model = kinds.get(self.kind, LocalModel)(
            network, self.tokenizer, self.name, self.digest, self.window, **options
        )
        if isinstance(model, LocalModel):
            model.refuse_looking_ahead()
        stated = model.dtype if self.quantisation is not None else self.__dict__.setdefault("dtype", model.dtype)
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

    def objection(self, question: Question) -> str | None:
        """None: it answers every question of the kinds that it supports."""
        return None

    def answer(self, questions: Sequence[Question]) -> Answers:
        """The answers, in any order, as results become available."""
        return self.local.answer(questions)

    def __repr__(self) -> str:
        return f"FolderModel({json.dumps(str(self.folder))}, {self.dtype} on {self.device})"


def load(path: str | Path, *args: Any, **options: Any) -> LocalModel:
    """The causal model in the folder ``path`` with its weights; arguments and errors as in :class:`FolderModel`."""
    model = FolderModel(path, *args, **options)
    from choicewise.models.local.local_model import LocalModel

    if not isinstance(model.local, LocalModel):
        raise ModelError(f"{path} holds no causal language model but {model.kind.name}")
    return model.local


def footprint_of(model: Model, *, deepest: int | None = None, generated: int = 0) -> Footprint:
    """What ``model`` needs where it is loaded; arguments as of :func:`footprint`."""
    if not isinstance(model, FolderModel):
        return NOTHING
    needed = footprint(
        model.folder,
        dtype=model.asked_dtype,
        device="cpu" if model.device == "cpu" else "cuda",
        window=model.window,
        batch_tokens=model.batch_tokens,
        deepest=deepest,
        generated=generated,
    )
    added = 0 if model.adapter is None else adapter_bytes(model.adapter.folder / WEIGHTS)
    host = needed.host + (added if needed.context == 0 else 0)
    return Footprint(needed.weights + added, needed.workspace, needed.context, needed.layer, host)


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
