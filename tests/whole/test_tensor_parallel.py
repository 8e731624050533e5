"""Two processes share a model: the numbers of one process, files and output from rank 0 alone, and an end where one of
them can't go on. They are processes of a CPU (gloo); what is left to GPUs are their own kernels and NCCL."""

import json
import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from choicewise import open_run
from choicewise.bundled import MODELS
from choicewise.extensions.comparison.compare import comparisons
from tests.helpers.commands import choicewise
from tests.helpers.messages import Gist
from tests.helpers.tiny_models import tiny
from tests.paths import ROOT

pytestmark = pytest.mark.costly("processes that load torch and transformers")

VOCABULARY = 512
SECONDS = 240
BASE = next(folder for folder in MODELS if folder.name == "merrow-bpe-512")
FAMILIES = {"llama": {}, "gemma2": {}, "qwen3": {"vocab_size": 511}, "olmo2": {}}
"""Grouped heads, windows with capped weights, a vocabulary that two can't share evenly, normed queries."""

ASK = """
import json, sys
import numpy as np
from choicewise import load_model
from choicewise.models.local import parallel
from choicewise.questions import Cosine, Generation, MaskedLoss, Mass, Sampling, SetSpan, Span, TokenSet

draw = np.random.default_rng(0)

def text(tokens):
    return draw.integers(3, 500, tokens).astype(np.int32)

def questions():
    shared = text(70)
    contexts = [np.concatenate([shared, text(20)]) for _ in range(4)]
    spans = [Span(context, text(1 + length)) for context in contexts for length in range(3)]
    sets = [SetSpan(contexts[0], text(3), np.asarray([60, 64, 70, 75], dtype=np.int32))]
    return [
        *spans, *sets, Mass(contexts[0], TokenSet(np.asarray([5, 9, 30], dtype=np.int32))),
        *(Generation(context, 4) for context in contexts), Generation(contexts[0], 4, (), Sampling(b"any")),
        *(MaskedLoss(span) for span in spans[:2]), Cosine(contexts[0], contexts[1]),
    ]
"""

NUMBERS = f"""{ASK}
told = []
for folder in sys.argv[2:]:
    draw = np.random.default_rng(0)
    model = load_model(folder, device=sys.argv[1], batch_tokens=64)
    answers = [answer for _, answer in sorted(model.answer(questions()), key=lambda each: each[0])]
    rows = [(each.tokens.tolist(), each.logprobs.tolist(), each.value) for each in answers]
    try:
        list(model.answer([Span(text(600), text(1))]))
        refused = ""
    except Exception as error:
        refused = type(error).__name__
    parts = (each.to_local() if hasattr(each, "to_local") else each for each in model.local.model.parameters())
    part = sum(each.numel() for each in parts)
    again = next(iter(model.answer([Span(np.arange(3, 9, dtype=np.int32), text(1))])))[1].logprobs.tolist()
    told.append([rows, model.selfcheck.rung, model.selfcheck.noise, refused, part, again, model.device])
    del model
print(json.dumps(told))
"""

