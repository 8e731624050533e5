"""How long the page of ten runs takes to be written and to open, how large it is, and the peak memory of writing it.

python benchmarks/html_page.py [--run FOLDER] [--runs N] [--times N] [--json FILE]

The runs are one run of MMLU under its whole family (``--run``; made with a model without weights unless given),
hard-linked under N names of models, each with its summary, as `choicewise run` leaves them.  Opened in Chromium, from
disk.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from board import link
from machine import machine
from playwright.sync_api import sync_playwright
from process import measure
from report import MMLU, mmlu

from choicewise.results.summary import summarize

HERE = Path(__file__).resolve().parent
CHROMIUM = "/usr/bin/chromium"


def main() -> None:
    """Print and keep one JSON object per measured thing."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--run", type=Path, help="a complete run to link to")
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--times", type=int, default=5, help="how often the page is opened")
    parser.add_argument("--json", type=Path, default=HERE / "results" / "html_page.json")
    choice = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=None if choice.run is None else choice.run.parent) as made:
        run = choice.run or mmlu(Path(made), MMLU, None)
        summarize(run)
        runs = [Path(made) / f"model-{number:03d}" for number in range(choice.runs)]
        for each in runs:
            link(run, each)
        measured = list(pages(runs, Path(made), choice.times))
    for one in measured:
        print(json.dumps(one))
    choice.json.parent.mkdir(parents=True, exist_ok=True)
    choice.json.write_text(json.dumps(measured, indent=1) + "\n")


def pages(runs: list[Path], folder: Path, times: int) -> Iterator[dict[str, Any]]:
    """The page with the items that fit into it, and the one without any."""
    for name, options in {"with items": (), "without items": ("--items", "0")}.items():
        out = folder / f"{name.split()[0]}.html"
        taken = measure(
            [sys.executable, "-m", "choicewise", "page", *runs, "--out", out, *options], {}
        )
        about = {"page": name, "runs": len(runs), "machine": machine(threads=1)}
        opened = [seconds_to_open(out) for _ in range(times)]
        yield {
            **about,
            "seconds": taken.seconds,
            "cpu": taken.cpu,
            "GB": taken.peak,
            "MB": out.stat().st_size / 1e6,
            "opened": statistics.median(opened),
            "opened at most": max(opened),
        }


def seconds_to_open(page: Path) -> float:
    """From asking for the page until its scripts have run and it is drawn, in a new browser."""
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        tab = browser.new_page(viewport={"width": 1200, "height": 900})
        start = time.perf_counter()
        tab.goto(page.as_uri(), wait_until="load")
        tab.evaluate(
            "() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))"
        )
        taken = time.perf_counter() - start
        browser.close()
    return taken


if __name__ == "__main__":
    main()
