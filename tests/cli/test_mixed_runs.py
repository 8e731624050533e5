"""Runs under protocols of several kinds are read by every command as if each kind stood alone."""

import json
from pathlib import Path

import pytest

from tests.helpers.commands import choicewise

SCORES = "options/cloze:byte_mean"


def run(
    folder: Path, *protocols: str, model: str = "fake:hash", more: tuple[str, ...] = ()
) -> Path:
    """A run on four questions, two of them with two right answers."""
    rows = [
        {"question": f"Which is {n}?", "choices": [f"{n}{mark}" for mark in "dcba"], "answer": n}
        for n in range(4)
    ]
    (folder / "four.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    out = folder / f"run{len([*folder.iterdir()])}"
    asked = [word for name in protocols for word in ("--protocol", name)]
    choicewise(
        "run",
        "--model",
        model,
        "--data",
        folder / "four.jsonl",
        *asked,
        *more,
        "--out",
        out,
        code=0,
    )
    return out


@pytest.mark.costly("two runs by the command")
def test_a_protocol_that_both_have_is_compared_though_one_asked_typed_questions_too(
    tmp_path: Path,
) -> None:
    both = (
        run(tmp_path, "options/cloze", "decision/endpoint"),
        run(tmp_path, "options/cloze", model="fake:oracle"),
    )
    for pair in (both, both[::-1]):
        choicewise("compare", *pair, "--protocol", "options/cloze:sum", "--metric", "brier", code=0)
        assert "options/cloze:sum" in choicewise("compare", *pair, code=0).stdout


@pytest.mark.costly("a run by the command")
def test_bytes_as_weights_stand_beside_orders_of_options(tmp_path: Path) -> None:
    out = run(tmp_path, f"{SCORES}@metric=bpb,aggregation=bytes", "options/permuted-cyclic")
    found = json.loads(choicewise("report", out, "--json", code=0).stdout)
    assert {row["metric"] for row in found} == {"bpb", "acc"}
    assert found[-1]["diagnosis"]["permutation_sibling"]


@pytest.mark.costly("a run by the command")
def test_a_metric_of_other_scores_leaves_those_alone_that_have_a_metric_of_their_own(
    tmp_path: Path,
) -> None:
    out = run(tmp_path, "options/cloze:sum@metric=mc2-split", "options/cloze:char_mean")
    found = json.loads(choicewise("report", out, "--json", "--metric", "bpb", code=0).stdout)
    assert "bpb" in {row["metric"] for row in found}
