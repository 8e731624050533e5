"""An explanation as lines of text; the prompt unwrapped, with its white space to be seen."""

from __future__ import annotations

import math
from collections.abc import Iterator
from textwrap import wrap

from choicewise.protocols.readings import READINGS
from choicewise.report.visible_text import safe, visible
from choicewise.results.explanation import Asked, Decided, Explanation, Scored

RULE = "─" * 78


def explanation_lines(found: Explanation) -> Iterator[str]:
    """The item, every prompt with what was seen after it, and the decisions."""
    yield f"item {safe(found.item)} of subject {safe(found.subject) or '-'}, as {safe(found.model)} was asked"
    yield from visible(found.question).split("\n")
    for index, choice in enumerate(found.choices):
        yield f"  {'*' if index in found.gold else ' '} {index}  {safe(choice)}"
    yield "  * is right"
    for asked in found.asked:
        yield ""
        yield from _asked(asked)
    yield ""
    yield from _decisions(found)


def _asked(asked: Asked) -> Iterator[str]:
    yield from wrap(f"prompt of {', '.join(asked.protocols)}", 78, subsequent_indent="  ")
    if asked.missing is not None:
        yield f"not asked: {safe(asked.missing)}"
    told = [f"reading {asked.reading}", f"boundary {asked.boundary}"]
    if asked.shots is not None:
        told.append(f"{asked.shots} shots")
    if asked.shots_dropped:
        told.append(f"{asked.shots_dropped} more dropped to fit")
    if asked.tokens_dropped:
        told.append(f"{asked.tokens_dropped} tokens cut off")
    if asked.settled:
        told.append("settled in float32")
    yield ", ".join(told)
    if asked.context is not None:
        yield RULE
        yield from visible(asked.context).split("\n")
        yield RULE
    null: str | None = None
    context: str | None = None
    for scored in asked.scored:
        if scored.context is not None and scored.context != context:
            chained = "chains" in READINGS[asked.reading].takes
            own = "behind the chain of the same part" if chained else "with a prompt of its own"
            yield from (own, RULE, *visible(scored.context).split("\n"), RULE)
            context = scored.context
        if scored.null != null:
            yield f"after the null context {_quoted(scored.null or '')} instead"
            null = scored.null
        yield from _scored(scored)


def _scored(scored: Scored) -> Iterator[str]:
    name = "generated" if scored.generated is not None or scored.choice < 0 else f"choice {scored.choice}"
    name += f" part {scored.part}" if scored.part else ""
    text = scored.continuation if scored.generated is None else scored.generated
    flags = [
        *(["a token straddles the end of the context"] if scored.merged else []),
        *(["the tokens are not those of the text encoded whole"] if scored.noncanonical else []),
        *(["the tokens do not spell their text"] if scored.lossy else []),
        *([f"{scored.unknown} unknown tokens"] if scored.unknown else []),
        *([f"{scored.bos} BOS tokens"] if scored.bos > 1 else []),
        *([f"{scored.tokens_dropped} tokens of the context cut off"] if scored.tokens_dropped else []),
        *([f"missing: {safe(scored.missing)}"] if scored.missing else []),
    ]
    size = f"{len(scored.tokens)} tokens, {len(text.encode(errors='surrogatepass'))} bytes, {len(text)} characters"
    total = "" if scored.total is None else f", S = {scored.total:.4f} nats"
    yield f"{name} {_quoted(text)}: {size} after {scored.context_tokens}{total}"
    for what, nats in (("taken away for what stands before", scored.before), ("added for what follows", scored.after)):
        if nats is not None:
            yield f"  {nats:.4f} nats {what}"
    if scored.value is not None:
        yield f"  seen: {scored.value:.4f}"
    for flag in flags:
        yield f"  ! {flag}"
    if scored.tokens:
        yield f"  {'log P':>10}  {'rank':>6}  {'id':>7}  {'bytes':>5}  token"
    for token in scored.tokens:
        yield f"  {token.logprob:>10.4f}  {token.rank:>6}  {token.id:>7}  {token.size:>5}  {_quoted(token.text)}"


def _decisions(found: Explanation) -> Iterator[str]:
    yield "decisions: the score of each choice, the predicted one in brackets"
    width = max((len(each.protocol) for each in found.decided), default=0)
    for each in found.decided:
        yield f"{each.protocol:<{width}}  {_verdict(each)}"
        if each.scores is not None:
            cells = [f"{score:.4f}" if not math.isnan(score) else "-" for score in each.scores]
            marked = [f"[{cell}]" if index == each.prediction else cell for index, cell in enumerate(cells)]
            yield from wrap(f"{each.score}: {'  '.join(marked)}", 78, initial_indent="  ", subsequent_indent="    ")


def _verdict(each: Decided) -> str:
    if math.isnan(each.credit):
        return "missing"
    verdict = {1.0: "right", 0.0: "wrong"}.get(each.credit, f"credit {each.credit:.3f}")
    predicted = "none" if each.prediction < 0 else str(each.prediction)
    told = f"predicts {predicted}, {verdict}"
    if each.tied:
        return f"{told}, exact tie"
    if each.near_tie:
        return f"{told}, margin {each.margin:.2g} is within the numeric noise"
    return told if math.isnan(each.margin) else f"{told}, margin {each.margin:.4f}"


def _quoted(text: str) -> str:
    """One line in quotation marks, spaces at its edges to be seen."""
    return f'"{visible(text)}"'.replace("⏎\n", "⏎")
