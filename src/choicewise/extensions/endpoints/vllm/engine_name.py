"""Read the name of a model that vLLM computes, and the options of its engine."""

from __future__ import annotations

import json
import re
from typing import Any, NamedTuple

from choicewise.errors import ModelError
from choicewise.util.jsonio import JsonDict, JsonMapping

PREFIX = "vllm:"

_NOT_PASSED = {
    "model": f"name it after {PREFIX}",
    "tokenizer": "it comes from the model",
    "skip_tokenizer_init": "it comes from the model",
    "dtype": "use dtype instead",
    "max_model_len": "use window instead, in input tokens",
    "max_num_batched_tokens": "use batch_tokens instead",
    "trust_remote_code": "code in a model's folder is never run",
    "logprobs_mode": "log-probabilities are always the raw ones",
    "enable_trace_replay": "it is on wherever vLLM has it",
    "speculative_config": "it excludes trace replay, and gains nothing if tokens are given",
    "kv_sharing_fast_prefill": "it excludes prompt rows",
    "data_parallel_size": "start one run per group of GPUs, as shards, with CUDA_VISIBLE_DEVICES",
}
"""Options of vLLM that do not pass through, and what to do instead."""


class EngineName(NamedTuple):
    """Hold the parts of ``vllm:MODEL,OPTION=VALUE,...``.

    ``model``: a folder, a bundled model or a name on the Hub; ``options``: of vLLM's engine.
    """

    model: str
    options: JsonMapping

    @classmethod
    def parse(cls, name: str) -> EngineName:
        """Read ``name``; raise ModelError for options that are not to be named."""
        model, *settings = re.split(r",(?=[A-Za-z_]\w*=)", name.removeprefix(PREFIX))
        options: JsonDict = {}
        for setting in settings:
            key, _, value = setting.partition("=")
            if key in _NOT_PASSED:
                raise ModelError(
                    f"{name}: vLLM's option {key} can't be set here; {_NOT_PASSED[key]}"
                )
            options[key] = _value(value)
        if not model:
            raise ModelError(
                f"{name} names no model; write {PREFIX}FOLDER or {PREFIX}ORG/NAME, then "
                ",OPTION=VALUE"
            )
        most = options.get("max_logprobs", 1)
        if isinstance(most, bool) or not isinstance(most, int) or (most < 1 and most != -1):
            raise ModelError(
                f"{name}: max_logprobs is {most}, but it must be at least 1; leave it out"
            )
        return cls(model, options)


def _value(text: str) -> Any:
    """Return a number, true or false, or an object in JSON; else the text."""
    # Python's words are taken too, as vLLM's documentation has them.
    words = {"True": "true", "False": "false", "None": "null"}
    try:
        return json.loads(words.get(text, text))
    except ValueError:
        return text
