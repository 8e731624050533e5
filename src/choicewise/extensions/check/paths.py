"""Measure by how much common ways of running a model, or another model, change its numbers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import numpy as np
import torch

from choicewise.models.local import plain
from choicewise.models.local.causal_lm import CausalLM, state_argument, state_of
from choicewise.models.local.plain import Sums, copied, running_sums
from choicewise.models.local.selfcheck import (
    first_line,
    padded_sums,
    plain_sums,
    probe,
    probe_depth,
    sums_at,
)
from choicewise.questions import Ids, Span

_DISTRIBUTIONS = 64  # that are compared at once, in float64
_NEW_TOKENS = 3  # tokens generated to compare generation with a forward pass
_DTYPES = ("float32", "bfloat16", "float16")


@dataclass(frozen=True)
class PathDifference:
    """The largest difference (nats) of a span's score from that of one sequence at a time.

    It is None if the model can't be run that way, for the reason ``failed``.
    """

    path: str
    difference: float | None
    failed: str | None = None


def path_differences(lm: CausalLM) -> list[PathDifference]:
    """Compare random spans in every common way with one sequence at a time, no padding or cache.

    No run uses these ways; they show by how much other tools' numbers may differ.  Another dtype
    needs memory for a copy of the model.
    """
    spans = probe(probe_depth(lm), lm.vocabulary)
    truth = plain_sums(lm.model, lm.vocabulary, spans)
    ways: dict[str, Callable[[], Sums]] = {
        "batch padded on the right": partial(padded_sums, lm, spans, left=False),
        "batch padded on the left": partial(padded_sums, lm, spans, left=True),
        "cached context": partial(_cached, lm, spans),
    }
    dtype_of_model = str(lm.model.dtype).removeprefix("torch.")
    for dtype in _DTYPES:
        if dtype != dtype_of_model:
            ways[f"{dtype} in place of {dtype_of_model}"] = partial(_cast, lm, spans, dtype)
    differences = [_difference(name, way, truth) for name, way in ways.items()]
    # Generation is compared with a pass over its tokens, so that it has a truth of its own.
    generated = _difference("generate, raw logits", partial(_generated, lm, spans), [np.zeros(1)])
    return [*differences, generated]


class TextDivergence(NamedTuple):
    """Compare two models on the tokens of a text after its first.

    ``nats``: the sum of KL; ``agreeing``: how many have the same likeliest token.
    """

    tokens: int
    nats: float
    agreeing: int


@torch.inference_mode()
def text_divergence(left: CausalLM, right: CausalLM, text: Ids) -> TextDivergence:
    """Sum KL(left ‖ right) of the next-token distributions after every token but the last.

    Both models, of one vocabulary, compute the text in one plain pass each; the sums are in
    float64.  ``text``: at least two tokens, one more than a window at most.  NaN if a model answers
    with NaN.
    """
    first = text[:1]
    rest = text[1:]
    left_logits = plain.logits(left.model, left.vocabulary, first, rest)
    right_logits = plain.logits(right.model, right.vocabulary, first, rest)
    left_parts = left_logits.split(_DISTRIBUTIONS)
    right_parts = right_logits.split(_DISTRIBUTIONS)
    nats = 0.0
    same_likeliest = 0
    for left_part, right_part in zip(left_parts, right_parts, strict=True):
        left_numbers = left_part.double()
        # The models may be on different devices.
        right_numbers = right_part.to(left_part.device).double()
        log_p = left_numbers.log_softmax(dim=-1)
        log_q = right_numbers.log_softmax(dim=-1)
        weighted = log_p.exp() * (log_p - log_q)
        # What the first model rules out adds nothing, whatever the second has for it.
        terms = torch.where(log_p.isneginf(), 0.0, weighted)
        nats += float(terms.sum())
        is_same = log_p.argmax(dim=-1) == log_q.argmax(dim=-1)
        same_likeliest += int(is_same.sum())
    return TextDivergence(len(rest), nats, same_likeliest)


def _difference(name: str, way: Callable[[], Sums], truth: Sums) -> PathDifference:
    try:
        sums = way()
        differences = [abs(left[-1] - right[-1]) for left, right in zip(sums, truth, strict=True)]
    except Exception as error:
        # Models refuse in every way there is, and that is a result.
        return PathDifference(name, None, first_line(error))
    if np.isnan(differences).any():
        return PathDifference(name, None, "the model answers with NaN")
    return PathDifference(name, float(max(differences)))


@torch.inference_mode()
def _cached(lm: CausalLM, spans: list[Span]) -> Sums:
    """Score each continuation from the state that the model returned for its context."""
    sums = []
    for span in spans:
        before = lm.model(input_ids=lm.tensor(span.context)[None], use_cache=True)
        logits = before.logits[0, -1:]
        if len(span.continuation) > 1:
            state = state_of(before)
            if state is None:
                raise ValueError(f"{type(lm.model).__name__} returns no cache")
            after = lm.tensor(span.continuation[:-1])[None]
            rest = lm.model(input_ids=after, **{state_argument(lm.model): state}, use_cache=True)
            logits = torch.cat([logits, rest.logits[0]])
        sums.append(sums_at(logits[:, : lm.vocabulary], span.continuation))
    return sums


@torch.inference_mode()
def _generated(lm: CausalLM, spans: list[Span]) -> Sums:
    """Subtract the scores of tokens in one forward pass from those in ``generate``."""
    context = spans[0].context[: max(1, lm.window - _NEW_TOKENS)]
    inputs = lm.tensor(context)[None]
    options = {
        "do_sample": False,
        "return_dict_in_generate": True,
        "output_logits": True,
        "pad_token_id": 0,
    }
    output = lm.model.generate(
        inputs, attention_mask=torch.ones_like(inputs), max_new_tokens=_NEW_TOKENS, **options
    )
    tokens = output.sequences[0, len(context) :].cpu().numpy().astype(np.int32)
    logits = torch.cat(list(output.logits))[:, : lm.vocabulary]
    scores = plain.score(lm.model, lm.vocabulary, Span(context, tokens))
    return [sums_at(logits, tokens) - running_sums(scores.logprobs)]


def _cast(lm: CausalLM, spans: list[Span], dtype: str) -> Sums:
    return plain_sums(copied(lm.model).to(getattr(torch, dtype)), lm.vocabulary, spans)
