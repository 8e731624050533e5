"""Progress over several runs, each with its share of the work; several of them may go on at once."""

from collections.abc import Callable
from threading import Lock

from choicewise.running.pulse import Progress


class SweepProgress:
    """Tells ``report`` of ``total`` units of work how many are done, while runs report on their own."""

    def __init__(self, report: Progress, total: int) -> None:
        self._report, self._total = report, max(total, 1)
        self._parts: list[SweepPart] = []
        self._lock = Lock()

    def run(self, work: int, safe_point: Callable[[], None] = lambda: None) -> "SweepPart":
        """The part of a run of so much ``work``, which reports to it; ``safe_point`` is called with every report."""
        part = SweepPart(self.beat, work, safe_point)
        with self._lock:
            self._parts.append(part)
        return part

    def beat(self) -> None:
        """Report what is done by now; one thread at a time, so that later reports never say less."""
        with self._lock:
            self._report(sum(part.done for part in self._parts), self._total)


class SweepPart:
    """One run of a sweep; it may begin anew, and then nothing moves for a while."""

    def __init__(self, beat: Callable[[], None], work: int, safe_point: Callable[[], None]) -> None:
        self.done = 0
        self._beat, self._work, self._safe_point = beat, work, safe_point

    def __call__(self, done: int, total: int) -> None:
        self._safe_point()
        self.done = max(self.done, int(self._work * done / total) if total else self._work)
        self._beat()

    def finish(self) -> None:
        """The run is over, whether it is complete or failed."""
        self.done = self._work
        self._beat()
