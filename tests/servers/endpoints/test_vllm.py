"""Beside vLLM: what the check says, and that a run gives the local model's numbers, whatever is killed on the way."""

import os
import signal
import time
from pathlib import Path

import pytest

from choicewise.errors import ModelError
from tests.servers.commands import (
    DATA,
    begin,
    checked,
    choicewise,
    largest_difference,
    observations,
    report,
    trials,
)
from tests.servers.conftest import MODEL
from tests.servers.running_server import RunningServer

ASKED = (*DATA, "--protocol", "mmlu", "--limit", "2")


@pytest.fixture(scope="module")
def served(vllm_server: RunningServer, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run against the server."""
    out = tmp_path_factory.mktemp("served") / "run"
    choicewise("run", "--model", vllm_server.model, *ASKED, "--out", out)
    return out


def test_next_tokens_and_prompts_are_both_exact(vllm_server: RunningServer) -> None:
    found = checked(vllm_server.model)
    tried = trials(found)
    assert found["rung"] == "chosen next tokens, prompt log-probabilities of long continuations"
    for way in ("chosen next tokens", "prompt log-probabilities"):
        assert tried[way]["refused"] is None
        assert tried[way]["difference"] < 1e-3
    assert found["noise"] < 1e-3


def test_another_tokenizer_than_the_servers_is_refused(vllm_server: RunningServer) -> None:
    done = choicewise(
        "check",
        "--model",
        vllm_server.model,
        "--tokenizer",
        "bundled:merrow-bpe-512",
        code=ModelError.exit_code,
    )
    assert "the tokenizer bundled:merrow-bpe-512 is not the server's" in done.stderr


def test_a_run_gives_the_numbers_of_the_local_model(served: Path, tmp_path: Path) -> None:
    local = tmp_path / "local"
    choicewise("run", "--model", str(MODEL), *ASKED, "--out", local)
    assert largest_difference(served, local) < 1e-3
    theirs = {(row["protocol"], row["metric"]): row for row in report(served)}
    ours = {(row["protocol"], row["metric"]): row for row in report(local)}
    assert (theirs.keys(), len(theirs)) == (ours.keys(), 49)
    for name, row in ours.items():
        open_to_noise = (row.get("near_ties") or 0) + (theirs[name].get("near_ties") or 0)
        assert abs(row["value"] - theirs[name]["value"]) <= open_to_noise / row["n"], name
        assert (row["n"], row["missing"]) == (theirs[name]["n"], theirs[name]["missing"])


def test_a_run_with_a_killed_server_resumes(
    served: Path, vllm_server: RunningServer, tmp_path: Path
) -> None:
    out = tmp_path / "run"
    line = ("run", "--model", vllm_server.model, *ASKED, "--out", out)
    run = begin(*line)
    while not list(out.glob("blocks/*/observations.parquet")):
        assert run.poll() is None, "the run ended before anything was kept"
        time.sleep(0.005)
    vllm_server.kill()
    os.killpg(run.pid, signal.SIGKILL)
    run.wait()
    kept = observations(out)
    assert 0 < len(kept) < len(observations(served))
    stopped = choicewise(*line, code=ModelError.exit_code)  # nobody answers
    assert "run the same command" in stopped.stderr
    assert observations(out) == kept
    vllm_server.start()
    choicewise(*line)
    assert largest_difference(out, served) < 1e-4
    first, second = (
        choicewise("report", folder, "--all").stdout.replace(str(folder), "")
        for folder in (out, served)
    )
    assert first == second
