"""A replica of a model in another process: what it is asked, what it answers, and a pool of them on this machine."""

from __future__ import annotations

import os
import platform
import socket
import sys
import traceback
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from pathlib import Path
from queue import SimpleQueue
from subprocess import DEVNULL, Popen, TimeoutExpired
from threading import Thread
from typing import Any, Protocol

import pyarrow as pa

from choicewise import __version__
from choicewise.errors import ChoicewiseError
from choicewise.models.load import load_model
from choicewise.models.model import Model, Recipe, SelfCheck
from choicewise.records import OBSERVATIONS
from choicewise.running.executor import (
    Shard,
)
from choicewise.running.work import observe
from choicewise.store.tables import make_table


class Crew(Protocol):
    """Replicas by number, each in a process of its own."""

    @property
    def size(self) -> int:
        """How many there should be; it may change."""

    def start(self, member: int) -> None:
        """Begin to start replica ``member`` (a number that was not used before); what it loaded is reported later."""

    def ask(self, member: int, number: int, shard: Shard) -> None:
        """Send shard ``number`` to a replica, which answers one after the other."""

    def wait(self, seconds: float) -> Sequence[tuple[int, Happened]]:
        """What happened to which replicas since the last call; waits at most so long for something to happen."""

    def end_member(self, member: int) -> None:
        """Let one replica go."""

    def lacking(self) -> str | None:
        """What replicas wait for that were started, in words: resources that are not free; None where nothing."""

    def end(self) -> None:
        """Let all of them go; nothing more is reported."""


@dataclass(frozen=True)
class Identity:
    """What a replica loaded, and where: the driver compares it with its own."""

    digest: str
    dtype: str
    window: int
    version: str
    host: str = ""

    @classmethod
    def of(cls, model: Model) -> Identity:
        """That of ``model`` in this process."""
        return cls(model.digest, model.dtype, model.window, __version__, platform.node())

    def differences(self, own: Identity) -> list[str]:
        """What it is otherwise than ``own``, in words; the host may be another."""
        words = {"digest": "weights or configuration", "dtype": "dtype", "window": "window", "version": "Choicewise"}
        pairs = [(what, getattr(self, name), getattr(own, name)) for name, what in words.items()]
        return [f"{what}: {_short(there)} there, {_short(here)} here" for what, there, here in pairs if there != here]


@dataclass(frozen=True)
class Answered:
    """The ``observations`` of shard ``number``, as a table of the run folder.

    ``computed``: input tokens for it, without those of a self-check; None where they are not counted.
    """

    number: int
    observations: pa.Table
    computed: int | None
    selfcheck: SelfCheck | None


@dataclass(frozen=True)
class Lost:
    """A replica is gone, with all that it was asked; ``reason`` says in words what is known of it."""

    reason: str


@dataclass(frozen=True)
class Refused:
    """A replica said no, and would say so again: its model can't be loaded, or can't answer as asked."""

    error: ChoicewiseError


Happened = Identity | Answered | Refused | Lost
"""What a replica reports: first what it loaded, then answers; or why there will be none."""


class Replica:
    """The model of a ``recipe``, loaded here; errors as of load_model."""

    def __init__(self, recipe: Recipe, device: str | None = None) -> None:
        options: dict[str, Any] = dict(recipe.options)
        if device is not None:
            options["device"] = device
        self._model = load_model(recipe.name, **options)

    def load(self) -> Identity:
        """Have the weights in memory; what was loaded."""
        self._model.check(0)
        return Identity.of(self._model)

    def answer(self, number: int, shard: Shard) -> Answered:
        """The answers to all of a shard; errors as of the model."""
        self._model.check(shard.depth)  # whose tokens no run counts
        before = self._model.computed
        rows = list(observe(self._model, shard.complete(self._model.tokenizer)))
        computed = None if before is None else (self._model.computed or 0) - before
        return Answered(number, make_table(OBSERVATIONS, rows), computed, self._model.check(0))


def last_words(error: Exception) -> str:
    """What a replica died of that nobody foresaw, and where, in one line; the whole of it is printed."""
    traceback.print_exception(error)
    words = traceback.format_exception_only(error)[-1].strip()
    place = traceback.extract_tb(error.__traceback__)[-1:]
    return words + "".join(f", {Path(frame.filename).name} line {frame.lineno}" for frame in place)


def _short(value: object) -> object:
    return value[:12] if isinstance(value, str) else value


