"""Items in full as plain data: prompts, scored tokens, every protocol's scores and choice; texts stand there once."""

import math
from collections.abc import Sequence
from typing import Any

from choicewise.report.visible_text import disarmed
from choicewise.results.explanation import AskedPrompt, Explanation, ItemDecision, ScoredContinuation
from choicewise.web.shown_text import shown, shown_line

LONGEST = 20_000
"""Characters of one text that a page shows; of a longer one it says how much is left out."""

MOST_TOKENS = 200
"""Tokens of one continuation that a page shows."""

NO_TEXT = "(the log has no text of it)"
"""Of a continuation in another tool's log."""


class Texts:
    """Texts of prompts in pieces, each piece once: the shots of an item are those of most of its subject."""

    def __init__(self) -> None:
        self.pieces: list[str] = []
        self._places: dict[str, int] = {}

    def add(self, text: str) -> list[int]:
        """The places of the pieces of ``text``, whose white space is made visible."""
        whole = shown(text[:LONGEST])
        if len(text) > LONGEST:
            whole += f"\n… {len(text) - LONGEST:,} more characters"
        places = []
        for piece in _pieces(whole):
            if piece not in self._places:
                self._places[piece] = len(self.pieces)
                self.pieces.append(piece)
            places.append(self._places[piece])
        return places


def item_detail(explained: Sequence[tuple[int, Explanation]], protocols: Sequence[str], texts: Texts) -> dict[str, Any]:
    """One item as ``explained`` by one or several runs, each with its place on the page.

    ``protocols``: all names on the page; the data name them by their places.  Others are left out: their numbers are
    no shares of 1.
    """
    number = {name: place for place, name in enumerate(protocols)}
    first = explained[0][1]
    return {
        "id": disarmed(first.item),
        "subject": disarmed(first.subject),
        "question": shown(first.question[:LONGEST]),
        "choices": [shown_line(choice[:LONGEST]) for choice in first.choices],
        "gold": first.gold,
        "runs": {
            str(place): {
                "asked": [_asked(each, number, texts) for each in explanation.asked],
                "decided": [_decided(each, number) for each in explanation.decided if each.protocol in number],
            }
            for place, explanation in explained
        },
    }


def _pieces(text: str) -> list[str]:
    """The paragraphs of ``text``, each with the empty lines after it; together they are the text."""
    parts = text.split("⏎\n⏎\n")
    return [f"{part}⏎\n⏎\n" for part in parts[:-1]] + parts[-1:]


def _asked(asked: AskedPrompt, number: dict[str, int], texts: Texts) -> dict[str, Any]:
    notes = {
        f"{asked.shots} shots": asked.shots is not None,
        f"{asked.shots_dropped} more dropped to fit": asked.shots_dropped,
        f"{asked.tokens_dropped} tokens cut off": asked.tokens_dropped,
        "rescored in float32": asked.rescored,
        disarmed(f"not shown: {', '.join(asked.unused)}"): asked.unused,
        disarmed(f"not asked: {asked.missing}"): asked.missing is not None,
    }
    return {
        "protocols": [number[name] for name in asked.protocols if name in number],
        "how": f"{asked.reading}, boundary {asked.boundary}",
        "notes": [words for words, true in notes.items() if true],
        "context": None if asked.context is None else texts.add(asked.context),
        "scored": [_scored(each, texts) for alike in asked.beside for each in alike],
    }


def _scored(scored: ScoredContinuation, texts: Texts) -> dict[str, Any]:
    doubts = {
        "a token straddles the end of the context": scored.merged,
        "not the tokens of the whole text encoded at once": scored.noncanonical,
        "the tokens do not spell their text": scored.lossy,
        f"{scored.unknown} unknown tokens": scored.unknown,
        f"{scored.bos} BOS tokens": scored.bos > 1,
        f"{scored.tokens_dropped} tokens of the context cut off": scored.tokens_dropped,
        disarmed(f"missing: {scored.missing}"): scored.missing,
        "no more than an upper bound is known": scored.at_most,
        f"{len(scored.tokens) - MOST_TOKENS} more tokens": len(scored.tokens) > MOST_TOKENS,
    }
    text = scored.continuation if scored.generated is None else scored.generated
    text = NO_TEXT if text is None else text
    about: dict[str, Any] = {
        "choice": -1 if scored.generated is not None else scored.choice,
        "text": shown_line(text[:LONGEST]),
        "total": _rounded(scored.total),
        "tokens": [[shown_line(token.text), _rounded(token.logprob)] for token in scored.tokens[:MOST_TOKENS]],
    }
    further = {
        "part": scored.part or None,
        "null": None if scored.null is None else shown_line(scored.null),
        "context": None if scored.context is None else texts.add(scored.context),
        "value": _rounded(scored.value),
        "most": scored.at_most or None,
        "before": _rounded(scored.before),
        "after": _rounded(scored.after),
        "doubts": [words for words, true in doubts.items() if true] or None,
    }
    return about | {name: value for name, value in further.items() if value is not None}


def _decided(decided: ItemDecision, number: dict[str, int]) -> list[Any]:
    """Protocol, predicted choice, credit, 2 for a tie and 1 for a near tie, the scores in three digits.

    And, where some of these are upper bounds, 1 for each that is.
    """
    tie = 2 if decided.tied else 1 if decided.near_tie else 0
    scores = None if decided.scores is None else [_rounded(score) for score in decided.scores]
    about = [number[decided.protocol], decided.prediction, _rounded(decided.credit), tie, scores]
    return [*about, [int(bound) for bound in decided.at_most]] if any(decided.at_most) else about


def _rounded(value: float | None) -> float | None:
    return None if value is None or not math.isfinite(value) else float(f"{value:.3g}")
