"""Run vLLM's engine in a process: start, ask and end it, and answer inside it.

An engine whose step fails never answers again, prints as it likes and takes the memory of a device,
so it has a process that is ended when it fails, is silent for too long, or is no longer wanted.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import IO, Any, Final, NoReturn

from choicewise.errors import ModelError
from choicewise.extensions.endpoints.vllm.vllm_routes import (
    PLACES,
    PROMPTS,
    ROWS,
    TRACE,
    Abilities,
    EngineRequest,
    Output,
    label_request,
    output_of,
    rows_request,
    trace_request,
)
from choicewise.util.isolate import BoundedProcess, Limits, Record, Unavailable, serve

INTERPRETED: Final = "TRITON_INTERPRET"
"""The variable that is 1 if Triton's kernels run in its interpreter, on a machine without a GPU."""

REPLAY: Final = "enable_trace_replay"
"""vLLM's option, which is left out if it is refused."""

# Lines that the engine printed, and that an error shows.
_SHOWN: Final = 3

# Tokens with which every way is tried once.
_TRIED: Final = [1, 2]


class EngineDied(ModelError):
    """The engine failed, ended or hung; its last requests have no answer."""


@dataclass(frozen=True, slots=True)
class EngineFacts:
    """Describe a started engine: its version, its kind of device, its arithmetic and abilities."""

    version: str
    device: str
    dtype: str
    abilities: Abilities


class EngineProcess(BoundedProcess):
    """Run vLLM with ``options``, the arguments of ``vllm.LLM``; the first request starts it.

    Raises EngineDied if it fails, with the end of what it printed; the next request starts it anew.
    """

    module = "choicewise.extensions.endpoints.vllm.process"
    limits = Limits(seconds=None, wait=1800.0, memory=None, answer=1 << 30)
    called = "vLLM"
    remedy = "run the same command again to resume"
    error = EngineDied
    # A large model may be loaded from a slow disk.
    starting = 3600.0

    def __init__(self, options: Mapping[str, Any]) -> None:
        super().__init__()
        self._options = dict(options)
        self._printed: IO[bytes] | None = None
        self._has_started = False

    def facts(self) -> EngineFacts:
        """Return the facts of the engine."""
        facts = self._ask({"facts": True}, self.starting)
        ways, block, longest, vocabulary = facts["abilities"]
        return EngineFacts(
            version=facts["version"],
            device=facts["device"],
            dtype=facts["dtype"],
            abilities=Abilities(tuple(ways), block, longest, vocabulary),
        )

    def send(self, number: int, requests: Sequence[EngineRequest]) -> None:
        """Have batch ``number`` answered, after those that were sent before."""
        bodies = [[request.prompt, request.params] for request in requests]
        self._send({"batch": number, "requests": bodies})

    def receive(self, number: int) -> list[Output] | str:
        """Return the outputs of batch ``number``, or why vLLM refused all of it.

        The outputs of batches before it are dropped.
        """
        reply: Record = {}
        while reply.get("batch") != number:
            if self._process is None:
                raise EngineDied("vLLM stopped")
            reply = self._receive(self._process, self.limits.wait)
        refused = reply.get("refused")
        if isinstance(refused, str):
            return refused
        return [Output(*fields) for fields in reply["outputs"]]

    def _start(self) -> Any:
        process = super()._start()
        self._has_started = True
        return process

    def _arguments(self) -> Sequence[str]:
        return (json.dumps(self._options),)

    def _environment(self) -> dict[str, str]:
        # It is as trusted as this process, and configured by variables.
        return dict(os.environ)

    def _errors(self) -> IO[bytes]:
        self._printed = tempfile.TemporaryFile()
        weakref.finalize(self, self._printed.close)
        return self._printed

    def _give_up(self, reason: str) -> NoReturn:
        self._drop()
        lines = self._last_lines()
        errors = [line for line in lines if "Error: " in line]
        if not errors and reason.startswith("ended"):
            errors = lines
        # A refusal needs no further words.
        if errors and not reason.startswith("refuses"):
            printed = " | ".join(dict.fromkeys(line[:300] for line in errors[-_SHOWN:]))
            reason = f"{reason} (it printed: {printed})"
        remedy = self.remedy
        if not self._has_started:
            remedy = "fix that first: the same command would fail again"
        raise EngineDied(f"vLLM {reason}; {remedy}")

    def _last_lines(self) -> list[str]:
        """Return the last lines that the process printed, without empty ones."""
        if self._printed is None:
            return []
        size = self._printed.seek(0, os.SEEK_END)
        self._printed.seek(max(0, size - (1 << 16)))
        text = self._printed.read().decode(errors="replace")
        return [line.strip() for line in text.splitlines() if line.strip()]


