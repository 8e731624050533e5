"""Replicas in processes of their own on this machine: ``python -m choicewise.running.executors.local_crew SOCKET``.

They are started as programs, not forked or spawned, so that a script that evaluates is not run again in each of them.
"""

import os
import socket
import sys
import traceback
from collections.abc import Sequence
from contextlib import suppress
from multiprocessing.connection import Connection, wait
from queue import SimpleQueue
from subprocess import DEVNULL, Popen, TimeoutExpired
from threading import Thread

from choicewise.errors import ChoicewiseError
from choicewise.models.recipe import Recipe
from choicewise.running.executors.crew import Happened, Lost, Refused
from choicewise.running.executors.replica import Replica, last_words
from choicewise.running.executors.shards import Shard

_MODULE = "choicewise.running.executors.local_crew"
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
        command = [sys.executable, "-P", "-m", _MODULE, str(theirs.fileno())]
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


def _read(connection: Connection, inbox: "SimpleQueue[tuple[int, Shard]]") -> None:
    """Take what comes at once, so that the driver never waits until it is taken."""
    try:
        while True:
            inbox.put(connection.recv())
    except (EOFError, OSError):
        os._exit(0)  # the driver is gone: nobody waits for the answer that is being computed
    except BaseException:  # a shard that can't be read
        traceback.print_exc()
        os._exit(1)  # which the driver hears, and says


if __name__ == "__main__":
    main()
