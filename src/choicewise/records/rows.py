"""The typed rows of a run folder's tables; :mod:`choicewise.records.tables` makes its schemas from their annotations.

Named tuples, because blocks have hundreds of thousands of them: they are cheap to make, and ``zip`` makes them columns.
"""

from collections.abc import Sequence
from typing import Annotated, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Text = Annotated[str, pa.string()]
TextOrNull = Annotated[str | None, pa.string()]
Int16 = Annotated[int, pa.int16()]
Int32 = Annotated[int, pa.int32()]
Flag = Annotated[bool, pa.bool_()]
Indices = Annotated[Sequence[int], pa.list_(pa.int16())]
Tokens = Annotated[npt.NDArray[np.int32] | Sequence[int], pa.list_(pa.int32())]


class ItemRow(NamedTuple):
    """A question of the run.  ``position``: its place in the table; ``fields``: its further fields, a JSON object."""

    position: Int32
    split: Text
    item: Text
    subject: Text
    question: Text
    choices: Annotated[Sequence[str], pa.list_(pa.string())]
    gold: Indices
    fields: Text


class RequestRow(NamedTuple):
    """An item under one prompt: its texts as sent after fitting, or why it could not be asked (``missing``).

    ``prompt``: :attr:`choicewise.protocols.protocol.Protocol.prompt_digest`.  ``options``: the choices as shown, after
    quirks and stripping.  ``shots`` are part of the context, ``shots_dropped`` did not fit.  ``tokens_dropped``: tokens
    cut from the context, the greatest number over all choices.
    """

    prompt: Text
    item: Text
    subject: Text
    gold: Indices
    context: TextOrNull = None
    continuations: Annotated[Sequence[str] | None, pa.list_(pa.string())] = None
    options: Annotated[Sequence[str] | None, pa.list_(pa.string())] = None
    shots: Annotated[int | None, pa.int16()] = None
    shots_dropped: Annotated[int | None, pa.int16()] = None
    tokens_dropped: Int32 = 0
    missing: TextOrNull = None


class SpanRow(NamedTuple):
    """Which observation answers what was asked about a choice: one row per prompt, item, choice, part and null context.

    ``choice``: its index; ``GENERATED`` for a generation, which belongs to no choice.  ``part`` counts from 0 where
    several things are asked about a choice.  ``null``: the null context, None for the request itself.  ``context``: the
    choice's own context where it is not the request's.  ``continuation``: None where another tool's log does not have
    it.  ``key``: of the observation, None when ``missing`` says why.
    ``before`` and ``after``: keys of the observations whose log-probabilities are subtracted and added.  The flags are
    those of :class:`choicewise.tokens.choice_question.ChoiceQuestion`.
    """

    prompt: Text
    item: Text
    choice: Int16
    part: Int16
    null: TextOrNull = None
    context: TextOrNull = None
    continuation: TextOrNull = ""
    key: TextOrNull = None
    context_tokens: Int32 = 0
    tokens_dropped: Int32 = 0
    before: TextOrNull = None
    after: TextOrNull = None
    merged: Flag = False
    noncanonical: Flag = False
    lossy: Flag = False
    unknown: Int32 = 0
    bos: Int32 = 0
    missing: TextOrNull = None


class ObservationRow(NamedTuple):
    """What a model answered to one question, whichever protocol asked.

    ``tokens`` (ids), ``sizes`` (bytes), ``logprobs`` (nats; of a loss, their mean at each token) and ``ranks``
    (vocabulary entries with a strictly greater logit) have one entry per scored unit.  ``text``: of a generation.
    ``value``: a loss (nats per token) or a cosine.  Of an observation that came without tokens, as in other tools'
    logs: ``total``, its log-likelihood (nats), ``token_count``, how many tokens it had, and ``greedy``, whether each of
    them was the likeliest; None where ``logprobs`` say it, or nobody does.  ``at_most``: whether ``logprobs`` are upper
    bounds.  ``missing``: why a model behind a server gave no answer; all numbers are NaN then.
    """

    key: Text
    tokens: Tokens
    sizes: Tokens
    logprobs: Annotated[npt.NDArray[np.float32] | Sequence[float], pa.list_(pa.float32())]
    ranks: Tokens
    text: TextOrNull = None
    value: Annotated[float | None, pa.float32()] = None
    total: Annotated[float | None, pa.float64()] = None
    token_count: Annotated[int | None, pa.int32()] = None
    greedy: Annotated[bool | None, pa.bool_()] = None
    at_most: Annotated[bool | None, pa.bool_()] = None
    missing: TextOrNull = None
