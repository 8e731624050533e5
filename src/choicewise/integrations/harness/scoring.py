"""Log-likelihoods of the harness's requests: which tokens are scored, and what is said where none can be."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import NamedTuple

import numpy as np

from choicewise.errors import ModelError
from choicewise.integrations.harness.asking import answers
from choicewise.integrations.harness.encoder import Encoder
from choicewise.models.model import Model
from choicewise.questions import Ids, Rendition, Span
from choicewise.running.progress import print_line
from choicewise.tokens.boundary import choice_questions_batch
from choicewise.tokens.byte_probability import TokenQuestion
from choicewise.tokens.encodings import Encodings
from choicewise.tokens.window import fit_span

SHOWN = 3
"""Requests that an error names."""


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
        return Asked(None, _too_long(continuation, window))
    return Asked(Span(context[dropped:] if dropped else context, continuation), None, merged, dropped)


def ask_rendition(context: Ids, continuation: Ids, window: int) -> Asked:
    """A continuation that the decoder writes; of the context the last ``window`` tokens are kept."""
    if len(continuation) > window:
        return Asked(None, _too_long(continuation, window))
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
    _refuse([f"{where(index)}: {each.missing}" for index, each in enumerate(asked) if each.missing is not None])
    _note(asked, where)
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


def _refuse(problems: Sequence[str]) -> None:
    if problems:
        more = [f"and {len(problems) - SHOWN} more"] if len(problems) > SHOWN else []
        raise ModelError(
            f"{len(problems)} requests can't be scored, and the harness's own model would stop at them, too "
            "(boundary=lcp scores those whose tokens merge)",
            [*problems[:SHOWN], *more],
        )


def _note(asked: Sequence[Asked], where: Callable[[int], str]) -> None:
    """What a reader of the numbers must know, on stderr."""
    for reason, those in (
        ("the scored tokens do not spell the continuation (boundary=lcp scores all of its text)", _places(asked, 2)),
        ("the context is longer than max_length, and its beginning was cut off", _places(asked, 3)),
    ):
        if those:
            print_line(f"choicewise: {len(those)} of {len(asked)} requests, first {where(those[0])}: {reason}")


def _places(asked: Sequence[Asked], field: int) -> list[int]:
    return [index for index, each in enumerate(asked) if each[field]]


def _too_long(continuation: Ids, window: int) -> str:
    return f"its continuation has {len(continuation)} tokens, more than fit (max_length={window})"
