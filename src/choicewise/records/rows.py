"""The typed rows of a run folder's tables; each has the columns of its schema in :mod:`choicewise.records.tables`.

Named tuples, because blocks have hundreds of thousands of them: they are cheap to make, and ``zip`` makes them columns.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt


class ItemRow(NamedTuple):
    """A question of the run.  ``position``: its place in the table; ``fields``: its further fields, a JSON object."""

    position: int
    split: str
    item: str
    subject: str
    question: str
    choices: Sequence[str]
    gold: Sequence[int]
    fields: str


class RequestRow(NamedTuple):
    """An item under one prompt: its texts as sent after fitting, or why it could not be asked (``missing``).

    ``prompt``: :attr:`choicewise.protocols.protocol.Protocol.prompt_digest`.  ``options``: the choices as shown.
    ``shots`` are part of the context, ``shots_dropped`` did not fit.  ``tokens_dropped``: tokens cut from the context,
    the greatest number over all choices.
    """

    prompt: str
    item: str
    subject: str
    gold: Sequence[int]
    context: str | None = None
    continuations: Sequence[str] | None = None
    options: Sequence[str] | None = None
    shots: int | None = None
    shots_dropped: int | None = None
    tokens_dropped: int = 0
    missing: str | None = None


class SpanRow(NamedTuple):
    """Which observation answers what was asked about a choice.

    ``choice``: its index; ``GENERATED`` for a generation, which belongs to no choice.  ``part`` counts from 0 where
    several things are asked about a choice.  ``null``: the null context, None for the request itself.  ``context``: the
    choice's own context where it is not the request's.  ``key``: of the observation, None when ``missing`` says why.
    ``before`` and ``after``: keys of the observations whose log-probabilities are subtracted and added.  The flags are
    those of :class:`choicewise.tokens.choice_question.ChoiceQuestion`.
    """

    prompt: str
    item: str
    choice: int
    part: int
    null: str | None = None
    context: str | None = None
    continuation: str = ""
    key: str | None = None
    context_tokens: int = 0
    tokens_dropped: int = 0
    before: str | None = None
    after: str | None = None
    merged: bool = False
    noncanonical: bool = False
    lossy: bool = False
    unknown: int = 0
    bos: int = 0
    missing: str | None = None


class ObservationRow(NamedTuple):
    """What a model answered to one question.

    ``tokens`` (ids), ``sizes`` (bytes), ``logprobs`` (nats) and ``ranks`` have one entry per scored unit.  ``text``: of
    a generation.  ``value``: a loss (nats per token) or a cosine.  ``total``: the log-likelihood (nats) of an
    observation that came without tokens, as in other tools' logs; None where ``logprobs`` say it.
    """

    key: str
    tokens: npt.NDArray[np.int32] | Sequence[int]
    sizes: Sequence[int]
    logprobs: npt.NDArray[np.float32] | Sequence[float]
    ranks: npt.NDArray[np.int32] | Sequence[int]
    text: str | None = None
    value: float | None = None
    total: float | None = None
