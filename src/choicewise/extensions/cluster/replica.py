"""Answer shards by copies of a model, in processes of this machine or elsewhere."""

from __future__ import annotations

import os
import platform
import socket
import sys
import traceback
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from queue import SimpleQueue
from subprocess import DEVNULL, Popen, TimeoutExpired
from threading import Thread
from typing import Any, Protocol

import pyarrow as pa

from choicewise import __version__
from choicewise.engine import Shard
from choicewise.errors import ChoicewiseError, ModelError, UsageError
from choicewise.models.load import load_model
from choicewise.models.local.devices import is_shared
from choicewise.models.model import Model, Recipe, SelfCheck
from choicewise.records import OBSERVATIONS
from choicewise.running.observe import observe
from choicewise.store.tables import make_table

DEATHS = 3
"""How often a replica may die over one shard, or before it has loaded its model."""


class Replica(Protocol):
    """Answer one shard after the other by a copy of the model elsewhere.

    A future raises :class:`ReplicaDied`, after which the replica can be loaded anew, or the error
    of the model.
    """

    def load(self) -> Future[None]:
        """Load the model, and try again if the replica dies over that."""

    def answer(self, shard: Shard) -> Future[Answered]:
        """Return the answers to all of a shard."""

    def end(self) -> None:
        """End the replica; futures that are left are of no use."""


class ReplicaDied(Exception):
    """Report that a replica is gone with all its shards; the message says what is known of it."""


@dataclass(frozen=True)
class Answered:
    """Hold the ``observations`` of a shard, as a table of the run folder.

    ``computed``: input tokens for it, without those of a self-check; None if they are not counted.
    """

    observations: pa.Table
    computed: int | None
    selfcheck: SelfCheck | None


@dataclass(frozen=True)
class Identity:
    """Identify the model that a process has loaded; a replica compares it with that of the driver."""

    digest: str
    dtype: str
    window: int
    version: str

    @classmethod
    def of(cls, model: Model) -> Identity:
        """Return the identity of ``model`` in this process; UsageError if it is a part, which no
        other process could compare.
        """
        if is_shared(model.device):
            raise UsageError(
                f"{model.name} is shared by processes that torchrun started; leave further workers out"
            )
        return cls(model.digest, model.dtype, model.window, __version__)

    def differences(self, other: Identity) -> list[str]:
        """Return in words what differs from ``other``."""
        words = {
            "digest": "weights or configuration",
            "dtype": "dtype",
            "window": "window",
            "version": "Choicewise",
        }
        pairs = [(what, getattr(self, name), getattr(other, name)) for name, what in words.items()]
        return [
            f"{what}: {_short(there)} there, {_short(here)} here"
            for what, there, here in pairs
            if there != here
        ]


class LoadedModel:
    """Hold the model of a ``recipe`` in this process, on ``device`` if one is named.

    Raises ModelError if it differs from that of the ``driver``, and the errors of load_model.
    """

    def __init__(self, recipe: Recipe, device: str | None, driver: Identity) -> None:
        options = dict(recipe.options)
        if device is not None:
            options["device"] = device
        self._model = load_model(recipe.name, **options)
        # The self-check loads the weights.
        self._model.check(0)
        if differences := Identity.of(self._model).differences(driver):
            raise ModelError(f"has another model under the same name ({'; '.join(differences)})")

    def answer(self, shard: Shard) -> Answered:
        """Return the answers to all of a shard; errors are those of the model."""
        # Checked before counting: no run counts the tokens of a self-check.
        self._model.check(shard.depth)
        before = self._model.computed
        rows = list(observe(self._model, shard.questions))
        computed = None if before is None else (self._model.computed or 0) - before
        return Answered(make_table(OBSERVATIONS, rows), computed, self._model.check(0))


def outcome(call: Callable[..., Any], *arguments: object) -> Any:
    """Return what ``call`` returns, or the error that it raises. An unexpected error is printed,
    and is a death.
    """
    try:
        return call(*arguments)
    except ChoicewiseError as error:
        return error
    except Exception as error:
        traceback.print_exception(error)
        words = traceback.format_exception_only(error)[-1].strip()
        for frame in traceback.extract_tb(error.__traceback__)[-1:]:
            words += f", {Path(frame.filename).name} line {frame.lineno}"
        return ReplicaDied(words)


def loaded_here(recipe: Recipe, device: str | None, driver: Identity) -> LoadedModel | Exception:
    """Return the model in this process, or why it can't be loaded, with the name of the machine."""
    loaded: LoadedModel | Exception = outcome(LoadedModel, recipe, device, driver)
    if isinstance(loaded, ChoicewiseError):
        return loaded.within(f"the replica on {platform.node()}")
    return loaded


