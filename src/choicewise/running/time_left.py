"""How long a piece of work will still take, judged by how fast it goes."""

from collections import deque

ENOUGH = 0.02
"""Share of the work that must be done since the first answer before a speed says anything."""

THIN = 500
"""A moment replaces the last one where less than this part of the time lies in between, to bound their number."""


class TimeLeft:
    """Seconds that a work of ``total`` units still takes, from the moments at which ``done`` of them were done.

    The speed is that of the later half of what was done since the first answer: loading and checking come before it,
    and a first block may be slow because everything is cold.  Answers come in packs, so only moments at which
    something was done count, and the time since the last one is subtracted.
    """

    def __init__(self, done: int, total: int) -> None:
        self._before, self._total = done, total
        self._first: int | None = None
        self._moments: deque[tuple[float, int]] = deque()

    @property
    def answered(self) -> bool:
        """Whether anything was done since the beginning."""
        return self._first is not None

    def add(self, now: float, done: int) -> None:
        """At ``now`` (seconds) ``done`` units are done; a count that is no greater than the last is no news."""
        moments = self._moments
        if done <= (moments[-1][1] if moments else self._before):
            return
        if self._first is None:
            self._first = done
        elif len(moments) > 2 and moments[-1][0] - moments[-2][0] < (now - moments[0][0]) / THIN:
            moments.pop()
        moments.append((now, done))
        while len(moments) > 2 and moments[1][1] <= (self._first + done) / 2:
            moments.popleft()

    def seconds(self, now: float) -> float | None:
        """Estimated seconds left at ``now``; None where nothing can be said yet."""
        if self._first is None or self._moments[-1][1] - self._first < ENOUGH * (self._total - self._before):
            return None
        (start, before), (end, done) = self._moments[0], self._moments[-1]
        if end <= start:
            return None
        pause = (end - start) / (len(self._moments) - 1)
        left = (self._total - done) * (end - start) / (done - before)
        return max(left - min(now - end, pause), 0.0)
