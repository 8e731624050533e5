"""A run against a server has the numbers of a run here."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from choicewise.bundled import BENCHMARK
from choicewise.models.fake import HashModel
from choicewise.models.server.address import ServerAddress
from choicewise.models.server.server_model import ServerModel
from choicewise.running.evaluate import evaluate
from tests.helpers.misbehaving_server import serving
from tests.helpers.served_model import LLAMA_CPP, VLLM, Ability

WIDE = replace(VLLM, window=100_000)
OLDER = replace(WIDE, token_choice=False)
TEXTS = replace(LLAMA_CPP, window=100_000)


@pytest.mark.parametrize("ability", [WIDE, OLDER, TEXTS], ids=["chosen tokens", "prompt log-probabilities", "echo"])
def test_every_protocol_of_mmlu_has_the_numbers_of_a_run_here(ability: Ability, tmp_path: Path) -> None:
    texts = ["mmlu/cloze:sum", "mmlu/cloze:pmi-answer", "mmlu/letter-text:sum", "mmlu/letter-text:token_mean"]
    protocols = texts if ability is TEXTS else ["mmlu"]
    with serving(ability) as server:
        window = None if ability.name == "vllm" else 50_000
        model = ServerModel(ServerAddress.parse(server.address), tokenizer="bytes", window=window)
        asked = evaluate(
            model=model, data=BENCHMARK, protocols=protocols, subjects=["law"], limit=1, out=tmp_path / "served"
        )
    here = evaluate(
        model=HashModel(), data=BENCHMARK, protocols=protocols, subjects=["law"], limit=1, out=tmp_path / "here"
    )
    given, true = asked.scores(), here.scores()
    assert given.num_rows == true.num_rows > 0
    for name in true.column_names:
        if pa.types.is_floating(true.schema.field(name).type):
            numbers = (table[name].to_numpy(zero_copy_only=False) for table in (given, true))
            np.testing.assert_allclose(*numbers, atol=1e-4, rtol=1e-5, err_msg=name)
        else:
            assert given[name].to_pylist() == true[name].to_pylist(), name
