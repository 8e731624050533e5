"""Section D in words: two models compared."""

import math
from typing import Any

from choicewise.report.table import percent
from choicewise.report.words import probability
from choicewise.web import number
from choicewise.web.pairs import LEVEL, Contest, Pair
from choicewise.web.study import Study

COLUMNS = (
    ("protocol", ""),
    ("A − B", "number"),
    ("95 % interval", "number"),
    ("exact p", "number"),
    ("only A right", "number"),
    ("only B right", "number"),
    ("could show", "number"),
    ("items", "number"),
    ("", ""),
)


def pair_data(study: Study, pair: Pair) -> dict[str, Any]:
    """What the page says and shows of a pair."""
    one, other = study.runs[pair.left], study.runs[pair.right]
    if pair.reason:
        return {"said": f"Not comparable: {pair.reason}.", "rows": []}
    left, right = pair.ahead
    fair = [each.difference.value for each in pair.contests if not each.other_texts]
    known = [value for value in fair if not math.isnan(value)]
    apart = len(pair.contests) - len(fair)
    said = (
        f"{number.shortened(one.label)} (A) is ahead of {number.shortened(other.label)} (B) under "
        f"{sum(value > 0 for value in known)} of {number.count(len(known), 'protocol')}, behind under "
        f"{sum(value < 0 for value in known)}, level under {sum(value == 0 for value in known)}. "
        f"Significant by the sign-flip test, after Holm's correction for {number.count(pair.tests, 'test')} at 5 %: "
        f"A is better under {left}, B under {right}; the others can't tell them apart."
    )
    if apart:
        said += f" Not comparable under {number.count(apart, 'protocol')}: other texts were sent."
    return {"said": said, "rows": [_cells(each) for each in pair.contests]}


def _cells(contest: Contest) -> list[str]:
    difference, test = contest.difference, contest.test
    low, high = number.points(difference.ci_low), number.points(difference.ci_high)
    words = ["not comparable: other texts were sent"] if contest.other_texts else []
    words += ["in the normal limit"] if not test.exact else []
    words += ["A is better" if difference.value > 0 else "B is better"] if contest.p_holm <= LEVEL else []
    return [
        contest.protocol,
        number.points(difference.value),
        "-" if math.isnan(difference.ci_low) else f"{low} to {high}",
        probability(test.p),
        f"{test.left_only:,}",
        f"{test.right_only:,}",
        percent(contest.detectable),
        f"{difference.n:,}",
        ", ".join(words),
    ]
