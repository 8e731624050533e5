"""What a run will ask, in tokens, and how long that will take, found without running it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import TYPE_CHECKING

import numpy as np

from choicewise.data.dataset import Dataset
from choicewise.engine.tree import build
from choicewise.protocols.protocol import Protocol
from choicewise.protocols.split import with_split
from choicewise.questions.conclusion import Conclusion
from choicewise.questions.cosine import Cosine
from choicewise.questions.generation import Generation
from choicewise.questions.masked_loss import MaskedLoss
from choicewise.questions.mass import Mass
from choicewise.questions.span import Span
from choicewise.requests.prepared_block import BlockQuestion, PreparedBlock
from choicewise.requests.schedule import check, list_asks, list_blocks, prepare_block
from choicewise.tokens.byte_probability import ByteProbability
from choicewise.tokens.coverings import parts

if TYPE_CHECKING:
    from choicewise.models.model import Model

PROBE = 1.0
"""Seconds that a probe of the model takes at least, where there is enough to ask."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What a run from scratch comes to.

    ``requests``: items times distinct prompts, null contexts included.  ``asked``: input tokens when every choice of
    every protocol is a sequence of its own.  ``unique``: input tokens when those that share a beginning share its
    computation, block by block, as the engine does.  ``missing`` counts the requests that can't be asked, by reason,
    ``dropped`` those that lose shots and ``cut`` those that lose tokens.  ``speed``: unique tokens a second of a short
    probe; None without one.
    """

    requests: int
    asked: int
    unique: int
    missing: Mapping[str, int]
    dropped: int
    cut: int
    speed: float | None

    @property
    def ratio(self) -> float:
        """How many times fewer tokens are computed than asked."""
        return self.asked / max(self.unique, 1)

    @property
    def seconds(self) -> float | None:
        """Estimated time in the model."""
        return None if self.speed is None else self.unique / self.speed


def plan(
    model: Model,
    data: Dataset,
    protocols: Mapping[str, Protocol],
    *,
    subjects: Sequence[str] | None = None,
    limit: int | None = None,
    skip_bad_items: bool = False,
    probe: bool = True,
) -> Plan:
    """The plan of what :func:`choicewise.evaluate` would do; arguments and errors as there.

    With ``probe`` the model answers the first questions for about a second, and until then its weights are not used.
    """
    recipes = {name: with_split(recipe, data) for name, recipe in protocols.items()}
    asks = list_asks(recipes)
    blocks = list_blocks(data, recipes, subjects, limit)
    if not skip_bad_items:
        check(data, asks, blocks)
    requests = asked = unique = dropped = cut = 0
    missing: Counter[str] = Counter()
    known: set[str] = set()
    speed = None
    for block in blocks:
        mine = [ask for ask in asks if ask.protocol.split == block.split]
        asking = prepare_block(data, block, mine, model, skip_bad_items)
        fresh = [question for key, question in asking.wanted.items() if key not in known]
        known.update(asking.wanted)
        requests += len(mine) * len(block.items)
        asked += asking.inputs
        unique += unique_tokens(fresh)
        missing.update(_missing(asking))
        dropped += sum(bool(row.shots_dropped) for row in asking.requests)
        cut += sum(bool(row.tokens_dropped) for row in asking.requests)
        if probe and speed is None:
            speed = probed(model, [question for question in fresh if isinstance(question, Span)])
    return Plan(requests, asked, unique, dict(missing), dropped, cut, speed)


def unique_tokens(questions: Sequence[BlockQuestion]) -> int:
    """Input tokens when every common beginning is computed once, and every generation goes to its full length.

    Beginnings are common to questions that are answered together: to those of one kind.
    """
    spans = [
        part
        for question in questions
        if isinstance(question, Span | Mass | ByteProbability)
        for part in parts(question)
    ]
    spans += _concluded([question for question in questions if isinstance(question, Conclusion)])
    generations = [question for question in questions if isinstance(question, Generation)]
    greedy = [generation for generation in generations if generation.sampling is None]
    masked = [question.span for question in questions if isinstance(question, MaskedLoss)]
    texts = [text for question in questions if isinstance(question, Cosine) for text in (question.left, question.right)]
    texts += [generation.context for generation in greedy]
    generated = sum(generation.inputs - len(generation.context) for generation in greedy)
    # sampled one at a time, each from its beginning
    generated += sum(generation.inputs for generation in generations if generation.sampling is not None)
    return len(build(spans)) + len(build(masked)) + len(build([Span(text, text[:1]) for text in texts])) + generated


def _concluded(questions: Sequence[Conclusion]) -> list[Span]:
    """The spans behind chains of full length, no two of which begin alike."""
    numbers: dict[str, int] = {}
    found = []
    for question in questions:
        number = numbers.setdefault(question.generation.key, len(numbers))
        found.append(question.after(np.full(question.generation.limit, number, dtype=np.int32)))
    return found


def probed(model: Model, spans: Sequence[Span], seconds: float = PROBE) -> float | None:
    """Unique tokens a second, from the first ``spans``: twice as many each time until it takes long enough to tell."""
    count = 1
    while spans:
        some = spans[:count]
        start = perf_counter()
        for _ in model.answer(some):
            pass
        taken = perf_counter() - start
        if taken >= seconds or count >= len(spans):
            return unique_tokens(some) / taken
        count *= 2
    return None


def _missing(asking: PreparedBlock) -> Counter[str]:
    """Why requests, or choices of theirs, can't be asked; each request counts once."""
    reasons: dict[tuple[str, str, str | None], str] = {
        (row.prompt, row.item, None): row.missing for row in asking.requests if row.missing
    }
    for row in asking.spans:
        if row.missing:
            reasons.setdefault((row.prompt, row.item, row.null), row.missing)
    return Counter(reasons.values())
