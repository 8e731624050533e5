"""Another tool's log as a value."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from string import ascii_uppercase

import numpy as np

from choicewise.errors import DataError
from choicewise.scoring.combine import extract
from choicewise.scoring.decide import letter_match
from choicewise.util.text import has_half_character

ROUNDING = 1e-5
"""By how much a share may differ that another tool computed of the same numbers."""


class Checks:
    """Counts where a log says something else of its items."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._checked: Counter[str] = Counter()
        self._wrong: Counter[str] = Counter()
        self._first: dict[str, str] = {}
        self._unknown: set[str] = set()

    def add(self, item: LoggedItem) -> None:
        """Check one item; what is missing has nothing to be checked against."""
        if item.missing:
            return
        verdicts = VERDICTS.get(self._log.tool, HARNESS)
        for name, said in item.recorded.items():
            if (verdict := verdicts.get(name)) is None:
                self._unknown.add(name)
                continue
            follows = verdict(self._log, item)
            if math.isnan(follows) or math.isnan(said):
                continue
            self._checked[name] += 1
            if abs(said - follows) > ROUNDING:
                self._wrong[name] += 1
                self._first.setdefault(name, f"{item.id}: the log says {said:g}, its answers {follows:g}")

    def notes(self) -> tuple[str, ...]:
        """What differs, in words.

        Raises DataError where that is ``acc``: then the right choices were read otherwise than the tool knew them.
        """
        differing = {
            name: f"{name} of {count:,} of {self._checked[name]:,} items is another than its own answers give, "
            f"such as {self._first[name]}"
            for name, count in self._wrong.items()
        }
        if "acc" in differing:
            raise DataError(
                f"the {self._log.tool} log of {self._log.model} on {self._log.task} does not agree with itself: "
                f"{differing['acc']}"
            )
        return tuple(differing.values())

    def unused(self) -> tuple[str, ...]:
        """The log's values of items that are not imported, in words."""
        unknown = ", ".join(sorted(self._unknown))
        return (f"values {unknown}, of which it is not known how they follow from the answers",) if unknown else ()


@dataclass(frozen=True, slots=True)
class LoggedChoice:
    """What a log says of one choice.

    ``loglikelihood``: log P(text | context) in nats, None where ``missing`` says why.  ``text``: the continuation as it
    was scored, with the space it starts with, None where the log does not have it.  ``context``: its own, where it is
    not the item's.  ``tokens``: how many tokens were scored.  ``greedy``: whether every token was the likeliest.
    ``unconditional``: the log-likelihood after the null context, in nats.
    """

    loglikelihood: float | None
    text: str | None = None
    context: str | None = None
    tokens: int | None = None
    greedy: bool | None = None
    unconditional: float | None = None
    missing: str | None = None


@dataclass(frozen=True, slots=True)
class LoggedItem:
    """What a log says of one item.

    ``gold``: the indices of the right choices.  ``context``: the text before the choices, as it was sent.  ``question``
    and ``options``: the question and its choices as the data have them, where the log has those too.  ``generated``:
    the text that the model wrote, where it answered in text; ``text_loglikelihood``: the log-probability of that text,
    nats, where the log has it.  ``recorded``: what the log itself says of the item, by the log's name for it (``acc``,
    ``acc_norm``), which is checked against what follows from the log-likelihoods.
    ``missing``: why it can't be scored at all, once it is checked.  ``finish``: why the text ended
    (:mod:`choicewise.questions`), None where the log does not say.
    """

    id: str
    gold: tuple[int, ...]
    choices: tuple[LoggedChoice, ...]
    context: str | None = None
    subject: str = ""
    question: str | None = None
    options: tuple[str, ...] | None = None
    generated: str | None = None
    recorded: Mapping[str, float] = field(default_factory=dict)
    missing: str | None = None
    finish: str | None = None
    text_loglikelihood: float | None = None

    @property
    def own_contexts(self) -> tuple[str | None, ...]:
        """The contexts of the choices, where any has its own; else none."""
        own = tuple(choice.context for choice in self.choices)
        return own if any(context is not None for context in own) else ()

    @property
    def shown_question(self) -> str:
        """The question to show: the data's own, else what the choices were scored after."""
        shown = self.question if self.question is not None else self.context
        if shown is None:
            shown = "\n".join(context for context in self.own_contexts if context is not None) or None
        return "(the log has no text of the question)" if shown is None else shown

    @property
    def shown_options(self) -> tuple[str, ...]:
        """The choices to show: the data's own, else what was scored."""
        if self.options is not None:
            return self.options
        return tuple(
            f"(choice {place}: the log has no text)" if choice.text is None else choice.text.removeprefix(" ")
            for place, choice in enumerate(self.choices)
        )


