"""An explanation of an item in a screen or two: what was decided, and the choices side by side."""

from collections import Counter
from collections.abc import Iterator
from itertools import chain

from rich.console import Group, RenderableType
from rich.text import Text

from choicewise.report.choice_table import choice_table, shown, texts
from choicewise.report.console import console
from choicewise.report.decision_text import decision_lines, together
from choicewise.report.explanation_text import quoted
from choicewise.report.folded_text import cut, folded, size
from choicewise.report.visible_text import safe, short
from choicewise.report.words import REASON, count
from choicewise.results.explanation import AskedPrompt, Explanation

QUESTION, PROMPTS = 8, 16
"""Lines for the question, and for the texts of all prompts together."""


def explanation_parts(explanation: Explanation, width: int | None = None) -> list[RenderableType]:
    """The item with what the protocols decide, then every prompt with its choices.  ``width``: of the terminal."""
    width = width or console().width
    blocks: dict[object, list[AskedPrompt]] = {}
    for asked in explanation.asked:
        alone = len(asked.protocols) > 1 or not shown(asked)
        blocks.setdefault(asked.protocols if alone else texts(asked), []).append(asked)
    lines = max(1, PROMPTS // max(1, len(explanation.asked)))
    prompts = (_block(asked, explanation, lines, width) for asked in blocks.values())
    return [Group(*map(Text, _item(explanation, width))), Group(*chain.from_iterable(prompts))]


def _item(explanation: Explanation, width: int) -> Iterator[str]:
    subject, model = safe(explanation.subject) or "-", safe(explanation.model)
    yield cut(f"item {safe(explanation.item)} ({subject}), as {model} was asked; * is right", 2 * width)
    yield from folded(explanation.question, QUESTION, width)
    for index, choice in enumerate(explanation.choices):
        yield cut(f"  {'*' if index in explanation.gold else ' '} {index}  {safe(choice)}", width)
    yield from decision_lines(explanation.decided)


def _block(prompts: list[AskedPrompt], explanation: Explanation, lines: int, width: int) -> Iterator[RenderableType]:
    """Prompts after which the same was scored, with one table."""
    ends = [[] if (text := _text(asked)) is None else folded(text, lines, width - 2) for asked in prompts]
    for place, asked in enumerate(prompts):
        yield Text(_about(asked), style="bold")
        if asked.missing is not None:
            yield Text(f"  not asked: {short(asked.missing, REASON)}")
        if place + 1 == len(prompts) or ends[place] != ends[place + 1]:
            yield from (Text(f"  {line}") for line in ends[place])
        yield from (Text(f"  ! {doubt}") for doubt in _doubts(asked))
        generated = [quoted(each.generated) for each in asked.scored if each.generated is not None]
        if generated:
            more = f" and {len(generated) - 1} more" if len(generated) > 1 else ""
            yield Text(cut(f"  generated {generated[0]}", width - len(more)) + more)
    if shown(prompts[0]):
        yield choice_table(prompts, explanation.decided, explanation.gold, width)


def _text(asked: AskedPrompt) -> str | None:
    """The text of the prompt, or that of the first choice where choices have their own."""
    return next((each.context for each in asked.scored if each.context is not None), asked.context)


def _about(asked: AskedPrompt) -> str:
    facts, text = [asked.reading, asked.boundary, *_lost(asked)], _text(asked)
    if text is not None:
        facts.append(size(text) if text == asked.context else f"{size(text)} (the first prompt of several)")
    return f"{together(asked.protocols)}: {', '.join(facts)}"


def _lost(asked: AskedPrompt) -> Iterator[str]:
    if asked.shots is not None:
        yield count(asked.shots, "shot")
    if asked.shots_dropped:
        yield f"{asked.shots_dropped} more dropped to fit"
    if asked.tokens_dropped:
        yield f"{asked.tokens_dropped} tokens cut off"
    if asked.rescored:
        yield "rescored in float32"
    if asked.unused:
        yield f"unused: {short(', '.join(asked.unused), REASON)}"


def _doubts(asked: AskedPrompt) -> Iterator[str]:
    """What there is to doubt about the continuations, each with how many of them."""
    counts: Counter[str] = Counter()
    for each in asked.scored:
        flags = {
            "a token straddles the context's end": each.merged,
            "not the text's own tokens": each.noncanonical,
            "tokens do not spell the text": each.lossy,
            "unknown tokens": each.unknown,
            "several BOS tokens": each.bos > 1,
            "context cut": each.tokens_dropped,
            "an upper bound": each.at_most,
            f"missing: {short(each.missing or '', REASON)}": each.missing,
        }
        counts.update(flag for flag, true in flags.items() if true)
    for number in dict.fromkeys(counts.values()):
        yield f"{number} of {len(asked.scored)}: {', '.join(flag for flag in counts if counts[flag] == number)}"
