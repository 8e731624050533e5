"""The Protocol value: its axes, metrics, template, what fits together, and its signature.

:mod:`choicewise.scoring.decide` gives the credits of an item under each metric, and
:mod:`choicewise.scoring.intervals` the number.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from functools import cached_property, lru_cache
from typing import Any
from urllib.parse import quote, unquote

from choicewise import ports
from choicewise.data.decisions import KINDS
from choicewise.errors import ProtocolError, did_you_mean
from choicewise.protocols.metrics import ABSTAINING, METRICS
from choicewise.protocols.preparations import NAMES as PREPARATIONS
from choicewise.protocols.preparations import abstains, more_options, moves_labels, preparation_of
from choicewise.protocols.readings import (
    CALIBRATIONS,
    CHOOSING,
    CONDITIONAL,
    DRAWING,
    EXTRACTIONS,
    MOST,
    NUMBERS,
    PERMUTED,
    READINGS,
    SCORE_NAMES,
    STREAMS,
    VIEWS,
    Reading,
    template_arguments,
)
from choicewise.util.jsonio import json_digest
from choicewise.util.text import has_half_character

_SCORE = {
    "stage": "score"
}  # axes that only decide what is made of the observations; changing one costs no model call
_PIECE = re.compile(r"\{\{|\}\}|\{([^{}]*)\}|[{}%]")
_PLAIN = {"{{": "{", "}}": "}", "%": "%%"}  # what stands for itself, in a text with places %s
SEEDED = ("helm", *STREAMS)  # samplers that draw at random
FORMS = (
    "turns",
    "message",
)  # shots as turns of the chat, or everything in one message of the user (axis ``chat``)

SAMPLERS = (
    *(
        "first",
        "first-overall",
        "helm",
        "harness-v0",
        "harness-v0-train",
        "harness",
        "harness-spare",
    ),
    *("curated", "none"),
)
"""Who chooses the few-shot examples (:mod:`choicewise.protocols.shots`)."""

_REQUEST = {"stage": "request"}
"""Axes that decide which tokens are sent to the model; protocols equal on these share their observations."""


def _axis(default: Any, stage: dict[str, str], *allowed: str) -> Any:
    return field(default=default, metadata={**stage, "allowed": allowed})


_LATER = frozenset(
    [
        "prepare",
        "chat",
        "system",
        "stop",
        "golds",
        "temperature",
        "template",
        "thought",
        "thought_tokens",
        "cut",
    ]
) | {"kind", "described"}
"""Axes that signatures and digests of before they existed leave out: they mean the default, which never changes."""


CORRECTED = ("heal", "word", "bytes")
"""Policies that correct the tokens of a continuation to the probability of its text, or of its words."""

BOUNDARIES = (
    "joint",
    "moved-space",
    "separate",
    "count",
    "lcp",
    "last-token",
    *CORRECTED,
)  # for texts of any length

LABELLED = ("label", "label-alone")
"""Policies for labels that are one token each, which refuse others."""


@dataclass(frozen=True)
class PromptAxes:
    r"""State which questions are asked, and the templates that make a text of one.

    Templates are plain text with named holes in braces, filled in one pass (text that is filled in is never read as a
    template again; ``{{`` and ``}}`` stand for braces).  All know the item's own fields; besides, ``header`` knows
    ``{subject}`` (underscores as spaces); ``question``, and without shots ``header``, know that, ``{question}``,
    ``{options}`` and of the last option ``{last_letter}`` and ``{last_level}`` (its place, from 0); the others know
    ``{letter}`` and ``{choice}``, in upper case ``{CHOICE}``, its first sign alone ``{Choice}``.
    ``described`` is the ``option`` of one that has a ``{description}``.  ``kind``: the typed questions that are asked;
    others are no part of the protocol.

    A prompt is ``header + separator.join([question + answer, ... one per shot ..., question]) + proposal``; each choice
    is scored as ``continuation`` after it.  Without a proposal all choices of an item have the same prompt.

    ``requests`` is the digest of requests that were rendered elsewhere; the templates then stand for nothing and are
    :data:`~choicewise.protocols.protocol.NEUTRAL`.
    """

    benchmark: str = field(metadata={**_SCORE, "allowed": ()})
    split: str | None = _axis("test", _REQUEST)
    requests: str | None = _axis(None, _REQUEST)
    quirk: str = _axis("none", _REQUEST, "none", "pandas-na")
    kind: str = _axis("any", _REQUEST, "any", *KINDS)
    prepare: str = _axis("none", _REQUEST, *PREPARATIONS)
    strip: str = _axis("none", _REQUEST, "none", "question", "all")
    header: str = _axis("", _REQUEST)
    question: str = _axis("{question}\n{options}Answer:", _REQUEST)
    option: str = _axis("{letter}. {choice}\n", _REQUEST)
    described: str | None = _axis(None, _REQUEST)
    answer: str = _axis(" {letter}", _REQUEST)
    proposal: str = _axis("", _REQUEST)
    continuation: str = _axis(" {letter}", _REQUEST)
    separator: str = _axis("\n\n", _REQUEST)
    letters: str = _axis("ABCD", _REQUEST)
    choices: int | None = _axis(4, _REQUEST)

    def problems(self) -> Iterator[str]:
        """Yield what would silently mean nothing among the axes of this group and the groups before it."""
        if self.described is not None and "options" not in holes(self.header) | holes(
            self.question
        ):
            yield f"axis described is {self.described!r}, but question has no {{options}}, whose lines it is one of"
        if self.choices is not None and self.choices > len(self.letters):
            yield f"{self.choices} choices need as many letters; letters is {self.letters!r}"


@dataclass(frozen=True)
class ShotAxes(PromptAxes):
    """State which solved questions stand before the one that is asked."""

    shots: int = _axis(5, _REQUEST)
    shot_split: str | None = _axis("dev", _REQUEST)
    sampler: str = _axis("first", _REQUEST, *SAMPLERS)
    seed: int | None = _axis(None, _REQUEST)

    def problems(self) -> Iterator[str]:
        """Yield likewise."""
        yield from super().problems()
        if self.requests is not None:
            yield from self._templates_of_rendered()
        if self.shots and (self.shot_split is None or self.sampler == "none"):
            yield (
                f"{self.shots} shots need a shot_split to come from and a sampler to choose them, such as "
                f"shots={self.shots},shot_split=dev,sampler=first"
            )
        if self.shots and self.sampler in SEEDED and self.seed is None:
            yield f"sampler {self.sampler} draws at random and needs a seed"

    def _templates_of_rendered(self) -> Iterator[str]:
        # templates beside requests that were rendered elsewhere would be printed and not used
        for axis, neutral in NEUTRAL.items():
            stated = getattr(self, axis)
            one = axis == "choices" and stated == 1
            if stated != neutral and not one:
                yield (
                    f"axis {axis} is {stated!r}, but the requests {str(self.requests)[:12]} were "
                    f"rendered elsewhere; it must be {neutral!r}"
                )


@dataclass(frozen=True)
class AskingAxes(ShotAxes):
    """State how the prompt is put to the model: in a chat or not, cut to what fits, and where tokens begin.

    ``template``: what the chat template is told by name, ``NAME=VALUE`` a line.  ``thought``: what becomes of a thought
    that the template leaves open.
    """

    chat: str = _axis("none", _REQUEST, "none", "turns", "message")
    system: str | None = _axis(None, _REQUEST)
    template: str | None = _axis(None, _REQUEST)
    thought: str = _axis("keep", _REQUEST, "keep", "close")
    fit: str = _axis(
        "drop-last-shot",
        _REQUEST,
        "drop-last-shot",
        "drop-last-shot-then-cut-end",
        "cut-start",
        "refuse",
    )
    limit: int | None = _axis(None, _REQUEST)
    bos: str = _axis("default", _REQUEST, "default", "none")
    boundary: str = _axis("joint", _REQUEST, *BOUNDARIES, *LABELLED)

    def problems(self) -> Iterator[str]:
        """Yield likewise."""
        yield from super().problems()
        if self.chat == "none":
            for axis, neutral in (("system", None), ("template", None), ("thought", "keep")):
                if (stated := getattr(self, axis)) != neutral:
                    yield f"axis {axis} is {stated!r}, but chat is none; use chat turns or message"
            return
        try:
            template_arguments(self.template)
        except ProtocolError as error:
            yield error.message
        if self.requests is not None:
            yield f"chat is {self.chat}, but the requests were rendered elsewhere; it must be none"


@dataclass(frozen=True)
class ReadingAxes(AskingAxes):
    """State what is read of the model about each choice, and how much it may write.

    Reading ``chain-of-thought`` puts a sampled text before the proposal, which ends before ``separator``;
    ``along-thought`` a share of the thought that the model writes, closed by the chat template's bytes.

    ``stop`` holds the texts before the first of which generated text ends, one a line; one that begins with a line
    break stands alone.  ``thought_tokens``: the most tokens of a thought, after which it is closed; then ``new_tokens``
    are those of the answer.
    """

    reading: str = _axis("loglikelihood", _REQUEST, *READINGS)
    views: str = _axis("given", _REQUEST, *VIEWS)
    thought_tokens: int | None = _axis(None, _REQUEST)
    new_tokens: int | None = _axis(None, _REQUEST)
    stop: str | None = _axis(None, _REQUEST)
    chains: int | None = _axis(None, _REQUEST)

    def problems(self) -> Iterator[str]:
        """Yield likewise: axes that a reading does not take would be printed and not used, others must be stated."""
        yield from super().problems()
        reading = READINGS[self.reading]
        yield from self._of_prompt(reading)
        if reading.unordered:
            yield from self._of_order()
        if "chains" in reading.takes:
            yield from self._of_chains()
        yield from self._of_text(reading)
        if self.chat == "none":
            if reading.along:
                yield (
                    f"reading {self.reading} closes thoughts with the bytes of a chat template; use chat message, or "
                    "turns"
                )
            if self.thought_tokens is not None:
                yield f"axis thought_tokens is {self.thought_tokens!r}, but chat is none; use chat turns or message"
        else:
            yield from self._of_chat(reading)
        yield from self._of_tokens(reading)
        yield from self._of_views()

    def _of_prompt(self, reading: Reading) -> Iterator[str]:
        name = self.reading
        if reading.proposal and not self.proposal:
            yield f"reading {name} needs the axis proposal, the text that names an option; try ' {{choice}}'"
        lines = self.continuation.split("\n")
        few, many = reading.lines
        if reading.several and not (few <= len(set(lines)) == len(lines) <= many):
            yield (
                f"reading {name} takes {few} to {many} different continuations, one a line; continuation is "
                f"{self.continuation!r}"
            )
        if reading.along and names_choice(self.proposal):
            yield (
                f"reading {name} has proposal {self.proposal!r}; it needs one text for all options, as the answer "
                "begins with"
            )
        if "shots" not in reading.takes and self.shots:
            yield f"reading {name} scores the question itself; it takes no shots"
        if moves_labels(self.prepare) and not reading.by_choice:
            yield f"prepare {self.prepare} moves labels, and reading {name} scores none of each choice"

    def _of_order(self) -> Iterator[str]:
        # what would tell the options' order, or leave it open where they stand
        name = self.reading
        for axis, text in (("option", '"{choice}" '), ("continuation", " {choice}")):
            if "letter" in holes(getattr(self, axis)):
                yield (
                    f"reading {name} shows options in no order; axis {axis} has {{letter}}: use text alone, as {text!r}"
                )
        if _positions(self.question)[1].count("options") != 1 or self.question.endswith(
            "{options}"
        ):
            yield f"reading {name} needs {{options}} once in the axis question, and text after it: {self.question!r}"
        for axis, neutral in (("proposal", ""), ("chat", "none"), ("requests", None)):
            if (stated := getattr(self, axis)) != neutral:
                yield f"reading {name} finds the options in the text of the question alone: axis {axis} is {stated!r}"

    def _of_chains(self) -> Iterator[str]:
        # chains that can't be drawn again, or can't be told from what follows them
        name = self.reading
        if self.seed is None:
            yield f"reading {name} draws at random and needs a seed"
        if not self.separator:
            yield f"reading {name} needs a separator, before which a chain ends"
        if not self.proposal or "{letter}" in self.proposal or "{choice}" in self.proposal:
            yield (
                f"reading {name} has proposal {self.proposal!r}; it needs one text that ends every chain and names "
                "no option"
            )

    def _of_text(self, reading: Reading) -> Iterator[str]:
        name, takes = self.reading, reading.takes
        for axis, meaning in (
            ("new_tokens", "the most tokens to generate"),
            ("chains", "the number of chains"),
        ):
            stated = getattr(self, axis)
            if axis in takes and not stated:
                yield f"reading {name} needs {axis}, {meaning}, of at least 1"
            if axis not in takes and stated is not None:
                yield f"axis {axis} is {stated}; reading {name} has no use for it"
        if self.stop is not None and "new_tokens" not in takes:
            yield f"axis stop is {self.stop!r}; reading {name} generates nothing"
        if not all(stop_texts(self.stop)):
            yield f"axis stop is {self.stop!r}; it holds a text a line, none of them empty"
        if self.thought_tokens is not None and "thought_tokens" not in takes:
            yield f"axis thought_tokens is {self.thought_tokens}; reading {name} generates no thought and answer"
        if self.thought_tokens == 0:
            yield "axis thought_tokens is 0, which leaves no thought; write thought=close for that"

    def _of_chat(self, reading: Reading) -> Iterator[str]:
        # what has no place among the messages of a chat, or would be the same answer twice
        if self.thought == "close" and (self.thought_tokens is not None or reading.along):
            yield (
                f"thought is close, under reading {self.reading} with thought_tokens; one that is closed at once has "
                "none"
            )
        if "shots" not in reading.takes:
            yield f"reading {self.reading} scores the question itself, which nobody says in a chat; use chat none"
        lines = said(self, self.continuation).split("\n")
        if reading.several and len(set(lines)) < len(lines):
            yield "two continuations differ in the space they begin with, which they lose in a chat; leave one out"

    def _of_tokens(self, reading: Reading) -> Iterator[str]:
        if reading.fits and self.fit not in reading.fits:
            yield f"reading {self.reading} takes fit {' or '.join(reading.fits)}, not {self.fit}"
        name = self.boundary
        if reading.boundaries and name not in reading.boundaries:
            yield f"reading {self.reading} takes boundary {' or '.join(reading.boundaries)}, not {name}"
        if name in CORRECTED and "correction" not in reading.takes:
            yield (
                f"boundary {name} corrects a log-likelihood, which reading {self.reading} does not give; use boundary "
                "lcp"
            )
        if name in LABELLED and "\n" in self.continuation and not reading.several:
            yield f"boundary {name} is for labels of one token, not for a line break: {self.continuation!r}"

    def _of_views(self) -> Iterator[str]:
        views = self.views
        if views != "given" and "{options}" not in self.question:
            yield f"views {views} show the list of options otherwise; question has no {{options}}"
        if views in DRAWING and self.seed is None:
            yield f"views {views} draws items at random and needs a seed"
        if views == "full" and (self.choices or 0) > MOST:
            yield f"views full shows the orders of at most {MOST} choices, not {self.choices}; use cyclic"


@dataclass(frozen=True)
class ScoringAxes(ReadingAxes):
    """State what is made of the answers: a score per choice, a decision per item, a number of all.

    ``cut``: what a text counts that was cut before its end.
    """

    score: str = _axis("sum", _SCORE, *SCORE_NAMES)
    null: str | None = _axis(None, _SCORE)
    outside: str = _axis("keep", _SCORE, "keep", "top100=-100")
    calibration: str = _axis("none", _SCORE, *CALIBRATIONS)
    decision: str = _axis(
        "argmax", _SCORE, *CHOOSING, "letter-match", "option-match", *EXTRACTIONS, *NUMBERS
    )
    cut: str = _axis("read", _SCORE, "read", "wrong", "missing")
    ties: str = _axis("first", _SCORE, "first", "split", "wrong", "none")
    metric: str = _axis("acc", _SCORE, *METRICS)
    golds: str = _axis("sum", _SCORE, "sum", "max", "first", "each")
    temperature: str = _axis("1", _SCORE)
    aggregation: str = _axis(
        "micro", _SCORE, "micro", "macro", "categories", "subcategories", "bytes"
    )
    rev: int = _axis(1, _SCORE)

    def problems(self) -> Iterator[str]:
        """Yield likewise."""
        yield from super().problems()
        reading = READINGS[self.reading]
        yield from self._of_score(reading)
        yield from self._of_decision(reading)
        yield from self._of_metric(reading)
        yield from self._of_softmax(reading)
        yield from self._of_calibration(reading)

    def _of_score(self, reading: Reading) -> Iterator[str]:
        name = self.reading
        if (self.score in CONDITIONAL) != (self.null is not None):
            yield (
                f"score {self.score} with null {self.null!r}: the scores {', '.join(CONDITIONAL)} need the axis "
                "null (the unconditional context, '' allowed), and only they have one"
            )
        if not reading.has_score(self.score):
            yield f"reading {name} has no score {self.score}; it has {', '.join(reading.scores)}"
        if self.cut != "read" and not reading.text:
            yield f"axis cut is {self.cut}; reading {name} reads no text that could be cut"
        if "outside" not in reading.takes and self.outside != "keep":
            yield f"outside {self.outside} is about the tokens of reading loglikelihood, not {name}"
        if self.boundary == "bytes" and (self.outside != "keep" or self.score == "greedy"):
            yield "boundary bytes gives bytes, which have no rank: use outside keep, and not score greedy"

    def _of_decision(self, reading: Reading) -> Iterator[str]:
        decision = self.decision
        if reading.text == (decision in CHOOSING):
            yield (
                f"reading {self.reading} with decision {decision}: generated text takes a rule that reads text "
                f"(letter-match, option-match or an extraction), and every other reading takes {' or '.join(CHOOSING)}"
            )
        if decision == "argmax" and self.ties == "none":
            yield "decision argmax needs to know who wins a tie; ties is none, use first, split or wrong"
        if decision == "greedy-match" and self.score != "greedy":
            yield f"decision greedy-match reads the score greedy, not {self.score}"
        if reading.text and (decision == "option-match") == (self.score == "none"):
            yield (
                f"decision {decision} with score {self.score}: option-match scores the option's generated "
                "tokens, the other rules that read text have score none"
            )

    def _of_metric(self, reading: Reading) -> Iterator[str]:
        name, metric = self.metric, METRICS[self.metric]
        reads_text = reading.text and self.score == "none"
        if (
            not metric.predicted
            and self.decision != "argmax"
            and not (metric.of_text and reads_text)
        ):
            yield f"metric {name} is made of scores, with decision argmax, not {self.decision}"
        if metric.likelihood and not (reading.one_likelihood and self.calibration == "none"):
            yield f"metric {name} needs log-likelihoods: a reading that gives them, and calibration none"
        if metric.probable and metric.likelihood and self.outside != "keep":
            yield f"metric {name} needs the model's own probabilities: outside keep, not {self.outside}"
        if metric.scores and self.score not in metric.scores:
            yield f"metric {name} needs score {' or '.join(metric.scores)}, not {self.score}"
        if metric.exponential and self.choices != 1 and self.requests is None:
            yield f"metric {name} is about items with one choice: it needs choices 1"
        if metric.orders and (self.views not in PERMUTED or self.calibration != "none"):
            yield f"metric {name} compares orders of the options: views {' or '.join(PERMUTED)} and calibration none"
        if name in ABSTAINING and not abstains(self.prepare):
            yield f'metric {name} needs the option "I don\'t know", which prepare dont-know adds'
        if metric.pooled and self.aggregation == "macro":
            yield f"metric {name} is a number of all items together, no mean over subjects: aggregation micro"
        if self.aggregation == "bytes" and name != "bpb":
            yield f"aggregation bytes weighs bits by the bytes of the answers; metric {name} has none"

    def _of_softmax(self, reading: Reading) -> Iterator[str]:
        name, metric = self.metric, METRICS[self.metric]
        if self.golds != "sum" and not metric.probable:
            yield f"golds {self.golds} says which right choices count in a probability; metric {name} is none"
        if self.golds == "each" and name != "brier":
            yield f"golds each compares every right choice with 1, as brier does; metric {name} does not"
        if self.temperature != "1":
            try:
                known = 0 < float(self.temperature) < math.inf
            except ValueError:
                known = False
            if not known:
                yield f"temperature is {self.temperature!r}; it must be a number above 0, such as 1.5"
            if not metric.softmax or (reading.text and self.score == "none"):
                yield f"temperature {self.temperature} is of the softmax of scores; metric {name} has none"

    def _of_calibration(self, reading: Reading) -> Iterator[str]:
        views, calibration = self.views, self.calibration
        if views not in CALIBRATIONS[calibration]:
            yield f"calibration {calibration} needs views {' or '.join(CALIBRATIONS[calibration])}, not {views}"
        if (views, calibration) == ("given", "none"):
            return
        labels = "{letter}" in self.continuation and "{choice}" not in self.continuation
        if not (
            labels and "views" in reading.takes and (self.score, self.outside) == ("sum", "keep")
        ):
            yield (
                f"views {views} with calibration {calibration} are about the probabilities of fixed labels: they need "
                "a continuation with {letter} and without {choice}, reading loglikelihood, score sum and outside keep"
            )


@dataclass(frozen=True)
class Protocol(ScoringAxes):
    """A complete recipe for a number: five groups of axes, each of which checks itself and those before it.

    The signature, equality and digest derive from these fields alone (:mod:`choicewise.protocols.protocol`).
    """

    def __post_init__(self) -> None:
        """Raise ProtocolError where an axis has no such value, or axes would silently mean nothing together."""
        if problems := axis_problems({name: getattr(self, name) for name in AXES}):
            raise ProtocolError.of_problems(problems)
        if problems := list(self.problems()):
            raise ProtocolError.of_problems(problems)

    def __hash__(self) -> int:
        """Of the digest, which is computed once: every request looks its protocol up."""
        return hash(self.digest)

    @cached_property
    def digest(self) -> str:
        """sha256 (64 hex) over all axes: the protocol's identity, printed short as ``#P`` and six digits."""
        return self._digest("request", "score")

    @cached_property
    def prompt_digest(self) -> str:
        """sha256 (64 hex) over the axes that decide what the model is shown and asked; sharing it shares requests."""
        return self._digest("request")

    @property
    def labels(self) -> str:
        """The letters of the options that are shown: ``letters``, and the next one for an option that is added."""
        last = self.letters[-1:]
        more = chr(ord(last) + 1) if last and more_options(self.prepare) > 0 else ""
        return self.letters + more if more.isalnum() and more not in self.letters else self.letters

    def _digest(self, *stages: str) -> str:
        axes = {
            axis.name: value
            for axis in fields(self)
            for value in [getattr(self, axis.name)]
            if axis.metadata["stage"] in stages
            and (axis.name not in _LATER or value != axis.default)
        }
        return json_digest(axes)


