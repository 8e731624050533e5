"""Two protocols side by side under which two models change places, and the test that says it is not chance."""

from collections.abc import Sequence

from rich.console import Group

from choicewise.report.table import percent, rank_table
from choicewise.report.visible_text import short
from choicewise.report.words import NAME, count, probability
from choicewise.results.reversal import Contest, Reversal
from choicewise.results.row import Row


def reversal_table(reversal: Reversal, rows: Sequence[Row]) -> Group:
    """The two protocols in columns, every model in a row: percent and rank.  ``rows``: ranked, of all runs."""
    protocols = reversal.start.protocol, reversal.end.protocol
    values = {(row.model, row.protocol): (row.value, row.rank) for row in rows if row.subject == rows[0].subject}
    models = dict.fromkeys(model for model, _ in values)
    cells = {model: {name: values[model, name] for name in protocols if (model, name) in values} for model in models}
    return rank_table(f"{short(reversal.dataset, NAME)}: two published ways to ask, % and rank", cells)


def reversal_sentence(reversal: Reversal) -> str:
    """Which of the two is better under which protocol, by how much, and how sure that is."""
    start, end = reversal.start, reversal.end
    questions = count(start.n, "question") if start.n == end.n else f"{start.n:,} and {count(end.n, 'question')}"
    mcnemar = all(each.test.exact and not each.test.by_tie for each in (start, end))
    return (
        f"{short(reversal.left, NAME)} is better than {short(reversal.right, NAME)} under {_values(start)}, and worse "
        f"under {_values(end)}: {'McNemar' if mcnemar else 'paired sign-flip'} tests over {questions}, corrected for "
        f"all {count(reversal.tests, 'comparison')} of two models."
    )


def _values(contest: Contest) -> str:
    values = f"{percent(contest.left)} % against {percent(contest.right)} %"
    return f"{short(contest.protocol, NAME)}, {values} ({probability(contest.p)})"
