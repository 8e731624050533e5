"""Two real servers, each started once; `make test-servers` builds their environments first. Without an environment its
tests are skipped, on a machine of CI (CI=true) they fail."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.servers.running_server import ROOT, RunningServer, interpreter, llama_cpp, vllm, write_gguf

MODELS = ROOT / "src/choicewise/bundled/models"
MODEL, MODEL_WITH_BOS = MODELS / "merrow-bpe-2048", MODELS / "merrow-byte"


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


@pytest.fixture(scope="session")
def llama_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """llama-cpp-python on merrow-bpe-2048, whose tokenizer puts nothing before a text."""
    yield from _llama_server(MODEL, tmp_path_factory.mktemp("llama"))


@pytest.fixture(scope="session")
def llama_server_with_bos(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """llama-cpp-python on merrow-byte, whose tokenizer puts BOS before every text."""
    yield from _llama_server(MODEL_WITH_BOS, tmp_path_factory.mktemp("llama"))


def _llama_server(folder: Path, work: Path) -> Iterator[RunningServer]:
    need("llama")
    server = llama_cpp(write_gguf(folder, work / f"{folder.name}.gguf"), work)
    try:
        server.start()
        yield server
    finally:
        server.kill()
