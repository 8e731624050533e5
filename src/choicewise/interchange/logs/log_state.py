"""What is known of a log once all of it was read: who it is about, and what it has."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from choicewise.errors import DataError
from choicewise.interchange.logs.log import Log, LoggedChoice
from choicewise.interchange.logs.log_item import KeptItem, kept_item
from choicewise.interchange.logs.log_protocols import Has
from choicewise.interchange.logs.recorded import Checks

Spell = Callable[[object], str]


@dataclass(frozen=True, slots=True)
class LogState:
    """``requests``: a digest of what was asked; ``data``: of the items; ``model``: of the answers (64 hex each).

    ``subjects``: how many items each has, in order.  ``has``: what the log has to score.
    ``notes``: where the log's own values are others than what follows from its log-likelihoods, in words;
    ``unused``: values of items in the log that are not imported, likewise.
    """

    requests: str
    data: str
    model: str
    subjects: dict[str, int]
    has: Has
    notes: tuple[str, ...] = ()
    unused: tuple[str, ...] = ()


def kept_items(log: Log) -> Iterator[KeptItem]:
    """The items of the log, checked; DataError as :func:`kept_item`."""
    return (kept_item(item, log.tool) for item in log.items)


def read_state(log: Log) -> LogState:
    """Read the log once.  Raises DataError where an item can't be used, stands twice, or there is none."""
    requests, data, model = hashlib.sha256(), hashlib.sha256(), hashlib.sha256()
    spell = json.JSONEncoder(sort_keys=True).encode
    model.update(spell([log.tool, log.model, log.task, log.null]).encode())
    subjects, checks = Counter[str](), Checks(log)
    text = tokens = greedy = several = False
    single, scored = True, False
    names = _Names()
    for kept in kept_items(log):
        item = kept.item
        names.add(item.id)
        subjects[item.subject] += 1
        several |= len(item.gold) > 1
        single &= len(item.choices) == 1
        scored |= any(choice.loglikelihood is not None for choice in item.choices)
        text |= any(choice.text is not None for choice in item.choices)
        tokens |= any(choice.tokens is not None for choice in item.choices)
        greedy |= any(choice.greedy is not None for choice in item.choices)
        texts = [item.id, item.subject, "" if kept.contexts else item.context, kept.contexts]
        requests.update(spell([*texts, [each.text for each in item.choices], item.gold]).encode() + b"\n")
        record = ["test", item.id, item.subject, kept.question, kept.options, item.gold, {}]
        data.update(spell(record).encode() + b"\n")
        answers = [_answer(choice) for choice in item.choices]
        model.update(spell([item.id, kept.missing, item.generated, answers]).encode() + b"\n")
        checks.add(kept)
    if not subjects:
        raise DataError(f"the {log.tool} log of {log.model} on {log.task} holds no items")
    names.refuse_doubles(log)
    digests = requests.hexdigest(), data.hexdigest(), model.hexdigest()
    has = Has(text, tokens, greedy, several, single, scored)
    return LogState(*digests, dict(subjects), has, checks.notes(), checks.unused())


def _answer(choice: LoggedChoice) -> list[object]:
    numbers = (None if number is None else number.hex() for number in (choice.loglikelihood, choice.unconditional))
    return [*numbers, choice.tokens, choice.greedy, choice.missing]


class _Names:
    """Which ids there were, in 8 bytes each."""

    def __init__(self) -> None:
        self._digests = bytearray()

    def add(self, name: str) -> None:
        self._digests += hashlib.blake2b(name.encode(), digest_size=8).digest()

    def refuse_doubles(self, log: Log) -> None:
        """DataError that names an id that stands twice."""
        digests = np.frombuffer(bytes(self._digests), dtype=np.uint64)
        known, counts = np.unique(digests, return_counts=True)
        twice = known[counts > 1]
        if len(twice):
            wanted = {int(each).to_bytes(8, "little") for each in twice}
            double = next(
                item.id for item in log.items if hashlib.blake2b(item.id.encode(), digest_size=8).digest() in wanted
            )
            raise DataError(
                f"the {log.tool} log of {log.model} on {log.task} has item {double!r} twice; is it of two "
                f"models or two runs? ({len(twice):,} ids stand more than once)"
            )
