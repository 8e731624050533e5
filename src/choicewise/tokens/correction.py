"""What corrects the tokens of a choice to the probability of its text, or of its words.

All three policies start from the tokens ``t`` that the texts of a request share (``lcp``), and from the end of the
context that is not among them: the bytes ``r``, none where no token straddles the end of the context.  They need to
know which bytes are scored, so a choice whose tokens do not spell its text is missing under them.  Formulae:
``docs/design/boundaries.md``.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import takewhile

import numpy as np

from choicewise.errors import ModelError
from choicewise.questions import Ids, Mass, Span
from choicewise.tokens.byte_probability import LIMIT, ByteProbability, Spelling, count_spellings
from choicewise.tokens.choice_question import ChoiceQuestion
from choicewise.tokens.tokenized_request import TokenizedRequest
from choicewise.tokens.vocabulary import Vocabulary


def correct(policy: str, request: TokenizedRequest, index: int, question: ChoiceQuestion) -> ChoiceQuestion:
    """How choice ``index`` is asked under ``policy``, from its ``question`` under ``lcp``."""
    if not isinstance(question.span, Span):
        return question
    choice = request.choices[index]
    if question.unknown or (end := request.context_end(index)) is None:
        reason = f"the tokens of continuation {choice!r} do not spell its text, which boundary:{policy} needs"
        return question.refused(reason)
    return CORRECTIONS[policy](request, choice, end, question, question.span)


def _heal(request: TokenizedRequest, _: str, end: bytes, question: ChoiceQuestion, span: Span) -> ChoiceQuestion:
    after_shared = [tokens[request.shared :] for tokens in (request.context, *request.joined)]
    if not len(after_shared[0]) or not end:
        return question
    words = request.vocabulary
    spellings = dict.fromkeys(start for tokens in after_shared for start in _beginnings(words, tokens, end))
    return replace(question, before=ByteProbability(span.context, end, (0, len(end)), words, tuple(spellings)))


def _beginnings(words: Vocabulary, tokens: Ids, text: bytes) -> Iterator[Spelling]:
    """The beginnings of ``tokens`` that spell a beginning of ``text``, but not all of it."""
    starts = (tuple(tokens[:length].tolist()) for length in range(len(tokens)))
    return takewhile(lambda start: (spelled := words.spelled(start)) != text and text.startswith(spelled), starts)


def _word(request: TokenizedRequest, choice: str, _: bytes, question: ChoiceQuestion, span: Span) -> ChoiceQuestion:
    words = request.vocabulary
    if not words.marks_words:
        raise ModelError(
            "the tokens of this model do not mark where words begin, which boundary:word needs; "
            "use boundary:bytes, or boundary:lcp where they mark where words end"
        )
    last, first = words.spelled(span.context[-1:].tolist()), words.spelled(span.continuation[:1].tolist())
    if first[:1].isspace():
        begins = words.spaced
    elif not last or last[-1:].isspace():
        begins = words.unspaced
    else:
        return question.refused(f"no word begins where continuation {choice!r} does, as boundary:word needs")
    ended = words.spelled(span.continuation[-1:].tolist())[-1:].isspace()
    tokens = np.concatenate([span.context, span.continuation])
    after = None if ended else Mass(tokens, words.spaced, span.gold)
    return replace(question, before=Mass(span.context, begins), after=after)


def _bytes(request: TokenizedRequest, choice: str, end: bytes, question: ChoiceQuestion, span: Span) -> ChoiceQuestion:
    text = end + choice.encode()
    if (ways := count_spellings(request.vocabulary, text)) > LIMIT:
        return question.refused(
            f"the {len(text)} bytes scored with continuation {choice!r} can be spelled in {ways} ways, "
            f"more than the {LIMIT} that boundary:bytes takes; use boundary:heal or a shorter continuation"
        )
    offsets = tuple(range(len(end), len(text) + 1))
    return replace(question, span=ByteProbability(span.context, text, offsets, request.vocabulary, gold=span.gold))


Correction = Callable[[TokenizedRequest, str, bytes, ChoiceQuestion, Span], ChoiceQuestion]
"""From a request, a choice, the end of the context that is not shared, and the choice's question under ``lcp``."""

CORRECTIONS: dict[str, Correction] = {"heal": _heal, "word": _word, "bytes": _bytes}
