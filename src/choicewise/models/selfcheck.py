"""What a model's check of itself says: which way of computing it takes, and how exact that is."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Trial:
    """One rung tried: the largest difference (nats) of a score from the reference, and why it was refused, if it was.

    The reference is the plain path, of a 16-bit model that of its float32 copy.
    """

    rung: str
    difference: float | None
    refused: str | None


@dataclass(frozen=True, slots=True)
class SelfCheck:
    """The rung taken, what it costs in words, and what was measured on the way.

    ``floor``: the noise of the plain path, and ``tolerance``: what a rung may differ from the reference, in nats.
    The noise is the distance to a float32 copy of a 16-bit model, or else to the same sequences padded into a batch.
    ``depth``: the probe's longest sequence, in tokens.
    """

    rung: str
    difference: float
    floor: float
    tolerance: float
    depth: int
    trials: tuple[Trial, ...]
    cost: str = ""
