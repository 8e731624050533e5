"""A real server in a process group of its own on loopback, from its environment's interpreter."""

import os
import signal
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from weakref import finalize

from tests.helpers.processes import held_port

ROOT = Path(__file__).resolve().parents[2]
PATIENCE = 600.0
"""Seconds after which a server that does not answer is given up: a bound for a hang, no measure of speed."""
QUIET = {
    "DO_NOT_TRACK": "1",
    "HF_HUB_OFFLINE": "1",
    "OMP_NUM_THREADS": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_SERVER_DEV_MODE": "1",
}
"""No word to anyone outside; one thread; a gigabyte for keys and values; a route that empties vLLM's prefix cache."""


@dataclass
class RunningServer:
    """A server that ``command`` starts, ``{port}`` in it being a free port; what it writes goes to ``log``. ``name`` is
    that of its model; its address stays the same when it is started again. ``more``: of its environment."""

    name: str
    command: Sequence[str]
    folder: Path
    log: Path
    more: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        held = ExitStack()
        self.port = held.enter_context(held_port())
        finalize(self, held.close)
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """Its root, without a slash at the end."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def model(self) -> str:
        """What ``--model`` takes."""
        return f"server:{self.url}/v1#{self.name}"

    @property
    def pid(self) -> int:
        """Of the process that was started; others may belong to it."""
        assert self._process is not None
        return self._process.pid

    def begin(self) -> None:
        """Start it without waiting until it answers."""
        command = [word.format(port=self.port) for word in self.command]
        cache = {
            "HF_HOME": str(self.folder),
            "VLLM_CACHE_ROOT": str(self.folder),
            "XDG_CACHE_HOME": str(self.folder),
        }
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                command,
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
                env={**os.environ, **QUIET, **cache, **self.more},
                start_new_session=True,
            )

    def wait(self) -> None:
        """Return when it answers; RuntimeError with the end of its log where it ended or never does."""
        assert self._process is not None
        until = time.monotonic() + PATIENCE
        while time.monotonic() < until:
            if self._process.poll() is not None:
                break
            try:
                with urllib.request.urlopen(f"{self.url}/v1/models", timeout=10):
                    return
            except (urllib.error.URLError, OSError):
                time.sleep(0.2)
        words = self.log.read_text(errors="replace")[-3000:]
        self.kill()
        raise RuntimeError(f"{self.command[0]} does not answer:\n{words}")

    def start(self) -> None:
        """Start it and wait until it answers."""
        self.begin()
        self.wait()

    def kill(self) -> None:
        """End all its processes at once, as SIGKILL does."""
        if self._process is not None:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
            self._process = None


def vllm(
    folder: Path, work: Path, *more: str, name: str | None = None, window: int | None = None
) -> RunningServer:
    """vLLM on the model of ``folder`` in float32, called ``name``; ``more``: further arguments."""
    name = name or folder.name
    served = ["--model", str(folder), "--served-model-name", name, "--dtype", "float32"]
    shape = ["--block-size", "32", "--enforce-eager", "--enable-prompt-tokens-details", *more]
    if window is not None:
        shape += ["--max-model-len", str(window)]
    python = str(interpreter("vllm"))
    command = [
        python,
        "-m",
        "vllm.entrypoints.openai.api_server",
        "--host",
        "127.0.0.1",
        "--port",
        "{port}",
    ]
    return RunningServer(name, [*command, *served, *shape], work, work / f"vllm-{name}.log")


def llama_cpp(file: Path, work: Path, *more: str) -> RunningServer:
    """llama-cpp-python on a GGUF file, called as the file is; keys and values in float32 (its default is float16)."""
    served = [
        "--model",
        str(file),
        "--model_alias",
        file.stem,
        "--n_ctx",
        "2048",
        "--logits_all",
        "true",
    ]
    shape = ["--type_k", "0", "--type_v", "0", "--n_threads", "1", "--n_threads_batch", "1", *more]
    command = [
        str(interpreter("llama")),
        "-m",
        "llama_cpp.server",
        "--host",
        "127.0.0.1",
        "--port",
        "{port}",
    ]
    return RunningServer(file.stem, [*command, *served, *shape], work, work / f"{file.stem}.log")


def transformers(folder: Path, work: Path) -> RunningServer:
    """``transformers serve`` on the model of ``folder`` in float32, whose name is the folder's whole path.

    It lists what the Hub's cache holds, which must be there.
    """
    (work / "hub").mkdir()
    command = [
        str(interpreter("transformers").with_name("transformers")),
        "serve",
        str(folder),
        "--device",
        "cpu",
    ]
    shape = ["--dtype", "float32", "--host", "127.0.0.1", "--port", "{port}"]
    return RunningServer(
        str(folder), [*command, *shape], work, work / f"transformers-{folder.name}.log"
    )


def write_gguf(folder: Path, file: Path) -> Path:
    """``file``, written from the model of ``folder`` by tests/helpers/make_gguf.py."""
    subprocess.run(
        [interpreter("llama"), ROOT / "tests/helpers/make_gguf.py", folder, file], check=True
    )
    return file


def interpreter(name: str, environment: Mapping[str, str] = os.environ) -> Path:
    """Of ``.venv-NAME``, or of the folder that CHOICEWISE_VENV_NAME names."""
    place = environment.get(f"CHOICEWISE_VENV_{name.upper()}")
    return (Path(place) if place else ROOT / f".venv-{name}") / "bin" / "python"
