"""Write one item for a terminal: its prompts, what was observed after them, and what the protocols
decide.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
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

_QUESTION_LINES = 8
"""Lines for the question."""

_PROMPT_LINES = 16
"""Lines for the texts of all prompts together."""

_FEWEST_LINES = 3
"""Lines that a beginning, a count of what is hidden, and an end need."""

_LABEL = 32
"""Columns of the terminal that the name of a row takes at most."""

_INDENT = 2
"""Columns of the terminal before a table."""

_GAP = 2
"""Columns of the terminal between two columns of a table."""

_LARGE = 99.99995
"""Nats from which on two decimals are enough."""

_LONGEST = 1000
"""Characters of a text that are looked at: more of them than a line can show."""

_PARTS = 2
"""Parts of what is asked about a choice that are shown; all of them are with the tokens."""

_WIDTH = 78
"""Columns of what :func:`explanation_lines` wraps."""

_RULE = "─" * _WIDTH


@dataclass(frozen=True)
class _Row:
    """A row of a table of choices: its name, and a cell for each choice that has one."""

    name: str
    cells: dict[int, str]


@dataclass(frozen=True)
class _Numbers:
    """Numbers of the choices in their order, and which of them are upper bounds."""

    name: str
    values: Sequence[float | None]
    at_most: Sequence[bool]


def explanation_parts(
    explanation: Explanation, width: int | None = None, kind: ModelKind | None = None
) -> list[RenderableType]:
    """Return the item with what the protocols decide, then every prompt with its choices.

    ``width``: of the terminal. ``kind``: of the model that answered.
    """
    width = width or console().width
    blocks: dict[object, list[ExplainedRequest]] = {}
    for request in explanation.asked:
        # Prompts share a table if the same texts were scored after them, and each has one protocol.
        key: object = texts(request)
        if len(request.protocols) > 1 or not choice_continuations(request):
            key = request.protocols
        blocks.setdefault(key, []).append(request)
    lines = max(1, _PROMPT_LINES // max(1, len(explanation.asked)))
    prompts = []
    for requests in blocks.values():
        prompts.append(_block(requests, explanation, lines, width, kind))
    return [Group(*map(Text, _item(explanation, width))), Group(*chain.from_iterable(prompts))]


def choice_continuations(request: ExplainedRequest) -> list[ScoredContinuation]:
    """Return the continuations of choices that are neither generated nor scored after a null
    context.
    """
    return [scored for scored in request.scored if scored.null is None and scored.choice >= 0]


def texts(request: ExplainedRequest) -> tuple[tuple[int, int, str, str], ...]:
    """Return choice, part, text and size of every continuation of a choice."""
    sizes = []
    for scored in choice_continuations(request):
        sizes.append((scored.choice, scored.part, scored.continuation or "", _size(scored)))
    return tuple(sizes)


def explanation_lines(explanation: Explanation, kind: ModelKind | None = None) -> Iterator[str]:
    """Yield the item, every prompt with what was observed after it, and the decisions.

    ``kind``: of the model that answered.
    """
    subject = safe(explanation.subject) or "-"
    yield f"item {safe(explanation.item)} of subject {subject}, for {safe(explanation.model)}"
    yield from visible(explanation.question).split("\n")
    yield from _choice_lines(explanation)
    yield "  * is right"
    for request in explanation.asked:
        yield ""
        yield from _request_lines(request, kind)
    yield ""
    yield from _decisions(explanation)


def _choice_lines(explanation: Explanation) -> Iterator[str]:
    for index, choice in enumerate(explanation.choices):
        mark = "*" if index in explanation.gold else " "
        yield f"  {mark} {index}  {safe(choice)}"


def quoted(text: str) -> str:
    """Return ``text`` on one line in quotes, its white space visible."""
    return f'"{visible_line(text)}"'


def decision_lines(decisions: Sequence[ItemDecision]) -> Iterator[str]:
    """Yield a line for every choice, the one that most protocols decide for first, then what is
    undecided.
    """
    groups: dict[tuple[int, str], list[str]] = {}
    tied = []
    near_tied = []
    for decision in decisions:
        prediction = -1 if math.isnan(decision.credit) else decision.prediction
        key = (prediction, _decision_verdict(decision))
        groups.setdefault(key, []).append(decision.protocol)
        if decision.tied:
            tied.append(decision.protocol)
        elif decision.near_tie:
            near_tied.append(decision.protocol)
    every = [decision.protocol for decision in decisions]
    for (prediction, verdict), names in sorted(groups.items(), key=lambda group: -len(group[1])):
        choose = "choose" if len(names) > 1 else "chooses"
        choice = str(prediction) if prediction >= 0 else "nothing"
        protocols = f"{len(names)} of {counted(len(every), 'protocol')}"
        yield f"{protocols} {choose} {choice} ({verdict}): {_name_list(names, every)}"
    if tied:
        yield f"exact ties: {_name_list(tied, every)}"
    if near_tied:
        yield f"within the numeric noise: {_name_list(near_tied, every)}"


def together(names: Sequence[str]) -> str:
    """Return protocols in a few words: the beginning of their names, or the first, and how many
    they are.
    """
    if len(names) == 1:
        return short(names[0], NAME)
    stems = _by_stem(names)
    if len(stems) == 1:
        return f"{short(_stem(names[0]), NAME)} ({len(names)} protocols)"
    return f"{short(names[0], NAME)} and {counted(len(names) - 1, 'other')}"


def end(name: str, names: Sequence[str]) -> str:
    """Return what follows the common beginning of ``names``, among which ``name`` is.

    All of it if there is none.
    """
    if len(names) > 1 and len(_by_stem(names)) == 1:
        return name[len(_stem(name)) + 1 :]
    return name


def folded(text: str, lines: int, width: int) -> list[str]:
    """Return the first line and the last ones of ``text``, at most ``lines`` of at most ``width``
    characters.

    With fewer than three lines return its end on one line, where ⏎ stands for every end of a line.
    """
    text_lines = visible(text).split("\n")
    if lines < _FEWEST_LINES:
        line = visible_line(text)
        if len(text_lines) > 1:
            return [shortened(line, width, len(line) - width + 1)]
        return [cut(line, width)]
    if len(text_lines) <= lines:
        return [cut(line, width) for line in text_lines]
    tail = text_lines[len(text_lines) - (lines - 2) :]
    hidden = text_lines[1 : len(text_lines) - len(tail)]
    mark = f"… {len(hidden):,} lines, {sum(map(len, hidden)):,} characters …"
    return [cut(line, width) for line in (text_lines[0], mark, *tail)]


def cut(line: str, width: int) -> str:
    """Return ``line`` without its middle if it is longer than ``width``; what is hidden is counted."""
    if len(line) <= width:
        return line
    mark = f" … {len(line) - width:,} characters … "
    room = max(0, width - len(mark))
    behind = room // 2
    return f"{line[: room - behind]}{mark}{line[len(line) - behind :]}"[:width]


def size(text: str) -> str:
    """Return how long a text is, in words."""
    lines = text.count("\n") + 1
    if lines > 1:
        return counted(lines, "line")
    return counted(len(text), "character")


def _item(explanation: Explanation, width: int) -> Iterator[str]:
    subject = safe(explanation.subject) or "-"
    model = safe(explanation.model)
    head = f"item {safe(explanation.item)} ({subject}), for {model}; * is right"
    yield cut(head, 2 * width)
    yield from folded(explanation.question, _QUESTION_LINES, width)
    for line in _choice_lines(explanation):
        yield cut(line, width)
    yield from decision_lines(explanation.decided)


def _block(
    requests: Sequence[ExplainedRequest],
    explanation: Explanation,
    lines: int,
    width: int,
    kind: ModelKind | None,
) -> Iterator[RenderableType]:
    """Yield prompts after which the same texts were scored, with one table."""
    texts_of_requests = []
    for request in requests:
        text = _prompt_text(request)
        texts_of_requests.append([] if text is None else folded(text, lines, width - _INDENT))
    for index, request in enumerate(requests):
        yield Text(_head(request), style="bold")
        if request.missing is not None:
            yield Text(f"  missing: {short(request.missing, REASON)}")
        # A text that the next prompt has as well is shown with the last of them.
        following = texts_of_requests[index + 1 : index + 2]
        if following != [texts_of_requests[index]]:
            yield from _indented(texts_of_requests[index])
        for warning in _warnings(request):
            yield Text(f"  ! {warning}")
        if request.exchange is not None and kind is not None:
            yield from _indented(kind.exchange_lines(request.exchange))
        generated = [scored for scored in request.scored if scored.generated is not None]
        if generated:
            others = f" and {len(generated) - 1} more" if len(generated) > 1 else ""
            line = f"  generated {quoted(generated[0].generated or '')}"
            yield Text(cut(line, width - len(others)) + others)
    if choice_continuations(requests[0]):
        yield _choice_table(requests, explanation, width)


def _indented(lines: Iterable[str]) -> Iterator[Text]:
    for line in lines:
        yield Text(f"  {line}")


def _prompt_text(request: ExplainedRequest) -> str | None:
    """Return the text of the prompt, or that of the first choice if choices have their own."""
    for scored in request.scored:
        if scored.context is not None:
            return scored.context
    return request.context


def _head(request: ExplainedRequest) -> str:
    facts = [request.reading, request.boundary]
    facts += [short(note, REASON) for note in request.notes]
    text = _prompt_text(request)
    if text is not None and text == request.context:
        facts.append(size(text))
    elif text is not None:
        facts.append(f"{size(text)} (first of several prompts)")
    return f"{together(request.protocols)}: {', '.join(facts)}"


def _warnings(request: ExplainedRequest) -> Iterator[str]:
    """Yield the warnings about the continuations, those of as many continuations on one line."""
    counts: Counter[str] = Counter()
    for scored in request.scored:
        warnings = {
            "a token straddles the prompt's end": scored.merged,
            "unusual tokenization": scored.noncanonical,
            "tokens do not spell the text": scored.lossy,
            "unknown tokens": scored.unknown,
            "several BOS tokens": scored.bos > 1,
            "context cut": scored.tokens_dropped,
            "an upper bound": scored.at_most,
            f"missing: {short(scored.missing or '', REASON)}": scored.missing,
        }
        for warning, is_raised in warnings.items():
            if is_raised:
                counts[warning] += 1
    names_by_count: dict[int, list[str]] = {}
    for warning, count in counts.items():
        names_by_count.setdefault(count, []).append(warning)
    for count, names in names_by_count.items():
        yield f"{count} of {len(request.scored)}: {', '.join(names)}"


def _choice_table(
    requests: Sequence[ExplainedRequest], explanation: Explanation, width: int
) -> Group:
    """Draw a column per choice for prompts after which the same texts were scored.

    In parts if it is too wide.
    """
    choices = sorted({scored.choice for scored in choice_continuations(requests[0])})
    head = {}
    for choice in choices:
        head[choice] = f"{choice} *" if choice in explanation.gold else str(choice)
    scored_texts = []
    numbers = []
    for part, continuations in _parts(requests[0]):
        text_cells = {}
        size_cells = {}
        for scored in continuations:
            text_cells[scored.choice] = visible_line((scored.continuation or "-")[:_LONGEST])
            size_cells[scored.choice] = _size(scored)
        scored_texts.append(_Row(f"text{part}", text_cells))
        numbers.append(_Row(f"tokens/bytes/characters{part}", size_cells))
    for request in requests:
        prefix = f"{request.protocols[0]}: " if len(requests) > 1 else ""
        for row in _number_rows(request, explanation.decided):
            numbers.append(_Row(prefix + row.name, row.cells))
    rows = [_Row("choice", head), *scored_texts, *numbers]
    label = min(_LABEL, max(len(safe(row.name)) for row in rows))
    # Numbers stand whole; texts have the room that numbers and names leave.
    widest = 0
    for row in numbers:
        widest = max(widest, *map(len, row.cells.values()))
    room = width - _INDENT - label
    step = max(1, room // (widest + _GAP))
    most = max(widest, room // min(step, len(choices)) - _GAP)
    parts = []
    for start in range(0, len(choices), step):
        parts.append(_table_part(rows, choices[start : start + step], label, most))
    return Group(*parts)


def _table_part(rows: Sequence[_Row], choices: Sequence[int], label: int, most: int) -> Padding:
    """Draw some choices.

    ``label``, ``most``: columns of the terminal for names and for the text of a choice.
    """
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(overflow="fold", width=label)
    for _ in choices:
        table.add_column(justify="right", no_wrap=True, overflow="ellipsis", max_width=most)
    for row in rows:
        cells = [row.cells.get(choice, "") for choice in choices]
        # A name takes eight lines at most.
        table.add_row(short(row.name, 8 * _LABEL), *cells)
    return Padding(table, (0, 0, 0, _INDENT), expand=False)


def _number_rows(request: ExplainedRequest, decisions: Sequence[ItemDecision]) -> list[_Row]:
    """Return what was observed, then the scores of each protocol.

    Rows with the same cells are one row.
    """
    observed = _observed_numbers(request)
    names_of_cells: dict[tuple[str, ...], list[str]] = {}
    for decision in decisions:
        if decision.protocol not in request.protocols or decision.scores is None:
            continue
        names = []
        others = []
        for numbers in observed:
            if _is_same(numbers.values, decision.scores):
                names.append(numbers.name)
            else:
                others.append(numbers)
        observed = others
        cells = list(map(_number, decision.scores, decision.at_most))
        if decision.prediction >= 0:
            cells[decision.prediction] = f"[{cells[decision.prediction]}]"
        # Of several protocols, or else of their only score.
        name = _score_name(decision)
        if len(request.protocols) > 1:
            name = end(decision.protocol, request.protocols)
        names.append(name)
        names_of_cells.setdefault(tuple(cells), []).extend(names)
    # Scores without any number say nothing beside those that have some.
    numbered = {}
    for key, names in names_of_cells.items():
        if set(key) != {"-"}:
            numbered[key] = names
    choices = sorted({scored.choice for scored in choice_continuations(request)})
    rows = []
    for numbers in observed:
        texts_of_numbers = map(_number, numbers.values, numbers.at_most)
        rows.append(_Row(numbers.name, dict(zip(choices, texts_of_numbers, strict=False))))
    for key, names in (numbered or names_of_cells).items():
        rows.append(_Row("=".join(names), dict(enumerate(key))))
    return rows


def _observed_numbers(request: ExplainedRequest) -> list[_Numbers]:
    """Return the sums of log-probabilities of each part, and what was observed instead of them."""
    observed = []
    for part, continuations in _parts(request):
        totals = [scored.total for scored in continuations]
        values = [scored.value for scored in continuations]
        at_most = [scored.at_most for scored in continuations]
        if any(total is not None for total in totals):
            observed.append(_Numbers(f"S{part}", totals, at_most))
        if any(value is not None for value in values):
            observed.append(_Numbers(f"observed{part}", values, [False] * len(values)))
    return observed


def _is_same(observed: Sequence[float | None], scores: Sequence[float]) -> bool:
    """Tell if scores are what was observed, but for rounding to float32."""
    if len(observed) != len(scores):
        return False
    for number, score in zip(observed, scores, strict=True):
        if number is None or not math.isclose(number, score, rel_tol=1e-6):
            return False
    return True


def _parts(request: ExplainedRequest) -> list[tuple[str, list[ScoredContinuation]]]:
    """Return the first parts with their continuations, choice by choice, and a suffix that names
    the part.
    """
    parts: dict[int, list[ScoredContinuation]] = {}
    for scored in sorted(
        choice_continuations(request), key=lambda scored: (scored.part, scored.choice)
    ):
        parts.setdefault(scored.part, []).append(scored)
    if len(parts) == 1:
        return [("", continuations) for continuations in parts.values()]
    named = [(f", part {part}", continuations) for part, continuations in parts.items()]
    return named[:_PARTS]


def _score_name(decision: ItemDecision) -> str:
    if decision.calibration == "none":
        return decision.score
    return f"{decision.score}, {decision.calibration}"


def _size(scored: ScoredContinuation) -> str:
    """Return how many tokens, bytes and characters a continuation has, with ? for what a log does
    not say.
    """
    count = scored.token_count if scored.logged else len(scored.tokens)
    tokens = "?" if count is None else str(count)
    text = scored.continuation
    if text is None:
        return f"{tokens}/?/?"
    return f"{tokens}/{_byte_count(text)}/{len(text)}"


def _byte_count(text: str) -> int:
    return len(text.encode(errors="surrogatepass"))


def _number(number: float | None, at_most: bool) -> str:
    if number is None or math.isnan(number):
        return "-"
    bound = "≤ " if at_most else ""
    if abs(number) < _LARGE:
        return f"{bound}{number:.4f}"
    return f"{bound}{number:.2f}"


def _request_lines(request: ExplainedRequest, kind: ModelKind | None) -> Iterator[str]:
    yield from wrap(f"prompt of {', '.join(request.protocols)}", _WIDTH, subsequent_indent="  ")
    if request.missing is not None:
        yield f"not asked: {safe(request.missing)}"
    facts = [f"reading {request.reading}", f"boundary {request.boundary}"]
    yield ", ".join([*facts, *map(safe, request.notes)])
    if request.context is not None:
        yield from _ruled(request.context)
    if request.exchange is not None and kind is not None:
        yield from kind.exchange_lines(request.exchange)
    reading = READINGS[request.reading]
    title = "with its own prompt"
    if reading.along:
        title = "without a thought; each further part has more of it"
    elif "chains" in reading.takes:
        title = "after the chain of the same part"
    context: str | None = None
    for scored, *nulls in request.beside:
        if scored.context is not None and scored.context != context:
            yield title
            yield from _ruled(scored.context)
            context = scored.context
        yield from _continuation_lines(scored, nulls)


def _ruled(text: str) -> Iterator[str]:
    yield _RULE
    yield from visible(text).split("\n")
    yield _RULE


def _continuation_lines(
    scored: ScoredContinuation, nulls: Sequence[ScoredContinuation]
) -> Iterator[str]:
    """Yield a continuation with its tokens, and what it is after null contexts.

    Null contexts after which it has the same tokens are columns of its table of tokens.
    """
    tokens = _token_ids(scored)
    same = [null for null in nulls if tokens and _token_ids(null) == tokens]
    yield from _scored_lines(scored)
    for number, null in enumerate(same, start=1):
        yield f"after the null context {quoted(null.null or '')} instead, null {number}:"
        yield from _scored_lines(null)
    yield from _token_lines(scored, same)
    for null in nulls:
        if null not in same:
            yield f"after the null context {quoted(null.null or '')} instead:"
            yield from _scored_lines(null)
            yield from _token_lines(null, [])


def _token_ids(scored: ScoredContinuation) -> list[tuple[int, int]]:
    return [(token.id, token.size) for token in scored.tokens]


def _scored_lines(scored: ScoredContinuation) -> Iterator[str]:
    name = f"choice {scored.choice}"
    if scored.generated is not None or scored.choice < 0:
        name = "generated"
    if scored.part:
        name += f" part {scored.part}"
    tokens = counted(len(scored.tokens), "token")
    after = f" after {counted(scored.context_tokens, 'token')}"
    if scored.logged:
        after = ""
        tokens = "tokens unknown"
        if scored.token_count is not None:
            tokens = counted(scored.token_count, "token")
    total = ""
    if scored.total is not None:
        sign = "≤" if scored.at_most else "="
        total = f", S {sign} {scored.total:.4f} nats"
    text = scored.continuation if scored.generated is None else scored.generated
    if text is None:
        yield f"{name}: the log has no text, {tokens}{total}"
    else:
        sizes = f"{counted(_byte_count(text), 'byte')}, {counted(len(text), 'character')}"
        yield f"{name} {quoted(text)}: {tokens}, {sizes}{after}{total}"
    if scored.before is not None:
        yield f"  {scored.before:.4f} nats subtracted for the text before"
    if scored.after is not None:
        yield f"  {scored.after:.4f} nats added for the text after"
    if scored.value is not None:
        yield f"  observed: {scored.value:.4f}"
    for warning in scored.warnings:
        yield f"  ! {safe(warning)}"


def _token_lines(scored: ScoredContinuation, nulls: Sequence[ScoredContinuation]) -> Iterator[str]:
    """Yield a line per token: its log-probability, and that after each of ``nulls``, which have the
    same tokens.
    """
    if not scored.tokens:
        return
    heads = [f"  {'log P':>10}"]
    for number in range(1, len(nulls) + 1):
        heads.append(f"  {f'null {number}':>10}")
    yield f"{''.join(heads)}  {'rank':>6}  {'id':>7}  {'bytes':>5}  token"
    for index, token in enumerate(scored.tokens):
        line = ""
        for side in (scored, *nulls):
            cell = _exact(side.tokens[index].logprob, side.at_most)
            line += f"  {cell:>10}"
        rank = "?" if token.rank < 0 else str(token.rank)
        yield f"{line}  {rank:>6}  {token.id:>7}  {token.size:>5}  {quoted(token.text)}"


def _decisions(explanation: Explanation) -> Iterator[str]:
    yield "decisions: the score of each choice; brackets mark the prediction"
    width = max((len(decision.protocol) for decision in explanation.decided), default=0)
    for decision in explanation.decided:
        yield f"{decision.protocol:<{width}}  {_item_verdict(decision)}"
        if decision.scores is None:
            continue
        cells = list(map(_exact, decision.scores, decision.at_most))
        if decision.prediction >= 0:
            cells[decision.prediction] = f"[{cells[decision.prediction]}]"
        line = f"{_score_name(decision)}: {'  '.join(cells)}"
        yield from wrap(line, _WIDTH, initial_indent="  ", subsequent_indent="    ")


def _exact(score: float, at_most: bool) -> str:
    if math.isnan(score):
        return "-"
    bound = "≤ " if at_most else ""
    return f"{bound}{score:.4f}"


def _item_verdict(decision: ItemDecision) -> str:
    if math.isnan(decision.credit):
        return f"missing: {safe(decision.missing)}" if decision.missing else "missing"
    prediction = "none" if decision.prediction < 0 else str(decision.prediction)
    verdict = f"predicts {prediction}, {_credit(decision)}"
    if decision.tied:
        return f"{verdict}, exact tie"
    if decision.near_tie:
        return f"{verdict}, margin {decision.margin:.2g} is within the numeric noise"
    if math.isnan(decision.margin):
        return verdict
    return f"{verdict}, margin {decision.margin:.4f}"


def _name_list(names: Sequence[str], every: Sequence[str]) -> str:
    """List names.

    Those with a common beginning together, all of them counted, some of them by their ends.
    """
    all_names = _by_stem(every)
    parts = []
    for stem, chosen in _by_stem(names).items():
        others = [name for name in all_names[stem] if name not in chosen]
        if len(chosen) == 1:
            parts.append(short(chosen[0], NAME))
        elif not others:
            parts.append(f"{short(stem, NAME)} (all {len(chosen)})")
        elif len(others) < len(chosen):
            parts.append(f"{short(stem, NAME)} (all but {_ends(others, stem)})")
        else:
            parts.append(f"{short(stem, NAME)} ({_ends(chosen, stem)})")
    return ", ".join(parts)


def _ends(names: Sequence[str], stem: str) -> str:
    return " ".join(short(name[len(stem) + 1 :], NAME) for name in names)


def _by_stem(names: Iterable[str]) -> dict[str, list[str]]:
    stems: dict[str, list[str]] = {}
    for name in names:
        stems.setdefault(_stem(name), []).append(name)
    return stems


def _stem(name: str) -> str:
    """Return the name without the score that is written after a colon."""
    return name.rpartition(":")[0] or name


def _decision_verdict(decision: ItemDecision) -> str:
    if not math.isnan(decision.credit):
        return _credit(decision)
    # Other reasons are shown with the prompt.
    if decision.missing in UNLISTED:
        return f"missing: {short(decision.missing or '', REASON)}"
    return "missing"


def _credit(decision: ItemDecision) -> str:
    if decision.credit == 1:
        return "right"
    if decision.credit == 0:
        return "wrong"
    return f"credit {decision.credit:.3f}"
