"""Every score of one question, asked on the spot."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from choicewise.engine.boundary import spans_batch
from choicewise.engine.span import Span
from choicewise.engine.window import fit_span
from choicewise.errors import ModelError, UsageError
from choicewise.scoring.continuations import Continuations
from choicewise.scoring.scores import SCORES

if TYPE_CHECKING:
    from choicewise.models.model import Model

_BOUNDARY = "lcp"
"""All choices are scored from the same tokens, so their differences are exact even where a token would straddle."""


def score(model: str | Model, context: str, choices: Sequence[str]) -> pa.Table:
    """One row per choice: ``choice, tokens, bytes, chars``, then every score (nats, or nats per unit of length).

    Each choice string is scored as it stands, its own leading space included, as a continuation of ``context``; ``pmi``
    sets it against the empty context.  Raises UsageError without choices and ModelError when one can't be scored.
    """
    from choicewise.models.load import load_model

    if not choices:
        raise UsageError("there is nothing to score; name at least one choice")
    if isinstance(model, str):
        model = load_model(model)
    observed = _observe(model, context, choices)
    null = _observe(model, "", choices)
    columns: dict[str, pa.Array] = {
        "choice": pa.array(choices, pa.string()),
        "tokens": pa.array(observed.counts, pa.int64()),
        "bytes": pa.array([len(choice.encode()) for choice in choices], pa.int64()),
        "chars": pa.array([len(choice) for choice in choices], pa.int64()),
    }
    for name, function in SCORES.items():
        columns[name] = pa.array(function(observed, null), pa.float64())
    return pa.table(columns)


def _observe(model: Model, context: str, choices: Sequence[str]) -> Continuations:
    asked = spans_batch(model.tokenizer, _BOUNDARY, "default", [context], [list(choices)], [()])[0]
    spans: list[Span] = []
    for choice, found in zip(choices, asked, strict=True):
        fitting = fit_span(found, model.window, cut_start=False)
        if fitting.span is None:
            raise ModelError(f"choice {choice!r} can't be scored: {fitting.missing}")
        spans.append(fitting.span)
    seen = dict(model.score(spans))
    rows = [seen[index] for index in range(len(spans))]
    sizes = [len(model.tokenizer.token_bytes[token]) for row in rows for token in row.tokens]
    return Continuations(
        tokens=np.concatenate([row.tokens for row in rows]),
        logprobs=np.concatenate([row.logprobs for row in rows]),
        sizes=np.asarray(sizes, dtype=np.int32),
        ranks=np.concatenate([row.ranks for row in rows]),
        offsets=np.cumsum([0, *(len(row.tokens) for row in rows)]),
        text=list(choices),
        items=np.asarray([0, len(choices)]),
    )
