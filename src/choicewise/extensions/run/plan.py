"""Plans a run: counts its requests and tokens, and measures the model's speed, without a folder."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from time import perf_counter

import numpy as np

from choicewise.engine import build, cut_shards
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
from choicewise.running.answer import least_shard_tokens
from choicewise.running.job import Task
from choicewise.running.progress import Progress
from choicewise.running.shards import Assignment
from choicewise.running.work import prompts_of, served_model
from choicewise.store.tables import Keys
from choicewise.tokens.byte_coverings import ByteProbability, parts
from choicewise.tokens.tokenizer import Tokenizer

PROBE = 1.0
"""Seconds that a probe of the model takes at least, where there is enough to ask."""


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Count what a new run would compute.

    ``requests``: items times distinct prompts, with null contexts.  ``tokens_asked``: input tokens
    if every choice of every protocol were a sequence of its own.  ``tokens_unique``: with common
    beginnings computed once, as the engine does in each shard.  ``missing``: requests that can't be
    made, by reason.  ``shots_dropped`` and ``tokens_dropped``: requests that lose shots or tokens.
    ``speed``: unique tokens a second in a short probe; None without one.  ``refused``: protocols
    that the model does not support, with the reason.  ``sent``: requests to the model's server,
    None for a local model.
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
        """Return how many times fewer tokens are computed."""
        return self.tokens_asked / max(self.tokens_unique, 1)

    @property
    def seconds(self) -> float | None:
        """Estimate the time in the model."""
        return None if self.speed is None else self.tokens_unique / self.speed


def total(plans: Sequence[Plan]) -> Plan:
    """Add up several plans; the speed is that of all, None if one has none."""
    missing = Counter[str]()
    refused: dict[str, str] = {}
    for part in plans:
        missing.update(part.missing)
        refused |= part.refused
    unique = sum(part.tokens_unique for part in plans)
    speed = None
    seconds = [part.seconds for part in plans if part.seconds is not None]
    if plans and len(seconds) == len(plans):
        speed = unique / sum(seconds)
    sent = None
    requests_sent = [part.sent for part in plans if part.sent is not None]
    if plans and len(requests_sent) == len(plans):
        sent = sum(requests_sent)
    return Plan(
        requests=sum(part.requests for part in plans),
        tokens_asked=sum(part.tokens_asked for part in plans),
        tokens_unique=unique,
        missing=dict(missing),
        shots_dropped=sum(part.shots_dropped for part in plans),
        tokens_dropped=sum(part.tokens_dropped for part in plans),
        speed=speed,
        refused=refused,
        sent=sent,
    )


def plan(
    task: Task,
    *,
    probe: bool = True,
    progress: Progress = lambda done, total: None,
) -> Plan:
    """Count what a run of ``task`` would compute.

    Of a part of a run, only its own prompts count, each once.  With ``probe`` the model answers the
    first prompts for about a second; without it, its weights are not used.  ``progress`` is called
    block by block with (done, total) of the work, as in evaluate.
    """
    model = task.model
    work = task.work
    stretches = list(work.stretches())
    work.check(stretches)
    blocks = work.blocks(stretches)
    total_work = sum(block.work for block in blocks)
    done = 0
    served = served_model(model)
    parts = []
    speed = None
    assignment = Assignment(Keys(), task.share)
    shard_tokens = least_shard_tokens(model, task.share)
    for block in blocks:
        progress(done, total_work)
        prepared = prepare_block(work.data, block, model, work.skip_bad_items, work.rendered)
        shards = list(cut_shards(prepared.wanted, shard_tokens))
        # A prompt of an earlier block is not computed again.
        new_shards = [list(part.values()) for part in assignment.take(block, shards).shards]
        new = list(chain.from_iterable(new_shards))
        requests = len(block.items) * len(block.specs)
        tokens_asked = prepared.inputs
        if task.share is not None:
            requests = len(new)
            tokens_asked = sum(question.inputs for question in new)
        sent = None
        if served is not None:
            prompts = chain.from_iterable(prompts_of(prompt, model.tokenizer) for prompt in new)
            sent = served.requests_for(list(prompts))
        part = Plan(
            requests=requests,
            tokens_asked=tokens_asked,
            # Beginnings are shared within a shard alone.
            tokens_unique=sum(unique_tokens(shard, model.tokenizer) for shard in new_shards),
            missing=_missing(prepared),
            shots_dropped=sum(bool(row.shots_dropped) for row in prepared.requests),
            tokens_dropped=sum(bool(row.tokens_dropped) for row in prepared.requests),
            speed=None,
            sent=sent,
        )
        parts.append(part)
        if probe and speed is None:
            spans = [question for question in new if isinstance(question, Span)]
            speed = measure_speed(model, spans)
        done += block.work
    return replace(total(parts), speed=speed, refused=work.refused)


def unique_tokens(questions: Sequence[BlockPrompt], tokenizer: Tokenizer) -> int:
    """Count input tokens, with common beginnings computed once, and generations of full length."""
    # Questions share a beginning only if they are answered together: spans, masses and greedy
    # generations of one token; longer and sampled generations; masked losses and cosines.
    # Blanks and renditions share nothing.
    spans: list[Span | Mass] = []
    contexts: list[Span] = []
    states: list[Span] = []
    # A context with a set is computed once, with all that follows it.
    sets: dict[str, int] = {}
    generations: dict[str, int] = {}
    unshared = 0
    for question in questions:
        match question:
            case Span() | Mass():
                spans.append(question)
            case ByteProbability():
                spans += parts(question, tokenizer)
            case Conclusion(generation=generation):
                # No two generations of full length share tokens, so each is filled with its number.
                number = generations.setdefault(generation.key, len(generations))
                spans.append(question.after(np.full(question.longest, number, dtype=np.int32)))
            case Generation(sampling=None, limit=1, thought=None):
                spans.append(_input(question.context))
            case Generation():
                contexts.append(_input(question.context))
                unshared += question.inputs - len(question.context)
            case MaskedLoss():
                states.append(question.span)
            case Blanks() | Rendition():
                unshared += question.inputs
            case SetSpan():
                sets[prompt_key(b"", question.context, question.edges)] = len(question.context)
                unshared += len(question.continuation) - 1
            case Cosine():
                states += [_input(question.left), _input(question.right)]
    trees = len(build(spans)) + len(build(contexts)) + len(build(states))
    return trees + sum(sets.values()) + unshared


def _input(text: Ids) -> Span:
    """Return a span whose inputs are ``text``."""
    return Span(text, text[:1])


def measure_speed(model: Model, spans: Sequence[Span], seconds: float = PROBE) -> float | None:
    """Measure unique tokens a second: twice as many spans each time, until that takes ``seconds``."""
    # The model is loaded and checks itself before the clock starts.
    model.check(max((span.inputs for span in spans), default=0))
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
    """Count by reason the requests that lack all or some choices; each request counts once."""
    reasons: dict[tuple[str, str, str | None], str] = {}
    for row in prepared.requests:
        if row.missing:
            reasons[row.prompt, row.item, None] = row.missing
    for span in prepared.spans:
        if span.missing:
            reasons.setdefault((span.prompt, span.item, span.null), span.missing)
    return Counter(reasons.values())
