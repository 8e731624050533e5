"""Choicewise.score."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa

from choicewise.data.items import has_half_character
from choicewise.errors import UsageError
from choicewise.models.load import load_model
from choicewise.models.model import Model
from choicewise.protocols.readings import CONDITIONAL, READINGS
from choicewise.questions import Mass, TokenScores
from choicewise.running.sources import AskedText, TextReading
from choicewise.scoring.observed import Continuations
from choicewise.scoring.scores import SCORES
from choicewise.tokens.byte_coverings import ByteProbability, answer_with_bytes, sizes, token_sizes

PREMISED = ("dc_pmi", "domain_conditional")
"""Scores that compare with a premise of the domain, the others of their kind with the empty context."""


def score_texts(
    model: str | Path | Model,
    context: str,
    choices: Iterable[str],
    *,
    reading: str | None = None,
    boundary: str | None = None,
    premise: str | None = None,
) -> pa.Table:
    """One row per choice: how it was read, its counts and flags, then every score (nats, or nats per unit of length).

    ``reading``: one of :data:`~choicewise.protocols.readings.READINGS` that scores a continuation; by default
    ``loglikelihood``, for a masked model ``pseudo-loglikelihood`` and for an encoder-decoder ``encoder-decoder``.

    Each choice string is scored as it stands, its own leading space included, as a continuation of ``context``; ``pmi``
    and its normalised form compare it with its log-likelihood after the empty context.  ``dc_pmi`` and
    ``domain_conditional`` take the one after ``premise``, a text that names the domain and not the question (such as
    " the answer is:"), and are left out without one; white space that ends it stands there instead of before a choice
    (:class:`~choicewise.requests.prepared.NullGroup`).  These scores are NaN where a token straddles one of
    the contexts under ``joint`` or ``count``, so that other text is scored there.

    ``boundary`` (:mod:`choicewise.tokens.boundary`) says which tokens are scored, by default ``lcp``, or the first that
    the reading takes: with ``lcp`` those of all choices
    begin at the same place, so that the differences of their scores are exact even where a token straddles the end of
    the context.  ``tokens`` counts the scored units, which are bytes with boundary ``bytes``.  ``bos``: BOS tokens in
    context and choice; ``unknown``: unknown ones among the scored tokens.  ``merged``, ``noncanonical``, ``lossy``: as
    in :class:`~choicewise.tokens.boundary.ChoiceQuestion`.

    Raises UsageError without a list of choices or for a text that is not Unicode, ModelError when a choice can't be
    scored or the model can't be read so, and ProtocolError for another reading or boundary.
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
    way = TextReading.of(model, reading, boundary)
    asked = way.ask(context, choices)
    observed = _observe(model, asked, choices)
    nulls = {name: "" if name not in PREMISED else premise for name in CONDITIONAL}
    after_null = {
        null: _observe(model, way.ask_null(context, choices, null, asked), choices)
        for null in dict.fromkeys(nulls.values())
        if null is not None
    }
    counts = {
        "tokens": observed.counts,
        "bytes": [len(choice.encode()) for choice in choices],
        "chars": [len(choice) for choice in choices],
        "words": [len(choice.split()) for choice in choices],
        "bos": [choice.bos for choice, _ in asked],
        "unknown": [choice.unknown for choice, _ in asked],
    }
    columns = {"choice": pa.array(choices, pa.string()), "reading": pa.array([way.name] * len(choices), pa.string())}
    columns |= {name: pa.array(values, pa.int64()) for name, values in counts.items()}
    for flag in ("merged", "noncanonical", "lossy"):
        columns[flag] = pa.array([getattr(choice, flag) for choice, _ in asked], pa.bool_())
    for name, function in SCORES.items():
        null = nulls.get(name, "")
        if null is not None and name in READINGS[way.name].scores:
            columns[name] = pa.array(function(observed, after_null[null]), pa.float64())
    return pa.table(columns)


def _observe(model: Model, asked: Sequence[AskedText], choices: Sequence[str]) -> Continuations:
    """The answers to what was ``asked`` about ``choices``; no tokens where one is missing."""
    every = (each for choice, question in asked for each in (question, choice.before, choice.after))
    wanted = {question.key: question for question in every if question is not None}
    keys = list(wanted)
    answers = {keys[index]: answer for index, answer in answer_with_bytes(model.answer, list(wanted.values()))}
    rows = [TokenScores.of() if question is None else answers[question.key] for _, question in asked]
    bytes_of = token_sizes(model.tokenizer)
    scored = [(question, row) for (_, question), row in zip(asked, rows, strict=True) if question is not None]
    lengths = [size for question, row in scored for size in sizes(question, row, bytes_of).tolist()]

    def total(correction: Mass | ByteProbability | None) -> float:
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
        -np.asarray([total(choice.before) for choice, _ in asked]),
        np.asarray([total(choice.after) for choice, _ in asked]),
    )
