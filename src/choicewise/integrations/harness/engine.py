"""The model and its tokenizer, from ``--model_args``: loaded by the engine, and asked with the harness's tokens."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from choicewise.errors import ModelError
from choicewise.integrations.harness.adopted_tokenizer import adopt
from choicewise.integrations.harness.arguments import ModelArguments
from choicewise.models.load import load_model
from choicewise.models.local.model_kind import ENCODER_DECODER, MASKED
from choicewise.models.model import Model

if TYPE_CHECKING:
    from choicewise.models.local.encoder_decoder import EncoderDecoder
    from choicewise.models.local.local_model import LocalModel

MAX_LENGTH = 2048
"""The most input tokens where neither configuration nor tokenizer says how many fit."""

LENGTHS = ("n_positions", "max_position_embeddings", "n_ctx")
"""The names under which the harness looks for them, in order (``resolve_max_length``, ``lm_eval/models/utils.py``)."""


@dataclass(frozen=True)
class Engine:
    """A model that answers in the tokens of ``tokenizer``, which is transformers' own.

    ``network``: the torch module.  ``window``: the most input tokens, by the harness's rule.  ``commit``: that of the
    model on the Hub; "" for a folder.
    """

    model: LocalModel | EncoderDecoder
    network: Any
    tokenizer: Any
    window: int
    commit: str

    @property
    def causal(self) -> LocalModel | None:
        """The model where it is a causal one."""
        from choicewise.models.local.local_model import LocalModel

        return self.model if isinstance(self.model, LocalModel) else None

    @property
    def is_encoder_decoder(self) -> bool:
        """Whether contexts go to an encoder."""
        return self.causal is None


def load_engine(arguments: ModelArguments) -> Engine:
    """The model that ``arguments`` name, with its weights.

    Raises ModelError when there is none, when it can't be used, and when it is a masked model, which gives no
    log-likelihoods of continuations.
    """
    try:
        folder = _load(arguments, arguments.max_length)
    except ModelError:
        if arguments.max_length is not None:
            raise
        folder = _load(arguments, MAX_LENGTH)  # the configuration may not say how many tokens fit
    from transformers import AutoTokenizer

    from choicewise.models.local.folder_model import FolderModel

    if not isinstance(folder, FolderModel):
        raise ModelError(f"{arguments.pretrained} has no tokenizer that the harness could use; pass a model folder")
    if folder.kind is MASKED:
        raise ModelError(
            f"{folder.name} is a masked language model, and the harness asks for continuations; `choicewise run` scores"
            " it with reading:pseudo-loglikelihood"
        )
    _check_backend(arguments, folder.kind is ENCODER_DECODER)
    chosen = {} if arguments.add_bos_token is None else {"add_bos_token": arguments.add_bos_token}
    where = folder.folder if arguments.tokenizer is None else arguments.tokenizer
    tokenizer = AutoTokenizer.from_pretrained(
        where, trust_remote_code=arguments.trust_remote_code, use_fast=arguments.use_fast_tokenizer, **chosen
    )
    local = cast("LocalModel | EncoderDecoder", folder.local)
    window = arguments.max_length or _window(local.model.config, tokenizer)
    model = replace(local, tokenizer=adopt(tokenizer), window=window)
    return Engine(model, local.model, tokenizer, window, folder.source.rpartition("@")[2])


def _load(arguments: ModelArguments, window: int | None) -> Model:
    return load_model(
        _name(arguments),
        dtype=arguments.dtype,
        device=arguments.device,
        window=window,
        rung=arguments.rung,
        batch_tokens=arguments.batch_tokens,
        trust_remote_code=arguments.trust_remote_code,
        adapter=arguments.peft,
    )


def _name(arguments: ModelArguments) -> str:
    """What the model is loaded by; ModelError for a revision or a subfolder that has no meaning there."""
    name, folder = arguments.pretrained, Path(arguments.pretrained)
    if folder.is_dir():
        if arguments.revision != "main":
            raise ModelError(f"{name} is a folder and has no revision {arguments.revision}; leave the revision out")
        return str(folder / arguments.subfolder)
    if arguments.subfolder:
        raise ModelError(
            f"subfolder is {arguments.subfolder!r}, but only a folder on this machine can have one: "
            f"run `hf download {name}` and pass the folder it names"
        )
    return name if arguments.revision == "main" or "@" in name else f"{name}@{arguments.revision}"


def _check_backend(arguments: ModelArguments, is_encoder_decoder: bool) -> None:
    own = "seq2seq" if is_encoder_decoder else "causal"
    if arguments.backend not in ("default", own):
        raise ModelError(f"backend is {arguments.backend}, but {arguments.pretrained} is {own}; leave the backend out")


def _window(config: Any, tokenizer: Any) -> int:
    """The most input tokens as the harness finds them: in the configuration, else of the tokenizer, else 2048."""
    from transformers.tokenization_utils_base import VERY_LARGE_INTEGER

    own = getattr(config, "text_config", None) or config
    stated = next((int(value) for name in LENGTHS if (value := getattr(own, name, None)) is not None), None)
    if stated is not None:
        return stated
    known = getattr(tokenizer, "model_max_length", None)
    return MAX_LENGTH if known is None or known == VERY_LARGE_INTEGER else int(known)
