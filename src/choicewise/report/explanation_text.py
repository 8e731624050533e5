"""An explanation as lines of text; the prompt unwrapped, with its white space visible."""

import math
from collections.abc import Iterator, Sequence
from textwrap import wrap

from choicewise.protocols.readings import READINGS
from choicewise.report.visible_text import safe, visible, visible_line
from choicewise.results.explanation import AskedPrompt, Explanation, ItemDecision, ScoredContinuation

RULE = "─" * 78


def explanation_lines(explanation: Explanation) -> Iterator[str]:
    """The item, every prompt with what was observed after it, and the decisions."""
    subject, model = safe(explanation.subject) or "-", safe(explanation.model)
    yield f"item {safe(explanation.item)} of subject {subject}, as {model} was asked"
    yield from visible(explanation.question).split("\n")
    for index, choice in enumerate(explanation.choices):
        yield f"  {'*' if index in explanation.gold else ' '} {index}  {safe(choice)}"
    yield "  * is right"
    for asked in explanation.asked:
        yield from ("", *_asked(asked))
    yield ""
    yield from _decisions(explanation)


def _asked(asked: AskedPrompt) -> Iterator[str]:
    yield from wrap(f"prompt of {', '.join(asked.protocols)}", 78, subsequent_indent="  ")
    if asked.missing is not None:
        yield f"not asked: {safe(asked.missing)}"
    about = {
        f"reading {asked.reading}, boundary {asked.boundary}": True,
        f"{asked.shots} shots": asked.shots is not None,
        f"{asked.shots_dropped} more dropped to fit": asked.shots_dropped,
        f"{asked.tokens_dropped} tokens cut off": asked.tokens_dropped,
        "rescored in float32": asked.rescored,
        f"unused: {', '.join(map(safe, asked.unused))}": asked.unused,
    }
    yield ", ".join(words for words, true in about.items() if true)
    if asked.context is not None:
        yield from (RULE, *visible(asked.context).split("\n"), RULE)
    context: str | None = None
    for scored, *nulls in asked.beside:
        if scored.context is not None and scored.context != context:
            chained = "chains" in READINGS[asked.reading].takes
            own = "after the chain of the same part" if chained else "with a prompt of its own"
            yield from (own, RULE, *visible(scored.context).split("\n"), RULE)
            context = scored.context
        alike = [each for each in nulls if _same_tokens(each, scored)]
        yield from _scored(scored)
        for number, each in enumerate(alike, start=1):
            yield from (f"after the null context {quoted(each.null or '')} instead, null {number}:", *_scored(each))
        yield from _tokens(scored, alike)
        for each in nulls:
            if each not in alike:
                yield from (f"after the null context {quoted(each.null or '')} instead:", *_scored(each))
                yield from _tokens(each, [])


def _same_tokens(one: ScoredContinuation, other: ScoredContinuation) -> bool:
    ids, others = ([(token.id, token.size) for token in each.tokens] for each in (one, other))
    return bool(ids) and ids == others


def _scored(scored: ScoredContinuation) -> Iterator[str]:
    name = "generated" if scored.generated is not None or scored.choice < 0 else f"choice {scored.choice}"
    name += f" part {scored.part}" if scored.part else ""
    given = scored.continuation if scored.generated is None else scored.generated
    text = given or ""
    flags = {
        "a token straddles the end of the context": scored.merged,
        "the tokens are not those of the whole text encoded at once": scored.noncanonical,
        "the tokens do not spell their text": scored.lossy,
        f"{scored.unknown} unknown tokens": scored.unknown,
        f"{scored.bos} BOS tokens": scored.bos > 1,
        f"{scored.tokens_dropped} tokens of the context cut off": scored.tokens_dropped,
        f"missing: {safe(scored.missing or '')}": scored.missing,
        "no more than an upper bound is known: the server lists only the likeliest next tokens": scored.at_most,
    }
    tokens = _count(len(scored.tokens), "token")
    if scored.logged:
        tokens = "tokens unknown" if scored.token_count is None else _count(scored.token_count, "token")
    size = f"{tokens}, {_count(len(text.encode(errors='surrogatepass')), 'byte')}, {_count(len(text), 'character')}"
    total = "" if scored.total is None else f", S {'≤' if scored.at_most else '='} {scored.total:.4f} nats"
    after = "" if scored.logged else f" after {_count(scored.context_tokens, 'token')}"
    said = f"{name}: the log has no text of it, {tokens}" if given is None else f"{name} {quoted(text)}: {size}{after}"
    yield f"{said}{total}"
    for what, nats in (("subtracted for what comes before", scored.before), ("added for what follows", scored.after)):
        if nats is not None:
            yield f"  {nats:.4f} nats {what}"
    if scored.value is not None:
        yield f"  observed: {scored.value:.4f}"
    yield from (f"  ! {flag}" for flag, true in flags.items() if true)


def _tokens(scored: ScoredContinuation, nulls: Sequence[ScoredContinuation]) -> Iterator[str]:
    """A line per token: its log-probability, and that after each of the ``nulls``, which have the same tokens."""
    if scored.tokens:
        heads = "".join(f"  {f'null {number}':>10}" for number in range(1, len(nulls) + 1))
        yield f"  {'log P':>10}{heads}  {'rank':>6}  {'id':>7}  {'bytes':>5}  token"
    for place, token in enumerate(scored.tokens):
        cells = [f"{'≤ ' * side.at_most}{side.tokens[place].logprob:.4f}" for side in (scored, *nulls)]
        numbers = "".join(f"  {cell:>10}" for cell in cells)
        rank = "?" if token.rank < 0 else str(token.rank)
        yield f"{numbers}  {rank:>6}  {token.id:>7}  {token.size:>5}  {quoted(token.text)}"


def _decisions(explanation: Explanation) -> Iterator[str]:
    yield "decisions: the score of each choice, the predicted one in brackets"
    width = max((len(decided.protocol) for decided in explanation.decided), default=0)
    for decided in explanation.decided:
        yield f"{decided.protocol:<{width}}  {_verdict(decided)}"
        if decided.scores is not None:
            cells = [
                "-" if math.isnan(score) else f"{'≤ ' if bound else ''}{score:.4f}"
                for score, bound in zip(decided.scores, decided.at_most, strict=True)
            ]
            if decided.prediction >= 0:
                cells[decided.prediction] = f"[{cells[decided.prediction]}]"
            score = decided.score if decided.calibration == "none" else f"{decided.score}, {decided.calibration}"
            yield from wrap(f"{score}: {'  '.join(cells)}", 78, initial_indent="  ", subsequent_indent="    ")


def _verdict(decided: ItemDecision) -> str:
    if math.isnan(decided.credit):
        return f"missing: {safe(decided.missing)}" if decided.missing else "missing"
    credit = {1.0: "right", 0.0: "wrong"}.get(decided.credit, f"credit {decided.credit:.3f}")
    predicted = "none" if decided.prediction < 0 else str(decided.prediction)
    verdict = f"predicts {predicted}, {credit}"
    if decided.tied:
        return f"{verdict}, exact tie"
    if decided.near_tie:
        return f"{verdict}, margin {decided.margin:.2g} is within the numeric noise"
    return verdict if math.isnan(decided.margin) else f"{verdict}, margin {decided.margin:.4f}"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def quoted(text: str) -> str:
    """``text`` on one line in quotes, its white space visible."""
    return f'"{visible_line(text)}"'
