"""Declare what axes of a protocol name: readings, scores, random streams, views and calibrations.

A reading called ``noisy-channel`` gets its prompts from :mod:`choicewise.requests.prompters`, and
its observations are combined by :mod:`choicewise.scoring.combine`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass
from functools import partial
from itertools import permutations
from math import isfinite
from typing import Any

from choicewise import ports
from choicewise.errors import ProtocolError
from choicewise.questions import (
    Blanks,
    Cosine,
    Decision,
    Generation,
    MaskedLoss,
    Mass,
    Rendition,
    Sampling,
    SetSpan,
    Span,
)

Order = tuple[int, ...]
"""For every label the option under it."""

MOST = 4
"""Options at most that are shown in every order: there are 24 orders of 4, and 120 of 5."""

DRAWING = ("cyclic-5%",)
"""Views that draw items at random, and need a seed."""

PERMUTED = ("cyclic", "full")
"""Views that show every item in several orders of its options."""

CONTENT_FREE = ("N/A", "", "[MASK]")
"""Texts that say nothing, for question and options (Zhao et al. 2021)."""

OVER_CHAINS = ("marginal", "vote")
"""Scores from an option's probabilities after several chains of thought."""

ALONG = {"at_0": 0.0, "at_25": 0.25, "at_50": 0.5, "at_75": 0.75, "sum": 1.0}
"""Scores along a thought, and the share of its tokens after which they are observed."""

OVER_SPELLINGS = ("likeliest",)
"""Scores from the probabilities of a label's spellings, besides their sum."""

CHOOSING = ("argmax", "greedy-match")
"""Decisions that are made from scores."""

_CORRECTED = frozenset({"shots", "correction"})


@dataclass(frozen=True, slots=True)
class Reading:
    """Describe a way to read a choice's number from a model.

    ``scores``: what can be made of its observations; ``none`` if it gives the number itself.
    ``needs``: kinds of question that a model must support.  ``lines``: fewest and most
    continuations of one choice, one a line of the axis ``continuation``; (1, 1) takes the axis as
    one text, newlines included.  ``takes``: optional axes that mean something for it: ``outside``,
    ``views``, ``shots``, ``chains``, ``new_tokens``, ``thought_tokens``, and ``correction`` if a
    boundary policy may correct its log-likelihoods.  ``fits`` and ``boundaries``: values of the
    axes ``fit`` and ``boundary`` that it can follow; empty for all.

    ``enclosed``: it asks whole texts, after which the tokenizer may put special tokens.
    ``proposal``: the axis of that name must name the option, because the continuations don't.
    ``one_likelihood``: it observes one log-likelihood of each choice and nothing else, so that the
    effect of numeric noise is known.  ``text``: a rule reads its answer from generated text.
    ``renormalised``: it changes the model's probabilities before they are scored.  ``unordered``:
    the list of options is shown as a set, so that nothing may name their positions.  ``along``: it
    cuts the thought that the model writes, closes it, and scores after it.  ``family``: what it
    asks for (:func:`choicewise.protocols.protocol.family`), "" if the continuation says it.
    """

    description: str
    scores: tuple[str, ...]
    _: KW_ONLY
    needs: tuple[type, ...] = (Span,)
    lines: tuple[int, int] = (1, 1)
    takes: frozenset[str] = frozenset({"shots"})
    fits: tuple[str, ...] = ()
    boundaries: tuple[str, ...] = ()
    enclosed: bool = False
    proposal: bool = False
    one_likelihood: bool = False
    text: bool = False
    renormalised: bool = False
    unordered: bool = False
    along: bool = False
    family: str = ""

    def has_score(self, name: str) -> bool:
        """Check if it has a score of that name, one of an extension included."""
        if name in self.scores:
            return True
        # Scores of extensions look at tokens one by one.
        return TOKENWISE[0] in self.scores and ports.find(ports.Score, name) is not None

    @property
    def several(self) -> bool:
        """Check if a choice has several continuations."""
        return self.lines != (1, 1)

    @property
    def by_choice(self) -> bool:
        """Check if it scores a label or a text of each choice after one prompt."""
        if self.proposal or self.unordered:
            return False
        return self.one_likelihood or self.several


