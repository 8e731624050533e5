"""Many requests at once, as many as the server takes, and questions put together from the answers."""

from __future__ import annotations

import time
from collections.abc import Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future
from queue import Empty, SimpleQueue
from typing import Final, NamedTuple

from choicewise.extensions.endpoints.server.faults import (
    JSON,
    RESUME,
    Passing,
    ServerFailed,
    Unanswerable,
    failed,
)
from choicewise.extensions.endpoints.server.http import MOST_AT_ONCE, Client, Reader
from choicewise.extensions.endpoints.server.routes import Assembly, Call, Route
from choicewise.questions import Answers, Prompt, TokenScores

FAILED_IN_A_ROW: Final = (
    5  # different requests without an answer after which the server is in doubt
)


def ask(
    client: Client, route: Route, questions: Sequence[tuple[int, Prompt]], model: str | None
) -> Answers:
    """(index, answer) of every one of ``questions`` (index, question), as answers are complete.

    A question of which a part can't be answered is unanswered, with the reason.  ``model``: the name that every answer
    must give.  Raises ServerFailed where the server fails.
    """
    assembly = Assembly(client.read, route, questions)
    calls = dict[int, Call]()

    def requests() -> Iterator[tuple[str, JSON]]:
        for place, call in enumerate(route.calls(questions)):
            calls[place] = call
            yield call.path, call.body

    for place, answer in answered(client, requests(), model=model):
        call = calls.pop(place)
        yield from assembly.take(
            call.parts, call.read, answer
        )  # prompts are long, and there are many


def ask_now(
    client: Client, route: Route, question: Prompt, model: str | None = None
) -> TokenScores:
    """The answer to one question; raises Unanswerable and ServerFailed where there is none."""
    assembly = Assembly(client.read, route, [(0, question)])
    for call in route.calls([(0, question)]):
        answer = client.post(call.path, call.body, model=model)
        for _, scores in assembly.take(call.parts, call.read, answer):
            if scores.missing is not None:
                raise Unanswerable(scores.missing)
            return scores
    raise Unanswerable("nothing was asked")


def answered(
    client: Client,
    requests: Iterable[tuple[str, JSON] | tuple[str, bytes, Reader]],
    *,
    model: str | None = None,
    most: int = MOST_AT_ONCE,
) -> Generator[tuple[int, JSON | Unanswerable], None, None]:
    """(place of the request in ``requests``, its answer), each once, in the order in which answers come.

    A request is a path (:meth:`~choicewise.extensions.endpoints.server.address.ServerAddress.at`) and what is posted
    there; of bytes also what reads the answer.

    Requests begin in the given order, read from ``requests`` as they are needed, ``most`` at once and fewer where the
    server takes fewer: the client keeps that limit from call to call (``Client.concurrency``).
    ``model``: the name that every answer must give, where it gives one.

    A request that can't be answered has an Unanswerable for an answer.  That is held back until another request is
    answered.  Where that does not happen before the end, or before ``FAILED_IN_A_ROW`` have failed (also in several
    calls), the request that the client saw answered last is repeated: where it is answered, the fault is those
    requests'; where it is not, it is the server's, and nothing is known of them.  Raises ServerFailed then, where
    ``FAILED_IN_A_ROW`` fail at a server that never answered any, and where no request can be answered.

    Closing the generator, or an exception in the thread that reads it, ends everything under way.
    """
    limit, unanswered = client.concurrency, _Unanswered(client)
    queue = enumerate(requests)
    under_way = _UnderWay(client, model)
    try:
        more, ready = True, list[tuple[int, JSON | Unanswerable]]()
        while more or len(under_way) or ready:
            while (
                more
                and len(under_way) < min(limit.limit, most)
                and time.monotonic() >= limit.resume
            ):
                following = next(queue, None)
                if more := following is not None:
                    under_way.begin(following[0], *following[1])
            if ready:  # the server has work again while these are read
                yield from ready
                ready.clear()
                continue
            pause = (
                limit.resume - time.monotonic()
                if more and len(under_way) < min(limit.limit, most)
                else None
            )
            if not len(under_way) and pause is None:
                continue
            match under_way.next_event(pause):
                case Passing(busy=True) as fault:
                    limit.overloaded(fault.begun, time.monotonic(), fault.wait)
                case _Ended(index, path, _, Unanswerable() as reason):
                    if failure := unanswered.add(index, path, reason):
                        yield from under_way.remaining_answers()
                        raise failure
                case _Ended(_, _, _, BaseException() as error):
                    yield from under_way.remaining_answers()
                    raise error
                case _Ended(index, _, took, dict() as answer):
                    limit.answered(took, len(under_way) + 1)
                    ready = [*unanswered.settled(), (index, answer)]
        if failure := unanswered.at_end():
            raise failure
        yield from unanswered.settled()
    finally:
        under_way.cancel()


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
        if (objection := self._client.objection(self._path)) is None:
            return None
        several = (
            f"{count} requests in a row have no answer" if count > 1 else "a request has no answer"
        )
        return failed(
            f"{self._client.address.url}: {several} ({reason.reason}) {objection}; {RESUME}"
        )


class _Ended(NamedTuple):
    """What came of request ``place`` to ``path`` in ``took`` seconds: its answer, an Unanswerable, or what ends all."""

    place: int
    path: str
    took: float
    answer: JSON | BaseException


class _UnderWay:
    """Requests that have begun and whose end was not read yet; for the one thread that reads the events."""

    def __init__(self, client: Client, model: str | None) -> None:
        self._client, self._model = client, model
        self._events = SimpleQueue[Passing | _Ended]()
        self._futures = dict[int, Future[JSON]]()

    def __len__(self) -> int:
        return len(self._futures)

    def begin(
        self, index: int, path: str, body: JSON | bytes, reader: Reader | None = None
    ) -> None:
        """Post ``body`` to ``path``; its events have its ``index``."""
        begun = time.monotonic()

        def end(future: Future[JSON]) -> None:
            if future.cancelled():
                answer: JSON | BaseException = failed("the connection to the server is closed")
            elif (error := future.exception()) is None:
                answer = future.result()
            else:  # there may be thousands, which must not hold on to what they came of
                answer = error.with_traceback(None) if isinstance(error, Unanswerable) else error
            self._events.put(_Ended(index, path, time.monotonic() - begun, answer))

        future = self._client.begin(
            path, body, reader, model=self._model, on_fault=self._events.put
        )
        self._futures[index] = future
        future.add_done_callback(end)

    def next_event(self, seconds: float | None) -> Passing | _Ended | None:
        """What happens next; None where nothing happens within so many ``seconds``."""
        try:
            event = self._events.get(timeout=None if seconds is None else max(0.0, seconds))
        except Empty:
            return None
        if isinstance(event, _Ended):
            del self._futures[event.place]
        return event

    def remaining_answers(self) -> Iterator[tuple[int, JSON]]:
        """The answers that have come and were not read yet."""
        while (event := self.next_event(0)) is not None:
            if isinstance(event, _Ended) and isinstance(event.answer, dict):
                yield event.place, event.answer

    def cancel(self) -> None:
        """End what is under way; its answers are read by nobody."""
        for future in self._futures.values():
            future.cancel()
