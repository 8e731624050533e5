"""Compute every score: one function for each, with its formula and its source.

A score is the function of its name; protocols/readings.py declares the names, so a new score is a
name there and a function here.  A decimal number at the end of a name is the function's exponent.
The docstring of a score is its formula, which the documentation prints.

A function takes the observed continuations, and a conditional one also ``null``, which holds the
same rows scored after the null context.  It returns float64 [rows], greater is better, NaN if
missing.  S is the sum of a row's log-probabilities; all are in nats or nats per unit.

The choices of an item form a trie of tokens.  Every token in it was scored for some choice, so the
observations give what decoding restricted to the choices would produce.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from choicewise import ports
from choicewise.errors import UsageError
from choicewise.protocols.readings import ACROSS, CONDITIONAL, SUMS, TOKENWISE
from choicewise.questions import UNKNOWN
from choicewise.scoring.observed import (
    Continuations,
    Floats,
    Mask,
    Range,
    item_any,
    known_range,
    row_of,
    without_bounds,
)
from choicewise.util.text import common_start

LACKS = (
    "",
    "the log has no texts of the choices, so lengths can't be counted",
    "the log has no token counts; with texts, the model's tokenizer can count them",
    "the log does not mark the likeliest tokens",
    "the log has no log-likelihoods after a null context",
    "the log has no log-probabilities of single tokens, only their sum",
    "a choice is empty and has no length",
)
"""Why a score can't be computed; "" if it can, or if an observation has tokens or is missing."""

_TEXT, _COUNT, _FLAG, _NULL, _TOKENS, _EMPTY = range(1, len(LACKS))


def lacking(
    score: Score, observed: Continuations, null: Continuations | None
) -> npt.NDArray[np.int8]:
    """Return what the rows of ``observed`` lack for ``score``, indices of ``LACKS``, int8 [rows].

    ``null``: the continuations after the null context, if the score has one.  A score lacks the one
    thing that, if it is supplied, gives it a number; so a new score needs no entry here.
    """
    lacks = np.zeros(len(observed.text), dtype=np.int8)
    if observed.totals is None:
        return lacks
    from_total = (observed.counts == 0) & ~np.isnan(observed.totals)
    lacks[from_total & np.isnan(score(observed, null))] = _TOKENS
    if not lacks.any():
        return lacks

    placeholder = np.ones(len(observed.text))
    texts = [text or "x" for text in observed.text]
    supplied = {
        _TEXT: replace(observed, text=texts),
        _COUNT: replace(observed, token_counts=placeholder),
        _FLAG: replace(observed, all_greedy=placeholder),
    }
    for code, continuations in supplied.items():
        _mark_if_scored(lacks, code, score, continuations, null)
    if null is not None:
        _mark_if_scored(lacks, _NULL, score, observed, observed)

    is_empty = np.array([text == "" for text in observed.text], dtype=np.bool_)
    lacks[(lacks == _TEXT) & is_empty] = _EMPTY
    return lacks


def _mark_if_scored(
    lacks: npt.NDArray[np.int8],
    code: int,
    score: Score,
    observed: Continuations,
    null: Continuations | None,
) -> None:
    """Set ``lacks`` to ``code`` in rows that ``score`` gives a number with what is supplied."""
    unexplained = lacks == _TOKENS
    if unexplained.any():
        lacks[unexplained & ~np.isnan(score(observed, null))] = code


COMPARING = ("constrained_greedy", "locally_renormalised")
"""Scores that don't rise with the choice's log-probabilities alone, so that bounds leave them open.

``greedy`` is not among them: it looks at ranks alone, which a bound does not affect.
"""

_NULL_ALONE = ("domain_conditional",)
"""Scores that rise with the log-likelihood after the null context; all others fall."""


