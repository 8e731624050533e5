"""Forty changes of the source, one at a time: which of them does no quick test notice?

    pip install pytest-cov
    make test PYTEST="--cov=src/choicewise --cov-context=test --cov-report="  # writes .coverage: what each test runs
    python tests/mutants.py [--count 40] [--seed 26] [--coverage .coverage]

A change swaps an operator, moves a constant by one or turns a branch round, in the rooms that compute numbers.  Each is
made in a copy of the source, against which the tests run that run its line.
"""

import argparse
import ast
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from coverage import CoverageData

ROOT = Path(__file__).resolve().parents[1]
ROOMS = ("scoring", "tokens", "requests", "results", "store")
QUICK = ("unit", "goldens", "models", "cli", "served")
SECONDS = 1800
"""After so long a loop has become endless, which no suite passes."""

SWAPPED: dict[type[ast.AST], str] = {
    **{ast.Lt: "<=", ast.LtE: "<", ast.Gt: ">=", ast.GtE: ">", ast.Eq: "!=", ast.NotEq: "=="},
    **{ast.Add: "-", ast.Sub: "+", ast.Mult: "/", ast.Div: "*", ast.BitAnd: "|", ast.BitOr: "&"},
    **{ast.And: "or", ast.Or: "and"},
}


@dataclass(frozen=True)
class Mutant:
    """``file`` with ``new`` in place of ``old`` from the offset ``start`` on (bytes)."""

    file: Path
    line: int
    start: int
    old: str
    new: str

    def source(self) -> bytes:
        content = self.file.read_bytes()
        return (
            content[: self.start]
            + self.new.encode()
            + content[self.start + len(self.old.encode()) :]
        )


def mutants(file: Path) -> Iterator[Mutant]:
    """Every change of a file, in the order of its lines; texts, annotations and docstrings stay."""
    content = file.read_bytes()
    starts = [0]
    for line in content.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))

    def between(left: ast.expr, right: ast.expr, new: str) -> Iterator[Mutant]:
        start = starts[left.end_lineno - 1] + left.end_col_offset  # type: ignore[operator]
        gap = content[start : starts[right.lineno - 1] + right.col_offset].decode()
        if (old := gap.strip("() \n\\")) and "#" not in gap:
            yield Mutant(file, right.lineno, start + gap.index(old), old, new)

    def texts(node: ast.BinOp) -> bool:
        """Whether it joins texts, paths or types, where another operator is an error at once."""
        sides = (node.left, node.right)
        return any(
            isinstance(each, ast.JoinedStr | ast.Constant) and not is_number(each) for each in sides
        )

    tree = ast.parse(content)
    skipped = {
        id(inner)
        for node in ast.walk(tree)
        for each in annotations(node)
        for inner in ast.walk(each)
    }
    for node in ast.walk(tree):
        if id(node) in skipped:
            continue
        match node:
            case ast.Compare(left=left, ops=[op], comparators=[right]) if type(op) in SWAPPED:
                yield from between(left, right, SWAPPED[type(op)])
            case ast.BinOp(left=left, op=op, right=right) if type(op) in SWAPPED and not texts(
                node
            ):
                yield from between(left, right, SWAPPED[type(op)])
            case ast.BoolOp(op=op, values=[left, right, *_]):
                yield from between(left, right, SWAPPED[type(op)])
            case ast.Constant(value=value) if is_number(node):
                old = ast.get_source_segment(content.decode(), node) or ""
                new = str(not value) if isinstance(value, bool) else str(value + 1)
                yield Mutant(file, node.lineno, starts[node.lineno - 1] + node.col_offset, old, new)
            case ast.If(test=test) | ast.IfExp(test=test):
                old = ast.get_source_segment(content.decode(), test) or ""
                yield Mutant(
                    file,
                    test.lineno,
                    starts[test.lineno - 1] + test.col_offset,
                    old,
                    f"(not ({old}))",
                )


def is_number(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, int | float)


def annotations(node: ast.AST) -> list[ast.expr]:
    found = [getattr(node, "annotation", None), getattr(node, "returns", None)]
    return [each for each in found if each is not None]


def tests_of(mutant: Mutant, data: CoverageData) -> list[str]:
    """The tests that run the line of a mutant, or the files that import its module where an import alone runs it."""
    name = mutant.file.relative_to(ROOT / "src")
    (file,) = (each for each in data.measured_files() if each.endswith(str(name)))
    contexts = data.contexts_by_lineno(file).get(mutant.line, [])
    if named := sorted({each.rpartition("|")[0] for each in contexts if each}):
        return named
    module = ".".join(name.with_suffix("").parts)
    near = (
        each for folder in QUICK for each in sorted((ROOT / "tests" / folder).rglob("test_*.py"))
    )
    return [
        str(each) for each in near if f"from {module} import" in each.read_text(encoding="utf-8")
    ]


def survives(mutant: Mutant, tests: list[str]) -> bool:
    with tempfile.TemporaryDirectory() as folder:
        shutil.copytree(
            ROOT / "src", Path(folder) / "src", ignore=shutil.ignore_patterns("__pycache__")
        )
        (Path(folder) / mutant.file.relative_to(ROOT)).write_bytes(mutant.source())
        chosen = Path(folder) / "tests.txt"
        chosen.write_text("\n".join(tests), encoding="utf-8")
        environment = {**os.environ, "PYTHONPATH": str(Path(folder) / "src")}
        line = [
            sys.executable,
            "-m",
            "pytest",
            "-x",
            "-n",
            "auto",
            "--dist",
            "worksteal",
            "-p",
            "no:cacheprovider",
        ]
        try:
            tested = subprocess.run(
                [*line, f"@{chosen}"],
                cwd=ROOT,
                env=environment,
                capture_output=True,
                timeout=SECONDS,
            )
        except subprocess.TimeoutExpired:
            return False
        return not tested.returncode


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--count", type=int, default=40)
    parser.add_argument("--seed", type=int, default=26)
    parser.add_argument("--coverage", default=".coverage")
    asked = parser.parse_args()
    files = sorted(
        file for room in ROOMS for file in (ROOT / "src" / "choicewise" / room).rglob("*.py")
    )
    candidates = [mutant for file in files for mutant in mutants(file)]
    chosen = random.Random(asked.seed).sample(candidates, asked.count)
    data, survivors = CoverageData(asked.coverage), 0
    data.read()
    for number, mutant in enumerate(chosen, 1):
        alive = survives(mutant, tests_of(mutant, data))
        survivors += alive
        place = f"{mutant.file.relative_to(ROOT)}:{mutant.line}"
        outcome = "SURVIVES" if alive else "killed"
        print(f"{number:3} {outcome:8} {place}: {mutant.old!r} -> {mutant.new!r}", flush=True)
    print(f"{len(chosen) - survivors} of {len(chosen)} killed")


if __name__ == "__main__":
    main()
