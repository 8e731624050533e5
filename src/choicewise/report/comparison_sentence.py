"""The verdict of a comparison in one sentence, first of all that is said about it."""

import math

from choicewise.report.table import percent
from choicewise.report.words import count, probability
from choicewise.results.comparison import Comparison

LEVEL = 0.05
"""p below which a difference is told from none; the test is named where p stands."""


def comparison_sentence(compared: Comparison) -> str:
    """Whether A and B can be compared, which of them scores more, and whether these items can tell them apart."""
    difference = compared.difference
    if math.isnan(difference.value):
        return "A and B can't be compared: no item was scored on both sides."
    on = f"on {count(difference.n, 'item')}"
    points = f"{percent(abs(difference.value))} points"
    if not compared.left.share:
        points = f"{abs(difference.value):.2f} nats of log-likelihood"
    higher, lower = ("A", "B") if difference.value > 0 else ("B", "A")
    scores = f"{higher} scores {points} more than {lower} {on}" if difference.value else f"A and B score the same {on}"
    if compared.verdict == "same measurement":
        return f"A and B are the same measurement: {scores}."
    if compared.verdict != "comparable":
        inputs = "right answers" if compared.agree.t else "prompts"
        reason = "protocols" if compared.verdict == "not comparable" else inputs
        if compared.agree.r:
            return f"{scores}: the model is the same, their {reason} differ."
        return f"{scores}, which says nothing about the models alone: their {reason} differ."
    if not difference.value:
        return f"{scores}."
    if compared.test.p < LEVEL:
        return f"{higher} is better than {lower} by {points} {on} ({probability(compared.test.p)})."
    return f"These items can't tell A and B apart: {scores} ({probability(compared.test.p)})."
