"""Beside llama-cpp-python: echo is off by one where the tokenizer adds no BOS, right where it does."""

import json
import shutil
import urllib.request
from pathlib import Path

import numpy as np

from choicewise.errors import StoreError
from tests.servers.commands import (
    DATA,
    checked,
    choicewise,
    largest_difference,
    observations,
    report,
    trials,
)
from tests.servers.conftest import MODEL, MODEL_WITH_BOS
from tests.servers.running_server import RunningServer, llama_cpp, write_gguf

TOKENIZER = ("--tokenizer", "bundled:merrow-bpe-2048")
TOKENIZER_WITH_BOS = ("--tokenizer", "bundled:merrow-byte")
TEXT = "The harbour of the isle"


def test_echo_without_bos_is_refused_as_off_by_one(llama_server: RunningServer) -> None:
    found = checked(llama_server.model, *TOKENIZER)
    echo = trials(found)["echo, prompts as texts"]
    assert echo["difference"] > 1
    assert "other tokens" in echo["refused"]
    assert found["rung"] == "top 100 next tokens, prompts as texts"


def test_it_is_off_by_one(llama_server: RunningServer) -> None:
    """What the test above is about: the log-probability said to be a token's is the same token's, one place later."""
    import torch
    from transformers import AutoModelForCausalLM

    body = {"prompt": TEXT, "echo": True, "logprobs": 1, "max_tokens": 1, "temperature": 0}
    request = urllib.request.Request(
        f"{llama_server.url}/v1/completions",
        json.dumps(body).encode(),
        {"Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request) as answer:
        told = json.load(answer)["choices"][0]["logprobs"]["token_logprobs"]
    from choicewise.models.local.tokenizer import HfTokenizer

    ids = HfTokenizer(MODEL).encode([TEXT], special=False)[0].tolist()
    model = AutoModelForCausalLM.from_pretrained(MODEL, dtype=torch.float32)
    with torch.no_grad():
        rows = torch.log_softmax(model(torch.tensor([ids])).logits[0], -1).numpy()
    assert np.allclose(
        told[1:], [rows[place, ids[place]] for place in range(1, len(ids))], atol=1e-3
    )
    right = [rows[place - 1, ids[place]] for place in range(1, len(ids))]
    assert np.abs(np.asarray(told[1:]) - right).max() > 1


def test_letters_are_read_and_texts_refused_by_name(
    llama_server: RunningServer, tmp_path: Path
) -> None:
    asked = (*DATA, "--protocol", "mmlu/original", "--protocol", "mmlu/cloze:sum", "--limit", "2")
    served, local = tmp_path / "served", tmp_path / "local"
    done = choicewise("run", "--model", llama_server.model, *TOKENIZER, *asked, "--out", served)
    assert "mmlu/cloze:sum is refused" in done.stderr
    assert {row["protocol"] for row in report(served)} == {"mmlu/original"}
    choicewise("run", "--model", str(MODEL), *asked, "--out", local)
    true = observations(local)
    for key, row in observations(served).items():
        right = true[key]["logprobs"]
        assert row["missing"] is None
        if row["at_most"]:
            assert row["logprobs"][0] >= right[0] - 1e-3
        else:
            assert np.allclose(row["logprobs"], right, atol=1e-3)


def test_echo_with_bos_is_the_local_model(
    llama_server_with_bos: RunningServer, tmp_path: Path
) -> None:
    assert (
        checked(llama_server_with_bos.model, *TOKENIZER_WITH_BOS)["rung"]
        == "echo, prompts as texts"
    )
    asked = (
        *DATA,
        "--protocol",
        "mmlu/cloze:sum",
        "--protocol",
        "mmlu/harness-v0:sum",
        "--limit",
        "1",
    )
    served, local = tmp_path / "served", tmp_path / "local"
    done = choicewise(
        "run", "--model", llama_server_with_bos.model, *TOKENIZER_WITH_BOS, *asked, "--out", served
    )
    assert "mmlu/harness-v0:sum is refused: " in done.stderr
    choicewise("run", "--model", str(MODEL_WITH_BOS), *asked, "--out", local)
    assert largest_difference(served, local, subset=True) < 1e-3


def test_a_server_with_another_model_of_the_same_name_is_refused(tmp_path: Path) -> None:
    """The name, the address and the tokenizer are the same: only the numbers say that it is another."""
    folder = shutil.copytree(MODEL_WITH_BOS, tmp_path / "model")
    server = llama_cpp(write_gguf(folder, tmp_path / "model.gguf"), tmp_path)
    out = tmp_path / "run"
    asked = (
        "run",
        "--model",
        server.model,
        *TOKENIZER_WITH_BOS,
        *DATA,
        "--protocol",
        "mmlu/cloze:sum",
        "--out",
        out,
    )
    try:
        server.start()
        choicewise(*asked, "--limit", "1", "--subject", "law")
        server.kill()
        before = observations(out)
        _change_weights(folder / "model.safetensors")
        write_gguf(folder, tmp_path / "model.gguf")
        server.start()
        refused = choicewise(*asked, "--limit", "2", "--subject", "law", code=StoreError.exit_code)
    finally:
        server.kill()
    assert "the server answers differently" in refused.stderr
    assert observations(out) == before


def _change_weights(file: Path) -> None:
    from safetensors.numpy import load_file, save_file

    weights = load_file(file)
    name = "model.layers.0.mlp.down_proj.weight"
    save_file({**weights, name: -weights[name]}, file)
