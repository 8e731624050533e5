"""Choice probabilities as tables."""

from rich.console import Group

from choicewise.report.table import table, titled
from choicewise.results.distribution import Distribution
from choicewise.scoring.statistics.fit import Fit


def distribution_table(shown: Distribution) -> Group:
    """A row per condition and link; probabilities in the order of the choices."""
    title = f"{shown.model} on {shown.dataset}: {shown.protocol}, softmax at temperature {shown.temperature:g}"
    rows = table("group", "n", "link")
    rows.add_column("probability of each choice", overflow="fold")
    for condition in shown.conditions:
        links = {"softmax": condition.softmax, "winner": condition.winner, "people": condition.human}
        for link, shares in links.items():
            if shares:
                name, n = (condition.name, str(condition.n)) if link == "softmax" else ("", "")
                rows.add_row(name, n, link, " ".join(f"{share:.3f}" for share in shares))
    notes = []
    if shown.softmax_fit and shown.winner_fit:
        notes.append(f"fit to people: softmax {_fit(shown.softmax_fit)}; winner {_fit(shown.winner_fit)}")
    return titled(title, rows, *notes)


def _fit(fit: Fit) -> str:
    return f"r = {fit.correlation:.3f}, log-likelihood {fit.log_likelihood:.2f} nats over {fit.people:g} choices"
