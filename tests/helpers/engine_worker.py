"""The process of vLLM's engine without vLLM: a request ends after as many steps as it generates tokens."""

import sys
from collections.abc import Sequence
from itertools import count
from types import SimpleNamespace
from typing import Any

from choicewise.extensions.endpoints.vllm.process import EngineWorker
from choicewise.util.isolate import serve_together

POISON = 666
"""A token that this engine refuses."""


class Steps:
    """vLLM's ``LLM``, which computes all requests together; ``most``: how many there were at once."""

    def __init__(self) -> None:
        self.llm_engine = self
        self.most = 0
        self._names = count()
        self._left: dict[str, list[Any]] = {}

    def enqueue(self, prompts: Sequence[Any], params: Sequence[Any], use_tqdm: bool) -> list[str]:
        """Add one request; its name has random letters behind the number that results have."""
        (prompt,) = (each["prompt_token_ids"] for each in prompts)
        if POISON in prompt:
            raise ValueError("out of vocabulary")
        name = str(next(self._names))
        self._left[name] = [prompt, params[0].max_tokens]
        self.most = max(self.most, len(self._left))
        return [f"{name}-0a1b2c3d"]

    def step(self) -> list[Any]:
        """A token of every request."""
        results = []
        for name, request in list(self._left.items()):
            prompt, left = request
            request[1] = left - 1
            if left == 1:
                del self._left[name]
            completion = SimpleNamespace(token_ids=[7], logprobs=None, finish_reason="length")
            results.append(
                SimpleNamespace(
                    request_id=name,
                    finished=left == 1,
                    prompt_token_ids=prompt,
                    num_cached_tokens=0,
                    prompt_logprobs=None,
                    outputs=[completion],
                )
            )
        return results


def worker() -> EngineWorker:
    """The worker over that engine."""
    sys.modules["vllm"] = SimpleNamespace(SamplingParams=SimpleNamespace)  # type: ignore[assignment]
    return EngineWorker(Steps())


if __name__ == "__main__":
    serve_together(worker)