SUMS = (
    "sum",
    "token_mean",
    "byte_mean",
    "byte_mean_bare",
    "char_mean",
    "char_mean_bare",
    "word_mean",
    "token_power_0.5",
    "gnmt_0.6",
)
"""Scores that need only a continuation's log-likelihood and its length."""

TOKENWISE = ("arithmetic_mean", "harmonic_mean", "least_likely", "first_token", "greedy")
"""Scores that look at a continuation's tokens one by one."""

CONDITIONAL = ("pmi", "dc_pmi", "normalised_pmi", "domain_conditional")
"""Scores that compare a continuation with itself after a null context."""

SELECT = (
    "token_length_normalized",
    "token_length_normalized_with_prompt",
    "greedy_token_selection",
    "unconditional_likelihood_normalized",
)
"""Scores of SGLang's select, which need what the reading of that name observes."""


ACROSS = ("first_divergent", "constrained_greedy", "locally_renormalised")
"""Scores that compare the choices of an item as continuations of one context."""

SCORES = (*SUMS, *TOKENWISE, *ACROSS, *CONDITIONAL)
"""Every score by name, for which :mod:`choicewise.scoring.scores` has a function."""

SCORE_NAMES = tuple(
    dict.fromkeys([*SCORES, *SELECT, *OVER_CHAINS, *OVER_SPELLINGS, *ALONG, "none"])
)
"""The values of the axis ``score`` without those of extensions."""

_labels = partial(Reading, scores=("sum",), takes=_CORRECTED)
"""A reading whose lines are the labels of one choice."""

_pseudo = partial(
    Reading,
    scores=(*SUMS, *TOKENWISE, *CONDITIONAL),
    needs=(Blanks,),
    fits=("drop-last-shot", "refuse"),
    boundaries=("lcp", "count"),
    enclosed=True,
    one_likelihood=True,
)
"""A reading for masked models, which look at a whole text from both sides."""

