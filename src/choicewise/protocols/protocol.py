"""Define the Protocol: its axes, what fits together, its templates, and its signature."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import Field, dataclass, field, fields
from functools import cached_property, lru_cache
from typing import Any
from urllib.parse import quote, unquote

from choicewise import ports
from choicewise.data.decisions import KINDS
from choicewise.errors import ProtocolError, did_you_mean
from choicewise.protocols.metrics import ABSTAINING, METRICS, Metric
from choicewise.protocols.preparations import NAMES as PREPARATIONS
from choicewise.protocols.preparations import (
    NEEDED,
    change_of,
    more_options,
    moves_labels,
    preparation_of,
)
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
from choicewise.util.jsonio import JsonMapping, json_digest
from choicewise.util.text import has_half_character

_REQUEST = {"stage": "request"}
"""Axes that decide which tokens a model gets; protocols equal on these share observations."""

_SCORE = {"stage": "score"}
"""Axes that only decide what is made of the observations; changing one costs no model call."""

SEEDED = ("helm", *STREAMS)
"""Samplers that draw at random."""

FORMS = ("turns", "message")
"""Forms of a chat: shots as turns, or everything in one message of the user (axis ``chat``)."""

SAMPLERS = (
    "first",
    "first-overall",
    "helm",
    "harness-v0",
    "harness-v0-train",
    "harness",
    "harness-spare",
    "curated",
    "none",
)
"""How few-shot examples are chosen (:mod:`choicewise.protocols.shots`)."""

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
        "kind",
        "described",
    ]
)
"""Axes that older signatures and digests leave out: they mean the default, which never changes."""

CORRECTED = ("heal", "word", "bytes")
"""Policies that correct a continuation's tokens to the probability of its text, or of its words."""

BOUNDARIES = (
    "joint",
    "moved-space",
    "separate",
    "count",
    "lcp",
    "last-token",
    *CORRECTED,
)
"""Policies for texts of any length."""

LABELLED = ("label", "label-alone")
"""Policies for labels that are one token each, which refuse others."""


def _axis(default: Any, stage: dict[str, str], *allowed: str) -> Any:
    return field(default=default, metadata={**stage, "allowed": allowed})


