"""vLLM's engine without vLLM: what it answers, cuts, refuses and reads from its cache, as its 0.32 was seen to do.

The model is a hash of the tokens so far, so that the true answer to every question is known (:func:`logprobs`).
"""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np

from choicewise.extensions.endpoints.vllm.process import EngineDied, EngineFacts
from choicewise.extensions.endpoints.vllm.vllm_routes import (
    MOST_IDS,
    PLACES,
    PROMPTS,
    ROWS,
    TRACE,
    Abilities,
    Output,
    hit,
    output_of,
)
from choicewise.questions import Span, TokenScores

WAYS = (TRACE, ROWS, PLACES, PROMPTS)
TOGETHER = 8
"""Requests that it computes at once."""


def logprobs(tokens: Sequence[int], vocabulary: int) -> np.ndarray:
    """Of every next token (nats), after these."""
    seed = hashlib.blake2b(np.asarray(tokens, np.int64).tobytes(), digest_size=8).digest()
    logits = np.random.default_rng(int.from_bytes(seed, "little")).normal(0, 2, vocabulary)
    return (logits - np.log(np.exp(logits).sum())).astype(np.float32)


def true_scores(span: Span, vocabulary: int) -> TokenScores:
    """The scores of a span, one token at a time."""
    tokens, nats, ranks = span.context.tolist(), [], []
    for token in span.continuation.tolist():
        row = logprobs(tokens, vocabulary)
        nats.append(row[token])
        ranks.append(int((row > row[token]).sum()))
        tokens = [*tokens, token]
    return TokenScores.of(span.continuation, nats, ranks)


class Refused(ValueError):
    """What vLLM raises out of ``generate`` before it computes anything."""


