"""The published table that comes with the package, and the ranks that it shows."""

from __future__ import annotations

from io import StringIO

from rich.console import Console

from choicewise.report.comparison import published_table


def test_the_published_models_change_ranks_between_implementations() -> None:
    printed = StringIO()
    Console(width=200, file=printed).print(published_table())
    lines = printed.getvalue().splitlines()
    falcon = next(line for line in lines if "falcon-7b" in line)
    assert falcon.split()[1:] == ["27.8", "(6)", "35.0", "(5)", "25.4", "(8)"]
    assert sum("(1)" in line for line in lines) == 2  # llama-65b leads twice, falcon-40b once
