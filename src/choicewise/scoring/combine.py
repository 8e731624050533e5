"""Combine the observations of each reading into one number per choice, and decide from it.

All scores are float64 [rows], one row per item and choice, NaN if missing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TypeVar

import numpy as np

from choicewise import ports
from choicewise.protocols.protocol import Protocol
from choicewise.protocols.readings import ALONG
from choicewise.scoring.answers import Statuses, Written, judged
from choicewise.scoring.calibrate import calibrated, calibrated_range
from choicewise.scoring.decide import Decisions, decided, decided_between, letter_match
from choicewise.scoring.extract import NUMBERS, RULES
from choicewise.scoring.observed import (
    Continuations,
    Floats,
    Integers,
    Lows,
    Mask,
    Range,
    item_any,
    item_max,
    item_sum,
    known_range,
    offsets_from,
    row_of,
    without_bounds,
)
from choicewise.scoring.portion import ObservedPortion
from choicewise.scoring.scores import SCORES, per

Decision = tuple[Floats | None, Decisions, Lows | None, Statuses | None]
"""Scores, decisions, the lowest scores, and the status of every text.

Scores are float64 [rows], None if a letter is read from text; statuses are None if no text is read.
"""

Scoring = Callable[[Protocol, ObservedPortion], Floats]

T = TypeVar("T")


def _retrieve_nothing(protocol: Protocol, observed: ObservedPortion) -> None:
    return None


@dataclass(frozen=True, slots=True)
class Combiner:
    """Combine one reading's observations into a number per choice.

    ``scores``: returns float64 [rows], greater is better, NaN is missing.  ``retrieved``: returns
    the scored tokens of each choice, one row per choice, if the reading retrieves the likelihood of
    the choice's text, else None.  ``decide``: returns scores and decisions, if they do not simply
    follow from ``scores``.  ``ranges``: returns the lowest and the highest scores; without it, a
    score made of an upper bound is NaN.
    """

    scores: Scoring
    retrieved: Callable[[Protocol, ObservedPortion], Continuations | None] = _retrieve_nothing
    decide: (
        Callable[[Protocol, ObservedPortion], tuple[Floats | None, Decisions, Statuses]] | None
    ) = None
    ranges: Callable[[Protocol, ObservedPortion], Range] | None = None

    def decision(self, protocol: Protocol, observed: ObservedPortion) -> Decision:
        """Return scores and decisions under ``protocol``."""
        if self.decide is not None:
            scores, decisions, statuses = self.decide(protocol, observed)
            if scores is None:
                return None, decisions, None, statuses
            return scores, decisions, Lows.of(scores, scores), statuses
        if not observed.bounded:
            exact = self.scores(protocol, observed)
            decisions = decided(protocol, exact, observed.item_offsets, observed.right)
            return exact, decisions, Lows.of(exact, exact), None
        low, high = self.range(protocol, observed)
        decisions = decided_between(protocol, (low, high), observed.item_offsets, observed.right)
        return high, decisions, Lows.of(low, high), None

    def range(self, protocol: Protocol, observed: ObservedPortion) -> Range:
        """Return the lowest and the highest value of every score; NaN if it is missing or open."""
        if self.ranges is not None:
            return self.ranges(protocol, observed)
        scores = self.scores(protocol, observed)
        bounds = [part.at_most for part in observed.parts() if part.at_most is not None]
        if not bounds:
            return scores, scores
        has_bound = item_any(np.any(bounds, axis=0), observed.item_offsets)
        return without_bounds(scores, has_bound[row_of(observed.item_offsets)])


def along(protocol: Protocol, observed: ObservedPortion) -> Floats:
    """Compute log P(option | context, a share of the thought, its closing) in nats.

    The protocol's score names the share.  An item is missing if an option lacks a number after any
    share, so that the scores of all shares are about the same items.
    """
    sums = observed.part_sums
    item_offsets = observed.item_offsets
    is_lacking: Mask = np.ones(len(sums[0]), dtype=np.bool_)
    if len(sums) == len(ALONG):
        is_lacking = np.any(np.isnan(sums), axis=0)
    is_lost = item_any(is_lacking, item_offsets)[row_of(item_offsets)]
    part = min(list(ALONG).index(protocol.score), len(sums) - 1)
    return np.where(is_lost, np.nan, sums[part])


def marginal(parts: Sequence[Continuations]) -> Floats:
    """Compute log (1/R) Σ_r P(option | context, chain r) in nats.

    It is self-consistency (Wang et al. 2023), Rao-Blackwellised: a vote of R chains counts draws of
    an answer, and this takes the mean of the distributions that they are drawn from.
    """
    with np.errstate(invalid="ignore"):
        total = np.logaddexp.reduce([part.sums for part in parts], axis=0)
    return total - np.log(len(parts))


def vote(parts: Sequence[Continuations]) -> Floats:
    """Return the share of chains after which an option is the likeliest of its item.

    Options that tie share their chain.
    """
    item_offsets = parts[0].item_offsets
    item = row_of(item_offsets)
    votes = np.zeros(len(item))
    for part in parts:
        is_likeliest = part.sums == item_max(part.sums, item_offsets)[item]
        # If an option is missing, none is the likeliest, and 0 / 0 is NaN.
        with np.errstate(invalid="ignore"):
            shares = is_likeliest / item_sum(is_likeliest, item_offsets)[item]
        votes += np.where(np.isnan(part.sums), np.nan, shares)
    return votes / len(parts)


def said_options(
    generated: Continuations, options: Sequence[Sequence[str]], item_offsets: Integers
) -> Continuations:
    """Return the tokens that say an option, one row per (item, choice); all other rows are missing.

    ``generated`` has one row per item; ``options`` are the continuations that an item was waiting
    for. A text says an option if it begins with it, with or without the white space that the option
    begins with, and a token ends at the option's end.  The longest of several options counts, and
    the first of equal ones.  LLM-distPred-refGames (README@286ba10) scores the option's tokens and
    no others, and gives no score to texts that deviate, for example by a line break before the
    option.
    """
    counts = np.zeros(int(item_offsets[-1]), dtype=np.int64)
    texts = [""] * len(counts)
    is_said = np.zeros(len(generated.tokens), dtype=np.bool_)
    for item, item_options in enumerate(options):
        row = item_offsets[item]
        texts[row : row + len(item_options)] = item_options
        choice, count = _longest_option(generated, item, item_options)
        if count:
            counts[row + choice] = count
            start = generated.offsets[item]
            is_said[start : start + count] = True
    return Continuations(
        tokens=generated.tokens[is_said],
        logprobs=generated.logprobs[is_said],
        sizes=generated.sizes[is_said],
        ranks=generated.ranks[is_said],
        offsets=offsets_from(counts),
        text=texts,
        item_offsets=item_offsets,
    )


def _longest_option(generated: Continuations, item: int, options: Sequence[str]) -> tuple[int, int]:
    """Return the option that an item's text says, and the number of its tokens, 0 for none."""
    text = generated.text[item] or ""
    spelling = ""
    longest = 0
    choice = 0
    for index, option in enumerate(options):
        bare = option.strip()
        if len(bare) <= longest:
            continue
        whole = option.rstrip()
        if text.startswith((whole, bare)):
            spelling = whole if text.startswith(whole) else bare
            longest = len(bare)
            choice = index
    if not spelling:
        return 0, 0
    sizes = generated.sizes[generated.offsets[item] : generated.offsets[item + 1]]
    token_ends = np.cumsum(sizes).tolist()
    end = len(spelling.encode())
    if end not in token_ends:
        return choice, 0
    return choice, token_ends.index(end) + 1


