"""Many requests at once, as many as the server takes."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from typing import Final

from choicewise.models.server.client import MOST_AT_ONCE, Client
from choicewise.models.server.faults import AGAIN, Passing, ServerFailed, Unanswerable, failed
from choicewise.models.server.json_answer import JSON
from choicewise.models.server.request_threads import Ended, RequestThreads, ServerRequest

FAILED_IN_A_ROW: Final = 5
"""Different requests without an answer, and none with one in between, after which the server is in doubt."""


def answered(
    client: Client, requests: Iterable[ServerRequest], *, model: str | None = None, most: int = MOST_AT_ONCE
) -> Iterator[tuple[int, JSON | Unanswerable]]:
    """(place of the request in ``requests``, its answer), each once, in the order in which answers come.

    Requests begin in the given order, read from ``requests`` as they are needed, ``most`` at once and fewer where the
    server takes fewer: the client keeps that limit from call to call (``concurrency_limit``).
    ``model``: the name that every answer must give, where it gives one.

    A request that can't be answered has an Unanswerable for an answer.  That is held back until another request is
    answered.  Where that does not happen before the end, or before ``FAILED_IN_A_ROW`` have failed (also in several
    calls), the request that the client saw answered last is made again: where it is answered, the fault is those
    requests'; where it is not, it is the server's, and nothing is known of them.  Raises ServerFailed then, where
    ``FAILED_IN_A_ROW`` fail at a server that never answered any, and where no request can be answered.

    Closing the generator, or an exception in the thread that reads it, ends everything under way.
    """
    limit, unanswered = client.concurrency, _Unanswered(client)
    queue = enumerate(requests)
    threads = RequestThreads(client, model)
    try:
        more, ready = True, list[tuple[int, JSON | Unanswerable]]()
        while more or threads.under_way or ready:
            while more and threads.under_way < min(limit.limit, most) and time.monotonic() >= limit.resume:
                following = next(queue, None)
                if more := following is not None:
                    threads.begin(*following)
            if ready:  # the server has work again while these are read
                yield from ready
                ready.clear()
                continue
            pause = limit.resume - time.monotonic() if more and threads.under_way < min(limit.limit, most) else None
            if not threads.under_way and pause is None:
                continue
            match threads.next_event(pause):
                case Passing(busy=True) as fault:
                    limit.overloaded(fault.begun, time.monotonic(), fault.wait)
                case Ended(index, request, _, Unanswerable() as reason):
                    if failure := unanswered.add(index, request.path, reason):
                        yield from threads.remaining_answers()
                        raise failure
                case Ended(_, _, _, BaseException() as error):
                    yield from threads.remaining_answers()
                    raise error
                case Ended(index, _, took, dict() as answer):
                    limit.answered(took, threads.under_way + 1)
                    ready = [*unanswered.settled(), (index, answer)]
        if failure := unanswered.at_end():
            raise failure
        yield from unanswered.settled()
    finally:
        threads.end()


class _Unanswered:
    """Requests without an answer, of which it is not known yet whether the server or they are at fault."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._held = list[tuple[int, Unanswerable]]()
        self._path = ""

    def add(self, index: int, path: str, reason: Unanswerable) -> ServerFailed | None:
        """Another, of a request to ``path``; the failure where it is the server's fault."""
        self._held.append((index, reason))
        self._path = path
        self._client.unanswered += 1
        return self._failure() if self._client.unanswered >= FAILED_IN_A_ROW else None

    def at_end(self) -> ServerFailed | None:
        """The failure where the last requests have no answer and that is the server's fault."""
        return self._failure() if self._held and self._client.has_answered(self._path) else None

    def settled(self) -> Iterator[tuple[int, Unanswerable]]:
        """All of them: it is not the server's fault."""
        yield from self._held
        self._held = []

    def _failure(self) -> ServerFailed | None:
        count, (_, reason) = self._client.unanswered, self._held[-1]
        if (again := self._client.again(self._path)) is None:
            return None
        several = f"{count} requests in a row have no answer" if count > 1 else "a request has no answer"
        return failed(f"{self._client.address.url}: {several} ({reason.reason}) {again}; {AGAIN}")