_ALLOWED: Mapping[str, tuple[str, ...]] = {
    axis.name: axis.metadata["allowed"] for axis in fields(Protocol)
}

AXES: Mapping[str, str] = {axis.name: str(axis.type) for axis in fields(Protocol)}
"""Every axis and its type, in the order of the signature: what is asked before what is made of the answers."""


OPEN_AXES: Mapping[str, type[ports.Port]] = {
    "prepare": ports.Preparation,
    "reading": ports.Reading,
    "score": ports.Score,
    "decision": ports.Extraction,
}
"""Axes whose values extensions add to, and their ports."""


def addition_of(axis: str, value: str) -> ports.Port | None:
    """Return what an extension adds under a value of one of :data:`OPEN_AXES`, None for the kernel's values."""
    if axis == "prepare":
        value = preparation_of(value)
    if value in _ALLOWED[axis]:
        return None
    return ports.find(OPEN_AXES[axis], value)


def axis_problems(values: Mapping[str, object]) -> list[str]:
    """What is wrong with single axes among ``values`` (by name): a wrong type, or a value that is not allowed."""
    axes = [axis for axis in fields(Protocol) if axis.name in values]
    problems = []
    for axis in axes:
        value = values[axis.name]
        if type(value) is type(axis.default) and value == axis.default:
            continue  # most axes have their default, which is allowed
        problem = _problem(str(axis.type), axis.metadata["allowed"], value)
        if problem is None:
            continue
        if (
            axis.name in OPEN_AXES
            and isinstance(value, str)
            and addition_of(axis.name, value) is not None
        ):
            continue
        problems.append(f"protocol axis {axis.name} {problem}")
    return problems


