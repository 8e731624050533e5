"""NEW the only child process: time, CPU, memory and environment limits; JSON or pickle over a pipe."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import weakref
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict
from threading import Lock
from time import monotonic
from typing import Any, ClassVar, NoReturn

from choicewise.errors import ChoicewiseError
from choicewise.util.isolated import CPU_SIGNAL, Limits

_START = 120.0
"""Seconds until the process is there; it may import a part of transformers."""

_ENVIRONMENT = ("PATH", "HOME", "LD_LIBRARY_PATH", "LANG", "OMP_NUM_THREADS")
"""What the process sees of the environment, which may hold tokens and passwords."""


class BoundedProcess:
    """The process of ``module``, which answers by :func:`choicewise.util.isolated.serve`.

    For what strangers wrote: a template can loop for ever, a file can unpack to gigabytes, and nothing in the same
    process stops either.  So another process has to do with it, within ``limits``; one that exceeds them is ended, and
    the next question starts a new one.  It sees nothing of the environment, gives JSON back, and ends with this process
    however that ends.  Several threads may ask; one at a time is answered.

    A subclass says in ``called`` what fails, in ``remedy`` what to do then, and in ``error`` what is raised.
    """

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
        """The answer; ``error`` where it says that it failed, or where the process ends or exceeds a limit.

        ``wait``: seconds that this one may take in all, where that is less than the limit.
        """
        with self._lock:
            process = self._process or self._start()
            try:
                assert process.stdin is not None
                process.stdin.write(json.dumps(question).encode() + b"\n")
                process.stdin.flush()
            except OSError:
                self._give_up("ended by itself")
            return self._receive(process, self.limits.wait if wait is None else wait)

    def _start(self) -> subprocess.Popen[bytes]:
        environment = {name: os.environ[name] for name in _ENVIRONMENT if name in os.environ}
        own = os.pathsep.join(path for path in sys.path if path)  # it finds the same modules as this process
        self._process = process = subprocess.Popen(
            [sys.executable, "-P", "-m", self.module, json.dumps(asdict(self.limits))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**environment, "PYTHONPATH": own, "HF_HUB_OFFLINE": "1"},
            start_new_session=True,  # Ctrl-C in a terminal is for this process, which ends the other one
        )
        self._end = weakref.finalize(self, _end, process)
        if self._closed:
            process.kill()
        self._receive(process, _START)
        return process

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
                self._give_up("was ended with its process" if self._closed else _reason(process.wait()))
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


def _reason(status: int) -> str:
    """Why the process ended, from its exit status: a signal where it is negative."""
    return "takes more than its time on the processor" if status == -CPU_SIGNAL else "ended its process"


def _end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            with suppress(OSError):  # what was still to be written has no reader any more
                pipe.close()
