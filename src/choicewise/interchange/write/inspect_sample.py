"""An item under a protocol as a sample of an Inspect log."""

from __future__ import annotations

import hashlib
import math
from typing import TYPE_CHECKING, Any

from choicewise.interchange.answered import AnsweredItem
from choicewise.interchange.write.markdown import escape
from choicewise.results.measurement import Measurement

if TYPE_CHECKING:
    from inspect_ai.log import EvalSample

SCORER = "choicewise"
"""The name of the only scorer of every log, so that data frames of several logs have one column of scores."""


def sample(item: AnsweredItem, measured: Measurement, model: str, log: str) -> EvalSample:
    """``item`` under the protocol of ``measured``, of the log with that id.

    ``input`` is the question as the data have it, ``messages`` the prompt as it was sent and ``output``: what the
    protocol chose or the model wrote.  The score's value is the item's credit, NaN where it is missing.
    """
    from inspect_ai.log import EvalSample
    from inspect_ai.model import ChatMessageUser, ModelOutput

    scores = measured.known_scores
    own = None if scores is None else scores[item.row : item.row + len(item)].tolist()
    chosen = int(measured.prediction[item.place])
    written = item.generated if item.generated is not None else _written(item, chosen)
    several = len(item) > 1
    output = ModelOutput.from_content(model, written)
    sent = [] if item.context is None else [ChatMessageUser(content=item.context, id="prompt"), output.message]
    output.message.id = "output"
    targets = [letter(place) if several else item.choices[place].choice for place in item.gold]
    return EvalSample(
        id=item.id,
        epoch=1,
        uuid=hashlib.sha256(f"{log} {item.id}".encode()).hexdigest()[:22],
        input=item.question or item.context or "",
        choices=[each.choice if each.shown is None else each.shown for each in item.choices] if several else None,
        target=targets[0] if len(targets) == 1 else targets,
        messages=sent,
        output=output,
        scores={SCORER: _score(item, measured, own, chosen)},
        metadata={"subject": item.subject, "split": item.split, **_observed(item, own)},
    )


def letter(place: int) -> str:
    """What Inspect calls a choice: A to Z, then 1, 2, ..."""
    return chr(ord("A") + place) if place < 26 else str(place - 25)


def _score(item: AnsweredItem, measured: Measurement, own: list[float] | None, chosen: int) -> Any:
    from inspect_ai.scorer import Score

    credit = float(measured.credit[item.place])
    answer = None if chosen < 0 else letter(chosen) if len(item) > 1 else _written(item, chosen)
    facts = {"tied": bool(measured.decisions.tied[item.place])}
    if math.isnan(credit):
        why = item.missing or measured.unlisted_reason(item.place)
        why = why or f"nothing was observed that gives a number for score {measured.protocol.score}"
        return Score.unscored(reason="missing", answer=answer, explanation=escape(why), metadata=facts)
    return Score(value=credit, answer=answer, explanation=_explanation(item, own, chosen), metadata=facts)


def _observed(item: AnsweredItem, own: list[float] | None) -> dict[str, Any]:
    """What was observed, a list with an entry per choice each; null where there is nothing."""
    lists: dict[str, list[Any]] = {
        "scores": [] if own is None else [_number(score) for score in own],
        "loglikelihoods": [_number(each.loglikelihood) for each in item.choices],
        "tokens": [each.tokens for each in item.choices],
        "is_greedy": [each.greedy for each in item.choices],
        "continuations": [each.continuation for each in item.choices],
        "contexts": [each.context for each in item.choices if each.context != item.context],
    }
    return {name: values for name, values in lists.items() if any(value is not None for value in values)}


def _explanation(item: AnsweredItem, own: list[float] | None, chosen: int) -> str:
    """The choices as a table in Markdown, which Inspect View shows."""
    if own is None:
        return f"the text was read as {letter(chosen)}" if chosen >= 0 else "the text names no option"
    lines = ["| | choice | log-likelihood | score | |", "| :-- | :-- | --: | --: | :-- |"]
    for place, (each, score) in enumerate(zip(item.choices, own, strict=True)):
        words = ", ".join(["right"] * (place in item.gold) + ["chosen"] * (place == chosen))
        numbers = " | ".join("–" if math.isnan(number) else f"{number:.4f}" for number in (each.loglikelihood, score))
        lines.append(f"| {letter(place)} | {escape(each.shown or each.choice)} | {numbers} | {words} |")
    return "\n".join(lines)


def _written(item: AnsweredItem, chosen: int) -> str:
    if chosen < 0:
        return ""
    choice = item.choices[chosen]
    return choice.choice if choice.continuation is None else choice.continuation


def _number(value: float) -> float | None:
    return value if math.isfinite(value) else None
