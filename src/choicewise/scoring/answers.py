"""Say for every answer in text if it was read, not read, cut, empty, withheld or never given.

More tokens could change only the answers that were cut.  So if ``u`` of N answers were cut, and
``m`` of the others are right, the share of right answers without a limit lies between m / N and (m
+ u) / N.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from choicewise.protocols.protocol import Protocol
from choicewise.questions import EOS, FILTERED, LENGTH
from choicewise.scoring.decide import Decisions
from choicewise.scoring.observed import Floats, Mask
from choicewise.thoughts import answer, split
from choicewise.util.text import percent

Statuses = npt.NDArray[np.int8]
"""A status for each item: an index of :data:`STATUSES`, plus ``UNSAID`` if its end is unknown."""

UNSAID = 8

ANSWERED, UNREAD, CUT_THINKING, CUT_ANSWER, EMPTY, WITHHELD, NEVER = range(7)
STATUSES = ("answered", "unread", "cut_thinking", "cut_answer", "empty", "filtered", "error")
"""By name.

A rule reads the answer; the answer is whole, but no rule reads it; the text was cut in
its thought, or after it; the text is whole and has no answer; a filter withheld it; there is no
text."""

WHY = (
    "",
    "",
    "cut while thinking: allow more tokens, or limit the thought (thought_tokens)",
    "cut in the answer: allow more tokens",
    "the answer is empty",
    "",
    "",
)
"""By status: why an item with a text is missing."""

WHOLE = ("letter-match", "option-match")
"""Decisions that take the text as it is: the limit is a part of the recipe, so nothing is cut."""

SETTLED = frozenset({"simple-evals@f517a91", "harness-letter@4e7e0d4", "harness-answer-is@4e7e0d4"})
"""Rules that take the first match of one pattern, so that further tokens don't change their answer.