def option_match(options: Continuations, gold: Mask) -> Decisions:
    """Predict the one option with tokens of :func:`said_options`; without one an item is missing.

    ``gold`` marks the right rows, bool [rows].  A text that two options share is right if either
    is.
    """
    starts = options.item_offsets[:-1].tolist()
    prediction = np.full(len(starts), -1, dtype=np.int64)
    credit = np.full(len(starts), np.nan)
    for item, start in enumerate(starts):
        end = options.item_offsets[item + 1]
        texts = [(text or "").strip() for text in options.text[start:end]]
        right = [text for text, is_right in zip(texts, gold[start:end], strict=True) if is_right]
        for choice, text in enumerate(texts):
            if options.counts[start + choice]:
                prediction[item] = choice
                credit[item] = text in right
    return Decisions.uncompared(prediction, credit)


def extract(
    rule: str,
    texts: Sequence[str | None],
    gold: Sequence[Sequence[int]],
    choices: Sequence[int],
    letters: str,
) -> Decisions:
    """Predict the letter that a published ``rule`` finds in each text.

    Rules are those of :data:`~choicewise.scoring.extract.RULES`.  ``choices``: the number of each
    item's choices.  If a rule finds no option's letter, the answer is wrong, with prediction -1.
    None is missing.
    """
    prediction = np.full(len(texts), -1, dtype=np.int64)
    credit = np.full(len(texts), np.nan)
    for item, (text, right, choice_count) in enumerate(zip(texts, gold, choices, strict=True)):
        if text is None:
            continue
        item_letters = letters[:choice_count]
        letter = RULES[rule](text, item_letters)
        if letter:
            prediction[item] = item_letters.find(letter)
        credit[item] = prediction[item] in right
    return Decisions.uncompared(prediction, credit)