READINGS: Mapping[str, Reading] = ports.OpenTable(
    {
        "loglikelihood": Reading(
            "log P(continuation | context), token by token, in one forward pass",
            SCORES,
            takes=_CORRECTED | {"outside", "views"},
            one_likelihood=True,
        ),
        "masked": Reading(
            "the model's own loss with the labels outside the option at -100",
            (*SUMS, *CONDITIONAL),
            needs=(MaskedLoss,),
            one_likelihood=True,
        ),
        "generate": Reading(
            "greedy text after the context, and its tokens' scores",
            (*SUMS, *TOKENWISE, "none"),
            needs=(Generation,),
            takes=frozenset({"shots", "new_tokens", "thought_tokens"}),
            text=True,
            family="generated answers",
        ),
        "surprisal": Reading(
            "log P of every token that holds a byte of the continuation, the two texts encoded as "
            "one",
            SCORES,
            one_likelihood=True,
        ),
        "surprisal-package": Reading(
            "the same as the package surprisal counts it: a BOS before the tokenizer's own, "
            "P(EOS) := 0",
            SUMS,
            renormalised=True,
        ),
        "select": Reading(
            "log P of the tokens that SGLang's select scores, its token healing included",
            SELECT,
            fits=("drop-last-shot", "drop-last-shot-then-cut-end", "refuse"),
        ),
        "spellings": _labels(
            "log of the summed P of several spellings of the option's label",
            scores=("sum", *OVER_SPELLINGS),
            lines=(1, 20),
        ),
        "yes-no": _labels(
            "log P(first line | context, option) - log P(second line | ·)",
            lines=(2, 2),
            proposal=True,
            family="yes or no",
        ),
        "rating": _labels(
            "expected rating, the lines being its labels from the lowest up",
            lines=(2, 20),
            proposal=True,
            family="ratings",
        ),
        "noisy-channel": Reading(
            "log P(question | proposal of the option)",
            (*SUMS, *TOKENWISE),
            takes=frozenset({"correction"}),
            proposal=True,
            one_likelihood=True,
            family="noisy channel",
        ),
        "chain-of-thought": Reading(
            "P(continuation | context, chain, proposal) over sampled chains",
            OVER_CHAINS,
            needs=(Generation, Sampling, Span),
            takes=frozenset({"shots", "new_tokens", "chains"}),
            fits=("drop-last-shot", "refuse"),
            family="chains of thought",
        ),
        "along-thought": Reading(
            "log P(continuation | context, a share of the model's own thought, its closing, "
            "proposal)",
            tuple(ALONG),
            needs=(Generation, Span),
            takes=frozenset({"shots", "new_tokens", "thought_tokens"}),
            fits=("drop-last-shot", "refuse"),
            boundaries=("joint", "separate", "count", "lcp"),
            along=True,
            family="along a thought",
        ),
        "pseudo-loglikelihood": _pseudo(
            "log P of every token of the continuation with it alone hidden, the rest visible"
        ),
        "pseudo-loglikelihood-within-word": _pseudo(
            "the same with the later tokens of its word hidden as well"
        ),
        "encoder-decoder": Reading(
            "log P(continuation | context), the context read by the encoder, the continuation "
            "written by the decoder",
            SCORES,
            needs=(Rendition,),
            fits=("drop-last-shot", "cut-start", "refuse"),
            boundaries=("separate",),
            enclosed=True,
            one_likelihood=True,
        ),
        "set-based": Reading(
            "log P(continuation | context), the listed options read without each other and from "
            "one position on",
            (*SUMS, *TOKENWISE),
            needs=(SetSpan,),
            fits=("drop-last-shot", "refuse"),
            boundaries=("separate",),
            one_likelihood=True,
            unordered=True,
        ),
        "embedding": Reading(
            "cosine of the last token's last hidden states of context and continuation",
            ("none",),
            needs=(Cosine,),
            family="embeddings",
        ),
        "decision": Reading(
            "log of the probability that a decision endpoint gives to the option; continuation is "
            "what the option is "
            "called, proposal describes it, question is the instructions",
            ("sum",),
            needs=(Decision,),
            takes=frozenset(),
            fits=("refuse",),
            boundaries=("joint",),
            one_likelihood=True,
            family="decisions",
        ),
    },
    ports.Reading,
    lambda addition: addition.declaration(),
)
"""Every reading by its name on the axis ``reading``."""


def supported_readings(supports: frozenset[type]) -> list[str]:
    """Return the readings of a model that ``supports`` these kinds of question."""
    return [name for name, reading in READINGS.items() if supports.issuperset(reading.needs)]


CORRECTION_NEEDS = (Mass,)
"""Kinds of question that a boundary policy with a correction needs besides the reading's."""


EXTRACTIONS = (
    "simple-evals@f517a91",
    "simple-evals-multilingual@f517a91",
    "opencompass@14ca958",
    "harness-letter@4e7e0d4",
    "inspect@0.3.42",
    "inspect@0.3.121",
    "inspect@0.3.221",
    "inspect@0.3.264",
    "inspect@499e615",
    "mmlu-pro@f418b11",
    "harness-answer-is@4e7e0d4",
    "helm-gpqa@63754d0",
    "evalscope@1.14.1",
    "olmo-eval-gpqa@e8b88f1",
    "lighteval-indices@3fd1526",
    "opencompass@a5acc4b",
)
"""Published rules that find an option's letter in text, by commit or release of their source."""

NUMBERS = ("gsm8k@b281b09", "gsm8k-strict@4e7e0d4", "gsm8k-flexible@4e7e0d4")
"""Published rules that compare the number in generated text with that of a solution."""


