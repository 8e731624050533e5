"""Items that a report leaves out, missing, skipped or in a damaged block: each has its reason, and the rest is told."""

import json
from collections.abc import Callable
from pathlib import Path
from shutil import rmtree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from choicewise import evaluate, open_run
from choicewise.data.open import open_dataset
from choicewise.models.fake import HashModel
from choicewise.report.tables import legend
from choicewise.results.evidence import MissingReason, Reasons, count_reasons
from choicewise.results.explain import explain
from choicewise.results.run import Run
from choicewise.scoring.portion import LOST
from choicewise.store.tables import damaged_blocks
from tests.helpers.commands import choicewise
from tests.helpers.damage import flip, truncate
from tests.helpers.messages import Gist
from tests.helpers.mmlu_data import set_block_size, write_mmlu
from tests.helpers.study import Study

PMI = "mmlu/cloze:pmi-answer"


def test_reasons_that_differ_in_numbers_or_the_id_of_the_item_are_one() -> None:
    told = {
        **{
            item: f"too long: {tokens} tokens, 512 fit"
            for item, tokens in (("a", 900), ("b", 1300), ("d", 700))
        },
        **{
            "c": "continuation ' x' leaves nothing to score",
            "e": 'continuation "don\'t" leaves nothing to score',
        },
        "f": "it can't be asked and doesn't end",
    }
    assert count_reasons([(told[item], item) for item in sorted(told)]) == (
        MissingReason("too long: 700 to 1300 tokens, 512 fit", 3, "a"),
        MissingReason("continuation … leaves nothing to score", 2, "c"),
        MissingReason("it can't be asked and doesn't end", 1, "f"),
    )
    reasons = Reasons()
    one, other = (
        reasons.number(f"item {item} has 3 choices", item)
        for item in ("trees/test/3", "tides/test/8")
    )
    assert one == other
    assert reasons.text(one) == "item … has 3 choices"


@given(st.lists(st.text()))
def test_every_reason_is_counted_once(texts: list[str]) -> None:
    told = count_reasons([(text, str(place)) for place, text in enumerate(texts)])
    assert sum(reason.count for reason in told) == len(texts)
    assert all(reason.count == 1 or reason.count <= len(texts) for reason in told)
    for text in set(texts):
        (alone,) = count_reasons([(text, "x")])
        assert alone.reason == text


def test_missing_items_have_their_reason(study: Study, tmp_path: Path) -> None:
    model = HashModel()
    model.window = 40
    run = evaluate(
        model=model, data=study.data, protocols=["mmlu/original"], out=tmp_path / "short"
    )
    (row,) = run.rows()
    assert row.counts.missing == 12 == sum(reason.count for reason in row.missing_reasons)
    assert row.missing_reasons[0].reason.startswith("too long: ")
    assert row.missing_reasons[0].example in run.measurements["mmlu/original"].evidence.ids
    assert [
        sum(reason.count for reason in each.missing_reasons) for each in run.rows("subjects")
    ] == [6, 6]
    assert any(
        line.startswith("missing under mmlu/original: 12, such as ") for line in legend([row])
    )
    (shown,) = json.loads(choicewise("report", run.folder, "--json").stdout)
    assert shown["missing_reasons"][0]["count"] == row.missing_reasons[0].count
    assert set(shown["missing_reasons"][0]) == {"reason", "count", "example"}
    asked = {"data": study.data, "protocols": ["options/quoted-mean-generate"]}
    (row,) = evaluate(model="fake:hash", **asked, out=tmp_path / "generated").rows()
    assert row.counts.missing > 0
    (why,) = row.missing_reasons
    assert (why.reason, why.count) == (
        Gist("begin with an option"),
        row.counts.missing,
    )