def compare(rule: str, texts: Sequence[str | None], solutions: Sequence[Sequence[str]]) -> Floats:
    """Return 1 for the number of the solution, 0 for another, -1 for none, NaN without a text.

    ``rule``: one of :data:`~choicewise.scoring.extract.NUMBERS`.  ``solutions``: the choices of
    every item; the first is the solution.
    """
    verdicts = np.full(len(texts), np.nan)
    for item, (text, choices) in enumerate(zip(texts, solutions, strict=True)):
        if text is None or not choices:
            continue
        agrees = NUMBERS[rule](text, choices[0])
        verdicts[item] = -1 if agrees is None else agrees
    return verdicts


def expected_rating(parts: Sequence[Continuations]) -> Floats:
    """Compute Σ r · softmax_r(log P(label r)), between 1 and the number of labels.

    ``parts`` are the labels (Tsvilodub et al. 2024).
    """
    sums = np.stack([part.sums for part in parts])
    with np.errstate(invalid="ignore"):
        shares = np.exp(sums - np.logaddexp.reduce(sums, axis=0))
    ratings = np.arange(1, len(parts) + 1)[:, np.newaxis]
    # BLAS (``@``) adds in an order that depends on an item's position among the others.
    return np.asarray((ratings * shares).sum(axis=0))


def rating_range(parts: Sequence[Continuations]) -> Range:
    """Return the lowest and the highest values of :func:`expected_rating`.

    A mean of ratings is lowest if all labels up to some one are as likely as possible, and all
    above it as unlikely as possible.
    """
    lowest = [part.lowest() for part in parts]
    lows = []
    highs = []
    for cut in range(len(parts) + 1):
        lows.append(expected_rating([*parts[:cut], *lowest[cut:]]))
        highs.append(expected_rating([*lowest[:cut], *parts[cut:]]))
    with np.errstate(invalid="ignore"):
        is_missing = np.isnan(np.sum([part.sums for part in parts], axis=0))
    # fmin and fmax pass over a cut that leaves all labels impossible and so has no rating.
    low = np.where(is_missing, np.nan, np.fmin.reduce(lows))
    return low, np.where(is_missing, np.nan, np.fmax.reduce(highs))


Parts = Sequence[Continuations]
"""The parts that ``select`` scores for each choice.

They are the scored tokens, the prompt's last token if sglang asks for it and subtracts it again,
and the scored tokens but the first, given those alone; the last two may be absent.
"""


def token_length_normalized(parts: Parts) -> Floats:
    """Average over tokens as sglang 0.4.2 does: log-probabilities of exactly 0 do not count.

    The mean is taken with the prompt's last token, times the number of tokens, minus the prompt's
    token, over the scored tokens.  If nothing is exactly 0, that is the plain mean; else the
    prompt's token leaves its trace.
    """
    scored = parts[0].counts
    tokens = scored
    if len(parts) > 1:
        tokens = scored + parts[1].counts
    total = token_length_normalized_with_prompt(parts) * tokens
    return per(total - _select_sums(parts, 1), scored.astype(np.float64))


def token_length_normalized_with_prompt(parts: Parts) -> Floats:
    """Average over tokens as sglang 0.5.23 does: the prompt's last token stays in the mean.

    The servers of today answer one token further back, without a log-probability for it, so that
    ``select`` subtracts nothing.
    """
    counted = np.zeros(len(parts[0].text))
    for part in parts[:2]:
        counted += np.nan_to_num(part.reduce(np.add, part.logprobs != 0))
    return per(parts[0].sums + _select_sums(parts, 1), counted)


