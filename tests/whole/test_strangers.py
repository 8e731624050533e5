"""Strangers' models, tokenizers, servers and logs, made after public reports about other tools: right, or refused.

Tables of theirs are in ``tests/unit/data``.  What each folder is for stands in its ``run.sh``.
"""

import json
import os
import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from choicewise import Run, evaluate, export, open_run
from choicewise.errors import DataError, UsageError
from tests.helpers.commands import choicewise
from tests.paths import ROOT, SHARED

CASES = SHARED / "cases"
pytestmark = pytest.mark.skipif(not CASES.is_dir(), reason=f"no strangers' files at {CASES}")

MODEL = ROOT / "src" / "choicewise" / "bundled" / "models" / "merrow-bpe-512"
QUIET = {"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1", "TRANSFORMERS_VERBOSITY": "error"}
REFUSED = {
    "llama-nomax": "has no context length",
    "llama-short": "tokenizer belongs to another",
}
"""Models that can't be asked, and why."""
WITHOUT_NUMBERS = ("mistral-win0",)
"""Models whose own numbers are NaN: no token sees another one, or itself."""


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Tiny models of 46 kinds, with a byte-level tokenizer."""
    if not CASES.is_dir():
        pytest.skip(f"no strangers' files at {CASES}")
    folder = tmp_path_factory.mktemp("models")
    script(CASES / "37-many-architectures" / "arch.py", folder)
    return folder


def script(file: Path, *words: object, folder: Path | None = None) -> str:
    """Run a script of a case in ``folder`` and return what it printed."""
    command = [sys.executable, str(file), *map(str, words)]
    done = subprocess.run(
        command,
        cwd=folder,
        env={**os.environ, **QUIET},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def case(number: int) -> Path:
    """Return the folder of a case."""
    (folder,) = CASES.glob(f"{number}-*")
    return folder


def largest_difference(run: Run, model: Path, folder: Path) -> float:
    """Return by how much a sum of ``run`` differs from one pass of transformers over the whole text, at most (nats).

    The tokens are those of the whole text, cut at the number of the context's, as in lm-evaluation-harness.
    """
    export(run, "harness", folder)
    network = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32).eval()
    tokenizer = AutoTokenizer.from_pretrained(model)
    differences = []
    for file in folder.glob("**/samples_*.jsonl"):
        for line in file.read_text(encoding="utf-8").splitlines():
            sample = json.loads(line)
            arguments = sample["arguments"]
            for place, response in enumerate(sample["resps"]):
                context, continuation = arguments[f"gen_args_{place}"].values()
                tokens = tokenizer(context + continuation, add_special_tokens=False)["input_ids"]
                start = len(tokenizer(context, add_special_tokens=False)["input_ids"])
                with torch.inference_mode():
                    logits = network(torch.tensor([tokens]), use_cache=False).logits[0]
                logprobs = logits.float().log_softmax(-1)
                rows = torch.arange(start - 1, len(tokens) - 1)
                expected = logprobs[rows, torch.tensor(tokens[start:])].sum().item()
                differences.append(abs(expected - float(response[0][0])))
    assert differences
    return max(differences)


def test_37_many_architectures(models: Path) -> None:
    said = script(case(37) / "arch_all.py", models)
    names = {folder.name for folder in models.iterdir()}
    assert len(names) > 40
    lines = {line.split()[0]: line for line in said.splitlines()}
    assert set(lines) == names
    for name, line in lines.items():
        if name in REFUSED:
            assert REFUSED[name] in line
        elif name not in WITHOUT_NUMBERS:
            sums = re.search(r"with BOS (\S+), without (\S+) ", line)
            assert sums is not None, line
            assert min(map(float, sums.groups())) < 2e-5, line


def test_40_a_cache_that_fails(models: Path, tmp_path: Path) -> None:
    data = case(37) / "small.jsonl"
    run = evaluate(
        model=models / "xlstm", data=data, protocols=["compat/lm-eval:acc"], out=tmp_path / "run"
    )
    assert largest_difference(run, models / "xlstm", tmp_path / "samples") < 2e-5


@pytest.mark.parametrize("name", ["lower-nospace", "words", "prefix-space", "newline-lost"])
def test_49_odd_tokenizers(name: str, tmp_path: Path) -> None:
    script(case(49) / "tokens.py", folder=tmp_path)
    model = tmp_path / "tok" / name
    asked = ("--model", model, "--data", case(49) / "tok.jsonl", "--protocol", "compat/lm-eval:acc")
    choicewise("run", *asked, "--out", tmp_path / "run", code=0)
    assert largest_difference(open_run(tmp_path / "run"), model, tmp_path / "samples") < 2e-5


def test_55_special_tokens_in_texts(models: Path, tmp_path: Path) -> None:
    model = models / "gpt_bigcode"
    run = evaluate(
        model=model,
        data=case(55) / "quiz.jsonl",
        protocols=["compat/lm-eval:acc"],
        out=tmp_path / "run",
    )
    assert largest_difference(run, model, tmp_path / "samples") < 2e-5
    shown = choicewise("explain", tmp_path / "run", "--item", "test/0", "--tokens", code=0).stdout
    assert re.search(r'choice 0 "␠</s>": \d tokens', shown)


def test_36_exports_as_csv(tmp_path: Path) -> None:
    """With the oldest pyarrow the tier `package` exports both."""
    asked = ("--data", "bundled:merrowick", "--limit", "2", "--protocol", "options/cloze:sum")
    choicewise("run", "--model", "fake:hash", *asked, "--out", tmp_path / "run", code=0)
    for form in ("items-csv", "scores-csv"):
        out = tmp_path / f"{form}.csv"
        choicewise("export", tmp_path / "run", "--format", form, "--out", out, code=0)
        assert b"\r" not in out.read_bytes()


def test_64_a_page_without_its_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = ("--data", "bundled:merrowick", "--limit", "2", "--protocol", "options/cloze:sum")
    choicewise("run", "--model", "fake:hash", *asked, "--out", tmp_path / "run", code=0)
    monkeypatch.setitem(sys.modules, "vl_convert", None)
    for words in (("page", tmp_path / "run"), ("plot", tmp_path / "run", "strip")):
        out = tmp_path / ("page.html" if words[0] == "page" else "strip.svg")
        said = choicewise(*words, "--out", out, code=UsageError.exit_code).stderr
        assert "pip install --constraint constraints.txt '.[page]'" in said
        assert not out.exists()


def numbers(run: Path) -> dict[str, float | None]:
    """Return the accuracies of a run in percent, by the protocol's name after the colon."""
    rows = json.loads(choicewise("report", run, "--json", code=0).stdout)
    return {
        row["protocol"].rpartition(":")[2]: None
        if row["value"] is None
        else round(100 * row["value"], 1)
        for row in rows
        if row["metric"] in ("acc", "exact_match") and row["subject"] == "all"
    }


