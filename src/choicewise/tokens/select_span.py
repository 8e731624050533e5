"""The tokens of a continuation as the ``select`` of SGLang's front end chooses them (reading ``select``).

It asks the server for the log-probabilities of ``prompt + choice`` from the prompt's last token on, in case that token
changed with what follows ("token healing"), and subtracts that token again where the prompt's text ends with the
token's text (sglang 0.4.2, ``lang/backend/runtime_endpoint.py``, ``RuntimeEndpoint.select``).
"""

from choicewise.questions import Span
from choicewise.tokens.choice_question import ChoiceQuestion
from choicewise.tokens.encodings import Encodings
from choicewise.tokens.tokenizer import common_prefix, count


def select_spans(encodings: Encodings, context: str, continuation: str, gold: bool | None) -> ChoiceQuestion:
    """The tokens that ``select`` scores; as ``parts`` the token that it subtracts, and those after the first alone.

    The text of a token is what it decodes to by itself, so one that holds a part of a character is never subtracted,
    and one that changed but still ends the prompt is.  The server gives no number for the first token of a sequence, so
    of a prompt of two tokens the last is scored.  Missing where ``select`` stops: no token of the choice remains, or
    it would subtract the first token of the sequence.
    """
    tokenizer = encodings.tokenizer
    if not continuation:
        return ChoiceQuestion(None, missing="continuation '' leaves select no token to score")
    prompt, joined = encodings.contexts([context, context + continuation])
    last = len(prompt) - 1 if len(prompt) > 2 else 0
    healed = joined[last : last + 1]
    by_itself = tokenizer.decode(healed).removeprefix(" " if encodings.has_dummy_space else "")
    ends = any(tokenizer.token_bytes[token] for token in healed)  # a BOS is text to the server, but not to a prompt
    ends = ends and context.endswith(by_itself)
    if ends and not last:
        missing = f"the prompt {context!r} is too short for select, which goes back two tokens"
        return ChoiceQuestion(None, missing=missing)
    first, removed = (last + 1, Span(joined[:last], healed)) if ends else (max(last, 1), None)
    scored, merged = joined[first:], common_prefix([prompt, joined]) < len(prompt)
    if not len(scored):
        return ChoiceQuestion(None, merged, missing=f"continuation {continuation!r} leaves select no token to score")
    alone = Span(scored[:1], scored[1:]) if len(scored) > 1 else None
    return ChoiceQuestion(
        Span(joined[:first], scored, gold),
        merged,
        count(scored, tokenizer.unknown_id),
        bos=count(joined, tokenizer.bos_id),
        parts=(removed, alone),
    )