def unconditional_likelihood_normalized(parts: Parts) -> Floats:
    """Average log P(token | context) - log P(token | the choice's tokens before it) over tokens.

    The second term is 0 for the first token.
    """
    return per(parts[0].sums - _select_sums(parts, 2), parts[0].counts.astype(np.float64))


def greedy_token_selection(parts: Parts) -> Floats:
    """Return 1 for choices that remain if each step keeps only the likeliest next token, else 0.

    A choice that has ended counts with its mean log-probability from there on.  Tokens are compared
    by their log-probabilities alone, so choices that share none are compared, too.
    """
    observed = parts[0]
    scores = np.full(len(observed.text), np.nan)
    for start, end in pairwise(observed.item_offsets.tolist()):
        if end == start or np.isnan(observed.token_sums[start:end]).any():
            continue
        offsets = observed.offsets[start : end + 1]
        logprobs = observed.logprobs[offsets[0] : offsets[-1]].astype(np.float64)
        choices = np.split(logprobs, offsets[1:-1] - offsets[0])
        scores[start:end] = _select_remaining(choices)
    return scores


def _select_remaining(choices: Sequence[Floats]) -> Mask:
    """Mark the choices that remain, from the log-probabilities of each choice's tokens."""
    longest = max(len(choice) for choice in choices)
    padded = np.empty((len(choices), longest))
    for index, choice in enumerate(choices):
        padded[index, : len(choice)] = choice
        padded[index, len(choice) :] = choice.mean()
    remains = np.ones(len(choices), dtype=np.bool_)
    for step in padded.T:
        remains &= step == step[remains].max()
    return remains


def _select_sums(parts: Parts, number: int) -> Floats:
    """Return the sums of a part, 0 if it is absent; NaN if the model gave no number."""
    if number >= len(parts):
        return np.zeros(len(parts[0].text))
    return np.where(parts[number].counts > 0, parts[number].sums, 0.0)


def log_sum(parts: Sequence[Continuations]) -> Floats:
    """Compute log of the probability of any of the spellings, in nats.

    Spellings with the same tokens count once, and a spelling whose tokens begin another's contains
    that one already.
    """
    total = np.full(len(parts[0].text), -np.inf)
    for number, part in enumerate(parts):
        is_counted = np.ones(len(part.text), dtype=np.bool_)
        for row in range(len(part.text)):
            is_counted[row] = not _is_contained(parts, number, row)
        # A missing spelling makes the sum NaN: it would have added an unknown probability.
        with np.errstate(invalid="ignore"):
            total = np.logaddexp(total, np.where(is_counted, part.token_sums, -np.inf))
    return total


def _is_contained(parts: Sequence[Continuations], number: int, row: int) -> bool:
    """Check if a spelling begins with the tokens of a shorter one, or of an equal one before."""
    spelling = parts[number].token_ids(row)
    for other_number, part in enumerate(parts):
        other = part.token_ids(row)
        comes_first = len(other) < len(spelling) or other_number < number
        if comes_first and other_number != number and spelling[: len(other)] == other:
            return True
    return False


def log_greatest(parts: Sequence[Continuations]) -> Floats:
    """Return log of the probability of the likeliest spelling, in nats; NaN if one is missing."""
    return np.maximum.reduce([part.token_sums for part in parts])


LEAST = 1e-12
"""The probability that one of 0 counts as, which may be a rounded one; from EvalScope 1.14.1."""


def floored(logs: Floats) -> Floats:
    """Raise log-probabilities of options, in nats, to that of :data:`LEAST`; NaN stays."""
    return np.maximum(logs, math.log(LEAST))


def is_nought(floored_logs: Floats) -> Mask:
    """Find the options of probability 0 among log-probabilities that :func:`floored` raised."""
    return floored_logs <= math.log(LEAST)


def without_end(parts: Sequence[Continuations]) -> Continuations:
    """Return the first part with P(EOS) := 0 and the rest renormalised.

    That is log P - log(1 - P(EOS)) at every token.  Part 1 + j holds P(EOS) in the place of token
    j, for rows that have such a token; without such parts nothing changes.
    """
    observed = parts[0]
    row = row_of(observed.offsets)
    token = np.arange(len(row)) - observed.offsets[:-1][row]
    logprobs = observed.logprobs.astype(np.float64)
    for number, end in enumerate(parts[1:]):
        has_end = (token == number) & (end.counts[row] > 0)
        # If EOS is certain nothing else is possible, and the token's log-probability is NaN.
        with np.errstate(invalid="ignore", divide="ignore"):
            logprobs[has_end] -= np.log1p(-np.exp(end.sums[row[has_end]]))
    return replace(observed, logprobs=logprobs.astype(np.float32), totals=None)


