"""Continuations found as the ``select`` of SGLang's front end finds them (reading ``select``).

It asks the server for the log-probabilities of ``prompt + choice`` from the prompt's last token on, in case that token
changed with what follows ("token healing"), and takes this token away again where the prompt's text ends with the
token's text (sglang 0.4.2, ``lang/backend/runtime_endpoint.py``, ``RuntimeEndpoint.select``).
"""

from __future__ import annotations

import numpy as np

from choicewise.engine.asked import Asked
from choicewise.engine.boundary import common_prefix, encode_contexts
from choicewise.engine.span import Ids, Span
from choicewise.engine.tokenizer import Tokenizer


def select_spans(tokenizer: Tokenizer, bos: str, context: str, continuation: str, gold: bool | None) -> Asked:
    """The tokens that ``select`` scores, and as ``parts`` the token it took away and the tokens after the first alone.

    The text of a token is what it decodes to by itself, so one that holds a part of a character is never taken away,
    and one that changed but still ends the prompt is.  Missing where ``select`` stops: the prompt has a single token,
    or no token of the choice is left.
    """
    start, whole = encode_contexts(tokenizer, bos, [context, context + continuation])
    if len(start) < 2:
        return Asked(None, missing=f"the prompt {context!r} has one token alone, from which select can't go back")
    healed = whole[len(start) - 1 : len(start)]
    if len(healed) and context.endswith(tokenizer.decode(healed)):
        cut, removed = len(start), Span(whole[: len(start) - 1], healed)
    else:
        cut, removed = len(start) - 1, None
    scored, merged = whole[cut:], common_prefix([start, whole]) < len(start)
    if not len(scored):
        return Asked(None, merged, missing=f"continuation {continuation!r} leaves select no token to score")
    alone = Span(scored[:1], scored[1:]) if len(scored) > 1 else None
    return Asked(
        Span(whole[:cut], scored, gold),
        merged,
        _count(scored, tokenizer.unknown_id),
        bos=_count(whole, tokenizer.bos_id),
        parts=(removed, alone),
    )


def _count(tokens: Ids, token: int | None) -> int:
    return 0 if token is None else int(np.count_nonzero(tokens == token))
