"""Making the contexts of requests fit into what the model takes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from choicewise.protocols.protocol import Protocol
from choicewise.requests.request import Request
from choicewise.tokens.boundary import encode_contexts

if TYPE_CHECKING:
    from choicewise.requests.prepared_block import Answerer


@dataclass(frozen=True, slots=True)
class FittedRequest:
    """A request with a context that fits, or the reason why there is none (``missing``).

    ``shots`` are part of ``context``, ``shots_dropped`` are not.  ``cut_end`` says that the context still has too many
    tokens and the protocol has its end cut; the reading, which holds the tokens, does that and counts them.
    """

    request: Request
    context: str
    shots: int
    shots_dropped: int = 0
    cut_end: bool = False
    missing: str | None = None


def input_limit(protocol: Protocol, model: Answerer) -> int:
    """The most input tokens: the model's window, or the protocol's own limit where that is lower."""
    return model.window if protocol.limit is None else min(protocol.limit, model.window)


def fit_requests(
    protocol: Protocol, requests: Sequence[Request], model: Answerer, reserve: Sequence[int]
) -> list[FittedRequest]:
    """One FittedRequest per request, in order, by the protocol's policy (axis ``fit``).

    ``reserve[i]`` input tokens must stay free after the context of request ``i``: the longest continuation minus its
    last token, or the tokens to generate.

    Everything is counted once in one batch, and only what is too long again, with one shot fewer each time.
    ``cut-start`` leaves the context unchanged: the oldest tokens are dropped, and counted, once the texts are tokens.
    """
    limit = input_limit(protocol, model)
    fitted = [FittedRequest(request, request.context(), len(request.shots)) for request in requests]
    for index, tokens in enumerate(reserve):
        if tokens >= limit:
            fitted[index] = _missing(fitted[index], f"the answer alone takes {tokens} of {limit} tokens")
    if protocol.fit == "cut-start":
        return fitted

    room = [limit - tokens for tokens in reserve]
    too_long = _too_long([index for index, space in enumerate(room) if space >= 1], fitted, room, protocol, model)
    drops = protocol.fit.startswith("drop-last-shot")
    while drops and (shorter := [index for index in too_long if fitted[index].shots]):
        for index in shorter:
            remaining, dropped = fitted[index].shots - 1, fitted[index].shots_dropped + 1
            context = requests[index].context(remaining)
            fitted[index] = replace(fitted[index], context=context, shots=remaining, shots_dropped=dropped)
            del too_long[index]
        too_long |= _too_long(shorter, fitted, room, protocol, model)
    for index, tokens in too_long.items():
        if protocol.fit == "drop-last-shot-then-cut-end":
            fitted[index] = replace(fitted[index], cut_end=True)
        else:
            without = " without any shot" if drops else ""
            answer = f"{limit} minus {reserve[index]} for the answer"
            fitted[index] = _missing(fitted[index], f"{tokens} tokens{without}, {room[index]} fit ({answer})")
    return fitted


def _too_long(
    indices: Sequence[int], fitted: Sequence[FittedRequest], room: Sequence[int], protocol: Protocol, model: Answerer
) -> dict[int, int]:
    """Index and tokens of the contexts that have more tokens than room, a BOS counted."""
    encoded = encode_contexts(model.tokenizer, protocol.bos, [fitted[index].context for index in indices])
    return {index: len(tokens) for index, tokens in zip(indices, encoded, strict=True) if len(tokens) > room[index]}


def _missing(fitted: FittedRequest, reason: str) -> FittedRequest:
    """Nothing can be asked; the context has all its shots again, for whoever reads why."""
    request = fitted.request
    return FittedRequest(request, request.context(), len(request.shots), missing=f"too long: {reason}")
