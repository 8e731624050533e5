"""Three real servers, each started once; `make test-servers` builds their environments first.

Without an environment its tests are skipped, on a machine of CI (CI=true) they fail.
"""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.helpers.deciding_models import save_deciding
from tests.servers.running_server import (
    ROOT,
    RunningServer,
    interpreter,
    llama_cpp,
    transformers,
    vllm,
    write_gguf,
)

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
    yield from _started(vllm(MODEL, tmp_path_factory.mktemp("vllm")))


@pytest.fixture(scope="session")
def deciding(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a tiny model that decision endpoints take."""
    return save_deciding(tmp_path_factory.mktemp("model") / "tiny")


@pytest.fixture(scope="session")
def transformers_decisions(
    deciding: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RunningServer]:
    """transformers' serve on :func:`deciding`."""
    need("transformers")
    yield from _started(transformers(deciding, tmp_path_factory.mktemp("transformers")))


@pytest.fixture(scope="session")
def vllm_decisions(
    deciding: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RunningServer]:
    """vLLM on :func:`deciding`, whose log-probabilities are of the whole vocabulary."""
    need("vllm")
    more = ("--logprobs-mode", "raw_logprobs")
    yield from _started(vllm(deciding, tmp_path_factory.mktemp("vllm-decisions"), *more))


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
    yield from _started(llama_cpp(write_gguf(folder, work / f"{folder.name}.gguf"), work))


def _started(server: RunningServer) -> Iterator[RunningServer]:
    try:
        server.start()
        yield server
    finally:
        server.kill()
