"""What corrects the tokens of a choice to the probability of its text, or of its words.

All three policies start from the tokens ``t`` that the texts of a request share (``lcp``), and from what those tokens
leave of the context: the bytes ``r``, nothing where no token straddles its end.  They need to know which bytes are
scored, so a choice whose tokens do not spell its text is missing under them.  Formulae: ``docs/design/boundaries.md``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from choicewise.errors import ModelError
from choicewise.questions.mass import Mass
from choicewise.questions.span import Ids, Span
from choicewise.tokens.byte_probability import LIMIT, ByteProbability, Spelling, count_paths
from choicewise.tokens.choice_question import ChoiceQuestion
from choicewise.tokens.vocabulary import Vocabulary


@dataclass(frozen=True, slots=True)
class Backed:
    """A request from its shared tokens on.

    ``tails``: the tokens of every whole text after the shared ones; ``own``: those of the context alone.
    """

    vocabulary: Vocabulary
    context: str
    choices: Sequence[str]
    own: Ids
    tails: Sequence[Ids]

    def rest(self, index: int) -> bytes | None:
        """What the shared tokens leave of the context before a choice; None where the tokens lose text."""
        spelled = self.vocabulary.spelled(self.tails[index].tolist())
        choice, context = self.choices[index].encode(), self.context.encode()
        if not spelled.endswith(choice):
            return None
        rest = spelled[: len(spelled) - len(choice)]
        # a tokenizer that puts a dummy space in front of every text does so where the whole text is scored
        return rest if context.endswith(rest) or rest == b" " + context else None


def correct(policy: str, backed: Backed, asked: Sequence[ChoiceQuestion]) -> list[ChoiceQuestion]:
    """The choices of a request, asked by ``lcp``, as they are asked under ``policy``."""
    found = []
    for index, choice in enumerate(asked):
        if not isinstance(choice.span, Span):
            found.append(choice)
        elif choice.unknown or (rest := backed.rest(index)) is None:
            reason = f"the tokens of continuation {backed.choices[index]!r} do not spell its text"
            found.append(choice.refused(f"{reason}, which boundary:{policy} needs"))
        else:
            found.append(CORRECTIONS[policy](backed, index, rest, choice, choice.span))
    return found


def _heal(backed: Backed, index: int, rest: bytes, asked: ChoiceQuestion, span: Span) -> ChoiceQuestion:
    if not len(backed.own) or not rest:
        return asked
    known = dict.fromkeys(path for tail in (backed.own, *backed.tails) for path in _within(backed, tail, rest))
    return replace(asked, before=ByteProbability(span.context, rest, (0, len(rest)), backed.vocabulary, tuple(known)))


def _within(backed: Backed, tail: Ids, rest: bytes) -> list[Spelling]:
    """The beginnings of ``tail`` that spell less than ``rest``, and nothing else."""
    found: list[Spelling] = []
    spelled = b""
    for count, token in enumerate(tail.tolist()):
        if not (rest.startswith(spelled) and len(spelled) < len(rest)):
            break
        found.append(tuple(tail[:count].tolist()))
        spelled += backed.vocabulary.spelled([token])
    return found


def _word(backed: Backed, index: int, rest: bytes, asked: ChoiceQuestion, span: Span) -> ChoiceQuestion:
    words = backed.vocabulary
    if not words.marks_words:
        raise ModelError(
            "the tokens of this model do not mark where words begin, which boundary:word needs; "
            "use boundary:bytes, or boundary:lcp where they mark where words end"
        )
    last, first = words.spelled(span.context[-1:].tolist()), words.spelled(span.continuation[:1].tolist())
    if first[:1].isspace():
        before = words.starting
    elif not last or last[-1:].isspace():
        before = words.bare
    else:
        return asked.refused(
            f"no word begins where continuation {backed.choices[index]!r} does, as boundary:word needs"
        )
    ended = words.spelled(span.continuation[-1:].tolist())[-1:].isspace()
    whole = np.concatenate([span.context, span.continuation])
    return replace(
        asked,
        before=Mass(span.context, before),
        after=None if ended else Mass(whole, words.starting, span.gold),
    )


def _bytes(backed: Backed, index: int, rest: bytes, asked: ChoiceQuestion, span: Span) -> ChoiceQuestion:
    text = rest + backed.choices[index].encode()
    if len(text) == len(rest):
        return asked.refused("the continuation is empty")
    if (count := count_paths(backed.vocabulary, text)) > LIMIT:
        return asked.refused(
            f"the {len(text)} bytes scored with continuation {backed.choices[index]!r} can be spelled in {count} ways, "
            f"more than the {LIMIT} that boundary:bytes takes; use boundary:heal or a shorter continuation"
        )
    cuts = tuple(range(len(rest), len(text) + 1))
    return replace(asked, span=ByteProbability(span.context, text, cuts, backed.vocabulary, gold=span.gold))


CORRECTIONS: dict[str, Callable[[Backed, int, bytes, ChoiceQuestion, Span], ChoiceQuestion]] = {
    "heal": _heal,
    "word": _word,
    "bytes": _bytes,
}