@dataclass(frozen=True)
class PromptAxes:
    r"""State which questions are asked, and the templates that make a text of one.

    Templates are plain text with named holes in braces, filled in one pass (text that is filled in
    is never read as a template again; ``{{`` and ``}}`` stand for braces).  All have the item's
    fields as holes.  ``header`` also has ``{subject}`` (underscores as spaces).  ``question``, and
    without shots ``header``, have that, ``{question}``, ``{options}`` and of the last option
    ``{last_letter}`` and ``{last_level}`` (its position, from 0).  The others have ``{letter}`` and
    ``{choice}``, in upper case ``{CHOICE}``, its first sign alone ``{Choice}``.  ``described`` is
    the ``option`` of one that has a ``{description}``.  ``kind``: the typed questions that are
    asked; others are no part of the protocol.

    A prompt is ``header + separator.join([question + answer, ... one per shot ..., question]) +
    proposal``; each choice is scored as ``continuation`` after it.  Without a proposal all choices
    of an item have the same prompt.

    ``requests`` is the digest of requests that were rendered elsewhere; the templates then mean
    nothing and are :data:`~choicewise.protocols.protocol.NEUTRAL`.
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

    @cached_property
    def lists_options(self) -> bool:
        """Check that a prompt has the list of options."""
        return "options" in holes(self.header) | holes(self.question)

    @cached_property
    def item_fields(self) -> frozenset[str]:
        """Return the holes of header and question that only further fields of an item fill."""
        names = holes(self.header) | holes(self.question)
        return names - {"question", "options", "subject", "last_letter", "last_level"}

    def problems(self) -> Iterator[str]:
        """Yield what would silently mean nothing among these axes and those of earlier groups."""
        if self.described is not None and not self.lists_options:
            yield (
                f"axis described is {self.described!r}, a line of the list of options, "
                "but question has no {options}; add it, or leave described out"
            )
        if self.choices is not None and self.choices > len(self.letters):
            yield f"{self.choices} choices need {self.choices} letters; letters is {self.letters!r}"


@dataclass(frozen=True)
class ShotAxes(PromptAxes):
    """State which solved questions stand before the one that is asked."""

    shots: int = _axis(5, _REQUEST)
    shot_split: str | None = _axis("dev", _REQUEST)
    sampler: str = _axis("first", _REQUEST, *SAMPLERS)
    seed: int | None = _axis(None, _REQUEST)

    def problems(self) -> Iterator[str]:
        """Yield what would silently mean nothing among these axes and those of earlier groups."""
        yield from super().problems()
        # Templates beside requests that were rendered elsewhere would be printed and not used.
        if self.requests is not None:
            for axis, neutral in NEUTRAL.items():
                stated = getattr(self, axis)
                is_one_choice = axis == "choices" and stated == 1
                if stated != neutral and not is_one_choice:
                    yield (
                        f"axis {axis} is {stated!r}, but the requests {self.requests[:12]} were "
                        f"rendered elsewhere; it must be {neutral!r}"
                    )
        if self.shots and (self.shot_split is None or self.sampler == "none"):
            yield (
                f"{self.shots} shots need a shot_split and a sampler; "
                f"write shots={self.shots},shot_split=dev,sampler=first"
            )
        if self.shots and self.sampler in SEEDED and self.seed is None:
            yield f"sampler {self.sampler} draws at random and needs a seed, such as seed=0"


@dataclass(frozen=True)
class AskingAxes(ShotAxes):
    """State how the model gets the prompt: as a chat or not, how it is cut, where tokens begin.

    ``template``: arguments of the chat template, ``NAME=VALUE`` a line.  ``thought``: what becomes
    of a thought that the template leaves open.
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
        """Yield what would silently mean nothing among these axes and those of earlier groups."""
        yield from super().problems()
        if self.chat == "none":
            for axis in ("system", "template", "thought"):
                stated = getattr(self, axis)
                if stated != DEFAULTS[axis]:
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
    """State what is read from the model about each choice, and how much it may write.

    Reading ``chain-of-thought`` puts a sampled text before the proposal, which ends before
    ``separator``; ``along-thought`` puts a share of the thought that the model writes, closed by
    the chat template's bytes.

    ``stop`` holds texts, one a line: generated text ends before the first that comes.  A value that
    begins with a line break is one text.  ``thought_tokens``: the most tokens of a thought, after
    which it is closed; then ``new_tokens`` are those of the answer.
    """

    reading: str = _axis("loglikelihood", _REQUEST, *READINGS)
    views: str = _axis("given", _REQUEST, *VIEWS)
    thought_tokens: int | None = _axis(None, _REQUEST)
    new_tokens: int | None = _axis(None, _REQUEST)
    stop: str | None = _axis(None, _REQUEST)
    chains: int | None = _axis(None, _REQUEST)

    def problems(self) -> Iterator[str]:
        """Yield what would silently mean nothing among these axes and those of earlier groups.

        Axes that a reading does not take would be printed and not used; others must be stated.
        """
        yield from super().problems()
        reading = READINGS[self.reading]
        yield from self._of_prompt(reading)
        if reading.unordered:
            yield from self._of_order()
        if "chains" in reading.takes:
            # Chains must be drawn again the same, and their end must be recognised.
            if self.seed is None:
                yield f"reading {self.reading} draws at random and needs a seed"
            if not self.separator:
                yield f"reading {self.reading} ends a chain at separator, so separator can't be empty"
            if not self.proposal or "{letter}" in self.proposal or "{choice}" in self.proposal:
                yield (
                    f"reading {self.reading} needs one proposal for all options, the text after "
                    f"every chain; proposal is {self.proposal!r}"
                )
        yield from self._of_text(reading)
        if self.thought_tokens is not None and "thought_tokens" not in reading.takes:
            yield (
                f"axis thought_tokens is {self.thought_tokens}, but reading {self.reading} "
                "does not generate a thought and then an answer; leave it out"
            )
        if self.thought_tokens == 0:
            yield "axis thought_tokens is 0, which allows no thought; use thought close instead"
        if self.chat != "none":
            yield from self._of_chat(reading)
        else:
            if reading.along:
                yield (
                    f"reading {self.reading} closes a thought as the chat template does; "
                    "use chat message or turns"
                )
            if self.thought_tokens is not None:
                yield (
                    f"axis thought_tokens is {self.thought_tokens!r}, but chat is none; "
                    "use chat turns or message"
                )
        yield from self._of_tokens(reading)
        yield from self._of_views()

    def _of_prompt(self, reading: Reading) -> Iterator[str]:
        name = self.reading
        if reading.proposal and not self.proposal:
            yield (
                f"reading {name} needs the axis proposal, the text that names an option, "
                "such as ' {choice}'"
            )
        lines = self.continuation.split("\n")
        few, many = reading.lines
        if reading.several and not (few <= len(set(lines)) == len(lines) <= many):
            yield (
                f"reading {name} takes {few} to {many} different continuations, one per line; "
                f"continuation is {self.continuation!r}"
            )
        if reading.along and names_choice(self.proposal):
            yield (
                f"reading {name} needs one proposal for all options, the start of every answer; "
                f"proposal is {self.proposal!r}"
            )
        if "shots" not in reading.takes and self.shots:
            yield f"reading {name} scores the question itself and takes no shots; use shots 0"
        if moves_labels(self.prepare) and not reading.by_choice:
            yield (
                f"prepare {self.prepare} moves labels between choices, "
                f"but reading {name} has no score per choice; use another reading"
            )

    def _of_order(self) -> Iterator[str]:
        # A letter would tell the options' order, and without one place for them it is unknown where
        # they stand.
        name = self.reading
        for axis, text in (("option", '"{choice}" '), ("continuation", " {choice}")):
            if "letter" in holes(getattr(self, axis)):
                yield (
                    f"reading {name} shows options in no order, but axis {axis} has {{letter}}; "
                    f"use the text alone, such as {text!r}"
                )
        has_one_list = _positions(self.question)[1].count("options") == 1
        if not has_one_list or self.question.endswith("{options}"):
            yield (
                f"reading {name} needs {{options}} exactly once in question, and text after it; "
                f"question is {self.question!r}"
            )
        for axis, neutral in (("proposal", ""), ("chat", "none"), ("requests", None)):
            stated = getattr(self, axis)
            if stated != neutral:
                yield (
                    f"reading {name} finds the options only in the axis question; "
                    f"axis {axis} is {stated!r}, leave it out"
                )

    def _of_text(self, reading: Reading) -> Iterator[str]:
        name = self.reading
        for axis, meaning in (
            ("new_tokens", "the most tokens to generate"),
            ("chains", "the number of chains"),
        ):
            stated = getattr(self, axis)
            if axis in reading.takes and not stated:
                yield f"reading {name} needs {axis}, {meaning}, which must be at least 1"
            if axis not in reading.takes and stated is not None:
                yield f"axis {axis} is {stated}, but reading {name} does not use it; leave it out"
        if self.stop is not None and "new_tokens" not in reading.takes:
            yield f"axis stop is {self.stop!r}, but reading {name} generates no text; leave it out"
        if not all(stop_texts(self.stop)):
            yield f"axis stop is {self.stop!r}; write one text per line, with no empty line"

    def _of_chat(self, reading: Reading) -> Iterator[str]:
        if self.thought == "close" and (self.thought_tokens is not None or reading.along):
            yield (
                f"thought is close, which allows no thought, but reading {self.reading} "
                "needs one here; use thought keep"
            )
        if "shots" not in reading.takes:
            yield (
                f"reading {self.reading} scores the question itself, which is no turn of a chat; "
                "use chat none"
            )
        lines = chat_text(self, self.continuation).split("\n")
        if reading.several and len(set(lines)) < len(lines):
            yield "two continuations differ only in leading space, which a chat drops; leave one out"

    def _of_tokens(self, reading: Reading) -> Iterator[str]:
        if reading.fits and self.fit not in reading.fits:
            yield f"reading {self.reading} takes fit {' or '.join(reading.fits)}, not {self.fit}"
        name = self.boundary
        if reading.boundaries and name not in reading.boundaries:
            boundaries = " or ".join(reading.boundaries)
            yield f"reading {self.reading} takes boundary {boundaries}, not {name}"
        if name in CORRECTED and "correction" not in reading.takes:
            yield (
                f"boundary {name} corrects log-likelihoods, but reading {self.reading} gives none; "
                "use boundary lcp"
            )
        if name in LABELLED and "\n" in self.continuation and not reading.several:
            yield (
                f"boundary {name} is for labels of one token, "
                f"but continuation has a line break: {self.continuation!r}"
            )

    def _of_views(self) -> Iterator[str]:
        views = self.views
        if views != "given" and "{options}" not in self.question:
            yield f"views {views} changes the list of options, but question has no {{options}}"
        if views in DRAWING and self.seed is None:
            yield f"views {views} draws items at random and needs a seed, such as seed=0"
        if views == "full" and (self.choices or 0) > MOST:
            yield (
                f"views full shows all orders of at most {MOST} choices, not {self.choices}; "
                "use views cyclic"
            )


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
        """Yield what would silently mean nothing among these axes and those of earlier groups."""
        yield from super().problems()
        reading = READINGS[self.reading]
        metric = METRICS[self.metric]
        reads_text = reading.text and self.score == "none"
        yield from self._of_score(reading)
        yield from self._of_decision(reading)
        yield from self._of_likelihood(reading, metric, reads_text)
        yield from self._of_items(metric)
        if self.golds != "sum" and not metric.probable:
            yield (
                f"golds {self.golds} is for metrics of probability, not {self.metric}; use golds "
                "sum"
            )
        if self.golds == "each" and self.metric != "brier":
            yield f"golds each is for metric brier, not {self.metric}; use golds sum, max or first"
        if self.temperature != "1":
            try:
                is_positive = 0 < float(self.temperature) < math.inf
            except ValueError:
                is_positive = False
            if not is_positive:
                yield (
                    f"temperature is {self.temperature!r}; it must be a number above 0, such as 1.5"
                )
            if not metric.softmax or reads_text:
                yield (
                    f"temperature {self.temperature} scales a softmax, "
                    f"but metric {self.metric} has none; use temperature 1"
                )
        yield from self._of_calibration(reading)

    def _of_score(self, reading: Reading) -> Iterator[str]:
        name = self.reading
        if self.score in CONDITIONAL and self.null is None:
            yield (
                f"score {self.score} needs the axis null, the unconditional context; "
                "an empty text is allowed"
            )
        if self.score not in CONDITIONAL and self.null is not None:
            yield (
                f"axis null is {self.null!r}, but score {self.score} does not use it; "
                f"leave it out, or use score {' or '.join(CONDITIONAL)}"
            )
        if not reading.has_score(self.score):
            yield f"reading {name} has no score {self.score}; it has {', '.join(reading.scores)}"
        if self.cut != "read" and not reading.text:
            yield f"axis cut is {self.cut}, but reading {name} generates no text; use cut read"
        if "outside" not in reading.takes and self.outside != "keep":
            yield (
                f"axis outside is {self.outside}, but reading {name} has no such tokens; "
                "use outside keep"
            )
        if self.boundary == "bytes" and (self.outside != "keep" or self.score == "greedy"):
            yield "boundary bytes has no ranks; use outside keep, and a score other than greedy"

    def _of_decision(self, reading: Reading) -> Iterator[str]:
        decision = self.decision
        if reading.text and decision in CHOOSING:
            yield (
                f"reading {self.reading} generates text, which decision {decision} does not read; "
                "use letter-match, option-match or an extraction"
            )
        if not reading.text and decision not in CHOOSING:
            yield (
                f"reading {self.reading} generates no text for decision {decision}; "
                f"use {' or '.join(CHOOSING)}"
            )
        if decision == "argmax" and self.ties == "none":
            yield "decision argmax needs a rule for ties; ties is none, use first, split or wrong"
        if decision == "greedy-match" and self.score != "greedy":
            yield f"decision greedy-match needs score greedy, not {self.score}"
        if reading.text and (decision == "option-match") == (self.score == "none"):
            yield (
                f"decision {decision} does not go with score {self.score}; "
                "option-match needs a score of tokens, the other rules need score none"
            )

    def _of_likelihood(self, reading: Reading, metric: Metric, reads_text: bool) -> Iterator[str]:
        name = self.metric
        fits_decision = metric.predicted or self.decision == "argmax"
        if not fits_decision and not (metric.of_text and reads_text):
            yield f"metric {name} is computed from scores: use decision argmax, not {self.decision}"
        if metric.likelihood:
            if not reading.one_likelihood or self.calibration != "none":
                yield (
                    f"metric {name} needs log-likelihoods; "
                    "use a reading that gives them, and calibration none"
                )
            if metric.probable and self.outside != "keep":
                yield (
                    f"metric {name} needs the model's own probabilities; "
                    f"use outside keep, not {self.outside}"
                )
        if metric.scores and self.score not in metric.scores:
            yield f"metric {name} needs score {' or '.join(metric.scores)}, not {self.score}"

    def _of_items(self, metric: Metric) -> Iterator[str]:
        name = self.metric
        if metric.exponential and self.choices != 1 and self.requests is None:
            yield f"metric {name} is for items with one choice; use choices 1"
        if metric.orders and (self.views not in PERMUTED or self.calibration != "none"):
            yield (
                f"metric {name} compares orders of the options; "
                f"use views {' or '.join(PERMUTED)}, and calibration none"
            )
        if name in ABSTAINING and change_of(self.prepare) != "dont-know":
            yield f'metric {name} needs the option "I don\'t know"; use prepare dont-know'
        if metric.pooled and self.aggregation == "macro":
            yield f"metric {name} is computed over all items together; use aggregation micro"
        if self.aggregation == "bytes" and name != "bpb":
            yield f"aggregation bytes is for metric bpb, not {name}; use aggregation micro"

    def _of_calibration(self, reading: Reading) -> Iterator[str]:
        views = self.views
        calibration = self.calibration
        if views not in CALIBRATIONS[calibration]:
            fitting_views = " or ".join(CALIBRATIONS[calibration])
            yield f"calibration {calibration} needs views {fitting_views}, not {views}"
        if views == "given" and calibration == "none":
            return
        scores_label = "{letter}" in self.continuation and "{choice}" not in self.continuation
        is_plain = self.score == "sum" and self.outside == "keep"
        if not (scores_label and is_plain and "views" in reading.takes):
            yield (
                f"views {views} with calibration {calibration} need labels as continuation, "
                "{letter} without {choice}. "
                "Use reading loglikelihood, score sum and outside keep"
            )


