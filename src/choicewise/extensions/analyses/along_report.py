"""Write answers along thoughts as tables, by share of the thought and within budgets of tokens."""

from __future__ import annotations

from collections.abc import Iterator

from choicewise.extensions.analyses.along import AlongThought, along_thoughts
from choicewise.results.run import Run
from choicewise.table import KINDS, Column, Table, facts_of, rows_of
from choicewise.util.jsonio import JsonDict
from choicewise.util.text import counted, percent

ENDED = {"itself": "that the model ended", "limit": "closed at their limit"}
"""How thoughts ended, in words."""

_ANSWERS = (
    Column("accuracy", "share", heading="right %"),
    Column("accuracy_low", "share", heading="95 % interval"),
    Column("accuracy_high", "share", joined=" – "),
    Column(
        "probability",
        "share",
        heading="p %",
        meaning="mean probability of the right choice among the choices",
    ),
    Column("probability_low", "share", heading="95 % interval"),
    Column("probability_high", "share", joined=" – "),
    Column(
        "open", "share", heading="changes %", meaning="answers that still change after this place"
    ),
)

SHARES = (
    Column("share", "share", heading="after %"),
    Column("tokens", "tokens", meaning="the median after this share"),
    Column("spent", "tokens", data=True),
    *_ANSWERS,
)

BUDGETS = (
    Column("tokens", "tokens", heading="within tokens"),
    Column(
        "spent",
        "tokens",
        heading="tokens",
        meaning="the mean within this budget, each item at the last of its five places in it",
    ),
    *_ANSWERS,
)


def run_tables(run: Run) -> Iterator[Table]:
    """Yield the tables of each protocol of a run, or one without rows if none asks along thoughts."""
    facts = {"run": str(run.folder), "model": run.manifest.model.name}
    thoughts = along_thoughts(run)
    # A table without rows tells programs that the analysis ran, and people how to get one.
    if not thoughts:
        yield Table(
            name="along",
            title=f"{run.folder}: no protocol asks along thoughts; run one of letters with "
            "@chat=message,reading=along-thought,new_tokens=1024, on a model that thinks",
            facts=facts,
        )
    for along in thoughts:
        yield from along_tables(str(run.folder), along, facts)


def along_tables(subject: str, along: AlongThought, run_facts: JsonDict) -> Iterator[Table]:
    """Yield a protocol's answers by share, and within budgets of tokens if there are any.

    ``subject``: the beginning of the title. ``run_facts``: facts of the run, for programs.
    """
    title = f"{subject}: {counted(along.n, 'thought')} {ENDED[along.ended]}, {along.protocol}"
    yield Table(
        name="along",
        title=title,
        columns=SHARES,
        rows=rows_of(SHARES, along.points),
        notes=along_lines(along),
        facts={**run_facts, **facts_of(along, ("points", "budgets"))},
    )
    if along.budgets:
        yield Table(
            name="along-budgets",
            title=f"{title}, within budgets",
            columns=BUDGETS,
            rows=rows_of(BUDGETS, along.budgets),
            facts=run_facts,
        )


tokens = KINDS["tokens"]
"""Write a median or a mean of numbers of tokens."""


def along_lines(along: AlongThought) -> list[str]:
    """Return where answers settle, how many turn and how, and which items are not among these."""
    lines = []
    if along.n:
        after = tokens(along.tokens_after)
        lines.append(
            f"In the median the answer stays the same from {100 * along.settled_share:.0f} % of "
            f"the thought on; {after} of {tokens(along.thought_tokens)} tokens follow."
        )
        counts = [f"{100 * share:.0f} % {count:,}" for share, count in along.settled.items()]
        lines.append(f"Items by the share from which theirs stays: {', '.join(counts)}.")
        lines.append(_turns(along))
    count_by_end = {"itself": along.whole, "limit": along.closed}
    # The two are never in one table, as a closed thought was cut short.
    for ended, count in count_by_end.items():
        if count and ended != along.ended:
            lines.append(f"Not among these: {counted(count, 'thought')} {ENDED[ended]}.")
    for reason in along.missing:
        lines.append(
            f"Not among these: {counted(reason.count, 'item')} ({reason.example}): {reason.reason}"
        )
    return lines


def _turns(along: AlongThought) -> str:
    turns = along.turns
    kinds = {
        "to a right answer": turns.gained,
        "to a wrong one": turns.lost,
        "to another as right as before": turns.other,
        "and back": turns.back,
    }
    counts = [f"{count:,} {kind}" for kind, count in kinds.items() if count]
    line = f"{percent(turns.turned / along.n)} % of the answers turn"
    if not counts:
        return f"{line}."
    return f"{line}: {', '.join(counts)}."
