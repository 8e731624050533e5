"""A suite on small models from local rows, in one command: `choicewise run --protocol SUITE`, from start to average.

CHOICEWISE_DATA=DIR python benchmarks/suite.py MODEL... [--suite leaderboard/2023-06] [--results FILE]

DIR has a folder per benchmark of the suite (docs/hub.md).  Each model is run once, in a folder of its own.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import Any

from machine import machine
from process import measure


def run(model: Path, suite: str, out: Path) -> dict[str, Any]:
    """Seconds and memory of the command, tokens asked and computed, and the average that it gives."""
    command = [
        sys.executable,
        "-m",
        "choicewise",
        "run",
        "--model",
        model,
        "--protocol",
        suite,
        "--out",
        out,
    ]
    measured = measure(command, {})
    spent = [
        json.loads(file.read_text())["engine"]["spent"] for file in out.glob("*/*/manifest.json")
    ]
    rows = json.loads(_report(out))
    (average,) = [row for row in rows if row["metric"] == "average"]
    return {
        "suite": suite,
        "model": model.name,
        **asdict(measured),
        "items": average["n"],
        "asked": sum(each["tokens_asked"] for each in spent),
        "computed": sum(each["tokens_computed"] for each in spent),
        "average": average["value"],
        "se": average["se"],
        "machine": machine(),
    }


def _report(out: Path) -> str:
    command = [sys.executable, "-m", "choicewise", "report", str(out), "--json"]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def main() -> None:
    """Print one line of JSON a model, and keep them all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", nargs="+", type=Path)
    parser.add_argument("--suite", default="leaderboard/2023-06")
    parser.add_argument("--results", type=Path, help="a file to keep all lines in as JSON")
    choice = parser.parse_args()
    kept = []
    for model in choice.models:
        with tempfile.TemporaryDirectory() as work:
            kept.append(run(model, choice.suite, Path(work) / "run"))
        print(json.dumps(kept[-1]), flush=True)
    if choice.results is not None:
        choice.results.write_text(json.dumps(kept, indent=1) + "\n")


if __name__ == "__main__":
    main()
