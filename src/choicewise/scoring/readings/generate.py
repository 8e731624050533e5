"""Reading ``generate``: the option that generated text says."""

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from choicewise.protocols.protocol import Protocol
from choicewise.scoring.continuations import Continuations
from choicewise.scoring.decisions import Decisions, letter_match
from choicewise.scoring.extraction import RULES
from choicewise.scoring.ragged import Floats, Integers, Mask
from choicewise.scoring.readings.combiner import Combiner, Decision, Observed
from choicewise.scoring.scores import SCORES


def said_options(generated: Continuations, options: Sequence[Sequence[str]], item_offsets: Integers) -> Continuations:
    """The tokens that say an option, one row per (item, choice); every row but that of the option said is missing.

    ``generated`` has one row per item, ``options`` the continuations each item was waiting for.  An option is said
    when the text begins with it, leading white space aside, and a token ends where it ends; of several the longest,
    and of equal ones the first.  As in LLM-distPred-refGames (README@286ba10): what deviates has no score.
    """
    rows = [_longest_said(generated, item, texts) for item, texts in enumerate(options)]
    counts = np.zeros(int(item_offsets[-1]), dtype=np.int64)
    text = [""] * int(item_offsets[-1])
    keep: list[np.ndarray[tuple[int], np.dtype[np.int64]]] = []
    for item, (choice, tokens) in enumerate(rows):
        text[item_offsets[item] : item_offsets[item] + len(options[item])] = options[item]
        if tokens:
            counts[item_offsets[item] + choice] = tokens
            keep.append(generated.offsets[item] + np.arange(tokens))
    flat = np.concatenate(keep) if keep else np.empty(0, dtype=np.int64)
    return Continuations(
        tokens=generated.tokens[flat],
        logprobs=generated.logprobs[flat],
        sizes=generated.sizes[flat],
        ranks=generated.ranks[flat],
        offsets=np.concatenate([[0], np.cumsum(counts)]),
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
        found = next((row for row in rows if said.counts[row]), None)
        if found is not None:
            prediction[item] = found - said.item_offsets[item]
            credit[item] = any(gold[row] for row in rows if said.text[row].strip() == said.text[found].strip())
    return Decisions(prediction, credit, np.zeros(items, dtype=np.bool_), np.full(items, np.nan))


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
    return Decisions(prediction, credit, np.zeros(len(texts), dtype=np.bool_), np.full(len(texts), np.nan))


def _longest_said(generated: Continuations, item: int, texts: Sequence[str]) -> tuple[int, int]:
    """The option that the item's text says, and how many tokens it takes; 0 tokens where it says none."""
    whole = generated.text[item]
    spoken = whole.lstrip()
    waiting = sorted(range(len(texts)), key=lambda index: -len(texts[index].strip()))
    ends = np.cumsum(generated.sizes[generated.offsets[item] : generated.offsets[item + 1]])
    for choice in waiting:
        option = texts[choice].strip()
        if option and spoken.startswith(option):
            end = len(whole.encode()) - len(spoken.encode()) + len(option.encode())
            tokens = int(np.searchsorted(ends, end)) + 1
            return (choice, tokens) if tokens <= len(ends) and ends[tokens - 1] == end else (choice, 0)
    return 0, 0


def _decide(protocol: Protocol, observed: Observed) -> Decision:
    if protocol.decision == "letter-match":
        return None, letter_match(observed.generated(), observed.options(), observed.gold, protocol.letters)
    if protocol.decision == "option-match":
        said = _options(observed)
        return SCORES[protocol.score](said), option_match(said, observed.right)
    choices = [end - start for start, end in pairwise(observed.item_offsets.tolist())]
    return None, extract(protocol.decision, observed.generated(), observed.gold, choices, protocol.letters)


def _retrieved(protocol: Protocol, observed: Observed) -> Continuations | None:
    return _options(observed) if protocol.decision == "option-match" else None


def _options(observed: Observed) -> Continuations:
    return said_options(observed.generation(), observed.expected(), observed.item_offsets)


def _scores(protocol: Protocol, observed: Observed) -> Floats:
    return SCORES[protocol.score](_options(observed))


COMBINER = Combiner(_scores, _retrieved, _decide)
