"""From what one protocol observed to its scores and decisions, by the way it was asked."""

from __future__ import annotations

from itertools import pairwise

from choicewise.protocols.protocol import Protocol
from choicewise.results.evidence import Evidence
from choicewise.scoring.calibrated import calibrated
from choicewise.scoring.combined import COMBINED, OVER_CHAINS, without_end
from choicewise.scoring.continuations import Continuations
from choicewise.scoring.decisions import Decisions, argmax, greedy_match, letter_match
from choicewise.scoring.generated import extract, option_match, said_options
from choicewise.scoring.ragged import Floats
from choicewise.scoring.scores import SCORES
from choicewise.scoring.select import SELECT

LIKELIHOODS = ("loglikelihood", "masked", "surprisal", "noisy-channel")
"""Readings that observe one log-likelihood of each choice, and nothing else."""


def decide(protocol: Protocol, evidence: Evidence) -> tuple[Floats | None, Decisions]:
    """Scores, float64 [rows], or None where the protocol reads a letter from text; and what was decided."""
    if protocol.reading == "generate":
        return _read_text(protocol, evidence)
    scores = score(protocol, evidence)
    if protocol.decision == "greedy-match":
        return scores, greedy_match(scores, evidence.item_offsets, evidence.right)
    return scores, argmax(scores, evidence.item_offsets, evidence.right, protocol.ties)


def score(protocol: Protocol, evidence: Evidence) -> Floats:
    """One number per row of a protocol that reads no text."""
    if protocol.reading in COMBINED:
        return COMBINED[protocol.reading](evidence.parts())
    if protocol.reading == "surprisal-package":
        return SCORES[protocol.score](without_end(evidence.parts()))
    if protocol.reading == "select":
        return SELECT[protocol.score](evidence.parts())
    if protocol.reading == "chain-of-thought":
        return OVER_CHAINS[protocol.score](evidence.parts())
    if protocol.reading == "embedding":
        return evidence.values()
    if protocol.calibration != "none":
        seen = [part.sums for part in evidence.parts()]
        return calibrated(protocol.calibration, protocol.views, seen, evidence.item_offsets)
    return evidence.scores(protocol.score, protocol.null, protocol.outside)


def observed(protocol: Protocol, evidence: Evidence) -> Continuations | None:
    """The tokens that the protocol scores, one row per choice; None where it retrieves no likelihood of the choice."""
    if protocol.calibration != "none":
        return None
    if protocol.decision == "option-match":
        return said_options(evidence.generation(), evidence.expected(), evidence.item_offsets)
    if protocol.reading == "surprisal-package":
        return without_end(evidence.parts())
    return evidence.continuations() if protocol.reading in ("loglikelihood", "masked", "surprisal") else None


def _read_text(protocol: Protocol, evidence: Evidence) -> tuple[Floats | None, Decisions]:
    if protocol.decision == "letter-match":
        return None, letter_match(evidence.generated(), evidence.options(), evidence.gold, protocol.letters)
    if protocol.decision == "option-match":
        said = said_options(evidence.generation(), evidence.expected(), evidence.item_offsets)
        return SCORES[protocol.score](said), option_match(said, evidence.right)
    choices = [end - start for start, end in pairwise(evidence.item_offsets.tolist())]
    return None, extract(protocol.decision, evidence.generated(), evidence.gold, choices, protocol.letters)
