"""Shards: the parts of a token tree that are computed alone.

The parts follow from the questions alone, not from how many replicas there are: so one process and a cluster compute
the same trees, and their numbers agree to the bit.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from choicewise.engine import Sequences
from choicewise.models.model import SERVER
from choicewise.questions import Blanks, Conclusion, Cosine, Generation, Ids, MaskedLoss, Mass, Rendition, Span
from choicewise.requests.request import BlockQuestion
from choicewise.tokens.byte_coverings import ByteProbability
from choicewise.tokens.tokenizer import Tokenizer, vocabulary

SHARD_TOKENS = {"cpu": 32_768, SERVER: None}
"""Unique tokens of a shard at least, by device: a few packs, so that few of them are small.  None: all of a block, as a
server divides the work itself."""

DEVICE_TOKENS = 131_072
"""The same on all other devices, whose packs are larger."""

SHARE = 64
"""A cut costs the tokens of the path that both sides share; the shard before it has so many times as many."""

WINDOW = 16
"""A cut is made where the path is shortest, within this part of a shard's tokens after those it has at least."""

Integers = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Shard:
    """``questions`` by key, whose answers need no other shard.

    ``depth``: input tokens of the longest question of the run so far, up to which the model checks itself.
    """

    questions: Mapping[str, BlockQuestion]
    depth: int

    def complete(self, tokenizer: Tokenizer) -> dict[str, BlockQuestion]:
        """The questions where they are answered: vocabularies are too large to be sent, and are there already."""
        asked = dict(self.questions)
        for key, question in asked.items():
            if isinstance(question, ByteProbability):
                asked[key] = replace(question, vocabulary=vocabulary(tokenizer))
        return asked


def shard_tokens(device: str) -> int | None:
    """How many tokens a shard has at least where a model computes on ``device``; None: all of a block."""
    return SHARD_TOKENS.get(device.partition(":")[0], DEVICE_TOKENS)


def cut_shards(questions: Mapping[str, BlockQuestion], tokens: int | None) -> Iterator[dict[str, BlockQuestion]]:
    """The ``questions`` in shards of at least ``tokens`` unique tokens, but for the last, in the order of their tree.

    A generation and what follows it are in one shard, as are all questions with the same input.  A shard is longer
    where questions share a long context: cutting there would have it computed twice.
    """
    asked = list(questions.values())
    if tokens is None or sum(question.inputs for question in asked) <= tokens:
        if asked:
            yield dict(questions)
        return
    sequences = Sequences([_shared(question) for question in asked])
    lengths = sequences.context_lengths + sequences.inputs
    own = np.zeros(len(sequences), dtype=np.int64)
    np.add.at(own, sequences.span_of, [question.inputs for question in asked] - lengths[sequences.span_of])
    starts = _starts(sequences.common, lengths - sequences.common + np.maximum(own, 0), tokens)
    keys, order = list(questions), np.argsort(sequences.span_of, kind="stable")
    edges = np.searchsorted(sequences.span_of[order], [*starts, len(sequences)])
    for first, end in pairwise(edges):
        places = np.sort(order[first:end])  # in the order in which they were asked
        yield {keys[place]: asked[place] for place in places.tolist()}


def _starts(common: Integers, new: Integers, tokens: int) -> list[int]:
    """The first sequence of every shard; sequences have ``common`` tokens with the one before, and ``new`` ones."""
    before = np.cumsum(new) - new
    worth = before - SHARE * common  # a cut is worth its cost where this is no less than the tokens before the shard
    starts = [0]
    while True:
        least = int(np.searchsorted(before, before[starts[-1]] + tokens))
        most = int(np.searchsorted(before, before[starts[-1]] + tokens + tokens // WINDOW))
        if least >= len(new):
            return starts
        place = least + int(common[least : most + 1].argmin())
        if worth[place] < before[starts[-1]]:
            later = np.flatnonzero(worth[least:] >= before[starts[-1]])
            if not len(later):
                return starts
            place = least + int(later[0])
        starts.append(place)


def _shared(question: BlockQuestion) -> Span:
    """A span whose inputs are those tokens of ``question`` that other questions may begin with, too."""
    match question:
        case Span():
            return question
        case MaskedLoss():
            return question.span
        case Conclusion():
            return _input(question.generation.context)
        case Mass() | ByteProbability() | Generation():
            return _input(question.context)
        case Cosine():
            return _input(question.left)
        case Blanks():
            return _input(question.text)
        case Rendition():
            return _input(question.source)


def _input(text: Ids) -> Span:
    return Span(text, text[:1])
