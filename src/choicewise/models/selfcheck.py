"""The result of a model's check of itself: which compute path it takes, and how exact that is."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Trial:
    """One rung tried: the largest difference (nats a token) of a score from the reference, and why it was refused.

    The difference of a sum over n tokens counts 1 / √n, as independent errors grow.  The reference is the plain path,
    for a 16-bit model that of its float32 copy.
    """

    rung: str
    difference: float | None
    refused: str | None


@dataclass(frozen=True, slots=True)
class SelfCheck:
    """The rung taken, what it costs in words, and what was measured.

    ``floor``: the noise of the plain path, and ``tolerance``: how far a rung may be from the reference, both in nats a
    token as the ``difference``.  ``noise``: how far two ways of computing a token's log-probability differ, hardly ever
    exceeded; the noise of a sum over n tokens is √n times as large.  It is measured on the probe at first, then on
    answers of the run, which are compared with the plain path, that of a float32 copy of a 16-bit model.
    ``depth``: the probe's longest sequence, in tokens.
    """

    rung: str
    difference: float
    floor: float
    tolerance: float
    noise: float
    depth: int
    trials: tuple[Trial, ...]
    cost: str = ""
