"""How each reading's observations become one number per choice: the table of combiners, and what they compute.

All scores are float64 [rows], one row per item and choice, NaN where missing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Final, Protocol

import numpy as np

from choicewise import ports
from choicewise.protocols.protocol import Protocol as Recipe
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
    reduce_rows,
    row_of,
    without_bounds,
)
from choicewise.scoring.scores import SCORES, per


class Observed(Protocol):
    """The observations under one prompt, one row per item and choice; an item has the rows between its offsets."""

    gold: list[list[int]]
    item_offsets: Integers

    @property
    def right(self) -> Mask:
        """Which rows are right choices, bool [rows]."""

    def continuations(self, null: str | None = None) -> Continuations:
        """The scored continuations after the request's own context, or after the ``null`` context."""

    def parts(self) -> list[Continuations]:
        """The observations of each thing that the reading asks about a choice; each has the same rows."""

    @property
    def part_sums(self) -> list[Floats]:
        """The log-likelihoods of the parts in nats, float64 [rows] each."""

    def values(self) -> Floats:
        """The observed number of every choice that is no log-probability, float64 [rows]; NaN where there is none."""

    def scores(self, name: str, null: str | None = None, outside: str = "keep") -> Floats:
        """The score of that name, float64 [rows]: greater is better, NaN is missing."""

    @property
    def bounded(self) -> bool:
        """Whether of anything no more than an upper bound is known."""

    def score_range(self, name: str, null: str | None = None, outside: str = "keep") -> Range:
        """The lowest and the highest that the score of that name may be."""

    @property
    def part_lows(self) -> list[Floats]:
        """The lowest that the log-likelihoods of the parts may be, float64 [rows] each."""

    def written(self, limit: int) -> Sequence[Written | str | None]:
        """The text of every item with its end, of at most ``limit`` tokens (:func:`~.answers.judged`)."""

    def generation(self) -> Continuations:
        """The generated tokens, one row per item."""

    def expected(self) -> list[list[str]]:
        """The continuations of every item as its request has them; empty where it could not be asked."""

    def options(self) -> list[list[str]]:
        """The choices of every item as they were shown; empty where it could not be asked."""


Decision = tuple[Floats | None, Decisions, Lows | None, Statuses | None]
"""Scores, float64 [rows], or None where a letter is read from text; what was decided; how low scores may be; and what
became of every text, None where none is read."""


@dataclass(frozen=True, slots=True)
class Combiner:
    """How one reading's observations become a number per choice.

    ``scores``: float64 [rows], greater is better, NaN is missing.  ``retrieved``: the scored tokens of each choice, one
    row per choice, where the reading retrieves the likelihood of the choice's text; None where it does not.
    ``decide``: scores and decisions, where they are not simply made from ``scores``.  ``ranges``: the lowest and the
    highest that the scores may be; where it is not given, a score that is made of an upper bound is not known.
    """

    scores: Callable[[Recipe, Observed], Floats]
    retrieved: Callable[[Recipe, Observed], Continuations | None] = lambda protocol, observed: None
    decide: Callable[[Recipe, Observed], tuple[Floats | None, Decisions, Statuses]] | None = None
    ranges: Callable[[Recipe, Observed], Range] | None = None

    def decision(self, protocol: Recipe, observed: Observed) -> Decision:
        """Scores and decisions under ``protocol``."""
        if self.decide is not None:
            scores, decisions, statuses = self.decide(protocol, observed)
            return scores, decisions, None if scores is None else Lows.of(scores, scores), statuses
        if not observed.bounded:
            known = self.scores(protocol, observed)
            return (
                known,
                decided(protocol, known, observed.item_offsets, observed.right),
                Lows.of(known, known),
                None,
            )
        low, high = self.range(protocol, observed)
        decisions = decided_between(protocol, (low, high), observed.item_offsets, observed.right)
        return high, decisions, Lows.of(low, high), None

    def range(self, protocol: Recipe, observed: Observed) -> Range:
        """The lowest and the highest that every score may be; NaN where it is missing, or not known."""
        if self.ranges is not None:
            return self.ranges(protocol, observed)
        bounds = [part.at_most for part in observed.parts() if part.at_most is not None]
        scores = self.scores(protocol, observed)
        if not bounds:
            return scores, scores
        item = row_of(observed.item_offsets)
        in_item = np.nan_to_num(
            reduce_rows(np.maximum, np.any(bounds, axis=0), observed.item_offsets)
        )
        return without_bounds(scores, in_item[item] > 0)


