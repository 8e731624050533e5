"""Questions through one way of asking: the requests, their answers, and the answers put together."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from choicewise.models.server.client import Client
from choicewise.models.server.concurrency import answered
from choicewise.models.server.faults import Unanswerable
from choicewise.models.server.request_threads import ServerRequest
from choicewise.models.server.routes.route import Call, Route
from choicewise.questions import Answers, Question, Span, TokenScores


def ask(client: Client, route: Route, questions: Sequence[tuple[int, Question]], model: str | None) -> Answers:
    """(index, answer) of every one of ``questions`` (index, question), as answers are complete.

    A question of which a part can't be answered is unanswered, with the reason.  ``model``: the name that every answer
    must give.  Raises ServerFailed where the server fails.
    """
    assembly = _Assembly(client, route, questions)
    calls = list[Call]()

    def requests() -> Iterator[ServerRequest]:
        for call in route.calls(questions):
            calls.append(call)
            yield ServerRequest(call.path, call.body)

    for place, answer in answered(client, requests(), model=model):
        yield from assembly.take(calls[place], answer)
        calls[place] = _DONE  # prompts are long, and there are many


def ask_now(client: Client, route: Route, question: Question, model: str | None = None) -> TokenScores:
    """The answer to one question; raises Unanswerable and ServerFailed where there is none."""
    assembly = _Assembly(client, route, [(0, question)])
    for call in route.calls([(0, question)]):
        answer = client.post(call.path, call.body, model=model)
        for _, scores in assembly.take(call, answer):
            if scores.missing is not None:
                raise Unanswerable(scores.missing)
            return scores
    raise Unanswerable("nothing was asked")


class _Assembly:
    """Answers to questions, put together from parts in any order."""

    def __init__(self, client: Client, route: Route, questions: Sequence[tuple[int, Question]]) -> None:
        self._client, self._route = client, route
        self._questions = dict(questions)
        self._known = {index: dict[int, TokenScores]() for index, _ in questions}

    def take(self, call: Call, answer: object) -> Answers:
        """The answers that are complete with this one."""
        try:
            if isinstance(answer, Unanswerable):
                raise answer
            assert isinstance(answer, dict)
            scores = self._client.read(call.read, answer)
        except Unanswerable as error:
            for index in {part.question for part in call.parts}:
                if self._known.pop(index, None) is not None:
                    yield index, unanswered(self._questions[index], error.reason)
            return
        for part, one in zip(call.parts, scores, strict=True):
            if (known := self._known.get(part.question)) is None:
                continue
            known[part.number] = one
            question = self._questions[part.question]
            if len(known) == self._route.parts(question):
                parts = [known[number] for number in sorted(known)]
                del self._known[part.question]
                yield part.question, self._route.joined(question, parts)


def unanswered(question: Question, reason: str) -> TokenScores:
    """No answer to ``question``, for this ``reason``."""
    return TokenScores.unanswered(reason, question.continuation if isinstance(question, Span) else ())


_DONE = Call("", {}, (), lambda answer: ())
