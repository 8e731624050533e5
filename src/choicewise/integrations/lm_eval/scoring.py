"""Log-likelihood requests."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import NamedTuple

import numpy as np

from choicewise.errors import ModelError
from choicewise.models.model import Model
from choicewise.questions import Answers, Generation, Ids, Mass, Rendition, Span
from choicewise.running.progress import PeriodicReport, ProgressReport, print_line
from choicewise.tokens.boundary import choice_questions_batch, fit_span
from choicewise.tokens.byte_coverings import ByteProbability, TokenQuestion, answer_with_bytes
from choicewise.tokens.encode import Encodings
from choicewise.tokens.tokenizer import Tokenizer

SHOWN = 3
"""Requests that an error names."""

_TOO_LONG = "its continuation has {} tokens, more than fit (max_length={})"
_MERGED = "the scored tokens do not spell the continuation (boundary=lcp scores all of its text)"
_CUT = "the context is longer than max_length, and its beginning was cut off"


@dataclass(frozen=True)
class Request:
    """A continuation and its context.

    ``where``: what it belongs to, in words.  ``group``: the same for all choices of a question.
    """

    context: str
    continuation: str
    where: str
    group: object = None


class Asked(NamedTuple):
    """What the model is asked for one request: the log-likelihood of ``question``, less ``before``, plus ``after``.

    ``question`` is None where ``missing`` says why nothing can be scored.  ``merged``: the scored tokens do not spell
    the continuation.  ``dropped``: tokens of the context that were cut.
    """

    question: TokenQuestion | None
    missing: str | None = None
    merged: bool = False
    dropped: int = 0
    before: TokenQuestion | None = None
    after: TokenQuestion | None = None


class Score(NamedTuple):
    """The log-likelihood of a continuation (nats), and whether each of its tokens is the likeliest one."""

    total: float
    greedy: bool


def ask_span(context: Ids, continuation: Ids, window: int, merged: bool = False) -> Asked:
    """A continuation in tokens; of both together the last ``window + 1`` tokens are kept, as in the harness."""
    dropped = max(len(context) + len(continuation) - 1 - window, 0)
    if dropped >= len(context):
        return Asked(None, _TOO_LONG.format(len(continuation), window))
    return Asked(Span(context[dropped:] if dropped else context, continuation), None, merged, dropped)


def ask_rendition(context: Ids, continuation: Ids, window: int) -> Asked:
    """A continuation that the decoder writes; of the context the last ``window`` tokens are kept."""
    if len(continuation) > window:
        return Asked(None, _TOO_LONG.format(len(continuation), window))
    dropped = max(len(context) - window, 0)
    return Asked(Rendition(context[dropped:], continuation), None, False, dropped)


def ask_as_harness(encoder: Encoder, requests: Sequence[Request], window: int, renditions: bool) -> list[Asked]:
    """How each request is asked by the harness's own rules."""
    asked = []
    for pair in encoder.pairs([(request.context, request.continuation) for request in requests]):
        if pair.missing is not None:
            asked.append(Asked(None, pair.missing))
        elif renditions:
            asked.append(ask_rendition(pair.context, pair.continuation, window))
        else:
            asked.append(ask_span(pair.context, pair.continuation, window, pair.merged))
    return asked


def ask_with_boundary(encodings: Encodings, policy: str, requests: Sequence[Request], window: int) -> list[Asked]:
    """How each request is asked with ``policy`` as the boundary (:mod:`choicewise.tokens.boundary`)."""
    order = sorted(range(len(requests)), key=lambda index: (str(requests[index].group), requests[index].context))
    groups = [
        list(own) for _, own in groupby(order, key=lambda index: (requests[index].group, requests[index].context))
    ]
    questions = choice_questions_batch(
        encodings,
        policy,
        [requests[own[0]].context for own in groups],
        [[requests[index].continuation for index in own] for own in groups],
        [() for _ in groups],
    )
    asked: dict[int, Asked] = {}
    for own, choices in zip(groups, questions, strict=True):
        for index, choice in zip(own, choices, strict=True):
            fit = fit_span(choice, window, cut_start=True)
            asked[index] = Asked(fit.span, fit.missing, fit.lossy, fit.tokens_dropped, fit.before, fit.after)
    return [asked[index] for index in range(len(requests))]


