"""Every item with what was sent and answered."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from choicewise.results.run import Run
from choicewise.results.spans import ObservedPortion
from choicewise.results.tables import read_item_rows
from choicewise.scoring import scores
from choicewise.scoring.observed import Continuations, Floats
from choicewise.scoring.scores import greedy


@dataclass(frozen=True, slots=True)
class AnsweredChoice:
    """A choice under a prompt.

    ``choice``: as the data have it; ``shown``: as the prompt shows it; ``context`` and ``continuation``: the texts that
    were scored, None where the item could not be asked.  ``loglikelihood``: in nats, NaN where missing, where no more
    than an upper bound is known, or where the choice was asked in several parts.  ``tokens``: how many were scored, and
    ``greedy``: whether every one was the likeliest; None where not known.  ``after_null``: null context →
    log-likelihood after it, in nats.
    """

    choice: str
    shown: str | None
    context: str | None
    continuation: str | None
    loglikelihood: float
    tokens: int | None
    greedy: bool | None
    after_null: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class AnsweredItem:
    """An item under a prompt.

    ``place``: where every array of a measurement under this prompt has it; ``row``: where its first choice is among the
    measurement's rows.  ``fields``: the further fields of the data.  ``context``: the prompt as it was sent, None where
    the item could not be asked; ``generated``: what the model wrote after it; ``missing``: why something is missing.
    """

    place: int
    row: int
    id: str
    split: str
    subject: str
    question: str
    gold: tuple[int, ...]
    fields: Mapping[str, str]
    context: str | None
    choices: tuple[AnsweredChoice, ...]
    generated: str | None
    missing: str | None

    def __len__(self) -> int:
        return len(self.choices)


def answered_items(run: Run, nulls: Mapping[str, Sequence[str]]) -> Iterator[tuple[str, AnsweredItem]]:
    """(prompt, item) for every prompt (``Protocol.prompt_digest``) in ``nulls`` and every item asked under it.

    ``nulls``: by prompt, the null contexts whose log-likelihoods are wanted.  The run is read once, a portion at a
    time; the items of a prompt come in the order of its evidence, those of several prompts by turns.
    """
    counted = dict.fromkeys(nulls, (0, 0))
    for tables in run.evidence.whole_portions():
        texts = read_item_rows(run.folder, tables.items["position"].to_pylist())
        asked = {*tables.requests["prompt"].unique().to_pylist()}
        for prompt in sorted(asked & nulls.keys()):
            portion = ObservedPortion(tables, prompt)
            for item in _items(portion, texts, nulls[prompt], *counted[prompt]):
                counted[prompt] = item.place + 1, item.row + len(item)
                yield prompt, item


def _items(
    portion: ObservedPortion, texts: Mapping[int, Mapping[str, object]], nulls: Sequence[str], place: int, row: int
) -> Iterator[AnsweredItem]:
    reasons: dict[int, str] = {}
    for null in (None, *nulls):
        for item, reason in portion.reasons(null):
            reasons.setdefault(item, reason)
    contexts = portion.requests["context"].to_pylist()
    choices = _choices(portion, texts, nulls, contexts)
    generated = portion.generated()
    for number, at in enumerate(portion.items.tolist()):
        row_texts = texts[at]
        own = tuple(next(choices) for _ in range(int(portion.item_offsets[number + 1] - portion.item_offsets[number])))
        yield AnsweredItem(
            place=place + number,
            row=row + int(portion.item_offsets[number]),
            id=str(row_texts["item"]),
            split=str(row_texts["split"]),
            subject=str(row_texts["subject"]),
            question=str(row_texts["question"]),
            gold=tuple(portion.gold[number]),
            fields=json.loads(str(row_texts["fields"])),
            context=contexts[number],
            choices=own,
            generated=generated[number],
            missing=reasons.get(number),
        )


def _choices(
    portion: ObservedPortion,
    texts: Mapping[int, Mapping[str, object]],
    nulls: Sequence[str],
    contexts: Sequence[str | None],
) -> Iterator[AnsweredChoice]:
    """The choices of every item in turn."""
    scored = portion.continuations()
    parts = portion.part_sums
    sums: Floats = _known(scored) if len(parts) == 1 else np.full(len(parts[0]), np.nan)
    likeliest = greedy(scored).tolist()
    after = {null: _known(portion.continuations(null)).tolist() for null in nulls}
    own, expected, shown = portion.own_contexts, portion.expected(), portion.options()
    loglikelihoods, counts = sums.tolist(), scores.tokens(scored).tolist()
    for number, (start, end) in enumerate(pairwise(portion.item_offsets.tolist())):
        as_given = texts[int(portion.items[number])]["choices"]
        assert isinstance(as_given, list)
        for row in range(start, end):
            choice = row - start
            continuation = scored.text[row] or None
            if continuation is None and choice < len(expected[number]):
                continuation = expected[number][choice]
            yield AnsweredChoice(
                choice=as_given[choice],
                shown=shown[number][choice] if choice < len(shown[number]) else None,
                context=contexts[number] if own[row] is None else own[row],
                continuation=continuation,
                loglikelihood=loglikelihoods[row],
                tokens=int(np.nan_to_num(counts[row])) or None,
                greedy=None if np.isnan(likeliest[row]) else bool(likeliest[row]),
                after_null={null: sums[row] for null, sums in after.items()},
            )


def _known(observed: Continuations) -> Floats:
    """The log-likelihood of each row in nats, float64 [rows]; NaN for upper bounds, which other formats lack."""
    return observed.sums if observed.at_most is None else np.where(observed.at_most, np.nan, observed.sums)