def _short(value: object) -> object:
    return value[:12] if isinstance(value, str) else value


_START = "from choicewise.extensions.cluster.replica import main; main()"
"""With ``-m`` the classes of this file would be those of ``__main__``, which the driver does not know."""

_END_SECONDS = 5.0


class ProcessReplica:
    """Run a replica in a process with so many ``threads``, unless OMP_NUM_THREADS says how many.

    The other arguments are those of :class:`LoadedModel`. The process is started as a program, not
    forked or spawned, so that a script that evaluates is not run again in it.
    """

    def __init__(self, recipe: Recipe, device: str | None, driver: Identity, threads: int) -> None:
        self._loading = (recipe, device, driver)
        self._threads = threads
        self._caller = ThreadPoolExecutor(1)
        self._process: Popen[bytes] | None = None
        self._connection: Connection | None = None
        self._ended = False

    def load(self) -> Future[None]:
        """Start the process, and load the model there."""
        return self._caller.submit(self._load)

    def answer(self, shard: Shard) -> Future[Answered]:
        """Return the answers to all of a shard."""
        return self._caller.submit(self._call, shard)

    def end(self) -> None:
        """End the process."""
        self._ended = True
        self._caller.shutdown(wait=False, cancel_futures=True)
        self._kill()

    def _load(self) -> None:
        for death in range(1, DEATHS + 1):
            self._kill()
            try:
                self._start()
                self._call(self._loading)
                return
            except ReplicaDied:
                if death == DEATHS or self._ended:
                    raise

    def _start(self) -> None:
        ours, theirs = socket.socketpair()
        # It finds the modules that this process finds.
        modules = os.pathsep.join(path for path in sys.path if path)
        environment = {"OMP_NUM_THREADS": str(self._threads), **os.environ, "PYTHONPATH": modules}
        command = [sys.executable, "-P", "-c", _START, str(theirs.fileno())]
        # In a session of its own: Ctrl-C is for the driver, which ends them.  What a model prints is no result.
        with theirs:
            self._process = Popen(
                command,
                stdin=DEVNULL,
                stdout=DEVNULL,
                env=environment,
                pass_fds=(theirs.fileno(),),
                start_new_session=True,
            )
        self._connection = Connection(ours.detach())
        if self._ended:
            self._kill()

    def _call(self, message: object) -> Any:
        process = self._process
        connection = self._connection
        if process is None or connection is None:
            raise ReplicaDied("its process has ended")
        try:
            connection.send(message)
            answer = connection.recv()
        except (EOFError, OSError):
            # The process ended, maybe within a message.
            raise ReplicaDied(_ending(process)) from None
        if isinstance(answer, Exception):
            raise answer
        return answer

    def _kill(self) -> None:
        if self._process is not None:
            # It writes no files; its end of the connection closes, which ends a call.
            self._process.kill()
            self._process.wait()


def _ending(process: Popen[bytes]) -> str:
    try:
        code = process.wait(_END_SECONDS)
    except TimeoutExpired:
        return f"process {process.pid} hung up"
    how = f"was ended by signal {-code}" if code < 0 else f"ended with exit code {code}"
    return f"process {process.pid} {how}"


def process_replicas(
    recipe: Recipe, size: int, devices: Sequence[str], driver: Identity
) -> list[Replica]:
    """Return so many replicas on this machine, in turn on ``devices`` if there are any; they share
    the cores.
    """
    threads = max(1, (os.cpu_count() or 1) // size)
    replicas: list[Replica] = []
    for number in range(size):
        device = devices[number % len(devices)] if devices else None
        replicas.append(ProcessReplica(recipe, device, driver, threads))
    return replicas


def main() -> None:
    """Load the model that is named first, then answer shards until nobody is there to ask."""
    connection = Connection(int(sys.argv[1]))
    inbox = SimpleQueue[Any]()
    Thread(target=_read, args=(connection, inbox), daemon=True).start()
    # A connection ends when the driver is gone.
    with suppress(ConnectionError):
        loaded = loaded_here(*inbox.get())
        connection.send(loaded if isinstance(loaded, Exception) else None)
        while isinstance(loaded, LoadedModel):
            connection.send(outcome(loaded.answer, inbox.get()))


def _read(connection: Connection, inbox: SimpleQueue[Any]) -> None:
    try:
        while True:
            inbox.put(connection.recv())
    except (EOFError, OSError):
        # The driver is gone: nobody waits for the answer that is being computed.
        os._exit(0)
    except BaseException:
        # A shard can't be read. The driver hears of the exit code, and says it.
        traceback.print_exc()
        os._exit(1)
