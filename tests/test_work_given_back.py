"""What a worker gives back because somebody ended it was no attempt in vain."""

from __future__ import annotations

from pathlib import Path

from choicewise.board.queue import ATTEMPTS, PAUSES, Queue
from choicewise.board.submission import State, Wanted

from .submissions import Clock


def test_workers_that_are_ended_do_not_use_up_the_attempts(tmp_path: Path) -> None:
    clock = Clock()
    queue = Queue(tmp_path / "queue.sqlite3", clock)
    queue.submit(Wanted("bundled:merrow-byte"))
    for _ in range(2 * ATTEMPTS):
        lease = queue.lease("worker")
        assert lease is not None
        queue.fail(lease.submission.id, lease.secret, "its worker was ended", again=True, counts=False)
    for number in range(ATTEMPTS):
        lease = queue.lease("worker")
        assert lease is not None, number
        queue.fail(lease.submission.id, lease.secret, "out of memory", again=True)
        clock.time += PAUSES[-1]
    assert queue.get(lease.submission.id).state is State.FAILED
    assert queue.lease("worker") is None
    queue.close()
