"""How many tokens the texts of a log have, counted with the model's own tokenizer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path

from choicewise.errors import DataError
from choicewise.interchange.logs.log import Log, LoggedChoice, LoggedItem, Unreadable
from choicewise.tokens.boundary import choice_questions_batch
from choicewise.tokens.encodings import Encodings
from choicewise.tokens.tokenizer import Tokenizer

BOUNDARY = "moved-space"
"""How lm-evaluation-harness tells the tokens of a continuation from those of its context."""

AT_ONCE = 256
"""Items whose texts are encoded together."""


def counted(logs: Sequence[Log], folder: Path) -> list[Log]:
    """The logs with the number of tokens of every choice that has none and has a text.

    They are the tokens after the context, by the harness's own boundary; where the log has no context, those of the
    text alone.  ``folder``: the tokenizer's, as of a model of transformers.  Raises ModelError where it holds none, and
    DataError where no log has texts.
    """
    from choicewise.models.local.hf_tokenizer import HfTokenizer

    tokenizer = HfTokenizer(folder)
    settings = {"token counts": f"by the tokenizer {tokenizer.digest[:12]}, boundary {BOUNDARY}"}
    readable = [log for log in logs if not isinstance(log.items, Unreadable)]
    done = [_counted(log, tokenizer, settings) for log in logs]
    if readable and not any(
        choice.text for log in readable for item in islice(log.items, 1) for choice in item.choices
    ):
        raise DataError(
            "the log has no texts of the choices, so that there are no tokens to count; leave the tokenizer out"
        )
    return done


def _counted(log: Log, tokenizer: Tokenizer, settings: Mapping[str, str]) -> Log:
    if isinstance(log.items, Unreadable):
        return log
    return replace(log, items=CountedItems(log, tokenizer), settings={**log.settings, **settings})


@dataclass(frozen=True)
class CountedItems:
    """The items of a log, with token counts."""

    log: Log
    tokenizer: Tokenizer

    def __iter__(self) -> Iterator[LoggedItem]:
        items = iter(self.log.items)
        while batch := list(islice(items, AT_ONCE)):
            yield from self._counted(batch)

    def _counted(self, items: Sequence[LoggedItem]) -> Iterator[LoggedItem]:
        encodings = Encodings(self.tokenizer, "default")
        groups = [(item, choice) for item in items for choice in item.choices]
        contexts = [(choice.context if choice.context is not None else item.context) or "" for item, choice in groups]
        asked = choice_questions_batch(
            encodings, BOUNDARY, contexts, [[choice.text or ""] for _, choice in groups], [[0]] * len(groups)
        )
        spans = iter([question.span for (question,) in asked])
        for item in items:
            counts = [None if (span := next(spans)) is None else len(span.continuation) for _ in item.choices]
            yield replace(item, choices=tuple(map(_with_count, item.choices, counts)))


def _with_count(choice: LoggedChoice, count: int | None) -> LoggedChoice:
    known = choice.tokens is not None or choice.text is None
    return choice if known else replace(choice, tokens=count)