_START = "from choicewise.running.replica import main; main()"
"""With ``-m`` the classes of this file would be those of ``__main__``, which the driver does not know."""

_END_SECONDS = 5.0


class LocalCrew:
    """``size`` replicas of the model of a ``recipe``, spread over ``devices`` where any are named.

    Each gets its part of the cores, unless OMP_NUM_THREADS says how many.
    """

    def __init__(self, recipe: Recipe, size: int, devices: Sequence[str] = ()) -> None:
        self.size = size
        self._recipe, self._devices = recipe, devices
        self._processes: dict[int, Popen[bytes]] = {}
        self._connections: dict[int, Connection] = {}
        self._device: dict[int, str] = {}

    def start(self, member: int) -> None:
        """Begin to start replica ``member``."""
        ours, theirs = socket.socketpair()
        threads = str(max(1, (os.cpu_count() or 1) // self.size))
        own = os.pathsep.join(path for path in sys.path if path)  # it finds the same modules as this process
        environment = {"OMP_NUM_THREADS": threads, **os.environ, "PYTHONPATH": own}
        command = [sys.executable, "-P", "-c", _START, str(theirs.fileno())]
        # In a session of its own: Ctrl-C is for the driver, which ends them.  What a model prints is no result.
        with theirs:
            process = Popen(
                command,
                stdin=DEVNULL,
                stdout=DEVNULL,
                env=environment,
                pass_fds=(theirs.fileno(),),
                start_new_session=True,
            )
        self._processes[member] = process
        self._connections[member] = Connection(ours.detach())
        device = None
        if self._devices:
            taken = list(self._device.values())
            device = self._device[member] = min(self._devices, key=taken.count)
        self._send(member, (self._recipe, device))

    def ask(self, member: int, number: int, shard: Shard) -> None:
        """Send shard ``number`` to a replica."""
        self._send(member, (number, shard))

    def _send(self, member: int, message: object) -> None:
        with suppress(OSError):  # it is gone, as wait() says
            self._connections[member].send(message)

    def wait(self, seconds: float) -> list[tuple[int, Happened]]:
        """What happened to which replicas."""
        happened: list[tuple[int, Happened]] = []
        spoken = wait(list(self._connections.values()), seconds)
        for member, connection in self._connections.items():
            if connection not in spoken:
                continue
            try:
                happened.append((member, connection.recv()))
            except (EOFError, OSError):  # half a message as well
                happened.append((member, Lost(self._ending(member))))
        return happened

    def _ending(self, member: int) -> str:
        process = self._processes[member]
        try:
            code = process.wait(_END_SECONDS)
        except TimeoutExpired:
            return f"process {process.pid} hung up"
        how = f"was ended by signal {-code}" if code < 0 else f"ended with exit code {code}"
        return f"process {process.pid} {how}"

    def end_member(self, member: int) -> None:
        """Let one replica go."""
        if (connection := self._connections.pop(member, None)) is not None:
            connection.close()
        self._device.pop(member, None)
        process = self._processes.pop(member)
        process.kill()  # it writes nothing
        process.wait()

    def lacking(self) -> str | None:
        """None: processes wait for nothing."""
        return None

    def end(self) -> None:
        """Let all of them go."""
        for member in list(self._processes):
            self.end_member(member)


def main() -> None:
    """Load the model that is named first, then answer shards until nobody is there to ask."""
    connection, inbox = Connection(int(sys.argv[1])), SimpleQueue[tuple[int, Shard]]()
    try:
        recipe, device = connection.recv()
    except (EOFError, OSError):
        return
    Thread(target=_read, args=(connection, inbox), daemon=True).start()
    with suppress(ConnectionError):  # the driver is gone
        try:
            replica = Replica(recipe, device)
            connection.send(replica.load())
            while True:
                connection.send(replica.answer(*inbox.get()))
        except ChoicewiseError as error:
            connection.send(Refused(error))
        except ConnectionError:
            raise
        except Exception as error:
            connection.send(Lost(last_words(error)))


def _read(connection: Connection, inbox: SimpleQueue[tuple[int, Shard]]) -> None:
    """Take what comes at once, so that the driver never waits until it is taken."""
    try:
        while True:
            inbox.put(connection.recv())
    except (EOFError, OSError):
        os._exit(0)  # the driver is gone: nobody waits for the answer that is being computed
    except BaseException:  # a shard that can't be read
        traceback.print_exc()
        os._exit(1)  # which the driver hears, and says
