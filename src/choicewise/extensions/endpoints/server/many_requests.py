"""Send many requests at once, as many as the server takes, and put answers together from them."""

from __future__ import annotations

import time
from collections.abc import Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future
from queue import Empty, SimpleQueue
from typing import NamedTuple

from choicewise.extensions.endpoints.server.faults import (
    JSON,
    RESUME,
    Passing,
    ServerFailed,
    Unanswerable,
    failed,
)
from choicewise.extensions.endpoints.server.http import MOST_AT_ONCE, Client, Reader
from choicewise.extensions.endpoints.server.routes import Assembly, Call, Numbered, Route
from choicewise.questions import Answers, Prompt, TokenScores

FAILED_IN_A_ROW = 5
"""Different requests without an answer after which the server is in doubt."""


def ask(client: Client, route: Route, questions: Sequence[Numbered], model: str | None) -> Answers:
    """Yield (index, answer) of every one of ``questions`` (index, question) as it is complete.

    A question of which a part can't be answered is unanswered, with the reason.  ``model``: the
    name that every answer must give.  Raises ServerFailed if the server fails.
    """
    assembly = Assembly(client.read, route, questions)
    calls: dict[int, Call] = {}

    def requests() -> Iterator[tuple[str, JSON]]:
        for index, call in enumerate(route.calls(questions)):
            calls[index] = call
            yield call.path, call.body

    for index, answer in answered(client, requests(), model=model):
        # Prompts are long, and there are many, so none is kept after its answer.
        call = calls.pop(index)
        yield from assembly.take(call.parts, call.read, answer)


def ask_now(client: Client, route: Route, question: Prompt) -> TokenScores:
    """Return the answer to one question; raise Unanswerable or ServerFailed if there is none."""
    assembly = Assembly(client.read, route, [(0, question)])
    for call in route.calls([(0, question)]):
        answer = client.post(call.path, call.body)
        for _, scores in assembly.take(call.parts, call.read, answer):
            if scores.missing is not None:
                raise Unanswerable(scores.missing)
            return scores
    raise Unanswerable("no request was sent")


def answered(
    client: Client,
    requests: Iterable[tuple[str, JSON] | tuple[str, bytes, Reader]],
    *,
    model: str | None = None,
    most: int = MOST_AT_ONCE,
) -> Generator[tuple[int, JSON | Unanswerable], None, None]:
    """Yield (index of a request, its answer), each once, in the order in which answers come.

    A request is a path (:meth:`~choicewise.extensions.endpoints.server.address.ServerAddress.at`)
    and what is posted there; of bytes also what reads the answer.

    Requests begin in their order, and are taken from ``requests`` as they are needed, ``most`` at
    once and fewer if the server takes fewer: the client keeps that limit from call to call
    (``Client.concurrency``).  ``model``: the name that every answer must give, if it gives one.

    The answer to a request that can't be answered is an Unanswerable.  It is held back until
    another request is answered.  If that does not happen before the end, or before
    ``FAILED_IN_A_ROW`` have failed (also in several calls), the request that the client saw
    answered last is repeated: if it is answered, the fault is those requests'; if not, it is the
    server's, and nothing is known of them.  Then ServerFailed is raised, as it is if
    ``FAILED_IN_A_ROW`` fail at a server that never answered any, and if no request can be answered.

    Closing the generator, or an exception in the thread that reads it, ends everything under way.
    """
    unanswered = _Unanswered(client)
    under_way = _UnderWay(client, requests, model, most)
    ready: list[tuple[int, JSON | Unanswerable]] = []
    try:
        while True:
            under_way.begin_more()
            # The server has work again while these are read.
            if ready:
                yield from ready
                ready.clear()
                continue
            if under_way.is_done:
                break
            match under_way.next_event(under_way.pause()):
                case Passing(busy=True) as fault:
                    client.concurrency.overloaded(fault.begun, time.monotonic(), fault.wait)
                case _Ended(answer=Unanswerable() as reason) as event:
                    failure = unanswered.add(event.number, event.path, reason)
                    if failure is not None:
                        yield from under_way.remaining_answers()
                        raise failure
                case _Ended(answer=BaseException() as error):
                    yield from under_way.remaining_answers()
                    raise error
                case _Ended(answer=dict() as answer) as event:
                    client.concurrency.answered(event.took, under_way.count + 1)
                    ready = [*unanswered.settled(), (event.number, answer)]
        failure = unanswered.at_end()
        if failure is not None:
            raise failure
        yield from unanswered.settled()
    finally:
        under_way.cancel()


