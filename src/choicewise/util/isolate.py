"""Have a process with limits of time, memory and environment answer questions, as lines of JSON."""

from __future__ import annotations

import json
import os
import resource
import select
import signal
import subprocess
import sys
import tempfile
import weakref
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from queue import SimpleQueue
from threading import Lock, Thread
from time import monotonic
from typing import IO, Any, ClassVar, NoReturn, Protocol, TypeVar

from choicewise.errors import ChoicewiseError

Record = dict[str, Any]
_T = TypeVar("_T")

# SIGXCPU, which ends the process when its time is over.
CPU_SIGNAL = 24

_REASONS = {-CPU_SIGNAL: "takes too much processor time"}
"""Why a process has ended, by its exit status."""

_ENVIRONMENT = ("PATH", "HOME", "LD_LIBRARY_PATH", "LANG", "OMP_NUM_THREADS")
"""The variables that the process sees of the environment, which may hold tokens and passwords."""

_TAIL = 1 << 16
"""Bytes at the end of what a process printed that are read for a message."""


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Limits of one answer.

    ``seconds`` of the processor, and ``wait`` in all; ``memory``: bytes of data beyond those of the
    process before the first question; ``answer``: bytes of JSON; ``written``: bytes of a file.
    None: the code there is trusted with the machine, and only time in all and the answer are
    bounded.
    """

    seconds: int | None
    wait: float
    memory: int | None
    answer: int
    written: int = 0


class BoundedProcess:
    """Start the process of ``module``, which answers by :func:`choicewise.util.isolate.serve`.

    For files of strangers: a template can loop for ever, a file can unpack to gigabytes, and
    nothing in the same process stops either.  So another process reads them, within ``limits``; one
    that exceeds them is ended, and the next question starts a new one.  It sees nothing of the
    environment, gives JSON back, and ends with this process however that ends, with all processes
    that it has started.  Several threads may ask; one at a time is answered.

    A subclass says in ``called`` what fails, in ``remedy`` what to do then, and in ``error`` what
    is raised.  The process is ready within ``starting`` seconds; it may import a part of
    transformers.
    """

    starting: ClassVar[float] = 120.0

    module: ClassVar[str]
    limits: ClassVar[Limits]
    called: ClassVar[str]
    remedy: ClassVar[str]
    error: ClassVar[type[ChoicewiseError]]

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._lock = Lock()
        self._closed = False
        # What was read after the end of the last answer.
        self._rest = b""

    def close(self) -> None:
        """End the process, also in the middle of an answer; later questions raise ``error``."""
        self._closed = True
        # Another thread may drop the process meanwhile.
        process = self._process
        if process is not None:
            process.kill()
        with self._lock:
            self._drop()

    def _ask(self, question: Mapping[str, Any], wait: float | None = None) -> dict[str, Any]:
        """Return the answer.

        ``error`` if it says that it failed, or if the process ends or exceeds a limit.
        """
        if wait is None:
            wait = self.limits.wait
        with self._lock:
            return self._receive(self._send(question), wait)

    def _send(self, question: Mapping[str, Any]) -> subprocess.Popen[bytes]:
        """Send a question; return the process, which may have others to answer first."""
        process = self._process or self._start()
        try:
            assert process.stdin is not None
            process.stdin.write(json.dumps(question).encode() + b"\n")
            process.stdin.flush()
        except OSError:
            self._give_up(self._why_ended(process.poll()))
        return process

    def _start(self) -> subprocess.Popen[bytes]:
        limits = json.dumps(asdict(self.limits))
        command = [sys.executable, "-P", "-m", self.module, limits, *self._arguments()]
        # It finds the same modules as this process.
        search_path = os.pathsep.join(filter(None, sys.path))
        self._process = process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors(),
            env={**self._environment(), "PYTHONPATH": search_path, "HF_HUB_OFFLINE": "1"},
            pass_fds=self._inherited(),
            # Ctrl-C in a terminal is for this process, which ends the other one.
            start_new_session=True,
        )
        self._end = weakref.finalize(self, _end, process)
        if self._closed:
            process.kill()
        self._rest = b""
        self._receive(process, self.starting)
        return process

    def _arguments(self) -> Sequence[str]:
        """Return the arguments of the process after its limits."""
        return ()

    def _inherited(self) -> Sequence[int]:
        """Return the open files that the process has, too."""
        return ()

    def _environment(self) -> dict[str, str]:
        """Return the environment of the process."""
        return {name: os.environ[name] for name in _ENVIRONMENT if name in os.environ}

    def _errors(self) -> int | IO[bytes]:
        """Return where the messages of the process go."""
        return subprocess.DEVNULL

    def _receive(self, process: subprocess.Popen[bytes], seconds: float) -> dict[str, Any]:
        assert process.stdout is not None
        pipe = process.stdout.fileno()
        end = monotonic() + seconds
        parts = [self._rest]
        size = len(self._rest)
        while b"\n" not in parts[-1]:
            ready, _, _ = select.select([pipe], [], [], max(end - monotonic(), 0))
            if not ready:
                self._give_up(f"gives no answer within {seconds:.0f} seconds")
            part = os.read(pipe, 1 << 20)
            size += len(part)
            if not part:
                self._give_up(self._why_ended(process.wait()))
            if size > self.limits.answer:
                self._give_up(f"returns more than {self.limits.answer >> 20} MB")
            parts.append(part)
        line, _, self._rest = b"".join(parts).partition(b"\n")
        answer: dict[str, Any] = json.loads(line)
        failure = answer.get("failed")
        if failure is not None:
            self._give_up(failure)
        return answer

    def _why_ended(self, status: int | None) -> str:
        if self._closed:
            return "was stopped with its process"
        # None: it no longer listens, and is about to end.
        return _REASONS.get(status or 0, "ended unexpectedly")

    def _give_up(self, reason: str) -> NoReturn:
        self._drop()
        raise self.error(f"{self.called} {reason}; {self.remedy}")

    def _drop(self) -> None:
        if self._process is not None:
            self._process = None
            self._end()


class TrustedProcess(BoundedProcess):
    """Start a process that is as trusted as this one, and is configured by the same variables.

    What it prints is kept, to show the end of it if the process fails.
    """

    def __init__(self) -> None:
        super().__init__()
        self._printed: IO[bytes] | None = None

    def _environment(self) -> dict[str, str]:
        return dict(os.environ)

    def _errors(self) -> IO[bytes]:
        self._printed = tempfile.TemporaryFile()
        weakref.finalize(self, self._printed.close)
        return self._printed

    def _last_lines(self) -> list[str]:
        """Return the last lines that the process printed, without empty ones."""
        if self._printed is None:
            return []
        size = self._printed.seek(0, os.SEEK_END)
        self._printed.seek(max(0, size - _TAIL))
        text = self._printed.read().decode(errors="replace")
        return [line.strip() for line in text.splitlines() if line.strip()]


class ValueProcess(TrustedProcess):
    """Start a process that answers values of Python by :func:`serve_values`.

    Both run the code of this package, and send values as the processes of ``multiprocessing`` do.
    One of those would run the user's script a second time.
    """

    limits = Limits(seconds=None, wait=1e8, memory=None, answer=1 << 20)
    called = "a child process"
    remedy = "its work is done here"
    error = ChoicewiseError

    def __init__(self) -> None:
        super().__init__()
        # Other processes start sooner without it.
        from multiprocessing import Pipe

        self._values, self._far_end = Pipe()

    def exchange(self, value: Any) -> Any:
        """Return the answer to ``value``; None, here and from then on, if anything fails."""
        if self._closed:
            return None
        try:
            with self._lock:
                process = self._send({})
                self._values.send(value)
                answer = self._values.recv()
                self._receive(process, self.limits.wait)
        except Exception:
            # The caller does the work itself, which fails with its own message, or not at all.
            answer = None
        if answer is None:
            self.close()
        return answer

    def _start(self) -> subprocess.Popen[bytes]:
        process = super()._start()
        # The process has the only other end, so that its death ends the wait for an answer.
        self._far_end.close()
        return process

    def _arguments(self) -> Sequence[str]:
        return [str(self._far_end.fileno())]

    def _inherited(self) -> Sequence[int]:
        return [self._far_end.fileno()]


class Unavailable(Exception):
    """The process can't answer anything, for this reason."""


