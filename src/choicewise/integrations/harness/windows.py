"""Rolling windows: a text longer than the model's window in pieces, every token scored once."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from choicewise.questions import Ids


def rolling_windows(tokens: Ids, prefix: int, window: int) -> Iterator[tuple[Ids, Ids]]:
    """(context, scored tokens) of each window of at most ``window`` input tokens.

    The first is scored after the ``prefix`` token; every later one begins with one token that was scored before, and
    the last one is filled up with as many of those as fit.  Source: ``lm_eval/utils.py``,
    ``get_rolling_token_windows`` with ``context_len=1`` and ``make_disjoint_window``.
    """
    if not len(tokens):
        return
    yield np.asarray([prefix], dtype=np.int32), tokens[:window]
    for start in range(window, len(tokens), window):
        scored = tokens[start : start + window]
        end = start + len(scored)
        yield tokens[end - window - 1 : start], scored