def along(parts: Sequence[Continuations], score: str) -> Floats:
    """log P(option | context, the share of the thought that ``score`` names, its closing) in nats.

    Missing where an option lacks a number after any share, so that the scores of all shares are about the same items.
    """
    known = [part.sums for part in parts]
    lacking = np.isnan(known).any(axis=0) if len(known) == len(ALONG) else True
    item = row_of(parts[0].item_offsets)
    lost = np.nan_to_num(
        reduce_rows(np.maximum, np.broadcast_to(lacking, item.shape), parts[0].item_offsets)
    )[item]
    return np.where(lost > 0, np.nan, known[min(list(ALONG).index(score), len(known) - 1)])


def marginal(parts: Sequence[Continuations]) -> Floats:
    """log (1/R) Σ_r P(option | context, chain r) in nats: self-consistency (Wang et al. 2023), Rao-Blackwellised.

    A vote of R chains counts draws of an answer; this takes the mean of what they are drawn from.
    """
    with np.errstate(invalid="ignore"):
        total = np.logaddexp.reduce([part.sums for part in parts], axis=0)
    return np.asarray(total - np.log(len(parts)), dtype=np.float64)


def vote(parts: Sequence[Continuations]) -> Floats:
    """The share of the chains after which an option is the likeliest of its item; options that tie share theirs."""
    item = row_of(parts[0].item_offsets)
    total = np.zeros(len(item))
    for part in parts:
        at_top = (
            part.sums == reduce_rows(np.maximum, part.sums, part.item_offsets)[item]
        )  # NaN when any option is
        with np.errstate(invalid="ignore"):
            shares = at_top / reduce_rows(np.add, at_top, part.item_offsets)[item]
        total += np.where(np.isnan(part.sums), np.nan, shares)
    return total / len(parts)


def said_options(
    generated: Continuations, options: Sequence[Sequence[str]], item_offsets: Integers
) -> Continuations:
    """The tokens that say an option, one row per (item, choice); every row but that of the option said is missing.

    ``generated`` has one row per item, ``options`` the continuations each item was waiting for.  An option is said
    when the text begins with it, with or without the white space that the option begins with, and a token ends where it
    ends; of several the longest, and of equal ones the first.  As in LLM-distPred-refGames (README@286ba10): the tokens
    of the option and no others are scored, and what deviates, line breaks before it included, has no score.
    """
    counts = np.zeros(int(item_offsets[-1]), dtype=np.int64)
    text = [""] * len(counts)
    said = np.zeros(len(generated.tokens), dtype=np.bool_)
    for item, texts in enumerate(options):
        first, start = item_offsets[item], generated.offsets[item]
        text[first : first + len(texts)] = texts
        choice, count = _generate_longest(generated, item, texts)
        if count:
            counts[first + choice] = count
            said[start : start + count] = True
    tokens, logprobs = generated.tokens[said], generated.logprobs[said]
    sizes, ranks, offsets = (
        generated.sizes[said],
        generated.ranks[said],
        np.concatenate([[0], np.cumsum(counts)]),
    )
    return Continuations(
        tokens=tokens,
        logprobs=logprobs,
        sizes=sizes,
        ranks=ranks,
        offsets=offsets,
        text=text,
        item_offsets=item_offsets,
    )


def option_match(said: Continuations, gold: Mask) -> Decisions:
    """The option said; an item that says none is missing.  A text that stands twice is right when either is.

    ``gold``: which rows are right, bool [rows].
    """
    items = len(said.item_offsets) - 1
    prediction, credit = np.full(items, -1, dtype=np.int64), np.full(items, np.nan)
    for item in range(items):
        rows = range(said.item_offsets[item], said.item_offsets[item + 1])
        for chosen in (row for row in rows if said.counts[row]):
            prediction[item] = chosen - said.item_offsets[item]
            credit[item] = any(
                gold[row] for row in rows if _said_text(said, row) == _said_text(said, chosen)
            )
    return Decisions.uncompared(prediction, credit)