def score_range(score: Score, observed: Continuations, null: Continuations | None) -> Range:
    """Return the lowest and the highest score of every row, float64 [rows] each.

    The true log-probabilities may be anything up to their bounds, independently.  NaN if a score is
    missing or has no bounds.
    """
    has_null_bounds = null is not None and null.at_most is not None
    if observed.at_most is None and not has_null_bounds:
        exact = score(observed, null)
        return exact, exact
    if score.name in COMPARING:
        bounds = observed.at_most
        if bounds is None:
            bounds = np.zeros(len(observed.text), dtype=np.bool_)
        has_bound = item_any(bounds, observed.item_offsets)
        return without_bounds(score(observed, null), has_bound[row_of(observed.item_offsets)])

    lowest = observed.lowest()
    if null is None:
        return known_range(score(lowest), score(observed))
    if score.name in _NULL_ALONE:
        return known_range(score(lowest, null.lowest()), score(observed, null))
    return known_range(score(lowest, null), score(observed, null.lowest()))


FIXED: dict[str, float] = {
    "arithmetic_mean": 1.0,
    "harmonic_mean": 1.0,
    "least_likely": 1.0,
    "first_token": 1.0,
    "first_divergent": 1.0,
    # The errors of the other choices count, too.
    "locally_renormalised": 2.0,
    # Scores of 1 or 0 have no sensitivity.
    "greedy": np.nan,
    "constrained_greedy": np.nan,
}
"""Units of the score per nat of error in the log-likelihood, for scores that look at single tokens.

One token can have all of the error, so it can't be computed from an error spread over all tokens.
"""

_STEP = 1e-3


def sensitivity(
    name: str, score: Score, observed: Continuations, null: Continuations | None
) -> Floats:
    """Return units of the score per nat of noise in one token, float64 [rows]; NaN if unknown.

    Errors of tokens are independent, so a sum over n tokens has √n times the error of one: the
    sensitivity is √n for a sum, 1 / √n for a mean over tokens, and 2 √n for PMI, where both
    likelihoods can be off.
    """
    if name in FIXED:
        return np.where(observed.counts > 0, FIXED[name], np.nan)
    # A step of 0 makes the same copy in float64, so that rounding to float32 is no difference.
    unmoved_null = None
    moved_null = None
    if null is not None:
        unmoved_null = _moved(null, 0.0)
        moved_null = _moved(null, _STEP)
    unmoved = score(_moved(observed, 0.0), unmoved_null)
    moved = score(_moved(observed, -_STEP), moved_null)
    # An impossible continuation stays impossible, and its difference is NaN.
    with np.errstate(invalid="ignore"):
        return np.abs(moved - unmoved) / _STEP


@dataclass(frozen=True, slots=True)
class Score:
    """Name a score; ``function`` also takes the continuations after null if ``conditional``."""

    name: str
    function: Callable[..., Floats]
    conditional: bool

    def __call__(self, observed: Continuations, null: Continuations | None = None) -> Floats:
        """Return one number per row, float64 [rows]: greater is better, NaN is missing.

        Raises UsageError if a conditional score does not get the continuations after the null
        context, or gets some with other rows than the observed ones.
        """
        if not self.conditional:
            return self.function(observed)
        if null is None:
            raise UsageError(
                f"the score {self.name} needs the continuations after its null context; none were "
                "given"
            )
        if len(null.text) != len(observed.text):
            raise UsageError(
                f"{len(null.text)} continuations after the null context for {len(observed.text)} "
                "choices"
            )
        return self.function(observed, null)


def tokens(observed: Continuations) -> Floats:
    """Count the scored tokens, float64 [rows]; 0 if missing, NaN if the log does not say."""
    counts = observed.counts.astype(np.float64)
    if observed.totals is None:
        return counts
    from_total = (counts == 0) & ~np.isnan(observed.totals)
    logged = np.nan if observed.token_counts is None else observed.token_counts
    return np.where(from_total, logged, counts)


def pmi(observed: Continuations, null: Continuations) -> Floats:
    """S(context) - S(null context), in nats (Brown et al. 2020; OLMES acc_uncond).

    With a domain premise as the null context it is DC-PMI (Holtzman et al. 2021).
    """
    # Two impossible continuations have no difference.
    with np.errstate(invalid="ignore"):
        return observed.sums - null.sums


