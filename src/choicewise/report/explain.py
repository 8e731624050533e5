"""What `explain` prints."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from textwrap import wrap

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from choicewise.ports import ModelKind
from choicewise.protocols.readings import READINGS
from choicewise.report.tables import console
from choicewise.results.explain import (
    ExplainedRequest,
    Explanation,
    ItemDecision,
    ScoredContinuation,
)
from choicewise.results.measurement import UNLISTED
from choicewise.util.text import (
    NAME,
    REASON,
    counted,
    safe,
    short,
    shortened,
    visible,
    visible_line,
)


def explanation_parts(
    explanation: Explanation, width: int | None = None, kind: ModelKind | None = None
) -> list[RenderableType]:
    """The item with what the protocols decide, then every prompt with its choices.

    ``width``: of the terminal.  ``kind``: of the model that answered.
    """
    width = width or console().width
    blocks: dict[object, list[ExplainedRequest]] = {}
    for asked in explanation.asked:
        alone = len(asked.protocols) > 1 or not shown(asked)
        blocks.setdefault(asked.protocols if alone else texts(asked), []).append(asked)
    lines = max(1, _PROMPTS // max(1, len(explanation.asked)))
    prompts = (_block(asked, explanation, lines, width, kind) for asked in blocks.values())
    return [Group(*map(Text, _item(explanation, width))), Group(*chain.from_iterable(prompts))]


def shown(asked: ExplainedRequest) -> list[ScoredContinuation]:
    """The continuations that are the choices' own: not generated, and not after a null context."""
    return [each for each in asked.scored if each.null is None and each.choice >= 0]


def texts(asked: ExplainedRequest) -> tuple[tuple[int, int, str, str], ...]:
    """What was scored of each choice: choice, part, text and size."""
    return tuple(
        (each.choice, each.part, each.continuation or "", _size(each)) for each in shown(asked)
    )


def explanation_lines(explanation: Explanation, kind: ModelKind | None = None) -> Iterator[str]:
    """The item, every prompt with what was observed after it, and the decisions; ``kind``: of the model."""
    subject, model = safe(explanation.subject) or "-", safe(explanation.model)
    yield f"item {safe(explanation.item)} of subject {subject}, as {model} was asked"
    yield from visible(explanation.question).split("\n")
    for index, choice in enumerate(explanation.choices):
        yield f"  {'*' if index in explanation.gold else ' '} {index}  {safe(choice)}"
    yield "  * is right"
    for asked in explanation.asked:
        yield from ("", *_asked(asked, kind))
    yield ""
    yield from _decisions(explanation)


def quoted(text: str) -> str:
    """``text`` on one line in quotes, its white space visible."""
    return f'"{visible_line(text)}"'


def decision_lines(decided: Sequence[ItemDecision]) -> Iterator[str]:
    """A line for every choice that protocols decide for, the one with most of them first, and what is undecided."""
    alike: dict[tuple[int, str], list[ItemDecision]] = {}
    for each in decided:
        verdict = _decision_verdict(each)
        alike.setdefault((-1 if math.isnan(each.credit) else each.prediction, verdict), []).append(
            each
        )
    names = [each.protocol for each in decided]
    for (prediction, verdict), own in sorted(alike.items(), key=lambda group: -len(group[1])):
        choose = "choose" if len(own) > 1 else "chooses"
        what = (
            f"{choose} {prediction} ({verdict})"
            if prediction >= 0
            else f"{choose} nothing ({verdict})"
        )
        protocols = counted(len(decided), "protocol")
        yield f"{len(own)} of {protocols} {what}: {', '.join(_together([each.protocol for each in own], names))}"
    tied = [each.protocol for each in decided if each.tied]
    near = [each.protocol for each in decided if each.near_tie and not each.tied]
    for words, undecided in (("exact ties", tied), ("within the numeric noise", near)):
        if undecided:
            yield f"{words}: {', '.join(_together(undecided, names))}"


def together(names: Sequence[str]) -> str:
    """Protocols in a few words: what their names have in common, or the first, and how many they are."""
    if len(names) == 1:
        return short(names[0], NAME)
    stems = _by_stem(names)
    if len(stems) == 1:
        return f"{short(next(iter(stems)), NAME)} ({len(names)} protocols)"
    return f"{short(names[0], NAME)} and {counted(len(names) - 1, 'other')}"


