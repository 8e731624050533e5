"""Read the arguments of the harness's model, and load the model and its tokenizer."""

from __future__ import annotations

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
from choicewise.util.jsonio import JsonDict, JsonMapping
from choicewise.util.text import text_digest

if TYPE_CHECKING:
    from choicewise.models.local.folder_model import FolderModel
    from choicewise.models.local.local_model import LocalModel
    from choicewise.models.local.networks import EncoderDecoder


@dataclass(frozen=True, kw_only=True)
class Engine:
    """Hold a model that answers in the tokens of ``tokenizer``, which is transformers'.

    ``network``: the torch module.  ``window``: the most input tokens, by the harness's rule.
    ``commit``: of the model on the Hub; "" for a folder.
    """

    model: LocalModel | EncoderDecoder
    network: Any
    tokenizer: Any
    window: int
    commit: str

    @property
    def causal(self) -> LocalModel | None:
        """Return the model if it is a causal one."""
        from choicewise.models.local.local_model import LocalModel

        if not isinstance(self.model, LocalModel):
            return None
        return self.model

    @property
    def is_encoder_decoder(self) -> bool:
        """Return whether contexts go to an encoder."""
        return self.causal is None


def load_engine(arguments: ModelArguments) -> Engine:
    """Load the model that ``arguments`` name.

    Raises ModelError if there is none, if it can't be used, and if it is a masked model, which
    gives no log-likelihoods of continuations.
    """
    from lm_eval.models.utils import resolve_max_length

    folder = _load_folder(arguments)
    if folder.kind is MASKED:
        raise ModelError(
            f"{folder.name} is a masked language model and can't continue texts; "
            "use `choicewise run` and a protocol with reading:pseudo-loglikelihood"
        )
    backend = "causal"
    if folder.kind is ENCODER_DECODER:
        backend = "seq2seq"
    if arguments.backend not in ("default", backend):
        raise ModelError(
            f"backend is {arguments.backend}, but {arguments.pretrained} is {backend}; "
            "leave the backend out"
        )
    tokenizer = _load_tokenizer(arguments, folder.folder)
    local = cast("LocalModel | EncoderDecoder", folder.local)
    # The harness cuts contexts by this rule, and not by that of the configuration.
    window = arguments.max_length or resolve_max_length(local.model.config, tokenizer)
    adopted = AdoptedTokenizer(tokenizer)
    engine_tokenizer: Tokenizer = adopted
    if adopted.content is not None:
        # Parts that texts share are encoded once if that is proven to be exact.
        engine_tokenizer = PartwiseTokenizer(adopted, find_split_rule(adopted.content))
    return Engine(
        model=replace(local, tokenizer=engine_tokenizer, window=window),
        network=local.model,
        tokenizer=tokenizer,
        window=window,
        commit=folder.source.rpartition("@")[2],
    )


def _load_folder(arguments: ModelArguments) -> FolderModel:
    from lm_eval.models.utils import DEFAULT_MAX_LENGTH

    from choicewise.models.local.folder_model import FolderModel

    name = _name(arguments)
    if not isinstance(model_kind(name), Local):
        raise ModelError(
            f"{arguments.pretrained} has no tokenizer for the harness; "
            "pass a model folder or a name on the Hub"
        )
    load = partial(
        load_model,
        name,
        adapter=arguments.peft,
        dtype=arguments.dtype,
        device=arguments.device,
        rung=arguments.rung,
        batch_tokens=arguments.batch_tokens,
        trust_remote_code=arguments.trust_remote_code,
    )
    try:
        folder = load(window=arguments.max_length)
    except ModelError:
        if arguments.max_length is not None:
            raise
        # The configuration may not say how many tokens fit.
        folder = load(window=DEFAULT_MAX_LENGTH)
    assert isinstance(folder, FolderModel)
    return folder


def _load_tokenizer(arguments: ModelArguments, folder: Path) -> Any:
    from transformers import AutoTokenizer

    options: JsonDict = {}
    if arguments.add_bos_token is not None:
        options["add_bos_token"] = arguments.add_bos_token
    return AutoTokenizer.from_pretrained(
        folder if arguments.tokenizer is None else arguments.tokenizer,
        trust_remote_code=arguments.trust_remote_code,
        use_fast=arguments.use_fast_tokenizer,
        **options,
    )


