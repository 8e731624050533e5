"""Every score, one function each, formula and citation.

A score is the function of its name, in the module that computes its kind; protocols/readings.py declares the names.
So a new score is one name there and one function here.  A decimal number that ends a name is the function's exponent.

``null`` holds the same rows as ``observed``, scored after the null context.  Float64 [rows], NaN where either is
missing.

That is read off the score itself: what it gives a number with and none without, it lacks.  So a new score needs nothing
here.

All in nats (per unit), float64 [rows], NaN where missing.

The choices of an item form a trie of tokens.  Every token in it was scored for some choice, so the observations give
what decoding restricted to the choices would produce.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise, takewhile
from typing import Any

import numpy as np
import numpy.typing as npt

from choicewise import ports
from choicewise.errors import UsageError
from choicewise.protocols.readings import ACROSS, CONDITIONAL, SUMS, TOKENWISE
from choicewise.questions import UNKNOWN
from choicewise.scoring.observed import Continuations, Floats, Range, reduce_rows, row_of

LACKS = (
    "",
    "the log has no texts of the choices: their lengths can't be counted",
    "the log has no token counts: the model's tokenizer can count them where the texts are there",
    "the log does not say whether each token was the likeliest one",
    "the log has no log-likelihoods without the question: nothing was asked after a null context",
    "the log has no log-probabilities of single tokens, only their sum",
    "a choice has an empty text, which has no length",
)
"""Why a score can't be computed; nothing where it can, or where an observation has tokens or is missing."""

_TEXT, _COUNT, _FLAG, _NULL, _TOKENS, _EMPTY = range(1, len(LACKS))

_SUPPLIED: dict[int, Callable[[Continuations, Continuations | None], _Given]] = {
    _TEXT: lambda observed, null: (
        replace(observed, text=[text or "x" for text in observed.text]),
        null,
    ),
    _COUNT: lambda observed, null: (
        replace(observed, token_counts=np.ones(len(observed.text))),
        null,
    ),
    _FLAG: lambda observed, null: (replace(observed, all_greedy=np.ones(len(observed.text))), null),
    _NULL: lambda observed, null: (observed, None if null is None else observed),
}
"""What may be lacking → the same observations with something in its place."""


def lacking(
    score: Score, observed: Continuations, null: Continuations | None
) -> npt.NDArray[np.int8]:
    """What the rows of ``observed`` lack for ``score``, as places in ``LACKS``; int8 [rows].

    ``null``: the continuations after the null context, where the score has one.
    """
    lacks = np.zeros(len(observed.text), dtype=np.int8)
    if observed.totals is None:
        return lacks
    without = np.isnan(score(observed, null)) & (observed.counts == 0) & ~np.isnan(observed.totals)
    lacks[without] = _TOKENS
    for code, supply in _SUPPLIED.items():
        if (without & (lacks == _TOKENS)).any():
            lacks[without & (lacks == _TOKENS) & ~np.isnan(score(*supply(observed, null)))] = code
    empty = np.array([text == "" for text in observed.text], dtype=np.bool_)
    return np.where((lacks == _TEXT) & empty, _EMPTY, lacks).astype(np.int8)


COMPARING = ("constrained_greedy", "locally_renormalised")
"""Scores that don't simply rise with the choice's own log-probabilities: made of a bound they are not known.

``greedy`` looks at ranks alone, of which a bound does not take anything away.
"""

_NULL_ALONE = ("domain_conditional",)
"""Scores that rise with the log-likelihood after the null context; all others fall."""


def score_range(score: Score, observed: Continuations, null: Continuations | None) -> Range:
    """The lowest and the highest score of every row, float64 [rows] each; NaN where it is missing or has no bounds.

    The true log-probabilities may be anything up to their bounds, each by itself.
    """
    if observed.at_most is None and (null is None or null.at_most is None):
        known = score(observed, null)
        return known, known
    if score.name in COMPARING:
        bounds = np.zeros(len(observed.text)) if observed.at_most is None else observed.at_most
        in_item = np.nan_to_num(reduce_rows(np.maximum, bounds, observed.item_offsets))
        known = np.where(in_item[row_of(observed.item_offsets)] > 0, np.nan, score(observed, null))
        return known, known
    lowest, highest = observed.lowest(), observed
    if null is None:
        low, high = score(lowest), score(highest)
    else:
        after = (null.lowest(), null) if score.name in _NULL_ALONE else (null, null.lowest())
        low, high = score(lowest, after[0]), score(highest, after[1])
    either = np.isnan(low) | np.isnan(high)
    return np.where(either, np.nan, low), np.where(either, np.nan, high)