def end(name: str, names: Sequence[str]) -> str:
    """What tells ``name`` from ``names``, among which it is: what follows their common beginning, or all of it."""
    stem = _stem(name)
    return name[len(stem) + 1 :] if len(names) > 1 and len(_by_stem(names)) == 1 else name


def folded(text: str, lines: int, width: int) -> list[str]:
    """``text`` in at most so many lines of at most ``width`` characters: its first line and its last ones.

    With fewer than :data:`_FEWEST` lines its end on one line, where ⏎ stands for every end of a line.
    """
    shown = visible(text).split("\n")
    if lines < _FEWEST:
        line = visible_line(text)
        return [
            shortened(line, width, len(line) - width + 1) if len(shown) > 1 else cut(line, width)
        ]
    if len(shown) <= lines:
        return [cut(line, width) for line in shown]
    tail = shown[len(shown) - (lines - 2) :]
    hidden = shown[1 : len(shown) - len(tail)]
    mark = f"… {len(hidden):,} lines, {sum(map(len, hidden)):,} characters …"
    return [cut(line, width) for line in (shown[0], mark, *tail)]


def cut(line: str, width: int) -> str:
    """``line``, without its middle where it is longer than ``width``; what is hidden is counted."""
    if len(line) <= width:
        return line
    mark = f" … {len(line) - width:,} characters … "
    room = max(0, width - len(mark))
    return f"{line[: room - room // 2]}{mark}{line[len(line) - room // 2 :]}"[:width]


def size(text: str) -> str:
    """How long a text is, in words."""
    lines = text.count("\n") + 1
    return counted(lines, "line") if lines > 1 else counted(len(text), "character")


_QUESTION, _PROMPTS = 8, 16  # lines for the question, and for the texts of all prompts together


def _item(explanation: Explanation, width: int) -> Iterator[str]:
    subject, model = safe(explanation.subject) or "-", safe(explanation.model)
    yield cut(
        f"item {safe(explanation.item)} ({subject}), as {model} was asked; * is right", 2 * width
    )
    yield from folded(explanation.question, _QUESTION, width)
    for index, choice in enumerate(explanation.choices):
        yield cut(f"  {'*' if index in explanation.gold else ' '} {index}  {safe(choice)}", width)
    yield from decision_lines(explanation.decided)


def _block(
    prompts: list[ExplainedRequest],
    explanation: Explanation,
    lines: int,
    width: int,
    kind: ModelKind | None,
) -> Iterator[RenderableType]:
    """Prompts after which the same was scored, with one table."""
    ends = [
        [] if (text := _text(asked)) is None else folded(text, lines, width - 2)
        for asked in prompts
    ]
    for place, asked in enumerate(prompts):
        yield Text(_about(asked), style="bold")
        if asked.missing is not None:
            yield Text(f"  not asked: {short(asked.missing, REASON)}")
        if place + 1 == len(prompts) or ends[place] != ends[place + 1]:
            yield from (Text(f"  {line}") for line in ends[place])
        yield from (Text(f"  ! {warning}") for warning in _warnings(asked))
        if asked.exchange is not None and kind is not None:
            yield from (Text(f"  {line}") for line in kind.exchange_lines(asked.exchange))
        generated = [quoted(each.generated) for each in asked.scored if each.generated is not None]
        if generated:
            more = f" and {len(generated) - 1} more" if len(generated) > 1 else ""
            yield Text(cut(f"  generated {generated[0]}", width - len(more)) + more)
    if shown(prompts[0]):
        yield _choice_table(prompts, explanation.decided, explanation.gold, width)


def _text(asked: ExplainedRequest) -> str | None:
    """The text of the prompt, or that of the first choice where choices have their own."""
    return next((each.context for each in asked.scored if each.context is not None), asked.context)


def _about(asked: ExplainedRequest) -> str:
    facts, text = (
        [asked.reading, asked.boundary, *(short(note, REASON) for note in asked.notes)],
        _text(asked),
    )
    if text is not None:
        facts.append(
            size(text) if text == asked.context else f"{size(text)} (the first prompt of several)"
        )
    return f"{together(asked.protocols)}: {', '.join(facts)}"


