"""CPU seconds of every test: the ten dearest, the sum of each folder, and a limit for CI.

They include those of the processes that a test started and waited for.  A busy machine makes them longer by half, where
wall seconds double, and another machine by more: so the limit grows with what a fixed piece of work costs there.
"""

import os
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from _pytest.runner import runtestprotocol

TABLE: dict[str, dict[str, float]] = {}
"""Test → CPU seconds of its ``setup``, ``call`` and ``teardown``: filled in the process that collects the reports."""

WORK = 0.08
"""CPU seconds of the fixed piece of work where the limits are set: a quiet core of 2026."""

BEFORE, CALL = pytest.StashKey[float](), pytest.StashKey[float]()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--cpu-limit",
        type=float,
        help="a test above so many CPU seconds fails without a marker `costly`",
    )
    parser.addoption(
        "--cpu-table", type=Path, help="write CPU seconds of set-up, call and teardown to this file"
    )


def spent() -> float:
    """CPU seconds of this process and of its children that ended."""
    return sum(os.times()[:4])


def slowness() -> float:
    """How many times as many CPU seconds the fixed piece of work takes here and now; at least 1."""
    before = time.process_time()
    sum(hash((number,)) for number in range(1_000_000))
    return max(1.0, (time.process_time() - before) / WORK)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> Iterator[None]:
    """A test above the limit is called up to three times more: a call may import a library, or be disturbed."""
    item.stash[BEFORE] = spent()
    done, limit = (yield), item.config.getoption("cpu_limit")
    if limit and item.stash.get(CALL, 0.0) > limit and item.get_closest_marker("costly") is None:
        for _ in range(3):
            item._initrequest()  # type: ignore[attr-defined]
            reports, most = runtestprotocol(item, log=False, nextitem=nextitem), limit * slowness()
            above = [
                each
                for each in reports
                if each.when == "call" and each.passed and each.cpu_seconds > most
            ]
            if not above:
                return done
        (report,) = above
        advice = "make it cheaper, move it to tests/whole, or mark it costly(reason)"
        report.longrepr = f"{report.cpu_seconds:.1f} CPU seconds, more than {most:.2g}: {advice}"
        report.outcome = "failed"
        item.ihook.pytest_runtest_logreport(report=report)
    return done


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    report, now = (yield), spent()
    report.cpu_seconds, item.stash[BEFORE] = now - item.stash[BEFORE], now
    if report.when == "call":
        item.stash[CALL] = report.cpu_seconds
    return report


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    TABLE.setdefault(report.nodeid, {})[report.when] = getattr(
        report, "cpu_seconds", 0.0
    )  # none of a worker that crashed


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    phases, write = ("setup", "call", "teardown"), terminalreporter.write_line
    if file := config.getoption("cpu_table"):
        rows = (
            "\t".join([name, *(f"{row.get(each, 0):.3f}" for each in phases)])
            for name, row in TABLE.items()
        )
        file.write_text("".join(f"{row}\n" for row in rows), encoding="utf-8")
    if len(TABLE) < 100:
        return
    folders = Counter[str]()
    for name, row in TABLE.items():
        folders[name.split("/")[1]] += sum(row.values())
    write(
        f"CPU seconds: {', '.join(f'{name} {sum_:.0f}' for name, sum_ in folders.most_common())}; the ten dearest:"
    )
    for seconds, name in sorted(
        ((row.get("call", 0.0), name) for name, row in TABLE.items()), reverse=True
    )[:10]:
        write(f"{seconds:6.1f} {name}")
