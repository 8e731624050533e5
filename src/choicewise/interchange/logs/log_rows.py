"""The rows of a run folder from the items of a log."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

from choicewise.interchange.logs.log_item import KeptItem
from choicewise.records.rows import ItemRow, ObservationRow, RequestRow, SpanRow
from choicewise.records.tables import GENERATED

NO_TEXT = "the log has no text that the model wrote"
"""Why an item has no generation."""

SPLIT = "test"
"""The split that all items of a log are of."""


class LogRows:
    """The rows of a block.  ``prompts``: the protocols' ``prompt_digest`` by reading; ``model``: of the answers.

    ``null``: the context of the unconditional log-likelihoods, None where no protocol compares with them.
    """

    def __init__(self, prompts: Mapping[str, str], model: str, null: str | None) -> None:
        self.requests: list[RequestRow] = []
        self.spans: list[SpanRow] = []
        self.observations: list[ObservationRow] = []
        self._prompt, self._text_prompt = prompts["loglikelihood"], prompts.get("generate")
        self._model, self._null = model, null

    def add(self, kept: KeptItem) -> None:
        """The rows of one item: nothing was observed of one that is missing."""
        self._add_choices(kept)
        if self._text_prompt is not None:
            self._add_text(kept, self._text_prompt)

    def _add_text(self, kept: KeptItem, prompt: str) -> None:
        item = kept.item
        request = RequestRow(prompt, item.id, item.subject, item.gold, item.context, None, kept.options)
        if kept.missing:
            self.requests.append(RequestRow(prompt, item.id, item.subject, item.gold, missing=kept.missing))
            return
        self.requests.append(request)
        span = SpanRow(prompt, item.id, GENERATED, 0)
        if item.generated is None:
            self.spans.append(span._replace(missing=item.choices[0].missing or NO_TEXT))
            return
        key = self._key(item.id, GENERATED, "given")
        self.observations.append(ObservationRow(key, (), (), (), (), item.generated))
        self.spans.append(span._replace(key=key))

    def _add_choices(self, kept: KeptItem) -> None:
        item, texts = kept.item, [choice.text for choice in kept.item.choices]
        request = RequestRow(self._prompt, item.id, item.subject, item.gold, missing=kept.missing)
        if kept.missing:
            self.requests.append(request)
            return
        known = [text for text in texts if text is not None]
        sent = known if len(known) == len(texts) else None
        context = "" if kept.contexts else item.context
        self.requests.append(request._replace(context=context, continuations=sent, options=sent))
        for place, choice in enumerate(item.choices):
            key = None
            if choice.loglikelihood is not None:
                key = self._key(item.id, place, "given")
                flags = choice.tokens, choice.greedy
                self.observations.append(ObservationRow(key, (), (), (), (), None, None, choice.loglikelihood, *flags))
            row = SpanRow(self._prompt, item.id, place, 0, None, choice.context, choice.text, key)
            self.spans.append(row._replace(missing=choice.missing))
            if self._null is not None and choice.unconditional is not None:
                key = self._key(item.id, place, "null")
                self.observations.append(ObservationRow(key, (), (), (), (), None, None, choice.unconditional))
                self.spans.append(SpanRow(self._prompt, item.id, place, 0, self._null, None, choice.text, key))

    def _key(self, item: str, choice: int, side: str) -> str:
        """32 hex digits of this log alone: which tokens were scored is not known, so nobody else has the same."""
        content = "\0".join((self._model, item, str(choice), side))
        return hashlib.blake2b(content.encode(), digest_size=16).hexdigest()


def item_row(kept: KeptItem, position: int) -> ItemRow:
    """The row of the item table."""
    item = kept.item
    return ItemRow(position, SPLIT, item.id, item.subject, kept.question, kept.options, item.gold, "{}")
