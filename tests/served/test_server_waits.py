"""A server that is waited for: a line says so now and then, and none while others are answered."""

from __future__ import annotations

import pytest
import stamina

from choicewise.models.server.address import ServerAddress
from choicewise.models.server.faults import Passing
from choicewise.models.server.http import Client, Waits
from tests.helpers.misbehaving_server import serving
from tests.helpers.server_faults import status

BUSY = Passing("the server is busy, status 429: ''", 429, busy=True)


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_a_line_in_thirty_seconds() -> None:
    lines, clock = list[str](), Clock()
    waits = Waits(lines.append, clock)
    for _ in range(100):
        waits.hear(BUSY)
        clock.now += 1
    assert lines[0].startswith("waiting for the server: the server is busy, status 429: '' (no answer for 5 s)")
    assert [line.partition("no answer for ")[2].partition(")")[0] for line in lines] == ["5 s", "35 s", "65 s", "95 s"]


def test_nothing_is_said_while_others_are_answered() -> None:
    lines, clock = list[str](), Clock()
    waits = Waits(lines.append, clock)
    for _ in range(100):
        waits.hear(BUSY)
        clock.now += 4
        waits.answered()
    assert lines == []


def test_a_long_wait_that_a_server_asks_for_is_said_at_once() -> None:
    lines = list[str]()
    Waits(lines.append, Clock()).hear(Passing("busy", 429, wait=40.0, busy=True))
    assert lines == ["waiting for the server: busy (it asks to wait 40 s); Ctrl-C keeps what was observed"]


@pytest.mark.parametrize("key", ["", "sk-planted-0123456789"])
def test_a_client_says_it(key: str) -> None:
    lines = list[str]()
    with serving() as server, stamina.set_testing(True, attempts=20):
        server.next(status(429, body=f"slow down {key}".encode(), Retry_After="7"))
        with Client(ServerAddress.parse(server.address), key, say=lines.append) as client:
            client.get("models")
    (line,) = lines
    assert "status 429: 'slow down" in line
    assert "it asks to wait 7 s" in line
    assert not key or key not in line