def _interpret(options: dict[str, Any]) -> None:
    """Run Triton's kernels in its interpreter, in this one process, before vLLM is imported.

    The runner that replays traces needs Triton, and a CPU has none: a backend in name is enough.
    """
    os.environ.setdefault("VLLM_USE_V2_MODEL_RUNNER", "1")
    os.environ.setdefault("VLLM_ENABLE_V1_MULTIPROCESSING", "0")
    options.setdefault("enforce_eager", True)
    try:
        import triton.backends
    except ImportError:
        raise Unavailable(
            f"needs the package triton for {INTERPRETED}=1, and it is not installed"
        ) from None
    triton.backends.backends.setdefault("cpu", SimpleNamespace(driver=None))


def _started(options: Mapping[str, Any]) -> tuple[Any, bool]:
    """Return the engine, and True if it was started to replay traces."""
    from vllm import LLM

    try:
        return LLM(**options, **{REPLAY: True}), True
    except Exception as error:
        # The version lacks replay, or the configuration excludes it.
        if not _is_refusal(error):
            raise
        if "replay" not in str(error):
            raise Unavailable(f"refuses to start ({_words(error)})") from error
    return LLM(**options), False


def _outputs(llm: Any, requests: Sequence[Sequence[Any]]) -> list[Output]:
    from vllm import SamplingParams

    params = [SamplingParams(**params) for _, params in requests]
    prompts = [prompt for prompt, _ in requests]
    inputs = [{"prompt_token_ids": prompt} for prompt in prompts]
    results = llm.generate(inputs, params, use_tqdm=False)
    if [result.prompt_token_ids for result in results] != prompts:
        raise RuntimeError("the engine answered other prompts than those sent")
    return list(map(output_of, results))


def _takes(llm: Any, request: EngineRequest) -> bool:
    try:
        _outputs(llm, [[request.prompt, request.params]])
    except Exception as error:
        if not _is_refusal(error):
            raise
        return False
    return True


def _prepare() -> Callable[[Record], Record]:
    options: dict[str, Any] = json.loads(sys.argv[2])
    if os.environ.get(INTERPRETED) == "1":
        _interpret(options)
    import vllm

    llm, replays = _started(options)

    config = llm.llm_engine.vllm_config
    longest = config.model_config.max_model_len
    if not _takes(llm, label_request(_TRIED, _TRIED, [], [])):
        raise Unavailable(
            f"{vllm.__version__} is too old (it has no logprob_token_ids); install a newer one"
        )
    ways = []
    if replays and _takes(llm, trace_request(_TRIED, _TRIED, [])):
        ways.append(TRACE)
    if _takes(llm, rows_request(_TRIED, _TRIED, [])):
        ways.append(ROWS)
    block = longest + 1
    if config.cache_config.enable_prefix_caching:
        block = config.cache_config.block_size
    vocabulary = config.model_config.get_vocab_size()
    facts = {
        "version": vllm.__version__,
        "device": vllm.platforms.current_platform.device_type,
        "dtype": str(config.model_config.dtype).removeprefix("torch."),
        "abilities": [[*ways, PLACES, PROMPTS], block, longest, vocabulary],
    }

    def answer(question: Record) -> Record:
        if "facts" in question:
            return facts
        batch = question["batch"]
        try:
            return {"batch": batch, "outputs": _outputs(llm, question["requests"])}
        except Exception as error:
            # The engine failed in a step, after which it never answers.
            if not _is_refusal(error) or llm.llm_engine.has_unfinished_requests():
                raise
            return {"batch": batch, "refused": _words(error)}

    return answer


def _is_refusal(error: Exception) -> bool:
    """Check that an error is about the request.

    vLLM's class for that is no ValueError, and not in every version.
    """
    names = [base.__name__ for base in type(error).mro()]
    return isinstance(error, TypeError | ValueError) or "VLLMClientError" in names


def _words(error: BaseException) -> str:
    return " ".join(str(error).split())[:300]


if __name__ == "__main__":
    serve(_prepare)