def score(
    model: Model,
    asked: Sequence[Asked],
    where: Callable[[int], str],
    title: str,
    done: Callable[[int, Score], None] = lambda *_: None,
) -> list[Score]:
    """The score of each request; ``done`` hears of each as soon as it is known.

    ``where`` names a request.  Raises ModelError, before anything is computed, where some can't be scored, and in the
    end where some came out as NaN, which the harness would take for the best choice.
    """
    if problems := [f"{where(index)}: {each.missing}" for index, each in enumerate(asked) if each.missing is not None]:
        more = [f"and {len(problems) - SHOWN} more"] if len(problems) > SHOWN else []
        raise ModelError(
            f"{len(problems)} requests can't be scored, and the harness's own model would stop at them, too "
            "(boundary=lcp scores those whose tokens merge)",
            [*problems[:SHOWN], *more],
        )
    for reason, those in (
        (_MERGED, [index for index, each in enumerate(asked) if each.merged]),
        (_CUT, [index for index, each in enumerate(asked) if each.dropped]),
    ):
        if those:
            print_line(f"choicewise: {len(those)} of {len(asked)} requests, first {where(those[0])}: {reason}")
    questions: list[TokenQuestion] = []
    parts: list[tuple[int, int]] = []
    for index, each in enumerate(asked):
        for sign, question in ((0, each.question), (-1, each.before), (1, each.after)):
            if question is not None:
                questions.append(question)
                parts.append((index, sign))
    totals, greedy = np.zeros(len(asked)), np.ones(len(asked), dtype=np.bool_)
    remaining = np.bincount([index for index, _ in parts], minlength=len(asked))
    for number, answer in answers(model, questions, title):
        index, sign = parts[number]
        totals[index] += (sign or 1) * answer.logprobs.sum(dtype=np.float64)
        if not sign:
            greedy[index] = not answer.ranks.any()
        remaining[index] -= 1
        if not remaining[index] and not np.isnan(totals[index]):
            done(index, Score(float(totals[index]), bool(greedy[index])))
    if len(lost := np.flatnonzero(np.isnan(totals))):
        raise ModelError(
            f"{model.name} gives no number (NaN) for {len(lost)} of {len(asked)} requests, the first of "
            f"{where(int(lost[0]))}; the harness would take that for the best choice: try dtype=float32"
        )
    return [Score(float(total), bool(likeliest)) for total, likeliest in zip(totals, greedy, strict=True)]


PORTION = 16_000_000
"""Input tokens of the questions that are asked at once, at most, counted before what they share: some gigabyte."""


def answers(model: Model, questions: Sequence[TokenQuestion], title: str) -> Answers:
    """The answers of ``model``, as they become available; progress with an estimate goes to stderr.

    All questions are one tree of tokens, cut only where that would outgrow memory.
    """
    work = [question.inputs for question in questions]
    total, report = sum(work), ProgressReport(title, computed=lambda: model.computed)
    finished = size = answered = 0  # input tokens, counted before what questions share, and questions of a portion
    portion, before = list[int](), (0, 0)

    def counts() -> tuple[int, int]:
        return model.computed or 0, model.planned or 0

    def show() -> None:  # from another thread, too
        computed, planned = (now - start for now, start in zip(counts(), before, strict=True))
        share = min(computed / planned, 1.0) if planned > 0 else answered / max(len(portion), 1)
        report(finished + int(share * size), total)

    with PeriodicReport(show) as periodic:
        for portion in portions(questions, work):
            size, answered, before = sum(work[index] for index in portion), 0, counts()
            report(finished, total)
            scores_of = answer_with_bytes(model.answer, [questions[index] for index in portion])
            for answered, (number, scores) in enumerate(scores_of, 1):  # noqa: B007 (`show` reads it)
                yield portion[number], scores
                periodic.tick()
            finished, size = finished + size, 0
            report(finished, total)


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


TOGETHER = 10_000
"""Pairs of texts that are encoded at once: what they share is encoded once, and little of it is held in memory."""


class Pair(NamedTuple):
    """A context and its continuation in tokens.

    ``missing``: why nothing can be scored, or None.  ``merged``: the context's tokens do not begin those of the whole
    text, so that the scored tokens do not spell the continuation.
    """

    context: Ids
    continuation: Ids
    missing: str | None = None
    merged: bool = False


