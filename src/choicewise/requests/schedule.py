"""What a run has to do: which ways of asking, over which blocks of items."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from choicewise.data.dataset import Dataset
from choicewise.data.item import Item
from choicewise.errors import DataError, UsageError
from choicewise.protocols.protocol import Protocol
from choicewise.protocols.shots import sample
from choicewise.requests.prepared_block import Answerer, PreparedBlock
from choicewise.requests.render import Request, check_choices, render

BLOCK = 2000
"""Items asked together, so that they share what they have in common, and few enough that they stay in memory."""


@dataclass(frozen=True)
class Ask:
    """One way of asking about every item: a recipe's request, or its continuations after a null context."""

    recipe: Protocol
    null: str | None = None

    @property
    def name(self) -> str:
        """What the manifest calls it: protocols that share it share the observations."""
        return self.recipe.prompt_digest + ("" if self.null is None else f"|{self.null}")


@dataclass(frozen=True)
class Block:
    """Up to ``BLOCK`` items of one subject, from position ``start`` of the subject on."""

    split: str
    subject: str
    start: int
    items: tuple[Item, ...]

    @property
    def stop(self) -> int:
        """The position behind the last item."""
        return self.start + len(self.items)

    @property
    def place(self) -> tuple[str, str, int, int]:
        """Split, subject, start and stop: where the run folder keeps what was observed of it."""
        return self.split, self.subject, self.start, self.stop


def list_asks(recipes: Mapping[str, Protocol]) -> list[Ask]:
    """Every way of asking that the recipes need, each once."""
    asks = [Ask(recipe, null) for recipe in recipes.values() for null in dict.fromkeys((None, recipe.null))]
    return list({ask.name: ask for ask in asks}.values())


def list_blocks(
    data: Dataset, recipes: Mapping[str, Protocol], subjects: Sequence[str] | None, limit: int | None
) -> list[Block]:
    """The items of every split that the recipes test, or of the named subjects, or the first ``limit`` of each.

    Raises DataError when there is no such split, and UsageError when there is no such subject or the limit is below 1.
    """
    if limit is not None and limit < 1:
        raise UsageError(f"limit is {limit}; it must be at least 1, or left out for all questions")
    blocks: list[Block] = []
    for split in dict.fromkeys(recipe.split or data.evaluated for recipe in recipes.values()):
        for subject in data.choose(split, subjects):
            items = data.rows(split, subject)[:limit]
            starts = range(0, len(items), BLOCK)
            blocks += [Block(split, subject, start, items[start : start + BLOCK]) for start in starts]
    return blocks


def check(data: Dataset, asks: Sequence[Ask], blocks: Sequence[Block]) -> None:
    """DataError for what rendering would stumble over later: too few rows for shots, items with the wrong choices.

    Cheap, and done before the model starts, so that hours of work don't end at a bad row.
    """
    for ask in asks:
        if ask.null is None:
            mine = [block for block in blocks if block.split == ask.recipe.split]
            for subject in dict.fromkeys(block.subject for block in mine):
                sample(ask.recipe, data, subject)
            for block in mine:
                for item in block.items:
                    check_choices(ask.recipe, item)


def prepare_block(
    data: Dataset, block: Block, asks: Sequence[Ask], model: Answerer, skip_bad_items: bool
) -> PreparedBlock:
    """Render, fit and tokenize the items of ``block`` for every one of ``asks``.

    Raises DataError for an item that can't be asked, unless those are to be skipped: then it is refused, with the
    reason.
    """
    asking = PreparedBlock()
    rendered: dict[str, list[Request]] = {}
    for ask in asks:
        digest = ask.recipe.prompt_digest
        if digest not in rendered:
            rendered[digest] = []
            shots = sample(ask.recipe, data, block.subject)[block.start : block.stop]
            for place, (item, examples) in enumerate(zip(block.items, shots, strict=True), start=block.start):
                try:
                    rendered[digest].append(render(ask.recipe, item, examples, place))
                except DataError as error:
                    if not skip_bad_items:
                        raise
                    if ask.null is None:
                        asking.refuse(ask.recipe, item, str(error))
        if ask.null is None:
            asking.add(ask.recipe, rendered[digest], model)
        else:
            asking.add_null(ask.recipe, ask.null, rendered[digest], model)
    return asking
