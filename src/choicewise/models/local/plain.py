"""The reference computation.

Every faster way is compared with these few lines, in the tests and in the self-check on a user's own model.
``vocabulary`` is ``config.vocab_size`` throughout: the softmax runs over the model's own distribution, which includes
rows that the tokenizer never uses (as in the published implementations), and leaves out rows beyond it, which are
padding for the hardware.  Logits are the model's own, rounded to the dtype of its weights; everything after them is
float32.
"""

from __future__ import annotations

import copy
import os
from collections import Counter
from collections.abc import Collection, Sequence
from inspect import signature
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from choicewise.questions import Cosine, Generation, Ids, Mass, Span, TokenScores

SIGMAS = 6
"""Standard deviations of the measured errors that are called noise: 99 % of options lay within 5.1, on seven models, as
texts and as letters, in two dtypes; the tails are heavier than the normal distribution's."""

Sums = list[npt.NDArray[np.float64]]
"""For every question the log-probability (nats) of its first scored token, of its first two, and so on to all: as many
scores to compare as there are tokens."""

_MOVING = (
    "to",
    "cuda",
    "npu",
    "mlu",
    "sdaa",
    "musa",
    "xpu",
    "neuron",
)  # what accelerate puts into a spread model


@torch.inference_mode()
def score(model: Any, vocabulary: int, question: Span | Mass) -> TokenScores:
    """The answer of ``model`` (a transformers causal model) from one forward pass.

    Where a logit is NaN, so are the log-probabilities, and ranks are -1.
    """
    if isinstance(question, Mass):
        return _total(
            _logits(model, vocabulary, question.context, 1), question.members.below(vocabulary)
        )
    tokens = np.concatenate([question.context, question.continuation])
    return scores(
        _logits(model, vocabulary, tokens[:-1], len(question.continuation)), question.continuation
    )


@torch.inference_mode()
def generate(
    model: Any,
    vocabulary: int,
    generation: Generation,
    ends: Collection[int],
    token_bytes: Sequence[bytes] = (),
) -> TokenScores:
    """The tokens of a generation, greedy or sampled, every one from a forward pass of its own.

    It ends before a stop (found by ``token_bytes``) or at its limit; a greedy one also after the first token of
    ``ends``, a sampled one before it.  Log-probabilities are those of the raw logits over all tokens; of equal logits
    the lowest id is taken, and only tokens that the tokenizer knows are drawn.
    """
    sampling, tokens = generation.sampling, list[int]()
    rows = [torch.empty(0, vocabulary, device=model.device if sampling is None else "cpu")]
    while len(tokens) < generation.limit and not (
        sampling is None and tokens and tokens[-1] in ends
    ):
        row = _logits(
            model, vocabulary, np.append(generation.context, np.asarray(tokens, np.int32)), 1
        )
        if sampling is None:
            token = int(row.argmax())
        else:
            row = row.cpu()
            token = sampling.draw(
                row[0, : len(token_bytes)].double().softmax(0).numpy(), len(tokens)
            )
        if generation.stopped([*tokens, token], token_bytes) or (
            sampling is not None and token in ends
        ):
            break
        tokens.append(token)
        rows.append(row)
    return scores(torch.cat(rows), np.asarray(tokens, dtype=np.int32))


@torch.inference_mode()
def loss(model: Any, span: Span) -> float:
    """The model's own loss on one sequence, labels -100 outside the continuation, in nats per token."""
    tokens = torch.from_numpy(np.concatenate([span.context, span.continuation]).astype(np.int64))[
        None
    ]
    labels = tokens.clone()
    labels[:, : len(span.context)] = -100
    return float(
        model(
            input_ids=tokens.to(model.device), labels=labels.to(model.device), use_cache=False
        ).loss
    )


@torch.inference_mode()
def cosine(model: Any, question: Cosine) -> float:
    """The cosine of the last hidden states of two texts at their last tokens, each from a pass of its own."""
    states = []
    for text in (question.left, question.right):
        inputs = torch.from_numpy(text.astype(np.int64))[None].to(model.device)
        states.append(
            model(input_ids=inputs, output_hidden_states=True, use_cache=False).hidden_states[-1][
                0, -1
            ]
        )
    left, right = (state.double() for state in states)
    return float(torch.nn.functional.cosine_similarity(left, right, dim=0))


@torch.inference_mode()
def looks_ahead(model: Any, vocabulary: int) -> bool:
    """Whether another last token changes logits before it: such a model gives no log-likelihoods."""
    tokens = np.arange(8, dtype=np.int32) % vocabulary
    other = tokens.copy()
    other[-1] = vocabulary - 1
    left, right = (_logits(model, vocabulary, ids, len(ids))[:-1] for ids in (tokens, other))
    # A causal model's earlier rows are the same to the bit, or to rounding where experts share a matrix product.
    tolerance = max(1e-4, 8 * torch.finfo(model.dtype).eps)
    return bool((left - right).abs().max() > tolerance * left.abs().max())


