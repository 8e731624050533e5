"""Dry run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from time import perf_counter

import numpy as np

from choicewise.engine import build, cut_shards
from choicewise.models.kinds import shard_tokens_of
from choicewise.models.model import Model
from choicewise.questions import (
    Blanks,
    Conclusion,
    Cosine,
    Generation,
    Ids,
    MaskedLoss,
    Mass,
    Rendition,
    SetSpan,
    Span,
    prompt_key,
)
from choicewise.requests.blocks import prepare_block
from choicewise.requests.request import BlockPrompt, PreparedBlock
from choicewise.running.job import Task
from choicewise.running.progress import Progress
from choicewise.running.work import prompts_of, served_model
from choicewise.store.tables import Keys
from choicewise.tokens.byte_coverings import ByteProbability, parts
from choicewise.tokens.tokenizer import Tokenizer

PROBE = 1.0
"""Seconds that a probe of the model takes at least, where there is enough to ask."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What a new run would ask.

    ``requests``: items times distinct prompts, null contexts included.  ``tokens_asked``: input tokens when every
    choice of every protocol is a sequence of its own; ``tokens_unique``: when a common beginning is computed once, as
    the engine does in each shard.  ``missing`` counts the requests that can't be asked, by reason, ``shots_dropped``
    those that lose shots and ``tokens_dropped`` those that lose tokens.  ``speed``: unique tokens a second of a short
    probe; None without one.  ``refused``: protocols that the model can't be asked under, with the reason.
    ``sent``: requests to the server that the model is behind; None of a model that runs here.
    """

    requests: int
    tokens_asked: int
    tokens_unique: int
    missing: Mapping[str, int]
    shots_dropped: int
    tokens_dropped: int
    speed: float | None
    refused: Mapping[str, str] = field(default_factory=dict)
    sent: int | None = None

    @property
    def ratio(self) -> float:
        """How many times fewer tokens are computed than asked."""
        return self.tokens_asked / max(self.tokens_unique, 1)

    @property
    def seconds(self) -> float | None:
        """Estimated time in the model."""
        return None if self.speed is None else self.tokens_unique / self.speed


def total(plans: Sequence[Plan]) -> Plan:
    """What several plans come to; the speed is that of the whole, None where one has none."""
    missing = sum((Counter(each.missing) for each in plans), Counter[str]())
    unique = sum(each.tokens_unique for each in plans)
    seconds = [each.seconds for each in plans if each.seconds is not None]
    return Plan(
        requests=sum(each.requests for each in plans),
        tokens_asked=sum(each.tokens_asked for each in plans),
        tokens_unique=unique,
        missing=dict(missing),
        shots_dropped=sum(each.shots_dropped for each in plans),
        tokens_dropped=sum(each.tokens_dropped for each in plans),
        speed=unique / sum(seconds) if len(seconds) == len(plans) else None,
        refused={name: reason for each in plans for name, reason in each.refused.items()},
        sent=None
        if any(each.sent is None for each in plans)
        else sum(each.sent or 0 for each in plans),
    )


def plan(
    task: Task,
    *,
    probe: bool = True,
    progress: Progress | None = None,
) -> Plan:
    """The plan of what a run of ``task`` would ask.

    With ``probe`` the model answers the first questions for about a second; without it, its weights are not used.
    ``progress`` is called with (done, total) of the work as in evaluate, block by block.
    """
    model, work = task.model, task.work
    stretches = list(work.stretches())
    work.check(stretches)
    tokens_asked = tokens_unique = shots_dropped = tokens_dropped = done = 0
    missing: Counter[str] = Counter()
    counted, blocks = Keys(), work.blocks(stretches)
    total = sum(block.work for block in blocks)
    speed, served, sent = None, served_model(model), None
    for block in blocks:
        if progress is not None:
            progress(done, total)
        prepared = prepare_block(work.data, block, model, work.skip_bad_items, work.rendered)
        keys = frozenset(counted.without(list(prepared.wanted)))
        new = [question for key, question in prepared.wanted.items() if key in keys]
        counted.add(keys)
        tokens_asked += prepared.inputs
        for shard in cut_shards(prepared.wanted, shard_tokens_of(model)):
            tokens_unique += unique_tokens(
                [question for key, question in shard.items() if key in keys], model.tokenizer
            )
        if served is not None:
            sent = (sent or 0) + served.requests_for(
                [part for question in new for part in prompts_of(question, model.tokenizer)]
            )
        missing.update(_missing(prepared))
        shots_dropped += sum(bool(row.shots_dropped) for row in prepared.requests)
        tokens_dropped += sum(bool(row.tokens_dropped) for row in prepared.requests)
        if probe and speed is None:
            speed = measure_speed(
                model, [question for question in new if isinstance(question, Span)]
            )
        done += block.work
    counts = (
        work.questions,
        tokens_asked,
        tokens_unique,
        dict(missing),
        shots_dropped,
        tokens_dropped,
    )
    return Plan(*counts, speed, work.refused, sent)


def unique_tokens(questions: Sequence[BlockPrompt], tokenizer: Tokenizer) -> int:
    """Input tokens when every common beginning is computed once, and every generation goes to its full length.

    Only questions that are answered together share a beginning: spans, masses and greedy generations of one token;
    longer and sampled generations; masked losses and cosines.  Blanks and renditions share nothing, sets their context.
    """
    spans: list[Span | Mass] = []
    contexts, states = [], []
    sets: dict[str, int] = {}  # contexts with a set, each computed once with all that follows it
    generations: dict[
        str, int
    ] = {}  # before conclusions; no two of full length share generated tokens
    alone = 0
    for question in questions:
        match question:
            case Span() | Mass():
                spans.append(question)
            case ByteProbability():
                spans += parts(question, tokenizer)
            case Conclusion(generation=generation):
                number = generations.setdefault(generation.key, len(generations))
                spans.append(question.after(np.full(question.longest, number, dtype=np.int32)))
            case Generation(sampling=None, limit=1, thought=None):
                spans.append(_input(question.context))
            case Generation():
                contexts.append(_input(question.context))
                alone += question.inputs - len(question.context)
            case MaskedLoss():
                states.append(question.span)
            case Blanks() | Rendition():
                alone += question.inputs
            case SetSpan():
                sets[prompt_key(b"", question.context, question.edges)] = len(question.context)
                alone += len(question.continuation) - 1
            case Cosine():
                states += [_input(question.left), _input(question.right)]
    return (
        sum(len(build(group)) for group in (spans, contexts, states)) + sum(sets.values()) + alone
    )


def _input(text: Ids) -> Span:
    """A span whose inputs are ``text``."""
    return Span(text, text[:1])


def measure_speed(model: Model, spans: Sequence[Span], seconds: float = PROBE) -> float | None:
    """Unique tokens a second: the first span is answered, the first two, four, ..., until that takes ``seconds``."""
    model.check(
        max((span.inputs for span in spans), default=0)
    )  # it is loaded, and has checked itself
    count = 1
    while spans:
        start = perf_counter()
        for _ in model.answer(spans[:count]):
            pass
        elapsed = perf_counter() - start
        if elapsed >= seconds or count >= len(spans):
            return unique_tokens(spans[:count], model.tokenizer) / elapsed
        count *= 2
    return None


def _missing(prepared: PreparedBlock) -> Counter[str]:
    """Why requests, or some of their choices, can't be asked; each request counts once."""
    reasons: dict[tuple[str, str, str | None], str] = {
        (row.prompt, row.item, None): row.missing for row in prepared.requests if row.missing
    }
    for row in prepared.spans:
        if row.missing:
            reasons.setdefault((row.prompt, row.item, row.null), row.missing)
    return Counter(reasons.values())