class _Unanswered:
    """Hold requests without an answer until it is known if the server or they are at fault."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._held = list[tuple[int, Unanswerable]]()
        self._path = ""

    def add(self, index: int, path: str, reason: Unanswerable) -> ServerFailed | None:
        """Add a request to ``path``; return the failure if it is the server's fault."""
        self._held.append((index, reason))
        self._path = path
        self._client.unanswered += 1
        return self._failure() if self._client.unanswered >= FAILED_IN_A_ROW else None

    def at_end(self) -> ServerFailed | None:
        """Return the failure if the last requests have no answer by the server's fault."""
        return self._failure() if self._held and self._client.has_answered(self._path) else None

    def settled(self) -> Iterator[tuple[int, Unanswerable]]:
        """Yield all of them, as it is not the server's fault."""
        yield from self._held
        self._held = []

    def _failure(self) -> ServerFailed | None:
        count = self._client.unanswered
        _, reason = self._held[-1]
        objection = self._client.objection(self._path)
        if objection is None:
            return None
        several = f"{count} requests in a row failed" if count > 1 else "a request failed"
        return failed(
            f"{self._client.address.url}: {several} ({reason.reason}), {objection}; {RESUME}"
        )


class _Ended(NamedTuple):
    """Hold the end of request ``number`` to ``path``, after ``took`` seconds.

    ``answer``: the answer, an Unanswerable, or an exception that ends all.
    """

    number: int
    path: str
    took: float
    answer: JSON | BaseException


class _UnderWay:
    """Begin ``requests``, at most ``most`` at once, for the one thread that reads their events."""

    def __init__(
        self,
        client: Client,
        requests: Iterable[tuple[str, JSON] | tuple[str, bytes, Reader]],
        model: str | None,
        most: int,
    ) -> None:
        self._client = client
        self._requests = enumerate(requests)
        self._model = model
        self._most = most
        self._limit = client.concurrency
        self._has_more = True
        self._events = SimpleQueue[Passing | _Ended]()
        self._futures = dict[int, Future[JSON]]()

    @property
    def count(self) -> int:
        """Return the requests that have begun and whose end was not read."""
        return len(self._futures)

    @property
    def is_done(self) -> bool:
        """Check that all requests have begun, and their ends were read."""
        return not self._has_more and not self._futures

    @property
    def _has_room(self) -> bool:
        return self._has_more and self.count < min(self._limit.limit, self._most)

    def begin_more(self) -> None:
        """Begin as many requests as the server takes now."""
        while self._has_room and time.monotonic() >= self._limit.resume:
            following = next(self._requests, None)
            if following is None:
                self._has_more = False
                return
            index, request = following
            self._begin(index, *request)

    def pause(self) -> float | None:
        """Return the seconds to wait before a request may begin; None if an end comes first."""
        return self._limit.resume - time.monotonic() if self._has_room else None

    def _begin(
        self, index: int, path: str, body: JSON | bytes, reader: Reader | None = None
    ) -> None:
        begun = time.monotonic()

        def end(future: Future[JSON]) -> None:
            took = time.monotonic() - begun
            answer: JSON | BaseException
            if future.cancelled():
                answer = failed("the connection to the server is closed")
            else:
                answer = future.exception() or future.result()
            # There may be thousands, which must not hold on to the frames that they come from.
            if isinstance(answer, Unanswerable):
                answer = answer.with_traceback(None)
            self._events.put(_Ended(index, path, took, answer))

        future = self._client.begin(
            path, body, reader, model=self._model, on_fault=self._events.put
        )
        self._futures[index] = future
        future.add_done_callback(end)

    def next_event(self, seconds: float | None) -> Passing | _Ended | None:
        """Return what happens next; None if nothing happens within so many ``seconds``."""
        timeout = None if seconds is None else max(0.0, seconds)
        try:
            event = self._events.get(timeout=timeout)
        except Empty:
            return None
        if isinstance(event, _Ended):
            del self._futures[event.number]
        return event

    def remaining_answers(self) -> Iterator[tuple[int, JSON]]:
        """Yield the answers that have come and were not read yet."""
        while (event := self.next_event(0)) is not None:
            if isinstance(event, _Ended) and isinstance(event.answer, dict):
                yield event.number, event.answer

    def cancel(self) -> None:
        """End what is under way; its answers are read by nobody."""
        for future in self._futures.values():
            future.cancel()