@dataclass(frozen=True)
class Protocol(ScoringAxes):
    """State a complete recipe for a number, in five groups of axes.

    A group checks itself and those before it.  The signature, equality and digest derive from these
    fields alone.
    """

    def __post_init__(self) -> None:
        """Raise ProtocolError if an axis has no such value, or axes mean nothing together."""
        problems = axis_problems({name: getattr(self, name) for name in AXES})
        # Axes are compared only if each of them has a value that it may have.
        if not problems:
            problems = list(self.problems())
        if problems:
            raise ProtocolError.of_problems(problems)

    def __hash__(self) -> int:
        """Hash the digest, which is computed once: every request looks its protocol up."""
        return hash(self.digest)

    @cached_property
    def digest(self) -> str:
        """Return the sha256 (64 hex) over all axes, printed short as ``#P`` and six digits."""
        return self._digest("request", "score")

    @cached_property
    def prompt_digest(self) -> str:
        """Return the sha256 (64 hex) over the axes that decide requests; equal ones share them."""
        return self._digest("request")

    @property
    def columns(self) -> frozenset[str]:
        """Return the fields without which no item of any data can be asked."""
        preparation = preparation_of(self.prepare)
        if preparation == "none":
            return self.item_fields
        # Another preparation may fill holes itself.
        return frozenset(NEEDED.get(preparation, ()))

    @property
    def labels(self) -> str:
        """Return the letters of the options in the prompt, those of added options included."""
        if not self.letters or more_options(self.prepare) <= 0:
            return self.letters
        following = chr(ord(self.letters[-1]) + 1)
        if not following.isalnum() or following in self.letters:
            return self.letters
        return self.letters + following

    def _digest(self, *stages: str) -> str:
        axes = {}
        for axis in fields(self):
            value = getattr(self, axis.name)
            is_stated = axis.name not in _LATER or value != axis.default
            if is_stated and axis.metadata["stage"] in stages:
                axes[axis.name] = value
        return json_digest(axes)


