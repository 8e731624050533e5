"""Random spans that show whether a compute path is right for a model: deeper than anything its layers look back at."""

import numpy as np

from choicewise.models.local.causal_lm import CausalLM
from choicewise.questions import Ids, Span

DEPTH = 128
"""How deep a probe is at least, in tokens, where the window allows."""

BEYOND = 48
"""How far a probe goes beyond the longest sliding window or chunk, in tokens."""

TOKENS = 32
"""Tokens of a probe's longest continuations: the noise of a sum grows with its length."""

BRANCH = 5
"""Branches and packs of a probe are a fifth of its depth: so a pack must end within the second branch, where what the
next one needs is not what was computed last."""

REACHES = ("sliding_window", "attention_chunk_size", "window_size", "attention_window_size", "floor_scale")
"""Names under which configurations say how far a layer looks, or from which depth on it looks otherwise."""


def probe_depth(lm: CausalLM, deepest: int | None = None) -> int:
    """Longer than any sliding window or chunk the configuration names, as far as the model's window allows.

    Where nothing has more than ``deepest`` input tokens, it is the next power of two, and not beyond the length from
    which positions change unless something is: what no question reaches can't harm it.
    """
    config = lm.model.config.get_text_config()
    switch = position_switch(lm)
    sizes = [getattr(config, name, None) for name in REACHES] + [switch]
    longest = max((size for size in sizes if isinstance(size, int)), default=0)
    depth = max(DEPTH, longest + BEYOND)
    if deepest is not None:
        depth = min(depth, max(DEPTH, 1 << (deepest - 1).bit_length()))
        depth = min(depth, switch) if switch is not None and deepest <= switch else depth
    return min(lm.window, depth)


def position_switch(lm: CausalLM) -> int | None:
    """The length from which rotary positions depend on the length of the whole sequence; None where they never do."""
    config = lm.model.config.get_text_config()
    rope = getattr(config, "rope_parameters", None) or {}
    by_layer_kind = (parameters for parameters in rope.values() if isinstance(parameters, dict))
    for parameters in (rope, *by_layer_kind):
        if parameters.get("rope_type") == "longrope":
            own = getattr(config, "original_max_position_embeddings", None)
            return parameters.get("original_max_position_embeddings") or own
        if parameters.get("rope_type") == "dynamic":
            return config.max_position_embeddings
    return None


def probe(depth: int, vocabulary: int) -> list[Span]:
    """Spans of random tokens, the deepest of exactly ``depth`` inputs: a trunk, branches on it and beside it, choices
    that share tokens."""
    random = np.random.default_rng(depth)

    def draw(tokens: int) -> Ids:
        return random.integers(0, vocabulary, max(1, tokens), dtype=np.int32)

    choice = draw(max(4, depth // 32))
    trunk = draw(depth + 1 - max(1, depth // BRANCH) - len(choice))
    deep, beside = (np.concatenate([trunk, draw(depth // BRANCH)]) for _ in range(2))
    fork = np.concatenate([choice[:2], draw(2)])
    spans = [Span(deep, choice), Span(beside, choice), Span(deep, fork), Span(trunk, draw(2))]
    spans += [Span(text[: max(1, len(text) - TOKENS)], draw(TOKENS)) for text in (trunk[: depth // 2], trunk, beside)]
    spans += [
        Span(trunk, draw(1)),
        Span(draw(1), draw(depth // BRANCH)),
        Span(trunk[:9], fork),
        Span(trunk[:9], draw(1)),
    ]
    return [span for span in spans if len(span.context) + len(span.continuation) <= depth + 1]
