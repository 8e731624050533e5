"""Where the scored tokens of a choice are, as far as the end of its context decides it."""

from typing import NamedTuple

from choicewise.questions import Ids


class Located(NamedTuple):
    """How a choice is asked after any context with the same end.

    The tokens before the scored ones are the request's stem (:mod:`choicewise.tokens.tokenized_request`) and
    ``before``: as many of the context's own next tokens, or tokens in their place.  ``continuation``: the scored
    tokens, of no use where ``missing`` says why.  The flags are those of
    :class:`choicewise.tokens.choice_question.ChoiceQuestion` as far as they follow from the end of the context; ``bos``
    counts after the stem.
    """

    before: int | Ids
    continuation: Ids
    merged: bool
    unknown: int = 0
    missing: str | None = None
    noncanonical: bool = False
    lossy: bool = False
    bos: int = 0
