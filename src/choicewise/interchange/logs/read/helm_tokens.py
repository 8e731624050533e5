"""Which tokens of HELM's completion are the reference: their log-likelihood is the reference's score.

HELM counts the tokens of " " + reference with the model's tokenizer and takes as many from the end of the completion
(BasicReferenceMetric.evaluate_references, basic_metrics.py@63754d0 and @cab5d89).  A log has no tokenizer but the text
of every token, so the tokens are taken that spell the reference; where none begins where it does, nothing is scored.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from math import fsum, inf, isfinite
from typing import Any, Final

from choicewise.interchange.logs.log import LoggedChoice

NO_LIKELIHOOD: Final = "the log has a letter that the model wrote, and no log-likelihoods of the options"
"""Why an option of a joint request has no score."""

_ESCAPED: Final = re.compile(rb"\\x([0-9a-fA-F]{2})")


def token_bytes(text: str) -> bytes:
    r"""The bytes of a token's text; ``bytes:\xe2\x80`` is how HELM writes a part of a character."""
    if text.startswith("bytes:"):
        return _ESCAPED.sub(lambda match: bytes.fromhex(match[1].decode()), text.removeprefix("bytes:").encode())
    return text.encode("utf-8", "replace")


def reference_tokens(texts: Sequence[str], reference: str) -> int | None:
    """How many tokens at the end spell " " + ``reference``, or None where no token begins where it does.

    Tokens that were decoded one by one have lost their spaces (SentencePiece), so where the bytes don't agree those
    that are no white space must, and then the fewest tokens are taken.
    """
    whole = (" " + reference).encode("utf-8", "replace")
    bare = b"".join(whole.split())
    spelled, sparse = b"", None
    for count, text in enumerate(reversed(texts), start=1):
        spelled = token_bytes(text) + spelled
        if spelled == whole:
            return count
        packed = b"".join(spelled.split())
        if packed == bare and sparse is None and bare:
            sparse = count
        if len(packed) > len(bare) or len(spelled) > 4 * len(whole) + 64:
            break
    return sparse


def scored_reference(state: Mapping[str, Any], reference: str) -> LoggedChoice:
    """What a request that echoes its prompt says of the ``reference`` at its end."""
    prompt = str((state.get("request") or {}).get("prompt", ""))
    if not prompt.endswith(reference) or not reference:
        return LoggedChoice(None, missing="the prompt does not end with the reference, so its tokens can't be told")
    space = prompt[: len(prompt) - len(reference)].endswith(" ")
    text = " " * space + reference
    context = prompt[: len(prompt) - len(text)]
    completion, reason = answered(state)
    tokens = [each for each in (completion or {}).get("tokens") or () if isinstance(each, dict)]
    count = reference_tokens([str(token.get("text", "")) for token in tokens], reference)
    if reason is None and not tokens:
        reason = "the log has no tokens of the completion"
    if reason is None and count is None:
        reason = "no token of the completion begins where the reference does"
    if reason is not None or count is None:
        return LoggedChoice(None, text, context, missing=reason)
    scored = tokens[-count:]
    values = [_number(token.get("logprob")) for token in scored]
    if not all(map(isfinite, values)):
        return LoggedChoice(None, text, context, tokens=count, missing="a token's log-probability is no number")
    return LoggedChoice(fsum(values), text, context, tokens=count, greedy=_greedy(scored))


def letter_choices(completion: Mapping[str, Any], letters: Sequence[str]) -> list[LoggedChoice]:
    """What the log-probabilities beside the first written token say of the ``letters``.

    Logs of 2022 and 2023 have the likeliest tokens (five, as a rule).  They are read as " A" or as "A", whichever more
    letters have; a letter that is none of them has no number.
    """
    first = next((each for each in completion.get("tokens") or () if isinstance(each, dict)), {})
    tops = first.get("top_logprobs")
    top = {text: _number(value) for text, value in tops.items()} if isinstance(tops, dict) else {}
    if not top:
        return [LoggedChoice(None, missing=NO_LIKELIHOOD) for _ in letters]
    space = max((" ", ""), key=lambda space: sum(space + letter in top for letter in letters))
    absent = f"it is none of the {len(top)} likeliest tokens, and the log has no others"
    likeliest = max(top, key=lambda text: top[text])
    return [
        LoggedChoice(top[text], text, tokens=1, greedy=text == likeliest)
        if isfinite(top.get(text, -inf))
        else LoggedChoice(None, text, missing=absent)
        for text in (space + letter for letter in letters)
    ]


def answered(state: Mapping[str, Any]) -> tuple[Mapping[str, Any] | None, str | None]:
    """The completion with the greatest log-probability, which is the one HELM judges; or why there is none."""
    result = state.get("result")
    if not isinstance(result, dict):
        return None, "the request was never sent"
    if not result.get("success", True):
        return None, "the request failed; the scenario state says why"  # its message may hold an address with a secret
    completions = [each for each in result.get("completions") or () if isinstance(each, dict)]
    if not completions:
        return None, "the log has no completion"
    return max(completions, key=lambda each: _number(each.get("logprob"))), None


def _number(value: Any) -> float:
    return float(value) if isinstance(value, int | float) and value == value else float("-inf")


def _greedy(tokens: Sequence[Mapping[str, Any]]) -> bool | None:
    """Whether each token was the likeliest, as logs of 2022 and 2023 say in ``top_logprobs``."""
    tops = [top for token in tokens for top in (token.get("top_logprobs"),) if isinstance(top, dict) and top]
    if len(tops) < len(tokens):
        return None
    likeliest = [max(top, key=lambda text: _number(top[text])) for top in tops]
    return likeliest == [token.get("text") for token in tokens]
