"""The items that some views draw at random to show them in several orders."""

import hashlib
import math

from choicewise.data.dataset import Dataset

SHARE = 0.05
"""Of the items with as many choices each, at least one (5 %: Zheng et al. 2024)."""

_latest: dict[tuple[str, str, int], frozenset[str]] = {}
"""The last draw, by digest of the dataset, split and seed: every block of items asks for it again."""


def drawn_items(data: Dataset, split: str, seed: int) -> frozenset[str]:
    """The ids of the drawn items of ``split``: those whose hashes with ``seed`` are the smallest of their kind.

    So neither the order of the items nor which of them a run is about changes the draw.
    """
    key = data.digest, split, seed
    if (latest := _latest.get(key)) is None:  # threads that draw others may clear it at any time
        hashes: dict[int, list[tuple[bytes, str]]] = {}
        for item in data.splits.get(split, ()):
            text = f"{seed}|{item.id}".encode(errors="surrogatepass")
            hashes.setdefault(len(item.choices), []).append((hashlib.blake2b(text, digest_size=8).digest(), item.id))
        drawn = (sorted(kind)[: max(1, math.floor(SHARE * len(kind)))] for kind in hashes.values())
        latest = frozenset(id_ for kind in drawn for _, id_ in kind)
        _latest.clear()
        _latest[key] = latest
    return latest