Protocols = Mapping[str, Protocol]
"""Protocols by their names."""

DECLARED_VALUES: Mapping[str, tuple[str, ...]] = {
    axis.name: axis.metadata["allowed"] for axis in fields(Protocol)
}
"""The values that an axis declares, in their order; none if any value of its type is allowed."""

DEFAULTS: JsonMapping = {axis.name: axis.default for axis in fields(Protocol)}
"""The value of an axis that a protocol does not state; an axis that must be stated has none."""

AXES: Mapping[str, str] = {axis.name: str(axis.type) for axis in fields(Protocol)}
"""Every axis and its type, in the order of the signature: requests first, then scoring."""


OPEN_AXES: Mapping[str, type[ports.Port]] = {
    "prepare": ports.Preparation,
    "reading": ports.Reading,
    "score": ports.Score,
    "decision": ports.Extraction,
    "metric": ports.Metric,
}
"""Axes whose values extensions add to, and their ports."""


def addition_of(axis: str, value: str) -> ports.Port | None:
    """Return what an extension adds to one of :data:`OPEN_AXES`, None for the kernel's values."""
    if axis == "prepare":
        value = preparation_of(value)
    if value in DECLARED_VALUES[axis]:
        return None
    return ports.find(OPEN_AXES[axis], value)


