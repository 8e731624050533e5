"""The protocol value: every axis a paper would have to state, and nothing else."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field, fields
from functools import lru_cache
from typing import Any

from choicewise.data.cell import has_half_character
from choicewise.errors import ProtocolError
from choicewise.protocols.boundary import BOUNDARIES, CORRECTABLE, CORRECTED
from choicewise.protocols.option_orders import CALIBRATIONS, MOST, VIEWS
from choicewise.protocols.readings import CHOOSING, CONDITIONAL, EXTRACTIONS, OVER_CHAINS, READINGS, SCORES, SELECT

_REQUEST = {"stage": "request"}
"""Axes that decide which tokens are sent to the model; protocols equal on these share their observations."""

_SCORE = {"stage": "score"}
"""Axes that only decide what is made of the observations; changing one costs no model call."""


def _axis(default: Any, stage: dict[str, str], *allowed: str) -> Any:
    return field(default=default, metadata={**stage, "allowed": allowed})


@dataclass(frozen=True, slots=True)
class Protocol:
    r"""A complete recipe for a number.

    Templates are plain text with named holes in braces, filled in one pass (text that is filled in is never read as a
    template again; ``{{`` and ``}}`` stand for braces).  ``header`` knows ``{subject}`` (underscores as spaces);
    ``question`` knows ``{question}``, ``{options}``, ``{subject}`` and the item's own fields; ``option``, ``answer``,
    ``proposal`` and ``continuation`` know ``{letter}`` and ``{choice}``.

    A prompt is ``header + separator.join([question + answer, ... one per shot ..., question]) + proposal``; each choice
    is scored as ``continuation`` after it.  Without a proposal all choices of an item have the same prompt.  Reading
    ``chain-of-thought`` puts a sampled text before the proposal, which ends before ``separator``.

    The signature, equality and digest derive from these fields alone (:mod:`choicewise.protocols.signature`).
    """

    benchmark: str = field(metadata={**_SCORE, "allowed": ()})
    split: str | None = _axis("test", _REQUEST)
    quirk: str = _axis("none", _REQUEST, "none", "pandas-na")
    strip: str = _axis("none", _REQUEST, "none", "question", "all")
    header: str = _axis("", _REQUEST)
    question: str = _axis("{question}\n{options}Answer:", _REQUEST)
    option: str = _axis("{letter}. {choice}\n", _REQUEST)
    answer: str = _axis(" {letter}", _REQUEST)
    proposal: str = _axis("", _REQUEST)
    continuation: str = _axis(" {letter}", _REQUEST)
    separator: str = _axis("\n\n", _REQUEST)
    letters: str = _axis("ABCD", _REQUEST)
    choices: int | None = _axis(4, _REQUEST)
    shots: int = _axis(5, _REQUEST)
    shot_split: str | None = _axis("dev", _REQUEST)
    sampler: str = _axis("first", _REQUEST, "first", "helm", "harness-v0", "none")
    seed: int | None = _axis(None, _REQUEST)
    fit: str = _axis("drop-last-shot", _REQUEST, "drop-last-shot", "drop-last-shot-then-cut-end", "cut-start", "refuse")
    limit: int | None = _axis(None, _REQUEST)
    bos: str = _axis("default", _REQUEST, "default", "none")
    boundary: str = _axis("joint", _REQUEST, *BOUNDARIES)
    reading: str = _axis("loglikelihood", _REQUEST, *READINGS)
    views: str = _axis("given", _REQUEST, *VIEWS)
    new_tokens: int | None = _axis(None, _REQUEST)
    chains: int | None = _axis(None, _REQUEST)
    score: str = _axis("sum", _SCORE, *SCORES, *SELECT, *OVER_CHAINS, "none")
    null: str | None = _axis(None, _SCORE)
    outside: str = _axis("keep", _SCORE, "keep", "top100=-100")
    calibration: str = _axis("none", _SCORE, *CALIBRATIONS)
    decision: str = _axis("argmax", _SCORE, *CHOOSING, "letter-match", "option-match", *EXTRACTIONS)
    ties: str = _axis("first", _SCORE, "first", "split", "wrong", "none")
    metric: str = _axis("acc", _SCORE, "acc", "exact_match")
    aggregation: str = _axis("micro", _SCORE, "micro", "macro", "categories", "subcategories")
    rev: int = _axis(1, _SCORE)

    def __post_init__(self) -> None:
        for axis in fields(self):
            value = getattr(self, axis.name)
            _check_type(axis.name, str(axis.type), value)
            allowed = axis.metadata["allowed"]
            if allowed and value not in allowed:
                raise ProtocolError(f"protocol axis {axis.name} is {value!r}; it must be one of {', '.join(allowed)}")
        _check_consistency(self)

    @property
    def digest(self) -> str:
        """sha256 (64 hex) over all axes: the protocol's identity, printed short as ``#P`` and six digits."""
        return _digest({axis.name: getattr(self, axis.name) for axis in fields(self)})

    @property
    def prompt_digest(self) -> str:
        """sha256 (64 hex) over the axes that decide what the model is shown and asked; sharing it shares requests."""
        return _prompt_digest(self)