class Encoder:
    """Encodes as the harness's ``hf`` model does.

    ``prefix``: the token after which a text without context is scored; ``prefix_text``: what it decodes to, with which
    a text may begin that then gets nothing added.  ``add_bos``: as ``add_bos_token``.  ``apart``: context and
    continuation are encoded each by itself, as for an encoder-decoder.
    """

    def __init__(
        self, tokenizer: Tokenizer, prefix: int | None, prefix_text: str | None, add_bos: bool | None, apart: bool
    ) -> None:
        self._tokenizer = tokenizer
        self._prefix, self._prefix_text = prefix, prefix_text
        self._special = add_bos is not False
        self._apart = apart

    def texts(self, texts: Sequence[str], special: bool | None = None) -> list[Ids]:
        """The tokens of each text: as the harness's ``tok_encode``."""
        wanted = [self._adds(text) if special is None else special for text in texts]
        known: dict[tuple[str, bool], Ids] = {}
        for added in (True, False):
            new = list(dict.fromkeys(text for text, own in zip(texts, wanted, strict=True) if own is added))
            encoded = self._tokenizer.encode(new, special=added)
            known.update(((text, added), tokens) for text, tokens in zip(new, encoded, strict=True))
        return [known[pair] for pair in zip(texts, wanted, strict=True)]

    def pairs(self, requests: Sequence[tuple[str, str]]) -> list[Pair]:
        """Each context with its continuation: as ``_encode_pair``, and ``loglikelihood`` for an empty context.

        Equal contexts share one array.
        """
        pairs: list[Pair] = []
        for start in range(0, len(requests), TOGETHER):
            pairs += self._pairs(requests[start : start + TOGETHER])
        return pairs

    def _pairs(self, requests: Sequence[tuple[str, str]]) -> list[Pair]:
        moved = [space_moved(*request) for request in requests]
        alone = [after for before, after in moved if self._apart or not before]
        contexts = [before for (given, _), (before, _) in zip(requests, moved, strict=True) if given]
        joined = [before + after for (given, _), (before, after) in zip(requests, moved, strict=True) if given]
        bare = dict(zip(alone, self.texts(alone, special=False), strict=True))
        texts = [*contexts, *([] if self._apart else joined)]
        known = dict(zip(texts, self.texts(texts), strict=True))
        pairs = []
        for (given, _), (before, after) in zip(requests, moved, strict=True):
            if not given:
                pairs.append(self._after_nothing(bare[after], after))
            elif self._apart:
                pairs.append(_checked(known[before], bare[after], after))
            else:
                context, whole = known[before], known[before + after]
                merged = not np.array_equal(whole[: len(context)], context)
                pairs.append(_checked(context, whole[len(context) :].copy(), after, merged))
        return pairs

    def _after_nothing(self, tokens: Ids, text: str) -> Pair:
        if self._prefix is None:
            reason = "its context is empty and the tokenizer names neither a BOS nor an EOS (prefix_token_id names one)"
            return Pair(tokens[:0], tokens, reason)
        if tokens[:1].tolist() == [self._prefix]:
            return _checked(tokens[:1], tokens[1:], text)
        return _checked(np.asarray([self._prefix], dtype=np.int32), tokens, text)

    def _adds(self, text: str) -> bool:
        """Whether ``text`` gets what the tokenizer adds by default."""
        return self._special and (self._prefix_text is None or not text.startswith(self._prefix_text))


def space_moved(context: str, continuation: str) -> tuple[str, str]:
    """The white space that ends ``context`` stands before ``continuation`` instead."""
    kept = context.rstrip()
    return kept, context[len(kept) :] + continuation


def _checked(context: Ids, continuation: Ids, text: str, merged: bool = False) -> Pair:
    """The pair, or why it can't be scored: where the harness stops with an assertion."""
    missing = None
    if not len(context):
        missing = "its context is white space, which has no tokens before it"
    elif not len(continuation):
        reason = "its characters merge into the context's last token" if merged else "it has no tokens"
        missing = f"continuation {text!r} leaves nothing to score: {reason}"
    return Pair(context, continuation, missing, merged)
