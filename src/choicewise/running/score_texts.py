"""Choicewise.score."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, cast

import numpy as np
import pyarrow as pa

from choicewise.errors import ModelError, ProtocolError, UsageError, did_you_mean
from choicewise.models.load import load_model
from choicewise.models.model import Model
from choicewise.protocols.protocol import COUNTING
from choicewise.protocols.readings import CONDITIONAL, READINGS, supported_readings
from choicewise.questions import Mass, TokenScores
from choicewise.requests.prompters import PROMPTERS, ChoicePrompter, Form, comparable
from choicewise.requests.request import ChoiceGroup
from choicewise.scoring.observed import Continuations
from choicewise.scoring.scores import SCORES
from choicewise.tokens.boundary import ChoicePrompt, choice_prompts_batch
from choicewise.tokens.byte_coverings import (
    ByteProbability,
    TokenPrompt,
    answer_with_bytes,
    sizes,
    token_sizes,
)
from choicewise.tokens.encode import Encodings
from choicewise.util.text import has_half_character

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
    (:meth:`~choicewise.requests.request.ChoiceGroup.after`).  These scores are NaN where a token straddles one of
    the contexts under ``joint`` or ``count``, so that other text is scored there.

    ``boundary`` (:mod:`choicewise.tokens.boundary`) says which tokens are scored, by default ``lcp``, or the first that
    the reading takes: with ``lcp`` those of all choices
    begin at the same place, so that the differences of their scores are exact even where a token straddles the end of
    the context.  ``tokens`` counts the scored units, which are bytes with boundary ``bytes``.  ``bos``: BOS tokens in
    context and choice; ``unknown``: unknown ones among the scored tokens.  ``merged``, ``noncanonical``, ``lossy``: as
    in :class:`~choicewise.tokens.boundary.ChoicePrompt`.

    Raises UsageError without a list of choices or for a text that is not Unicode, ModelError when a choice can't be
    scored or the model can't be read so, and ProtocolError for another reading or boundary.
    """
    if isinstance(choices, str):
        raise UsageError(
            f"choices is the text {choices!r}, not a list; write choices=[{choices!r}]"
        )
    choices = list(choices)
    if not choices:
        raise UsageError("there is nothing to score; name at least one choice")
    for text in (context, *choices, premise or ""):
        if has_half_character(text):
            raise UsageError(
                f"{text!r} holds a lone surrogate, half a character, which no tokenizer reads"
            )
    if isinstance(model, str | Path):
        model = load_model(model)
    way = _TextReading.of(model, reading, boundary)
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
    columns = {
        "choice": pa.array(choices, pa.string()),
        "reading": pa.array([way.name] * len(choices), pa.string()),
    }
    columns |= {name: pa.array(values, pa.int64()) for name, values in counts.items()}
    for flag in ("merged", "noncanonical", "lossy"):
        columns[flag] = pa.array([getattr(choice, flag) for choice, _ in asked], pa.bool_())
    for name, function in SCORES.items():
        null = nulls.get(name, "")
        if null is not None and name in READINGS[way.name].scores:
            columns[name] = pa.array(function(observed, after_null[null]), pa.float64())
    return pa.table(columns)


def _observe(model: Model, asked: Sequence[_AskedText], choices: Sequence[str]) -> Continuations:
    """The answers to what was ``asked`` about ``choices``; no tokens where one is missing."""
    every = (each for choice, question in asked for each in (question, choice.before, choice.after))
    wanted = {question.key: question for question in every if question is not None}
    keys = list(wanted)
    answers = {
        keys[index]: answer
        for index, answer in answer_with_bytes(model.answer, list(wanted.values()), model.tokenizer)
    }
    rows = [
        TokenScores.of() if question is None else answers[question.key] for _, question in asked
    ]
    bytes_of = token_sizes(model.tokenizer)
    scored = [
        (question, row)
        for (_, question), row in zip(asked, rows, strict=True)
        if question is not None
    ]
    lengths = [size for question, row in scored for size in sizes(question, row, bytes_of).tolist()]

    def total(correction: Mass | ByteProbability | None) -> float:
        return (
            0.0
            if correction is None
            else float(answers[correction.key].logprobs.sum(dtype=np.float64))
        )

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


_OF_TEXTS = (
    "loglikelihood",
    "pseudo-loglikelihood",
    "pseudo-loglikelihood-within-word",
    "encoder-decoder",
)
"""Readings that score one text after another; of those that a model can be asked with, the first is its default."""


class _AskedText(NamedTuple):
    """A choice and what the model is asked about it; None where it is missing."""

    choice: ChoicePrompt
    question: TokenPrompt | None


@dataclass(frozen=True, slots=True)
class _TextReading:
    """A way to ask ``model`` about texts: a reading by its ``name``, and a boundary policy that it takes."""

    model: Model
    name: str
    boundary: str
    form: Form
    encodings: Encodings

    @classmethod
    def of(cls, model: Model, reading: str | None, boundary: str | None) -> _TextReading:
        """The reading of that name, or the model's default, with the boundary or the first that the reading takes.

        Raises ProtocolError for another reading or boundary, ModelError for one that the model can't be asked with.
        """
        if reading is not None and reading not in _OF_TEXTS:
            raise ProtocolError(
                f"no reading of texts is called {reading!r}; {did_you_mean(reading, _OF_TEXTS)}"
            )
        possible = [name for name in supported_readings(model.supports) if name in _OF_TEXTS]
        if not possible or (reading is not None and reading not in possible):
            raise ModelError(
                f"{model.name} can't be asked with reading {reading or _OF_TEXTS[0]}; "
                f"it takes {', '.join(possible) or 'none that scores texts'}"
            )
        name = possible[0] if reading is None else reading
        allowed = READINGS[name].boundaries
        if boundary is not None and allowed and boundary not in allowed:
            raise ProtocolError(
                f"reading {name} takes boundary {' or '.join(allowed)}, not {boundary}"
            )
        policy = boundary or next(iter(allowed), "lcp")
        encodings = Encodings(model.tokenizer, "default", READINGS[name].enclosed)
        return cls(model, name, policy, cast(ChoicePrompter, PROMPTERS[name]).form, encodings)

    def ask(
        self, context: str, choices: Sequence[str], policy: str | None = None
    ) -> list[_AskedText]:
        """One per choice, each within the model's window; ``policy``: another boundary than the reading's own."""
        (located,) = choice_prompts_batch(
            self.encodings, policy or self.boundary, [context], [choices], [()]
        )
        asked = []
        for text, unfitted in zip(choices, located, strict=True):
            choice = self.form.fit(unfitted, self.model.window, self.encodings, cut_start=False)
            if choice.missing is not None:
                raise ModelError(f"choice {text!r} can't be scored: {choice.missing}")
            question = self.form.question(choice, self.encodings, context, text)
            asked.append(_AskedText(choice, cast(TokenPrompt | None, question)))
        return asked

    def ask_null(
        self, context: str, choices: Sequence[str], null: str, own: Sequence[_AskedText]
    ) -> list[_AskedText]:
        """The same choices after the ``null`` context; ``own`` is how they are asked after ``context``."""
        group = ChoiceGroup(context, False, tuple(choices), (), ()).after(null)
        asked = self.ask(null, group.continuations, group.policy(self.boundary))
        if self.boundary not in COUNTING or group.spaced:
            return asked
        compared = comparable(
            [one.choice for one in own], [one.choice for one in asked], self.model.tokenizer
        )
        return [
            _AskedText(choice, None if choice.missing else one.question)
            for choice, one in zip(compared, asked, strict=True)
        ]
