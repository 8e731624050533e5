"""Making the contexts of requests fit into what the model takes."""

from collections.abc import Sequence
from dataclasses import replace

from choicewise.requests.prompt_rows import PromptRows
from choicewise.requests.request import FittedRequest, Request


def fit_requests(prompt: PromptRows, requests: Sequence[Request], reserve: Sequence[int]) -> list[FittedRequest]:
    """One FittedRequest per request, in order, by the protocol's policy (axis ``fit``).

    ``reserve[i]`` input tokens must stay free after the context of request ``i``: the longest continuation minus its
    last token, or the tokens to generate.

    Everything is counted once in one batch, and only what is too long again, with one shot fewer each time.
    ``cut-start`` leaves the context unchanged: the oldest tokens are dropped, and counted, once the texts are tokens.
    """
    policy, limit = prompt.protocol.fit, prompt.limit
    drops = policy.startswith("drop-last-shot")
    fitted = [FittedRequest(request, request.context(), len(request.shots)) for request in requests]
    for index, tokens in enumerate(reserve):
        if tokens >= limit:
            fitted[index] = _missing(requests[index], f"the answer alone takes {tokens} of {limit} tokens")
    uncounted = [] if policy == "cut-start" else [index for index, tokens in enumerate(reserve) if tokens < limit]
    while uncounted:
        contexts = prompt.encodings.contexts([fitted[index].context for index in uncounted])
        counts, uncounted = zip(uncounted, map(len, contexts), strict=True), []
        for index, tokens in counts:
            request, shots, room = requests[index], fitted[index].shots, limit - reserve[index]
            if tokens <= room:
                continue
            if drops and shots:
                dropped = len(request.shots) - shots + 1
                fitted[index] = FittedRequest(request, request.context(shots - 1), shots - 1, dropped)
                uncounted.append(index)
            elif policy == "drop-last-shot-then-cut-end":
                fitted[index] = replace(fitted[index], cut_end=True)
            else:
                without = " without any shot" if drops else ""
                answer = f"{limit} minus {reserve[index]} for the answer"
                fitted[index] = _missing(request, f"{tokens} tokens{without}, {room} fit ({answer})")
    return fitted


def _missing(request: Request, reason: str) -> FittedRequest:
    """Nothing can be asked; the context has all its shots, for whoever reads why."""
    return FittedRequest(request, request.context(), len(request.shots), missing=f"too long: {reason}")