A letter that they read in a thought is no answer.  So the answer is settled only if the text is
known to begin outside a thought: the template of a chat server may open one in the prompt, and
nobody sees that before the text closes it.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """Hold a text that a model wrote, its answer alone, and how it ended.

    ``answer``: None if the text ends inside a thought.  ``finish``: why the text ended
    (:mod:`choicewise.questions`), None if nobody says.  ``thought``: there is a thought outside the
    text.  ``named``: the tokens of the text were recorded.
    """

    text: str
    answer: str | None
    finish: str | None
    thought: bool = False
    named: bool = False

    @classmethod
    def of(
        cls,
        text: str,
        raw: str | None,
        opened: str | None,
        *,
        finish: str | None,
        thought: bool = False,
        named: bool = False,
    ) -> Written:
        """Separate the answer from the thought in an observed text.

        ``raw``: the text with its special tokens, None if none of them marks a thought.
        ``opened``: the mark of a thought that the prompt had opened.
        """
        spelled = text if raw is None else raw
        answer_text = answer(spelled, opened or "")
        # Without a thought to remove, the answer is the text without the special tokens of ``raw``.
        if answer_text == spelled:
            answer_text = text
        return cls(text=text, answer=answer_text, finish=finish, thought=thought, named=named)

    @property
    def closes_thought(self) -> bool:
        """Check if a thought in the text ends before the answer."""
        if self.answer is None:
            return False
        return len(split(self.text.encode(errors="replace")).thoughts) > 0

    def read(self, cut: str) -> str | None:
        """Return the text that a rule reads: the answer, or all of it if ``cut`` is "read"."""
        if self.answer is None and cut == "read":
            return self.text
        return self.answer


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerCounts:
    """Count the answers of each status.

    ``unknown``: answers of which nobody says if they were cut.  ``limit``: the most tokens that
    they may have, thought and answer together; 0 without a limit.
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
        """Count the answers that were cut."""
        return self.cut_thinking + self.cut_answer

    @property
    def share(self) -> float:
        """Return the share of the answers that were cut."""
        whole = self.answered + self.unread + self.empty
        total = whole + self.cut + self.filtered + self.error
        return self.cut / total if total else 0.0

    def bounds_text(self, low: float, high: float) -> str:
        """Say how many were cut, and that the score lies from ``low`` to ``high``; "" if none
        was."""
        if not self.cut:
            return ""
        if self.share >= 0.02:
            share = f"{100 * self.share:.0f}"
        else:
            share = percent(self.share)
        after = f" after {self.limit:,} tokens" if self.limit else ""
        between = f"between {percent(low)} and {percent(high)}"
        return f"{share} % of the answers were cut{after}: the score lies {between}"


def answer_counts(statuses: Statuses, protocol: Protocol) -> AnswerCounts:
    """Count ``statuses`` [items] under ``protocol``."""
    counts = np.bincount(statuses % UNSAID, minlength=len(STATUSES)).tolist()
    return AnswerCounts(
        answered=counts[ANSWERED],
        unread=counts[UNREAD],
        cut_thinking=counts[CUT_THINKING],
        cut_answer=counts[CUT_ANSWER],
        empty=counts[EMPTY],
        filtered=counts[WITHHELD],
        error=counts[NEVER],
        unknown=int((statuses >= UNSAID).sum()),
        limit=(protocol.new_tokens or 0) + (protocol.thought_tokens or 0),
    )


def judged(
    protocol: Protocol, written: Sequence[Written | str | None], read: Mask, decisions: Decisions
) -> tuple[Decisions, Statuses]:
    """Return the status of every item, and ``decisions`` with what cut answers count.

    ``written``: the text of each item, :data:`~choicewise.questions.FILTERED` if it was withheld,
    None if there is none.  ``read``: items in whose text the rule finds an answer, bool [items].
    """
    statuses = np.empty(len(written), dtype=np.int8)
    for item, (text, is_read) in enumerate(zip(written, read.tolist(), strict=True)):
        statuses[item] = _status(text, is_read, protocol)
    if protocol.cut == "read":
        return decisions, statuses
    lost = np.isin(statuses % UNSAID, [CUT_THINKING, CUT_ANSWER, EMPTY])
    value = 0.0 if protocol.cut == "wrong" else np.nan
    credit = np.where(lost, value, decisions.credit)
    prediction = np.where(lost, -1, decisions.prediction)
    return replace(decisions, credit=credit, prediction=prediction), statuses


def cut_range(statuses: Statuses, credit: Floats) -> tuple[Floats, Floats]:
    """Return the least and the greatest credit of every item, [items], if cut answers went on."""
    cut = is_cut(statuses)
    return np.where(cut, 0.0, credit), np.where(cut, 1.0, credit)


def is_cut(statuses: Statuses) -> Mask:
    """Mark the items whose answer was cut."""
    return np.isin(statuses % UNSAID, [CUT_THINKING, CUT_ANSWER])


def _status(written: Written | str | None, is_read: bool, protocol: Protocol) -> int:
    if not isinstance(written, Written):
        return WITHHELD if written == FILTERED else NEVER
    if written.answer is None:
        status = EMPTY if written.finish == EOS else CUT_THINKING
    elif written.finish == LENGTH and protocol.decision not in WHOLE:
        status = _status_at_limit(written, written.answer, is_read, protocol)
    elif is_read:
        status = ANSWERED
    elif written.answer.strip():
        status = UNREAD
    else:
        status = EMPTY
    if written.finish is None:
        status += UNSAID
    return status


def _status_at_limit(written: Written, answer_text: str, is_read: bool, protocol: Protocol) -> int:
    """Return the status of a text that reached its limit of tokens."""
    closes_thought = written.closes_thought
    if not is_read and not answer_text.strip():
        # Nothing but white space behind a thought: the thought was over when the text was cut.
        in_answer = closes_thought or (written.named and not written.thought)
        return CUT_ANSWER if in_answer else CUT_THINKING
    # A prompt that was sent as it was rendered here opened no thought unseen.
    is_prompt_known = protocol.chat == "none" and protocol.requests is None
    begins_outside = is_prompt_known or written.named or written.thought or closes_thought
    if is_read and protocol.decision in SETTLED and begins_outside:
        return ANSWERED
    return CUT_ANSWER
