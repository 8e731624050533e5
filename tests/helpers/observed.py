"""Made-up observations for the tests of scores: a plain row per choice, and random ones."""

from dataclasses import dataclass

import numpy as np
from hypothesis import strategies as st

from choicewise.scoring.observed import Continuations


@dataclass(frozen=True)
class Row:
    """One choice of one item, as plain lists; no tokens means missing."""

    text: str = " x"
    logprobs: tuple[float, ...] = ()
    tokens: tuple[int, ...] = ()
    sizes: tuple[int, ...] = ()
    ranks: tuple[int, ...] = ()


def row(text: str, *logprobs: float, **columns: tuple[int, ...]) -> Row:
    """A row with the given log-probabilities; ids, sizes and ranks are made up unless given."""
    count = len(logprobs)
    made_up = {"tokens": tuple(range(count)), "sizes": (1,) * count, "ranks": (0,) * count}
    return Row(text, tuple(float(np.float32(value)) for value in logprobs), **(made_up | columns))


def continuations(items: list[list[Row]]) -> Continuations:
    """The rows of every item as one ragged array."""
    rows = [choice for item in items for choice in item]

    def flat(name: str, dtype: type) -> np.ndarray:
        return np.array([value for choice in rows for value in getattr(choice, name)], dtype=dtype)

    return Continuations(
        tokens=flat("tokens", np.int32),
        logprobs=flat("logprobs", np.float32),
        sizes=flat("sizes", np.int32),
        ranks=flat("ranks", np.int32),
        offsets=np.cumsum([0] + [len(choice.logprobs) for choice in rows]).astype(np.int64),
        text=tuple(choice.text for choice in rows),
        item_offsets=np.cumsum([0] + [len(item) for item in items]).astype(np.int64),
    )


def random_rows(*, least_tokens: int = 0) -> st.SearchStrategy[Row]:
    """A choice of up to five tokens from a small vocabulary, sometimes missing."""
    token = st.tuples(
        st.floats(-30, 0, width=32), st.integers(0, 5), st.integers(0, 5), st.integers(0, 200)
    )
    return st.builds(
        lambda text, tokens: Row(text, *zip(*tokens, strict=True)),
        st.text(" aß漢🙂", max_size=6),
        st.lists(token, min_size=least_tokens, max_size=5),
    )


def random_items(*, least_tokens: int = 0) -> st.SearchStrategy[list[list[Row]]]:
    """Up to four items of up to four choices each."""
    return st.lists(st.lists(random_rows(least_tokens=least_tokens), max_size=4), max_size=4)
