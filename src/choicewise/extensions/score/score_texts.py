"""Scores of a few texts after a context, as one table: ``choicewise.score``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, cast

import numpy as np
import pyarrow as pa

from choicewise.errors import ModelError, ProtocolError, UsageError, did_you_mean
from choicewise.models.load import load_model
from choicewise.models.model import Model
from choicewise.protocols.protocol import COUNTING
from choicewise.protocols.readings import READINGS, supported_readings
from choicewise.questions import Mass, Span, TokenScores
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
"""Scores relative to a premise of the domain; other conditional scores take the empty context."""


def score_texts(
    model: str | Path | Model,
    context: str,
    choices: Iterable[str],
    *,
    reading: str | None = None,
    boundary: str | None = None,
    premise: str | None = None,
) -> pa.Table:
    """Score ``choices`` as continuations of ``context``; return a row for each.

    A choice is scored as it is, with its leading space.  A row has the reading, counts and flags,
    and every score (nats, or nats per unit of length).

    ``reading``: a name of :data:`~choicewise.protocols.readings.READINGS` that scores
    continuations; by default ``loglikelihood``, for a masked model ``pseudo-loglikelihood`` and for
    an encoder-decoder ``encoder-decoder``.  ``boundary``: which tokens are scored
    (:mod:`choicewise.tokens.boundary`), by default ``lcp``, or the first that the reading takes.
    With ``lcp`` those of all choices begin at one index, so that differences of scores are exact
    even if a token straddles the end of the context.

    ``pmi`` and its normalised form subtract the log-likelihood after the empty context.  ``dc_pmi``
    and ``domain_conditional`` subtract that after ``premise``, a text that names the domain and not
    the question (such as " the answer is:"), and are left out without one.  White space at its end
    replaces that before a choice (:meth:`~choicewise.requests.request.ChoiceGroup.after`).  These
    scores are NaN if a token straddles one of the contexts under ``joint`` or ``count``, which
    would score different text.

    ``tokens`` counts scored units, which are bytes with boundary ``bytes``; ``bos`` counts BOS
    tokens in context and choice, and ``unknown`` unknown ones among the scored tokens.  ``merged``,
    ``noncanonical`` and ``lossy``: as in :class:`~choicewise.tokens.boundary.ChoicePrompt`.

    Raises UsageError if ``choices`` is no list or a text is not Unicode, ModelError if a choice
    can't be scored or the model does not support the reading, and ProtocolError for an unknown
    reading or boundary.
    """
    choices = _checked(context, choices, premise)
    if isinstance(model, str | Path):
        model = load_model(model)
    way = _TextReading.of(model, reading, boundary)
    located = way.locate(context, choices)
    observed = _observe(model, located, choices)
    after_null = {}
    for null in dict.fromkeys(["", premise or ""]):
        located_null = way.locate_null(context, choices, null, located)
        after_null[null] = _observe(model, located_null, choices)
    counts = {
        "tokens": observed.counts,
        "bytes": [len(choice.encode()) for choice in choices],
        "chars": [len(choice) for choice in choices],
        "words": [len(choice.split()) for choice in choices],
        "bos": [text.choice.bos for text in located],
        "unknown": [text.choice.unknown for text in located],
    }
    columns = {
        "choice": pa.array(choices, pa.string()),
        "reading": pa.array([way.name] * len(choices), pa.string()),
    }
    for name, values in counts.items():
        columns[name] = pa.array(values, pa.int64())
    for flag in ("merged", "noncanonical", "lossy"):
        flags = [getattr(text.choice, flag) for text in located]
        columns[flag] = pa.array(flags, pa.bool_())
    for name, function in SCORES.items():
        if name not in READINGS[way.name].scores:
            continue
        relative_to: str | None = ""
        if name in PREMISED:
            relative_to = premise
        # Without a premise there is nothing that such a score is relative to.
        if relative_to is not None:
            scores = function(observed, after_null[relative_to])
            columns[name] = pa.array(scores, pa.float64())
    return pa.table(columns)


def _checked(context: str, choices: Iterable[str], premise: str | None) -> list[str]:
    """Return the list of choices; UsageError if it is none, or a text is not Unicode."""
    if isinstance(choices, str):
        raise UsageError(
            f"choices is the text {choices!r}, not a list; write choices=[{choices!r}]"
        )
    choices = list(choices)
    if not choices:
        raise UsageError("nothing to score; name at least one choice")
    for text in (context, *choices, premise or ""):
        if has_half_character(text):
            raise UsageError(
                f"{text!r} holds a lone surrogate (half a character), which no tokenizer reads"
            )
    return choices


class _LocatedText(NamedTuple):
    """Hold a choice and its prompt; None if it is missing."""

    choice: ChoicePrompt
    prompt: TokenPrompt | None


def _observe(
    model: Model, located: Sequence[_LocatedText], choices: Sequence[str]
) -> Continuations:
    """Compute the log-probabilities of ``choices``; a missing one has no tokens."""
    # All prompts go to the model in one call, where they share a token tree.
    prompts: dict[str, TokenPrompt] = {}
    for text in located:
        for prompt in (text.prompt, text.choice.before, text.choice.after):
            if prompt is not None:
                prompts[prompt.key] = prompt
    keys = list(prompts)
    unique_prompts = list(prompts.values())
    answers: dict[str, TokenScores] = {}
    for index, answer in answer_with_bytes(model.answer, unique_prompts, model.tokenizer):
        answers[keys[index]] = answer
    token_bytes = token_sizes(model.tokenizer)
    rows = []
    lengths: list[int] = []
    before = []
    after = []
    for text in located:
        # A missing choice has a row without tokens, so that rows stay those of the choices.
        row = TokenScores.of()
        if text.prompt is not None:
            row = answers[text.prompt.key]
            sizes_of_row = sizes(text.prompt, row, token_bytes)
            lengths += sizes_of_row.tolist()
        rows.append(row)
        before.append(_total(text.choice.before, answers))
        after.append(_total(text.choice.after, answers))
    tokens = [row.tokens for row in rows]
    logprobs = [row.logprobs for row in rows]
    ranks = [row.ranks for row in rows]
    counts = list(map(len, tokens))
    continuations = Continuations(
        tokens=np.concatenate(tokens),
        logprobs=np.concatenate(logprobs),
        sizes=np.asarray(lengths, np.int32),
        ranks=np.concatenate(ranks),
        offsets=np.cumsum([0, *counts]),
        text=list(choices),
        item_offsets=np.asarray([0, len(choices)]),
    )
    return continuations.corrected(-np.asarray(before), np.asarray(after))


def _total(correction: Mass | ByteProbability | None, answers: Mapping[str, TokenScores]) -> float:
    if correction is None:
        return 0.0
    logprobs = answers[correction.key].logprobs
    return float(logprobs.sum(dtype=np.float64))


_OF_TEXTS = (
    "loglikelihood",
    "pseudo-loglikelihood",
    "pseudo-loglikelihood-within-word",
    "encoder-decoder",
)
"""Readings that score texts; the first that a model supports is its default."""


@dataclass(frozen=True, kw_only=True)
class _TextReading:
    """Make prompts of texts for ``model``: with the reading ``name``, and a boundary that it takes."""

    model: Model
    name: str
    boundary: str
    form: Form
    encodings: Encodings

    @classmethod
    def of(cls, model: Model, reading: str | None, boundary: str | None) -> _TextReading:
        """Return the reading, or the model's default, with the boundary or the reading's default.

        Raises ProtocolError for an unknown reading or boundary, ModelError if the model does not
        support the reading.
        """
        if reading is not None and reading not in _OF_TEXTS:
            raise ProtocolError(
                f"no reading of texts is called {reading!r}; {did_you_mean(reading, _OF_TEXTS)}"
            )
        possible = [name for name in supported_readings(model.supports) if name in _OF_TEXTS]
        name = reading or next(iter(possible), _OF_TEXTS[0])
        if name not in possible:
            supported = ", ".join(possible) or "none that scores texts"
            raise ModelError(
                f"{model.name} does not support reading {name}; it supports {supported}"
            )
        # A reading that names no boundaries takes all of them.
        boundaries = READINGS[name].boundaries
        if boundaries and boundary not in (None, *boundaries):
            raise ProtocolError(
                f"reading {name} takes boundary {' or '.join(boundaries)}, not {boundary}"
            )
        default_boundary = next(iter(boundaries), "lcp")
        return cls(
            model=model,
            name=name,
            boundary=boundary or default_boundary,
            form=cast(ChoicePrompter, PROMPTERS[name]).form,
            encodings=Encodings(model.tokenizer, "default", READINGS[name].enclosed),
        )

    def locate(
        self, context: str, choices: Sequence[str], policy: str | None = None
    ) -> list[_LocatedText]:
        """Make a prompt of each choice, within the model's window.

        ``policy``: a boundary in place of the reading's.
        """
        (unfitted,) = choice_prompts_batch(
            self.encodings, policy or self.boundary, [context], [choices], [()]
        )
        located = []
        for text, choice in zip(choices, unfitted, strict=True):
            choice = self.form.fit(choice, self.model.window, self.encodings, cut_start=False)
            if choice.missing is not None:
                raise ModelError(f"choice {text!r} can't be scored: {choice.missing}")
            prompt: TokenPrompt | None = choice.span
            if isinstance(prompt, Span):
                prompt = self.form.prompt(prompt, choice, self.encodings, context, text)
            located.append(_LocatedText(choice, prompt))
        return located

    def locate_null(
        self,
        context: str,
        choices: Sequence[str],
        null: str,
        after_context: Sequence[_LocatedText],
    ) -> list[_LocatedText]:
        """Make prompts of the choices after the ``null`` context, without those not comparable.

        ``after_context``: their prompts after ``context``.
        """
        group = ChoiceGroup(
            context=context, differs=False, continuations=tuple(choices), slots=(), gold=()
        ).after(null)
        located = self.locate(null, group.continuations, group.policy(self.boundary))
        if self.boundary not in COUNTING or group.spaced:
            return located
        # Under these boundaries a token that straddles a context scores another text.
        choices_after_context = [text.choice for text in after_context]
        choices_after_null = [text.choice for text in located]
        compared = comparable(choices_after_context, choices_after_null, self.model.tokenizer)
        kept = []
        for choice, text in zip(compared, located, strict=True):
            prompt = text.prompt
            if choice.missing:
                prompt = None
            kept.append(_LocatedText(choice, prompt))
        return kept
