"""Observations without tokens, as in other tools' logs: what needs only the sum and the text is scored as with them."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from choicewise import evaluate, open_run
from choicewise.extensions.analyses.agreement import agreement
from choicewise.extensions.explain.item_report import explanation_lines
from choicewise.protocols.catalogue import resolve
from choicewise.protocols.protocol import Protocol
from choicewise.records import ObservationRow
from choicewise.results.explain import explain
from choicewise.results.run import Run
from choicewise.scoring.combine import log_sum, without_end
from choicewise.scoring.decide import OUTSIDE
from choicewise.scoring.portion import ObservedPortion
from choicewise.scoring.scores import SCORES
from choicewise.store.folder import write_manifest
from choicewise.store.tables import SCHEMAS, read_blocks, write_block
from tests.helpers.mmlu_data import write_mmlu
from tests.helpers.observed import continuations, row

FROM_SUMS = {
    *("sum", "char_mean", "char_mean_bare", "byte_mean", "byte_mean_bare", "word_mean"),
    *("pmi", "dc_pmi", "normalised_pmi", "domain_conditional"),
}
"""Scores that need no tokens."""

BASE = resolve("mmlu/cloze:pmi-answer")["mmlu/cloze:pmi-answer"]


def run_of(folder: Path, protocols: Mapping[str, Protocol]) -> Run:
    return evaluate(
        model="fake:hash", data=write_mmlu(folder / "data"), protocols=protocols, out=folder / "run"
    )


def without_tokens(run: Run) -> Run:
    """The run with the total in place of the tokens of every observation."""
    blocks = []
    for block in run.manifest.blocks:
        tables = {name: read_blocks(run.folder, [block], name).to_pylist() for name in SCHEMAS}
        rows = {name: [tuple(row.values()) for row in table] for name, table in tables.items()}
        rows["observations"] = [
            ObservationRow(
                row["key"], (), (), (), (), total=float(np.sum(row["logprobs"], dtype=np.float64))
            )
            for row in tables["observations"]
        ]
        blocks.append(replace(block, files=write_block(run.folder, block.name, rows)))
    write_manifest(run.folder, replace(run.manifest, blocks=tuple(blocks)))
    return open_run(run.folder)


@pytest.mark.parametrize("boundary", ["joint", "word"])
def test_sums_are_scored_and_what_needs_tokens_is_missing(boundary: str, tmp_path: Path) -> None:
    recipes = {
        name: replace(
            BASE, score=name, boundary=boundary, null="Answer:" if score.conditional else None
        )
        for name, score in SCORES.items()
        if boundary == "joint" or not score.conditional
    }
    whole = run_of(tmp_path, recipes)
    expected = {name: measured.scores for name, measured in whole.measurements.items()}
    run = without_tokens(whole)
    for name, measured in run.measurements.items():
        assert measured.scores is not None
        if name in FROM_SUMS:
            np.testing.assert_allclose(measured.scores, expected[name], rtol=1e-6)
        else:
            assert np.isnan(measured.scores).all(), name
            assert measured.decisions.missing.all()
    rows = {row.identity.protocol: row for row in run.rows()}
    assert (
        rows["sum"].counts.missing,
        rows["token_mean"].counts.missing,
        rows["token_mean"].counts.n,
    ) == (0, 12, 0)
    assert run.unanswered == []


def test_an_explanation_shows_the_total(tmp_path: Path) -> None:
    whole = run_of(tmp_path, {"sum": replace(BASE, score="sum", null=None)})
    expected = [scored.total for scored in explain(whole, "trees/test/0").asked[0].scored]
    found = explain(without_tokens(whole), "trees/test/0")
    assert [scored.total for scored in found.asked[0].scored] == pytest.approx(expected)
    assert found.decided[0].scores == pytest.approx(expected)
    assert sum("tokens unknown" in line for line in explanation_lines(found)) == 4


def test_differences_without_tokens_have_no_known_cause_and_the_noise_of_a_total_is_not_known(
    tmp_path: Path,
) -> None:
    recipe = replace(BASE, score="sum", null=None)
    run = without_tokens(
        run_of(tmp_path, {"sum": recipe, "last": replace(recipe, boundary="last-token")})
    )
    (pair,) = agreement(run)
    assert pair.beyond > 0
    assert dict(pair.causes) == {"no tokens": pair.beyond}
    evidence = ObservedPortion(replace(run.tables, items=run.evidence.items), recipe.prompt_digest)
    assert np.isnan(evidence.sensitivity("sum")).all()
    assert np.isnan(evidence.sensitivity("token_mean")).all()


def test_rules_about_single_tokens_do_not_apply_to_a_total() -> None:
    tokens = continuations([[row(" a", -1.0), row(" b")]])
    observed = replace(tokens, totals=np.array([np.nan, -3.0]))
    assert observed.sums.tolist() == [-1.0, -3.0]
    assert observed.corrected(np.array([-0.5, -0.25]), np.array([0.0, 1.0])).sums.tolist() == [
        -1.5,
        -2.25,
    ]
    assert np.isnan(OUTSIDE["top100=-100"](observed).sums).tolist() == [False, True]
    assert np.isnan(without_end([observed]).sums).tolist() == [False, True]
    spellings = log_sum([observed, observed])
    assert np.isnan(spellings).tolist() == [False, True]