def extract(
    rule: str,
    texts: Sequence[str | None],
    gold: Sequence[Sequence[int]],
    choices: Sequence[int],
    letters: str,
) -> Decisions:
    """The letter that the published ``rule`` (:data:`~choicewise.scoring.extract.RULES`) finds in each text.

    Where it finds no option's letter the answer is invalid: wrong, with prediction -1.  None is missing.  ``choices``:
    how many each item has.
    """
    prediction, credit = np.full(len(texts), -1, dtype=np.int64), np.full(len(texts), np.nan)
    for item, (text, right, number) in enumerate(zip(texts, gold, choices, strict=True)):
        if text is not None:
            letter = RULES[rule](text, letters[:number])
            prediction[item] = letters[:number].find(letter) if letter else -1
            credit[item] = prediction[item] in right
    return Decisions.uncompared(prediction, credit)


def compare(
    rule: str, texts: Sequence[str | None], solutions: Sequence[Sequence[str]]
) -> Decisions:
    """Whether each text has the number of its item's solution, by the published ``rule`` (:data:`NUMBERS`).

    ``solutions``: the choices of every item, of which the first is the solution.  A text without a number is wrong;
    None is missing.
    """
    return _compared(_verdicts(rule, texts, solutions))


def _compared(verdicts: Floats) -> Decisions:
    credit = np.where(np.isnan(verdicts), np.nan, verdicts == 1)
    return Decisions.uncompared(np.where(verdicts == 1, 0, -1), credit)


def _verdicts(rule: str, texts: Sequence[str | None], solutions: Sequence[Sequence[str]]) -> Floats:
    """1 for a text with the number of its solution, 0 for another number, -1 for none, NaN without a text."""
    verdicts = np.full(len(texts), np.nan)
    for item, (text, choices) in enumerate(zip(texts, solutions, strict=True)):
        if text is not None and choices:
            same = NUMBERS[rule](text, choices[0])
            verdicts[item] = -1 if same is None else same
    return verdicts


def expected_rating(parts: Sequence[Continuations]) -> Floats:
    """Σ r · softmax_r(log P(label r)), between 1 and the number of labels (Tsvilodub et al. 2024)."""
    sums = np.stack([part.sums for part in parts])
    with np.errstate(invalid="ignore"):
        shares = np.exp(sums - np.logaddexp.reduce(sums, axis=0))
    return np.asarray(np.arange(1, len(parts) + 1) @ shares, dtype=np.float64)


def rating_range(parts: Sequence[Continuations]) -> Range:
    """The lowest and the highest that it may be.

    A mean of ratings is lowest where all labels up to some one are as likely, and all above it as unlikely, as may be.
    """
    lowest = [part.lowest() for part in parts]
    cuts = range(len(parts) + 1)
    lows = np.stack([expected_rating([*parts[:cut], *lowest[cut:]]) for cut in cuts])
    highs = np.stack([expected_rating([*lowest[:cut], *parts[cut:]]) for cut in cuts])
    with np.errstate(invalid="ignore"):
        missing = np.where(np.isnan(np.sum([part.sums for part in parts], axis=0)), np.nan, 0.0)
    return _rating_bound(np.fmin, lows) + missing, _rating_bound(np.fmax, highs) + missing


Parts = Sequence[Continuations]
"""What ``select`` asks of each choice: the scored tokens, the prompt's last token where it was asked for and subtracted
again, and the scored tokens but the first, each given those alone; the last two may be missing."""


def token_length_normalized(parts: Parts) -> Floats:
    """Mean over tokens, as sglang 0.4.2 computes it: log-probabilities that are exactly 0 do not count in it.

    The mean is taken with the prompt's last token, times the number of tokens, minus the prompt's token, over the
    scored tokens.  Where nothing is exactly 0 that is the plain mean; else the prompt's token leaves its trace.
    """
    tokens = parts[0].counts + (parts[1].counts if len(parts) > 1 else 0)
    total = token_length_normalized_with_prompt(parts) * tokens
    return per(total - _select_sums(parts, 1), parts[0].counts.astype(np.float64))


def token_length_normalized_with_prompt(parts: Parts) -> Floats:
    """The same against the servers of today (sglang 0.5.23): the prompt's last token stays in the mean.

    They answer one token further back, with no log-probability for it, so that ``select`` subtracts nothing.
    """
    counted = sum(np.nan_to_num(part.reduce(np.add, part.logprobs != 0)) for part in parts[:2])
    return per(parts[0].sums + _select_sums(parts, 1), np.asarray(counted))