def serve(prepare: Callable[[], Callable[[Record], Record]]) -> None:
    """Answer questions by the function that ``prepare`` returns, until the process that asks is
    gone.

    The limits are the argument of the process.  An answer with ``failed``, a reason, is the last
    one.
    """
    channel = _Channel()
    answer = channel.prepared(prepare)
    while True:
        question = json.loads(channel.questions.get())
        if channel.limits.seconds is not None:
            _limit_time(channel.limits.seconds)
        try:
            reply = answer(question)
        except Exception as error:
            reply = channel.failure(error)
        channel.send(reply)


def serve_values(answer: Callable[[Any], Any]) -> None:
    """Answer the values of a :class:`ValueProcess`; None if ``answer`` fails."""
    from multiprocessing.connection import Connection

    values = Connection(int(sys.argv[2]))

    def exchange(_: Record) -> Record:
        try:
            values.send(answer(values.recv()))
        except Exception:
            values.send(None)
        return {}

    serve(lambda: exchange)


class Worker(Protocol):
    """Compute the answers to several questions together, step by step."""

    @property
    def is_busy(self) -> bool:
        """Check that a question is under way."""

    def take(self, question: Record) -> Sequence[Record]:
        """Begin to answer a question; return the answers that are there at once."""

    def step(self) -> Sequence[Record]:
        """Compute for a while; return the answers that are complete with it."""