@lru_cache(maxsize=1024)
def _prompt_digest(protocol: Protocol) -> str:
    """Remembered, because every row of a run names it."""
    axes = (axis.name for axis in fields(protocol) if axis.metadata["stage"] == "request")
    return _digest({name: getattr(protocol, name) for name in axes})


def _digest(axes: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(axes, sort_keys=True).encode()).hexdigest()


def _check_type(name: str, annotation: str, value: object) -> None:
    kinds: dict[str, tuple[type, ...]] = {"str": (str,), "int": (int,), "None": (type(None),)}
    expected = tuple(kind for part in annotation.split(" | ") for kind in kinds[part])
    if not isinstance(value, expected) or isinstance(value, bool):
        raise ProtocolError(f"protocol axis {name} is {value!r}; it must be {annotation.replace(' | ', ' or ')}")
    if isinstance(value, str) and has_half_character(value):
        raise ProtocolError(f"protocol axis {name} holds a lone surrogate, which no file can store")
    if isinstance(value, int) and value < 0:
        raise ProtocolError(f"protocol axis {name} is {value}; it can't be negative")


def _check_consistency(protocol: Protocol) -> None:
    """Refuse combinations that would silently mean nothing."""
    if (protocol.score in CONDITIONAL) != (protocol.null is not None):
        raise ProtocolError(
            f"score {protocol.score} with null {protocol.null!r}: the scores {', '.join(CONDITIONAL)} need the axis "
            "null (the unconditional context, '' allowed), and only they have one"
        )
    _check_reading(protocol)
    _check_boundary(protocol)
    _check_views(protocol)
    if protocol.shots and (protocol.shot_split is None or protocol.sampler == "none"):
        raise ProtocolError(f"{protocol.shots} shots need a shot_split to come from and a sampler to choose them")
    if protocol.shots and protocol.sampler in ("helm", "harness-v0") and protocol.seed is None:
        raise ProtocolError(f"sampler {protocol.sampler} draws at random and needs a seed")
    if protocol.choices is not None and protocol.choices > len(protocol.letters):
        raise ProtocolError(f"{protocol.choices} choices need as many letters; letters is {protocol.letters!r}")


def _check_boundary(protocol: Protocol) -> None:
    """Refuse corrections of what is no log-likelihood, and ranks of bytes, which nothing shows."""
    name, reading = protocol.boundary, protocol.reading
    if name in CORRECTED and reading not in CORRECTABLE:
        raise ProtocolError(
            f"boundary {name} corrects a log-likelihood, which reading {reading} does not give; use boundary lcp"
        )
    if name == "bytes" and (protocol.outside != "keep" or protocol.score == "greedy"):
        raise ProtocolError("boundary bytes gives bytes, which have no rank: use outside keep, and not score greedy")


