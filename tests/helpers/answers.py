"""What models are asked and answer, in tests."""

from collections.abc import Iterable

import numpy as np

from choicewise.questions import Ids, TokenScores


def ids(*tokens: int) -> Ids:
    return np.asarray(tokens, dtype=np.int32)


def in_order(answers: Iterable[tuple[int, TokenScores]]) -> list[TokenScores]:
    """The answers in the order of their questions, of which each has one."""
    found = sorted(answers, key=lambda answer: answer[0])
    assert [index for index, _ in found] == list(range(len(found)))
    return [scores for _, scores in found]


def assert_same_scores(
    seen: Iterable[TokenScores], truth: Iterable[TokenScores], atol: float = 2e-5
) -> None:
    """As many answers, of the same tokens and ranks, whose log-probabilities differ by at most ``atol``."""
    for one, other in zip(seen, truth, strict=True):
        assert (one.tokens.tolist(), one.ranks.tolist()) == (
            other.tokens.tolist(),
            other.ranks.tolist(),
        )
        np.testing.assert_allclose(one.logprobs, other.logprobs, rtol=1e-6, atol=atol)
        assert one.logprobs.dtype == np.float32