def stop_texts(stop: str | None) -> tuple[str, ...]:
    """One a line; but a value that begins with a line break is one text."""
    if stop is None:
        return ()
    return (stop,) if stop.startswith("\n") else tuple(stop.split("\n"))


def holes(template: str) -> frozenset[str]:
    """The names of the holes in ``template``."""
    return frozenset(_positions(template)[1]) - {"{", "}"}


def fill(template: str, holes: Mapping[str, str], *, axis: str = "template") -> str:
    """``template`` with every ``{name}`` replaced by ``holes[name]`` and ``{{``, ``}}`` by one brace.

    Text that is filled in is never read again, even if it holds braces.  Raises ProtocolError, naming ``axis``, when
    a hole is unknown or a brace stands alone.
    """
    text, names = _positions(template)
    try:
        return text % tuple([holes[name] for name in names])
    except KeyError:
        name = next(name for name in names if name not in holes)
    if name in ("{", "}"):
        raise ProtocolError(
            f"protocol axis {axis} has a lone {name!r}; write {name * 2!r} for a literal brace"
        )
    known = ", ".join(f"{{{hole}}}" for hole in holes)
    raise ProtocolError(
        f"protocol axis {axis} has a hole {{{name}}} that nothing fills; known are {known}"
    )


def begins(protocol: ReadingAxes) -> bool:
    """Whether the proposal is what the assistant has begun to say.

    It is where all choices share it, as ``gen_prefix`` in lm-evaluation-harness; one that names the choice belongs to
    what the user says, as in its tasks of several inputs.  After a chain of thought the assistant speaks already.
    """
    proposal, reading = protocol.proposal, READINGS[protocol.reading]
    return bool(proposal) and not (
        "chains" in reading.takes or reading.along or names_choice(proposal)
    )


