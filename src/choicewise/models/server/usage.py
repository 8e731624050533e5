"""What a server says that it read, summed over its answers."""

from __future__ import annotations

from collections.abc import Mapping
from threading import Lock

from choicewise.models.server.json_answer import JSON


class Usage:
    """``requests``: answers so far.  Counts from any thread.

    ``computed``: tokens of their prompts without those that the server says it had in its cache, so at most what it
    computed; None where an answer did not say how many tokens its prompt has.
    """

    def __init__(self) -> None:
        self.requests = 0
        self._sent = self._cached = self._silent = 0
        self._lock = Lock()

    @property
    def computed(self) -> int | None:
        """Tokens, as the class says."""
        return None if self._silent else self._sent - self._cached

    def add(self, answer: JSON) -> None:
        """Count an answer of a model: OpenAI's ``usage``, or ``meta_info`` of SGLang's own route."""
        if not {"choices", "meta_info"} & answer.keys():
            return
        said = answer.get("usage") or answer.get("meta_info")
        details = said.get("prompt_tokens_details") if isinstance(said, Mapping) else None
        sent, cached = _count(said, "prompt_tokens"), _count(details, "cached_tokens")
        if cached is None:
            cached = _count(said, "cached_tokens")
        with self._lock:
            self.requests += 1
            self._silent += sent is None
            self._sent += sent or 0
            self._cached += min(cached or 0, sent or 0)


def _count(said: object, name: str) -> int | None:
    value = said.get(name) if isinstance(said, Mapping) else None
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None
