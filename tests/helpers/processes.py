"""Processes by session: what a test started and everything those started in turn, and the ports that they listen on."""

import contextlib
import ipaddress
import os
import select
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any


def in_session(session: int, zombies: bool = False) -> Iterator[int]:
    """The processes of a session, however their parents ended; those that are over only on request."""
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            with contextlib.suppress(OSError):  # it ended meanwhile
                state, _parent, _group, its_session, *_ = stat(int(folder.name))
                if int(its_session) == session and (zombies or state != "Z"):
                    yield int(folder.name)


def stat(pid: int) -> list[str]:
    """State, parent, group, session, ... of a process: ``/proc/PID/stat`` behind its name."""
    return (
        Path(f"/proc/{pid}/stat")
        .read_text(encoding="ascii", errors="replace")
        .rpartition(")")[2]
        .split()
    )


def name_of(pid: int) -> str:
    """What a process calls itself, empty where it ended."""
    with contextlib.suppress(OSError):
        return (
            Path(f"/proc/{pid}/cmdline")
            .read_bytes()
            .replace(b"\0", b" ")
            .decode(errors="replace")
            .strip()
        )
    return ""


def end_session(session: int, leader: bool = True, patience: float = 20.0) -> None:
    """Kills every process of a session, those as well that others start meanwhile; ``leader``: the first one, too.
    Raises RuntimeError where one of them is still there after ``patience`` seconds."""
    until = time.monotonic() + patience
    while left := [pid for pid in in_session(session) if leader or pid != session]:
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if time.monotonic() > until:
            raise RuntimeError(f"still there: {[(pid, name_of(pid)) for pid in left]}")
        time.sleep(0.02)


def listening(pid: int) -> list[str]:
    """``ADDRESS:PORT`` of the TCP sockets where a process waits for others; IPv4 in IPv6 is written as IPv4."""
    sockets = {}
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/{pid}/net/{table}").read_text(encoding="ascii").splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A":
                sockets[f"socket:[{fields[9]}]"] = readable(fields[1])
    own = (os.readlink(link) for link in Path(f"/proc/{pid}/fd").iterdir())
    return [sockets[target] for target in own if target in sockets]


def eventually(condition: Callable[[], Any], patience: float = 120.0) -> Any:
    """What a condition gives as soon as that is true."""
    until = time.monotonic() + patience
    while not (value := condition()):
        assert time.monotonic() < until
        time.sleep(0.05)
    return value


def ended(pid: int, patience: float = 120.0) -> bool:
    """Whether a process that another one started ends."""
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    ready, _, _ = select.select([handle], [], [], patience)
    os.close(handle)
    return bool(ready)


@contextlib.contextmanager
def held_port() -> Iterator[int]:
    """A free port of 127.0.0.1 that nobody else is given meanwhile. A server that reuses addresses, as those of Python
    do, listens there although it is bound."""
    with socket.socket() as holder:
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        holder.bind(("127.0.0.1", 0))
        yield holder.getsockname()[1]


def readable(address: str) -> str:
    """An address as the kernel prints it, in words of the machine's byte order, as people write it."""
    host, port = address.split(":")
    words = [
        int(host[start : start + 8], 16).to_bytes(4, sys.byteorder)
        for start in range(0, len(host), 8)
    ]
    ip = ipaddress.ip_address(b"".join(words))
    return f"{getattr(ip, 'ipv4_mapped', None) or ip}:{int(port, 16)}"