CHOICE = ("choice", "Choice", "CHOICE")  # holes that an option's text fills


def names_choice(template: str) -> bool:
    """Whether a template differs from choice to choice."""
    return not holes(template).isdisjoint(("letter", *CHOICE))


def said(protocol: ReadingAxes, template: str) -> str:
    """``template``, of a continuation or of the answer of a shot, as it stands in a chat.

    It loses the white space it begins with where the assistant begins to speak: that is the space between question and
    answer in one text, which lm-evaluation-harness leaves out (``target_delimiter`` in ``construct_requests`` and
    ``Message.to_dict``, lm_eval/api/task.py and utils.py at 4e7e0d4).
    """
    if (
        protocol.chat == "none"
        or "chains" in READINGS[protocol.reading].takes
        or protocol.boundary in LABELLED
    ):
        return template
    begun = protocol.proposal if READINGS[protocol.reading].along or begins(protocol) else ""
    if begun and not begun[-1].isspace():
        return template
    if READINGS[protocol.reading].several:
        return "\n".join(line.lstrip() for line in template.split("\n"))
    return template.lstrip()


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


COUNTING = ("joint", "count")
"""Policies that count the context's tokens off, so that a token across its end takes text from the continuation."""

APART = "apart"
"""What stands in for those after a null context that holds the space of its continuations; no value of the axis."""


