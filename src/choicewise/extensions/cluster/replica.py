"""A replica of a model in another process: what it is asked, what it answers, and one in a process of this machine."""

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
    """A copy of the model elsewhere, which answers one shard after the other.

    What a future raises: :class:`ReplicaDied`, after which it can be loaded anew, and else the error of the model.
    """

    def load(self) -> Future[None]:
        """Have the model in memory; tried anew where it dies over that."""

    def answer(self, shard: Shard) -> Future[Answered]:
        """The answers to all of a shard."""

    def end(self) -> None:
        """Let it go; futures that are left are of no use."""


class ReplicaDied(Exception):
    """A replica is gone, with all that it was asked; says in words what is known of it."""


@dataclass(frozen=True)
class Answered:
    """The ``observations`` of a shard, as a table of the run folder.

    ``computed``: input tokens for it, without those of a self-check; None where they are not counted.
    """

    observations: pa.Table
    computed: int | None
    selfcheck: SelfCheck | None


@dataclass(frozen=True)
class Identity:
    """What a process has loaded: a replica compares it with that of the driver."""

    digest: str
    dtype: str
    window: int
    version: str

    @classmethod
    def of(cls, model: Model) -> Identity:
        """That of ``model`` in this process; UsageError where it is a part, which no other process could compare."""
        if is_shared(model.device):
            raise UsageError(
                f"{model.name} is shared by processes that torchrun started; leave further workers out"
            )
        return cls(model.digest, model.dtype, model.window, __version__)

    def differences(self, own: Identity) -> list[str]:
        """What it is otherwise than ``own``, in words."""
        words = {
            "digest": "weights or configuration",
            "dtype": "dtype",
            "window": "window",
            "version": "Choicewise",
        }
        pairs = [(what, getattr(self, name), getattr(own, name)) for name, what in words.items()]
        return [
            f"{what}: {_short(there)} there, {_short(here)} here"
            for what, there, here in pairs
            if there != here
        ]


class LoadedModel:
    """The model of a ``recipe`` in this process, on ``device`` where one is named.

    Raises ModelError where it is another than the ``driver`` knows, and as load_model.
    """

    def __init__(self, recipe: Recipe, device: str | None, driver: Identity) -> None:
        self._model = load_model(
            recipe.name, **{**recipe.options, **({} if device is None else {"device": device})}
        )
        self._model.check(0)  # which has the weights in memory
        if differences := Identity.of(self._model).differences(driver):
            raise ModelError(f"has another model under the same name ({'; '.join(differences)})")

    def answer(self, shard: Shard) -> Answered:
        """The answers to all of a shard; errors as of the model."""
        self._model.check(shard.depth)  # whose tokens no run counts
        before = self._model.computed
        rows = list(observe(self._model, shard.questions))
        computed = None if before is None else (self._model.computed or 0) - before
        return Answered(make_table(OBSERVATIONS, rows), computed, self._model.check(0))


def outcome(call: Callable[..., Any], *arguments: object) -> Any:
    """What ``call`` returns, or the error that it raises; one that nobody foresaw is printed, and is a death."""
    try:
        return call(*arguments)
    except ChoicewiseError as error:
        return error
    except Exception as error:
        traceback.print_exception(error)
        words = traceback.format_exception_only(error)[-1].strip()
        place = traceback.extract_tb(error.__traceback__)[-1:]
        return ReplicaDied(
            words + "".join(f", {Path(frame.filename).name} line {frame.lineno}" for frame in place)
        )


def loaded_here(recipe: Recipe, device: str | None, driver: Identity) -> LoadedModel | Exception:
    """The model in this process, or why it can't be loaded, with the name of the machine."""
    loaded: LoadedModel | Exception = outcome(LoadedModel, recipe, device, driver)
    return (
        loaded.within(f"the replica on {platform.node()}")
        if isinstance(loaded, ChoicewiseError)
        else loaded
    )


def _short(value: object) -> object:
    return value[:12] if isinstance(value, str) else value


_START = "from choicewise.extensions.cluster.replica import main; main()"
"""With ``-m`` the classes of this file would be those of ``__main__``, which the driver does not know."""

_END_SECONDS = 5.0


class ProcessReplica:
    """A process with so many ``threads``, unless OMP_NUM_THREADS says how many; arguments as of LoadedModel.

    It is started as a program, not forked or spawned, so that a script that evaluates is not run again in it.
    """

    def __init__(self, recipe: Recipe, device: str | None, driver: Identity, threads: int) -> None:
        self._loading, self._threads = (recipe, device, driver), threads
        self._caller = ThreadPoolExecutor(1)
        self._process: Popen[bytes] | None = None
        self._connection: Connection | None = None
        self._ended = False

    def load(self) -> Future[None]:
        """Start the process, and have the model in memory there."""
        return self._caller.submit(self._load)

    def answer(self, shard: Shard) -> Future[Answered]:
        """The answers to all of a shard."""
        return self._caller.submit(self._call, shard)

    def end(self) -> None:
        """Let the process go."""
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
        own = os.pathsep.join(
            path for path in sys.path if path
        )  # it finds the same modules as this process
        environment = {"OMP_NUM_THREADS": str(self._threads), **os.environ, "PYTHONPATH": own}
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
        process, connection = self._process, self._connection
        if process is None or connection is None:
            raise ReplicaDied("its process has ended")
        try:
            connection.send(message)
            answer = connection.recv()
        except (EOFError, OSError):  # half a message as well
            raise ReplicaDied(_ending(process)) from None
        if isinstance(answer, Exception):
            raise answer
        return answer

    def _kill(self) -> None:
        if self._process is not None:
            self._process.kill()  # it writes nothing, and its end of the connection closes, which ends a call
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
    """So many replicas on this machine, in turn on ``devices`` where there are any, each with its part of the cores."""
    threads = max(1, (os.cpu_count() or 1) // size)
    places = [devices[number % len(devices)] if devices else None for number in range(size)]
    return [ProcessReplica(recipe, place, driver, threads) for place in places]


def main() -> None:
    """Load the model that is named first, then answer shards until nobody is there to ask."""
    connection, inbox = Connection(int(sys.argv[1])), SimpleQueue[Any]()
    Thread(target=_read, args=(connection, inbox), daemon=True).start()
    with suppress(ConnectionError):  # the driver is gone
        loaded = loaded_here(*inbox.get())
        connection.send(loaded if isinstance(loaded, Exception) else None)
        while isinstance(loaded, LoadedModel):
            connection.send(outcome(loaded.answer, inbox.get()))


def _read(connection: Connection, inbox: SimpleQueue[Any]) -> None:
    try:
        while True:
            inbox.put(connection.recv())
    except (EOFError, OSError):
        os._exit(0)  # the driver is gone: nobody waits for the answer that is being computed
    except BaseException:  # a shard that can't be read
        traceback.print_exc()
        os._exit(1)  # which the driver hears, and says
