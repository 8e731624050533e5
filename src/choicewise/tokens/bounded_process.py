"""A process that fills templates, seen from outside: started once, asked line by line, ended in time."""

import json
import os
import select
import subprocess
import sys
import weakref
from collections.abc import Mapping
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from time import monotonic
from typing import Any, ClassVar, NoReturn

from choicewise.errors import ChoicewiseError
from choicewise.tokens import chat_worker

START = 120.0
"""Seconds until the process is there; it may import a part of transformers."""

_KEPT = ("PATH", "HOME", "PYTHONPATH", "LD_LIBRARY_PATH", "LANG", "SYSTEMROOT")
"""What the process sees of the environment, which may hold tokens and passwords."""


class BoundedProcess:
    """The process of ``script``, which answers lines of JSON; ``first`` is the line before all others, if there is one.

    A template can loop for ever and multiply texts to gigabytes, which no sandbox in the same process stops.  So
    another process fills it: it may use ``chat_worker.SECONDS`` of the processor for a line and ``chat_worker.MEMORY``
    bytes, gives at most ``chat_worker.CHARACTERS`` back, writes no file and sees nothing of the environment.

    A subclass says in ``called`` what fails, in ``remedy`` what to do then, and in ``error`` what is raised.
    """

    called: ClassVar[str]
    remedy: ClassVar[str]
    error: ClassVar[type[ChoicewiseError]]

    def __init__(self, script: str, first: Mapping[str, Any] | None = None) -> None:
        self._script, self._first = Path(script), first

    @cached_property
    def _process(self) -> "subprocess.Popen[bytes]":
        environment = {name: os.environ[name] for name in _KEPT if name in os.environ}
        process = subprocess.Popen(
            [sys.executable, "-P", str(self._script)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=environment | {"HF_HUB_OFFLINE": "1"},
        )
        weakref.finalize(self, _end, process)
        return process

    def _ask(self, question: Mapping[str, Any], seconds: float) -> dict[str, Any]:
        """The answer, which comes within ``seconds``; ``error`` where the template fails or the process ends."""
        if "_process" not in self.__dict__:
            if self._first is not None:
                self._send(self._first)
            else:
                self._process  # noqa: B018, starts it
            self._receive(START)
        self._send(question)
        return self._receive(seconds)

    def _send(self, line: Mapping[str, Any]) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(line).encode() + b"\n")
            self._process.stdin.flush()
        except OSError:
            self._give_up("ended by itself")

    def _receive(self, seconds: float) -> dict[str, Any]:
        assert self._process.stdout is not None
        pipe, parts, size, end = self._process.stdout.fileno(), [b""], 0, monotonic() + seconds
        while not parts[-1].endswith(b"\n"):
            ready, _, _ = select.select([pipe], [], [], max(end - monotonic(), 0))
            if not ready:
                self._give_up(f"gives no text within {seconds:.0f} seconds")
            part = os.read(pipe, 1 << 20)
            size += len(part)
            if not part:
                self._give_up(_reason(self._process.wait()))
            if size > 12 * chat_worker.CHARACTERS:  # a character takes at most 12 bytes in JSON
                self._give_up(chat_worker.TOO_LONG)
            parts.append(part)
        answer: dict[str, Any] = json.loads(b"".join(parts))
        if (failed := answer.get("failed")) is not None:
            self._give_up(failed)
        return answer

    def _give_up(self, reason: str) -> NoReturn:
        _end(self._process)
        del self._process
        raise self.error(f"{self.called} {reason}; {self.remedy}")


def _reason(status: int) -> str:
    """Why the process ended, from its exit status: a signal where it is negative."""
    return "takes more than its time on the processor" if status == -chat_worker.CPU_SIGNAL else "ended its process"


def _end(process: "subprocess.Popen[bytes]") -> None:
    process.kill()
    process.wait()
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            with suppress(OSError):  # what was still to be written has no reader any more
                pipe.close()