_TOKEN_SENSITIVITY = {
    "arithmetic_mean": 1.0,
    "harmonic_mean": 1.0,
    "least_likely": 1.0,
    "first_token": 1.0,
    "greedy": np.nan,
}
"""Units of the score per nat of error in the log-likelihood, all of which one token can carry; NaN for a yes or no."""

_TRIE_SENSITIVITY = {
    "first_divergent": 1.0,
    "locally_renormalised": 2.0,
    "constrained_greedy": np.nan,
}
"""Units of the score per nat of error in the log-likelihoods: all of it in one token, 2 where the errors of the other
choices count too, NaN for a yes or no."""

FIXED: dict[str, float] = {**_TOKEN_SENSITIVITY, **_TRIE_SENSITIVITY}
"""Sensitivity of scores that look at single tokens: it can't be computed from an error spread over all tokens."""

_STEP = 1e-3


def sensitivity(
    name: str, score: Score, observed: Continuations, null: Continuations | None
) -> Floats:
    """Units of the score per nat of noise in one token, float64 [rows]; NaN where not known.

    Errors of tokens are independent, so that of a sum over n tokens is √n times that of one: √n for a sum, 1 / √n for a
    mean over tokens, 2 √n for PMI, where both likelihoods can be off.
    """
    if name in FIXED:
        return np.where(observed.counts > 0, FIXED[name], np.nan)
    moved, still = (
        score(_moved(observed, -step), None if null is None else _moved(null, step))
        for step in (_STEP, 0.0)
    )
    with np.errstate(invalid="ignore"):  # an impossible continuation stays impossible: not known
        return np.abs(moved - still) / _STEP


@dataclass(frozen=True, slots=True)
class Score:
    """A named reduction.  ``function`` takes the observed continuations and, when ``conditional``, the null ones."""

    name: str
    function: Callable[..., Floats]
    conditional: bool

    def __call__(self, observed: Continuations, null: Continuations | None = None) -> Floats:
        """One number per row, float64 [rows]: greater is better, NaN is missing.

        Raises UsageError when a conditional score is not given the continuations after the null context, or when they
        have other rows than the observed ones.
        """
        if not self.conditional:
            return self.function(observed)
        if null is None:
            raise UsageError(
                f"the score {self.name} needs the continuations after its null context; none were given"
            )
        if len(null.text) != len(observed.text):
            raise UsageError(
                f"{len(null.text)} continuations after the null context for {len(observed.text)} choices"
            )
        return self.function(observed, null)


def tokens(observed: Continuations) -> Floats:
    """Scored tokens, float64 [rows]; 0 where missing, NaN where not known."""
    counts, given = observed.counts.astype(np.float64), observed.token_counts
    if observed.totals is None:
        return counts
    unseen = (counts == 0) & ~np.isnan(observed.totals)
    return np.where(unseen, np.nan if given is None else given, counts)


def pmi(observed: Continuations, null: Continuations) -> Floats:
    """S(context) - S(null context), in nats (Brown et al. 2020; OLMES acc_uncond)."""
    with np.errstate(
        invalid="ignore"
    ):  # two impossible continuations have no difference: NaN, missing
        return observed.sums - null.sums


def normalised_pmi(observed: Continuations, null: Continuations) -> Floats:
    """PMI / -S(null context), at most 1: the share of surprisal that the context removes (Cho et al. 2025, ANPMI)."""
    return per(pmi(observed, null), -null.sums)


def domain_conditional(observed: Continuations, null: Continuations) -> Floats:
    """S(domain premise) alone, in nats: the choices without the question (Holtzman et al. 2021, baseline)."""
    return np.where(np.isnan(observed.sums), np.nan, null.sums)


def sum(observed: Continuations) -> Floats:
    """S, not divided by anything (lm-evaluation-harness acc; Hendrycks et al. 2021)."""
    return observed.sums


def token_mean(observed: Continuations) -> Floats:
    """S / scored tokens (Brown et al. 2020, GPT-3, section 2.4).

    Minus the loss that a model returns when the labels mask everything else.
    """
    return per(observed.sums, tokens(observed))


def byte_mean(observed: Continuations) -> Floats:
    """S / bytes of the scored tokens, the leading space counted (Gao 2021, blog.eleuther.ai)."""
    return per(observed.sums, token_bytes(observed))


def byte_mean_bare(observed: Continuations) -> Floats:
    """S / bytes of the text without its leading space (lm-evaluation-harness acc_bytes, PR 3368)."""
    return per(observed.sums, bytes_bare(observed))


def char_mean(observed: Continuations) -> Floats:
    """S / characters of the text, the leading space counted (Gu et al. 2024, OLMES acc_per_char)."""
    return per(observed.sums, chars(observed))


