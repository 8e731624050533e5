"""Whether a model finds a true ending likelier than a silly one: what any model of English does."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from choicewise.models.model import Model
from choicewise.questions import Span
from choicewise.tokens.tokenizer import common_prefix

TEXT: Final = "The capital of France is"
ENDINGS: Final = (" Paris", " banana")
"""The true one, and the silly one."""


@dataclass(frozen=True, slots=True)
class Plausible:
    """The log-probability (nats) of each of ``ENDINGS`` after ``TEXT``, and whether it is an upper bound.

    ``objection``: why they are not known; then both are None.
    """

    true: float | None = None
    silly: float | None = None
    true_at_most: bool = False
    silly_at_most: bool = False
    objection: str = ""

    @property
    def text(self) -> str:
        """The same in words."""
        if self.true is None or self.silly is None:
            return f"can't be asked: {self.objection}"
        true, silly = (
            f"{'at most ' if bound else ''}{nats:.2f}"
            for nats, bound in ((self.true, self.true_at_most), (self.silly, self.silly_at_most))
        )
        said = f"after {TEXT!r}, {ENDINGS[0]!r} has {true} nats and {ENDINGS[1]!r} {silly}"
        if self.true > self.silly and not self.true_at_most:
            return f"{said}: the true ending is likelier"
        if self.true_at_most:
            return f"{said}: which is likelier is not known"
        return f"{said}: the true ending is not likelier; doubt the model, unless it knows no English"


def plausible(model: Model) -> Plausible:
    """Ask ``model`` for both; raises ModelError where its server fails."""
    objection = ""
    for special in (True, False):
        alone, *wholes = model.tokenizer.encode([TEXT, *(TEXT + ending for ending in ENDINGS)], special=special)
        begins = common_prefix([alone, *wholes])
        spans = [Span(whole[:begins], whole[begins:]) for whole in wholes]
        objections = [_objection(model, span) for span in spans]
        objection = next(filter(None, objections), "")
        if not objection:
            answers = dict(model.answer(spans))
            reasons = [answers[place].missing for place in range(2)]
            if objection := next(filter(None, reasons), ""):
                continue
            true, silly = (float(answers[place].logprobs.sum(dtype="float64")) for place in range(2))
            return Plausible(true, silly, bool(answers[0].at_most), bool(answers[1].at_most))
    return Plausible(objection=objection)


def _objection(model: Model, span: Span) -> str | None:
    if Span not in model.supports:
        return "the model gives no log-probabilities of texts"
    if not len(span.context):
        return "the tokenizer puts nothing before the endings"
    return model.objection(span)
