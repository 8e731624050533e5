"""Tables of log-likelihoods as spreadsheets and data frames write them."""

from __future__ import annotations

from pathlib import Path

import pytest

from choicewise import import_log
from choicewise.errors import DataError
from choicewise.report.tables import console, legend, report_tables
from choicewise.results.run import Run

TABLE = "item,choice,loglikelihood,gold\n001,0,-1,0\n001,1,-2,0\n007,0,-2,1\n007,1,-1,1\n"


def imported(folder: Path, text: str) -> Run:
    (folder / "t.csv").write_text(text, encoding="utf-8", newline="")
    (run,) = import_log(folder / "t.csv", folder / "run")
    return run


def right(run: Run) -> list[tuple[str, list[int]]]:
    return [(each["item"], each["gold"]) for each in run.tables.items.to_pylist()]


@pytest.mark.parametrize(
    "text",
    [
        TABLE.replace(",", ";"),
        TABLE.replace("\n", "\r\n"),
        "\ufeff" + TABLE,
        TABLE.replace(",0\n", ",0.0\n").replace(",1\n", ",1.0\n"),
        TABLE.replace(",", " , "),
        TABLE.upper(),
    ],
    ids=["semicolons", "crlf", "bom", "floats", "spaces", "upper case"],
)
def test_spellings_of_one_table(text: str, tmp_path: Path) -> None:
    assert right(imported(tmp_path, text)) == [("001", [0]), ("007", [1])]


def test_choices_that_are_texts_with_a_space(tmp_path: Path) -> None:
    run = imported(tmp_path, "item,choice,loglikelihood,gold\nq, stone,-1, wall\nq, wall,-2, wall\n")
    assert right(run) == [("q", [1])]


def test_token_counts_that_are_floats_and_flags_that_are_words(tmp_path: Path) -> None:
    text = "item,choice,loglikelihood,gold,tokens,is_greedy\nq,0,-4,1,2.0,yes\nq,1,-3,1,1.0,no\nq,2,-9,1,,no\n"
    rows = {row["protocol"]: row for row in imported(tmp_path, text).report().to_pylist()}
    assert rows["log:sum"]["value"] == 1
    assert rows["log:token_mean"]["missing"] == 1
    assert rows["log:greedy"]["value"] == 0


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (TABLE.replace("\n", "\r"), "can't be read as a table"),
        ('item,choice,loglikelihood,gold,text\nq,0,-1,0,"abc\nq,1,-2,0,x\n', "line 2 or before is never closed"),
        (TABLE.replace(",", ";").replace("-1;", "-1,5;"), "'-1,5', which is no number"),
        ("item,choice,loglikelihood,gold\nq,0,-1,B\nq,1,-2,B\n", "name it as the column choice does"),
        (TABLE.replace("-1", "0.7"), "item '001' of a table, choice 0 has the loglikelihood 0.7"),
    ],
)
def test_what_is_refused(text: str, says: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=says):
        imported(tmp_path, text)


def test_what_bare_sums_say_nothing_about_is_one_line(tmp_path: Path) -> None:
    """Of eighteen protocols five have a number; the others have a row as JSON alone."""
    items = [f"q{n},{choice},{-choice - n},{n % 2}\n" for n in range(4) for choice in range(2)]
    run = imported(tmp_path, "item,choice,loglikelihood,gold\n" + "".join(items))
    rows = run.rows()
    (shown,) = report_tables(rows, 160)
    shown_on = console()
    with shown_on.capture() as printed:
        shown_on.print(shown)
    text = printed.get()
    assert len(rows) == 18
    assert [line.split()[0] for line in text.splitlines() if line.startswith("log:")] == [
        row.protocol for row in rows if row.n
    ]
    assert "no number under 13 protocols: log:token_mean, " in text
    assert legend(rows)[-2].startswith("missing under log:pmi: 4, such as q0: the log has no log-likelihoods without")
