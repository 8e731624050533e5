"""What published boards of decision models would say of a run: the same answers under each board's own rules.

Boards take accuracy, divergence, Brier score and calibration error of one set of answers in different ways, and mostly
do not say so.  A rule here is what a board states, or what its code does; where it says nothing, :attr:`Board.unsaid`
says what was taken for it.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from typing import Any, Final, Literal, NamedTuple

import numpy as np

from choicewise.errors import UsageError
from choicewise.extensions.endpoints.decisions.minus_own import option_probabilities, own_layouts
from choicewise.protocols.preparations import change_of
from choicewise.results.measurement import Measurement, human_counts
from choicewise.results.run import Run
from choicewise.results.tables import read_item_rows
from choicewise.scoring.observed import Floats
from choicewise.scoring.probabilities import bins_of


@dataclass(frozen=True, slots=True)
class Board:
    """The rules of one board.

    ``top``: which of several highest options is the answer: the ``first`` in the order of the data (of yes and no: no),
    or the ``smallest`` name (of yes and no: yes, from one half on).  ``credit``: 1 for the ``label`` alone, for any
    highest option of the soft answer (``gold-ties``), or the label's part of all highest options (``split``).
    ``soft``: whether divergence and Brier score are against soft answers: Σ g ln(g / max(p, floor)), Σ (p - g)²; else
    against the label: -ln max(p, floor), Σ (p - [label])².  ``normalised``: whether p is divided by its sum before.
    ``yes``: whether a yes-or-no question has one probability, that of yes: half the Brier score, and bins of it.
    ``bins``: of equal width, closed to the left.  ``error``: of calibration, over all questions that are ``pooled``, as
    a mean over the data's questions (``per-question``), or ``unweighted``: Σ |confidence - accuracy| of bins / items,
    which is a mistake.  ``kinds``: whether all kinds of question make one number.  ``lost``: whether a question without
    an answer counts as wrong.  ``unsaid``: what the source leaves open.
    """

    name: str
    source: str
    top: Literal["first", "smallest"] = "first"
    credit: Literal["label", "gold-ties", "split"] = "label"
    soft: bool = True
    floor: float = 1e-12
    normalised: bool = False
    yes: bool = False
    bins: int = 10
    error: Literal["pooled", "per-question", "unweighted"] = "pooled"
    kinds: bool = True
    lost: bool = False
    unsaid: str = ""


BOARDS: Final = (
    Board(
        "typed-decisions card",
        "LocalLLaMA/typed-decisions, card",
        error="per-question",
        unsaid="ties, floor and bins; .169 for its uniform row is nearest to a mean over questions",
    ),
    Board(
        "discussion 37",
        "LocalLLaMA/typed-decisions, discussion 37",
        credit="gold-ties",
        floor=1e-9,
        unsaid="bins",
    ),
    Board("SafeDecide", "LocalLLaMA/typed-decisions, discussion 39", bins=15, unsaid="floor; both tie rules are given"),
    Board(
        "EvalScope 1.14.1",
        "evalscope 1.14.1, metrics/decision.py",
        top="smallest",
        soft=False,
        normalised=True,
        yes=True,
        kinds=False,
    ),
    Board(
        "OpenDecisions",
        "evalscope 1.14.1, open_decisions, of jgeuter/OpenDecisions",
        top="smallest",
        soft=False,
        normalised=True,
        yes=True,
        kinds=False,
        lost=True,
    ),
    Board(
        "sysone-bench",
        "instax-dutta/sysone-bench at 1d746be, benchmark/metrics.py",
        soft=False,
        error="unweighted",
        unsaid="floor",
    ),
)
"""Every board whose rules are known, the one that the others are probabilities apart from first."""

NUMBERS: Final = ("accuracy", "divergence", "brier", "ece")


class Question(NamedTuple):
    """A question with an answer: ``probabilities``, p of every option, as the model or endpoint says it; NaN for none.

    ``soft``: a share per option, None where the data has none.  ``about``: the question that the data repeats over
    states; None where it does not say.
    """

    kind: str
    names: tuple[str, ...]
    probabilities: Sequence[float]
    label: int
    soft: Sequence[float] | None
    about: str | None


@dataclass(frozen=True, slots=True)
class BoardNumbers:
    """What a board says of ``n`` questions, of which ``missing`` have no answer.

    ``accuracy`` is a share of 1, ``divergence`` in nats; NaN where the data lacks what it needs.  ``even``: the same
    four numbers of a predictor that holds all options equally likely, by name.  ``reasons``: why its numbers differ
    from those of the first of :data:`BOARDS`, one a rule that moves any of them here.
    """

    board: str
    n: int
    missing: int
    accuracy: float
    divergence: float
    brier: float
    ece: float
    even: Mapping[str, float]
    reasons: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class BoardReport:
    """Numbers of the same questions: of one ``kind`` and number of ``options``, or of all kinds (None) together.

    ``layout``: the entry of the protocols.  All kinds stand together only for boards that pool them.
    """

    layout: str
    kind: str | None
    options: int | None
    boards: tuple[BoardNumbers, ...]

    def as_json(self) -> dict[str, Any]:
        """What a report in JSON holds of it."""
        return asdict(self)


def board_reports(run: Run) -> list[BoardReport]:
    """Of every layout of typed questions in ``run``: each kind and number of options, then all kinds together.

    Raises UsageError where no protocol of the run asks typed questions and has probabilities.
    """
    layouts: dict[str, list[Question]] = {}
    known = set[tuple[str, ...]]()
    for name, measured in own_layouts(run.measurements).items():
        axes = measured.protocol
        same = axes.prompt_digest, axes.score, axes.calibration, axes.temperature  # whatever the metric
        changed = bool(change_of(axes.prepare))  # other options than the data's, which boards have no rules for
        if axes.kind != "any" and measured.scores is not None and same not in known and not changed:
            known.add(same)
            layout = name.partition("@metric")[0].removesuffix(f":{axes.kind}")
            layouts.setdefault(layout, []).extend(_questions(run, measured))
    if not layouts:
        raise UsageError(
            f"{run.folder} asks no typed questions as they stand, of which boards of decisions have rules; run a "
            "protocol of the family decision, such as decision/vllm-0.32"
        )
    reports = []
    for layout, asked in layouts.items():
        kinds = sorted({(each.kind, len(each.names)) for each in asked})
        for kind, options in kinds:
            own = [each for each in asked if (each.kind, len(each.names)) == (kind, options)]
            reports.append(BoardReport(layout, kind, options, board_numbers(own)))
        if len(kinds) > 1:
            pooling = [board for board in BOARDS if board.kinds]
            reports.append(BoardReport(layout, None, None, board_numbers(asked, pooling)))
    return reports


def board_numbers(asked: Sequence[Question], boards: Sequence[Board] = BOARDS) -> tuple[BoardNumbers, ...]:
    """What each of the ``boards`` says of the same questions, at least one."""
    even = [each._replace(probabilities=[1 / len(each.names)] * len(each.names)) for each in asked]
    missing = sum(math.isnan(sum(each.probabilities)) for each in asked)
    first, numbers = _numbers(boards[0], asked), []
    for board in boards:
        probabilities, uniform = _numbers(board, asked), _numbers(board, even)
        reasons = tuple(_reasons(boards[0], board, asked, first))
        counted = len(asked) - (0 if board.lost else missing)
        numbers.append(BoardNumbers(board.name, counted, missing, **probabilities, even=uniform, reasons=reasons))
    return tuple(numbers)


_WORDS: Final[Mapping[str, Callable[[Board], str]]] = {
    "top": lambda board: f"of several highest options the {board.top} is the answer",
    "credit": lambda board: {
        "label": "the label alone is right",
        "gold-ties": "any highest option of the soft answer is right",
        "split": "several highest options share the credit",
    }[board.credit],
    "soft": lambda board: f"against {'the soft answer' if board.soft else 'the label'}",
    "floor": lambda board: f"p at least {board.floor:g}",
    "normalised": lambda board: "p divided by its sum" if board.normalised else "p as probabilities",
    "yes": lambda board: "yes or no by p of yes alone" if board.yes else "yes or no as two options",
    "bins": lambda board: f"{board.bins} bins",
    "error": lambda board: {
        "pooled": "ece of all questions",
        "per-question": "ece a mean over questions",
        "unweighted": "ece of unweighted bins, divided by the items: a mistake",
    }[board.error],
    "lost": lambda board: "no answer counts as wrong" if board.lost else "no answer is left out",
}
"""How two boards can differ in a number, by rule."""


def _reasons(first: Board, board: Board, asked: Sequence[Question], before: Mapping[str, float]) -> Iterator[str]:
    """One rule at a time from ``first`` to ``board``: those that move a number here, and which.

    A rule that moves nothing by itself may do so beside another, so each is changed after those before it.
    """
    for rule, words in _WORDS.items():
        if getattr(first, rule) == getattr(board, rule):
            continue
        first = replace(first, **{rule: getattr(board, rule)})
        after = _numbers(first, asked)
        moved = [name for name in NUMBERS if not _same(before[name], after[name])]
        if moved:
            yield f"{words(board)} ({', '.join(moved)})"
        before = after


def _same(one: float, other: float) -> bool:
    return math.isclose(one, other, rel_tol=0, abs_tol=1e-6) or (math.isnan(one) and math.isnan(other))


def _numbers(board: Board, asked: Sequence[Question]) -> dict[str, float]:
    answered = [each for each in asked if not math.isnan(sum(each.probabilities))]
    if not answered:
        return {"accuracy": 0.0 if board.lost and asked else math.nan, **dict.fromkeys(NUMBERS[1:], math.nan)}
    judged = [_judge(board, each) for each in answered]
    credit, divergence, brier, sure, right = np.array(judged, dtype=np.float64).T
    return {
        "accuracy": float(credit.sum() / (len(asked) if board.lost else len(answered))),
        "divergence": float(divergence.mean()),
        "brier": float(brier.mean()),
        "ece": _calibration(board, sure, right, [each.about for each in answered]),
    }


def _judge(board: Board, asked: Question) -> tuple[float, float, float, float, bool]:
    """(credit, divergence, Brier score, confidence, whether what it is the confidence of is right)."""
    p = np.asarray(asked.probabilities, dtype=np.float64)
    p = p / p.sum() if board.normalised else p
    label = np.zeros(len(p))
    label[asked.label] = 1
    soft = None if asked.soft is None else np.asarray(asked.soft, dtype=np.float64) / sum(asked.soft)
    order = _ORDERS[board.top](asked)
    best = p == p.max()
    top = next(option for option in order if best[option])
    hit = top == asked.label
    credit = float(hit)
    if board.credit == "split":
        credit = float(best[asked.label] / best.sum())
    elif board.credit == "gold-ties":
        credit = math.nan if soft is None else float(soft[top] == soft.max())
    target = soft if board.soft else label
    divergence = brier = math.nan
    if target is not None:
        among = target > 0
        divergence = float((target[among] * np.log(target[among] / np.maximum(p[among], board.floor))).sum())
        brier = float(((p - target) ** 2).sum())
    if board.yes and asked.kind == "noul":
        return credit, divergence, brier / 2, float(p[0]), asked.label == 0
    return credit, divergence, brier, float(p[top]), hit


_ORDERS: Final[Mapping[str, Callable[[Question], Sequence[int]]]] = {
    "first": lambda asked: (1, 0) if asked.kind == "noul" else range(len(asked.names)),
    "smallest": lambda asked: (
        sorted(range(len(asked.names)), key=asked.names.__getitem__)
        if asked.kind == "choice"
        else range(len(asked.names))
    ),
}
"""In which order options are looked at for the highest one; a yes-or-no question has yes first."""


def _calibration(board: Board, sure: Floats, right: Floats, about: Sequence[str | None]) -> float:
    if board.error == "per-question":
        if None in about:
            return math.nan
        each = np.asarray(about)
        parts = [_binned(board, sure[each == name], right[each == name]) for name in dict.fromkeys(about)]
        return float(np.mean(parts))
    return _binned(board, sure, right)


def _binned(board: Board, sure: Floats, right: Floats) -> float:
    where = bins_of(sure, board.bins)
    gaps = np.abs(np.bincount(where, sure - right, board.bins))
    if board.error == "unweighted":
        gaps = gaps / np.maximum(np.bincount(where, minlength=board.bins), 1)
    return float(gaps.sum() / len(sure))


def _questions(run: Run, measured: Measurement) -> Iterator[Question]:
    probabilities, evidence, kind = option_probabilities(measured), measured.evidence, measured.protocol.kind
    people, places = human_counts(evidence), evidence.items.tolist()
    items = read_item_rows(run.folder, places)
    for place, (start, stop) in enumerate(pairwise(evidence.item_offsets.tolist())):
        item = items[places[place]]
        fields = json.loads(item["fields"])
        soft = None if people is None or np.isnan(people[start]) else people[start:stop].tolist()
        about = f"{fields.get('workflow', '')}/{fields['decision_id']}" if "decision_id" in fields else None
        yield Question(kind, tuple(item["choices"]), probabilities[start:stop].tolist(), item["gold"][0], soft, about)