def _name(arguments: ModelArguments) -> str:
    """Return the name to load.

    Raises ModelError for a revision or a subfolder that has no meaning for it.
    """
    name = arguments.pretrained
    folder = Path(name)
    if folder.is_dir():
        if arguments.revision != "main":
            raise ModelError(
                f"{name} is a folder and has no revision {arguments.revision}; leave the revision "
                "out"
            )
        return str(folder / arguments.subfolder)
    if arguments.subfolder:
        raise ModelError(
            f"subfolder {arguments.subfolder!r} works only for a folder on this machine; "
            f"run `hf download {name}` and pass the folder that it prints"
        )
    # A name with @ has its commit already.
    if arguments.revision == "main" or "@" in name:
        return name
    return f"{name}@{arguments.revision}"


class AdoptedTokenizer:
    """Put a tokenizer of transformers, ``inner``, behind the engine's interface.

    It gives the tokens of ``inner`` itself, which may differ from those of the folder's
    ``tokenizer.json``, because transformers rebuilds some classes from their vocabulary
    (:class:`~choicewise.models.local.tokenizer.HfTokenizer`).  ``content``: its ``tokenizer.json``,
    and ``token_bytes``: the bytes of its tokens; None and empty if ``inner`` is written in Python.
    """

    mask_id: int | None = None
    special: Mapping[int, str] = MappingProxyType({})
    chat: ChatTemplate | None = None

    def __init__(self, inner: Any) -> None:
        self.inner = inner
        self.bos_id = inner.bos_token_id
        self.eos_id = inner.eos_token_id
        self.unknown_id = inner.unk_token_id
        self.content: JsonDict | None = None
        self.token_bytes: Sequence[bytes] = []
        if inner.is_fast:
            self.content = json.loads(inner.backend_tokenizer.to_str())
            self.token_bytes = token_bytes(self.content)
            vocabulary = self.content
        else:
            vocabulary = inner.get_vocab()
        identity = f"{json.dumps(vocabulary, sort_keys=True)} {self.bos_id} {self.eos_id}"
        self.digest = text_digest(identity)

    def encode(self, texts: Sequence[str], *, special: bool) -> list[Ids]:
        """Return the token ids of each text, as ``inner`` encodes it alone."""
        if not texts:
            return []
        if self.inner.is_fast:
            rows = self.inner(list(texts), add_special_tokens=special, verbose=False)["input_ids"]
        else:
            rows = [self.inner.encode(text, add_special_tokens=special) for text in texts]
        return [np.asarray(row, dtype=np.int32) for row in rows]

    def words(self, texts: Sequence[str]) -> list[Ids]:
        """Return for each token of each text the number of its word; a special token is a word."""
        encodings = (self.inner(text, add_special_tokens=False, verbose=False) for text in texts)
        return [np.asarray(encoding.word_ids(), dtype=np.int32) for encoding in encodings]

    def decode(self, ids: Ids) -> str:
        """Return the text of ``ids`` without special tokens."""
        text: str = self.inner.decode(ids.tolist(), skip_special_tokens=True)
        return text


HARNESS = "harness"
"""The harness's boundary: its rules for moved white space, BOS and empty contexts."""

DTYPES = {"half": "float16", "float": "float32"}
"""Names of types by torch's other names for them."""

PACKED = "batches are sized to fit the memory (batch_tokens sets their size)"
IGNORED = {
    "batch_size": PACKED,
    "max_batch_size": PACKED,
    "logits_cache": "every token is computed only once anyway",
}
"""Arguments of ``hf`` that change no number here, and why."""

ONE_DEVICE = "the model runs on one device (device=cuda:0) or on all GPUs (device=auto)"
QUANTISED = "quantised weights are read from config.json of the model"
REFUSED: dict[str, tuple[tuple[Any, ...], str]] = {
    "parallelize": ((False,), ONE_DEVICE),
    "tp_plan": ((False,), ONE_DEVICE),
    "device_map": ((), ONE_DEVICE),
    "max_memory_per_gpu": ((), ONE_DEVICE),
    "max_cpu_memory": ((), ONE_DEVICE),
    "offload_folder": (("./offload",), ONE_DEVICE),
    "mixed_precision_dtype": ((), "weights and arithmetic have one dtype (dtype=bfloat16)"),
    "softmax_dtype": (("float32", "float"), "the softmax is always computed in float32"),
    "truncation": ((False,), "contexts are cut only at their start"),
    "delta": ((), "add the two weights, save the model, and pass its folder"),
    "autogptq": ((False,), QUANTISED),
    "gptqmodel": ((False,), QUANTISED),
    "load_in_4bit": ((False,), QUANTISED),
    "load_in_8bit": ((False,), QUANTISED),
    "quantization_config": ((False,), QUANTISED),
    "gguf_file": ((), "only safetensors are read"),
}
"""Arguments of ``hf`` that have no meaning here: values without effect (beside None), and why."""