def signature(protocol: Protocol) -> str:
    """One line that states every axis and parses back to an equal protocol."""
    return "|".join(f"{name}:{_spell(getattr(protocol, name))}" for name in AXES)


@lru_cache(maxsize=1024)
def parse_signature(text: str) -> Protocol:
    """The protocol that ``text`` spells.

    An axis that did not exist when the text was written has the value that was meant then.  Raises ProtocolError when
    an axis is unknown, repeated, missing or malformed.
    """
    values: dict[str, str | int | None] = {}
    for part in text.split("|"):
        name, colon, spelled = part.partition(":")
        if not colon:
            raise ProtocolError(f"signature part {part!r} has no colon; write AXIS:VALUE")
        if name not in AXES:
            raise ProtocolError(
                f"signature part {part!r} names no axis; {did_you_mean(name, AXES)}"
            )
        if name in values:
            raise ProtocolError(f"signature states axis {name} twice")
        values[name] = read_axis(name, spelled)
    if missing := [name for name in AXES if name not in values and name not in _LATER]:
        raise ProtocolError(f"signature leaves out {', '.join(missing)}; every axis must be stated")
    return Protocol(**values)  # type: ignore[arg-type]


def short_signature(protocol: Protocol) -> str:
    """``#P`` and the first six hex digits of the digest, which differ between the rows of a table."""
    return f"#P{protocol.digest[:6]}"


