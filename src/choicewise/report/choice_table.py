"""The choices of an item side by side: texts, sizes, and the scores that protocols make of them."""

import math
from collections.abc import Mapping, Sequence

from rich.console import Group
from rich.padding import Padding
from rich.table import Table

from choicewise.report.decision_text import end
from choicewise.report.visible_text import safe, short, visible_line
from choicewise.results.explanation import AskedPrompt, ItemDecision, ScoredContinuation

LABEL, INDENT, GAP = 32, 2, 2
"""Columns of the terminal for the name of a row at most, before a table, and between two columns."""

LARGE = 99.99995
"""Nats from which on two decimals are enough."""

LONGEST = 1000
"""Characters of a text that are looked at: more of them than a line can show."""

PARTS = 2
"""So many parts of what is asked about a choice are shown; all of them with the tokens."""

Cells = Mapping[int, str]
"""A cell per choice."""


def choice_table(
    prompts: Sequence[AskedPrompt], decided: Sequence[ItemDecision], gold: Sequence[int], width: int
) -> Group:
    """A column per choice, in parts where they are too wide, for prompts after which the same texts were scored.

    ``decided``: by all protocols of the item; the choice that a protocol takes is in brackets.  ``gold``: the right
    choices, which have a star.
    """
    choices = sorted({each.choice for each in shown(prompts[0])})
    head = ("choice", {choice: f"{choice} *" if choice in gold else f"{choice}" for choice in choices})
    numbers = [*_sizes(prompts[0]), *(row for asked in prompts for row in _rows(asked, decided, len(prompts) > 1))]
    rows = [head, *_texts(prompts[0]), *numbers]
    label = min(LABEL, max(len(safe(name)) for name, _ in rows))
    least = max(len(cell) for _, cells in numbers for cell in cells.values())
    room = width - INDENT - label
    step = max(1, room // (least + GAP))
    parts = [choices[start : start + step] for start in range(0, len(choices), step)]
    most = max(least, room // max(map(len, parts)) - GAP)
    return Group(*(_part(rows, part, label, most) for part in parts))


def shown(asked: AskedPrompt) -> list[ScoredContinuation]:
    """The continuations that are the choices' own: not generated, and not after a null context."""
    return [each for each in asked.scored if each.null is None and each.choice >= 0]


def texts(asked: AskedPrompt) -> tuple[tuple[int, int, str, str], ...]:
    """What was scored of each choice: choice, part, text and size."""
    return tuple((each.choice, each.part, each.continuation or "", _size(each)) for each in shown(asked))


def _part(rows: Sequence[tuple[str, Cells]], choices: Sequence[int], label: int, most: int) -> Padding:
    """``label``, ``most``: columns of the terminal for names, on eight lines at most, and for a choice's cut text."""
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(overflow="fold", width=label)
    for _ in choices:
        table.add_column(justify="right", no_wrap=True, overflow="ellipsis", max_width=most)
    for name, cells in rows:
        table.add_row(short(name, 8 * LABEL), *(cells.get(choice, "") for choice in choices))
    return Padding(table, (0, 0, 0, INDENT), expand=False)


def _texts(asked: AskedPrompt) -> list[tuple[str, Cells]]:
    """What was scored."""
    return [
        (f"text{part}", {each.choice: visible_line((each.continuation or "-")[:LONGEST]) for each in own})
        for part, own in _parts(asked)
    ]


def _sizes(asked: AskedPrompt) -> list[tuple[str, Cells]]:
    """How long it is."""
    return [
        (f"tokens/bytes/characters{part}", {each.choice: _size(each) for each in own}) for part, own in _parts(asked)
    ]


def _rows(asked: AskedPrompt, decided: Sequence[ItemDecision], named: bool) -> list[tuple[str, Cells]]:
    """What was observed, and the scores of each protocol: what is the same, choice included, in one row.

    ``named``: whether rows begin with the protocol's name.
    """
    chosen: dict[tuple[tuple[str, bool], ...], list[str]] = {}
    numbers: list[tuple[str, list[float | None]]] = []
    bounds: dict[str, list[bool]] = {}
    for part, own in _parts(asked):
        observed = {"S": [each.total for each in own], "observed": [each.value for each in own]}
        bounds[f"S{part}"] = [each.at_most for each in own]
        numbers += [(name + part, each) for name, each in observed.items() if any(value is not None for value in each)]
    for each in decided:
        if each.protocol in asked.protocols and each.scores is not None:
            same = [name for name, values in numbers if _close(values, each.scores)]
            numbers = [(name, values) for name, values in numbers if name not in same]
            cells = map(_number, each.scores, each.at_most)
            row = tuple((cell, place == each.prediction) for place, cell in enumerate(cells))
            chosen[row] = [*chosen.get(row, []), *same, _name(each, asked)]
    some = {row: names for row, names in chosen.items() if any(cell != "-" for cell, _ in row)}
    chosen = some or chosen  # scores that have no number here say nothing beside those that have
    choices = sorted({each.choice for each in shown(asked)})
    rows = [
        (name, dict(zip(choices, map(_number, values, bounds.get(name, [False] * len(values))), strict=False)))
        for name, values in numbers
    ]
    rows += [
        ("=".join(names), {place: f"[{cell}]" if taken else cell for place, (cell, taken) in enumerate(row)})
        for row, names in chosen.items()
    ]
    return [(f"{asked.protocols[0]}: {name}" if named else name, cells) for name, cells in rows]


def _close(observed: Sequence[float | None], scores: Sequence[float]) -> bool:
    """Whether scores are what was observed, but for rounding to float32."""
    return len(observed) == len(scores) and all(
        one is not None and math.isclose(one, other, rel_tol=1e-6) for one, other in zip(observed, scores, strict=True)
    )


def _parts(asked: AskedPrompt) -> list[tuple[str, list[ScoredContinuation]]]:
    """The continuations of each part, choice by choice, and what tells the parts apart."""
    parts: dict[int, list[ScoredContinuation]] = {}
    for each in sorted(shown(asked), key=lambda each: (each.part, each.choice)):
        parts.setdefault(each.part, []).append(each)
    several = len(parts) > 1
    return [(f", part {part}" if several else "", own) for part, own in list(parts.items())[:PARTS]]


def _name(decided: ItemDecision, asked: AskedPrompt) -> str:
    """What a row calls the score: what tells the protocol from the others of the prompt, or the score's own name."""
    if len(asked.protocols) > 1:
        return end(decided.protocol, asked.protocols)
    return decided.score if decided.calibration == "none" else f"{decided.score}, {decided.calibration}"


def _size(scored: ScoredContinuation) -> str:
    text = scored.continuation
    tokens: int | str | None = scored.token_count if scored.logged else len(scored.tokens)
    tokens = "?" if tokens is None else tokens
    if text is None:
        return f"{tokens}/?/?"
    return f"{tokens}/{len(text.encode(errors='surrogatepass'))}/{len(text)}"


def _number(number: float | None, at_most: bool) -> str:
    if number is None or math.isnan(number):
        return "-"
    return ("≤ " if at_most else "") + (f"{number:.4f}" if abs(number) < LARGE else f"{number:.2f}")
