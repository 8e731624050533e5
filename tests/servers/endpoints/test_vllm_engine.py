"""``vllm:NAME``: the engine in a process of its own, by vLLM's CPU build, whose kernels Triton interprets. Every run is
made by the interpreter of that environment, which has no extra of ours, and held beside the local model's."""

import json
import os
import re
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from choicewise.errors import ModelError
from tests.servers.commands import DATA, checked, choicewise, largest_difference, observations
from tests.servers.conftest import MODEL, need
from tests.servers.running_server import QUIET, ROOT, RunningServer, interpreter, vllm

OPTIONS = "block_size=32,max_num_seqs=64,gpu_memory_utilization=0.1"
NAME = f"vllm:bundled:{MODEL.name},{OPTIONS}"
ASKED = (
    *DATA,
    "--protocol",
    "arc-challenge/harness",
    "--protocol",
    "mmlu/original",
    "--limit",
    "2",
    "--window",
    "1023",
)
COMMAND = (str(interpreter("vllm")), "-m", "choicewise")
EXACT = 2e-5
"""Nats of a token in float32: what rounding in another order makes."""


def environment(replays: bool = True) -> dict[str, str]:
    """Of a command in vLLM's environment, which finds our source and none of our extras."""
    triton = {"TRITON_INTERPRET": "1"} if replays else {}
    return {**os.environ, **QUIET, **triton, "PYTHONPATH": str(ROOT / "src"), "COLUMNS": "200"}


