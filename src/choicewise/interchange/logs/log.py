"""What another tool's log says of one model on one task, whichever tool wrote it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from choicewise.errors import DataError


@dataclass(frozen=True, slots=True)
class LoggedChoice:
    """What a log says of one choice.

    ``loglikelihood``: log P(text | context) in nats, None where ``missing`` says why.  ``text``: the continuation as it
    was scored, with the space it starts with, None where the log does not have it.  ``context``: its own, where it is
    not the item's.  ``tokens``: how many tokens were scored.  ``greedy``: whether every token was the likeliest.
    ``unconditional``: the log-likelihood after the null context, in nats.
    """

    loglikelihood: float | None
    text: str | None = None
    context: str | None = None
    tokens: int | None = None
    greedy: bool | None = None
    unconditional: float | None = None
    missing: str | None = None


@dataclass(frozen=True, slots=True)
class LoggedItem:
    """What a log says of one item.

    ``gold``: the indices of the right choices.  ``context``: the text before the choices, as it was sent.  ``question``
    and ``options``: the question and its choices as the data have them, where the log has those too.  ``generated``:
    the text that the model wrote, where it answered in text.  ``recorded``: what the log itself says of the item, by
    the log's name for it (``acc``, ``acc_norm``), which is checked against what follows from the log-likelihoods.
    """

    id: str
    gold: tuple[int, ...]
    choices: tuple[LoggedChoice, ...]
    context: str | None = None
    subject: str = ""
    question: str | None = None
    options: tuple[str, ...] | None = None
    generated: str | None = None
    recorded: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Log:
    """What a log says of one ``model`` on one ``task``.

    ``items`` can be read again: every ``iter`` begins anew, so that a long log need not be in memory.  ``settings``:
    shots, version, dtype and others, as text.  ``null``: the context that ``unconditional`` is after, None where the
    log has none.  ``recorded``: the log's own totals, by the log's name for each.  ``unused``: what the log has and an
    import does not keep (columns, filters), in words.  ``axes``: how the tool asks, where that is known, as axes of a
    protocol (``fit``, ``boundary``, ``bos``).  ``rules``: decisions that read a letter in ``generated`` text, the
    tool's own first; empty where the log has none.  ``aggregations``: how the tool's numbers average the subjects
    (``micro``, ``macro``), the first for every score.
    """

    tool: str
    model: str
    task: str
    items: Iterable[LoggedItem]
    settings: Mapping[str, str] = field(default_factory=dict)
    null: str | None = None
    recorded: Mapping[str, float] = field(default_factory=dict)
    unused: tuple[str, ...] = ()
    axes: Mapping[str, str] = field(default_factory=dict)
    rules: tuple[str, ...] = ()
    aggregations: tuple[str, ...] = ("micro",)


@dataclass(frozen=True, slots=True)
class Unreadable:
    """The items of a log that can't be used, among others that can: ``error`` says why once they are asked for."""

    error: DataError

    def __iter__(self) -> Iterator[LoggedItem]:
        raise self.error


def unreadable(tool: str, path: Path, error: DataError) -> Log:
    """A log of what ``tool`` left at ``path`` that can't be read, so that nobody knows of which model it is."""
    return Log(tool, "unknown", path.stem, Unreadable(error), {"file": path.name})
