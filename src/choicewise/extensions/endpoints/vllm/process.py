"""vLLM's engine in a process of its own: what starts, asks and ends it, and what runs inside.

An engine whose step fails never answers again, prints as it likes and takes the memory of a device, so it has a process
that is ended when it fails, says nothing for too long, or is no longer wanted.
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
"""Set to 1 where Triton's kernels are to run in its interpreter, on a machine without a GPU."""

REPLAY: Final = (
    "enable_trace_replay"  # vLLM's option, which is asked for and left out where it is refused
)
_SHOWN: Final = 3  # lines of what the engine printed that an error shows
_TRIED: Final = [1, 2]  # tokens with which every way is tried once


class EngineDied(ModelError):
    """The engine failed, ended or hung; what it was asked last has no answer."""


@dataclass(frozen=True, slots=True)
class EngineFacts:
    """What the engine that was started is: its version, its kind of device, its arithmetic, and what it can do."""

    version: str
    device: str
    dtype: str
    abilities: Abilities


class EngineProcess(BoundedProcess):
    """vLLM with these ``options``, the arguments of ``vllm.LLM``; started when it is first asked.

    Raises EngineDied where it fails, with the end of what it printed; the next question starts it anew.
    """

    module = "choicewise.extensions.endpoints.vllm.process"
    limits = Limits(seconds=None, wait=1800.0, memory=None, answer=1 << 30)
    called = "vLLM"
    remedy = "run the same command again to resume"
    error = EngineDied
    starting = 3600.0  # loading a large model from a slow disk

    def __init__(self, options: Mapping[str, Any]) -> None:
        super().__init__()
        self._options = dict(options)
        self._printed: IO[bytes] | None = None
        self._has_started = False

    def facts(self) -> EngineFacts:
        """What was started."""
        facts = self._ask({"facts": True}, self.starting)
        ways, *numbers = facts.pop("abilities")
        return EngineFacts(**facts, abilities=Abilities(tuple(ways), *numbers))

    def send(self, number: int, requests: Sequence[EngineRequest]) -> None:
        """Have batch ``number`` answered, after those that were sent before and are not received yet."""
        self._send(
            {
                "batch": number,
                "requests": [[request.prompt, request.params] for request in requests],
            }
        )

    def receive(self, number: int) -> list[Output] | str:
        """What came of batch ``number``, or why vLLM refused all of it; what came of those before it is dropped."""
        while True:
            if (process := self._process) is None:
                raise EngineDied("vLLM has ended")
            reply = self._receive(process, self.limits.wait)
            if reply.get("batch") == number:
                break
        refused = reply.get("refused")
        return refused if isinstance(refused, str) else [Output(*each) for each in reply["outputs"]]

    def _start(self) -> Any:
        process = super()._start()
        self._has_started = True
        return process

    def _arguments(self) -> Sequence[str]:
        return (json.dumps(self._options),)

    def _environment(self) -> dict[str, str]:
        return dict(os.environ)  # it is as trusted as this process, and configured by variables

    def _errors(self) -> IO[bytes]:
        self._printed = printed = tempfile.TemporaryFile()
        weakref.finalize(self, printed.close)
        return printed

    def _give_up(self, reason: str) -> NoReturn:
        self._drop()
        lines = self._last_lines()
        errors = [line for line in lines if "Error: " in line] or (
            lines if reason.startswith("ended") else []
        )
        errors = [] if reason.startswith("refuses") else errors  # which says it all
        shown = " | ".join(dict.fromkeys(line[:300] for line in errors[-_SHOWN:]))
        if shown:
            reason = f"{reason} (it printed: {shown})"
        remedy = self.remedy
        if not self._has_started:
            remedy = "mend that first: the same command would fail again"
        raise EngineDied(f"vLLM {reason}; {remedy}")

    def _last_lines(self) -> list[str]:
        """Of what the process printed."""
        if self._printed is None:
            return []
        size = self._printed.seek(0, os.SEEK_END)
        self._printed.seek(max(0, size - (1 << 16)))
        return [
            line.strip()
            for line in self._printed.read().decode(errors="replace").splitlines()
            if line.strip()
        ]


