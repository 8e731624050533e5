"""The inside of a process with limits: reads questions and writes answers, a line of JSON each.

Imports the standard library alone, so that such a process starts fast.
"""

from __future__ import annotations

import json
import os
import resource
import sys
from collections.abc import Callable
from dataclasses import dataclass
from queue import SimpleQueue
from threading import Thread
from typing import Any


@dataclass(frozen=True)
class Limits:
    """What one answer may take.

    ``seconds`` of the processor, and ``wait`` in all; ``memory``: bytes of data beyond what the process has before the
    first question; ``answer``: bytes of JSON; ``written``: bytes of a file.
    """

    seconds: int
    wait: float
    memory: int
    answer: int
    written: int = 0


class Unavailable(Exception):
    """The process can't answer anything, for this reason."""


Record = dict[str, Any]


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
        _limit_time(limits)
        try:
            reply = answer(question)
        except MemoryError:
            reply = {"failed": f"takes more than {limits.memory >> 20} MB of memory"}
        except RecursionError:
            reply = {"failed": "calls itself without end"}
        except Exception as error:
            reply = {"failed": f"fails ({type(error).__name__}: {str(error)[:200]})"}
        send(reply)


def _read(questions: SimpleQueue[bytes]) -> None:
    """Pass the questions on; their end is the end of this process, whatever it is at."""
    for line in sys.stdin.buffer:
        questions.put(line)
    os._exit(0)


def _limit_process(limits: Limits) -> None:
    """Bound memory and the size of files, where the system can do that.

    Memory is what can be written to: address space alone costs nothing, and V8, which draws charts, reserves 34 GB.
    """
    try:
        with open("/proc/self/statm") as file:
            data = int(file.read().split()[5]) * resource.getpagesize()
    except OSError:  # macOS bounds neither
        return
    resource.setrlimit(resource.RLIMIT_DATA, (data + limits.memory, data + limits.memory))
    resource.setrlimit(resource.RLIMIT_FSIZE, (limits.written, limits.written))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _limit_time(limits: Limits) -> None:
    """Allow so many seconds more of the processor."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    hard = resource.getrlimit(resource.RLIMIT_CPU)[1]
    resource.setrlimit(resource.RLIMIT_CPU, (int(used.ru_utime + used.ru_stime) + 1 + limits.seconds, hard))


CPU_SIGNAL = 24
"""SIGXCPU, which ends the process when its time is over."""
