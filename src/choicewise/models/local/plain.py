"""Compute answers plainly: the reference for every faster way.

Faster ways are compared with these few lines, in the tests and in the self-check on a user's model.
``vocabulary`` is ``config.vocab_size`` throughout: the softmax runs over the model's distribution,
which includes rows that the tokenizer never uses (as in the published implementations), and leaves
out rows beyond it, which are padding for the hardware.  Logits are those of the model, rounded to
the dtype of its weights; everything after them is float32.
"""

from __future__ import annotations

import copy
import os
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from inspect import signature
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from choicewise.questions import Cosine, Generation, Ids, Mass, Span, StopSearch, TokenScores

SIGMAS = 6
"""Standard deviations of the measured errors that are called noise.

99 % of options lay within 5.1, on seven models, as texts and as letters, in two dtypes; the tails
are heavier than the normal distribution's.
"""

Sums = list[npt.NDArray[np.float64]]
"""For every question the log-probability (nats) of its first scored token, of its first two, ...

So there are as many scores to compare as there are tokens.
"""

ScoreTokens = Callable[[Tensor, Tensor, Tensor], tuple[Tensor, Tensor]]
"""Scores tokens at rows of logits, as :func:`score_tokens` does."""

# What accelerate puts into a spread model.
_MOVING = ("to", "cuda", "npu", "mlu", "sdaa", "musa", "xpu", "neuron")


@torch.inference_mode()
def score(model: Any, vocabulary: int, question: Span | Mass) -> TokenScores:
    """Return the answer of ``model`` (a transformers causal model) from one forward pass.

    If a logit is NaN, so are the log-probabilities, and ranks are -1.
    """
    if isinstance(question, Mass):
        row = _logits(model, vocabulary, question.context, 1)
        return _total(row, question.members.below(vocabulary))
    rows = logits(model, vocabulary, question.context, question.continuation)
    return scores(rows, question.continuation)


@torch.inference_mode()
def generate(
    model: Any,
    vocabulary: int,
    generation: Generation,
    ends: Collection[int],
    token_bytes: Sequence[bytes] = (),
) -> TokenScores:
    """Return the tokens of a generation, greedy or sampled, each from a forward pass.

    It ends before a stop (found by ``token_bytes``) or at its limit; a greedy one also after the
    first token of ``ends``, a sampled one before it.  Log-probabilities are those of the raw logits
    over all tokens; of equal logits the lowest id is taken, and only tokens that the tokenizer
    knows are drawn.
    """
    sampling = generation.sampling
    device = model.device if sampling is None else "cpu"
    rows = [torch.empty(0, vocabulary, device=device)]
    tokens: list[int] = []
    stops = StopSearch(generation)
    is_stopped = False
    while len(tokens) < generation.limit and not is_stopped:
        text = np.append(generation.context, np.asarray(tokens, np.int32))
        row = _logits(model, vocabulary, text, 1).to(device)
        if sampling is None:
            token = int(row.argmax())
        else:
            shares = row[0, : len(token_bytes)].double().softmax(0).numpy()
            token = sampling.draw(shares, len(tokens))
        is_end = token in ends
        is_stopped = stops.add(generation.spelled(token, token_bytes))
        if is_stopped and not generation.keep_stop:
            break
        if sampling is not None and is_end:
            break
        tokens.append(token)
        rows.append(row)
        if is_end:
            break
    return scores(torch.cat(rows), np.asarray(tokens, dtype=np.int32))


@torch.inference_mode()
def loss(model: Any, span: Span) -> float:
    """Return the loss that the model computes on one sequence, in nats per token.

    Labels are -100 outside the continuation.
    """
    ids = np.concatenate([span.context, span.continuation]).astype(np.int64)
    tokens = torch.from_numpy(ids)[None].to(model.device)
    labels = tokens.clone()
    labels[:, : len(span.context)] = -100
    return float(model(input_ids=tokens, labels=labels, use_cache=False).loss)


@torch.inference_mode()
def cosine(model: Any, question: Cosine) -> float:
    """Return the cosine of the last hidden states of two texts, each from its forward pass."""
    left = _last_state(model, question.left)
    right = _last_state(model, question.right)
    return float(torch.nn.functional.cosine_similarity(left, right, dim=0))


def _last_state(model: Any, text: Ids) -> Tensor:
    """Return the last hidden state at the last token of a text, in float64."""
    inputs = torch.from_numpy(text.astype(np.int64))[None].to(model.device)
    output = model(input_ids=inputs, output_hidden_states=True, use_cache=False)
    state: Tensor = output.hidden_states[-1][0, -1]
    return state.double()


@torch.inference_mode()
def looks_ahead(model: Any, vocabulary: int) -> bool:
    """Check that another last token changes logits before it: then there are no log-likelihoods."""
    tokens = np.arange(8, dtype=np.int32) % vocabulary
    other = tokens.copy()
    other[-1] = vocabulary - 1
    left = _logits(model, vocabulary, tokens, len(tokens))[:-1]
    right = _logits(model, vocabulary, other, len(other))[:-1]
    # A causal model's earlier rows are the same to the bit, or to rounding if experts share a
    # matrix product.
    tolerance = max(1e-4, 8 * torch.finfo(model.dtype).eps)
    return bool((left - right).abs().max() > tolerance * left.abs().max())