def axis_problems(values: Mapping[str, object]) -> list[str]:
    """Return what is wrong with single axes: a wrong type, or a value that is not allowed."""
    problems = []
    for axis in fields(Protocol):
        if axis.name not in values:
            continue
        value = values[axis.name]
        # Most axes have their default, which is allowed.
        if type(value) is type(axis.default) and value == axis.default:
            continue
        problem = _problem(axis, value)
        if problem is not None:
            problems.append(f"protocol axis {axis.name} {problem}")
    return problems


def stop_texts(stop: str | None) -> tuple[str, ...]:
    """Split the axis ``stop`` into texts, one a line, unless it begins with a line break."""
    if stop is None:
        return ()
    if stop.startswith("\n"):
        return (stop,)
    return tuple(stop.split("\n"))


def holes(template: str) -> frozenset[str]:
    """Return the names of the holes in ``template``."""
    return frozenset(_positions(template)[1]) - {"{", "}"}


def fill(template: str, holes: Mapping[str, str], *, axis: str = "template") -> str:
    """Replace every ``{name}`` in ``template`` by ``holes[name]``, and ``{{``, ``}}`` by one brace.

    Text that is filled in is never read again, even if it contains braces.  Raises ProtocolError,
    naming ``axis``, if a hole is unknown or a brace stands alone.
    """
    text, names = _positions(template)
    try:
        return text % tuple([holes[name] for name in names])
    except KeyError:
        unknown = [name for name in names if name not in holes]
    name = unknown[0]
    if name in ("{", "}"):
        raise ProtocolError(
            f"protocol axis {axis} has a lone {name!r}; write {name * 2!r} for a literal brace"
        )
    known_names = ", ".join(f"{{{hole}}}" for hole in holes)
    raise ProtocolError(
        f"protocol axis {axis} has a hole {{{name}}} that nothing fills; use {known_names}"
    )


