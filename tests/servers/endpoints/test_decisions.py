"""Decision endpoints of transformers and vLLM: their numbers are our own computation in their layout, and no other."""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from choicewise.data.decisions import KINDS
from choicewise.extensions.endpoints.decisions.summary import exchanges
from choicewise.results.run import open_run
from tests.helpers.deciding_models import rows
from tests.servers.commands import choicewise
from tests.servers.running_server import RunningServer

QUESTIONS = 8  # of each kind
LAYOUTS = ("decision/vllm-0.32", "decision/transformers-5.23", "decision/sglang-1")


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("data") / "winds.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows(QUESTIONS)), encoding="utf-8")
    return file


@pytest.fixture(scope="module")
def own(deciding: Path, data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same weights in the layouts of three servers."""
    out = tmp_path_factory.mktemp("own") / "run"
    asked = [word for layout in LAYOUTS for word in ("--protocol", layout)]
    choicewise("run", "--model", deciding, "--device", "cpu", "--data", data, *asked, "--out", out)
    return out


def left(
    server: RunningServer, data: Path, own: Path, out: Path
) -> dict[tuple[str, str], dict[str, Any]]:
    """What `compare` says of a run of the server beside our own, by kind and layout."""
    model = f"decisions:{server.url}/v1#{server.name}"
    choicewise(
        "run", "--model", model, "--data", data, "--protocol", "decision/endpoint", "--out", out
    )
    compared = json.loads(choicewise("compare", out, own, "--json").stdout)
    return {(each["kind"], each["own"].partition(":")[0]): each for each in compared}


def check(found: dict[tuple[str, str], dict[str, Any]], layout: str) -> None:
    assert len(found) == len(KINDS) * len(LAYOUTS)
    for (kind, name), each in found.items():
        assert (each["n"], each["missing"], each["step"]) == (QUESTIONS, 0, None)
        assert each["repeats"]["repeated"] > 0
        if name == layout:
            assert (each["verdict"], each["flips"]) == ("within noise", 0), kind
            assert each["most"] < 1e-4
        else:
            assert each["verdict"] == "unexplained", (kind, name)
            assert each["most"] > 1e-2


def test_transformers_serves_our_own_numbers(
    transformers_decisions: RunningServer, data: Path, own: Path, tmp_path: Path
) -> None:
    check(left(transformers_decisions, data, own, tmp_path / "run"), "decision/transformers-5.23")


def test_vllm_serves_our_own_numbers_and_its_confidence_is_the_top_labels_own_probability(
    vllm_decisions: RunningServer, data: Path, own: Path, tmp_path: Path
) -> None:
    check(left(vllm_decisions, data, own, tmp_path / "run"), "decision/vllm-0.32")
    served = open_run(tmp_path / "run")
    said = [each.confidence for each in exchanges(served.folder, served.manifest)]
    tops: dict[tuple[str, str], float] = {}
    for row in open_run(own).choose(["decision/vllm-0.32"]).scores().to_pylist():
        tops[row["protocol"], row["item"]] = max(
            math.exp(row["score"]), tops.get((row["protocol"], row["item"]), 0.0)
        )
    np.testing.assert_allclose(sorted(said), sorted(tops.values()), rtol=1e-3)
