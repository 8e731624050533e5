"""List the names that other tools have for our scores and protocols."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

HARNESS = "LM Evaluation Harness"


@dataclass(frozen=True, slots=True)
class ScoreName:
    """Describe another tool's name of the accuracy by one of our scores.

    ``score``: the catalogue's name of it (:data:`choicewise.protocols.catalogue.SCORES`).
    ``tool``: the tool with this name.  ``description``: what decides, in words.
    """

    score: str
    tool: str
    description: str


SCORE_NAMES: Mapping[str, ScoreName] = {
    "acc": ScoreName("sum", HARNESS, "log-likelihood of the choice"),
    "acc_norm": ScoreName(
        "char_mean_bare", HARNESS, "log-likelihood by character, without the space before it"
    ),
    "acc_bytes": ScoreName(
        "byte_mean_bare", HARNESS, "log-likelihood by byte, without the space before it"
    ),
    "acc_mutual_info": ScoreName(
        "pmi-empty", HARNESS, "log-likelihood minus that after an empty context"
    ),
    "acc_raw": ScoreName("sum", "OLMES", "log-likelihood of the choice"),
    "acc_per_char": ScoreName(
        "char_mean", "OLMES", "log-likelihood by character, with the space before it"
    ),
    "acc_per_token": ScoreName("token_mean", "OLMES", "log-likelihood by token"),
    "acc_per_byte": ScoreName(
        "byte_mean", "OLMES", "log-likelihood by byte, with the space before it"
    ),
}
"""Names of scores that are the same in every protocol; a name that an entry declares goes first."""

FORMULATIONS: Mapping[str, str] = {"mcf": "olmes-mcf", "cf": "olmes-cf"}
"""The entry of a family by OLMES's formulation: ``mmlu/cf`` is ``mmlu/olmes-cf``."""
