"""Answers of a server are prepared once, in a bounded number of threads."""

import asyncio
import threading

import pytest

from choicewise.extensions.board.answers import Answers, Busy, Threads

pytest.importorskip("anyio")


def test_an_answer_is_made_once_for_all_who_wait() -> None:
    made: list[None] = []

    def make() -> bytes:
        made.append(None)
        return b"page"

    async def ask() -> list[bytes | None]:
        answers = Answers()
        threads = Threads(1)
        together = await asyncio.gather(*(answers.get("key", threads, make) for _ in range(3)))
        return [*together, await answers.get("key", threads, make)]

    assert asyncio.run(ask()) == [b"page"] * 4
    assert len(made) == 1


def test_calls_are_refused_if_too_many_wait() -> None:
    async def ask() -> None:
        threads = Threads(1, waiting=0)
        free = threading.Event()
        first = asyncio.create_task(threads.run(free.wait))
        await asyncio.sleep(0)
        with pytest.raises(Busy):
            await threads.run(free.wait)
        free.set()
        await first

    asyncio.run(ask())