_PIECE = re.compile(r"\{\{|\}\}|\{([^{}]*)\}|[{}%]")

_PLAIN = {"{{": "{", "}}": "}", "%": "%%"}
"""Pieces of a template that stand for text, in a text with %s for every hole."""


@lru_cache(maxsize=1024)
def _positions(template: str) -> tuple[str, list[str]]:
    """Return ``template`` with %s for every hole, and the names of the holes in order.

    A lone brace is a hole of that name.
    """
    names: list[str] = []

    def position(piece: re.Match[str]) -> str:
        if piece[0] in _PLAIN:
            return _PLAIN[piece[0]]
        names.append(piece[0] if piece[1] is None else piece[1])
        return "%s"

    return _PIECE.sub(position, template), names


def begins(protocol: ReadingAxes) -> bool:
    """Check if the proposal is the start of the assistant's answer.

    It is if all choices share it, like ``gen_prefix`` in lm-evaluation-harness; one that names the
    choice belongs to the user's message, as in its tasks of several inputs.  After a chain of
    thought the assistant speaks already.
    """
    if not protocol.proposal or names_choice(protocol.proposal):
        return False
    reading = READINGS[protocol.reading]
    return not reading.along and "chains" not in reading.takes


CHOICE = ("choice", "Choice", "CHOICE")
"""Holes that an option's text fills."""


