"""From questions to rows of the observation table: every kind of question goes to the method that answers it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from choicewise.engine.asking import Question
from choicewise.engine.chain import Chain, Conclusion
from choicewise.engine.cover import Cover, sizes
from choicewise.engine.cover import answers as scored
from choicewise.engine.masked import Masked
from choicewise.engine.pair import Pair
from choicewise.engine.span import Ids, Mass, Prompt, Span, TokenScores
from choicewise.errors import ModelError

if TYPE_CHECKING:
    from choicewise.models.model import Model


def answers(model: Model, wanted: Mapping[str, Question]) -> Iterator[dict[str, Any]]:
    """One row of the observation table per question, in the order the model answers."""
    spans: dict[str, Span | Mass | Cover] = {}
    thoughts: dict[str, Ids] = {}
    chains = _chains(wanted)
    keys = list(chains)
    for index, seen in _sampled(model, list(chains.values())):
        thoughts[keys[index]] = seen.tokens
        if keys[index] in wanted:  # an interrupted run has some already, and draws them again for what follows
            yield _row(keys[index], chains[keys[index]], seen, model, text=_text(model, seen))
    for key, question in wanted.items():
        if isinstance(question, Span | Mass | Cover):
            spans[key] = question
        elif isinstance(question, Conclusion):
            spans[key] = question.after(thoughts[question.chain.key])
    keys = list(spans)
    for index, seen in scored(model, list(spans.values())):
        yield _row(keys[index], spans[keys[index]], seen, model)
    prompts = {key: question for key, question in wanted.items() if isinstance(question, Prompt)}
    keys = list(prompts)
    for index, seen in model.generate(list(prompts.values())):
        yield _row(keys[index], prompts[keys[index]], seen, model, text=_text(model, seen))
    masked = {key: question.span for key, question in wanted.items() if isinstance(question, Masked)}
    keys = list(masked)
    for index, loss in model.masked(list(masked.values())):
        span = masked[keys[index]]
        yield _row(keys[index], span, _evenly(span, loss), model, value=loss)
    pairs = {key: question for key, question in wanted.items() if isinstance(question, Pair)}
    keys = list(pairs)
    for index, cosine in model.cosines(list(pairs.values())):
        yield _row(keys[index], pairs[keys[index]], _NOTHING, model, value=cosine)


def _chains(wanted: Mapping[str, Question]) -> dict[str, Chain]:
    """Every chain that is asked for, or that something is asked behind."""
    found: dict[str, Chain] = {}
    for key, question in wanted.items():
        if isinstance(question, Chain):
            found[key] = question
        elif isinstance(question, Conclusion):
            found.setdefault(question.chain.key, question.chain)
    return found


def _sampled(model: Model, chains: list[Chain]) -> Iterator[tuple[int, TokenScores]]:
    """What the model makes of the chains; ModelError where it can't."""
    if not chains:
        return iter(())
    if not callable(getattr(model, "sample", None)):
        raise ModelError(
            f"{model.name} samples no text, which reading chain-of-thought asks for; use a model folder, or leave the "
            "protocol out"
        )
    return model.sample(chains)


_NOTHING = TokenScores(np.empty(0, dtype=np.int32), np.empty(0, dtype=np.float32), np.empty(0, dtype=np.int32))


def _evenly(span: Span, loss: float) -> TokenScores:
    """All that a loss tells of the tokens: their number and their mean; ranks are -1, not known."""
    tokens = span.continuation
    return TokenScores(tokens, np.full(len(tokens), -loss, dtype=np.float32), np.full(len(tokens), -1, dtype=np.int32))


def _text(model: Model, seen: TokenScores) -> str | None:
    """What was generated; nothing where the model answered with NaN, of which no token is the likeliest."""
    return None if np.isnan(seen.logprobs).any() else model.tokenizer.decode(seen.tokens)


def _row(
    key: str, question: Question, seen: TokenScores, model: Model, text: str | None = None, value: float | None = None
) -> dict[str, Any]:
    return {
        "key": key,
        "tokens": seen.tokens,
        "sizes": sizes(question, seen, model.tokenizer),
        "logprobs": seen.logprobs,
        "ranks": seen.ranks,
        "text": text,
        "value": value,
    }
