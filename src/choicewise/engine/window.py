"""What fits the model's window, and what is cut or refused where something does not."""

from __future__ import annotations

from dataclasses import replace

from choicewise.engine.boundary import Asked
from choicewise.engine.span import Ids, Span


def fit_span(asked: Asked, window: int, *, cut_start: bool) -> Asked:
    """``asked`` as a model with ``window`` input tokens can answer it.

    The last token is never an input, so ``window + 1`` tokens fit.  With ``cut_start`` the start of the context is cut
    as in lm-evaluation-harness (``lm_eval/models/huggingface.py`` ``_loglikelihood_tokens``) and counted in
    ``tokens_dropped``; otherwise a span that is too long is missing, with the reason.
    """
    if asked.span is None:
        return asked
    context, continuation = asked.span.context, asked.span.continuation
    excess = len(context) + len(continuation) - (window + 1)
    if excess <= 0:
        return asked
    if not cut_start:
        return replace(asked, span=None, missing=f"{window + excess} tokens do not fit the window of {window}")
    if excess >= len(context):
        reason = f"a continuation of {len(continuation)} tokens does not fit the window of {window}"
        return replace(asked, span=None, missing=reason)
    return replace(asked, span=Span(context[excess:], continuation, asked.span.gold), tokens_dropped=excess)


def cut_end(context: Ids, limit: int, new_tokens: int) -> tuple[Ids, int]:
    """The first ``limit - new_tokens`` tokens of ``context``, and how many were cut off behind them.

    As in HELM (``local_window_service.py`` ``truncate_from_right``), which leaves room for the tokens to come.
    """
    kept = context[: max(limit - new_tokens, 0)]
    return kept, len(context) - len(kept)
