"""What became of every answer in text: read, not read, cut, empty, withheld, or never given.

More tokens could change only what was cut.  So where ``u`` of N answers were cut, and ``m`` of the others are right,
the share of right answers without a limit lies between m / N and (m + u) / N.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from choicewise.protocols.protocol import Protocol
from choicewise.questions import EOS, FILTERED, LENGTH
from choicewise.scoring.decide import Decisions
from choicewise.scoring.observed import Floats, Mask
from choicewise.thoughts import answer, split
from choicewise.util.text import percent

Statuses = npt.NDArray[np.int8]
"""A status for each item: a place in :data:`STATUSES`, and ``UNSAID`` more where nobody says how its text ended."""

UNSAID: Final = 8

ANSWERED, UNREAD, CUT_THINKING, CUT_ANSWER, EMPTY, WITHHELD, NEVER = range(7)
STATUSES: Final = ("answered", "unread", "cut_thinking", "cut_answer", "empty", "filtered", "error")
"""By name: a rule reads the answer; it is whole, and no rule reads it; it was cut, in its thought or after; it is whole
and nothing stands in it; a filter withheld it; there is none."""

WHY: Final = (
    *("", ""),
    "cut while thinking: give the thought more tokens, or a limit of its own",
    "cut in the answer: give it more tokens",
    "the answer is empty",
    *("", ""),
)
"""By status: why an item is missing whose text is there."""

WHOLE: Final = ("letter-match", "option-match")
"""Decisions that take the text as it is, with the limit as a part of the recipe: it may end where it likes."""

SETTLED: Final = frozenset(
    {"simple-evals@f517a91", "harness-letter@4e7e0d4", "harness-answer-is@4e7e0d4"}
)
"""Rules that take the first match of one pattern: once they read an answer, more of the answer does not change it.

What they read in a thought is no answer.  So it is settled only if the text is known to begin outside a thought: the
template of a chat server may open one in the prompt, and nobody sees that before the text closes it.
"""


class Written(NamedTuple):
    """A text that a model wrote, its ``answer`` alone (None in a thought that does not end), and how it ended.

    ``finish``: why (:mod:`choicewise.questions`), None where nobody says.  ``thought``: whether there is a thought
    outside the text; ``named``: whether the tokens of the text are known.
    """

    text: str
    answer: str | None
    finish: str | None
    thought: bool = False
    named: bool = False

    @classmethod
    def of(cls, text: str, raw: str | None, opened: str | None, **how: object) -> Written:
        """From an observation: where no special token marks a thought, ``raw`` is None."""
        spelled = text if raw is None else raw
        own = answer(spelled, opened or "")
        return cls(text, text if own == spelled else own, **how)  # type: ignore[arg-type]

    @property
    def closes_thought(self) -> bool:
        """Whether a thought in the text ends before the answer."""
        return self.answer is not None and bool(split(self.text.encode(errors="replace")).thoughts)

    def read(self, cut: str) -> str | None:
        """What a rule reads, by the axis ``cut``: the answer, else all there is, or nothing."""
        return self.text if self.answer is None and cut == "read" else self.answer


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerCounts:
    """How many answers have each status; ``unknown``: of how many nobody says whether they were cut.

    ``limit``: the most tokens that they may have, thought and answer together.
    """

    answered: int
    unread: int
    cut_thinking: int
    cut_answer: int
    empty: int
    filtered: int
    error: int
    unknown: int
    limit: int

    @property
    def cut(self) -> int:
        """How many were cut."""
        return self.cut_thinking + self.cut_answer

    @property
    def share(self) -> float:
        """The share of those that were cut."""
        every = sum(getattr(self, name) for name in STATUSES)
        return self.cut / every if every else 0.0

    def bounds_text(self, low: float, high: float) -> str:
        """How many were cut, and between which values, shares of 1, the score lies; nothing where none was."""
        if not self.cut:
            return ""
        share = f"{100 * self.share:.0f}" if self.share >= 0.02 else percent(self.share)
        after = f" after {self.limit:,} tokens" if self.limit else ""
        return f"{share} % of the answers were cut{after}: the score lies between {percent(low)} and {percent(high)}"


def answer_counts(statuses: Statuses, protocol: Protocol) -> AnswerCounts:
    """The counts of ``statuses`` [items] under ``protocol``."""
    numbers = np.bincount(statuses % UNSAID, minlength=len(STATUSES)).tolist()
    limit = (protocol.new_tokens or 0) + (protocol.thought_tokens or 0)
    return AnswerCounts(
        **dict(zip(STATUSES, numbers, strict=True)),
        unknown=int((statuses >= UNSAID).sum()),
        limit=limit,
    )


def judged(
    protocol: Protocol, written: Sequence[Written | str | None], read: Mask, decisions: Decisions
) -> tuple[Decisions, Statuses]:
    """The status of every item, and ``decisions`` with what texts count that were not answered.

    ``written``: the text of each item, :data:`~choicewise.questions.FILTERED` for one that was withheld, None for none;
    ``read``: whether the rule finds an answer in what it reads.
    """
    rule = _Rule(
        whole=protocol.decision in WHOLE,
        settled=protocol.decision in SETTLED,
        prompt_known=protocol.chat == "none" and protocol.requests is None,
    )
    statuses = np.array(
        [_status(text, bool(is_read), rule) for text, is_read in zip(written, read, strict=True)]
    )
    statuses = statuses.astype(np.int8)
    if protocol.cut == "read":
        return decisions, statuses
    lost = np.isin(statuses % UNSAID, [CUT_THINKING, CUT_ANSWER, EMPTY])
    value = 0.0 if protocol.cut == "wrong" else np.nan
    credit, prediction = (
        np.where(lost, value, decisions.credit),
        np.where(lost, -1, decisions.prediction),
    )
    return replace(decisions, credit=credit, prediction=prediction), statuses


def cut_range(statuses: Statuses, credit: Floats) -> tuple[Floats, Floats]:
    """The least and the greatest credit of every item, [items], whatever stands behind what was cut."""
    cut = is_cut(statuses)
    return np.where(cut, 0.0, credit), np.where(cut, 1.0, credit)


def is_cut(statuses: Statuses) -> Mask:
    """Which items were cut."""
    return np.isin(statuses % UNSAID, [CUT_THINKING, CUT_ANSWER])


class _Rule(NamedTuple):
    """What counts of a protocol: whether its decision is in :data:`WHOLE`, whether in :data:`SETTLED`.

    ``prompt_known``: whether the model got the prompt as it was rendered here, so that no thought was opened unseen.
    """

    whole: bool
    settled: bool
    prompt_known: bool


def _status(written: Written | str | None, is_read: bool, rule: _Rule) -> int:
    if not isinstance(written, Written):
        return WITHHELD if written == FILTERED else NEVER
    status = _status_of_text(written, is_read, rule)
    return status + UNSAID if written.finish is None else status


def _status_of_text(written: Written, is_read: bool, rule: _Rule) -> int:
    if written.answer is None:
        return EMPTY if written.finish == EOS else CUT_THINKING
    is_empty = not written.answer.strip() and not is_read
    is_cut = written.finish == LENGTH and not rule.whole
    if not is_cut:
        if is_empty:
            return EMPTY
        return ANSWERED if is_read else UNREAD
    if is_empty:
        in_answer = written.closes_thought or (written.named and not written.thought)
        return CUT_ANSWER if in_answer else CUT_THINKING
    begins_outside = rule.prompt_known or written.named or written.thought or written.closes_thought
    if is_read and rule.settled and begins_outside:
        return ANSWERED
    return CUT_ANSWER