def checked_item(item: LoggedItem, tool: str) -> LoggedItem:
    """``item`` with log-likelihoods that are numbers or missing.

    A NaN is a missing choice, and a right choice that is none of the choices makes the item missing.  Raises DataError
    for what no log-likelihoods are, an item without choices, and texts that no file can store.
    """
    where = f"item {item.id!r} of {tool}"
    if not item.choices:
        raise DataError(f"{where} has no choices")
    if item.options is not None and len(item.options) != len(item.choices):
        raise DataError(f"{where} has {len(item.options)} options and {len(item.choices)} log-likelihoods")
    texts = [item.id, item.subject, item.context, item.question, *(item.options or ()), item.generated]
    texts += [text for choice in item.choices for text in (choice.text, choice.context)]
    if has_half_character("".join(text for text in texts if text is not None)):
        raise DataError(f"{where} holds a lone surrogate, half a character that no file can store")
    choices = tuple(_checked(choice, f"{where}, choice {place}") for place, choice in enumerate(item.choices))
    wrong = [index for index in item.gold if not 0 <= index < len(choices)]
    gold = tuple(sorted({index for index in item.gold if 0 <= index < len(choices)}))
    missing = None
    if wrong:
        missing = f"the right choice is {wrong[0]}, and there are {len(choices)} choices, counted from 0"
    elif not gold:
        missing = "the log does not say which choice is right"
    return replace(item, choices=choices, gold=gold, missing=missing)


def _checked(choice: LoggedChoice, where: str) -> LoggedChoice:
    for name in ("loglikelihood", "unconditional"):
        value = getattr(choice, name)
        if value is not None and value > 1e-3:  # nats that rounding may lift it above 0
            raise DataError(
                f"{where} has the {name} {value}, and a log-likelihood is never above 0; is it a "
                "loss, or a probability?"
            )
    if choice.tokens is not None and choice.tokens < 1:
        raise DataError(f"{where} has {choice.tokens} tokens; a scored choice has at least one")
    if choice.missing or choice.loglikelihood is None:
        return replace(choice, loglikelihood=None, missing=choice.missing or "the log has no log-likelihood of it")
    if math.isnan(choice.loglikelihood):
        return replace(choice, loglikelihood=None, missing="the log says NaN")
    lost = choice.unconditional is not None and math.isnan(choice.unconditional)
    return replace(choice, unconditional=None) if lost else choice


@dataclass(frozen=True, slots=True)
class Log:
    """What a log says of one ``model`` on one ``task``.

    ``items`` can be read again: every ``iter`` begins anew, so that a long log need not be in memory.  ``settings``:
    shots, version, dtype and others, as text.  ``null``: the context that ``unconditional`` is after, None where the
    log has none.  ``recorded``: the log's own totals, by the log's name for each.  ``unused``: what the log has and an
    import does not keep (columns, filters), in words.  ``axes``: how the tool asks, where that is known, as axes of a
    protocol (``fit``, ``boundary``, ``bos``).  ``rules``: decisions that read a letter in ``generated`` text, the
    tool's own first; empty where the log has none.  ``aggregations``: how the tool's numbers average the subjects
    (``micro``, ``macro``), the first for every score.
    """

    tool: str
    model: str
    task: str
    items: Iterable[LoggedItem]
    settings: Mapping[str, str] = field(default_factory=dict)
    null: str | None = None
    recorded: Mapping[str, float] = field(default_factory=dict)
    unused: tuple[str, ...] = ()
    axes: Mapping[str, str] = field(default_factory=dict)
    rules: tuple[str, ...] = ()
    aggregations: tuple[str, ...] = ("micro",)


Verdict = Callable[[Log, LoggedItem], float]
"""The credit of an item; NaN where the log has not what it is made of."""


def _right(item: LoggedItem, scores: Sequence[float]) -> float:
    """1 where the first of the greatest scores is a right choice, else 0."""
    return math.nan if any(map(math.isnan, scores)) else float(int(np.argmax(scores)) in item.gold)


def _shared(item: LoggedItem, scores: Sequence[float]) -> float:
    """The share of right choices among those with the greatest score."""
    top = [place for place, score in enumerate(scores) if score == max(scores)]
    return math.nan if any(map(math.isnan, scores)) else len(set(top) & set(item.gold)) / len(top)


def sums(choices: Sequence[LoggedChoice]) -> list[float]:
    """The log-likelihood of each choice in nats, NaN where there is none."""
    return [math.nan if choice.loglikelihood is None else choice.loglikelihood for choice in choices]


def _per(item: LoggedItem, lengths: Sequence[int]) -> list[float]:
    """Scores per length; NaN where one is not known."""
    if not all(lengths):
        return [math.nan] * len(item.choices)
    return [score / length for score, length in zip(sums(item.choices), lengths, strict=True)]


def _bare(item: LoggedItem) -> list[str]:
    """The choices as the data have them; empty where they are not known."""
    return list(item.options or [(choice.text or "").removeprefix(" ") for choice in item.choices])


def _scored(item: LoggedItem) -> list[str]:
    """The choices as they were scored, with the space they begin with; empty where they are not known."""
    return [choice.text or "" for choice in item.choices]


