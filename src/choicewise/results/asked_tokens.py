"""What a model was asked and scored on in tokens, whatever it answered."""

import hashlib

import numpy as np
import numpy.typing as npt

from choicewise.results.column import Name
from choicewise.results.observed_portion import ObservedPortion
from choicewise.results.row_bytes import row_bytes

_SIZE = 16
"""Bytes of the digest of an item's tokens."""


def tokens_column(null: str | None) -> Name:
    """The name of the column with :func:`token_digests` after the request's own context, or the ``null`` context."""
    return ("tokens", null)


def token_digests(portion: ObservedPortion, null: str | None) -> npt.NDArray[np.void]:
    """A digest per item, of its id and of every question about it: [items] of 16 bytes.

    The key of a question is made of its kind and the ids of its tokens, so neither the model's weights nor their type
    count.
    """
    rows = zip(row_bytes(portion.about["item"]), portion.questions(null), strict=True)
    digests = (hashlib.blake2b(item + asked, digest_size=_SIZE).digest() for item, asked in rows)
    return np.frombuffer(b"".join(digests), dtype=np.dtype((np.void, _SIZE)))