def _warnings(asked: ExplainedRequest) -> Iterator[str]:
    """Warnings about the continuations, each with how many of them."""
    counts: Counter[str] = Counter()
    for each in asked.scored:
        warnings = {
            "a token straddles the context's end": each.merged,
            "not the text's own tokens": each.noncanonical,
            "tokens do not spell the text": each.lossy,
            "unknown tokens": each.unknown,
            "several BOS tokens": each.bos > 1,
            "context cut": each.tokens_dropped,
            "an upper bound": each.at_most,
            f"missing: {short(each.missing or '', REASON)}": each.missing,
        }
        counts.update(warning for warning, true in warnings.items() if true)
    for number in dict.fromkeys(counts.values()):
        own = ", ".join(warning for warning in counts if counts[warning] == number)
        yield f"{number} of {len(asked.scored)}: {own}"


_LABEL, _INDENT, _GAP = 32, 2, 2
"""Columns of the terminal for the name of a row at most, before a table, and between two columns."""

_LARGE = 99.99995  # nats from which on two decimals are enough
_LONGEST = 1000  # characters of a text that are looked at: more of them than a line can show
_PARTS = 2  # so many parts of what is asked about a choice are shown; all of them with the tokens

_Cells = Mapping[int, str]  # a cell per choice


def _choice_table(
    prompts: Sequence[ExplainedRequest],
    decided: Sequence[ItemDecision],
    gold: Sequence[int],
    width: int,
) -> Group:
    """A column per choice, in parts where they are too wide, for prompts after which the same texts were scored."""
    choices = sorted({each.choice for each in shown(prompts[0])})
    head = (
        "choice",
        {choice: f"{choice} *" if choice in gold else f"{choice}" for choice in choices},
    )
    numbers = [
        *_sizes(prompts[0]),
        *(row for asked in prompts for row in _rows(asked, decided, len(prompts) > 1)),
    ]
    rows = [head, *_texts(prompts[0]), *numbers]
    label = min(_LABEL, max(len(safe(name)) for name, _ in rows))
    least = max(len(cell) for _, cells in numbers for cell in cells.values())
    room = width - _INDENT - label
    step = max(1, room // (least + _GAP))
    parts = [choices[start : start + step] for start in range(0, len(choices), step)]
    most = max(least, room // max(map(len, parts)) - _GAP)
    return Group(*(_part(rows, part, label, most) for part in parts))


def _part(
    rows: Sequence[tuple[str, _Cells]], choices: Sequence[int], label: int, most: int
) -> Padding:
    """``label``, ``most``: columns of the terminal for names, on eight lines at most, and for a choice's cut text."""
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(overflow="fold", width=label)
    for _ in choices:
        table.add_column(justify="right", no_wrap=True, overflow="ellipsis", max_width=most)
    for name, cells in rows:
        table.add_row(short(name, 8 * _LABEL), *(cells.get(choice, "") for choice in choices))
    return Padding(table, (0, 0, 0, _INDENT), expand=False)


def _texts(asked: ExplainedRequest) -> list[tuple[str, _Cells]]:
    """What was scored."""
    return [
        (
            f"text{part}",
            {each.choice: visible_line((each.continuation or "-")[:_LONGEST]) for each in own},
        )
        for part, own in _parts(asked)
    ]


def _sizes(asked: ExplainedRequest) -> list[tuple[str, _Cells]]:
    """How long it is."""
    return [
        (f"tokens/bytes/characters{part}", {each.choice: _size(each) for each in own})
        for part, own in _parts(asked)
    ]


def _rows(
    asked: ExplainedRequest, decided: Sequence[ItemDecision], named: bool
) -> list[tuple[str, _Cells]]:
    """What was observed, and the scores of each protocol: what is the same, choice included, in one row."""
    chosen: dict[tuple[tuple[str, bool], ...], list[str]] = {}
    numbers: list[tuple[str, list[float | None]]] = []
    bounds: dict[str, list[bool]] = {}
    for part, own in _parts(asked):
        observed = {"S": [each.total for each in own], "observed": [each.value for each in own]}
        bounds[f"S{part}"] = [each.at_most for each in own]
        numbers += [
            (name + part, each)
            for name, each in observed.items()
            if any(value is not None for value in each)
        ]
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
        (
            name,
            dict(
                zip(
                    choices,
                    map(_number, values, bounds.get(name, [False] * len(values))),
                    strict=False,
                )
            ),
        )
        for name, values in numbers
    ]
    rows += [
        (
            "=".join(names),
            {place: f"[{cell}]" if taken else cell for place, (cell, taken) in enumerate(row)},
        )
        for row, names in chosen.items()
    ]
    return [(f"{asked.protocols[0]}: {name}" if named else name, cells) for name, cells in rows]


def _close(observed: Sequence[float | None], scores: Sequence[float]) -> bool:
    """Whether scores are what was observed, but for rounding to float32."""
    return len(observed) == len(scores) and all(
        one is not None and math.isclose(one, other, rel_tol=1e-6)
        for one, other in zip(observed, scores, strict=True)
    )


def _parts(asked: ExplainedRequest) -> list[tuple[str, list[ScoredContinuation]]]:
    """The continuations of each part, choice by choice, and what tells the parts apart."""
    parts: dict[int, list[ScoredContinuation]] = {}
    for each in sorted(shown(asked), key=lambda each: (each.part, each.choice)):
        parts.setdefault(each.part, []).append(each)
    several = len(parts) > 1
    return [
        (f", part {part}" if several else "", own) for part, own in list(parts.items())[:_PARTS]
    ]


def _name(decided: ItemDecision, asked: ExplainedRequest) -> str:
    """What a row calls the score: what tells the protocol from the others of the prompt, or the score's own name."""
    if len(asked.protocols) > 1:
        return end(decided.protocol, asked.protocols)
    return _score(decided)


def _score(decided: ItemDecision) -> str:
    return (
        decided.score
        if decided.calibration == "none"
        else f"{decided.score}, {decided.calibration}"
    )


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
    return ("≤ " if at_most else "") + (
        f"{number:.4f}" if abs(number) < _LARGE else f"{number:.2f}"
    )


_RULE = "─" * 78


def _asked(asked: ExplainedRequest, kind: ModelKind | None) -> Iterator[str]:
    yield from wrap(f"prompt of {', '.join(asked.protocols)}", 78, subsequent_indent="  ")
    if asked.missing is not None:
        yield f"not asked: {safe(asked.missing)}"
    yield ", ".join(
        [f"reading {asked.reading}, boundary {asked.boundary}", *map(safe, asked.notes)]
    )
    if asked.context is not None:
        yield from (_RULE, *visible(asked.context).split("\n"), _RULE)
    if asked.exchange is not None and kind is not None:
        yield from kind.exchange_lines(asked.exchange)
    context: str | None = None
    for scored, *nulls in asked.beside:
        if scored.context is not None and scored.context != context:
            reading = READINGS[asked.reading]
            own = (
                "after the chain of the same part"
                if "chains" in reading.takes
                else "with a prompt of its own"
            )
            own = (
                "without a thought; every further part comes after more of it"
                if reading.along
                else own
            )
            yield from (own, _RULE, *visible(scored.context).split("\n"), _RULE)
            context = scored.context
        alike = [each for each in nulls if _same_tokens(each, scored)]
        yield from _scored(scored)
        for number, each in enumerate(alike, start=1):
            yield from (
                f"after the null context {quoted(each.null or '')} instead, null {number}:",
                *_scored(each),
            )
        yield from _tokens(scored, alike)
        for each in nulls:
            if each not in alike:
                yield from (
                    f"after the null context {quoted(each.null or '')} instead:",
                    *_scored(each),
                )
                yield from _tokens(each, [])


def _same_tokens(one: ScoredContinuation, other: ScoredContinuation) -> bool:
    ids, others = ([(token.id, token.size) for token in each.tokens] for each in (one, other))
    return bool(ids) and ids == others


def _scored(scored: ScoredContinuation) -> Iterator[str]:
    name = (
        "generated"
        if scored.generated is not None or scored.choice < 0
        else f"choice {scored.choice}"
    )
    name += f" part {scored.part}" if scored.part else ""
    given = scored.continuation if scored.generated is None else scored.generated
    text = given or ""
    tokens = counted(len(scored.tokens), "token")
    if scored.logged:
        tokens = (
            "tokens unknown" if scored.token_count is None else counted(scored.token_count, "token")
        )
    size = f"{tokens}, {counted(len(text.encode(errors='surrogatepass')), 'byte')}, {counted(len(text), 'character')}"
    total = (
        ""
        if scored.total is None
        else f", S {'≤' if scored.at_most else '='} {scored.total:.4f} nats"
    )
    after = "" if scored.logged else f" after {counted(scored.context_tokens, 'token')}"
    said = (
        f"{name}: the log has no text of it, {tokens}"
        if given is None
        else f"{name} {quoted(text)}: {size}{after}"
    )
    yield f"{said}{total}"
    for what, nats in (
        ("subtracted for what comes before", scored.before),
        ("added for what follows", scored.after),
    ):
        if nats is not None:
            yield f"  {nats:.4f} nats {what}"
    if scored.value is not None:
        yield f"  observed: {scored.value:.4f}"
    yield from (f"  ! {safe(warning)}" for warning in scored.warnings)


def _tokens(scored: ScoredContinuation, nulls: Sequence[ScoredContinuation]) -> Iterator[str]:
    """A line per token: its log-probability, and that after each of the ``nulls``, which have the same tokens."""
    if scored.tokens:
        heads = "".join(f"  {f'null {number}':>10}" for number in range(1, len(nulls) + 1))
        yield f"  {'log P':>10}{heads}  {'rank':>6}  {'id':>7}  {'bytes':>5}  token"
    for place, token in enumerate(scored.tokens):
        cells = [
            f"{'≤ ' * side.at_most}{side.tokens[place].logprob:.4f}" for side in (scored, *nulls)
        ]
        numbers = "".join(f"  {cell:>10}" for cell in cells)
        rank = "?" if token.rank < 0 else str(token.rank)
        yield f"{numbers}  {rank:>6}  {token.id:>7}  {token.size:>5}  {quoted(token.text)}"


def _decisions(explanation: Explanation) -> Iterator[str]:
    yield "decisions: the score of each choice, the predicted one in brackets"
    width = max((len(decided.protocol) for decided in explanation.decided), default=0)
    for decided in explanation.decided:
        yield f"{decided.protocol:<{width}}  {_item_verdict(decided)}"
        if decided.scores is not None:
            cells = list(map(_exact, decided.scores, decided.at_most))
            if decided.prediction >= 0:
                cells[decided.prediction] = f"[{cells[decided.prediction]}]"
            yield from wrap(
                f"{_score(decided)}: {'  '.join(cells)}",
                78,
                initial_indent="  ",
                subsequent_indent="    ",
            )


def _exact(score: float, at_most: bool) -> str:
    return "-" if math.isnan(score) else f"{'≤ ' if at_most else ''}{score:.4f}"


def _item_verdict(decided: ItemDecision) -> str:
    if math.isnan(decided.credit):
        return f"missing: {safe(decided.missing)}" if decided.missing else "missing"
    credit = _credit(decided)
    predicted = "none" if decided.prediction < 0 else str(decided.prediction)
    verdict = f"predicts {predicted}, {credit}"
    if decided.tied:
        return f"{verdict}, exact tie"
    if decided.near_tie:
        return f"{verdict}, margin {decided.margin:.2g} is within the numeric noise"
    return verdict if math.isnan(decided.margin) else f"{verdict}, margin {decided.margin:.4f}"


def _together(chosen: Sequence[str], every: Sequence[str]) -> Iterator[str]:
    """The names, those with a common beginning together: all of them counted, some of them by their ends."""
    for stem, own in _by_stem(chosen).items():
        others = [name for name in _by_stem(every)[stem] if name not in own]
        if len(own) == 1:
            yield short(own[0], NAME)
        elif not others:
            yield f"{short(stem, NAME)} (all {len(own)})"
        else:
            but = "all but " if len(others) < len(own) else ""
            ends = (short(name[len(stem) + 1 :], NAME) for name in (others if but else own))
            yield f"{short(stem, NAME)} ({but}{' '.join(ends)})"


def _by_stem(names: Iterable[str]) -> dict[str, list[str]]:
    stems: dict[str, list[str]] = {}
    for name in names:
        stems.setdefault(_stem(name), []).append(name)
    return stems


def _stem(name: str) -> str:
    """The name without the score that is written after a colon."""
    return name.rpartition(":")[0] or name


def _decision_verdict(decided: ItemDecision) -> str:
    if math.isnan(decided.credit):
        # other reasons stand at the prompt
        return (
            f"missing: {short(decided.missing, REASON)}"
            if decided.missing in UNLISTED
            else "missing"
        )
    return _credit(decided)


def _credit(decided: ItemDecision) -> str:
    return {1.0: "right", 0.0: "wrong"}.get(decided.credit, f"credit {decided.credit:.3f}")


_FEWEST = 3  # lines that a beginning, a count of what is hidden and an end need
