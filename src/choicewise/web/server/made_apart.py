"""What takes seconds to make of a run: made one after the other in processes of their own, and kept."""

from collections import OrderedDict
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as NotYet
from threading import BoundedSemaphore, Lock

from choicewise.errors import ChoicewiseError
from choicewise.web.board.apart import Apart
from choicewise.web.board.listed_run import ListedRun

MOST = 24
"""What is kept, of up to 4 MB each, and what waits to be made."""

MOST_WAITING = 12
"""Requests that wait at once; the server answers further ones without waiting, so that it has threads for others."""

Named = tuple[str, str, str]
"""What it is, and of which run: id and version."""


class MadeApart:
    """Documents and strips of runs; those not asked for the longest go first.  Several threads may use it.

    ``board``: the address of the board, for links back.
    """

    def __init__(self, board: str) -> None:
        self._board, self._apart = board, Apart()
        self._maker = ThreadPoolExecutor(1, "made-apart")
        self._kept: OrderedDict[Named, Future[str]] = OrderedDict()
        self._lock, self._waiting = Lock(), BoundedSemaphore(MOST_WAITING)

    def get(self, kind: str, run: ListedRun, seconds: float) -> str | None:
        """The ``document`` or the ``strip`` of a complete run, or None where it is not made within so many seconds.

        ChoicewiseError where it can't be made.
        """
        name = kind, run.id, run.version
        with self._lock:
            if name not in self._kept:
                self._kept[name] = self._maker.submit(self._apart.make, kind, run.folder, self._board)
            self._kept.move_to_end(name)
            made = self._kept[name]
            while len(self._kept) > MOST:
                self._kept.popitem(last=False)[1].cancel()
        patient = self._waiting.acquire(blocking=False)
        try:
            return made.result(seconds if patient else 0)
        except (NotYet, CancelledError):
            return None
        except ChoicewiseError:
            with self._lock:
                self._kept.pop(name, None)  # another time it may work
            raise
        finally:
            if patient:
                self._waiting.release()

    def stop(self) -> None:
        """Make no more."""
        self._apart.end()
        self._maker.shutdown(wait=False, cancel_futures=True)
