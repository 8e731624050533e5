"""Asking the model: all questions of a request type at once, in the order in which they share the most tokens."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from choicewise.models.model import Model
from choicewise.questions import Answers, Generation, Mass, Rendition, Span
from choicewise.running.progress import ProgressReport
from choicewise.running.pulse import Pulse
from choicewise.tokens.byte_probability import ByteProbability, TokenQuestion
from choicewise.tokens.coverings import answer_with_bytes

PORTION = 16_000_000
"""Input tokens of the questions that are asked at once, at most, counted before what they share: some gigabyte."""


def answers(model: Model, questions: Sequence[TokenQuestion], title: str) -> Answers:
    """The answers of ``model``, as they become available; progress with an estimate goes to stderr.

    All questions are one tree of tokens, cut only where that would outgrow memory.
    """
    work = [question.inputs for question in questions]
    meter = _Meter(model, title, sum(work))
    with Pulse(meter.show) as pulse:
        for portion in portions(questions, work):
            meter.begin(sum(work[index] for index in portion), len(portion))
            for number, scores in answer_with_bytes(model.answer, [questions[index] for index in portion]):
                meter.answered += 1
                yield portion[number], scores
                pulse.beat()
            meter.end()


class _Meter:
    """Shows how much of ``total`` input tokens, counted before what questions share, is done."""

    def __init__(self, model: Model, title: str, total: int) -> None:
        self._model, self._total = model, total
        self._report = ProgressReport(title, computed=lambda: model.computed)
        self._finished = self._size = self._questions = self.answered = 0
        self._before = (0, 0)

    def begin(self, size: int, questions: int) -> None:
        """The next portion has so many tokens and questions."""
        self._size, self._questions, self.answered, self._before = size, questions, 0, self._counts()
        self._report(self._finished, self._total)

    def end(self) -> None:
        """The portion is answered."""
        self._finished, self._size = self._finished + self._size, 0
        self._report(self._finished, self._total)

    def show(self) -> None:
        """Report; may be called from another thread."""
        computed, planned = (now - start for now, start in zip(self._counts(), self._before, strict=True))
        share = min(computed / planned, 1.0) if planned > 0 else self.answered / max(self._questions, 1)
        self._report(self._finished + int(share * self._size), self._total)

    def _counts(self) -> tuple[int, int]:
        return self._model.computed or 0, self._model.planned or 0


def portions(questions: Sequence[TokenQuestion], work: Sequence[int]) -> Iterator[list[int]]:
    """Indexes of ``questions`` in groups of :data:`PORTION` input tokens at most, those that begin alike together."""
    if sum(work) <= PORTION:
        if questions:
            yield list(range(len(questions)))
        return
    group: list[int] = []
    tokens = 0
    for index in sorted(range(len(questions)), key=lambda place: _start(questions[place])):
        if group and tokens + work[index] > PORTION:
            yield group
            group, tokens = [], 0
        group.append(index)
        tokens += work[index]
    yield group


def _start(question: TokenQuestion) -> bytes:
    """What decides which questions share tokens."""
    match question:
        case Rendition(source):
            return source.tobytes()
        case Span(context) | Generation(context) | Mass(context) | ByteProbability(context):
            return context.tobytes()
    return b""