def test_skipped_rows_have_theirs(tmp_path: Path) -> None:
    folder = write_mmlu(tmp_path / "data", ("trees",))
    path = folder / "test" / "trees_test.csv"
    path.write_text(path.read_text().replace(",B\n", ",Z\n", 1).replace(",C\n", ",Q\n", 1))
    data = open_dataset(folder, on_bad_item="skip")
    run = evaluate(
        model="fake:hash",
        data=data,
        protocols=["mmlu/original"],
        out=tmp_path / "run",
        skip_bad_items=True,
    )
    (row,) = run.rows()
    assert row.counts.skipped == 2 == sum(reason.count for reason in row.skipped_reasons)
    assert "trees_test.csv, row 0 (counted" in row.skipped_reasons[0].example
    assert "skipped (1 of 1)" in choicewise("report", run.folder).stdout
    paper = tmp_path / "paper.md"
    choicewise("export", run.folder, "--format", "markdown", "--out", paper, code=0)
    assert "without 2 rows" in paper.read_text()
    assert any(line.startswith("skipped: ") for line in legend([row]))


BLOCK = Path("blocks/00002")


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """A run in blocks of five items at most."""
    set_block_size(monkeypatch, 5)
    asked = {
        "data": write_mmlu(tmp_path / "data", questions=12),
        "protocols": ["mmlu/original", PMI],
    }
    return evaluate(model="fake:hash", **asked, out=tmp_path / "run")


@pytest.mark.parametrize(
    ("damage", "name", "reason"),
    [
        (rmtree, "", "is missing"),
        (truncate, "observations.parquet", "bytes instead of"),
        (flip, "spans.parquet", "its sha256 differs"),
    ],
)
def test_what_lies_beside_a_damaged_block_is_reported_and_explained(
    damage: Callable[[Path], None], name: str, reason: str, run: Run
) -> None:
    assert damaged_blocks(run.folder, run.manifest.blocks) == []
    assert {row.identity.selection for row in run.rows()} == {""}
    expected = explain(run, "trees/test/3")
    damage(run.folder / BLOCK / name)
    (told,) = damaged_blocks(run.folder, run.manifest.blocks)
    assert (told.block, told.path.parent) == (run.manifest.blocks[2], run.folder / BLOCK)
    assert reason in told.reason
    again = open_run(run.folder)
    with pytest.warns(
        UserWarning, match=rf"{told.path.name} .*items 9 to 12 of tides \(test\).*run the same"
    ):
        rows = again.rows()
    assert {row.identity.selection for row in rows} == {"incomplete: 20 of 24 items"}
    assert {row.counts.n + row.counts.missing for row in rows} == {20}
    assert "tides/test/11" not in again.measurements["mmlu/original"].evidence.ids
    assert explain(open_run(run.folder), "trees/test/3") == expected
    done = choicewise("report", run.folder, "--json", code=0)
    assert str(told.path) in done.stderr
    assert "run the same `choicewise run` command again" in done.stderr
    assert {row["selection"] for row in json.loads(done.stdout)} == {"incomplete: 20 of 24 items"}


def test_what_lay_in_a_lost_block_for_other_items_is_missing_with_the_reason(run: Run) -> None:
    """Texts after the null context are asked once, in the first block that has them."""
    ids = run.measurements["mmlu/original"].evidence.ids
    rmtree(run.folder / "blocks/00000")
    with pytest.warns(UserWarning, match="requests"):
        rows = {row.identity.protocol: row for row in open_run(run.folder).rows()}
    assert rows["mmlu/original"].counts.missing == 0
    (reason,) = rows[PMI].missing_reasons
    assert (reason.reason, reason.count) == (LOST, rows[PMI].counts.missing)
    assert reason.count > 0
    assert reason.example in ids[3:]


def test_a_run_whose_items_are_all_left_out_was_not_done_before(tmp_path: Path) -> None:
    """No item has the four choices that the protocol asks with."""
    data, out = tmp_path / "data.csv", tmp_path / "run"
    data.write_text("question,A,B,C,answer\nWhy?,a,b,c,A\nHow?,d,e,f,B\n", encoding="utf-8")
    line = ["run", "--model", "fake:hash", "--data", data, "--on-bad-item", "skip", "--out", out]
    line += ["--protocol", "mmlu/original@shots=0", "--shots", "error"]
    first, second = (choicewise(*line, code=0).stderr.splitlines()[0] for _ in range(2))
    assert first == Gist("fake:hash: 100 %, ... s")
    assert second == "fake:hash: 100 % done before"