def last_rows(model: Any, last: int) -> dict[str, int]:
    """Return the argument that saves the vocabulary at all but the ``last`` positions, if it has
    one.
    """
    if "logits_to_keep" not in signature(model.forward).parameters:
        return {}
    return {"logits_to_keep": last}


@torch.inference_mode()
def logits(model: Any, vocabulary: int, context: Ids, continuation: Ids) -> Tensor:
    """Return the logits for each token of ``continuation``, shape [tokens, vocabulary], float32."""
    tokens = np.concatenate([context, continuation])[:-1]
    return _logits(model, vocabulary, tokens, len(continuation))


def scores(logits: Tensor, tokens: Ids) -> TokenScores:
    """Return the scores of ``tokens`` at the rows of ``logits``, shape [tokens, vocabulary]."""
    chosen = torch.from_numpy(tokens.astype(np.int64))[:, None].to(logits.device)
    logprobs = torch.log_softmax(logits, dim=-1).gather(1, chosen)[:, 0]
    ranks = (logits > logits.gather(1, chosen)).sum(dim=1).masked_fill(logprobs.isnan(), -1)
    return TokenScores(tokens, logprobs.cpu().numpy(), ranks.cpu().numpy().astype(np.int32))


def score_tokens(logits: Tensor, rows: Tensor, tokens: Tensor) -> tuple[Tensor, Tensor]:
    """Return log-probabilities (float32) of ``tokens`` at ``rows`` of ``logits``, and their ranks.

    Compiled, it passes over the logits without a copy of them; here they are copied to float32.
    """
    logprobs = torch.log_softmax(logits, dim=-1, dtype=torch.float32)[rows, tokens]
    row_of_read = logits if len(rows) == len(logits) else logits.index_select(0, rows)
    is_greater = row_of_read > row_of_read.gather(1, tokens[:, None])
    return logprobs, is_greater.sum(dim=1, dtype=torch.int32)


def float32_copy(model: Any) -> Any | None:
    """Return a float32 copy of a 16-bit transformers ``model``.

    None if it takes more than half of a device's free memory, or the model needs no copy.
    """
    if model.dtype.itemsize >= 4 or getattr(model, "is_quantized", False):
        return None
    if (getattr(model, "tp_size", 1) or 1) > 1:
        # Of several ranks one could have the memory for it, and another one not.
        return None
    needed = Counter[torch.device]()
    for parameter in model.parameters():
        needed[parameter.device] += 4 * parameter.numel()
    for device, size in needed.items():
        if size > free_bytes(device) // 2:
            return None
    return copied(model).float()


def copied(model: Any) -> Any:
    """Copy a transformers ``model`` on the same devices; the copy can be moved and converted."""
    other = copy.deepcopy(model)
    for name in _MOVING:
        other.__dict__.pop(name, None)
    return other


def free_bytes(device: torch.device) -> int:
    """Return the bytes of memory that nobody uses now."""
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def running_sums(logprobs: npt.NDArray[np.float32]) -> npt.NDArray[np.float64]:
    """Return the log-probability of the first token, of the first two, and so on."""
    return logprobs.cumsum(dtype=np.float64)


def largest_difference(left: Sums, right: Sums) -> float:
    """Return the largest difference, in nats of one token: that of n tokens over √n.

    It is infinite if one is NaN.
    """
    return float(np.abs(np.nan_to_num(scaled_errors(left, right), nan=np.inf)).max())


def noise_of(left: Sums, right: Sums) -> float:
    """Return how far the log-probability of a token can be off, in nats.

    Errors are taken to add up as independent ones do: it is found from single tokens, or from sums
    of n tokens over √n if those are further apart.
    """
    errors = [one - other for one, other in zip(left, right, strict=True)]
    tokens = np.concatenate([np.diff(sums, prepend=0.0) for sums in errors])
    of_tokens = np.sqrt(np.mean(tokens**2))
    of_sums = np.sqrt(np.mean(scaled_errors(left, right) ** 2))
    return SIGMAS * float(max(of_tokens, of_sums))


def scaled_errors(left: Sums, right: Sums) -> npt.NDArray[np.float64]:
    """Return the difference of every score, that of n tokens over √n, in nats of one token."""
    lengths = np.concatenate([np.arange(1, len(sums) + 1) for sums in left])
    return (np.concatenate(left) - np.concatenate(right)) / np.sqrt(lengths)


def _logits(model: Any, vocabulary: int, tokens: Ids, last: int) -> Tensor:
    """Return logits at the ``last`` positions of ``tokens``, shape [last, vocabulary], float32."""
    inputs = torch.from_numpy(tokens.astype(np.int64))[None].to(model.device)
    logits = model(input_ids=inputs, use_cache=False, **last_rows(model, last)).logits
    return logits[0, -last:, :vocabulary].float()


def _total(logits: Tensor, members: Ids) -> TokenScores:
    """Return the likeliest of ``members`` with its rank, and the log-probability of them all."""
    ids = torch.from_numpy(members.astype(np.int64)).to(logits.device)
    likeliest = scores(logits, members[int(logits[0, ids].argmax())][None])
    total = torch.log_softmax(logits, dim=-1)[0, ids].logsumexp(dim=0)
    return TokenScores(likeliest.tokens, total[None].cpu().numpy(), likeliest.ranks)