def difference(parts: Sequence[Continuations]) -> Floats:
    """Compute log P(first answer) - log P(second answer), in nats.

    Of Yes and No it is the log-odds of Yes (Kadavath et al. 2022).
    """
    # Of two impossible answers neither is likelier: NaN, missing.
    with np.errstate(invalid="ignore"):
        return parts[0].sums - parts[1].sums


def difference_range(parts: Sequence[Continuations]) -> Range:
    """Return the lowest and the highest values of :func:`difference`."""
    low = difference([parts[0].lowest(), parts[1]])
    high = difference([parts[0], parts[1].lowest()])
    return known_range(low, high)


def _loglikelihood_scores(protocol: Protocol, observed: ObservedPortion) -> Floats:
    if protocol.calibration == "none":
        return observed.scores(protocol.score, protocol.null, protocol.outside)
    return calibrated(
        protocol.calibration, protocol.views, observed.part_sums, observed.item_offsets
    )


def _loglikelihood_retrieved(protocol: Protocol, observed: ObservedPortion) -> Continuations | None:
    if protocol.calibration == "none":
        return observed.continuations()
    return None


def _loglikelihood_range(protocol: Protocol, observed: ObservedPortion) -> Range:
    if protocol.calibration == "none":
        return observed.score_range(protocol.score, protocol.null, protocol.outside)
    ends = observed.part_lows, observed.part_sums
    return calibrated_range(protocol.calibration, protocol.views, ends, observed.item_offsets)


def _rising_range(function: Callable[[Parts], Floats]) -> Callable[[Parts], Range]:
    """Return the bounds of a ``function`` that never falls if a likelihood rises."""
    return lambda parts: (function([part.lowest() for part in parts]), function(parts))


def _vote_range(parts: Sequence[Continuations]) -> Range:
    """Return the lowest and the highest values of :func:`vote`: its sure and its possible votes."""
    offsets = parts[0].item_offsets
    item = row_of(offsets)
    sure = np.zeros(len(item))
    possible = np.zeros(len(item))
    for part in parts:
        low = part.lowest().sums
        high = part.sums
        best_low = item_max(low, offsets)[item]
        is_leader = low == best_low
        can_win = high >= best_low
        leaders = item_sum(is_leader, offsets)[item]
        rivals = item_sum(can_win, offsets)[item]
        # If no option can be above the leader, the worst case is a tie of all that can reach it.
        is_unbeaten = item_sum(high > best_low, offsets)[item] == 0
        is_settled = is_leader & (is_unbeaten | (rivals == 1))
        missing = np.where(np.isnan(best_low), np.nan, 0.0)
        with np.errstate(invalid="ignore", divide="ignore"):
            sure += np.where(is_settled, 1 / rivals, 0.0) + missing
            most = np.where(is_settled, 1 / leaders, 1.0)
        possible += np.where(can_win, most, 0.0) + missing
    return sure / len(parts), possible / len(parts)


def _generate_decisions(
    protocol: Protocol, observed: ObservedPortion
) -> tuple[Floats | None, Decisions, Statuses]:
    written = observed.written((protocol.new_tokens or 0) + (protocol.thought_tokens or 0))
    texts = [_read_text(text, protocol.cut) for text in written]
    rule = protocol.decision
    if rule in NUMBERS:
        verdicts = compare(rule, texts, observed.options())
        is_right = verdicts == 1
        credit = np.where(np.isnan(verdicts), np.nan, is_right)
        decisions = Decisions.uncompared(np.where(is_right, 0, -1), credit)
        return None, *judged(protocol, written, verdicts >= 0, decisions)
    scores = None
    if rule == "letter-match":
        decisions = letter_match(texts, observed.options(), observed.gold, protocol.labels)
    elif rule == "option-match":
        options = _generate_options(observed)
        scores = SCORES[protocol.score](options)
        decisions = option_match(options, observed.right)
    else:
        choices = np.diff(observed.item_offsets).tolist()
        decisions = extract(rule, texts, observed.gold, choices, protocol.labels)
    return scores, *judged(protocol, written, decisions.prediction >= 0, decisions)