def normalised_pmi(observed: Continuations, null: Continuations) -> Floats:
    """PMI / -S(null context), at most 1: the share of surprisal that the context removes.

    ANPMI of Cho et al. 2025.
    """
    return per(pmi(observed, null), -null.sums)


def domain_conditional(observed: Continuations, null: Continuations) -> Floats:
    """S(domain premise) alone, in nats: the choices without the question.

    The baseline of Holtzman et al. 2021.
    """
    return np.where(np.isnan(observed.sums), np.nan, null.sums)


def sum(observed: Continuations) -> Floats:
    """S, not divided by anything (lm-evaluation-harness acc; Hendrycks et al. 2021)."""
    return observed.sums


def token_mean(observed: Continuations) -> Floats:
    """S / scored tokens (Brown et al. 2020, GPT-3, section 2.4).

    It is minus the loss that a model returns if the labels mask everything else.
    """
    return per(observed.sums, tokens(observed))


def byte_mean(observed: Continuations) -> Floats:
    """S / bytes of the scored tokens, the leading space counted (Gao 2021, blog.eleuther.ai)."""
    return per(observed.sums, token_bytes(observed))


def byte_mean_bare(observed: Continuations) -> Floats:
    """S / bytes of the text without its leading space.

    It is acc_bytes of lm-evaluation-harness (PR 3368).
    """
    return per(observed.sums, bytes_bare(observed))


def char_mean(observed: Continuations) -> Floats:
    """S / characters of the text, the leading space counted.

    It is acc_per_char of OLMES (Gu et al. 2024).
    """
    return per(observed.sums, chars(observed))


def char_mean_bare(observed: Continuations) -> Floats:
    """S / characters of the text without its leading space (lm-evaluation-harness acc_norm)."""
    return per(observed.sums, _measured(observed, lambda text: len(bare(text))))


def word_mean(observed: Continuations) -> Floats:
    """S / words between whitespace (the unit of lm-evaluation-harness word_perplexity)."""
    # The leading space makes no word, and Chinese is one.
    return per(observed.sums, _measured(observed, lambda text: len(text.split())))


def token_power(observed: Continuations, alpha: float) -> Floats:
    """S / tokens^alpha: the sum at alpha 0, the token mean at alpha 1 (Wu et al. 2016)."""
    return per(observed.sums, tokens(observed) ** alpha)


def gnmt(observed: Continuations, alpha: float) -> Floats:
    """S / ((5 + tokens) / 6)^alpha, Google's length penalty for translations (Wu et al.
    2016)."""
    return per(observed.sums, ((5 + tokens(observed)) / 6) ** alpha)


def per(sums: Floats, length: Floats) -> Floats:
    """Return ``sums / length``; NaN if the length is 0."""
    # A mean over nothing must not win.  Infinite over infinite is NaN, too.
    with np.errstate(invalid="ignore"):
        return np.divide(sums, length, out=np.full(len(sums), np.nan), where=length > 0)


def bare(text: str) -> str:
    """Return ``text`` without the one space that separates it from its context.

    Further spaces belong to the choice.
    """
    return text.removeprefix(" ")


def token_bytes(observed: Continuations) -> Floats:
    """Count the bytes of the scored tokens, the leading space included, float64 [rows].

    NaN if missing.  Of rows observed without tokens, these are the bytes of the text.
    """
    sizes = observed.reduce(np.add, observed.sizes)
    if observed.totals is None:
        return sizes
    # Half a surrogate pair has bytes if a token spells it.
    spelled = _measured(observed, lambda text: len(text.encode(errors="surrogatepass")))
    from_total = (observed.counts == 0) & ~np.isnan(observed.totals)
    return np.where(from_total, spelled, sizes)


def bytes_bare(observed: Continuations) -> Floats:
    """Count the UTF-8 bytes of the text without its leading space, float64 [rows].

    Lengths of a text are NaN if it was not recorded.
    """
    return _measured(observed, lambda text: len(bare(text).encode()))


def chars(observed: Continuations) -> Floats:
    """Count the characters (code points) of the text, the leading space included."""
    return _measured(observed, len)