def axis_differences(left: Protocol, right: Protocol) -> list[tuple[str, str, str]]:
    """(axis, left spelling, right spelling) for each axis in which the two protocols differ."""
    values = ((name, getattr(left, name), getattr(right, name)) for name in AXES)
    return [(name, _spell(one), _spell(other)) for name, one, other in values if one != other]


def read_axis(name: str, spelled: str) -> str | int | None:
    """The value of the axis ``name`` that is spelled so; ProtocolError where there is no such axis or value."""
    if name not in AXES:
        raise ProtocolError(f"{name!r} names no axis; {did_you_mean(name, AXES)}")
    if (spelled == "-" and "None" in AXES[name]) or (name, spelled) == ("choices", "any"):
        return None
    if "int" in AXES[name]:
        if not (spelled.isascii() and spelled.isdigit()):
            raise ProtocolError(f"signature axis {name} is {spelled!r}; it must be a whole number")
        return int(spelled)
    try:
        return unquote(spelled, errors="strict")
    except UnicodeDecodeError as error:
        raise ProtocolError(
            f"signature axis {name} holds bytes that are not UTF-8: {spelled!r}"
        ) from error


RENDERED = "rendered requests"
"""The family of protocols whose requests were rendered elsewhere, so that their axes don't show what is asked."""


