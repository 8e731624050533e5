"""Which combinations of a protocol's axes mean nothing, and are refused with a ProtocolError."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from choicewise.errors import ProtocolError
from choicewise.protocols.boundary import CORRECTED
from choicewise.protocols.option_orders import CALIBRATIONS, MOST
from choicewise.protocols.readings import CHOOSING, CONDITIONAL, READINGS

if TYPE_CHECKING:
    from choicewise.protocols.protocol import Protocol

NEUTRAL: Mapping[str, Any] = MappingProxyType(
    {
        **dict.fromkeys(("header", "option", "answer", "proposal", "separator"), ""),
        **dict.fromkeys(("quirk", "strip", "sampler"), "none"),
        "question": "{question}",
        "continuation": "{choice}",
        "choices": None,
        "shots": 0,
        "shot_split": None,
    }
)
"""The axes that render, as they stand where ``requests`` were rendered elsewhere."""


def check_consistency(protocol: Protocol) -> None:
    """ProtocolError for the first combination that would silently mean nothing."""
    for check in (_score, _requests, _reading, _decision, _optional_axes, _boundary, _views, _shots):
        check(protocol)


def _score(protocol: Protocol) -> None:
    if (protocol.score in CONDITIONAL) != (protocol.null is not None):
        raise ProtocolError(
            f"score {protocol.score} with null {protocol.null!r}: the scores {', '.join(CONDITIONAL)} need the axis "
            "null (the unconditional context, '' allowed), and only they have one"
        )
    reading = READINGS[protocol.reading]
    if protocol.score not in reading.scores:
        raise ProtocolError(
            f"reading {protocol.reading} has no score {protocol.score}; it has {', '.join(reading.scores)}"
        )


def _requests(protocol: Protocol) -> None:
    """Templates beside requests that were rendered elsewhere would be printed and not used."""
    if protocol.requests is not None:
        for axis, neutral in NEUTRAL.items():
            if getattr(protocol, axis) != neutral:
                raise ProtocolError(
                    f"axis {axis} is {getattr(protocol, axis)!r}, but the requests {protocol.requests[:12]} were rendered "
                    f"elsewhere; it must be {neutral!r}"
                )


def _reading(protocol: Protocol) -> None:
    name, reading = protocol.reading, READINGS[protocol.reading]
    if reading.proposal and not protocol.proposal:
        raise ProtocolError(f"reading {name} needs the axis proposal, the text that names an option; try ' {{choice}}'")
    if reading.fits and protocol.fit not in reading.fits:
        raise ProtocolError(f"reading {name} takes fit {' or '.join(reading.fits)}, not {protocol.fit}")
    lines = protocol.continuation.split("\n")
    few, many = reading.lines
    if reading.several and not (few <= len(set(lines)) == len(lines) <= many):
        raise ProtocolError(
            f"reading {name} takes {few} to {many} different continuations, one a line; continuation is "
            f"{protocol.continuation!r}"
        )
    if "chains" in reading.takes:
        _chains(protocol)


def _chains(protocol: Protocol) -> None:
    """Chains that can't be drawn again, or can't be told from what follows them."""
    name = protocol.reading
    if protocol.seed is None:
        raise ProtocolError(f"reading {name} draws at random and needs a seed")
    if not protocol.separator:
        raise ProtocolError(f"reading {name} needs a separator, before which a chain ends")
    if not protocol.proposal or "{letter}" in protocol.proposal or "{choice}" in protocol.proposal:
        raise ProtocolError(
            f"reading {name} has proposal {protocol.proposal!r}; it needs one text that ends every chain and "
            "names no option"
        )


def _decision(protocol: Protocol) -> None:
    name, reading, decision = protocol.reading, READINGS[protocol.reading], protocol.decision
    if reading.text == (decision in CHOOSING):
        raise ProtocolError(
            f"reading {name} with decision {decision}: generated text takes a rule that reads text "
            f"(letter-match, option-match or an extraction), and every other reading takes {' or '.join(CHOOSING)}"
        )
    if decision == "greedy-match" and protocol.score != "greedy":
        raise ProtocolError(f"decision greedy-match reads the score greedy, not {protocol.score}")
    if reading.text and (decision == "option-match") == (protocol.score == "none"):
        raise ProtocolError(
            f"decision {decision} with score {protocol.score}: option-match scores the option's generated "
            "tokens, the other rules that read text have score none"
        )


def _optional_axes(protocol: Protocol) -> None:
    """Axes that a reading does not take would be printed and not used; those it takes must be stated."""
    name, takes = protocol.reading, READINGS[protocol.reading].takes
    for axis, meaning in (("new_tokens", "the most tokens to generate"), ("chains", "the number of chains")):
        stated = getattr(protocol, axis)
        if axis in takes and not stated:
            raise ProtocolError(f"reading {name} needs {axis}, {meaning}, of at least 1")
        if axis not in takes and stated is not None:
            raise ProtocolError(f"axis {axis} is {stated}; reading {name} has no use for it")
    if "shots" not in takes and protocol.shots:
        raise ProtocolError(f"reading {name} scores the question itself; it takes no shots")
    if "outside" not in takes and protocol.outside != "keep":
        raise ProtocolError(f"outside {protocol.outside} is about the tokens of reading loglikelihood, not {name}")


def _boundary(protocol: Protocol) -> None:
    """Corrections of what is no log-likelihood, and ranks of bytes, which no model gives."""
    name, reading = protocol.boundary, protocol.reading
    if name in CORRECTED and "correction" not in READINGS[reading].takes:
        raise ProtocolError(
            f"boundary {name} corrects a log-likelihood, which reading {reading} does not give; use boundary lcp"
        )
    if name == "bytes" and (protocol.outside != "keep" or protocol.score == "greedy"):
        raise ProtocolError("boundary bytes gives bytes, which have no rank: use outside keep, and not score greedy")


def _views(protocol: Protocol) -> None:
    """Several versions, or a calibration, of what has no fixed labels or no order."""
    views, calibration = protocol.views, protocol.calibration
    if views not in CALIBRATIONS[calibration]:
        raise ProtocolError(
            f"calibration {calibration} needs views {' or '.join(CALIBRATIONS[calibration])}, not {views}"
        )
    if (views, calibration) == ("given", "none"):
        return
    labels = "{letter}" in protocol.continuation and "{choice}" not in protocol.continuation
    takes = "views" in READINGS[protocol.reading].takes
    if not (labels and takes and (protocol.score, protocol.outside) == ("sum", "keep")):
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


def _shots(protocol: Protocol) -> None:
    if protocol.shots and (protocol.shot_split is None or protocol.sampler == "none"):
        raise ProtocolError(f"{protocol.shots} shots need a shot_split to come from and a sampler to choose them")
    if protocol.shots and protocol.sampler in ("helm", "harness-v0") and protocol.seed is None:
        raise ProtocolError(f"sampler {protocol.sampler} draws at random and needs a seed")
    if protocol.choices is not None and protocol.choices > len(protocol.letters):
        raise ProtocolError(f"{protocol.choices} choices need as many letters; letters is {protocol.letters!r}")
