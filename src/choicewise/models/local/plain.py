"""The plain reference: one sequence at a time, no cache, no padding, nothing shared.

Every faster way of scoring is held against these few lines, in the tests and in the self-check on a user's own model.
``vocabulary`` is ``config.vocab_size`` throughout: the softmax runs over the model's own distribution, which includes
rows that the tokenizer never uses (as in the published implementations), and leaves out rows beyond it, which are
padding for the hardware.  Logits are the model's own, rounded to the dtype of its weights; everything after them is
float32.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from inspect import signature
from typing import Any

import numpy as np
import torch

from choicewise.models.local.causal_lm import CausalLM, known
from choicewise.questions.cosine import Cosine
from choicewise.questions.generation import Generation
from choicewise.questions.mass import Mass
from choicewise.questions.span import Span
from choicewise.questions.token_scores import TokenScores


@torch.inference_mode()
def score(model: Any, vocabulary: int, question: Span | Mass) -> TokenScores:
    """What ``model`` (a transformers causal model) gives the continuation, or the set, in one forward pass.

    A logit that is not a number gives log-probabilities that are none either, and ranks of -1.
    """
    if isinstance(question, Mass):
        return _total(_logits(model, vocabulary, question.context, 1), known(question.members.ids, vocabulary))
    tokens = np.concatenate([question.context, question.continuation])
    return _observe(_logits(model, vocabulary, tokens[:-1], len(question.continuation)), question.continuation)


@torch.inference_mode()
def generate(model: Any, vocabulary: int, prompt: Generation, ends: Collection[int]) -> TokenScores:
    """The greedy tokens after ``prompt``, every one from a forward pass of its own.

    Stops behind the first token of ``ends`` (which is kept) or after ``new_tokens``.  Log-probabilities are those of
    the raw logits; of equal logits the lowest id is taken.
    """
    tokens = prompt.context
    rows: list[torch.Tensor] = []
    while len(rows) < prompt.limit and not (rows and tokens[-1] in ends):
        rows.append(_logits(model, vocabulary, tokens, 1))
        tokens = np.append(tokens, np.int32(rows[-1].argmax()))
    return _observe(torch.cat(rows), tokens[len(prompt.context) :])


@torch.inference_mode()
def sample(
    model: Any, vocabulary: int, chain: Generation, ends: Collection[int], token_bytes: Sequence[bytes]
) -> TokenScores:
    """The tokens of ``chain``, every one drawn from a forward pass of its own.

    Only tokens that the tokenizer knows are drawn; log-probabilities are those of the raw logits over all.
    """
    drawn: list[int] = []
    rows = [torch.empty(0, vocabulary)]
    while len(drawn) < chain.limit:
        row = _logits(model, vocabulary, np.append(chain.context, np.asarray(drawn, dtype=np.int32)), 1).cpu()
        token = chain.sampled.draw(row[0, : len(token_bytes)].double().softmax(0).numpy(), len(drawn))
        if token in ends or chain.stopped([*drawn, token], token_bytes):
            break
        drawn.append(token)
        rows.append(row)
    return _observe(torch.cat(rows), np.asarray(drawn, dtype=np.int32))


@torch.inference_mode()
def masked(model: Any, span: Span) -> float:
    """The model's own loss on one whole sequence, labels -100 outside the continuation, in nats per token."""
    tokens = torch.from_numpy(np.concatenate([span.context, span.continuation]).astype(np.int64))[None]
    labels = tokens.clone()
    labels[:, : len(span.context)] = -100
    return float(model(input_ids=tokens.to(model.device), labels=labels.to(model.device), use_cache=False).loss)


@torch.inference_mode()
def cosine(model: Any, pair: Cosine) -> float:
    """The cosine of the last hidden states of two texts at their last tokens, each from a pass of its own."""
    states = []
    for text in (pair.left, pair.right):
        inputs = torch.from_numpy(text.astype(np.int64))[None].to(model.device)
        states.append(model(input_ids=inputs, output_hidden_states=True, use_cache=False).hidden_states[-1][0, -1])
    left, right = (state.double() for state in states)
    return float(torch.nn.functional.cosine_similarity(left, right, dim=0))


@contextmanager
def counted(lm: CausalLM) -> Iterator[None]:
    """Adds to ``lm.computed`` every input token of the whole model's passes meanwhile, as often as it goes through."""

    def add(_: Any, __: Any, inputs: dict[str, Any]) -> None:
        lm.computed += inputs["input_ids"].numel()

    hook = lm.model.register_forward_pre_hook(add, with_kwargs=True)
    try:
        yield
    finally:
        hook.remove()


@torch.inference_mode()
def looks_ahead(model: Any, vocabulary: int) -> bool:
    """Whether another last token changes what the model says before it: such a model gives no log-likelihoods."""
    tokens = np.arange(8, dtype=np.int32) % vocabulary
    other = tokens.copy()
    other[-1] = vocabulary - 1
    left, right = (_logits(model, vocabulary, ids, len(ids))[:-1] for ids in (tokens, other))
    # A causal model's earlier rows are the same to the bit, or to rounding where experts share a matrix product.
    tolerance = max(1e-4, 8 * torch.finfo(model.dtype).eps)
    return bool((left - right).abs().max() > tolerance * left.abs().max())


def _logits(model: Any, vocabulary: int, tokens: np.ndarray[Any, Any], last: int) -> torch.Tensor:
    """Logits at the ``last`` positions of ``tokens``, shape [last, vocabulary], float32."""
    inputs = torch.from_numpy(tokens.astype(np.int64))[None].to(model.device)
    # Where the model can leave the other rows out, a large vocabulary at every position costs nothing.
    only = {"logits_to_keep": last} if "logits_to_keep" in signature(model.forward).parameters else {}
    logits = model(input_ids=inputs, use_cache=False, **only).logits
    return logits[0, -last:, :vocabulary].float()


def _total(logits: torch.Tensor, members: np.ndarray[Any, Any]) -> TokenScores:
    """The likeliest of ``members`` with its rank, and the log-probability that the next token is one of them."""
    ids = torch.from_numpy(members.astype(np.int64)).to(logits.device)
    likeliest = _observe(logits, members[int(logits[0, ids].argmax())][None])
    total = torch.log_softmax(logits, dim=-1)[0, ids].logsumexp(dim=0)
    return TokenScores(likeliest.tokens, total[None].cpu().numpy(), likeliest.ranks)


def _observe(logits: torch.Tensor, tokens: np.ndarray[Any, Any]) -> TokenScores:
    chosen = torch.from_numpy(tokens.astype(np.int64))[:, None].to(logits.device)
    logprobs = torch.log_softmax(logits, dim=-1).gather(1, chosen)[:, 0]
    ranks = (logits > logits.gather(1, chosen)).sum(dim=1).masked_fill(logprobs.isnan(), -1)
    return TokenScores(tokens, logprobs.cpu().numpy(), ranks.cpu().numpy().astype(np.int32))
