"""A run read portion by portion has the numbers that all of it at once has, whatever its blocks are."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from choicewise import Run, evaluate, open_run
from choicewise.models.fake import HashModel
from choicewise.models.model import Model
from choicewise.protocols.catalogue import resolve
from choicewise.results import tables as portion
from choicewise.results.evidence import DEFECTS, MASS, sensitivity_column
from choicewise.results.tables import SharedObservations, list_portions, places_of
from choicewise.scoring.combine import COMBINERS
from choicewise.scoring.portion import ObservedPortion
from tests.helpers.hash_models import Failing
from tests.helpers.mmlu_data import set_block_size, write_mmlu


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Several blocks a subject, and every block a portion of its own."""
    set_block_size(monkeypatch, 5)
    monkeypatch.setattr(portion, "MOST", 1)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_mmlu(tmp_path_factory.mktemp("data"), questions=12)


def run_of(data: Path, out: Path, *protocols: str, model: Model | None = None) -> Run:
    return evaluate(model=model or HashModel(), data=data, protocols=protocols, out=out)


def assert_as_at_once(run: Run) -> None:
    """The plain reference: every protocol on all tables of the run, laid out at once."""
    tables = replace(run.tables, items=run.evidence.items)
    for name, protocol in run.protocols.items():
        whole, measured = ObservedPortion(tables, protocol.prompt_digest), run.measurements[name]
        scores, decisions, *_ = COMBINERS[protocol.reading].decision(protocol, whole)
        evidence = measured.evidence
        assert evidence.items.tolist() == whole.items.tolist()
        for column in ("prediction", "credit", "tied", "margin"):
            np.testing.assert_array_equal(
                getattr(measured.decisions, column), getattr(decisions, column), name
            )
        np.testing.assert_equal(measured.scores, scores, name)
        for column in ("right", "lengths"):
            np.testing.assert_array_equal(
                getattr(evidence, column), getattr(whole, column), f"{name} {column}"
            )
        np.testing.assert_equal(evidence.column(DEFECTS), whole.defects)
        if measured.likelihoods:
            np.testing.assert_array_equal(evidence.column(MASS), whole.mass)
        if measured.likelihoods and run.noise:
            axes = (protocol.score, protocol.null, protocol.outside)
            sensitivity = evidence.column(sensitivity_column(*axes))
            np.testing.assert_array_equal(sensitivity, whole.sensitivity(*axes))
        assert set(whole.item_table["item"].filter(whole.no_number).to_pylist()) <= set(
            run.unanswered
        )


def test_every_family(data: Path, tmp_path: Path) -> None:
    run = run_of(data, tmp_path / "run", "mmlu", "options", "compat")
    assert len(list_portions(run.folder, run.manifest.blocks, places_of(run.evidence.items))) == 6
    assert_as_at_once(run)
    rows = [row.as_json() for row in run.rows()]
    portion.MOST = 10**9
    assert [row.as_json() for row in open_run(run.folder).rows()] == rows


@pytest.mark.parametrize("answers", [30, 500, 1200])
def test_going_on_in_other_blocks(
    answers: int, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "run"
    with pytest.raises(KeyboardInterrupt):
        run_of(data, folder, "mmlu", model=Failing(most=answers))
    assert_as_at_once(open_run(folder))
    set_block_size(monkeypatch, 3)
    run_of(data, folder, "mmlu")
    set_block_size(monkeypatch, 7)
    run = run_of(data, folder, "options/cloze")
    assert_as_at_once(run)
    whole = {
        row.identity.protocol: row.value
        for row in run_of(data, tmp_path / "whole", "mmlu", "options/cloze").rows()
    }
    assert {row.identity.protocol: row.value for row in run.rows()} == pytest.approx(
        whole, nan_ok=True
    )


def test_what_lies_elsewhere_is_no_more_than_what_is_shared(data: Path, tmp_path: Path) -> None:
    run = run_of(data, tmp_path / "run", "mmlu/cloze")
    blocks = run.manifest.blocks
    portions = list_portions(run.folder, blocks, places_of(run.evidence.items))
    shared = SharedObservations(run.folder, blocks, portions, run.evidence.items)
    rows = [shared.of(number) for number in range(len(portions))]
    assert 0 < sum(map(len, rows)) < len(run.tables.observations)
    for rows_of_portion in rows:
        keys = rows_of_portion["key"].to_pylist()
        assert len(set(keys)) == len(keys)
    assert sorted(np.concatenate([portion.items for portion in portions]).tolist()) == list(
        range(24)
    )


def test_protocols_that_join_later_read_what_they_lack(data: Path, tmp_path: Path) -> None:
    run = run_of(data, tmp_path / "run", "options/cloze:sum")
    recipes = resolve("options/cloze:token_mean", "options/cloze:first_divergent")
    scores, read_anew = (
        {name: each.scores for name, each in opened.under(recipes).measurements.items()}
        for opened in (run, open_run(run.folder))
    )
    np.testing.assert_equal(scores, read_anew)


def test_a_run_without_any_block_has_no_numbers(data: Path, tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        run_of(data, tmp_path / "run", "mmlu/original", model=Failing(most=0))
    (row,) = open_run(tmp_path / "run").rows()
    assert (row.counts.n, row.identity.selection) == (0, "incomplete: 0 of 24 items")
