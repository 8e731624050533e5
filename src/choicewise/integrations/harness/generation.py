"""What a generation is asked for, and what remains of its text: the rules of the harness's ``hf`` model."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from choicewise.errors import UsageError

LIMITS = ("max_gen_toks", "max_new_tokens", "max_tokens", "max_completion_tokens")
"""The names of the most tokens to generate, the first given counts (``normalize_gen_kwargs``)."""

DEFAULT_LIMIT = 256

GREEDY: Mapping[str, tuple[Any, ...]] = {
    "do_sample": (False,),
    "num_beams": (1,),
    "num_beam_groups": (1,),
    "num_return_sequences": (1,),
    "repetition_penalty": (1, 1.0),
    "encoder_repetition_penalty": (1, 1.0),
    "no_repeat_ngram_size": (0,),
    "encoder_no_repeat_ngram_size": (0,),
    "min_length": (0,),
    "min_new_tokens": (0,),
    "guidance_scale": (1, 1.0),
    "penalty_alpha": (0, 0.0),
}
"""Settings of transformers' generation with which it takes the likeliest token; for all others not None see below."""

WITHOUT_EFFECT = {
    *("temperature", "top_k", "top_p", "min_p", "typical_p", "epsilon_cutoff", "eta_cutoff", "top_h"),
    *("early_stopping", "length_penalty", "diversity_penalty", "renormalize_logits", "remove_invalid_values"),
    *("use_cache", "cache_implementation", "cache_config", "max_cache_len", "return_legacy_cache", "low_memory"),
    *("bos_token_id", "pad_token_id", "decoder_start_token_id", "compile_config", "disable_compile"),
    *("output_attentions", "output_hidden_states", "output_scores", "output_logits", "return_dict_in_generate"),
    *("is_assistant", "num_assistant_tokens", "num_assistant_tokens_schedule", "assistant_confidence_threshold"),
    *("assistant_lookbehind", "target_lookbehind", "max_matching_ngram_size", "prefill_chunk_size"),
    *("transformers_version", "_from_model_config"),
}
"""Settings that change nothing where the likeliest token is taken."""

OVERRULED = ("do_sample", "max_length", "eos_token_id")
"""Settings of a model's own generation_config.json that a request always states, or that say where a text ends."""


@dataclass(frozen=True)
class Wanted:
    """What one request asks for.

    ``stops``: texts before which the answer ends.  ``limit``: the most tokens; with ``total``, of context and answer
    together, whatever the limit.  ``settings``: everything else, for transformers' own generation.
    """

    stops: tuple[str, ...]
    limit: int
    total: int | None
    settings: Mapping[str, Any]

    @cached_property
    def sampled(self) -> bool:
        """Whether tokens are drawn."""
        return bool(self.settings.get("do_sample"))


def read_settings(given: Mapping[str, Any], end: str | None) -> Wanted:
    """What ``generation_kwargs`` ask for; ``end``, the text of the end of a sequence, stops every answer.

    Source: ``normalize_gen_kwargs`` and ``handle_stop_sequences`` (``lm_eval/models/utils.py``), ``_model_generate``.
    """
    settings = dict(given)
    until = settings.pop("until", None)
    stops = [until] if isinstance(until, str) else [] if until is None else until
    if not isinstance(stops, list) or not all(isinstance(stop, str) for stop in stops):
        raise UsageError(f"generation_kwargs: until is {until!r}; it must be a text or a list of texts")
    limits = [value for name in LIMITS if (value := settings.pop(name, None)) is not None]
    limit = int(limits[0]) if limits else DEFAULT_LIMIT
    if limit < 1:
        raise UsageError(f"generation_kwargs: {limit} tokens can't be generated; max_gen_toks must be at least 1")
    total = settings.pop("max_length", None)
    temperature = float(settings.get("temperature") or 0.0)
    sample = settings.get("do_sample")
    settings["do_sample"] = temperature > 0 if sample is None else bool(sample)
    if not settings["do_sample"]:
        settings.pop("temperature", None)
    elif temperature == 0:
        raise UsageError("generation_kwargs: do_sample needs a temperature above 0")
    last = [] if end is None or end in stops else [end]
    return Wanted((*stops, *last), limit, None if total is None else int(total), settings)


def is_greedy(settings: Mapping[str, Any], own: Mapping[str, Any]) -> bool:
    """Whether transformers takes the likeliest token after every other and does nothing else.

    ``settings``: those of a request; ``own``: those of the model's ``generation_config.json``, which they override.
    """
    every = {name: value for name, value in own.items() if name not in OVERRULED} | dict(settings)
    return all(
        value is None or name in WITHOUT_EFFECT or value in GREEDY.get(name, ()) or value is False or value in ({}, [])
        for name, value in every.items()
    )


class StopRule:
    """When the harness's ``hf`` model stops: each stop is looked for in the text of the last tokens alone.

    So many tokens as the stop has by itself, and two more (``MultiTokenEOSCriteria``, ``lm_eval/models/utils_hf.py``).
    ``decode``: the text of tokens, special ones included.
    """

    def __init__(
        self, stops: Sequence[str], encode: Callable[[str], Sequence[int]], decode: Callable[[Sequence[int]], str]
    ) -> None:
        self._looked_back = [(stop, len(encode(stop)) + 2) for stop in stops]
        self._decode = decode

    def length(self, tokens: Sequence[int]) -> int | None:
        """How many of ``tokens`` are generated before it stops; None where it goes on after them."""
        if not self._within(tokens):
            return None
        low, high = 1, len(tokens)
        while low < high:  # nothing shorter than the first text that holds a stop can end with one
            middle = (low + high) // 2
            low, high = (low, middle) if self._within(tokens[:middle]) else (middle + 1, high)
        return next((count for count in range(low, len(tokens) + 1) if self.stops(tokens[:count])), None)

    def _within(self, tokens: Sequence[int]) -> bool:
        text = self._decode(tokens)
        return bool(tokens) and any(stop in text for stop, _ in self._looked_back)

    def stops(self, tokens: Sequence[int]) -> bool:
        """Whether it stops after ``tokens``."""
        return any(stop in self._decode(tokens[-size:]) for stop, size in self._looked_back)


def cut(text: str, stops: Sequence[str], think_end: str | None) -> str:
    """``text`` after the end of the thinking and before the first stop (``postprocess_generated_text``)."""
    if think_end:
        text = text.split(think_end)[-1].lstrip()
    for stop in stops:
        if stop:
            text = text.split(stop)[0]
    return text
