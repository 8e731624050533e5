"""CPU seconds of every test: the ten dearest, the sum of each folder, and what is above a limit without saying why.

They include those of the processes that a test started and waited for.  Nothing fails by them: the same test costs
three times as much on a slower machine, and half more on a busy one.
"""

import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

TABLE: dict[str, dict[str, float]] = {}
"""Test → CPU seconds of its ``setup``, ``call`` and ``teardown``: filled in the process that collects the reports."""

COSTLY: set[str] = set()
"""Tests that are marked as costly, with a reason."""

BEFORE = pytest.StashKey[float]()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--cpu-limit",
        type=float,
        help="list the tests above so many CPU seconds that have no marker `costly`",
    )
    parser.addoption(
        "--cpu-table", type=Path, help="write CPU seconds of set-up, call and teardown to this file"
    )


def spent() -> float:
    """CPU seconds of this process and of its children that ended."""
    return sum(os.times()[:4])


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    item.stash[BEFORE] = spent()
    return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    report, now = (yield), spent()
    report.cpu_seconds, item.stash[BEFORE] = now - item.stash[BEFORE], now
    report.costly = item.get_closest_marker("costly") is not None
    return report


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    seconds = getattr(report, "cpu_seconds", 0.0)  # none of a worker that crashed
    TABLE.setdefault(report.nodeid, {})[report.when] = seconds
    if getattr(report, "costly", False):
        COSTLY.add(report.nodeid)


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    phases, write = ("setup", "call", "teardown"), terminalreporter.write_line
    if file := config.getoption("cpu_table"):
        rows = (
            "\t".join([name, *(f"{row.get(phase, 0):.3f}" for phase in phases)])
            for name, row in TABLE.items()
        )
        file.write_text("".join(f"{row}\n" for row in rows), encoding="utf-8")
    if len(TABLE) < 100:
        return
    folders = Counter[str]()
    for name, row in TABLE.items():
        folders[name.split("/")[1]] += sum(row.values())
    sums = ", ".join(f"{folder} {total:.0f}" for folder, total in folders.most_common())
    calls = sorted(((row.get("call", 0.0), name) for name, row in TABLE.items()), reverse=True)
    write(f"CPU seconds: {sums}; the ten dearest:")
    for seconds, name in calls[:10]:
        write(f"{seconds:6.1f} {name}")
    limit = config.getoption("cpu_limit")
    if not limit:
        return
    above = [(seconds, name) for seconds, name in calls if seconds > limit and name not in COSTLY]
    if not above:
        return
    write(f"{len(above)} tests above {limit:g} CPU seconds say no reason (@pytest.mark.costly):")
    for seconds, name in above[:20]:
        write(f"{seconds:6.1f} {name}")