def unconditional_likelihood_normalized(parts: Parts) -> Floats:
    """Mean over tokens of log P(token | context) - log P(token | the choice's tokens before it); 0 for the first."""
    return per(parts[0].sums - _select_sums(parts, 2), parts[0].counts.astype(np.float64))


def greedy_token_selection(parts: Parts) -> Floats:
    """1 for the choices that remain when at each place only those with the greatest log-probability are kept, else 0.

    A choice that has ended counts with its mean log-probability from there on.  Tokens are compared by their
    log-probabilities alone, so choices that share none are compared, too.
    """
    observed = parts[0]
    scores = np.full(len(observed.text), np.nan)
    for start, end in pairwise(observed.item_offsets.tolist()):
        if end > start and not np.isnan(observed.token_sums[start:end]).any():
            splits = observed.offsets[start + 1 : end] - observed.offsets[start]
            logprobs = observed.logprobs[observed.offsets[start] : observed.offsets[end]].astype(
                np.float64
            )
            scores[start:end] = _select_remaining(np.split(logprobs, splits))
    return scores


def log_sum(parts: Sequence[Continuations]) -> Floats:
    """log of the probability that any of the spellings comes, in nats.

    Spellings with the same tokens are one, and one whose tokens begin another's holds that other already.
    """
    total = np.full(len(parts[0].text), -np.inf)
    for place, part in enumerate(parts):
        counted = np.array(
            [not _spelling_held(parts, place, row) for row in range(len(part.text))], dtype=np.bool_
        )
        with np.errstate(
            invalid="ignore"
        ):  # a missing spelling stays NaN: what it would have added is not known
            total = np.logaddexp(total, np.where(counted, part.token_sums, -np.inf))
    return total


def log_greatest(parts: Sequence[Continuations]) -> Floats:
    """log of the probability of the likeliest spelling, in nats; NaN where one is missing."""
    return np.asarray(np.maximum.reduce([part.token_sums for part in parts]), dtype=np.float64)


LEAST: Final = 1e-12
"""The probability that one of 0 counts as, which may be a rounded one; as in EvalScope 1.14.1."""


def floored(logs: Floats) -> Floats:
    """Log-probabilities of options, in nats, none below that of :data:`LEAST`; NaN stays."""
    return np.asarray(np.maximum(logs, math.log(LEAST)), dtype=np.float64)


def without_end(parts: Sequence[Continuations]) -> Continuations:
    """The first part with P(EOS) := 0 and the rest renormalised: log P - log(1 - P(EOS)) at every token.

    Part 1 + j holds P(EOS) in the place of token j, as far as a row has one; without such parts nothing changes.
    """
    observed = parts[0]
    row = row_of(observed.offsets)
    place = np.arange(len(row)) - observed.offsets[:-1][row]
    logprobs = observed.logprobs.astype(np.float64)
    for number, part in enumerate(parts[1:]):
        here = (place == number) & (part.counts[row] > 0)
        with np.errstate(
            invalid="ignore", divide="ignore"
        ):  # where EOS is certain nothing else can be
            logprobs[here] -= np.log1p(-np.exp(part.sums[row[here]]))
    return replace(observed, logprobs=logprobs.astype(np.float32), totals=None)


def difference(parts: Sequence[Continuations]) -> Floats:
    """log P(first answer) - log P(second answer), in nats: of Yes and No the log-odds of Yes (Kadavath et al. 2022)."""
    with np.errstate(
        invalid="ignore"
    ):  # of two impossible answers neither is likelier: NaN, missing
        return parts[0].sums - parts[1].sums


def difference_range(parts: Sequence[Continuations]) -> Range:
    """The lowest and the highest that it may be."""
    low, high = difference([parts[0].lowest(), parts[1]]), difference([parts[0], parts[1].lowest()])
    either = np.isnan(low) | np.isnan(high)
    return np.where(either, np.nan, low), np.where(either, np.nan, high)


def _loglikelihood_scores(protocol: Recipe, observed: Observed) -> Floats:
    if protocol.calibration == "none":
        return observed.scores(protocol.score, protocol.null, protocol.outside)
    return calibrated(
        protocol.calibration, protocol.views, observed.part_sums, observed.item_offsets
    )


