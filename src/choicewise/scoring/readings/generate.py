"""Reading ``generate``: the option that generated text says."""

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from choicewise.protocols.protocol import Protocol
from choicewise.scoring.continuations import Continuations
from choicewise.scoring.decisions import Decisions, letter_match
from choicewise.scoring.extraction import NUMBERS, RULES
from choicewise.scoring.ragged import Floats, Integers, Mask
from choicewise.scoring.readings import Combiner, Observed
from choicewise.scoring.scores import SCORES


def said_options(generated: Continuations, options: Sequence[Sequence[str]], item_offsets: Integers) -> Continuations:
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
        choice, count = _longest_said(generated, item, texts)
        if count:
            counts[first + choice] = count
            said[start : start + count] = True
    tokens, logprobs = generated.tokens[said], generated.logprobs[said]
    sizes, ranks, offsets = generated.sizes[said], generated.ranks[said], np.concatenate([[0], np.cumsum(counts)])
    return Continuations(tokens, logprobs, sizes, ranks, offsets, text, item_offsets)


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
            credit[item] = any(gold[row] for row in rows if _bare(said, row) == _bare(said, chosen))
    return Decisions.uncompared(prediction, credit)


def extract(
    rule: str, texts: Sequence[str | None], gold: Sequence[Sequence[int]], choices: Sequence[int], letters: str
) -> Decisions:
    """The letter that the published ``rule`` (:data:`~choicewise.scoring.extraction.RULES`) finds in each text.

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


def compare(rule: str, texts: Sequence[str | None], solutions: Sequence[Sequence[str]]) -> Decisions:
    """Whether each text has the number of its item's solution, by the published ``rule`` (:data:`NUMBERS`).

    ``solutions``: the choices of every item, of which the first is the solution.  A text without a number is wrong;
    None is missing.
    """
    right = np.full(len(texts), np.nan)
    for item, (text, choices) in enumerate(zip(texts, solutions, strict=True)):
        if text is not None and choices:
            right[item] = bool(NUMBERS[rule](text, choices[0]))
    return Decisions.uncompared(np.where(right == 1, 0, -1), right)


def _bare(said: Continuations, row: int) -> str:
    return (said.text[row] or "").strip()


def _longest_said(generated: Continuations, item: int, texts: Sequence[str]) -> tuple[int, int]:
    """The option that the item's text says, and how many tokens it takes; 0 tokens where it says none."""
    text = generated.text[item] or ""
    bare, whole = [option.strip() for option in texts], [option.rstrip() for option in texts]
    said = [choice for choice, option in enumerate(bare) if option and text.startswith((option, whole[choice]))]
    if not said:
        return 0, 0
    choice = max(said, key=lambda choice: len(bare[choice]))
    end = len((whole[choice] if text.startswith(whole[choice]) else bare[choice]).encode())
    ends = np.cumsum(generated.sizes[generated.offsets[item] : generated.offsets[item + 1]]).tolist()
    return choice, ends.index(end) + 1 if end in ends else 0


def _decide(protocol: Protocol, observed: Observed) -> tuple[Floats | None, Decisions]:
    if protocol.decision == "letter-match":
        return None, letter_match(observed.generated(), observed.options(), observed.gold, protocol.letters)
    if protocol.decision == "option-match":
        said = _options(observed)
        return SCORES[protocol.score](said), option_match(said, observed.right)
    if protocol.decision in NUMBERS:
        return None, compare(protocol.decision, observed.generated(), observed.options())
    choices = [end - start for start, end in pairwise(observed.item_offsets.tolist())]
    return None, extract(protocol.decision, observed.generated(), observed.gold, choices, protocol.letters)


def _retrieved(protocol: Protocol, observed: Observed) -> Continuations | None:
    return _options(observed) if protocol.decision == "option-match" else None


def _options(observed: Observed) -> Continuations:
    return said_options(observed.generation(), observed.expected(), observed.item_offsets)


COMBINER = Combiner(lambda protocol, observed: SCORES[protocol.score](_options(observed)), _retrieved, _decide)
