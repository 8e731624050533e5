"""Requests under way in threads, and what becomes of them."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from threading import Event, Thread

from choicewise.models.server.client import Client
from choicewise.models.server.faults import Passing, Unanswerable
from choicewise.models.server.json_answer import JSON


@dataclass(frozen=True, slots=True)
class ServerRequest:
    """``body``, to be posted to ``path`` (:meth:`~choicewise.models.server.address.ServerAddress.at`)."""

    path: str
    body: JSON


@dataclass(frozen=True, slots=True)
class Ended:
    """What came of the request ``index`` in ``took`` seconds: its answer, an Unanswerable, or what ends all."""

    index: int
    request: ServerRequest
    took: float
    answer: JSON | BaseException


class RequestThreads:
    """Begins requests, each in a thread, which are daemons: nothing waits for them at the end of the program.

    Its methods are for one thread alone, which reads the events.
    """

    def __init__(self, client: Client, model: str | None) -> None:
        self._client, self._model = client, model
        self._tasks = SimpleQueue[tuple[int, ServerRequest] | None]()
        self._events = SimpleQueue[Passing | Ended]()
        self._threads = list[Thread]()
        self._stopped = Event()
        self.under_way = 0

    def begin(self, index: int, request: ServerRequest) -> None:
        """Make ``request``; its events have its ``index``."""
        self.under_way += 1
        if self.under_way > len(self._threads):
            self._threads.append(Thread(target=self._run, name="choicewise request", daemon=True))
            self._threads[-1].start()
        self._tasks.put((index, request))

    def next_event(self, seconds: float | None) -> Passing | Ended | None:
        """What happens next; None where nothing happens within so many ``seconds``."""
        try:
            event = self._events.get(timeout=None if seconds is None else max(0.0, seconds))
        except Empty:
            return None
        if isinstance(event, Ended):
            self.under_way -= 1
        return event

    def remaining_answers(self) -> Iterator[tuple[int, JSON]]:
        """The answers that have come and were not read yet."""
        while (event := self.next_event(0)) is not None:
            if isinstance(event, Ended) and isinstance(event.answer, dict):
                yield event.index, event.answer

    def end(self) -> None:
        """End what is under way, and the threads."""
        self._stopped.set()
        if self.under_way:
            self._client.abandon()
        for _ in self._threads:
            self._tasks.put(None)

    def _run(self) -> None:
        while (task := self._tasks.get()) is not None and not self._stopped.is_set():
            index, request = task
            begun = time.monotonic()
            answer: JSON | BaseException
            try:
                answer = self._ask(request)
            except Unanswerable as reason:
                answer = reason.with_traceback(None)  # thousands may be kept, and must not keep what they came of
            except BaseException as error:
                answer = error
            self._events.put(Ended(index, request, time.monotonic() - begun, answer))
            del task, request, answer

    def _ask(self, request: ServerRequest) -> JSON:
        return self._client.ask(
            "POST",
            request.path,
            request.body,
            model=self._model,
            on_fault=self._events.put,
            stopped=self._stopped.is_set,
        )
