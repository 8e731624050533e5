"""Protocols that a model can't be asked under, in words."""

from collections.abc import Mapping

NAMED = 8
"""Protocols that a line names; of more it says how many there are."""


def refused_lines(refused: Mapping[str, str]) -> list[str]:
    """``refused`` (name → reason) as a line for each reason, with the protocols' number and names."""
    return [f"{names(own)}: {reason}" for reason, own in by_reason(refused).items()]


def by_reason(refused: Mapping[str, str]) -> dict[str, list[str]]:
    """The protocols of ``refused`` (name → reason) for each reason."""
    reasons: dict[str, list[str]] = {}
    for name, reason in refused.items():
        reasons.setdefault(reason, []).append(name)
    return reasons


def names(protocols: list[str]) -> str:
    """The number of protocols, and the first of their names."""
    if len(protocols) == 1:
        return f"protocol {protocols[0]} is refused"
    more = f" and {len(protocols) - NAMED} more" * (len(protocols) > NAMED)
    return f"{len(protocols)} protocols are refused ({', '.join(protocols[:NAMED])}{more})"
