"""The arguments of the harness's model, and the model with its tokenizer that they name."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from choicewise.errors import ModelError, UsageError, did_you_mean
from choicewise.models import Local
from choicewise.models.kinds import model_kind
from choicewise.models.load import load_model
from choicewise.models.local.files import ENCODER_DECODER, MASKED
from choicewise.protocols.protocol import BOUNDARIES
from choicewise.questions import Ids
from choicewise.tokens.chat_template import ChatTemplate
from choicewise.tokens.encode import PartwiseTokenizer, find_split_rule
from choicewise.tokens.tokenizer import Tokenizer, token_bytes

if TYPE_CHECKING:
    from choicewise.models.local.local_model import LocalModel
    from choicewise.models.local.networks import EncoderDecoder


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
    from lm_eval.models.utils import DEFAULT_MAX_LENGTH, resolve_max_length
    from transformers import AutoTokenizer

    from choicewise.models.local.folder_model import FolderModel

    if not isinstance(model_kind(_name(arguments)), Local):
        raise ModelError(
            f"{arguments.pretrained} has no tokenizer that the harness could use; pass a model folder"
        )
    same = ("dtype", "device", "rung", "batch_tokens", "trust_remote_code")
    options = {name: getattr(arguments, name) for name in same}
    load = partial(load_model, _name(arguments), adapter=arguments.peft, **options)
    try:
        folder = load(window=arguments.max_length)
    except ModelError:
        if arguments.max_length is not None:
            raise
        folder = load(
            window=DEFAULT_MAX_LENGTH
        )  # the configuration may not say how many tokens fit
    assert isinstance(folder, FolderModel)
    if folder.kind is MASKED:
        raise ModelError(
            f"{folder.name} is a masked language model, and the harness asks for continuations; `choicewise run` scores"
            " it with reading:pseudo-loglikelihood"
        )
    own = "seq2seq" if folder.kind is ENCODER_DECODER else "causal"
    if arguments.backend not in ("default", own):
        raise ModelError(
            f"backend is {arguments.backend}, but {arguments.pretrained} is {own}; leave the backend out"
        )
    chosen = {} if arguments.add_bos_token is None else {"add_bos_token": arguments.add_bos_token}
    where = folder.folder if arguments.tokenizer is None else arguments.tokenizer
    tokenizer = AutoTokenizer.from_pretrained(
        where,
        trust_remote_code=arguments.trust_remote_code,
        use_fast=arguments.use_fast_tokenizer,
        **chosen,
    )
    local = cast("LocalModel | EncoderDecoder", folder.local)
    window = arguments.max_length or resolve_max_length(local.model.config, tokenizer)
    own_tokens: Tokenizer = (adopted := AdoptedTokenizer(tokenizer))
    if (
        adopted.content is not None
    ):  # what texts share is encoded once where that is proven to be exact
        own_tokens = PartwiseTokenizer(adopted, find_split_rule(adopted.content))
    model = replace(local, tokenizer=own_tokens, window=window)
    return Engine(model, local.model, tokenizer, window, folder.source.rpartition("@")[2])


def _name(arguments: ModelArguments) -> str:
    """What the model is loaded by; ModelError for a revision or a subfolder that has no meaning there."""
    name, folder = arguments.pretrained, Path(arguments.pretrained)
    if folder.is_dir():
        if arguments.revision != "main":
            raise ModelError(
                f"{name} is a folder and has no revision {arguments.revision}; leave the revision out"
            )
        return str(folder / arguments.subfolder)
    if arguments.subfolder:
        raise ModelError(
            f"subfolder is {arguments.subfolder!r}, but only a folder on this machine can have one: "
            f"run `hf download {name}` and pass the folder it names"
        )
    return name if arguments.revision == "main" or "@" in name else f"{name}@{arguments.revision}"


class AdoptedTokenizer:
    """A tokenizer of transformers, ``inner``, behind the engine's interface.

    It gives the tokens of ``inner`` itself, which may differ from those of the folder's ``tokenizer.json``, because
    transformers rebuilds some classes from their vocabulary (:class:`~choicewise.models.local.tokenizer.HfTokenizer`).
    ``token_bytes`` is empty where ``inner`` is written in Python and does not say them.
    """

    mask_id: int | None = None
    special: Mapping[int, str] = MappingProxyType({})
    chat: ChatTemplate | None = None

    def __init__(self, inner: Any) -> None:
        self.inner = inner
        self.bos_id, self.eos_id, self.unknown_id = (
            inner.bos_token_id,
            inner.eos_token_id,
            inner.unk_token_id,
        )
        self.content: dict[str, Any] | None = (
            json.loads(inner.backend_tokenizer.to_str()) if inner.is_fast else None
        )
        self.token_bytes: Sequence[bytes] = (
            [] if self.content is None else token_bytes(self.content)
        )
        vocabulary = inner.get_vocab() if self.content is None else self.content
        identity = f"{json.dumps(vocabulary, sort_keys=True)} {self.bos_id} {self.eos_id}"
        self.digest = hashlib.sha256(identity.encode()).hexdigest()

    def encode(self, texts: Sequence[str], *, special: bool) -> list[Ids]:
        """Token ids of each text, as ``inner`` encodes it alone."""
        if not texts:
            return []
        if self.inner.is_fast:
            rows = self.inner(list(texts), add_special_tokens=special, verbose=False)["input_ids"]
        else:
            rows = [self.inner.encode(text, add_special_tokens=special) for text in texts]
        return [np.asarray(row, dtype=np.int32) for row in rows]

    def words(self, texts: Sequence[str]) -> list[Ids]:
        """For each token of each text the number of its word; a special token is one by itself."""
        encodings = (self.inner(text, add_special_tokens=False, verbose=False) for text in texts)
        return [np.asarray(encoding.word_ids(), dtype=np.int32) for encoding in encodings]

    def decode(self, ids: Ids) -> str:
        """The text of ``ids`` without special tokens."""
        text: str = self.inner.decode(ids.tolist(), skip_special_tokens=True)
        return text


HARNESS = "harness"  # the boundary that is the harness's own: its rules for moved white space, BOS and empty contexts
DTYPES = {"half": "float16", "float": "float32"}  # other names that torch has for them

IGNORED = {
    "batch_size": "all requests form one tree of tokens, computed in packs that fit (batch_tokens sets their size)",
    "max_batch_size": "all requests form one tree of tokens, computed in packs that fit (batch_tokens sets their size)",
    "logits_cache": "every token is computed once, whatever is scored after it",
}
"""What changes no number here, and why."""

ONE_DEVICE = "the model is computed on one device (device=cuda:0) or on all GPUs (device=auto)"
REFUSED: dict[str, tuple[tuple[Any, ...], str]] = {
    **dict.fromkeys(("parallelize", "tp_plan"), ((False,), ONE_DEVICE)),
    **dict.fromkeys(("device_map", "max_memory_per_gpu", "max_cpu_memory"), ((), ONE_DEVICE)),
    "offload_folder": (("./offload",), ONE_DEVICE),
    "mixed_precision_dtype": ((), "weights and arithmetic have one dtype (dtype=bfloat16)"),
    "softmax_dtype": (("float32", "float"), "the softmax is always computed in float32"),
    "truncation": ((False,), "contexts are cut at their start alone"),
    "delta": ((), "add the weights up, save the model, and pass its folder"),
    **dict.fromkeys(
        ("autogptq", "gptqmodel", "load_in_4bit", "load_in_8bit", "quantization_config"),
        ((False,), "quantised weights are read as config.json of the model says"),
    ),
    "gguf_file": ((), "only safetensors are read"),
}
"""Arguments of ``hf`` that have no meaning here: the values that ask for nothing (beside None), and why."""


@dataclass(frozen=True, kw_only=True)
class ModelArguments:
    """The arguments of a model; those of the harness's ``hf`` model have its names, defaults and meaning.

    ``boundary``: :data:`HARNESS`, or a policy of :mod:`choicewise.tokens.boundary`.  ``rung``, ``batch_tokens``: as in
    :class:`~choicewise.models.local.local_model.LocalModel`.
    """

    pretrained: str
    revision: str = "main"
    subfolder: str = ""
    tokenizer: str | None = None
    dtype: str = "auto"
    device: str | None = None
    max_length: int | None = None
    add_bos_token: bool | None = None
    prefix_token_id: int | None = None
    trust_remote_code: bool = False
    use_fast_tokenizer: bool = True
    backend: str = "default"
    peft: str | None = None
    think_end_token: str | int | None = None
    enable_thinking: bool | None = None
    chat_template_args: Mapping[str, Any] = field(default_factory=dict)
    boundary: str = HARNESS
    rung: str = "auto"
    batch_tokens: int | None = None

    def __post_init__(self) -> None:
        for name, known in (
            ("boundary", (HARNESS, *BOUNDARIES)),
            ("backend", ("default", "causal", "seq2seq")),
        ):
            if (value := getattr(self, name)) not in known:
                raise UsageError(f"{name} is {value!r}; it must be one of {', '.join(known)}")
        if self.max_length is not None and self.max_length < 1:
            raise UsageError(
                f"max_length is {self.max_length} tokens; it must be at least 1, or left out"
            )
        if self.enable_thinking and self.think_end_token is None:
            raise UsageError("enable_thinking needs think_end_token, after which the answer begins")

    @property
    def template_arguments(self) -> dict[str, Any]:
        """What a chat template is told beside the messages."""
        thinking = {} if self.enable_thinking is None else {"enable_thinking": self.enable_thinking}
        return {**self.chat_template_args, **thinking}


def read_arguments(given: Mapping[str, Any]) -> tuple[ModelArguments, list[str]]:
    """The arguments as ``given``, and a sentence for each that is ignored.

    Raises UsageError, about everything at once, for what is not known, can't be read or has no meaning here.
    """
    kinds = {spec.name: str(spec.type) for spec in fields(ModelArguments)}
    values: dict[str, Any] = {}
    notes: dict[str, list[str]] = {}
    problems = []
    for name, value in given.items():
        if value is None:
            continue
        if name in IGNORED:
            notes.setdefault(IGNORED[name], []).append(name)
        elif name in REFUSED:
            neutral, reason = REFUSED[name]
            if value not in neutral:
                problems.append(
                    f"{name}={value} has no meaning for the model choicewise: {reason}; leave it out"
                )
        elif name not in kinds:
            known = [*kinds, *IGNORED, *REFUSED]
            problems.append(
                f"the model choicewise has no argument {name!r}; {did_you_mean(name, known)}"
            )
        else:
            try:
                values[name] = _read(value, kinds[name])
            except (TypeError, ValueError):
                problems.append(
                    f"{name} is {value!r}; it must be {kinds[name].removesuffix(' | None')}"
                )
    if "pretrained" not in given:
        problems.append(
            "pretrained is missing; pass a model folder or a name on the Hub: pretrained=ORG/NAME"
        )
    if problems:
        raise UsageError.of_problems(problems)
    if "dtype" in values:
        values["dtype"] = DTYPES.get(values["dtype"], values["dtype"])
    return ModelArguments(**values), [
        f"{' and '.join(names)} {'has' if len(names) == 1 else 'have'} no effect: {reason}"
        for reason, names in notes.items()
    ]


def _read(value: Any, kind: str) -> Any:
    """``value`` as its type says; ValueError or TypeError where it is none."""
    kind = kind.removesuffix(" | None")
    if kind == "bool":
        if isinstance(value, bool):
            return value
        if str(value).lower() not in ("true", "false"):
            raise ValueError(value)
        return str(value).lower() == "true"
    if kind == "int" or (kind == "str | int" and str(value).isdigit()):
        if isinstance(value, bool | float):
            raise ValueError(value)
        return int(value)
    if kind.startswith("Mapping"):
        if not isinstance(value, Mapping):
            raise ValueError(value)
        return dict(value)
    if isinstance(value, bool | int | float | str):  # names that look like numbers arrive as such
        return str(value)
    if str(value).startswith("torch."):
        return str(value).removeprefix("torch.")
    raise TypeError(value)


STAMP = "choicewise model"  # the key of the stamp; the harness's own are sha256


def stamp(answers: MutableMapping[str, Any], identity: str) -> None:
    """Mark ``answers`` as those of the model with this ``identity``.

    Raises UsageError where they are another's: the harness would give them out as this model's, as no key of its cache
    names the model, its tokenizer or its arithmetic.
    """
    known = answers.get(STAMP)
    if known is None and not len(answers):
        answers[STAMP] = identity
    elif known != identity:
        whose = (
            "a model or settings that it does not name"
            if known is None
            else "another model or other settings"
        )
        raise UsageError(
            f"the cache {getattr(answers, 'filename', '')} holds answers of {whose}, which would be taken for this "
            "model's; pass another path as use_cache, or delete the file"
        )
