"""The keys of a run's observations, in the 16 bytes that each of them has."""

from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt

KEY_BYTES = 16

_Keys = npt.NDArray[np.bytes_]


class Keys:
    """A set of keys (:attr:`choicewise.questions.Span.key`), of which a run has millions."""

    def __init__(self, keys: Iterable[str] = ()) -> None:
        # Sorted arrays, each longer than the next: adding sorts every key only a few times.
        self._parts: list[_Keys] = []
        self.add(keys)

    def add(self, keys: Iterable[str]) -> None:
        """Put further keys into the set."""
        new = np.unique(_as_array(list(keys)))
        while self._parts and len(self._parts[-1]) <= 2 * len(new):
            new = np.unique(np.concatenate([self._parts.pop(), new]))
        if len(new):
            self._parts.append(new)

    def without(self, keys: Sequence[str]) -> list[str]:
        """Those of ``keys`` that are not in the set, in their order."""
        wanted = _as_array(keys)
        known = np.zeros(len(wanted), dtype=np.bool_)
        for part in self._parts:
            place = np.minimum(np.searchsorted(part, wanted), len(part) - 1)
            known |= part[place] == wanted
        return [key for key, is_known in zip(keys, known.tolist(), strict=True) if not is_known]


def _as_array(keys: Sequence[str]) -> _Keys:
    return np.frombuffer(bytes.fromhex("".join(keys)), dtype=f"S{KEY_BYTES}")
