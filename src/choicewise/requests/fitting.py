"""Making a context fit into what the model takes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from choicewise.protocols.protocol import Protocol
from choicewise.requests.render import Request


@dataclass(frozen=True, slots=True)
class Fitted:
    """A context that fits, or the reason why there is none.

    ``shots`` are left in ``context``, ``shots_dropped`` are not.  ``cut_end`` says that the context still has too many
    tokens and the protocol has its end cut; the engine, which holds the tokens, does that and counts them.
    """

    context: str
    shots: int
    shots_dropped: int = 0
    cut_end: bool = False
    missing: str | None = None


def fit(
    protocol: Protocol,
    requests: Sequence[Request],
    count: Callable[[list[str]], list[int]],
    window: int,
    reserve: Sequence[int],
) -> list[Fitted]:
    """One Fitted per request, in order, by the protocol's policy (axis ``fit``).

    ``count`` gives the tokens of each context, a BOS included.  ``window`` is the most input tokens the model takes;
    the protocol's own ``limit`` may be lower.  ``reserve[i]`` input tokens must stay free after the context of request
    ``i``: the longest continuation less its last token, or the tokens to generate.

    Everything is counted once in one batch, and only what is too long again, with one shot less each time.
    ``cut-start`` leaves the context whole: the engine drops the oldest tokens and counts them.
    """
    limit = window if protocol.limit is None else min(window, protocol.limit)
    room = [limit - tokens for tokens in reserve]
    fitted = [Fitted(request.context(), len(request.shots)) for request in requests]
    for index, space in enumerate(room):
        if space < 1:
            fitted[index] = _missing(requests[index], f"the answer alone takes {reserve[index]} of {limit} tokens")
    asked = [index for index, space in enumerate(room) if space >= 1]
    if protocol.fit == "cut-start":
        return fitted

    long = _too_long(asked, fitted, count, room)
    drops = protocol.fit.startswith("drop-last-shot")
    while drops and (shorter := {index: tokens for index, tokens in long.items() if fitted[index].shots}):
        for index in shorter:
            left, dropped = fitted[index].shots - 1, fitted[index].shots_dropped + 1
            fitted[index] = Fitted(requests[index].context(left), left, dropped)
        settled = {index: tokens for index, tokens in long.items() if index not in shorter}
        long = settled | _too_long(list(shorter), fitted, count, room)
    for index, tokens in long.items():
        if protocol.fit == "drop-last-shot-then-cut-end":
            fitted[index] = Fitted(fitted[index].context, 0, fitted[index].shots_dropped, cut_end=True)
        else:
            without = " with no shot left" if drops else ""
            reason = f"{tokens} tokens{without}, {room[index]} fit ({limit} less {reserve[index]} for the answer)"
            fitted[index] = _missing(requests[index], reason)
    return fitted


def _too_long(
    indices: list[int], fitted: Sequence[Fitted], count: Callable[[list[str]], list[int]], room: Sequence[int]
) -> dict[int, int]:
    """Index and tokens of the contexts that have more tokens than room."""
    if not indices:
        return {}
    tokens = count([fitted[index].context for index in indices])
    return {index: number for index, number in zip(indices, tokens, strict=True) if number > room[index]}


def _missing(request: Request, reason: str) -> Fitted:
    """Nothing can be asked; the context stays whole for whoever reads why."""
    return Fitted(request.context(), len(request.shots), missing=f"too long: {reason}")