def test_46_old_write_outs(tmp_path: Path) -> None:
    folder = case(46)
    choicewise(
        "import",
        folder / "animals_write_out_info.json",
        "--model",
        "m",
        "--out",
        tmp_path / "animals",
        code=0,
    )
    assert numbers(tmp_path / "animals")["sum"] == 50.0
    file = folder / "truthfulqa_mc_write_out_info.json"
    choicewise("import", file, "--model", "m", "--out", tmp_path / "truthfulqa", code=0)
    assert set(numbers(tmp_path / "truthfulqa").values()) <= {None}


def test_47_tables_of_other_units(tmp_path: Path) -> None:
    files = sorted(case(47).glob("t-*.csv"))
    assert len(files) == 8
    for file in files:
        out = tmp_path / file.stem
        done = choicewise("import", file, "--task", "a", "--out", out)
        if file.stem == "t-good":
            assert numbers(out)["sum"] == 33.3
        else:
            assert done.code == DataError.exit_code
            assert file.name in done.stderr or "log-likelihood is never above 0" in done.stderr
            assert not out.exists()


def test_51_joint_prompts_of_helm(tmp_path: Path) -> None:
    choicewise("import", case(51) / "runs", "--out", tmp_path / "run", code=0)
    assert numbers(tmp_path / "run")["letter-match"] == 33.3


@contextmanager
def served(number: int, mode: str) -> Iterator[str]:
    """Start the server of a case in ``mode`` and yield how a command names it."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
    command = [sys.executable, str(case(number) / "server.py"), str(MODEL), str(port), mode]
    with subprocess.Popen(
        command, env={**os.environ, **QUIET}, stdout=subprocess.PIPE, text=True
    ) as server:
        try:
            assert server.stdout is not None
            assert server.stdout.readline() == "up\n"
            yield f"server:http://127.0.0.1:{port}/v1#tiny"
        finally:
            server.kill()


@pytest.mark.parametrize("mode", ["content", "refuses"])
def test_42_formats_of_llama_server(mode: str) -> None:
    """It gives no log-probability of a prompt: what is left is generated text and chats, and the check says so."""
    with served(42, mode) as name:
        shown = choicewise(
            "check", "--model", name, "--tokenizer", "bundled:merrow-bpe-512", code=0
        ).stdout
    assert "agrees with the server" in shown
    (asked,) = (line for line in shown.splitlines() if line.startswith("asked by"))
    assert asked.split("  ")[-1].strip().startswith("generated text")
    assert "prompt log-probabilities" not in asked


def test_43_lookalikes_in_the_top_20(tmp_path: Path) -> None:
    """A is -3 and B is -2: neither the letter with its space nor a Cyrillic one is taken for A."""
    asked = (
        "--data",
        case(43) / "small.jsonl",
        "--chat",
        "message",
        "--protocol",
        "mmlu/original@shots=0",
    )
    with served(43, "odd") as name:
        choicewise("run", "--model", name, *asked, "--out", tmp_path / "run", code=0)
    scores = open_run(tmp_path / "run").scores().to_pylist()
    found = [row["score"] for row in scores if row["item"] == "test/0"]
    assert found == pytest.approx([-3.0, -2.0, -5.0, -6.0])


def test_44_answers_in_text(tmp_path: Path) -> None:
    """One text for every question, which simple-evals reads as B."""
    asked = (
        "--data",
        case(44) / "small.jsonl",
        "--chat",
        "message",
        "--protocol",
        "options/free-simple-evals",
    )
    with served(44, "says:ANSWER: $B$") as name:
        choicewise("run", "--model", name, *asked, "--out", tmp_path / "run", code=0)
    assert set(numbers(tmp_path / "run").values()) == {25.0}
    for place in range(4):
        item = choicewise("explain", tmp_path / "run", "--item", f"test/{place}", code=0).stdout
        assert "1 of 1 protocol chooses 1 " in item
    shown = choicewise("report", tmp_path / "run", "extractors", code=0).stdout
    assert "in dispute: 4 items of 4" in shown