def _read_text(text: Written | str | None, cut: str) -> str | None:
    if isinstance(text, Written):
        return text.read(cut)
    return None


def _generate_scores(protocol: Protocol, observed: ObservedPortion) -> Floats:
    return SCORES[protocol.score](_generate_options(observed))


def _generate_retrieved(protocol: Protocol, observed: ObservedPortion) -> Continuations | None:
    if protocol.decision == "option-match":
        return _generate_options(observed)
    return None


def _generate_options(observed: ObservedPortion) -> Continuations:
    return said_options(observed.generation(), observed.expected(), observed.item_offsets)


def _decision_scores(protocol: Protocol, observed: ObservedPortion) -> Floats:
    return floored(observed.scores(protocol.score))


def _all_retrieved(protocol: Protocol, observed: ObservedPortion) -> Continuations:
    return observed.continuations()


def _embedding_scores(protocol: Protocol, observed: ObservedPortion) -> Floats:
    return observed.values()


def _surprisal_scores(protocol: Protocol, observed: ObservedPortion) -> Floats:
    return SCORES[protocol.score](without_end(observed.parts()))


def _of_parts(function: Callable[[Parts], T]) -> Callable[[Protocol, ObservedPortion], T]:
    """Return the ``function`` of the parts as one of a protocol and what was observed."""
    return lambda protocol, observed: function(observed.parts())


def _by_score(
    functions: Mapping[str, Callable[[Parts], T]],
) -> Callable[[Protocol, ObservedPortion], T]:
    """Return the function of the protocol's score, which takes the parts."""
    return lambda protocol, observed: functions[protocol.score](observed.parts())


_LOGLIKELIHOOD = Combiner(
    _loglikelihood_scores, _loglikelihood_retrieved, ranges=_loglikelihood_range
)

OVER_CHAINS = {"marginal": marginal, "vote": vote}
"""Scores of the reading ``chain-of-thought`` by name."""

RANGES = {"marginal": _rising_range(marginal), "vote": _vote_range}
"""The bounds of :data:`OVER_CHAINS` by the name of the score."""

OVER_SPELLINGS = {"sum": log_sum, "likeliest": log_greatest}
"""Scores of the reading ``spellings`` by name."""

_SPELLING_RANGES = {name: _rising_range(function) for name, function in OVER_SPELLINGS.items()}

SELECT: dict[str, Callable[[Parts], Floats]] = {
    "token_length_normalized": token_length_normalized,
    "token_length_normalized_with_prompt": token_length_normalized_with_prompt,
    "greedy_token_selection": greedy_token_selection,
    "unconditional_likelihood_normalized": unconditional_likelihood_normalized,
}
"""Scores of the reading ``select`` by name, which is SGLang's name of the method."""

COMBINERS: dict[str, Combiner] = ports.OpenTable(
    {
        "along-thought": Combiner(along),
        "chain-of-thought": Combiner(_by_score(OVER_CHAINS), ranges=_by_score(RANGES)),
        "decision": Combiner(_decision_scores, _all_retrieved),
        "embedding": Combiner(_embedding_scores),
        "encoder-decoder": _LOGLIKELIHOOD,
        "generate": Combiner(_generate_scores, _generate_retrieved, _generate_decisions),
        "loglikelihood": _LOGLIKELIHOOD,
        "masked": _LOGLIKELIHOOD,
        "noisy-channel": Combiner(_loglikelihood_scores, ranges=_loglikelihood_range),
        "pseudo-loglikelihood": _LOGLIKELIHOOD,
        "pseudo-loglikelihood-within-word": _LOGLIKELIHOOD,
        "rating": Combiner(_of_parts(expected_rating), ranges=_of_parts(rating_range)),
        "select": Combiner(_by_score(SELECT)),
        "set-based": _LOGLIKELIHOOD,
        "spellings": Combiner(_by_score(OVER_SPELLINGS), ranges=_by_score(_SPELLING_RANGES)),
        "surprisal": _LOGLIKELIHOOD,
        "surprisal-package": Combiner(_surprisal_scores, _of_parts(without_end)),
        "yes-no": Combiner(_of_parts(difference), ranges=_of_parts(difference_range)),
    },
    ports.Reading,
    lambda addition: addition.combiner(),
)
"""The combiner of each reading of :data:`choicewise.protocols.readings.READINGS`."""
