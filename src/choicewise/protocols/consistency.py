"""Which combinations of a protocol's axes mean nothing, and are refused with a ProtocolError."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from choicewise.errors import ProtocolError
from choicewise.protocols.boundary import CORRECTED
from choicewise.protocols.harness_streams import STREAMS
from choicewise.protocols.metrics import METRICS
from choicewise.protocols.option_orders import CALIBRATIONS, DRAWING, MOST
from choicewise.protocols.readings import CHOOSING, CONDITIONAL, READINGS, Reading
from choicewise.protocols.stops import stop_texts

if TYPE_CHECKING:
    from choicewise.protocols.protocol import Protocol

SEEDED = ("helm", *STREAMS)
"""Samplers that draw at random."""

NEUTRAL: Mapping[str, Any] = {
    **dict.fromkeys(("header", "option", "answer", "proposal", "separator"), ""),
    **dict.fromkeys(("quirk", "strip", "sampler"), "none"),
    "question": "{question}",
    "continuation": "{choice}",
    "choices": None,
    "shots": 0,
    "shot_split": None,
}
"""The axes that render, as they stand where ``requests`` were rendered elsewhere; of ``choices`` there may be one."""


def check_consistency(protocol: Protocol) -> None:
    """ProtocolError for every combination that would silently mean nothing."""
    of_answers = (_score, _requests, _reading, _chains, _decision, _metric)
    checks = (*of_answers, _optional_axes, _chat, _boundary, _views, _shots)
    problems = [problem for check in checks for problem in check(protocol, READINGS[protocol.reading])]
    if problems:
        raise ProtocolError.about(problems)


def _score(protocol: Protocol, reading: Reading) -> Iterator[str]:
    if (protocol.score in CONDITIONAL) != (protocol.null is not None):
        yield (
            f"score {protocol.score} with null {protocol.null!r}: the scores {', '.join(CONDITIONAL)} need the axis "
            "null (the unconditional context, '' allowed), and only they have one"
        )
    if protocol.score not in reading.scores:
        yield f"reading {protocol.reading} has no score {protocol.score}; it has {', '.join(reading.scores)}"


def _requests(protocol: Protocol, reading: Reading) -> Iterator[str]:
    """Templates beside requests that were rendered elsewhere would be printed and not used."""
    if protocol.requests is None:
        return
    for axis, neutral in NEUTRAL.items():
        one = axis == "choices" and protocol.choices == 1
        if getattr(protocol, axis) != neutral and not one:
            yield (
                f"axis {axis} is {getattr(protocol, axis)!r}, but the requests {protocol.requests[:12]} were "
                f"rendered elsewhere; it must be {neutral!r}"
            )


def _reading(protocol: Protocol, reading: Reading) -> Iterator[str]:
    name, lines = protocol.reading, protocol.continuation.split("\n")
    if reading.proposal and not protocol.proposal:
        yield f"reading {name} needs the axis proposal, the text that names an option; try ' {{choice}}'"
    if reading.fits and protocol.fit not in reading.fits:
        yield f"reading {name} takes fit {' or '.join(reading.fits)}, not {protocol.fit}"
    if reading.boundaries and protocol.boundary not in reading.boundaries:
        yield f"reading {name} takes boundary {' or '.join(reading.boundaries)}, not {protocol.boundary}"
    few, many = reading.lines
    if reading.several and not (few <= len(set(lines)) == len(lines) <= many):
        yield (
            f"reading {name} takes {few} to {many} different continuations, one a line; continuation is "
            f"{protocol.continuation!r}"
        )


def _chains(protocol: Protocol, reading: Reading) -> Iterator[str]:
    """Chains that can't be drawn again, or can't be told from what follows them."""
    name, proposal = protocol.reading, protocol.proposal
    if "chains" not in reading.takes:
        return
    if protocol.seed is None:
        yield f"reading {name} draws at random and needs a seed"
    if not protocol.separator:
        yield f"reading {name} needs a separator, before which a chain ends"
    if not proposal or "{letter}" in proposal or "{choice}" in proposal:
        yield f"reading {name} has proposal {proposal!r}; it needs one text that ends every chain and names no option"


def _decision(protocol: Protocol, reading: Reading) -> Iterator[str]:
    decision = protocol.decision
    if reading.text == (decision in CHOOSING):
        yield (
            f"reading {protocol.reading} with decision {decision}: generated text takes a rule that reads text "
            f"(letter-match, option-match or an extraction), and every other reading takes {' or '.join(CHOOSING)}"
        )
    if decision == "argmax" and protocol.ties == "none":
        yield "decision argmax needs to know who wins a tie; ties is none, use first, split or wrong"
    if decision == "greedy-match" and protocol.score != "greedy":
        yield f"decision greedy-match reads the score greedy, not {protocol.score}"
    if reading.text and (decision == "option-match") == (protocol.score == "none"):
        yield (
            f"decision {decision} with score {protocol.score}: option-match scores the option's generated "
            "tokens, the other rules that read text have score none"
        )


def _metric(protocol: Protocol, reading: Reading) -> Iterator[str]:
    """Metrics of scores that are compared in another way, or that are no log-likelihoods."""
    name = protocol.metric
    if METRICS[name].predicted:
        return
    if protocol.decision != "argmax":
        yield f"metric {name} is made of scores, with decision argmax, not {protocol.decision}"
    if METRICS[name].likelihood and not (
        reading.one_likelihood and (protocol.score, protocol.calibration) == ("sum", "none")
    ):
        yield f"metric {name} needs log-likelihoods: a reading that gives them, score sum and calibration none"
    if not METRICS[name].share and protocol.choices != 1 and protocol.requests is None:
        yield f"metric {name} is about items with one choice: it needs choices 1"


def _optional_axes(protocol: Protocol, reading: Reading) -> Iterator[str]:
    """Axes that a reading does not take would be printed and not used; those it takes must be stated."""
    name, takes = protocol.reading, reading.takes
    for axis, meaning in (("new_tokens", "the most tokens to generate"), ("chains", "the number of chains")):
        stated = getattr(protocol, axis)
        if axis in takes and not stated:
            yield f"reading {name} needs {axis}, {meaning}, of at least 1"
        if axis not in takes and stated is not None:
            yield f"axis {axis} is {stated}; reading {name} has no use for it"
    if protocol.stop is not None and "new_tokens" not in takes:
        yield f"axis stop is {protocol.stop!r}; reading {name} generates nothing"
    if not all(stop_texts(protocol.stop)):
        yield f"axis stop is {protocol.stop!r}; it holds a text a line, none of them empty"
    if "shots" not in takes and protocol.shots:
        yield f"reading {name} scores the question itself; it takes no shots"
    if "outside" not in takes and protocol.outside != "keep":
        yield f"outside {protocol.outside} is about the tokens of reading loglikelihood, not {name}"


def _chat(protocol: Protocol, reading: Reading) -> Iterator[str]:
    """What has no place among the messages of a chat, or would be the same answer twice."""
    if protocol.chat == "none":
        if protocol.system is not None:
            yield f"axis system is {protocol.system!r}, but chat is none; use chat turns or message"
        return
    if protocol.requests is not None:
        yield f"chat is {protocol.chat}, but the requests were rendered elsewhere; it must be none"
    if "shots" not in reading.takes:
        yield f"reading {protocol.reading} scores the question itself, which nobody says in a chat; use chat none"
    lines = [line.lstrip() for line in protocol.continuation.split("\n")]
    if reading.several and len(set(lines)) < len(lines):
        yield "two continuations differ in the space they begin with, which they lose in a chat; leave one out"


def _boundary(protocol: Protocol, reading: Reading) -> Iterator[str]:
    """Corrections of what is no log-likelihood, and ranks of bytes, which no model gives."""
    name = protocol.boundary
    if name in CORRECTED and "correction" not in reading.takes:
        yield (
            f"boundary {name} corrects a log-likelihood, which reading {protocol.reading} does not give; use boundary "
            "lcp"
        )
    if name == "bytes" and (protocol.outside != "keep" or protocol.score == "greedy"):
        yield "boundary bytes gives bytes, which have no rank: use outside keep, and not score greedy"


def _views(protocol: Protocol, reading: Reading) -> Iterator[str]:
    """Several versions, or a calibration, of what has no fixed labels or no order."""
    views, calibration = protocol.views, protocol.calibration
    if views not in CALIBRATIONS[calibration]:
        yield f"calibration {calibration} needs views {' or '.join(CALIBRATIONS[calibration])}, not {views}"
    if (views, calibration) == ("given", "none"):
        return
    labels = "{letter}" in protocol.continuation and "{choice}" not in protocol.continuation
    if not (labels and "views" in reading.takes and (protocol.score, protocol.outside) == ("sum", "keep")):
        yield (
            f"views {views} with calibration {calibration} are about the probabilities of fixed labels: they need a "
            "continuation with {letter} and without {choice}, reading loglikelihood, score sum and outside keep"
        )
    if views != "given" and "{options}" not in protocol.question:
        yield f"views {views} show the list of options otherwise; question has no {{options}}"
    if views in DRAWING and protocol.seed is None:
        yield f"views {views} draws items at random and needs a seed"
    if views == "full" and (protocol.choices or 0) > MOST:
        yield f"views full shows the orders of at most {MOST} choices, not {protocol.choices}; use cyclic"


def _shots(protocol: Protocol, reading: Reading) -> Iterator[str]:
    if protocol.shots and (protocol.shot_split is None or protocol.sampler == "none"):
        yield f"{protocol.shots} shots need a shot_split to come from and a sampler to choose them"
    if protocol.shots and protocol.sampler in SEEDED and protocol.seed is None:
        yield f"sampler {protocol.sampler} draws at random and needs a seed"
    if protocol.choices is not None and protocol.choices > len(protocol.letters):
        yield f"{protocol.choices} choices need as many letters; letters is {protocol.letters!r}"
