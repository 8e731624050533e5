"""What each axis changes, in tables: of axes, of changes of value, and of every pair of protocols."""

from choicewise.extensions.analyses.effects_report import effects_tables
from choicewise.results.ladder import Effect, Pair, Spread, ValueChange
from choicewise.results.outcomes import Axis
from choicewise.table import as_json, cell_texts
from tests.helpers.messages import Gist

SPREAD = Spread(mean=0.1, sd=0.05, low=0.05, high=0.15, pairs=2)
ABOUT = {"run": "folder", "model": "hash", "dataset": "quiz"}


def test_axes_changes_and_pairs_have_tables_of_their_own() -> None:
    pairs = (Pair("sum", "mean", 0.05, 4), Pair("other sum", "other mean", 0.15, 5))
    change = ValueChange((Axis("score", "sum", "token_mean"),), SPREAD, pairs)
    axes, changes, every = effects_tables([Effect("score", 0.1, SPREAD, (change,))], ABOUT)
    assert axes.title == Gist("hash on quiz: ... in points ... 4 to 5 items")
    assert cell_texts(axes) == [["score", "10.0", "+10.0", "5.0", "+5.0", "+15.0", "2"]]
    assert cell_texts(changes)[0][0] == "score sum → token_mean"
    (row,) = as_json(changes)["rows"]
    assert (row["left"], row["right"]) == (["sum"], ["token_mean"])
    assert [(row["start"], row["difference"], row["n"]) for row in as_json(every)["rows"]] == [
        ("sum", 0.05, 4),
        ("other sum", 0.15, 5),
    ]
    assert every.data