class FakeEngine:
    """As :class:`choicewise.extensions.endpoints.vllm.process.EngineProcess`; ``dies``: at which end it dies.

    ``ways``: what this version has; ``poison``: a token whose request it refuses; ``prompts``: every one that it read.
    """

    def __init__(
        self,
        options: Mapping[str, Any],
        vocabulary: int = 300,
        block: int = 8,
        ways: Sequence[str] = WAYS,
        dies: Sequence[int] = (),
        poison: int | None = None,
    ) -> None:
        self.options, self.dies, self.poison = dict(options), set(dies), poison
        self.abilities = Abilities(tuple(ways), block, int(options["max_model_len"]), vocabulary)
        self.prompts = list[list[int]]()
        self.ended = self.most_at_once = 0
        self._cache, self._sent = set[tuple[int, ...]](), deque[tuple[int, Any, Any]]()

    def facts(self) -> EngineFacts:
        """What it is."""
        return EngineFacts("0.32.0", "cpu", "float32", self.abilities)

    def send(self, number: int, request: Any) -> None:
        """Add a request."""
        self._sent.append((number, request.prompt, request.params))
        self.most_at_once = max(self.most_at_once, len(self._sent))

    def receive(self) -> tuple[int, Output | str]:
        """The next request that ends: short ones end first, among those that are computed together."""
        self.ended += 1
        if self.ended in self.dies:
            self._sent.clear()
            self._cache.clear()
            raise EngineDied("vLLM ended its process")
        together = [self._sent[place] for place in range(min(TOGETHER, len(self._sent)))]
        number, prompt, params = min(together, key=lambda each: each[2].get("max_tokens", 16))
        self._sent.remove((number, prompt, params))
        try:
            self._validate(prompt, params)
        except Refused as error:
            return number, str(error)
        return number, output_of(self.generate(prompt, params))

    def close(self) -> None:
        """Nothing to end."""

    def generate(self, prompt: list[int], params: Mapping[str, Any]) -> Any:
        """vLLM's ``RequestOutput``."""
        self.prompts.append(prompt)
        skips = params.get("prompt_logprobs") is not None or "prompt_logprob_token_ids" in params
        cached = 0 if params.get("skip_reading_prefix_cache", skips) else self._hit(prompt)
        trace = params.get("trace_decode_token_ids")
        most = params.get("max_tokens", 16)
        if trace is not None:
            most = min(len(trace), most, self.abilities.longest - len(prompt))
        tokens, listed, finish = list[int](), list[Any](), "length"
        while len(tokens) < most:
            row = logprobs([*prompt, *tokens], self.abilities.vocabulary)
            best = int(row.argmax())
            tokens.append(best if trace is None else trace[len(tokens)])
            listed.append(self._listed(row, tokens[-1], params))
            if trace is None and tokens[-1] in params.get("stop_token_ids", ()):
                finish = "stop"
                break
        self._fill([*prompt, *tokens[:-1]])
        wanted = params.get("logprobs") is not None or "logprob_token_ids" in params
        return SimpleNamespace(
            prompt_token_ids=prompt,
            num_cached_tokens=cached,
            prompt_logprobs=self._prompt_logprobs(prompt, params, cached),
            prompt_token_id_logprobs=self._rows(prompt, params, cached),
            outputs=[
                SimpleNamespace(
                    token_ids=tokens, logprobs=listed if wanted else None, finish_reason=finish
                )
            ],
        )

    def _listed(self, row: np.ndarray, token: int, params: Mapping[str, Any]) -> dict[int, Any]:
        """The ranks of label ids are their places in the list; those of others count what is no less likely."""
        rank = int((row >= row[token]).sum())
        labels = params.get("logprob_token_ids", [int(row.argmax())][: params.get("logprobs") or 0])
        own = {
            label: SimpleNamespace(logprob=float(row[label]), rank=at + 1)
            for at, label in enumerate(labels)
        }
        return own | {token: SimpleNamespace(logprob=float(row[token]), rank=rank)}

    def _prompt_logprobs(
        self, prompt: list[int], params: Mapping[str, Any], cached: int
    ) -> list[Any] | None:
        if params.get("prompt_logprobs") is None:
            return None
        rows = [logprobs(prompt[:at], self.abilities.vocabulary) for at in range(1, len(prompt))]
        places = [
            None,
            *(
                self._listed(row, token, {"logprobs": 1})
                for row, token in zip(rows, prompt[1:], strict=True)
            ),
        ]
        return places[cached:]

    def _rows(self, prompt: list[int], params: Mapping[str, Any], cached: int) -> np.ndarray | None:
        """Nothing where the cache has the very rows that are wanted."""
        if (ids := params.get("prompt_logprob_token_ids")) is None or cached > params[
            "prompt_logprob_start"
        ]:
            return None
        start = params["prompt_logprob_start"]
        rows = [
            logprobs(prompt[: start + at + 1], self.abilities.vocabulary)[wanted]
            for at, wanted in enumerate(ids)
        ]
        return np.asarray(rows, np.float32)

    def _validate(self, prompt: list[int], params: Mapping[str, Any]) -> None:
        trace, labels = params.get("trace_decode_token_ids"), params.get("logprob_token_ids", ())
        ids = params.get("prompt_logprob_token_ids")
        if not prompt or (self.poison is not None and self.poison in prompt):
            raise Refused("The decoder prompt cannot be empty")
        if len(prompt) + 1 > self.abilities.longest:
            raise Refused("is longer than the maximum model length")
        if len(labels) > MOST_IDS or (
            labels and params.get("logprobs", len(labels)) != len(labels)
        ):
            raise Refused("Requested logprob_token_ids of length")
        if any(token >= self.abilities.vocabulary for token in [*prompt, *labels, *(trace or ())]):
            raise Refused("out-of-vocab token ids")
        if trace is not None and (TRACE not in self.abilities.ways or not trace):
            raise Refused("trace replay is not enabled")
        if ids is not None and (
            ROWS not in self.abilities.ways
            or len(ids) != len(prompt) - 1 - params["prompt_logprob_start"]
        ):
            raise Refused(f"has {len(ids)} rows")
        if any(type(token) is not int for token in [*prompt, *labels, *(trace or ())]):
            raise Refused("must contain non-negative integers")
        if params.get("max_tokens", 16) < 1 or (
            params.get("stop") and not params.get("detokenize", True)
        ):
            raise Refused("max_tokens must be at least 1")

    def _hit(self, prompt: list[int]) -> int:
        return max(
            (
                size
                for size in range(
                    0, hit(len(prompt), self.abilities.block) + 1, self.abilities.block
                )
                if self._has(prompt[:size])
            ),
            default=0,
        )

    def _has(self, tokens: list[int]) -> bool:
        return not tokens or tuple(tokens) in self._cache

    def _fill(self, tokens: list[int]) -> None:
        block = self.abilities.block
        self._cache.update(tuple(tokens[:size]) for size in range(block, len(tokens) + 1, block))