def _loglikelihood_range(protocol: Recipe, observed: Observed) -> Range:
    if protocol.calibration == "none":
        return observed.score_range(protocol.score, protocol.null, protocol.outside)
    parts = observed.part_lows, observed.part_sums
    return calibrated_range(protocol.calibration, protocol.views, parts, observed.item_offsets)


def _marginal_range(parts: Sequence[Continuations]) -> Range:
    """The lowest and the highest that :func:`marginal` may be."""
    return marginal([part.lowest() for part in parts]), marginal(parts)


def _vote_range(parts: Sequence[Continuations]) -> Range:
    """The lowest and the highest that :func:`vote` may be: the votes that are sure, and all that are possible."""
    item = row_of(parts[0].item_offsets)
    sure, possible = np.zeros(len(item)), np.zeros(len(item))
    for part in parts:
        low, high, offsets = part.lowest().sums, part.sums, part.item_offsets
        best = reduce_rows(np.maximum, low, offsets)[item]  # NaN when any option is
        at_top, rival = low == best, high >= best
        rivals = reduce_rows(np.add, rival, offsets)[item]
        # none is above what is surely at the top, so that the worst is a tie of them all
        settled = (reduce_rows(np.add, high > best, offsets) == 0)[item] | (rivals == 1)
        missing = np.where(np.isnan(best), np.nan, 0.0)
        tops = reduce_rows(np.add, at_top, offsets)[item]
        with np.errstate(invalid="ignore", divide="ignore"):
            sure += np.where(settled & at_top, 1 / rivals, 0.0) + missing
            possible += np.where(rival, np.where(at_top & settled, 1 / tops, 1.0), 0.0) + missing
    return sure / len(parts), possible / len(parts)


def _said_text(said: Continuations, row: int) -> str:
    return (said.text[row] or "").strip()


def _generate_longest(generated: Continuations, item: int, texts: Sequence[str]) -> tuple[int, int]:
    """The option that the item's text says, and how many tokens it takes; 0 tokens where it says none."""
    text = generated.text[item] or ""
    bare = [option.strip() for option in texts]
    whole = [option.rstrip() for option in texts]
    said = []
    for choice, option in enumerate(bare):
        if option and text.startswith((option, whole[choice])):
            said.append(choice)
    if not said:
        return 0, 0
    choice = max(said, key=lambda choice: len(bare[choice]))
    end = len((whole[choice] if text.startswith(whole[choice]) else bare[choice]).encode())
    ends = np.cumsum(
        generated.sizes[generated.offsets[item] : generated.offsets[item + 1]]
    ).tolist()
    return choice, ends.index(end) + 1 if end in ends else 0


def _generate_decisions(
    protocol: Recipe, observed: Observed
) -> tuple[Floats | None, Decisions, Statuses]:
    written = observed.written((protocol.new_tokens or 0) + (protocol.thought_tokens or 0))
    texts = [each.read(protocol.cut) if isinstance(each, Written) else None for each in written]
    rule, scores = protocol.decision, None
    if rule == "letter-match":
        decisions = letter_match(texts, observed.options(), observed.gold, protocol.labels)
    elif rule == "option-match":
        said = _generate_options(observed)
        scores, decisions = SCORES[protocol.score](said), option_match(said, observed.right)
    elif rule in NUMBERS:
        verdicts = _verdicts(rule, texts, observed.options())
        return None, *judged(protocol, written, verdicts >= 0, _compared(verdicts))
    else:
        choices = [end - start for start, end in pairwise(observed.item_offsets.tolist())]
        decisions = extract(rule, texts, observed.gold, choices, protocol.labels)
    return scores, *judged(protocol, written, decisions.prediction >= 0, decisions)


def _generate_retrieved(protocol: Recipe, observed: Observed) -> Continuations | None:
    return _generate_options(observed) if protocol.decision == "option-match" else None


def _generate_options(observed: Observed) -> Continuations:
    return said_options(observed.generation(), observed.expected(), observed.item_offsets)


def _rating_bound(ufunc: np.ufunc, values: Floats) -> Floats:
    """Of the vertices that have a rating: where all labels are impossible there is none."""
    return np.asarray(ufunc.reduce(values, axis=0), dtype=np.float64)


def _select_remaining(choices: Sequence[Floats]) -> list[float]:
    longest = max(map(len, choices))
    padded = [
        np.concatenate([choice, np.full(longest - len(choice), choice.mean())])
        for choice in choices
    ]
    remaining = list(range(len(choices)))
    for place in range(longest):
        best = max(padded[index][place] for index in remaining)
        remaining = [index for index in remaining if padded[index][place] == best]
    return [float(index in remaining) for index in range(len(choices))]


