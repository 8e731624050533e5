"""What ``--model_args`` may say: the arguments of the harness's ``hf`` model that have a meaning here, and ours."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from choicewise.errors import UsageError, did_you_mean
from choicewise.protocols.boundary import BOUNDARIES

HARNESS = "harness"
"""The boundary that is the harness's own: its rules for moved white space, BOS and empty contexts."""

DTYPES = {"half": "float16", "float": "float32"}
"""Other names that torch has for them."""

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
        ("autogptq", "gptqmodel"), ((False,), "quantised weights are read as config.json of the model says")
    ),
    **dict.fromkeys(
        ("load_in_4bit", "load_in_8bit", "quantization_config"),
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
        for name, known in (("boundary", (HARNESS, *BOUNDARIES)), ("backend", ("default", "causal", "seq2seq"))):
            if (value := getattr(self, name)) not in known:
                raise UsageError(f"{name} is {value!r}; it must be one of {', '.join(known)}")
        if self.max_length is not None and self.max_length < 1:
            raise UsageError(f"max_length is {self.max_length} tokens; it must be at least 1, or left out")
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
                problems.append(f"{name}={value} has no meaning for the model choicewise: {reason}; leave it out")
        elif name not in kinds:
            known = [*kinds, *IGNORED, *REFUSED]
            problems.append(f"the model choicewise has no argument {name!r}; {did_you_mean(name, known)}")
        else:
            try:
                values[name] = _read(value, kinds[name])
            except (TypeError, ValueError):
                problems.append(f"{name} is {value!r}; it must be {kinds[name].removesuffix(' | None')}")
    if "pretrained" not in given:
        problems.append("pretrained is missing; pass a model folder or a name on the Hub: pretrained=ORG/NAME")
    if problems:
        raise UsageError.about(problems)
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
    return _text(value)


def _text(value: Any) -> str:
    """``value`` as text: names that look like numbers arrive as such, and torch has dtypes of its own."""
    if isinstance(value, bool | int | float | str):
        return str(value)
    if str(value).startswith("torch."):
        return str(value).removeprefix("torch.")
    raise TypeError(value)