def char_mean_bare(observed: Continuations) -> Floats:
    """S / characters of the text without its leading space (lm-evaluation-harness acc_norm)."""
    return per(observed.sums, chars_bare(observed))


def word_mean(observed: Continuations) -> Floats:
    """S / words between whitespace (the unit of lm-evaluation-harness word_perplexity)."""
    return per(observed.sums, words(observed))


def token_power(observed: Continuations, alpha: float) -> Floats:
    """S / tokens^alpha: the sum at alpha 0, the token mean at alpha 1 (Wu et al. 2016)."""
    return per(observed.sums, tokens(observed) ** alpha)


def gnmt(observed: Continuations, alpha: float) -> Floats:
    """S / ((5 + tokens) / 6)^alpha, the length penalty of Google's translation system (Wu et al. 2016)."""
    return per(observed.sums, ((5 + tokens(observed)) / 6) ** alpha)


def per(sums: Floats, length: Floats) -> Floats:
    """``sums / length``; NaN where the length is 0, because a mean over nothing must not win."""
    with np.errstate(invalid="ignore"):  # infinite over infinite is NaN, missing
        return np.divide(sums, length, out=np.full(len(sums), np.nan), where=length > 0)


def bare(text: str) -> str:
    """``text`` without the one space that separates it from its context; further spaces belong to the choice."""
    return text.removeprefix(" ")


def token_bytes(observed: Continuations) -> Floats:
    """Bytes of the scored tokens, the leading space counted, float64 [rows]; NaN where missing.

    Of rows observed without tokens, bytes of the text, which its tokens spell.
    """
    sizes = observed.reduce(np.add, observed.sizes)
    if observed.totals is None:
        return sizes
    spelled = _measured(observed, lambda text: len(text.encode(errors="surrogatepass")))
    return np.where((observed.counts == 0) & ~np.isnan(observed.totals), spelled, sizes)


def bytes_bare(observed: Continuations) -> Floats:
    """UTF-8 bytes of the text without its leading space, float64 [rows]; NaN where it is not known, also below."""
    return _measured(observed, lambda text: len(bare(text).encode()))


def chars(observed: Continuations) -> Floats:
    """Characters (code points) of the text, the leading space counted, float64 [rows]."""
    return _measured(observed, lambda text: len(text))


def chars_bare(observed: Continuations) -> Floats:
    """Characters (code points) of the text without its leading space, float64 [rows]."""
    return _measured(observed, lambda text: len(bare(text)))


def words(observed: Continuations) -> Floats:
    """Runs of text between whitespace, float64 [rows]; the leading space makes none, and Chinese is one word."""
    return _measured(observed, lambda text: len(text.split()))


def arithmetic_mean(observed: Continuations) -> Floats:
    """log of the mean token probability, log (1/n) Σ exp ℓ (Tsvilodub et al. 2024; lm-scorer's mean)."""
    return observed.reduce(np.logaddexp, observed.logprobs) - np.log(np.maximum(observed.counts, 1))


def harmonic_mean(observed: Continuations) -> Floats:
    """log of the harmonic mean token probability, log n - log Σ exp -ℓ (lm-scorer's hmean)."""
    negative = -np.asarray(observed.logprobs, dtype=np.float64)
    return np.log(np.maximum(observed.counts, 1)) - observed.reduce(np.logaddexp, negative)


def least_likely(observed: Continuations) -> Floats:
    """min log P(token), in nats: the weakest link of the continuation."""
    return observed.reduce(np.minimum, observed.logprobs)


def first_token(observed: Continuations) -> Floats:
    """log P(first token), in nats (MediaPipe firstTokenOnly); choices with the same first token tie."""
    scores = np.full(len(observed.text), np.nan)
    present = observed.counts > 0
    scores[present] = observed.logprobs[observed.offsets[:-1][present]]
    return scores


def greedy(observed: Continuations) -> Floats:
    """1 where every token is the most likely one, so that greedy decoding produces the continuation, else 0.

    NaN where a rank is not known (lm-evaluation-harness exact_match).
    """
    greedy = observed.reduce(
        np.minimum, np.where(observed.ranks == UNKNOWN, np.nan, observed.ranks == 0)
    )
    return (
        greedy
        if observed.all_greedy is None
        else np.where(observed.counts > 0, greedy, observed.all_greedy)
    )


def first_divergent(observed: Continuations) -> Floats:
    """log P of the first token that not all choices of the item share, in nats (nanochat core_eval's span start).

    NaN for a choice that ends before it.
    """
    scores = np.full(len(observed.text), np.nan)
    for start, end in pairwise(observed.item_offsets.tolist()):
        rows = [row for row in range(start, end) if observed.counts[row]]
        columns = zip(*map(observed.token_ids, rows), strict=False)  # ends with the shortest
        shared = len(list(takewhile(lambda column: len(set(column)) == 1, columns)))
        for row in rows:
            if observed.counts[row] > shared:
                scores[row] = observed.logprobs[observed.offsets[row] + shared]
    return scores