def _select_sums(parts: Parts, number: int) -> Floats:
    """Sums of a part, 0 where there is none of it; NaN where the model gave no number."""
    if number >= len(parts):
        return np.zeros(len(parts[0].text))
    return np.where(parts[number].counts > 0, parts[number].sums, 0.0)


def _spelling_held(parts: Sequence[Continuations], place: int, row: int) -> bool:
    """Whether the tokens of a spelling begin with those of another: of a shorter one, or of an equal one before it."""
    own = parts[place].token_ids(row)
    for number, part in enumerate(parts):
        other = part.token_ids(row)
        comes_first = len(other) < len(own) or number < place
        if number != place and comes_first and own[: len(other)] == other:
            return True
    return False


_LOGLIKELIHOOD = Combiner(
    _loglikelihood_scores,
    lambda protocol, observed: observed.continuations() if protocol.calibration == "none" else None,
    ranges=_loglikelihood_range,
)

OVER_CHAINS = {"marginal": marginal, "vote": vote}
"""By the name of the score."""

OVER_SPELLINGS = {"sum": log_sum, "likeliest": log_greatest}
"""Likewise."""

RANGES = {"marginal": _marginal_range, "vote": _vote_range}
"""Likewise, their bounds."""

SELECT: dict[str, Callable[[Parts], Floats]] = {
    "token_length_normalized": token_length_normalized,
    "token_length_normalized_with_prompt": token_length_normalized_with_prompt,
    "greedy_token_selection": greedy_token_selection,
    "unconditional_likelihood_normalized": unconditional_likelihood_normalized,
}
"""By the name of the score, which is SGLang's name of the method."""

COMBINERS: dict[str, Combiner] = ports.OpenTable(
    {
        "along-thought": Combiner(
            lambda protocol, observed: along(observed.parts(), protocol.score)
        ),
        "chain-of-thought": Combiner(
            lambda protocol, observed: OVER_CHAINS[protocol.score](observed.parts()),
            ranges=lambda protocol, observed: RANGES[protocol.score](observed.parts()),
        ),
        "decision": Combiner(
            lambda protocol, observed: floored(observed.scores(protocol.score)),
            lambda protocol, observed: observed.continuations(),
        ),
        "embedding": Combiner(lambda protocol, observed: observed.values()),
        "encoder-decoder": _LOGLIKELIHOOD,
        "generate": Combiner(
            lambda protocol, observed: SCORES[protocol.score](_generate_options(observed)),
            _generate_retrieved,
            _generate_decisions,
        ),
        "loglikelihood": _LOGLIKELIHOOD,
        "masked": _LOGLIKELIHOOD,
        "noisy-channel": Combiner(_loglikelihood_scores, ranges=_loglikelihood_range),
        "pseudo-loglikelihood": _LOGLIKELIHOOD,
        "pseudo-loglikelihood-within-word": _LOGLIKELIHOOD,
        "rating": Combiner(
            lambda protocol, observed: expected_rating(observed.parts()),
            ranges=lambda protocol, observed: rating_range(observed.parts()),
        ),
        "select": Combiner(lambda protocol, observed: SELECT[protocol.score](observed.parts())),
        "set-based": _LOGLIKELIHOOD,
        "spellings": Combiner(
            lambda protocol, observed: OVER_SPELLINGS[protocol.score](observed.parts()),
            ranges=lambda protocol, observed: (
                OVER_SPELLINGS[protocol.score]([part.lowest() for part in observed.parts()]),
                OVER_SPELLINGS[protocol.score](observed.parts()),
            ),
        ),
        "surprisal": _LOGLIKELIHOOD,
        "surprisal-package": Combiner(
            lambda protocol, observed: SCORES[protocol.score](without_end(observed.parts())),
            lambda protocol, observed: without_end(observed.parts()),
        ),
        "yes-no": Combiner(
            lambda protocol, observed: difference(observed.parts()),
            ranges=lambda protocol, observed: difference_range(observed.parts()),
        ),
    },
    ports.Reading,
    lambda addition: addition.combiner(),
)
"""How the observations of each reading of :data:`choicewise.protocols.readings.READINGS` are combined."""
