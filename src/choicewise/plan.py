"""What a run will ask, in tokens, and how long that will take, found without running it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import TYPE_CHECKING

import numpy as np

from choicewise.data.dataset import Dataset
from choicewise.engine.asking import Asking, Question
from choicewise.engine.chain import Chain, Conclusion
from choicewise.engine.cover import Cover, parts
from choicewise.engine.masked import Masked
from choicewise.engine.pair import Pair
from choicewise.engine.schedule import ask_block, check, list_asks, list_blocks
from choicewise.engine.span import Mass, Prompt, Span
from choicewise.engine.tree import build
from choicewise.protocols.protocol import Protocol
from choicewise.protocols.split import settle

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
    recipes = {name: settle(recipe, data) for name, recipe in protocols.items()}
    asks = list_asks(recipes)
    blocks = list_blocks(data, recipes, subjects, limit)
    if not skip_bad_items:
        check(data, asks, blocks)
    requests = asked = unique = dropped = cut = 0
    missing: Counter[str] = Counter()
    known: set[str] = set()
    speed = None
    for block in blocks:
        mine = [ask for ask in asks if ask.recipe.split == block.split]
        asking = ask_block(data, block, mine, model, skip_bad_items)
        fresh = [question for key, question in asking.wanted.items() if key not in known]
        known.update(asking.wanted)
        requests += len(mine) * len(block.items)
        asked += asking.inputs
        unique += unique_tokens(fresh)
        missing.update(_missing(asking))
        dropped += sum(bool(row["shots_dropped"]) for row in asking.requests)
        cut += sum(bool(row["tokens_dropped"]) for row in asking.requests)
        if probe and speed is None:
            speed = probed(model, [question for question in fresh if isinstance(question, Span)])
    return Plan(requests, asked, unique, dict(missing), dropped, cut, speed)


def unique_tokens(questions: Sequence[Question]) -> int:
    """Input tokens when every common beginning is computed once, and every generation goes to its full length.

    Beginnings are common to questions that are answered together: to those of one kind.
    """
    spans = [part for question in questions if isinstance(question, Span | Mass | Cover) for part in parts(question)]
    spans += _concluded([question for question in questions if isinstance(question, Conclusion)])
    prompts = [question for question in questions if isinstance(question, Prompt)]
    chains = [question for question in questions if isinstance(question, Chain)]
    masked = [question.span for question in questions if isinstance(question, Masked)]
    texts = [text for question in questions if isinstance(question, Pair) for text in (question.left, question.right)]
    texts += [prompt.context for prompt in prompts]
    generated = sum(prompt.inputs - len(prompt.context) for prompt in prompts)
    generated += sum(chain.inputs for chain in chains)  # one at a time, each from its beginning
    return len(build(spans)) + len(build(masked)) + len(build([Span(text, text[:1]) for text in texts])) + generated


def _concluded(questions: Sequence[Conclusion]) -> list[Span]:
    """The spans behind chains of full length, no two of which begin alike."""
    numbers: dict[str, int] = {}
    found = []
    for question in questions:
        number = numbers.setdefault(question.chain.key, len(numbers))
        found.append(question.after(np.full(question.chain.new_tokens, number, dtype=np.int32)))
    return found


def probed(model: Model, spans: Sequence[Span], seconds: float = PROBE) -> float | None:
    """Unique tokens a second, from the first ``spans``: twice as many each time until it takes long enough to tell."""
    count = 1
    while spans:
        some = spans[:count]
        start = perf_counter()
        for _ in model.score(some):
            pass
        taken = perf_counter() - start
        if taken >= seconds or count >= len(spans):
            return unique_tokens(some) / taken
        count *= 2
    return None


def _missing(asking: Asking) -> Counter[str]:
    """Why requests, or choices of theirs, can't be asked; each request counts once."""
    reasons = {(row["prompt"], row["item"], None): row["missing"] for row in asking.requests if row["missing"]}
    for row in asking.spans:
        if row["missing"]:
            reasons.setdefault((row["prompt"], row["item"], row["null"]), row["missing"])
    return Counter(reasons.values())