def names_choice(template: str) -> bool:
    """Check if a template differs from choice to choice."""
    return not holes(template).isdisjoint(("letter", *CHOICE))


def chat_text(protocol: ReadingAxes, template: str) -> str:
    """Return a continuation's ``template``, or that of a shot's answer, as a chat contains it.

    It loses the white space it begins with if the assistant begins to speak there: that is the
    space between question and answer in one text, which lm-evaluation-harness leaves out
    (``target_delimiter`` in ``construct_requests`` and ``Message.to_dict``, lm_eval/api/task.py and
    utils.py at 4e7e0d4).
    """
    reading = READINGS[protocol.reading]
    if protocol.chat == "none" or "chains" in reading.takes or protocol.boundary in LABELLED:
        return template
    begun = protocol.proposal if reading.along or begins(protocol) else ""
    if begun and not begun[-1].isspace():
        return template
    if reading.several:
        return "\n".join(line.lstrip() for line in template.split("\n"))
    return template.lstrip()


NEUTRAL: JsonMapping = {
    "header": "",
    "option": "",
    "answer": "",
    "proposal": "",
    "separator": "",
    "quirk": "none",
    "strip": "none",
    "sampler": "none",
    "question": "{question}",
    "continuation": "{choice}",
    "choices": None,
    "shots": 0,
    "shot_split": None,
}
"""The axes that render, for ``requests`` that were rendered elsewhere; ``choices`` may be 1."""


COUNTING = ("joint", "count")
"""Policies that count the context's tokens off, even if one spans the continuation's start."""

APART = "apart"
"""The policy of a null context that has the space of its continuations; no value of the axis."""


def signature(protocol: Protocol) -> str:
    """Return one line that states every axis and parses back to an equal protocol."""
    return "|".join(f"{name}:{_spell(getattr(protocol, name))}" for name in AXES)


@lru_cache(maxsize=1024)
def parse_signature(text: str) -> Protocol:
    """Return the protocol that ``text`` spells.

    An axis that did not exist when the text was written has the value that was meant then.  Raises
    ProtocolError if an axis is unknown, repeated, missing or malformed.
    """
    values: dict[str, str | int | None] = {}
    for part in text.split("|"):
        name, colon, spelled = part.partition(":")
        if not colon:
            raise ProtocolError(f"signature part {part!r} has no colon; write AXIS:VALUE")
        if name not in AXES:
            raise ProtocolError(
                f"signature part {part!r} is not an axis; {did_you_mean(name, AXES)}"
            )
        if name in values:
            raise ProtocolError(f"signature has axis {name} twice; leave one out")
        values[name] = read_axis(name, spelled)
    missing = [name for name in AXES if name not in values and name not in _LATER]
    if missing:
        raise ProtocolError(f"signature leaves out {', '.join(missing)}; add them")
    return Protocol(**values)  # type: ignore[arg-type]


def short_signature(protocol: Protocol) -> str:
    """Return ``#P`` and six hex digits of the digest, which differ between the rows of a table."""
    return f"#P{protocol.digest[:6]}"


