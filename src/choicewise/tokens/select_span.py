"""Continuations found as the ``select`` of SGLang's front end finds them (reading ``select``).

It asks the server for the log-probabilities of ``prompt + choice`` from the prompt's last token on, in case that token
changed with what follows ("token healing"), and takes this token away again where the prompt's text ends with the
token's text (sglang 0.4.2, ``lang/backend/runtime_endpoint.py``, ``RuntimeEndpoint.select``).
"""

from __future__ import annotations

import numpy as np

from choicewise.questions.span import Ids, Span
from choicewise.tokens.boundary import common_prefix, encode_contexts
from choicewise.tokens.choice_question import ChoiceQuestion
from choicewise.tokens.tokenizer import Tokenizer


def select_spans(tokenizer: Tokenizer, bos: str, context: str, continuation: str, gold: bool | None) -> ChoiceQuestion:
    """The tokens that ``select`` scores, and as ``parts`` the token it took away and the tokens after the first alone.

    The text of a token is what it decodes to by itself, so one that holds a part of a character is never taken away,
    and one that changed but still ends the prompt is.  The server gives no number for the first token of all, so of a
    prompt of two tokens the last is scored.  Missing where ``select`` stops: no token of the choice is left, or the
    first token of all is what it would take away.
    """
    start, whole, a = encode_contexts(tokenizer, bos, [context, context + continuation, "a"])
    back = len(start) - 1 if len(start) > 2 else 0
    looked_at = whole[back : back + 1]
    dummy = b"".join(tokenizer.token_bytes[token] for token in a) == b" a"
    ends = any(tokenizer.token_bytes[token] for token in looked_at)  # a BOS is text to the server, but not to a prompt
    ends = ends and context.endswith(_alone(tokenizer, looked_at, dummy))
    if ends and not back:
        return ChoiceQuestion(
            None, missing=f"the prompt {context!r} is too short for select, which goes back two tokens"
        )
    cut, removed = (back + 1, Span(whole[:back], looked_at)) if ends else (max(back, 1), None)
    scored, merged = whole[cut:], common_prefix([start, whole]) < len(start)
    if not len(scored):
        return ChoiceQuestion(None, merged, missing=f"continuation {continuation!r} leaves select no token to score")
    alone = Span(scored[:1], scored[1:]) if len(scored) > 1 else None
    return ChoiceQuestion(
        Span(whole[:cut], scored, gold),
        merged,
        _count(scored, tokenizer.unknown_id),
        bos=_count(whole, tokenizer.bos_id),
        parts=(removed, alone),
    )


def _alone(tokenizer: Tokenizer, token: Ids, dummy: bool) -> str:
    """The text of a token decoded by itself, where a tokenizer that puts a dummy space in front takes one away."""
    text = tokenizer.decode(token)
    return text.removeprefix(" ") if dummy else text


def _count(tokens: Ids, token: int | None) -> int:
    return 0 if token is None else int(np.count_nonzero(tokens == token))
