"""Run vLLM's engine in a process: start, ask and end it, and answer inside it.

An engine whose step fails never answers again, prints as it likes and takes the memory of a device,
so it has a process that is ended when it fails, is silent for too long, or is no longer wanted.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, NoReturn

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
from choicewise.util.isolate import Limits, Record, TrustedProcess, Unavailable, serve_together
from choicewise.util.jsonio import JsonDict, JsonMapping

INTERPRETED = "TRITON_INTERPRET"
"""The variable that is 1 if Triton's kernels run in its interpreter, on a machine without a GPU."""

REPLAY = "enable_trace_replay"
"""vLLM's option, which is left out if it is refused."""

# Lines that the engine printed, and that an error shows.
_SHOWN = 3

# Tokens with which every way is tried once.
_TRIED = [1, 2]


class EngineDied(ModelError):
    """The engine failed, ended or hung; its last requests have no answer."""


@dataclass(frozen=True)
class EngineFacts:
    """Describe a started engine: its version, its kind of device, its arithmetic and abilities."""

    version: str
    device: str
    dtype: str
    abilities: Abilities


class EngineProcess(TrustedProcess):
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

    def __init__(self, options: JsonMapping) -> None:
        super().__init__()
        self._options = dict(options)
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

    def send(self, number: int, request: EngineRequest) -> None:
        """Have request ``number`` answered together with those that are under way."""
        self._send({"number": number, "prompt": request.prompt, "params": request.params})

    def receive(self) -> tuple[int, Output | str]:
        """Return the number of the next request that ended, and its output or why it was refused."""
        if self._process is None:
            raise EngineDied("vLLM stopped")
        reply = self._receive(self._process, self.limits.wait)
        refused = reply.get("refused")
        if isinstance(refused, str):
            return reply["number"], refused
        return reply["number"], Output(*reply["output"])

    def _start(self) -> Any:
        process = super()._start()
        self._has_started = True
        return process

    def _arguments(self) -> Sequence[str]:
        return (json.dumps(self._options),)

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


def _interpret(options: JsonDict) -> None:
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


def _started(options: JsonMapping) -> tuple[Any, bool]:
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


class EngineWorker:
    """Add requests to vLLM while it computes others, and return each output as it ends."""

    def __init__(self, llm: Any) -> None:
        self._llm = llm
        self.facts: Record = {}
        # By vLLM's number of a request, ours and its prompt.
        self._under_way: dict[str, tuple[int, Sequence[int]]] = {}

    @property
    def is_busy(self) -> bool:
        """Check that a request is under way."""
        return bool(self._under_way)

    def take(self, question: Record) -> list[Record]:
        """Add a request; return why vLLM refuses it, or the facts if these are wanted."""
        if "facts" in question:
            return [self.facts]
        number = question["number"]
        try:
            self._add(number, question["prompt"], question["params"])
        except Exception as error:
            if not _is_refusal(error):
                raise
            return [{"number": number, "refused": _words(error)}]
        return []

    def step(self) -> list[Record]:
        """Compute a token of every request that fits; return the outputs of those that end."""
        replies = []
        for result in self._llm.llm_engine.step():
            if result.finished:
                number, prompt = self._under_way.pop(result.request_id)
                if list(result.prompt_token_ids) != list(prompt):
                    raise RuntimeError("the engine answered other prompts than those sent")
                replies.append({"number": number, "output": output_of(result)})
        return replies

    def takes(self, request: EngineRequest) -> bool:
        """Check that vLLM does not refuse a ``request``, by computing it."""
        refused = self.take({"number": 0, "prompt": request.prompt, "params": request.params})
        while self.is_busy:
            self.step()
        return not refused

    def _add(self, number: int, prompt: Sequence[int], params: JsonMapping) -> None:
        from vllm import SamplingParams

        inputs = {"prompt_token_ids": prompt}
        (name,) = self._llm.enqueue([inputs], [SamplingParams(**params)], use_tqdm=False)
        # vLLM adds random letters to the number that results have.
        self._under_way[name.partition("-")[0]] = (number, prompt)


def _prepare() -> EngineWorker:
    options: JsonDict = json.loads(sys.argv[2])
    if os.environ.get(INTERPRETED) == "1":
        _interpret(options)
    import vllm

    llm, replays = _started(options)
    engine = EngineWorker(llm)
    config = llm.llm_engine.vllm_config
    longest = config.model_config.max_model_len
    if not engine.takes(label_request(_TRIED, _TRIED, [], [])):
        raise Unavailable(
            f"{vllm.__version__} is too old (it has no logprob_token_ids); install a newer one"
        )
    ways = []
    if replays and engine.takes(trace_request(_TRIED, _TRIED, [])):
        ways.append(TRACE)
    if engine.takes(rows_request(_TRIED, _TRIED, [])):
        ways.append(ROWS)
    block = longest + 1
    if config.cache_config.enable_prefix_caching:
        block = config.cache_config.block_size
    vocabulary = config.model_config.get_vocab_size()
    engine.facts = {
        "version": vllm.__version__,
        "device": vllm.platforms.current_platform.device_type,
        "dtype": str(config.model_config.dtype).removeprefix("torch."),
        "abilities": [[*ways, PLACES, PROMPTS], block, longest, vocabulary],
    }
    return engine


def _is_refusal(error: Exception) -> bool:
    """Check that an error is about the request.

    vLLM's class for that is no ValueError, and not in every version.
    """
    names = [base.__name__ for base in type(error).mro()]
    return isinstance(error, TypeError | ValueError) or "VLLMClientError" in names


def _words(error: BaseException) -> str:
    return " ".join(str(error).split())[:300]


if __name__ == "__main__":
    serve_together(_prepare)
