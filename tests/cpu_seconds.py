"""CPU seconds of every test: the ten dearest and the sum of each folder at the end of a run, and a limit for CI.

A test's own seconds are those of its call, with those of the processes that it started and waited for.  A machine that
is busy makes them longer by less than half, where wall seconds double.
"""

import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from _pytest.runner import runtestprotocol

TABLE: dict[str, dict[str, float]] = {}
"""Test → CPU seconds of its ``setup``, ``call`` and ``teardown``: filled in the process that collects the reports."""


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("CPU seconds")
    group.addoption("--cpu-limit", type=float, help="a test above so many CPU seconds fails without a marker `costly`")
    group.addoption("--cpu-table", type=Path, help="write CPU seconds of set-up, call and teardown to this file")


def spent() -> float:
    """CPU seconds of this process and of its children that ended."""
    return sum(os.times()[:4])


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item: pytest.Item) -> Iterator[None]:
    return (yield from measured(item, "setup"))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    return (yield from measured(item, "call"))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item) -> Iterator[None]:
    return (yield from measured(item, "teardown"))


PHASE = pytest.StashKey[dict[str, float]]()


def measured(item: pytest.Item, phase: str) -> Iterator[None]:
    start = spent()
    try:
        return (yield)
    finally:
        item.stash.setdefault(PHASE, {})[phase] = spent() - start


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    report = yield
    report.cpu_seconds = item.stash.get(PHASE, {}).get(call.when, 0.0)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> Iterator[None]:
    """A test above the limit is called once more: the first call may have imported a library or filled a cache."""
    done = yield
    limit, first = item.config.getoption("cpu_limit"), item.stash.get(PHASE, {}).get("call", 0.0)
    if limit and first > limit and item.get_closest_marker("costly") is None:
        item._initrequest()  # type: ignore[attr-defined]
        for report in runtestprotocol(item, log=False, nextitem=nextitem):
            if report.when == "call" and report.passed and report.cpu_seconds > limit:
                report.outcome = "failed"
                advice = "make it cheaper, move it to tests/whole, or mark it costly(reason)"
                report.longrepr = f"{report.cpu_seconds:.1f} CPU seconds, more than {limit:g}: {advice}"
                item.ihook.pytest_runtest_logreport(report=report)
    return done


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    row = TABLE.setdefault(report.nodeid, {})
    row[report.when] = getattr(report, "cpu_seconds", 0.0)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    calls = sorted(((row.get("call", 0.0), name) for name, row in TABLE.items()), reverse=True)
    if file := config.getoption("cpu_table"):
        rows = (
            f"{name}\t" + "\t".join(f"{row.get(each, 0):.3f}" for each in ("setup", "call", "teardown")) + "\n"
            for name, row in TABLE.items()
        )
        file.write_text("".join(rows), encoding="utf-8")
    if len(calls) < 100 or not hasattr(terminalreporter, "write_line"):
        return
    kinds = Counter[str]()
    for name, row in TABLE.items():
        kinds[name.split("/")[1]] += sum(row.values())
    told = ", ".join(f"{kind} {seconds:.0f}" for kind, seconds in kinds.most_common())
    terminalreporter.write_line(f"CPU seconds: {told}; the ten dearest tests:")
    for seconds, name in calls[:10]:
        terminalreporter.write_line(f"{seconds:6.1f} {name}")