@dataclass(frozen=True, kw_only=True)
class ModelArguments:
    """Hold the arguments of a model, whose names and defaults are those of the harness's ``hf``.

    ``boundary``: :data:`HARNESS`, or a policy of :mod:`choicewise.tokens.boundary`.  ``rung`` and
    ``batch_tokens``: those of :class:`~choicewise.models.local.local_model.LocalModel`.
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
    # Values are read by the names of the types here.
    chat_template_args: Mapping[str, Any] = field(default_factory=dict)
    boundary: str = HARNESS
    rung: str = "auto"
    batch_tokens: int | None = None

    def __post_init__(self) -> None:
        _check_name("boundary", self.boundary, (HARNESS, *BOUNDARIES))
        _check_name("backend", self.backend, ("default", "causal", "seq2seq"))
        if self.max_length is not None and self.max_length < 1:
            raise UsageError(
                f"max_length is {self.max_length} tokens; it must be at least 1, or left out"
            )
        if self.enable_thinking and self.think_end_token is None:
            raise UsageError("enable_thinking needs think_end_token, the token that ends a thought")

    @property
    def template_arguments(self) -> JsonDict:
        """Return the arguments of a chat template, without the messages."""
        arguments = dict(self.chat_template_args)
        if self.enable_thinking is not None:
            arguments["enable_thinking"] = self.enable_thinking
        return arguments


def _check_name(argument: str, value: str, names: Sequence[str]) -> None:
    if value not in names:
        raise UsageError(f"{argument} is {value!r}; it must be one of {', '.join(names)}")


def read_arguments(given: JsonMapping) -> tuple[ModelArguments, list[str]]:
    """Read the arguments, and return a sentence for each that is ignored.

    Raises UsageError, with all problems at once, for unknown names, values that can't be read, and
    arguments that have no meaning here.
    """
    kinds = {spec.name: str(spec.type) for spec in fields(ModelArguments)}
    values: JsonDict = {}
    names_of_reason: dict[str, list[str]] = {}
    problems = []
    for name, value in given.items():
        if value is None:
            continue
        if name in IGNORED:
            names_of_reason.setdefault(IGNORED[name], []).append(name)
        elif name in REFUSED:
            neutral, reason = REFUSED[name]
            if value not in neutral:
                problems.append(
                    f"{name}={value} can't be used with the model choicewise; leave it out: "
                    f"{reason}"
                )
        elif name not in kinds:
            hint = did_you_mean(name, [*kinds, *IGNORED, *REFUSED])
            problems.append(f"the model choicewise has no argument {name!r}; {hint}")
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
    notes = []
    for reason, names in names_of_reason.items():
        have = "has" if len(names) == 1 else "have"
        notes.append(f"{' and '.join(names)} {have} no effect: {reason}")
    return ModelArguments(**values), notes


def _read(value: Any, kind: str) -> Any:
    """Return ``value`` in the type ``kind``.  Raises ValueError or TypeError if it is none."""
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
    # The harness parses names that look like numbers.
    if isinstance(value, bool | int | float | str):
        return str(value)
    if str(value).startswith("torch."):
        return str(value).removeprefix("torch.")
    raise TypeError(value)


STAMP = "choicewise model"
"""Key of the stamp in a cache; the harness's keys are sha256."""


def stamp(answers: MutableMapping[str, Any], identity: str) -> None:
    """Mark a cache of ``answers`` with the ``identity`` of the model that gave them.

    Raises UsageError if another model gave them: the harness would return them for this model,
    because no key of its cache names the model, its tokenizer or its arithmetic.
    """
    stamped = answers.get(STAMP)
    if stamped == identity:
        return
    if stamped is not None:
        source = "another model or other settings"
    elif len(answers):
        source = "an unknown model"
    else:
        answers[STAMP] = identity
        return
    raise UsageError(
        f"the cache {getattr(answers, 'filename', '')} holds answers of {source}; "
        "pass another path as use_cache, or delete the file"
    )