def family(protocol: Protocol) -> str:
    """What ``protocol`` asks for, from its axes.

    ``letters``, ``letters with answers``, ``whole answers`` (after the options were shown) and ``cloze`` (they were
    not) by what is scored; the reading's own words where it asks for something else, such as ``generated answers``.
    """
    if asked := READINGS[protocol.reading].family:
        return asked
    if protocol.requests is not None:
        return RENDERED
    scored = holes(protocol.continuation) | holes(protocol.proposal)
    if "letter" in scored:
        return "letters" if scored.isdisjoint(CHOICE) else "letters with answers"
    if not scored.isdisjoint(CHOICE):
        return "whole answers" if "options" in holes(protocol.question) else "cloze"
    return protocol.reading.replace("-", " ")


def _spell(value: str | int | None) -> str:
    if value is None:
        return "-"
    if isinstance(value, int):
        return str(value)
    if value == "-":
        return "%2D"
    return "".join(
        char if char.isprintable() and char not in "%|" else quote(char) for char in value
    )


def _problem(annotation: str, allowed: tuple[str, ...], value: object) -> str | None:
    kinds: dict[str, tuple[type, ...]] = {"str": (str,), "int": (int,), "None": (type(None),)}
    expected = tuple(kind for part in annotation.split(" | ") for kind in kinds[part])
    if not isinstance(value, expected) or isinstance(value, bool):
        return f"is {value!r}; it must be {annotation.replace(' | ', ' or ')}"
    if isinstance(value, str) and has_half_character(value):
        return "holds a lone surrogate, which no file can store"
    if isinstance(value, int) and value < 0:
        return f"is {value}; it can't be negative"
    if allowed and value not in allowed:
        return f"is {value!r}; it must be one of {', '.join(each for each in allowed if '+' not in each)}"
    return None


@lru_cache(maxsize=1024)
def _positions(template: str) -> tuple[str, list[str]]:
    """``template`` with %s for every hole, and the names of the holes in order; a lone brace is a hole of that name."""
    names: list[str] = []

    def position(piece: re.Match[str]) -> str:
        if piece[0] in _PLAIN:
            return _PLAIN[piece[0]]
        names.append(piece[0] if piece[1] is None else piece[1])
        return "%s"

    return _PIECE.sub(position, template), names
