"""The log of another tool as a value: one model on one task."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from choicewise.errors import DataError

AVERAGES = ("micro", "macro")
"""Aggregations that a log can have: they make one number of all items."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoggedChoice:
    """Hold a choice of an item in a log.

    ``loglikelihood``: log P(text | context) in nats, None if ``missing`` says why.  ``text``: the
    continuation as it was scored, with the space it starts with, None if the log does not have it.
    ``context``: its own, if it is not the item's.  ``tokens``: the number of scored tokens.
    ``greedy``: whether every token was the likeliest.  ``unconditional``: the log-likelihood after
    the null context, in nats.
    """

    loglikelihood: float | None = None
    text: str | None = None
    context: str | None = None
    tokens: int | None = None
    greedy: bool | None = None
    unconditional: float | None = None
    missing: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LoggedItem:
    """Hold an item of a log.

    ``gold``: the indices of the right choices.  ``context``: the text before the choices, as it was
    sent.  ``question`` and ``options``: the question and its choices as the data have them, if the
    log has those too.  ``generated``: the text that the model wrote, if it answered in text;
    ``text_loglikelihood``: the log-probability of that text, nats, if the log has it.
    ``recorded``: the log's own values of the item, by the log's name (``acc``, ``acc_norm``), which
    are checked against those that follow from the log-likelihoods.  ``missing``: why it can't be
    scored at all, once it is checked.  ``finish``: why the text ended
    (:mod:`choicewise.questions`), None if the log does not say.
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
    missing: str | None = None
    finish: str | None = None
    text_loglikelihood: float | None = None

    @property
    def own_contexts(self) -> tuple[str | None, ...]:
        """Return the contexts of the choices if any choice has its own, else nothing."""
        contexts = tuple(choice.context for choice in self.choices)
        if all(context is None for context in contexts):
            return ()
        return contexts

    @property
    def shown_question(self) -> str:
        """Return the question of the data, else the text that the choices were scored after."""
        if self.question is not None:
            return self.question
        if self.context is not None:
            return self.context
        contexts = [context for context in self.own_contexts if context is not None]
        return "\n".join(contexts) or "(the log has no text of the question)"

    @property
    def shown_options(self) -> tuple[str, ...]:
        """Return the choices of the data, else the texts that were scored."""
        if self.options is not None:
            return self.options
        texts = []
        for number, choice in enumerate(self.choices):
            if choice.text is None:
                texts.append(f"(choice {number}: the log has no text)")
            else:
                texts.append(choice.text.removeprefix(" "))
        return tuple(texts)


@dataclass(frozen=True, slots=True, kw_only=True)
class Log:
    """Hold the log of one ``model`` on one ``task``.

    ``items`` can be read again: every ``iter`` begins anew, so that a long log need not be in
    memory.  ``settings``: shots, version, dtype and others, as text.  ``null``: the context that
    ``unconditional`` is after, None if the log has none.  ``recorded``: the log's own totals, by
    the log's name for each.  ``unused``: the parts of the log that an import does not keep
    (columns, filters), in words.  ``axes``: how the tool asks, if that is known, as axes of a
    protocol (``fit``, ``boundary``, ``bos``).  ``rules``: decisions that read a letter in
    ``generated`` text, the tool's own first; empty if the log has none.  ``aggregations``: how the
    tool's numbers average the subjects (``micro``, ``macro``), the first for every score.
    ``verdicts``: how the values of items follow from the answers, by name; the import takes them
    from the reader.  ``limit``: how many items were asked at most, the first of each subject; None
    for all.
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
    verdicts: Mapping[str, Verdict] = field(default_factory=dict)
    limit: int | None = None


Verdict = Callable[[Log, LoggedItem], float]
"""Returns the credit of an item; NaN if the log lacks what it follows from."""


@dataclass(frozen=True, slots=True)
class Reread:
    """Iterate items that ``read`` yields anew every time."""

    read: Callable[[], Iterator[LoggedItem]]

    def __iter__(self) -> Iterator[LoggedItem]:
        return self.read()


@dataclass(frozen=True, slots=True)
class Unreadable:
    """Items of a log that can't be read, beside other logs that can; iterating raises the
    ``error``.
    """

    error: DataError

    def __iter__(self) -> Iterator[LoggedItem]:
        raise self.error