def _interpret(options: dict[str, Any]) -> None:
    """Have Triton's kernels run in its interpreter: the runner that replays traces needs Triton, and a CPU has none.

    Before vLLM is imported; everything in one process, whose Triton has a backend for this machine in name.
    """
    os.environ.setdefault("VLLM_USE_V2_MODEL_RUNNER", "1")
    os.environ.setdefault("VLLM_ENABLE_V1_MULTIPROCESSING", "0")
    options.setdefault("enforce_eager", True)
    try:
        import triton.backends
    except ImportError:
        raise Unavailable(
            f"is to interpret Triton's kernels ({INTERPRETED}=1), and triton is not installed"
        ) from None
    triton.backends.backends.setdefault("cpu", SimpleNamespace(driver=None))


def _started(options: Mapping[str, Any]) -> tuple[Any, bool]:
    """The engine, and whether it was started to replay traces."""
    from vllm import LLM

    try:
        return LLM(**options, **{REPLAY: True}), True
    except Exception as error:  # a version without it, or a configuration that excludes it
        if not _is_refusal(error):
            raise
        if "replay" not in str(error):
            raise Unavailable(f"refuses to start ({_words(error)})") from error
    return LLM(**options), False


def _prepare() -> Callable[[Record], Record]:
    options: dict[str, Any] = json.loads(sys.argv[2])
    if os.environ.get(INTERPRETED) == "1":
        _interpret(options)
    import vllm

    llm, replays = _started(options)

    def outputs(asked: Sequence[Sequence[Any]]) -> list[Output]:
        params = [vllm.SamplingParams(**params) for _, params in asked]
        prompts = [{"prompt_token_ids": prompt} for prompt, _ in asked]
        results = llm.generate(prompts, params, use_tqdm=False)
        if [result.prompt_token_ids for result in results] != [prompt for prompt, _ in asked]:
            raise RuntimeError("the engine answers other prompts than it was asked")
        return [*map(output_of, results)]

    def takes(request: EngineRequest) -> bool:
        try:
            outputs([[request.prompt, request.params]])
        except Exception as error:
            if not _is_refusal(error):
                raise
            return False
        return True

    config = llm.llm_engine.vllm_config
    longest = config.model_config.max_model_len
    if not takes(label_request(_TRIED, _TRIED, [], [])):
        raise Unavailable(f"{vllm.__version__} has no logprob_token_ids; install a newer one")
    ways = [TRACE] if replays and takes(trace_request(_TRIED, _TRIED, [])) else []
    ways += [ROWS] if takes(rows_request(_TRIED, _TRIED, [])) else []
    block = (
        config.cache_config.block_size if config.cache_config.enable_prefix_caching else longest + 1
    )
    abilities = [*ways, PLACES, PROMPTS], block, longest, config.model_config.get_vocab_size()
    device = vllm.platforms.current_platform.device_type
    dtype = str(config.model_config.dtype).removeprefix("torch.")
    facts = {"version": vllm.__version__, "device": device, "dtype": dtype, "abilities": abilities}

    def answer(question: Record) -> Record:
        if "facts" in question:
            return dict(facts)
        try:
            return {"batch": question["batch"], "outputs": outputs(question["requests"])}
        except Exception as error:
            if not _is_refusal(error) or llm.llm_engine.has_unfinished_requests():
                raise  # in a step, after which nothing is answered
            return {"batch": question["batch"], "refused": _words(error)}

    return answer


def _is_refusal(error: Exception) -> bool:
    """Whether it is about what was asked: vLLM's own class for that is no ValueError, and not in every version."""
    named = {base.__name__ for base in type(error).mro()}
    return isinstance(error, TypeError | ValueError) or "VLLMClientError" in named


def _words(error: BaseException) -> str:
    return " ".join(str(error).split())[:300]


if __name__ == "__main__":
    serve(_prepare)
