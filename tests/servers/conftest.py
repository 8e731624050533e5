"""Two real servers, each started once; `make test-servers` builds their environments first.

Without an environment its tests are skipped, on a machine of CI (CI=true) they fail.
"""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.servers.running_server import ROOT, RunningServer, interpreter, llama_cpp, vllm

MODELS = ROOT / "src/choicewise/bundled/models"
MODEL = MODELS / "merrow-bpe-2048"


def need(name: str) -> None:
    """Skip, or fail in CI, where the environment of ``name`` is absent."""
    if not (place := interpreter(name)).is_file():
        tell = pytest.fail if os.environ.get("CI") == "true" else pytest.skip
        tell(f"no {place}; run: make .venv-{name}/.installed")


@pytest.fixture(scope="session")
def vllm_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """vLLM on the bundled merrow-bpe-2048."""
    need("vllm")
    server = vllm(MODEL, tmp_path_factory.mktemp("vllm"))
    try:
        server.start()
        yield server
    finally:
        server.kill()


def gguf_server(work: Path, *options: str) -> Iterator[RunningServer]:
    """llama-cpp-python on the same model, as the script beside this file writes it with ``options``."""
    need("llama")
    file = work / ("-".join([MODEL.name, *(option.strip("-") for option in options)]) + ".gguf")
    script = Path(__file__).with_name("make_gguf.py")
    subprocess.run([interpreter("llama"), script, MODEL, file, *options], check=True)
    server = llama_cpp(file, work)
    try:
        server.start()
        yield server
    finally:
        server.kill()


@pytest.fixture(scope="session")
def llama_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """llama-cpp-python whose tokenizer puts nothing before a text."""
    yield from gguf_server(tmp_path_factory.mktemp("llama"))


@pytest.fixture(scope="session")
def llama_server_with_bos(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """llama-cpp-python whose tokenizer puts BOS before every text."""
    yield from gguf_server(tmp_path_factory.mktemp("llama"), "--bos")
