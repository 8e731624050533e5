"""Why items are missing or skipped stands in the report: reason, count and an example."""

from __future__ import annotations

import json
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from choicewise import evaluate
from choicewise.data.open import open_dataset
from choicewise.models.fake import HashModel
from choicewise.report.tables import legend
from choicewise.results.evidence import MissingReason, Reasons, counted
from tests.helpers.commands import choicewise
from tests.helpers.mmlu_data import write_mmlu


def test_reasons_that_differ_in_numbers_are_one() -> None:
    told = counted(
        [
            ("too long: 900 tokens, 512 fit", "a"),
            ("too long: 1300 tokens, 512 fit", "b"),
            ("continuation ' x' leaves nothing to score", "c"),
            ("too long: 700 tokens, 512 fit", "d"),
            ('continuation "don\'t" leaves nothing to score', "e"),
            ("it can't be asked and doesn't end", "f"),
        ]
    )
    assert told == (
        MissingReason("too long: 700 to 1300 tokens, 512 fit", 3, "a"),
        MissingReason("continuation … leaves nothing to score", 2, "c"),
        MissingReason("it can't be asked and doesn't end", 1, "f"),
    )


def test_the_id_of_the_item_does_not_count() -> None:
    reasons = Reasons()
    one, other = (reasons.number(f"item {item} has 3 choices", item) for item in ("trees/test/3", "tides/test/8"))
    assert one == other
    assert reasons.text(one) == "item … has 3 choices"


@given(st.lists(st.text()))
def test_every_reason_is_counted_once(texts: list[str]) -> None:
    told = counted([(text, str(place)) for place, text in enumerate(texts)])
    assert sum(reason.count for reason in told) == len(texts)
    assert all(reason.count == 1 or reason.count <= len(texts) for reason in told)
    for text in set(texts):
        (alone,) = counted([(text, "x")])
        assert alone.reason == text


def test_missing_items_have_their_reason(tmp_path: Path) -> None:
    model = HashModel()
    data = write_mmlu(tmp_path / "data")
    model.window = 40
    run = evaluate(model=model, data=data, protocols=["mmlu/original"], out=tmp_path / "run")
    (row,) = run.rows()
    assert row.missing == 12
    assert sum(reason.count for reason in row.missing_reasons) == 12
    assert row.missing_reasons[0].reason.startswith("too long: ")
    assert row.missing_reasons[0].example in run.measurements["mmlu/original"].evidence.ids
    by_subject = run.rows("subjects")
    assert [sum(reason.count for reason in each.missing_reasons) for each in by_subject] == [6, 6]
    assert any(line.startswith("missing under mmlu/original: 12, such as ") for line in legend([row]))
    shown = json.loads(choicewise("report", str(run.folder), "--json").stdout)
    assert shown[0]["missing_reasons"][0]["count"] == row.missing_reasons[0].count
    assert set(shown[0]["missing_reasons"][0]) == {"reason", "count", "example"}


def test_skipped_rows_have_theirs(tmp_path: Path) -> None:
    folder = write_mmlu(tmp_path / "data", ("trees",))
    path = folder / "test" / "trees_test.csv"
    path.write_text(path.read_text().replace(",B\n", ",Z\n", 1).replace(",C\n", ",Q\n", 1))
    data = open_dataset(folder, on_bad_item="skip")
    run = evaluate(model="fake:hash", data=data, protocols=["mmlu/original"], out=tmp_path / "run", skip_bad_items=True)
    (row,) = run.rows()
    assert row.skipped == 2 == sum(reason.count for reason in row.skipped_reasons)
    assert "trees_test.csv, row " in row.skipped_reasons[0].example
    assert any(line.startswith("skipped: ") for line in legend([row]))


def test_a_generation_that_says_no_option(tmp_path: Path) -> None:
    data = write_mmlu(tmp_path / "data")
    run = evaluate(model="fake:hash", data=data, protocols=["options/quoted-mean-generate"], out=tmp_path / "run")
    (row,) = run.rows()
    assert row.missing > 0
    assert row.missing_reasons == (
        MissingReason("the generated text begins with no option", row.missing, row.missing_reasons[0].example),
    )
