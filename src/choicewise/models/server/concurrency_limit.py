"""How many requests are under way at once: as many as the server takes."""

from __future__ import annotations

from typing import Final

FIRST: Final = 2
ROUND: Final = 8
"""The fewest answers after which one more request is tried at once: each trial may cost a refusal."""


class ConcurrencyLimit:
    """``limit`` doubles in every round of as many answers (slow start) until the server is first overloaded.

    From then on it grows by one in every round, of ``ROUND`` answers at least.  Each overload halves it, but at most
    once for the requests that were under way together: those begun before the last halving say nothing new.  It is
    never below 1 and above ``most``.

    It does not grow in a round in which an answer took longer than ``slow`` seconds: a server that computes one after
    another would only let more wait, in the end for longer than is waited for.
    Times are of any clock (seconds).
    """

    def __init__(self, most: int, slow: float, first: int = FIRST) -> None:
        self.most, self.slow = most, slow
        self.limit = min(first, most)
        self.resume = float("-inf")
        """No request begins before that time."""
        self._starting, self._answered, self._halved = True, 0, float("-inf")

    def answered(self, took: float, at_once: int) -> None:
        """A request was answered, which ``took`` so many seconds and was one of so many under way ``at_once``.

        Where those were fewer than the limit, they say nothing of it.
        """
        if at_once < self.limit:
            return
        self._answered += 1
        if took > self.slow:
            self._starting, self._answered = False, 0
        if self._answered >= (self.limit if self._starting else max(self.limit, ROUND)):
            self._answered = 0
            self.limit = min(self.most, self.limit * 2 if self._starting else self.limit + 1)

    def overloaded(self, begun: float, now: float, wait: float | None = None) -> None:
        """A request that began at ``begun`` was refused as too much, with the advice to ``wait``, or was not answered
        in time.
        """
        if wait is not None:
            self.resume = max(self.resume, now + wait)
        if begun >= self._halved:
            self.limit = max(1, self.limit // 2)
            self._starting, self._answered, self._halved = False, 0, now