def last_rows(model: Any, last: int) -> dict[str, int]:
    """The argument that saves the vocabulary at all but the ``last`` positions, where the model takes it."""
    return (
        {"logits_to_keep": last} if "logits_to_keep" in signature(model.forward).parameters else {}
    )


@torch.inference_mode()
def logits(model: Any, vocabulary: int, context: Ids, continuation: Ids) -> Tensor:
    """What the model says of each token of ``continuation`` before it comes, shape [tokens, vocabulary], float32."""
    return _logits(
        model, vocabulary, np.concatenate([context, continuation])[:-1], len(continuation)
    )


def scores(logits: Tensor, tokens: Ids) -> TokenScores:
    """The scores of ``tokens`` at the rows of ``logits``, shape [tokens, vocabulary]."""
    chosen = torch.from_numpy(tokens.astype(np.int64))[:, None].to(logits.device)
    logprobs = torch.log_softmax(logits, dim=-1).gather(1, chosen)[:, 0]
    ranks = (logits > logits.gather(1, chosen)).sum(dim=1).masked_fill(logprobs.isnan(), -1)
    return TokenScores(tokens, logprobs.cpu().numpy(), ranks.cpu().numpy().astype(np.int32))


def float32_copy(model: Any) -> Any | None:
    """A float32 copy of a 16-bit transformers ``model``, if it takes no more than half of each device's free memory."""
    if (
        model.dtype.itemsize >= 4
        or getattr(model, "is_quantized", False)
        or (getattr(model, "tp_size", 1) or 1) > 1
    ):
        return None  # of several ranks one could have the memory for it, and another one not
    needed = Counter[torch.device]()
    for parameter in model.parameters():
        needed[parameter.device] += 4 * parameter.numel()
    fits = all(size <= free_bytes(device) // 2 for device, size in needed.items())
    return copied(model).float() if fits else None


def copied(model: Any) -> Any:
    """A copy of a transformers ``model`` on the same devices, which is moved and converted by itself."""
    other = copy.deepcopy(model)
    for name in _MOVING:
        other.__dict__.pop(name, None)
    return other


def free_bytes(device: torch.device) -> int:
    """The memory that nobody uses now."""
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def running_sums(logprobs: npt.NDArray[np.float32]) -> npt.NDArray[np.float64]:
    """The log-probability of the first token, of the first two, and so on."""
    return logprobs.cumsum(dtype=np.float64)


def largest_difference(left: Sums, right: Sums) -> float:
    """The largest difference, in nats of one token: that of n tokens over √n.  Infinity where one is NaN."""
    return float(np.abs(np.nan_to_num(scaled_errors(left, right), nan=np.inf)).max())


def noise_of(left: Sums, right: Sums) -> float:
    """How far the log-probability of a token can be off, in nats, if errors add up as independent ones do.

    From single tokens, or from sums of n tokens over √n where those are further apart.
    """
    errors = [one - other for one, other in zip(left, right, strict=True)]
    tokens = np.concatenate([np.diff(sums, prepend=0.0) for sums in errors])
    return SIGMAS * float(
        max(np.sqrt(np.mean(tokens**2)), np.sqrt(np.mean(scaled_errors(left, right) ** 2)))
    )


def scaled_errors(left: Sums, right: Sums) -> npt.NDArray[np.float64]:
    """The difference of every score, that of a sum over n tokens divided by √n; nats of one token."""
    lengths = np.concatenate([np.arange(1, len(sums) + 1) for sums in left])
    return (np.concatenate(left) - np.concatenate(right)) / np.sqrt(lengths)


def _logits(model: Any, vocabulary: int, tokens: Ids, last: int) -> Tensor:
    """Logits at the ``last`` positions of ``tokens``, shape [last, vocabulary], float32."""
    inputs = torch.from_numpy(tokens.astype(np.int64))[None].to(model.device)
    logits = model(input_ids=inputs, use_cache=False, **last_rows(model, last)).logits
    return logits[0, -last:, :vocabulary].float()


def _total(logits: Tensor, members: Ids) -> TokenScores:
    """The likeliest of ``members`` with its rank, and the log of the probability of them all."""
    ids = torch.from_numpy(members.astype(np.int64)).to(logits.device)
    likeliest = scores(logits, members[int(logits[0, ids].argmax())][None])
    total = torch.log_softmax(logits, dim=-1)[0, ids].logsumexp(dim=0)
    return TokenScores(likeliest.tokens, total[None].cpu().numpy(), likeliest.ranks)