def _measured(observed: Continuations, length: Callable[[str], int]) -> Floats:
    """Return the ``length`` of every text, float64 [rows]; NaN if the text was not recorded."""
    lengths = [np.nan if text is None else length(text) for text in observed.text]
    return np.array(lengths, dtype=np.float64)


def arithmetic_mean(observed: Continuations) -> Floats:
    """log of the mean token probability, log (1/n) Σ exp ℓ (Tsvilodub et al. 2024).

    It is the mean of lm-scorer.
    """
    total = observed.reduce(np.logaddexp, observed.logprobs)
    return total - np.log(np.maximum(observed.counts, 1))


def harmonic_mean(observed: Continuations) -> Floats:
    """log of the harmonic mean token probability, log n - log Σ exp -ℓ (lm-scorer's hmean)."""
    negative = -observed.logprobs.astype(np.float64)
    return np.log(np.maximum(observed.counts, 1)) - observed.reduce(np.logaddexp, negative)


def least_likely(observed: Continuations) -> Floats:
    """min log P(token), in nats: the weakest link of the continuation."""
    return observed.reduce(np.minimum, observed.logprobs)


def first_token(observed: Continuations) -> Floats:
    """log P(first token), in nats (MediaPipe firstTokenOnly); equal first tokens tie."""
    scores = np.full(len(observed.text), np.nan)
    present = observed.counts > 0
    scores[present] = observed.logprobs[observed.offsets[:-1][present]]
    return scores


def greedy(observed: Continuations) -> Floats:
    """1 if every token is the most likely one, so that greedy decoding gives the text, else 0.

    NaN if a rank is unknown (lm-evaluation-harness exact_match).
    """
    is_likeliest = np.where(observed.ranks == UNKNOWN, np.nan, observed.ranks == 0)
    scores = observed.reduce(np.minimum, is_likeliest)
    if observed.all_greedy is None:
        return scores
    return np.where(observed.counts > 0, scores, observed.all_greedy)


def first_divergent(observed: Continuations) -> Floats:
    """log P of the first token that not all choices of the item share, in nats.

    That token is where the span starts in nanochat's core_eval.  NaN for a choice that ends before
    it.
    """
    scores = np.full(len(observed.text), np.nan)
    for start, end in pairwise(observed.item_offsets.tolist()):
        rows = [row for row in range(start, end) if observed.counts[row]]
        shared = common_start([observed.token_ids(row) for row in rows])
        for row in rows:
            if observed.counts[row] > shared:
                scores[row] = observed.logprobs[observed.offsets[row] + shared]
    return scores


def locally_renormalised(observed: Continuations) -> Floats:
    """Σ log (P(token) / Σ P(tokens the choices allow there)), in nats.

    It is the probability of drawing the choice token by token from a model restricted to the
    choices, as decoding under a grammar does (outlines, guidance).  Distinct choices sum to 1.  NaN
    for all choices of an item if one is missing or is the start of another: the model may have
    stopped there, and that was not observed.
    """
    return _sum_over_path(observed, _log_share)


def constrained_greedy(observed: Continuations) -> Floats:
    """1 for the choice that greedy decoding restricted to the choices produces, else 0.

    It is guidance's select, and differs from the most likely choice if that one starts with a less
    likely token.  Choices whose tokens tie all get 1.  NaN for all choices of an item in the cases
    of :func:`locally_renormalised`.
    """
    refused = _sum_over_path(observed, _is_refused)
    return np.where(np.isnan(refused), np.nan, refused == 0)


def _log_share(logprobs: Floats) -> Floats:
    total = np.logaddexp.reduce(logprobs)
    # If all branches are impossible, none would be drawn.
    if total == -np.inf:
        return np.full_like(logprobs, -np.inf)
    return logprobs - total


def _is_refused(logprobs: Floats) -> Mask:
    return logprobs < logprobs.max()


