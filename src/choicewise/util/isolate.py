"""A process with limits of time, memory and environment: from outside, and what runs in it; lines of JSON between."""

from __future__ import annotations

import json
import os
import resource
import select
import signal
import subprocess
import sys
import weakref
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from queue import SimpleQueue
from threading import Lock, Thread
from time import monotonic
from typing import IO, Any, ClassVar, NoReturn

from choicewise.errors import ChoicewiseError

Record = dict[str, Any]
CPU_SIGNAL = 24  # SIGXCPU, which ends the process when its time is over
_REASONS = {-CPU_SIGNAL: "takes more than its time on the processor"}  # by exit status

_ENVIRONMENT = ("PATH", "HOME", "LD_LIBRARY_PATH", "LANG", "OMP_NUM_THREADS")
"""What the process sees of the environment, which may hold tokens and passwords."""


@dataclass(frozen=True)
class Limits:
    """What one answer may take.

    ``seconds`` of the processor, and ``wait`` in all; ``memory``: bytes of data beyond what the process has before the
    first question; ``answer``: bytes of JSON; ``written``: bytes of a file.  None: what runs there is trusted with the
    machine, and only time in all and the answer are bounded.
    """

    seconds: int | None
    wait: float
    memory: int | None
    answer: int
    written: int = 0