def serve_together(prepare: Callable[[], Worker]) -> None:
    """Answer by the worker that ``prepare`` returns, which takes questions while it computes."""
    channel = _Channel()
    worker = channel.prepared(prepare)
    while True:
        try:
            replies = list[Record]()
            while not channel.questions.empty() or not (worker.is_busy or replies):
                replies += worker.take(json.loads(channel.questions.get()))
            if worker.is_busy:
                replies += worker.step()
        except Exception as error:
            channel.send(channel.failure(error))
            channel.wait()
        channel.send(*replies)


class _Channel:
    """Read questions in a thread, and write answers."""

    def __init__(self) -> None:
        self.limits = Limits(**json.loads(sys.argv[1]))
        self.questions = SimpleQueue[bytes]()
        self._answers = os.fdopen(os.dup(1), "wb")
        # The output of a library is no answer.
        os.dup2(2, 1)
        Thread(target=_read, args=(self.questions,), daemon=True).start()

    def prepared(self, prepare: Callable[[], _T]) -> _T:
        """Return what ``prepare`` does, and tell that it is ready; wait for the end if it is not."""
        try:
            result = prepare()
        except Unavailable as reason:
            self.send({"failed": str(reason)})
            self.wait()
        _limit_process(self.limits)
        self.send({"ready": "yes"})
        return result

    def wait(self) -> NoReturn:
        """Wait until the process that asks ends this one."""
        while True:
            self.questions.get()

    def send(self, *replies: Record) -> None:
        """Write ``replies``, each on a line."""
        for reply in replies:
            self._answers.write(json.dumps(reply).encode() + b"\n")
        self._answers.flush()

    def failure(self, error: Exception) -> Record:
        """Return the last answer, which says why there are no more."""
        match error:
            case MemoryError():
                most = "there is"
                if self.limits.memory is not None:
                    most = f"{self.limits.memory >> 20} MB"
                return {"failed": f"takes more than {most} of memory"}
            case RecursionError():
                return {"failed": "calls itself without end"}
        return {"failed": f"fails ({type(error).__name__}: {str(error)[:200]})"}


def _end(process: subprocess.Popen[bytes]) -> None:
    with suppress(ProcessLookupError, PermissionError):
        # It leads a session, so the group is all that it has started.
        os.killpg(process.pid, signal.SIGKILL)
    process.kill()
    process.wait()
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            # The rest of a question has no reader any more.
            with suppress(OSError):
                pipe.close()


def _read(questions: SimpleQueue[bytes]) -> None:
    """Pass the questions on; their end is the end of this process, whatever it is doing."""
    for line in sys.stdin.buffer:
        questions.put(line)
    # A leader of a group ends all that it has started, too.
    if os.getpgrp() == os.getpid():
        os.killpg(os.getpgrp(), signal.SIGKILL)
    os._exit(0)


def _limit_time(seconds: int) -> None:
    """Bound the time on the processor from now on; the system counts from the start of the process."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    used = int(usage.ru_utime + usage.ru_stime) + 1
    _, hard = resource.getrlimit(resource.RLIMIT_CPU)
    resource.setrlimit(resource.RLIMIT_CPU, (used + seconds, hard))


def _limit_process(limits: Limits) -> None:
    """Bound memory and the size of files, if the system can do that.

    Memory is what can be written to: address space alone costs nothing, and V8, which draws charts,
    reserves 34 GB.
    """
    if limits.memory is None:
        return
    try:
        with open("/proc/self/statm") as file:
            data = int(file.read().split()[5]) * resource.getpagesize()
    except OSError:
        # macOS bounds neither.
        return
    resource.setrlimit(resource.RLIMIT_DATA, (data + limits.memory, data + limits.memory))
    resource.setrlimit(resource.RLIMIT_FSIZE, (limits.written, limits.written))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