def _sum_over_path(
    observed: Continuations, step: Callable[[Floats], npt.NDArray[np.generic]]
) -> Floats:
    """Sum ``step`` over the tokens of each choice, float64 [rows].

    ``step`` takes log P of the tokens at one node of the item's trie, float64 [branches], and
    returns a number for each.  NaN for the items with a missing choice, or with one that is the
    start of another.
    """
    scores = np.full(len(observed.text), np.nan)
    for start, end in pairwise(observed.item_offsets.tolist()):
        choices = [observed.token_ids(row) for row in range(start, end)]
        is_missing = np.isnan(observed.token_sums[start:end]).any()
        if not is_missing and not _starts_another(choices):
            scores[start:end] = _sums_over_paths(observed, start, choices, step)
    return scores


def _starts_another(choices: list[list[int]]) -> bool:
    """Check if a choice is the start of a longer one."""
    # In sorted order the first longer choice that a choice is the start of comes right after it.
    for choice, following in pairwise(sorted(choices)):
        if choice != following and following[: len(choice)] == choice:
            return True
    return False


def _sums_over_paths(
    observed: Continuations,
    start: int,
    choices: list[list[int]],
    step: Callable[[Floats], npt.NDArray[np.generic]],
) -> Floats:
    """Walk the trie of an item's ``choices``, whose first row is ``start``."""
    sums = np.zeros(len(choices))
    nodes = [(0, list(range(len(choices))))]
    while nodes:
        depth, members = nodes.pop()
        members_of_token: dict[int, list[int]] = {}
        for member in members:
            if depth < len(choices[member]):
                members_of_token.setdefault(choices[member][depth], []).append(member)
        branches = list(members_of_token.values())
        if not branches:
            continue
        # Choices that share a branch have the same tokens up to it: the first one's log-probability
        # is that of all.
        rows = start + np.array([members[0] for members in branches])
        logprobs = observed.logprobs[observed.offsets[rows] + depth].astype(np.float64)
        for value, members in zip(step(logprobs), branches, strict=True):
            sums[members] += value
            nodes.append((depth + 1, members))
    return sums


def _moved(observed: Continuations, nats: float) -> Continuations:
    """Add √tokens · ``nats`` to every log-likelihood, spread evenly over its tokens, in float64."""
    added = nats * np.sqrt(observed.counts)
    step = added / np.maximum(observed.counts, 1)
    # float32 would round the step away.
    logprobs = observed.logprobs.astype(np.float64) + step[row_of(observed.offsets)]
    totals = observed.totals
    if totals is not None:
        # A total without tokens is a sum of an unknown number of them.
        totals = np.where(observed.counts > 0, totals + added, np.nan)
    return replace(observed, logprobs=logprobs, totals=totals)  # type: ignore[arg-type]


_FUNCTIONS: dict[str, Callable[..., Floats]] = {
    "sum": sum,
    "token_mean": token_mean,
    "byte_mean": byte_mean,
    "byte_mean_bare": byte_mean_bare,
    "char_mean": char_mean,
    "char_mean_bare": char_mean_bare,
    "word_mean": word_mean,
    "token_power": token_power,
    "gnmt": gnmt,
    "arithmetic_mean": arithmetic_mean,
    "harmonic_mean": harmonic_mean,
    "least_likely": least_likely,
    "first_token": first_token,
    "greedy": greedy,
    "first_divergent": first_divergent,
    "constrained_greedy": constrained_greedy,
    "locally_renormalised": locally_renormalised,
    "pmi": pmi,
    "dc_pmi": pmi,
    "normalised_pmi": normalised_pmi,
    "domain_conditional": domain_conditional,
}


def _score(name: str) -> Score:
    """Return the score of a name; a decimal number at its end is the function's exponent."""
    stem, _, exponent = name.rpartition("_")
    if "." in exponent:
        powered = partial(_FUNCTIONS[stem], alpha=float(exponent))
        return Score(name, powered, conditional=False)
    return Score(name, _FUNCTIONS[name], name in CONDITIONAL)


dc_pmi = pmi

SCORES: dict[str, Score] = ports.OpenTable(
    {name: _score(name) for name in (*SUMS, *TOKENWISE, *ACROSS, *CONDITIONAL)},
    ports.Score,
    lambda addition: Score(addition.name, addition.values, conditional=False),
)
"""Every score by its name, those of extensions included."""
