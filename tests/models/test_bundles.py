"""A bundle that our own model answers makes the run that the model makes, to the bit: MMLU's family and real texts."""

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from choicewise import Run, evaluate, load_model
from choicewise.bundles.answers import Answered, write_run
from choicewise.bundles.write import write_bundle
from choicewise.questions import Span

MODEL = "bundled:merrow-bpe-512"
ORDER = [(name, "ascending") for name in ("prompt", "item", "choice", "part", "null")]


@pytest.mark.filterwarnings("ignore:.* refused", "ignore:hellaswag.first2000 has no examples")
@pytest.mark.costly("a model computes every prompt of a family twice, one sequence at a time")
@pytest.mark.parametrize(
    ("data", "protocols"),
    [("bundled:merrowick", ["mmlu"]), ("hellaswag.validation.first2000.jsonl", ["hellaswag"])],
    ids=["mmlu", "hellaswag"],
)
def test_a_model_scores_the_same_by_a_bundle(
    data: str, protocols: list[str], shared_data: Path, tmp_path: Path
) -> None:
    """One sequence at a time: what is computed does not depend then on what else is asked."""
    how: dict[str, Any] = {"data": data, "protocols": protocols, "limit": 4}
    if data.endswith(".jsonl"):
        how["data"] = shared_data / "hf_rows" / data
    else:
        how |= {"subjects": ["geography"], "limit": 1}
    bundle = write_bundle(tokenizer=MODEL, out=tmp_path / "bundle", **how)
    model, scored = load_model(MODEL, rung="plain", device="cpu"), bundle.scored
    starts = scored.starts.tolist()
    spans = [
        Span(bundle.ids(int(scored.row[at]))[: scored.place[at]].copy(), scored.token[at:stop].astype(np.int32))
        for at, stop in pairwise(starts)
    ]
    logprobs, ranks = np.zeros(len(scored), np.float32), np.zeros(len(scored), np.int32)
    for question, answer in model.answer(spans):
        own = slice(starts[question], starts[question + 1])
        assert answer.tokens.tolist() == scored.token[own].tolist()
        logprobs[own], ranks[own] = answer.logprobs, answer.ranks
    run = write_run(bundle, Answered("merrow-bpe-512", logprobs, ranks), tmp_path / "run")
    direct = evaluate(model=model, out=tmp_path / "direct", **{**how, "protocols": list(bundle.protocols)})
    assert len(run.scores()) > 0
    assert _scores(run).equals(_scores(direct))
    assert run.observations().sort_by(ORDER).equals(direct.observations().sort_by(ORDER))
    assert pc.any(pc.is_valid(run.observations()["null"])).as_py() == any(
        each.null for each in bundle.protocols.values()
    )


def _scores(run: Run) -> pa.Table:
    return run.scores().sort_by([(name, "ascending") for name in ("protocol", "item", "choice")])