def axis_differences(left: Protocol, right: Protocol) -> list[tuple[str, str, str]]:
    """Return (axis, left spelling, right spelling) for each axis in which two protocols differ."""
    differences = []
    for name in differing(left, right):
        differences.append((name, _spell(getattr(left, name)), _spell(getattr(right, name))))
    return differences


def differing(left: Protocol, right: Protocol) -> tuple[str, ...]:
    """Return the axes in which two protocols differ, in order."""
    return tuple(name for name in AXES if getattr(left, name) != getattr(right, name))


def read_axis(name: str, spelled: str) -> str | int | None:
    """Return the spelled value of an axis; ProtocolError if there is no such axis or value."""
    if name not in AXES:
        raise ProtocolError(f"{name!r} is not an axis; {did_you_mean(name, AXES)}")
    if spelled == "-" and "None" in AXES[name]:
        return None
    if name == "choices" and spelled == "any":
        return None
    if "int" in AXES[name]:
        if not (spelled.isascii() and spelled.isdigit()):
            raise ProtocolError(f"signature axis {name} is {spelled!r}; it must be a whole number")
        return int(spelled)
    try:
        return unquote(spelled, errors="strict")
    except UnicodeDecodeError as error:
        raise ProtocolError(
            f"signature axis {name} has bytes that are not UTF-8: {spelled!r}"
        ) from error


# The protocols of a family share most of their values.
@lru_cache(maxsize=4096)
def _spell(value: str | int | None) -> str:
    if value is None:
        return "-"
    if isinstance(value, int):
        return str(value)
    if value == "-":
        return "%2D"
    spelled = ""
    for character in value:
        # % would be read as an escape, and | as the end of the axis.
        if character in "%|" or not character.isprintable():
            character = quote(character)
        spelled += character
    return spelled


RENDERED = "rendered requests"
"""The family of protocols whose requests were rendered elsewhere, so that axes don't show them."""

LETTER_FAMILIES = ("letters", "letters with answers")
"""Families of protocols that score labels; one number stands for all of them."""

TEXT_FAMILIES = ("cloze", "whole answers")
"""Families of protocols that score texts; one number stands for all of them."""


def family(protocol: Protocol) -> str:
    """Name what ``protocol`` scores, from its axes.

    It is ``letters``, ``letters with answers``, ``whole answers`` (with a list of options) or
    ``cloze`` (without); or the reading's words if it asks for something else, such as ``generated
    answers``.
    """
    reading_family = READINGS[protocol.reading].family
    if reading_family:
        return reading_family
    if protocol.requests is not None:
        return RENDERED
    scored = holes(protocol.continuation) | holes(protocol.proposal)
    names_text = not scored.isdisjoint(CHOICE)
    if "letter" in scored:
        return "letters with answers" if names_text else "letters"
    if names_text:
        return "whole answers" if "options" in holes(protocol.question) else "cloze"
    return protocol.reading.replace("-", " ")


_TYPES: Mapping[str, tuple[type, ...]] = {
    "str": (str,),
    "int": (int,),
    "str | None": (str, type(None)),
    "int | None": (int, type(None)),
}
"""The types of an axis by its annotation."""


def _problem(axis: Field[Any], value: object) -> str | None:
    annotation = str(axis.type)
    allowed = axis.metadata["allowed"]
    if not isinstance(value, _TYPES[annotation]) or isinstance(value, bool):
        return f"is {value!r}; it must be {annotation.replace(' | ', ' or ')}"
    if isinstance(value, str) and has_half_character(value):
        return "has half a character (a lone surrogate), which no file can store"
    if isinstance(value, int) and value < 0:
        return f"is {value}; it can't be negative"
    if not allowed or value in allowed:
        return None
    if isinstance(value, str) and axis.name in OPEN_AXES:
        if addition_of(axis.name, value) is not None:
            return None
    # Every preparation goes with every change, which would be a list of hundreds.
    plain = [name for name in allowed if "+" not in name]
    return f"is {value!r}; it must be one of {', '.join(plain)}"