@dataclass(frozen=True, slots=True)
class Stream:
    """Describe a random stream of a task, which draws new examples for every item in order.

    ``shuffled``: the items are shuffled first, by the same stream.  ``spare``: further rows that
    are drawn, so that the item can be left out of its examples.
    """

    shuffled: bool
    spare: int


STREAMS: Mapping[str, Stream] = {
    "harness-v0": Stream(shuffled=True, spare=1),
    "harness-v0-train": Stream(shuffled=True, spare=0),
    "harness": Stream(shuffled=False, spare=0),
    "harness-spare": Stream(shuffled=False, spare=1),
}
"""Every sampler of the harness by name.

``harness-v0``: 2023, tasks without training rows.  ``harness-v0-train``: 2023, tasks with them
(EleutherAI/lm-evaluation-harness@e47e01b and @b281b09, lm_eval/{evaluator,base}.py; seed 42).

``harness``: today, tasks that name a test split.  ``harness-spare``: today, tasks that name neither
a test split nor one for shots, or the same for both; the two are compared, and None equals None, so
that one further row is drawn for HellaSwag or PIQA, although their shots come from train (@4e7e0d4,
lm_eval/api/{samplers,task}.py; seed 1234).

The harness has one stream per task; here there is one per subject, which is the same if a task has
one subject.  Today's harness run on several processes has one stream in each, and so other shots;
these are those of one process.
"""


def _given(options: int, drawn: bool) -> list[Order]:
    return [tuple(range(options))]


def _cyclic(options: int, drawn: bool) -> list[Order]:
    orders = []
    for turn in range(options):
        orders.append(tuple((turn + label) % options for label in range(options)))
    return orders


def _cyclic_if_drawn(options: int, drawn: bool) -> list[Order]:
    return _cyclic(options, drawn) if drawn else _given(options, drawn)


def _full(options: int, drawn: bool) -> list[Order]:
    return list(permutations(range(options)))


VIEWS: Mapping[str, Callable[[int, bool], list[Order]]] = {
    "given": _given,
    "cyclic": _cyclic,
    "cyclic-5%": _cyclic_if_drawn,
    "full": _full,
    "content-free": _given,
}
"""The orders of a number of options, for an item that is drawn or not, by the name of the view.

The first is the order as given.  ``content-free`` shows the ``CONTENT_FREE`` texts besides.
"""

CALIBRATIONS: Mapping[str, tuple[str, ...]] = {
    "none": tuple(VIEWS),
    "batch": tuple(VIEWS),
    "contextual": ("content-free",),
    "pride": ("cyclic", "cyclic-5%"),
    "permutation": PERMUTED,
    "permutation-geometric": PERMUTED,
}
"""The views that a calibration of the labels' probabilities can be made of."""


_TAKEN = (
    "messages",
    "tools",
    "documents",
    "conversations",
    "chat_template",
    "add_generation_prompt",
    "continue_final_message",
    "return_assistant_tokens_mask",
)
"""Arguments that every template gets."""


def template_arguments(template: str | None) -> dict[str, Any]:
    """Read the axis ``template``: JSON or texts by name; ProtocolError for a bad name."""
    if template is None:
        return {}
    arguments: dict[str, Any] = {}
    for line in template.split("\n"):
        name, equals, value = line.partition("=")
        is_new = name not in _TAKEN and name not in arguments
        if not equals or not name.isidentifier() or not is_new:
            raise ProtocolError(f"template {line!r} is no argument; write NAME=VALUE, one per line")
        try:
            arguments[name] = json.loads(value, parse_constant=_finite, parse_float=_finite)
        except (ValueError, RecursionError):
            arguments[name] = value
    return arguments


def _finite(text: str) -> float:
    number = float(text)
    if not isfinite(number):
        # JSON has no such number, so that it is a text.
        raise ValueError(text)
    return number