def by_vllm(
    *words: str | Path, code: int = 0, replays: bool = True
) -> subprocess.CompletedProcess[str]:
    """The command there."""
    done = subprocess.run(
        [*COMMAND, *words], capture_output=True, text=True, env=environment(replays), check=False
    )
    assert done.returncode == code, done.stderr[-3000:]
    return done


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same run by transformers."""
    need("vllm")
    out = tmp_path_factory.mktemp("local") / "run"
    choicewise("run", "--model", MODEL, *ASKED, "--out", out)
    return out


@pytest.fixture(scope="module")
def replayed(local: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """The run by vLLM, and what the command said."""
    out = tmp_path_factory.mktemp("vllm") / "run"
    done = by_vllm("run", "--model", NAME, *ASKED, "--out", out)
    return out, done.stderr


def test_a_run_gives_the_local_numbers(local: Path, replayed: tuple[Path, str]) -> None:
    out, said = replayed
    assert largest_difference(out, local) < EXACT
    assert "'vLLM, trace replay'" in said
    assert "× the " in said
    manifest = json.loads((out / "manifest.json").read_text())
    spent = manifest["engine"]["spent"]
    assert 0 < spent["tokens_unique"] <= spent["tokens_computed"] < spent["tokens_asked"]
    other = json.loads((local / "manifest.json").read_text())
    assert manifest["model"]["digest"] == other["model"]["digest"]


def test_ranks_are_the_local_ones_where_they_are_known(
    local: Path, replayed: tuple[Path, str]
) -> None:
    ours, theirs = observations(local), observations(replayed[0])
    for key, row in theirs.items():
        for rank, true in zip(row["ranks"], ours[key]["ranks"], strict=True):
            assert rank == true or (rank < 0 and true != 0) or rank == -1, key


def test_the_check_compares_the_ways_and_plain_transformers() -> None:
    need("vllm")
    found: dict[str, Any] = json.loads(by_vllm("check", "--model", NAME, "--json").stdout)
    tried = {trial["rung"]: trial for trial in found["trials"]}
    assert [*tried] == [
        f"vLLM, {way}"
        for way in ("trace replay", "prompt rows", "label ids", "prompt log-probabilities")
    ]
    assert all(trial["refused"] is None and trial["difference"] < EXACT for trial in tried.values())
    assert found["rung"] == "vLLM, trace replay"
    (plain,) = found["paths"]
    assert plain["difference"] is not None, plain["failed"]
    assert 0 < plain["difference"] < EXACT
    assert "loglikelihood" in found["readings"]
    assert "similarity" not in found["readings"]


def test_without_trace_replay_the_numbers_are_the_same(local: Path, tmp_path: Path) -> None:
    """The CPU build as it is: label ids and prompt log-probabilities alone."""
    done = by_vllm("run", "--model", NAME, *ASKED, "--out", tmp_path / "run", replays=False)
    assert largest_difference(tmp_path / "run", local) < EXACT
    assert "'vLLM, label ids'" in done.stderr


def test_an_engine_that_is_killed_is_started_again(local: Path, tmp_path: Path) -> None:
    """Its process is a child of the command; the questions that it did not answer are asked in a new one."""
    words = [*COMMAND, "run", "--model", NAME, *ASKED, "--out", str(tmp_path / "run")]
    with subprocess.Popen(
        words, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, env=environment(), text=True
    ) as run:
        assert run.stderr is not None
        said, killed = list[str](), False
        for line in run.stderr:
            said.append(line)
            # It was started, and checks itself or answers.
            has_begun = "tokens so far" in line or re.search(r": [1-9][0-9]? %", line)
            if not killed and has_begun:
                children = Path(f"/proc/{run.pid}/task/{run.pid}/children").read_text().split()
                for child in children:
                    os.kill(int(child), signal.SIGKILL)
                killed = bool(children)
    assert killed
    assert run.returncode == 0, said
    assert any("requests again" in line for line in said), said
    assert largest_difference(tmp_path / "run", local) < EXACT


@pytest.fixture
def replaying_server(tmp_path: Path) -> Iterator[RunningServer]:
    """A server that replays traces, in whose processes Triton interprets its kernels."""
    need("vllm")
    server = vllm(
        MODEL,
        tmp_path,
        "--enable-trace-replay",
        "--enable-scale-out",
        "--gpu-memory-utilization",
        "0.1",
    )
    interpreted = str(Path(__file__).parents[1] / "interpreted")
    server.more = {
        "PYTHONPATH": interpreted,
        "TRITON_INTERPRET": "1",
        "VLLM_USE_V2_MODEL_RUNNER": "1",
    }
    try:
        server.start()
        yield server
    finally:
        server.kill()


def test_a_server_that_replays_traces_is_asked_so(
    local: Path, replaying_server: RunningServer, tmp_path: Path
) -> None:
    found = checked(replaying_server.model)
    assert found["rung"] == "chosen next tokens, vLLM, trace replay of long continuations"
    out = tmp_path / "run"
    choicewise("run", "--model", replaying_server.model, *ASKED, "--out", out)
    assert largest_difference(out, local) < EXACT
    ours, theirs = observations(local), observations(out)
    pairs = [
        pair
        for key, row in theirs.items()
        if len(row["tokens"]) > 1  # next tokens have no ranks
        for pair in zip(row["ranks"], ours[key]["ranks"], strict=True)
    ]
    assert pairs
    apart = [(one, two) for one, two in pairs if one != two]
    assert all(abs(one - two) == 1 for one, two in apart), (
        apart
    )  # two logits that rounding exchanges
    assert len(apart) < len(pairs) / 100


def test_what_vllm_refuses_at_its_start_is_said(tmp_path: Path) -> None:
    need("vllm")
    name = f"vllm:bundled:{MODEL.name},max_num_seqs=0"
    done = by_vllm(
        "run", "--model", name, *ASKED, "--out", tmp_path / "run", code=ModelError.exit_code
    )
    assert "vLLM refuses to start" in done.stderr
    assert "max_num_seqs" in done.stderr
    assert "would fail again" in done.stderr
    assert "to resume" not in done.stderr


def test_a_run_without_the_prefix_cache_says_that_it_is_off(local: Path, tmp_path: Path) -> None:
    done = by_vllm(
        "run", "--model", f"{NAME},enable_prefix_caching=false", *ASKED, "--out", tmp_path / "run"
    )
    assert largest_difference(tmp_path / "run", local) < EXACT
    assert "(enable_prefix_caching is off)" in done.stderr
    assert "vLLM's cache" not in done.stderr
