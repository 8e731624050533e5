"""One node of a Ray cluster on loopback, as a process of its own: ``ray start --block`` that ends with its parent. Ray
replaces 127.0.0.1 by the machine's outer address and then listens on every interface. Here it keeps the address it was
given, and a node at 127.0.0.1 listens there alone."""

import contextlib
import ctypes
import os
import sys
import threading
from pathlib import Path

sys.path[0] = str(Path(__file__).resolve().parents[2])  # the tests' folder has names of its own

from tests.helpers.processes import end_session


def end_with_the_parent() -> None:
    """Waits until standard input's other end is closed, however its process ended; leaves no process, no zombie."""
    while os.read(0, 1024):
        pass
    end_session(os.getpid(), leader=False)
    with contextlib.suppress(ChildProcessError):
        while True:
            os.wait()
    os._exit(0)


ADOPT = 36  # ``PR_SET_CHILD_SUBREAPER``: what the node's processes leave behind is ours to wait for, not the machine's


if __name__ == "__main__":
    ctypes.CDLL(None).prctl(ADOPT, 1, 0, 0, 0)
    threading.Thread(target=end_with_the_parent, daemon=True).start()

    from ray._private import services
    from ray.scripts.scripts import cli

    services.resolve_ip_for_localhost = str
    cli(sys.argv[1:])