class BoundedProcess:
    """The process of ``module``, which answers by :func:`choicewise.util.isolate.serve`.

    For what strangers wrote: a template can loop for ever, a file can unpack to gigabytes, and nothing in the same
    process stops either.  So another process has to do with it, within ``limits``; one that exceeds them is ended, and
    the next question starts a new one.  It sees nothing of the environment, gives JSON back, and ends with this process
    however that ends, as do those that it starts.  Several threads may ask; one at a time is answered.

    A subclass says in ``called`` what fails, in ``remedy`` what to do then, and in ``error`` what is raised.  The
    process is ready within ``starting`` seconds; it may import a part of transformers.
    """

    starting: ClassVar[float] = 120.0

    module: ClassVar[str]
    limits: ClassVar[Limits]
    called: ClassVar[str]
    remedy: ClassVar[str]
    error: ClassVar[type[ChoicewiseError]]

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._lock, self._closed = Lock(), False

    def close(self) -> None:
        """End the process, also in the middle of an answer; whoever asks from now on gets ``error``."""
        self._closed = True
        if (process := self._process) is not None:
            process.kill()
        with self._lock:
            self._drop()

    def _ask(self, question: Mapping[str, Any], wait: float | None = None) -> dict[str, Any]:
        """The answer; ``error`` where it says that it failed, or where the process ends or exceeds a limit."""
        with self._lock:
            return self._receive(self._send(question), self.limits.wait if wait is None else wait)

    def _send(self, question: Mapping[str, Any]) -> subprocess.Popen[bytes]:
        """Have a question answered; the process, which may have others before it."""
        process = self._process or self._start()
        try:
            assert process.stdin is not None
            process.stdin.write(json.dumps(question).encode() + b"\n")
            process.stdin.flush()
        except OSError:
            self._give_up("ended by itself")
        return process

    def _start(self) -> subprocess.Popen[bytes]:
        own = os.pathsep.join(
            path for path in sys.path if path
        )  # it finds the same modules as this process
        self._process = process = subprocess.Popen(
            [
                sys.executable,
                "-P",
                "-m",
                self.module,
                json.dumps(asdict(self.limits)),
                *self._arguments(),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors(),
            env={**self._environment(), "PYTHONPATH": own, "HF_HUB_OFFLINE": "1"},
            start_new_session=True,  # Ctrl-C in a terminal is for this process, which ends the other one
        )
        self._end = weakref.finalize(self, _end, process)
        if self._closed:
            process.kill()
        self._receive(process, self.starting)
        return process

    def _arguments(self) -> Sequence[str]:
        """Of the process, after its limits."""
        return ()

    def _environment(self) -> dict[str, str]:
        """What the process sees of the environment."""
        return {name: os.environ[name] for name in _ENVIRONMENT if name in os.environ}

    def _errors(self) -> int | IO[bytes]:
        """Where what the process prints goes."""
        return subprocess.DEVNULL

    def _receive(self, process: subprocess.Popen[bytes], seconds: float) -> dict[str, Any]:
        assert process.stdout is not None
        pipe, parts, size, end = process.stdout.fileno(), [b""], 0, monotonic() + seconds
        while not parts[-1].endswith(b"\n"):
            ready, _, _ = select.select([pipe], [], [], max(end - monotonic(), 0))
            if not ready:
                self._give_up(f"gives no answer within {seconds:.0f} seconds")
            part = os.read(pipe, 1 << 20)
            size += len(part)
            if not part:
                self._give_up(
                    "was ended with its process"
                    if self._closed
                    else _REASONS.get(process.wait(), "ended its process")
                )
            if size > self.limits.answer:
                self._give_up(f"gives more than {self.limits.answer >> 20} MB")
            parts.append(part)
        answer: dict[str, Any] = json.loads(b"".join(parts))
        if (failed := answer.get("failed")) is not None:
            self._give_up(failed)
        return answer

    def _give_up(self, reason: str) -> NoReturn:
        self._drop()
        raise self.error(f"{self.called} {reason}; {self.remedy}")

    def _drop(self) -> None:
        if self._process is not None:
            self._process = None
            self._end()


class Unavailable(Exception):
    """The process can't answer anything, for this reason."""


def serve(prepare: Callable[[], Callable[[Record], Record]]) -> None:
    """Answer questions by the function that ``prepare`` returns, until the process that asks is gone.

    The limits are the argument of the process.  An answer with ``failed``, a reason, is the last one.
    """
    limits = Limits(**json.loads(sys.argv[1]))
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what a library prints is no answer
    questions = SimpleQueue[bytes]()
    Thread(target=_read, args=(questions,), daemon=True).start()

    def send(reply: Record) -> None:
        answers.write(json.dumps(reply).encode() + b"\n")
        answers.flush()

    try:
        answer, ready = prepare(), {"ready": "yes"}
    except Unavailable as reason:
        ready = {"failed": str(reason)}
    _limit_process(limits)
    send(ready)
    while True:
        question = json.loads(questions.get())
        if limits.seconds is not None:
            used, hard = (
                resource.getrusage(resource.RUSAGE_SELF),
                resource.getrlimit(resource.RLIMIT_CPU)[1],
            )
            resource.setrlimit(
                resource.RLIMIT_CPU, (int(used.ru_utime + used.ru_stime) + 1 + limits.seconds, hard)
            )
        try:
            reply = answer(question)
        except MemoryError:
            most = "there is" if limits.memory is None else f"{limits.memory >> 20} MB"
            reply = {"failed": f"takes more than {most} of memory"}
        except RecursionError:
            reply = {"failed": "calls itself without end"}
        except Exception as error:
            reply = {"failed": f"fails ({type(error).__name__}: {str(error)[:200]})"}
        send(reply)


def _end(process: subprocess.Popen[bytes]) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(
            process.pid, signal.SIGKILL
        )  # it leads a session of its own: the group is what it started
    process.kill()
    process.wait()
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            with suppress(OSError):  # what was still to be written has no reader any more
                pipe.close()


def _read(questions: SimpleQueue[bytes]) -> None:
    """Pass the questions on; their end is the end of this process, whatever it is at."""
    for line in sys.stdin.buffer:
        questions.put(line)
    if os.getpgrp() == os.getpid():  # with all that it started
        os.killpg(os.getpgrp(), signal.SIGKILL)
    os._exit(0)


def _limit_process(limits: Limits) -> None:
    """Bound memory and the size of files, where the system can do that.

    Memory is what can be written to: address space alone costs nothing, and V8, which draws charts, reserves 34 GB.
    """
    if limits.memory is None:
        return
    try:
        with open("/proc/self/statm") as file:
            data = int(file.read().split()[5]) * resource.getpagesize()
    except OSError:  # macOS bounds neither
        return
    resource.setrlimit(resource.RLIMIT_DATA, (data + limits.memory, data + limits.memory))
    resource.setrlimit(resource.RLIMIT_FSIZE, (limits.written, limits.written))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
