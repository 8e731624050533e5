"""Numbers of typed questions for a terminal: under boards' rules, and a server's beside our own computation."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.console import Group
from rich.text import Text

from choicewise.extensions.endpoints.decisions.boards import BOARDS, NUMBERS, BoardNumbers, BoardReport
from choicewise.extensions.endpoints.decisions.minus_own import ServedMinusOwn
from choicewise.report.tables import nats, table, titled
from choicewise.util.text import counted, interval, percent, plain, safe


def board_tables(folder: str, reports: Sequence[BoardReport]) -> Iterator[Group]:
    """The run in ``folder`` under each board's rules, a table per layout, kind and number of options.

    In brackets the number of an even answer; below, one line a board, the rules that move its numbers.
    """
    for report in reports:
        shown = table("board", "n", "accuracy", "divergence", "brier", "ece")
        for each in report.boards:
            shown.add_row(safe(each.board), f"{each.n:,}", *(_cell(each, name) for name in NUMBERS))
        yield titled(f"{folder}, {report.layout}: {_about(report)}", shown, *_notes(report))
    yield Group(*(Text(line) for line in _LEGEND))


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


def _about(report: BoardReport) -> str:
    if report.kind is None:
        return "all kinds together, as these boards pool them"
    return f"{report.kind} of {counted(report.options or 0, 'option')}"


def _cell(numbers: BoardNumbers, name: str) -> str:
    return f"{plain(getattr(numbers, name))} ({plain(numbers.even[name])})"


def _notes(report: BoardReport) -> Iterator[str]:
    first, *others = report.boards
    if first.missing:
        yield f"{counted(first.missing, 'question')} without an answer"
    by_reasons: dict[tuple[str, ...], list[str]] = {}
    for each in others:
        by_reasons.setdefault(each.reasons, []).append(each.board)
    for reasons, boards in by_reasons.items():
        yield f"{', '.join(boards)}: {'; '.join(reasons) or 'other rules, which move nothing here'}"


_UNSAID = "; ".join(f"{board.name} ({board.unsaid})" for board in BOARDS if board.unsaid)
_LEGEND = (
    f"below a table: the rules by which a board's numbers are not those of {BOARDS[0].name}",
    "divergence, in nats: KL from the soft answer, or minus log of the label; in brackets: what an even answer gets",
    f"not said by its source: {_UNSAID}",
)
