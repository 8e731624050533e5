"""Every score_texts of one question, asked on the spot."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from choicewise.errors import ModelError, UsageError
from choicewise.questions.mass import Mass
from choicewise.questions.span import Span
from choicewise.scoring.continuations import Continuations
from choicewise.scoring.scores import SCORES
from choicewise.tokens.boundary import choice_questions
from choicewise.tokens.byte_probability import ByteProbability
from choicewise.tokens.choice_question import ChoiceQuestion
from choicewise.tokens.coverings import answer_with_bytes, sizes
from choicewise.tokens.window import fit_span

if TYPE_CHECKING:
    from choicewise.models.model import Model


def score_texts(model: str | Path | Model, context: str, choices: Iterable[str], *, boundary: str = "lcp") -> pa.Table:
    """One row per choice: its counts and flags, then every score_texts (nats, or nats per unit of length).

    Each choice string is scored as it stands, its own leading space included, as a continuation of ``context``; ``pmi``
    sets it against the empty context.  ``boundary`` (:mod:`choicewise.tokens.boundary`) says which tokens are scored:
    with ``lcp`` all choices from the same ones, so that their differences are exact even where a token would straddle.
    ``tokens`` counts the scored units, which are bytes with boundary ``bytes``.  ``bos``, ``unknown``: BOS tokens in
    all, unknown ones among the scored.  ``merged``, ``noncanonical``, ``lossy``: as in
    :class:`~choicewise.tokens.choice_question.ChoiceQuestion`.

    Raises UsageError without a list of choices or for a text that is not Unicode, ModelError when a choice can't be
    scored and ProtocolError for another boundary.
    """
    from choicewise.models.load import load_model

    if isinstance(choices, str):
        raise UsageError(f"choices is the text {choices!r}, not a list; write choices=[{choices!r}]")
    choices = list(choices)
    if not choices:
        raise UsageError("there is nothing to score_texts; name at least one choice")
    for text in (context, *choices):
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise UsageError(f"{text!r} holds a lone surrogate, half a character, which no tokenizer reads") from error
    if isinstance(model, str | Path):
        model = load_model(model)
    asked = _ask(model, boundary, context, choices)
    observed = _observe(model, asked, choices)
    null = _observe(model, _ask(model, boundary, "", choices), choices)
    columns: dict[str, pa.Array] = {
        "choice": pa.array(choices, pa.string()),
        "tokens": pa.array(observed.counts, pa.int64()),
        "bytes": pa.array([len(choice.encode()) for choice in choices], pa.int64()),
        "chars": pa.array([len(choice) for choice in choices], pa.int64()),
        "words": pa.array([len(choice.split()) for choice in choices], pa.int64()),
    }
    for count in ("bos", "unknown"):
        columns[count] = pa.array([getattr(choice, count) for choice in asked], pa.int64())
    for flag in ("merged", "noncanonical", "lossy"):
        columns[flag] = pa.array([getattr(choice, flag) for choice in asked], pa.bool_())
    for name, function in SCORES.items():
        columns[name] = pa.array(function(observed, null), pa.float64())
    return pa.table(columns)


def _ask(model: Model, boundary: str, context: str, choices: Sequence[str]) -> list[ChoiceQuestion]:
    found = []
    asked = choice_questions(model.tokenizer, boundary, "default", context, list(choices), ())
    for choice, whole in zip(choices, asked, strict=True):
        fitting = fit_span(whole, model.window, cut_start=False)
        if fitting.missing is not None:
            raise ModelError(f"choice {choice!r} can't be scored: {fitting.missing}")
        found.append(fitting)
    return found


def _observe(model: Model, asked: Sequence[ChoiceQuestion], choices: Sequence[str]) -> Continuations:
    wanted = {question.key: question for choice in asked for question in choice.questions()}
    keys = list(wanted)
    seen = {keys[index]: scores for index, scores in answer_with_bytes(model, list(wanted.values()))}
    spans = [choice.span for choice in asked if choice.span is not None]
    rows = [seen[span.key] for span in spans]

    def total(correction: Span | Mass | ByteProbability | None) -> float:
        return 0.0 if correction is None else float(seen[correction.key].logprobs.sum(dtype=np.float64))

    return Continuations(
        tokens=np.concatenate([row.tokens for row in rows]),
        logprobs=np.concatenate([row.logprobs for row in rows]),
        sizes=np.asarray([size for span in spans for size in sizes(span, seen[span.key], model.tokenizer)], np.int32),
        ranks=np.concatenate([row.ranks for row in rows]),
        offsets=np.cumsum([0, *(len(row.tokens) for row in rows)]),
        text=list(choices),
        item_offsets=np.asarray([0, len(choices)]),
    ).corrected(
        -np.asarray([total(choice.before) for choice in asked]), np.asarray([total(choice.after) for choice in asked])
    )
