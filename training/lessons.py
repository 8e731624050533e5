"""What a model is taught beside the next token: where to have recalled an answer, and where to look for its letter.

A model this small finds out by itself what the answers are, but not in a thousand times the text how an answer leads
to its letter, because no step of it helps before all are there. So each step is taught apart: a middle layer names the
answer's words before a letter is asked for; one head carries each letter to the tokens of its choice; a later head
looks for the choice with the recalled words. That the letter found is then the answer, it learns from the text.
"""

import math
from dataclasses import dataclass

import torch
from recipe import Lessons
from rows import Place, Rows
from torch import Tensor
from transformers import AttentionInterface, LlamaForCausalLM

NEVER = -1e9  # score of what is not attended to
HEAD = 0  # the head of a layer that lessons are about


@dataclass(frozen=True)
class Looked:
    """Queries and keys [rows, heads, length, width] of a layer, positions included."""

    queries: Tensor
    keys: Tensor


_looked: dict[int, Looked] = {}


def _watched(module, query, key, value, attention_mask, **options):  # type: ignore[no-untyped-def]
    """Causal attention that keeps the queries and keys of the layer."""
    _looked[module.layer_idx] = Looked(query, key)
    mixed = torch.nn.functional.scaled_dot_product_attention(query, key, value, is_causal=True)
    return mixed.transpose(1, 2).contiguous(), None


AttentionInterface.register("watched", _watched)


@dataclass(frozen=True)
class Losses:
    """Mean losses in nats: of the next token (weighted), and of each lesson, 0 where it is not taught."""

    tokens: Tensor
    recall: Tensor
    label: Tensor
    match: Tensor

    def total(self, lesson: float) -> Tensor:
        """The loss to train on; ``lesson``: the weight of each lesson."""
        return self.tokens + lesson * (self.recall + self.label + self.match)


def losses(model: LlamaForCausalLM, rows: Rows, lessons: Lessons | None) -> Losses:
    """The losses of a model that was made with the attention "watched"."""
    passed = model(input_ids=rows.ids, use_cache=False, output_hidden_states=lessons is not None)
    logits, weights = passed.logits[:, :-1], rows.weights[:, 1:]
    each = torch.nn.functional.cross_entropy(
        logits.flatten(0, 1), rows.ids[:, 1:].flatten(), reduction="none"
    )
    tokens = (each * weights.flatten()).sum() / weights.sum()
    if lessons is None:
        return Losses(tokens, *torch.zeros(3))
    middle = passed.hidden_states[lessons.recall + 1]
    return Losses(
        tokens,
        recall(middle, model.get_output_embeddings().weight, rows)
        if rows.recalled
        else tokens.new_zeros(()),
        label(_looked[lessons.label], rows) if rows.labelled else tokens.new_zeros(()),
        match(_looked[lessons.match], rows) if rows.matched else tokens.new_zeros(()),
    )


def recall(hidden: Tensor, embedding: Tensor, rows: Rows) -> Tensor:
    """How badly the hidden states [rows, length, width] name the words of the answers that come next."""
    asked = _at(hidden, [place for place, _ in rows.recalled])
    named = torch.nn.functional.rms_norm(asked, asked.shape[-1:]) @ embedding.T
    answer, token = torch.tensor(
        [(i, t) for i, (_, words) in enumerate(rows.recalled) for t in words]
    ).T
    share = torch.tensor([1 / len(words) for _, words in rows.recalled for _ in words])
    return -(named.log_softmax(-1)[answer, token] * share).sum() / len(rows.recalled)


def label(looked: Looked, rows: Rows) -> Tensor:
    """How little the tokens of a choice attend to its letter."""
    attention = attended(looked, [place for place, _ in rows.labelled])
    letters = torch.tensor([letter for _, letter in rows.labelled])
    return -attention.gather(1, letters[:, None]).mean()


def match(looked: Looked, rows: Rows) -> Tensor:
    """How little the token before a letter attends to the choice that the letter stands for."""
    attention = attended(looked, [place for place, _, _ in rows.matched])
    token = torch.arange(attention.shape[1])
    first, last = (
        torch.tensor(edge)[:, None]
        for edge in zip(*(edges for _, *edges in rows.matched), strict=True)
    )
    right = (first <= token) & (token <= last)
    return -attention.masked_fill(~right, NEVER).logsumexp(1).mean()


def attended(looked: Looked, places: list[Place]) -> Tensor:
    """Log attention [places, length] of the head that is taught."""
    queries, keys = looked.queries[:, HEAD], looked.keys[:, HEAD]
    row, token = torch.tensor(places).T
    scores = (queries @ keys.transpose(1, 2))[row, token] / math.sqrt(queries.shape[-1])
    later = torch.arange(scores.shape[1]) > token[:, None]
    return scores.masked_fill(later, NEVER).log_softmax(-1)


def _at(values: Tensor, places: list[Place]) -> Tensor:
    row, token = torch.tensor(places).T
    return values[row, token]
