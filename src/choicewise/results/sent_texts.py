"""The texts that were sent to a model, whatever its tokenizer."""

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise, zip_longest

import numpy as np
import numpy.typing as npt

from choicewise.results.column import Name, Reductions
from choicewise.results.measurement import Measurement
from choicewise.results.observed_portion import ObservedPortion
from choicewise.results.pairing import shared_items
from choicewise.results.row_bytes import row_bytes
from choicewise.results.run_evidence import RunEvidence

BEFORE, SHOWN = 20, 80
"""Characters shown of a text: before its first difference, and in all."""

TEXTS: Name = ("texts",)
"""The name of the column with :func:`text_digests`."""

PARTS = ("prompt", "continuations", "choices as shown", "right answers")
"""What is sent or decides what is right, in the order in which it is compared."""

_TOLD = ("context", "continuations", "options", "gold")
"""The columns of the requests that hold the ``PARTS``, of which the digests are made."""

_SIZE = 16
"""Bytes of the digest of an item's texts."""


@dataclass(frozen=True, slots=True)
class FirstDifference:
    """The first item whose texts differ, with the two texts from shortly before the first other character.

    ``part``: one of ``PARTS``, the first that differs; ``place``: characters of it that agree, counted from its start.
    ``items``: how many of the shared items have other texts.
    """

    item: str
    part: str
    place: int
    left: str
    right: str
    items: int


def read_texts(evidence: RunEvidence, prompts: Iterable[str]) -> None:
    """Read the texts under all ``prompts`` at once, so that what is asked about them needs no further reading."""
    wanted: Reductions = {TEXTS: text_digests}
    evidence.gather(dict.fromkeys(prompts, wanted), texts=True)


def first_difference(
    runs: tuple[RunEvidence, RunEvidence], pair: tuple[Measurement, Measurement]
) -> FirstDifference | None:
    """The first item of the left measurement that the right one has with other texts; None where there is none."""
    ids, places = shared_items(pair)
    digests = [each.evidence.columns[TEXTS][place] for each, place in zip(pair, places, strict=True)]
    differing = np.flatnonzero(digests[0] != digests[1])
    if not len(differing):
        return None
    texts = (
        _texts(run, each, int(each.evidence.items[place[differing[0]]]))
        for run, each, place in zip(runs, pair, places, strict=True)
    )
    part, (one, other) = next((part, both) for part, *both in zip(PARTS, *texts, strict=True) if both[0] != both[1])
    first = next(place for place, (a, b) in enumerate(zip_longest(one, other)) if a != b)
    shown = slice(max(0, first - BEFORE), max(0, first - BEFORE) + SHOWN)
    return FirstDifference(ids[differing[0]].as_py(), part, first, one[shown], other[shown], len(differing))


def text_digests(portion: ObservedPortion) -> npt.NDArray[np.void]:
    """A digest per item, of its id, its texts, its choices as shown and its right answers: [items] of 16 bytes."""
    columns = [portion.about["item"], *(portion.requests[name] for name in _TOLD)]
    rows = zip(*map(row_bytes, columns), strict=True)
    digests = (hashlib.blake2b(b"".join(row), digest_size=_SIZE).digest() for row in rows)
    return np.frombuffer(b"".join(digests), dtype=np.dtype((np.void, _SIZE)))


def same_sent(runs: tuple[RunEvidence, RunEvidence], pair: tuple[Measurement, Measurement]) -> bool:
    """Whether every shared item was asked in the same texts with the same right answers, however they were made."""
    _, places = shared_items(pair)
    left, right = (
        _sent(run, each.protocol.prompt_digest)[place] for run, each, place in zip(runs, pair, places, strict=True)
    )
    return bool((left == right).all())


def _sent(run: RunEvidence, prompt: str) -> npt.NDArray[np.void]:
    """The digests of all items under a prompt, in the order of the evidence."""
    portions = (ObservedPortion(tables, prompt) for tables in run.whole_portions())
    return np.concatenate([np.empty(0, np.dtype((np.void, _SIZE))), *map(sent_digests, portions)])


def sent_digests(portion: ObservedPortion) -> npt.NDArray[np.void]:
    """The same without the choices as shown, and with the contexts that choices have of their own."""
    columns = [portion.about["item"], *(portion.requests[name] for name in _TOLD if name != "options")]
    own = portion.own_contexts
    contexts = [repr(own[start:end]).encode() for start, end in pairwise(portion.item_offsets.tolist())]
    rows = zip(*map(row_bytes, columns), contexts, strict=True)
    digests = (hashlib.blake2b(b"".join(row), digest_size=_SIZE).digest() for row in rows)
    return np.frombuffer(b"".join(digests), dtype=np.dtype((np.void, _SIZE)))


def _texts(run: RunEvidence, measured: Measurement, item: int) -> tuple[str, str, str, str]:
    """The ``PARTS`` of the item at that place of the item table; why it could not be asked in place of its prompt."""
    (tables,) = RunEvidence(run.folder, run.manifest, only=[item]).portion_tables()
    requests = ObservedPortion(tables, measured.protocol.prompt_digest).requests
    context, *lists = (requests[name][0].as_py() for name in _TOLD)
    continuations, options, gold = ("|".join(map(str, each or ())) for each in lists)
    return (f"({requests['missing'][0].as_py()})" if context is None else context), continuations, options, gold