def locally_renormalised(observed: Continuations) -> Floats:
    """Σ log (P(token) / Σ P(tokens the choices allow there)), in nats: the probability of drawing the choice token by
    token from a model restricted to the choices (decoding under a grammar: outlines, guidance).

    Distinct choices sum to 1.  NaN for all choices of an item where one is missing or is the start of another: whether
    the model would have stopped there was not observed.
    """

    def log_share(logprobs: Floats) -> Floats:
        total = np.logaddexp.reduce(logprobs)
        # Of several tokens that are all impossible none would be drawn.
        return np.full_like(logprobs, -np.inf) if total == -np.inf else logprobs - total

    return _sum_over_path(observed, log_share)


def constrained_greedy(observed: Continuations) -> Floats:
    """1 for the choice that greedy decoding restricted to the choices produces, else 0 (guidance's select).

    Differs from the most likely choice when that one starts with a less likely token.  Choices whose tokens tie all
    get 1.  NaN for all choices of an item as for ``locally_renormalised``.
    """
    refused = _sum_over_path(observed, lambda logprobs: logprobs < logprobs.max())
    return np.where(np.isnan(refused), np.nan, refused == 0)


def _moved(observed: Continuations, nats: float) -> Continuations:
    """Every continuation with √tokens * ``nats`` more log-likelihood, spread evenly over its tokens; float64."""
    added = nats * np.sqrt(observed.counts)
    step = added / np.maximum(observed.counts, 1)
    moved = observed.logprobs.astype(np.float64) + step[row_of(observed.offsets)]
    # of how many tokens a total without tokens is the sum is not known
    totals = (
        None
        if observed.totals is None
        else np.where(observed.counts > 0, observed.totals + added, np.nan)
    )
    return replace(observed, logprobs=moved, totals=totals)  # type: ignore[arg-type]  # float32 would round the step away


def _measured(observed: Continuations, length: Callable[[str], int]) -> Floats:
    """``length`` of every text, float64 [rows]; NaN where the text is not known."""
    return np.array(
        [np.nan if text is None else length(text) for text in observed.text], dtype=np.float64
    )


def _sum_over_path(observed: Continuations, step: Callable[[Floats], npt.NDArray[Any]]) -> Floats:
    """Per choice the sum, over its tokens, of what ``step`` gives them among the tokens that the choices allow there.

    ``step``: from log P of the tokens at one node of the trie, float64 [branches], to a number for each.  NaN for the
    items with a missing choice, or with one that is the start of another.
    """
    scores = np.full(len(observed.text), np.nan)
    for start, end in pairwise(observed.item_offsets.tolist()):
        choices = [observed.token_ids(row) for row in range(start, end)]
        # In sorted order the first longer choice that a choice is the start of comes right after it.
        starts_another = any(a != b and b[: len(a)] == a for a, b in pairwise(sorted(choices)))
        if starts_another or np.isnan(observed.token_sums[start:end]).any():
            continue
        scores[start:end] = 0.0
        nodes = [(0, list(range(end - start)))]
        while nodes:
            depth, members = nodes.pop()
            branches: dict[int, list[int]] = {}  # next token to the choices that continue with it
            for member in members:
                if depth < len(choices[member]):
                    branches.setdefault(choices[member][depth], []).append(member)
            if branches:
                # Choices that share a branch have the same tokens up to it: the first one's log-probability is theirs.
                rows = start + np.array([members[0] for members in branches.values()])
                logprobs = observed.logprobs[observed.offsets[rows] + depth].astype(np.float64)
                for value, members in zip(step(logprobs), branches.values(), strict=True):
                    scores[start + np.array(members)] += value
                nodes.extend((depth + 1, members) for members in branches.values())
    return scores


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
    """The score of a name; a decimal number that ends it is the function's exponent."""
    stem, _, exponent = name.rpartition("_")
    function = (
        partial(_FUNCTIONS[stem], alpha=float(exponent)) if "." in exponent else _FUNCTIONS[name]
    )
    return Score(name, function, name in CONDITIONAL)


_Given = tuple[Continuations, Continuations | None]

dc_pmi = pmi
"""PMI with a domain premise as the null context: S(context) - S(domain premise) (Holtzman et al. 2021, DC-PMI)."""

SCORES: dict[str, Score] = ports.OpenTable(
    {name: _score(name) for name in (*SUMS, *TOKENWISE, *ACROSS, *CONDITIONAL)},
    ports.Score,
    lambda addition: Score(addition.name, addition.values, conditional=False),
)
