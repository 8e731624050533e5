"""A decision endpoint's numbers beside our own computation, for a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.console import Group

from choicewise.extensions.endpoints.decisions.minus_own import ServedMinusOwn
from choicewise.report.tables import nats, table, titled
from choicewise.util.text import counted, interval, percent, safe


def served_tables(compared: Sequence[ServedMinusOwn]) -> Iterator[Group]:
    """Yield what each layout leaves of an endpoint's answers, a table per kind of question, and of the items listed.

    Layouts of one kind stand in one table, under the kind's noise.
    """
    for kind in dict.fromkeys(each.kind for each in compared):
        own = [each for each in compared if each.kind == kind]
        shown = table("own layout", "n", "flips", "mean |Δp|", "largest", "TV", "KL", "verdict")
        for each in own:
            flips = f"{each.flips:,}" + (f" ({each.open:,} open)" if each.open else "")
            numbers = each.mean, each.most, each.tv.value, each.kl.value
            shown.add_row(safe(each.own), f"{each.n:,}", flips, *map(_small, numbers), each.verdict)
        yield titled(f"{own[0].served} minus own computation", shown, *_noise(own[0]), *map(_intervals, own))
        yield from (_item_table(each) for each in own if each.items)


def _noise(each: ServedMinusOwn) -> Iterator[str]:
    rounding = "no rounding" if each.step is None else f"rounding to {each.step:g} ({each.step / 2:g})"
    twice = f"{counted(each.repeats.repeated, 'question')} sent twice ({_small(each.repeats.most)} at most)"
    noise = "noise of our computation not measured" if each.noise is None else f"noise {each.noise:.2g} nats"
    yield f"explained: {rounding}, {twice}, {noise}: |Δp| up to {_small(each.allowed)}"
    if not each.repeats.repeated:
        yield "no question was sent twice: what the endpoint itself changes is not known, and looks unexplained"
    if each.missing:
        yield f"{counted(each.missing, 'question')} without probabilities on one side"
    yield "KL(served ‖ own) in nats an item; open: flips within the rounding"


def _intervals(each: ServedMinusOwn) -> str:
    share = f"flips {percent(each.flips / each.n)} % [{interval(each.flips_low, each.flips_high)}]"
    return f"{each.own}: {share}, TV {nats(each.tv)}, KL {nats(each.kl)}"


def _item_table(each: ServedMinusOwn) -> Group:
    shown = table("item", "served", "own", "largest |Δp|")
    for item in each.items:
        shown.add_row(safe(item.item), str(item.served), str(item.own), _small(item.most))
    return titled(f"{each.served} minus {each.own}, by item", shown, "served, own: the place of the likeliest option")


def _small(number: float) -> str:
    return f"{number:.2g}"
