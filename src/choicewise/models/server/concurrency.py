"""Many requests at once, as many as the server takes."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from typing import Final

from choicewise.models.server.client import MOST_AT_ONCE, Client
from choicewise.models.server.faults import AGAIN, Passing, ServerFailed, Unanswerable, failed
from choicewise.models.server.json_answer import JSON
from choicewise.models.server.pace import Pace
from choicewise.models.server.work import Ended, ServerRequest, Work

FAILED_IN_A_ROW: Final = 5
"""Different requests without an answer, and none with one in between, after which the server is in doubt."""


def answered(
    client: Client, requests: Iterable[ServerRequest], *, model: str | None = None, most: int = MOST_AT_ONCE
) -> Iterator[tuple[int, JSON | Unanswerable]]:
    """(place of the request in ``requests``, its answer), each once, in the order in which answers come.

    Requests begin in the given order, read from ``requests`` as they are needed, ``most`` at once and fewer where the
    server is overloaded (:class:`~choicewise.models.server.pace.Pace`).  ``model``: the name that every answer must
    give, where it gives one.

    A request that can't be answered has an Unanswerable for an answer.  That is held back until another request is
    answered or all have ended.  Where ``FAILED_IN_A_ROW`` are held back, the request that the client saw answered last
    is made again: where it is answered, the fault is those requests'; where it is not, or where there is none, it is
    the server's, and nothing is known of them.  Raises ServerFailed then, and where no request can be answered.

    Closing the generator, or an exception in the thread that reads it, ends everything under way.
    """
    pace, unanswered = Pace(most, slow=client.timeout / 10), _Unanswered(client)
    queue = enumerate(requests)
    work = Work(client, model)
    try:
        more, ready = True, list[tuple[int, JSON | Unanswerable]]()
        while more or work.under_way or ready:
            while more and work.under_way < pace.limit and time.monotonic() >= pace.resume:
                following = next(queue, None)
                if more := following is not None:
                    work.begin(*following)
            if ready:  # the server has work again while these are read
                yield from ready
                ready.clear()
                continue
            pause = pace.resume - time.monotonic() if more and work.under_way < pace.limit else None
            if not work.under_way and pause is None:
                continue
            match work.hear(pause):
                case Passing(busy=True) as fault:
                    pace.overloaded(fault.begun, time.monotonic(), fault.wait)
                case Ended(index, request, _, Unanswerable() as reason):
                    if failure := unanswered.add(index, request.path, reason):
                        yield from work.answered_meanwhile()
                        raise failure
                case Ended(_, _, _, BaseException() as error):
                    yield from work.answered_meanwhile()
                    raise error
                case Ended(index, _, took, dict() as answer):
                    pace.answered(took)
                    ready = [*unanswered.settled(), (index, answer)]
        yield from unanswered.settled()
    finally:
        work.end()


class _Unanswered:
    """Requests without an answer, of which it is not known yet whether the server or they are at fault."""

    def __init__(self, client: Client) -> None:
        self._client, self._limit = client, FAILED_IN_A_ROW
        self._held = list[tuple[int, Unanswerable]]()

    def add(self, index: int, path: str, reason: Unanswerable) -> ServerFailed | None:
        """Another, of a request to ``path``; the failure where it is the server's fault."""
        self._held.append((index, reason))
        if len(self._held) < self._limit:
            return None
        if (again := self._client.again(path)) is not None:
            return failed(
                f"{self._client.address.url}: {len(self._held)} requests in a row have no answer ({reason.reason})"
                f" {again}; {AGAIN}"
            )
        self._limit *= 2
        return None

    def settled(self) -> Iterator[tuple[int, Unanswerable]]:
        """All of them: the server answers others."""
        yield from self._held
        self._held, self._limit = [], FAILED_IN_A_ROW