FAILING = f"""{ASK}
import os
how, own = sys.argv[2], os.environ["RANK"] == "1"
received = parallel.Ranks.receive

def receive(group):
    call, dropped = received(group)
    if call[0] == "answer":
        if how == "dies":
            os._exit(9)
        if how == "other tokens":
            call = (call[0], call[1], call[2][1:])
        if how == "memory":
            from choicewise.models.local import attention
            def attend(*given, **named):
                raise MemoryError("nothing left")
            attention.scaled_dot_product_attention = attend
    return call, dropped

if own:
    parallel.Ranks.receive = receive
model = load_model(sys.argv[1], device="auto")
model.check(128)
print(len(list(model.answer(questions()))))
"""


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Tiny models of several families, by name, with a tokenizer; one of them has no plan to be shared by."""
    found = {}
    for family, changes in {**FAMILIES, "gpt2": {}}.items():
        folder = found[family] = tmp_path_factory.mktemp("models") / family
        tiny(family, **{"vocab_size": VOCABULARY, **changes}).save_pretrained(folder)
        for name in ("tokenizer.json", "tokenizer_config.json"):
            shutil.copy(BASE / name, folder / name)
    return found


def environment(**variables: str) -> dict[str, str]:
    own = {"PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    return {**os.environ, **own, **variables}


def torchrun(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    command = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--standalone",
        "--nproc-per-node",
        "2",
        *arguments,
    ]
    return subprocess.run(
        command, env=environment(), capture_output=True, text=True, timeout=SECONDS
    )


def test_every_answer_is_that_of_one_process(folders: dict[str, Path], tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(NUMBERS, encoding="utf-8")
    asked = [folders[family] for family in FAMILIES]
    alone = subprocess.run(
        [sys.executable, tmp_path / "script.py", "cpu", *asked],
        env=environment(),
        capture_output=True,
        text=True,
    )
    shared = torchrun(tmp_path / "script.py", "auto", *asked)
    assert (alone.returncode, shared.returncode) == (0, 0), alone.stderr + shared.stderr
    pairs = zip(FAMILIES, json.loads(alone.stdout), json.loads(shared.stdout), strict=True)
    for family, one, two in pairs:
        assert (one[1], two[1]) == ("tree", "tree"), family
        assert max(one[2], two[2]) < 1e-4
        assert (one[3], two[3]) == ("ModelError", "ModelError")  # all ranks raise it, and go on
        assert one[4] / 2 <= two[4] < 0.7 * one[4]  # each has half of what is split
        assert (one[6], two[6]) == ("cpu", "cpu:x2")
        np.testing.assert_allclose(one[5], two[5], atol=2e-5)
        for (tokens, logprobs, value), (other_tokens, other_logprobs, other_value) in zip(
            one[0], two[0], strict=True
        ):
            assert tokens == other_tokens
            np.testing.assert_allclose(logprobs, other_logprobs, atol=2e-5)
            if value is not None:
                assert value == pytest.approx(other_value, abs=2e-5)


def test_a_run_is_written_and_printed_by_rank_0_alone(
    folders: dict[str, Path], tmp_path: Path
) -> None:
    line = (
        "run",
        "--model",
        folders["llama"],
        "--data",
        "bundled:merrowick",
        "--protocol",
        "mmlu/cloze:sum",
    )
    line = (*line, "--limit", "1", "--out")
    ended = torchrun("-m", "choicewise", *line, tmp_path / "shared", "--device", "auto")
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.count("llama on merrowick: 7 questions") == 1
    choicewise(*line, tmp_path / "alone", "--device", "cpu", code=0)
    one, two = (open_run(tmp_path / name) for name in ("alone", "shared"))
    assert two.manifest.model.device == "cpu:x2"
    (found,) = comparisons(one, two, [])
    assert found.furthest < 1e-4
    again = torchrun(
        "-m", "choicewise", *line, tmp_path / "shared", "--device", "auto"
    )  # nothing is asked
    assert (again.returncode, again.stdout.count("llama on merrowick: 7 questions")) == (0, 1)
    refused = torchrun(
        "-m",
        "choicewise",
        *line[:2],
        folders["gpt2"],
        *line[3:],
        tmp_path / "no",
        "--device",
        "auto",
    )
    assert refused.returncode != 0
    assert (
        "no tensor-parallel plan (tp_plan) for 'gpt2' models; run without torchrun"
        in refused.stderr
    )


@pytest.mark.parametrize(
    ("how", "reason"),
    [
        ("dies", "rank 0 of 2: another rank stopped"),
        ("other tokens", "ranks got different tokens"),
        (
            "memory",
            "rank 1 of 2: out of memory (nothing left); ... (batch_tokens)",
        ),
    ],
)
def test_a_rank_that_can_not_go_on_ends_all(
    how: str, reason: str, folders: dict[str, Path], tmp_path: Path
) -> None:
    """Without what ``torchrun`` does beside: each of the processes ends by itself."""
    (tmp_path / "script.py").write_text(FAILING, encoding="utf-8")
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = found.getsockname()[1]
    place = {
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "WORLD_SIZE": "2",
        "TORCHELASTIC_RUN_ID": "test",
    }
    command = [sys.executable, tmp_path / "script.py", folders["llama"], how]
    started = [
        subprocess.Popen(
            command,
            env=environment(**place, RANK=rank, LOCAL_RANK=rank),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in "01"
    ]
    try:
        told = [process.communicate(timeout=SECONDS) for process in started]
    finally:
        for process in started:
            process.kill()
    assert "".join(error for _, error in told) == Gist(reason)
    assert all(process.returncode for process in started)