def _beyond_null(item: LoggedItem) -> list[float]:
    nulls = [math.nan if choice.unconditional is None else choice.unconditional for choice in item.choices]
    return [score - null for score, null in zip(sums(item.choices), nulls, strict=True)]


def _per_token(item: LoggedItem) -> list[float]:
    return _per(item, [choice.tokens or 0 for choice in item.choices])


def _match(log: Log, item: LoggedItem) -> float:
    flags = [item.choices[index].greedy for index in item.gold]
    return math.nan if None in flags else float(any(flags))


def _letter(log: Log, item: LoggedItem) -> float:
    """What the tool's own rule gives of the text that the model wrote."""
    if item.generated is None or not log.rules:
        return math.nan
    if log.rules[0] == "letter-match":
        return float(letter_match([item.generated], [_bare(item)], [item.gold], ascii_uppercase).credit[0])
    return float(extract(log.rules[0], [item.generated], [item.gold], [len(item.choices)], ascii_uppercase).credit[0])


def share(choices: Sequence[LoggedChoice], right: Sequence[int]) -> float:
    """The share that the ``right`` choices have of the probability of all."""
    scores = np.array(sums(choices))
    return float(np.exp(scores[list(right)] - np.logaddexp.reduce(scores)).sum())


def _helm(log: Log, item: LoggedItem) -> float:
    """HELM's exact_match: of a letter, or of references of which tied ones share the credit."""
    return _letter(log, item) if log.rules else _shared(item, _helm_scores(log, item))


def _helm_scores(log: Log, item: LoggedItem) -> list[float]:
    calibrated = log.settings.get("method", "").endswith("calibrated")
    return _beyond_null(item) if calibrated else _per_token(item)


def _helm_index(log: Log, item: LoggedItem) -> float:
    scores = _helm_scores(log, item)
    return math.nan if log.rules or any(map(math.isnan, scores)) else float(np.argmax(scores))


def _either_norm(log: Log, item: LoggedItem) -> float:
    """lighteval's acc_norm before 0.10 counts the space before a choice in some tasks and in others not."""
    with_space, without = (
        _right(item, _per(item, [len(text) for text in texts])) for texts in (_scored(item), _bare(item))
    )
    return with_space if with_space == without else math.nan


HARNESS: Mapping[str, Verdict] = {
    "acc": lambda log, item: _right(item, sums(item.choices)),
    "acc_norm": lambda log, item: _right(item, _per(item, [len(text) for text in _bare(item)])),
    "acc_bytes": lambda log, item: _right(item, _per(item, [len(text.encode()) for text in _bare(item)])),
    "acc_mutual_info": lambda log, item: _right(item, _beyond_null(item)),
    "exact_match": _match,
    "greedy": _match,
    "mc2": lambda log, item: share(item.choices, item.gold),
    "perplexity": lambda log, item: sums(item.choices)[0] if len(item.choices) == 1 else math.nan,
}
"""lm-evaluation-harness (lm_eval/api/task.py@4e7e0d4:1489), and tables that name their columns so."""

_NORM = "acc:logprob_normalization=LogProb"

VERDICTS: Mapping[str, Mapping[str, Verdict]] = {
    "helm": {"exact_match": _helm, "predicted_index": _helm_index},
    "inspect": {"choice": _letter},
    "lighteval": {
        "acc": HARNESS["acc"],
        "acc_norm": _either_norm,
        f"{_NORM}CharNorm(name='norm', ignore_first_space=False)": lambda log, item: _right(
            item, _per(item, [len(text) for text in _scored(item)])
        ),
        f"{_NORM}CharNorm(name='norm', ignore_first_space=True)": HARNESS["acc_norm"],
        f"{_NORM}TokenNorm(name='norm_token')": lambda log, item: _right(item, _per_token(item)),
        f"{_NORM}PMINorm(name='norm_pmi')": HARNESS["acc_mutual_info"],
    },
}
"""By tool and its name for a verdict.

helm: BasicReferenceMetric and exact_match of stanford-crfm/helm@63754d0.  inspect: the scorer choice.  lighteval:
LoglikelihoodAcc with its normalisations (metrics/metrics_sample.py and normalizations.py@3fd1526).
"""


@dataclass(frozen=True, slots=True)
class Reread:
    """Items that ``read`` gives anew whenever they are iterated."""

    read: Callable[[], Iterator[LoggedItem]]

    def __iter__(self) -> Iterator[LoggedItem]:
        return self.read()


@dataclass(frozen=True, slots=True)
class Unreadable:
    """The items of a log that can't be used, among others that can: ``error`` says why once they are asked for."""

    error: DataError

    def __iter__(self) -> Iterator[LoggedItem]:
        raise self.error


def unreadable(tool: str, path: Path, error: DataError) -> Log:
    """A log of what ``tool`` left at ``path`` that can't be read, so that nobody knows of which model it is."""
    return Log(tool, "unknown", path.stem, Unreadable(error), {"file": path.name})