def _check_views(protocol: Protocol) -> None:
    """Refuse to show in several ways, or to calibrate, what has no fixed labels or no order."""
    views, calibration = protocol.views, protocol.calibration
    if views not in CALIBRATIONS[calibration]:
        raise ProtocolError(
            f"calibration {calibration} needs views {' or '.join(CALIBRATIONS[calibration])}, not {views}"
        )
    if (views, calibration) == ("given", "none"):
        return
    labels = "{letter}" in protocol.continuation and "{choice}" not in protocol.continuation
    if not labels or (protocol.reading, protocol.score, protocol.outside) != ("loglikelihood", "sum", "keep"):
        raise ProtocolError(
            f"views {views} with calibration {calibration} are about the probabilities of fixed labels: they need a "
            "continuation with {letter} and without {choice}, reading loglikelihood, score sum and outside keep"
        )
    if views != "given" and "{options}" not in protocol.question:
        raise ProtocolError(f"views {views} show the list of options otherwise; question has no {{options}}")
    if views == "full" and (protocol.choices or 0) > MOST:
        raise ProtocolError(
            f"views full shows the orders of at most {MOST} choices, not {protocol.choices}; use cyclic"
        )


def _check_chains(protocol: Protocol) -> None:
    """Refuse chains of thought that can't be sampled, repeated or told from what stands behind them."""
    if protocol.reading != "chain-of-thought":
        if protocol.chains is not None:
            raise ProtocolError(f"chains are of reading chain-of-thought; {protocol.reading} has none")
        return
    for axis, what in (("chains", "the number of chains"), ("new_tokens", "the most tokens of a chain")):
        if not getattr(protocol, axis):
            raise ProtocolError(f"reading chain-of-thought needs {axis}, {what}, of at least 1")
    if protocol.seed is None:
        raise ProtocolError("reading chain-of-thought draws at random and needs a seed")
    if not protocol.separator:
        raise ProtocolError("reading chain-of-thought needs a separator, before which a chain ends")
    if not protocol.proposal or "{letter}" in protocol.proposal or "{choice}" in protocol.proposal:
        raise ProtocolError(
            f"reading chain-of-thought has proposal {protocol.proposal!r}; it needs one text that ends every chain and "
            "names no option"
        )
    if protocol.fit not in ("drop-last-shot", "refuse"):
        raise ProtocolError(f"reading chain-of-thought can't cut a prompt that a chain follows; not fit {protocol.fit}")


def _check_reading(protocol: Protocol) -> None:
    """Refuse what a reading can't be asked for."""
    name, reading = protocol.reading, READINGS[protocol.reading]
    if protocol.score not in reading.scores:
        raise ProtocolError(f"reading {name} has no score {protocol.score}; it has {', '.join(reading.scores)}")
    if (name == "generate") == (protocol.decision in CHOOSING):
        raise ProtocolError(
            f"reading {name} with decision {protocol.decision}: generated text takes a rule that reads text "
            f"(letter-match, option-match or an extraction), and every other reading takes {' or '.join(CHOOSING)}"
        )
    if protocol.decision == "greedy-match" and protocol.score != "greedy":
        raise ProtocolError(f"decision greedy-match reads the score greedy, not {protocol.score}")
    if name == "generate" and (protocol.decision == "option-match") == (protocol.score == "none"):
        raise ProtocolError(
            f"decision {protocol.decision} with score {protocol.score}: option-match scores the option's generated "
            "tokens, the other rules that read text have score none"
        )
    if name == "generate" and not protocol.new_tokens:
        raise ProtocolError("reading generate needs new_tokens, the number of tokens to generate")
    if reading.proposal and not protocol.proposal:
        raise ProtocolError(f"reading {name} needs the axis proposal, the text that names an option; try ' {{choice}}'")
    _check_chains(protocol)
    if name == "noisy-channel" and protocol.shots:
        raise ProtocolError("reading noisy-channel scores the question itself; it takes no shots")
    if name == "select" and protocol.fit == "cut-start":
        raise ProtocolError("reading select goes back from the end of a whole prompt; use fit refuse, not cut-start")
    if name != "loglikelihood" and protocol.outside != "keep":
        raise ProtocolError(f"outside {protocol.outside} is about the tokens of reading loglikelihood, not {name}")
    lines = protocol.continuation.split("\n")
    if reading.several and not (reading.lines[0] <= len(set(lines)) == len(lines) <= reading.lines[1]):
        few, many = reading.lines
        raise ProtocolError(
            f"reading {name} takes {few} to {many} different continuations, one a line; continuation is "
            f"{protocol.continuation!r}"
        )
