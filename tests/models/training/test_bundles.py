"""A bundle that our own model answers makes the run that the model makes, to the bit: MMLU's family and real texts."""

import runpy
import shutil
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from choicewise import Run, evaluate, load_model
from choicewise.extensions.training.bundles.answers import Answered, import_answers, write_run
from choicewise.extensions.training.bundles.write import write_bundle
from choicewise.questions import Span
from tests.helpers.tiny_models import COMMON
from tests.paths import ROOT

TOKENIZER = ROOT / "src" / "choicewise" / "bundled" / "models" / "merrow-bpe-512" / "tokenizer.json"
MODEL = "bundled:merrow-bpe-512"
ORDER = [(name, "ascending") for name in ("prompt", "item", "choice", "part", "null")]


@pytest.mark.filterwarnings(
    "ignore:.* refused", "ignore:hellaswag.first2000 has no few-shot examples"
)
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
        Span(
            bundle.ids(int(scored.row[at]))[: scored.position[at]].copy(),
            scored.token[at:stop].astype(np.int32),
        )
        for at, stop in pairwise(starts)
    ]
    logprobs, ranks = np.zeros(len(scored), np.float32), np.zeros(len(scored), np.int32)
    for question, answer in model.answer(spans):
        own = slice(starts[question], starts[question + 1])
        assert answer.tokens.tolist() == scored.token[own].tolist()
        logprobs[own], ranks[own] = answer.logprobs, answer.ranks
    run = write_run(bundle, Answered("merrow-bpe-512", logprobs, ranks), tmp_path / "run")
    direct = evaluate(
        model=model, out=tmp_path / "direct", **{**how, "protocols": list(bundle.protocols)}
    )
    assert len(run.scores()) > 0
    assert _scores(run).equals(_scores(direct))
    assert run.observations().sort_by(ORDER).equals(direct.observations().sort_by(ORDER))
    assert pc.any(pc.is_valid(run.observations()["null"])).as_py() == any(
        each.null for each in bundle.protocols.values()
    )


@pytest.mark.filterwarnings(
    "ignore::pytest.PytestUnraisableExceptionWarning"
)  # the page closes no file
@pytest.mark.parametrize("keys", [4, 2, 1])
def test_the_engine_of_the_docs_has_the_numbers_of_any_llama(
    keys: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where heads of queries share keys, and the head has weights of its own."""
    folder = tmp_path / "model"
    shape = {
        **COMMON,
        "vocab_size": 512,
        "num_key_value_heads": keys,
        "tie_word_embeddings": keys == 4,
    }
    torch.manual_seed(0)
    LlamaForCausalLM(LlamaConfig(**shape, head_dim=8)).save_pretrained(folder)
    shutil.copyfile(TOKENIZER, folder / "tokenizer.json")
    asked: dict[str, Any] = {
        "data": "bundled:merrowick",
        "protocols": ["mmlu/original"],
        "limit": 1,
        "subjects": ["festivals"],
    }
    ours = evaluate(model=folder, **asked, out=tmp_path / "run")
    bundle = write_bundle(tokenizer=folder, out=tmp_path / "bundle", **asked)

    page = (ROOT / "docs" / "own-engine.md").read_text(encoding="utf-8")
    script = tmp_path / "score_numpy.py"
    script.write_text(
        page.partition('title="score_numpy.py"\n')[2].partition("```")[0], encoding="utf-8"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["score_numpy.py", str(folder), "bundle"])
    runpy.run_path(str(script))
    theirs = import_answers(bundle, "numpy.parquet", out="from-numpy")
    assert _scores(theirs)["score"].to_numpy() == pytest.approx(
        _scores(ours)["score"].to_numpy(), abs=1e-4
    )


def _scores(run: Run) -> pa.Table:
    return run.scores().sort_by([(name, "ascending") for name in ("protocol", "item", "choice")])
