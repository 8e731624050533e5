"""Every score of one question, without a run."""

from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa

from choicewise.data.cell import has_half_character
from choicewise.errors import ModelError, UsageError
from choicewise.models.load import load_model
from choicewise.models.model import Model
from choicewise.protocols.boundary import COUNTING
from choicewise.protocols.readings import CONDITIONAL
from choicewise.questions import Mass, Span, TokenScores
from choicewise.requests.readings.choice_group import ChoiceGroup
from choicewise.requests.readings.null_group import NullGroup, comparable
from choicewise.scoring.continuations import Continuations
from choicewise.scoring.scores import SCORES
from choicewise.tokens.boundary import choice_questions
from choicewise.tokens.byte_probability import ByteProbability
from choicewise.tokens.choice_question import ChoiceQuestion
from choicewise.tokens.coverings import answer_with_bytes, sizes, token_sizes
from choicewise.tokens.window import fit_span

PREMISED = ("dc_pmi", "domain_conditional")
"""Scores that compare with a premise of the domain, the others of their kind with the empty context."""


def score_texts(
    model: str | Path | Model,
    context: str,
    choices: Iterable[str],
    *,
    boundary: str = "lcp",
    premise: str | None = None,
) -> pa.Table:
    """One row per choice: its counts and flags, then every score (nats, or nats per unit of length).

    Each choice string is scored as it stands, its own leading space included, as a continuation of ``context``; ``pmi``
    and its normalised form compare it with its log-likelihood after the empty context.  ``dc_pmi`` and
    ``domain_conditional`` take the one after ``premise``, a text that names the domain and not the question (such as
    " the answer is:"), and are left out without one; white space that ends it stands there instead of before a choice
    (:class:`~choicewise.requests.readings.null_group.NullGroup`).  These scores are NaN where a token straddles one of
    the contexts under ``joint`` or ``count``, so that other text is scored there.

    ``boundary`` (:mod:`choicewise.tokens.boundary`) says which tokens are scored: with ``lcp`` those of all choices
    begin at the same place, so that the differences of their scores are exact even where a token straddles the end of
    the context.  ``tokens`` counts the scored units, which are bytes with boundary ``bytes``.  ``bos``: BOS tokens in
    context and choice; ``unknown``: unknown ones among the scored tokens.  ``merged``, ``noncanonical``, ``lossy``: as
    in :class:`~choicewise.tokens.choice_question.ChoiceQuestion`.

    Raises UsageError without a list of choices or for a text that is not Unicode, ModelError when a choice can't be
    scored and ProtocolError for another boundary.
    """
    if isinstance(choices, str):
        raise UsageError(f"choices is the text {choices!r}, not a list; write choices=[{choices!r}]")
    choices = list(choices)
    if not choices:
        raise UsageError("there is nothing to score; name at least one choice")
    for text in (context, *choices, premise or ""):
        if has_half_character(text):
            raise UsageError(f"{text!r} holds a lone surrogate, half a character, which no tokenizer reads")
    if isinstance(model, str | Path):
        model = load_model(model)
    questions = _questions(model, boundary, context, choices)
    observed = _observe(model, questions, choices)
    nulls = {name: "" if name not in PREMISED else premise for name in CONDITIONAL}
    after_null = {
        null: _observe(model, _null_questions(model, boundary, context, choices, null, questions), choices)
        for null in dict.fromkeys(nulls.values())
        if null is not None
    }
    counts = {
        "tokens": observed.counts,
        "bytes": [len(choice.encode()) for choice in choices],
        "chars": [len(choice) for choice in choices],
        "words": [len(choice.split()) for choice in choices],
        "bos": [question.bos for question in questions],
        "unknown": [question.unknown for question in questions],
    }
    columns = {"choice": pa.array(choices, pa.string())}
    columns |= {name: pa.array(values, pa.int64()) for name, values in counts.items()}
    for flag in ("merged", "noncanonical", "lossy"):
        columns[flag] = pa.array([getattr(question, flag) for question in questions], pa.bool_())
    for name, function in SCORES.items():
        null = nulls.get(name, "")
        if null is not None:
            columns[name] = pa.array(function(observed, after_null[null]), pa.float64())
    return pa.table(columns)


def _questions(model: Model, boundary: str, context: str, choices: Sequence[str]) -> list[ChoiceQuestion]:
    """One per choice, each within the model's window."""
    unfitted = choice_questions(model.tokenizer, boundary, "default", context, choices, ())
    questions = [fit_span(question, model.window, cut_start=False) for question in unfitted]
    for choice, question in zip(choices, questions, strict=True):
        if question.missing is not None:
            raise ModelError(f"choice {choice!r} can't be scored: {question.missing}")
    return questions


def _null_questions(
    model: Model, boundary: str, context: str, choices: Sequence[str], null: str, own: Sequence[ChoiceQuestion]
) -> list[ChoiceQuestion]:
    """The same choices after the ``null`` context; ``own`` is how they are asked after ``context``."""
    group = NullGroup.of(ChoiceGroup(context, False, tuple(choices), (), ()), null)
    questions = _questions(model, group.policy(boundary), null, group.continuations)
    compares = boundary in COUNTING and not group.spaced
    return comparable(own, questions, model.tokenizer) if compares else questions


def _observe(model: Model, questions: Sequence[ChoiceQuestion], choices: Sequence[str]) -> Continuations:
    """The answers to ``questions``, which are about ``choices``; no tokens where one is missing."""
    wanted = {question.key: question for choice in questions for question in choice.questions()}
    keys = list(wanted)
    answers = {keys[index]: answer for index, answer in answer_with_bytes(model.answer, list(wanted.values()))}
    spans = [choice.span for choice in questions]
    rows = [TokenScores.of([], [], []) if span is None else answers[span.key] for span in spans]
    bytes_of = token_sizes(model.tokenizer)
    scored = [(span, row) for span, row in zip(spans, rows, strict=True) if span is not None]
    lengths = [size for span, row in scored for size in sizes(span, row, bytes_of).tolist()]

    def total(correction: Span | Mass | ByteProbability | None) -> float:
        return 0.0 if correction is None else float(answers[correction.key].logprobs.sum(dtype=np.float64))

    return Continuations(
        tokens=np.concatenate([row.tokens for row in rows]),
        logprobs=np.concatenate([row.logprobs for row in rows]),
        sizes=np.asarray(lengths, np.int32),
        ranks=np.concatenate([row.ranks for row in rows]),
        offsets=np.cumsum([0, *(len(row.tokens) for row in rows)]),
        text=list(choices),
        item_offsets=np.asarray([0, len(choices)]),
    ).corrected(
        -np.asarray([total(choice.before) for choice in questions]),
        np.asarray([total(choice.after) for choice in questions]),
    )
