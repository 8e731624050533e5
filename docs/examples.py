"""Runs the examples of the pages, and writes below each what it prints.

python docs/examples.py [PAGE...] [--check]

A fenced block of ``sh`` or ``python`` is run, one after another in a folder of the page's own; the ``text`` block after
it is what it prints.  A block with a title is a file of that name.  A comment on the line before a block says more:

    <!-- not run: REASON -->    the block is shown and no more
    <!-- shown: 1-4, 9- -->     of what is printed these lines; a line [...] stands for the others
    <!-- shown: 1-; numbers vary -->    the same, and another machine prints other numbers
    <!-- exits: 3 -->           the exit code that is expected

Where a page names ``demo-run``, the runs of ``choicewise demo`` are there.  ``--check`` writes nothing, and ends with 1
where a page says something else than its examples print.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGES = ("README.md", "CONTRIBUTING.md", "docs/**/*.md")
DEMO = "choicewise demo --out demo-run"
"""The command that is run once for all pages."""

GAP = "[...]"
WIDTH = 110
"""Columns of the terminal that outputs are made for."""

DATA = {
    "json": lambda text: (
        [json.loads(line) for line in text.splitlines()] if text[0] in "{[" else json.loads(text)
    ),
    "toml": tomllib.loads,
}
"""Languages of blocks that are neither run nor printed, and what reads them; whatever is no such text is an error."""

OTHER = {"bibtex", "diff", "yaml", "csv", "latex"}
"""Languages that are only shown."""

_BLOCK = re.compile(
    r"^(?:<!-- (?P<mark>[^\n]*?) -->\n)?```(?P<language>\w*)(?: title=\"(?P<title>[^\"\n]+)\")?\n"
    r"(?P<body>.*?)^```$",
    re.DOTALL | re.MULTILINE,
)


@dataclass(frozen=True)
class Block:
    """One fenced block: its language, its text, the comment before it, and where the text begins and ends."""

    language: str
    body: str
    mark: str
    title: str
    start: int
    end: int

    @property
    def not_run(self) -> bool:
        """Whether it is shown and no more."""
        return self.mark.startswith("not run: ")

    @property
    def runs(self) -> bool:
        """Whether it is an example that is run."""
        return self.language in ("sh", "python") and not self.not_run and not self.title


@dataclass(frozen=True)
class Example:
    """A block that is run, and the block with what it prints, if the page shows that."""

    block: Block
    output: Block | None

    def shows(self, printed: str) -> bool:
        """Whether the page shows what was printed."""
        return self.output is None or alike(
            self.output.body, printed, self.output.mark.endswith("; numbers vary")
        )


def blocks_of(text: str) -> list[Block]:
    """The fenced blocks of a page."""
    return [
        Block(
            match["language"],
            match["body"],
            match["mark"] or "",
            match["title"] or "",
            *match.span("body"),
        )
        for match in _BLOCK.finditer(text)
    ]


def unmarked(text: str) -> list[str]:
    """The first lines of blocks that are neither run, nor printed by one that is, nor marked as shown only."""
    blocks, wrong = blocks_of(text), []
    for before, block in zip([None, *blocks], blocks, strict=False):
        printed = block.language == "text" and before is not None and before.runs
        if not (
            block.not_run
            or block.runs
            or block.title
            or printed
            or block.language in DATA
            or block.language in OTHER
        ):
            wrong.append(block.body.partition("\n")[0])
        if block.language in DATA and not block.not_run:
            DATA[block.language](block.body)
    if text.count("\n```") + text.startswith("```") != 2 * len(blocks):
        wrong.append("a fence that this does not understand")
    return wrong


class Demo:
    """The runs of ``choicewise demo``, made when a page first needs them, or what was made of them before."""

    def __init__(self, folder: Path) -> None:
        self.folder, self._said = folder, folder / "said.txt"

    def made(self) -> str:
        """What the command prints."""
        if not self._said.is_file():
            shutil.rmtree(self.folder, ignore_errors=True)
            self.folder.mkdir(parents=True)
            printed = shell(DEMO, self.folder)
            self._said.write_text(printed, encoding="utf-8")
        return self._said.read_text(encoding="utf-8")

    def put(self, into: Path) -> None:
        """Copy the runs into a page's folder."""
        self.made()
        shutil.copytree(self.folder / "demo-run", into / "demo-run", dirs_exist_ok=True)


def shell(command: str, folder: Path, exits: int = 0) -> str:
    """What ``command`` prints to stdout in ``folder``.  Raises AssertionError where it ends with another code."""
    tools = folder.parent / "tools"
    tools.mkdir(exist_ok=True)
    for name, words in (("choicewise", "-m choicewise"), ("python", "")):
        (tools / name).write_text(
            f'#!/bin/sh\nexec "{sys.executable}" {words} "$@"\n', encoding="utf-8"
        )
        (tools / name).chmod(0o755)
    environment = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("COV_", "PYTEST_"))
    }
    environment |= {
        "PATH": f"{tools}:{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT / "src"),
        "COLUMNS": str(WIDTH),
    }
    # The demo of the pages is without the published model, whether or not this user has its file.
    environment["XDG_CACHE_HOME"] = str(folder.parent / "cache")
    environment |= {
        "HF_HUB_OFFLINE": "1",
        "NO_COLOR": "1",
        "OMP_NUM_THREADS": "1",
        "LC_ALL": "C.UTF-8",
    }
    ended = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", command],
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        encoding="utf-8",
    )
    assert ended.returncode == exits, (
        f"{command}\nended with {ended.returncode}:\n{ended.stdout}\n{ended.stderr}"
    )
    return ended.stdout


def results(text: str, demo: Demo, place: Path) -> list[tuple[Example, str]]:
    """Every example of a page with what it prints, run in the folder ``place``."""
    place.mkdir(parents=True)
    blocks, done = blocks_of(text), []
    if "demo-run" in text:
        demo.put(place)
    for block, after in zip_longest(blocks, blocks[1:]):
        if block.title:
            (place / block.title).write_text(block.body, encoding="utf-8")
        if not block.runs:
            continue
        if block.body.strip() == DEMO:
            printed = demo.made()
        else:
            command = block.body
            if block.language == "python":
                command = f"python - <<'END OF THE EXAMPLE'\n{block.body}END OF THE EXAMPLE\n"
            exits = re.fullmatch(r"exits: (\d+)", block.mark)
            printed = shell(command, place, int(exits[1]) if exits else 0)
        output = (
            after if after is not None and after.language == "text" and not after.not_run else None
        )
        done.append((Example(block, output), shown(printed, output.mark if output else "")))
    return done


def shown(printed: str, mark: str) -> str:
    """What a page shows of what was printed."""
    lines = [line.rstrip() for line in printed.rstrip().splitlines()]
    if match := re.fullmatch(r"shown: ([^;]*)(?:;.*)?", mark):
        parts: list[str] = []
        last = 0
        for part in match[1].split(","):
            first, _, end = part.strip().partition("-")
            stop = int(first) if "-" not in part else int(end or len(lines))
            parts += [GAP] * (int(first) > last + 1) + lines[int(first) - 1 : stop]
            last = stop
        lines = parts + [GAP] * (last < len(lines))
    return "".join(f"{line}\n" for line in lines)


def alike(said: str, printed: str, vary: bool = False) -> bool:
    """Whether the two are equal but for what machines differ in: ids of models, and the last digit of a number.

    A number printed with more than four decimals may differ by 1e-4: a model's passes in float32 round as the
    processor's kernels do.

    ``vary``: whether all their numbers may differ.
    """
    ones, others = (re.sub(r"#([A-Z])[0-9a-f]{6}\b", r"#\1", text) for text in (said, printed))
    if vary:
        # Columns are as wide as their longest number.
        ones, others = (re.sub(r"\s*\d[\d.e-]*", " 0", text) for text in (ones, others))
        ones, others = (re.sub(" +", " ", text) for text in (ones, others))
        return ones == others
    number = re.compile(r"(\d+(?:\.\d+)?)")
    left, right = number.split(ones), number.split(others)
    return len(left) == len(right) and all(
        a == b or (place % 2 == 1 and _close(a, b))
        for place, (a, b) in enumerate(zip(left, right, strict=True))
    )


def _close(one: str, other: str) -> bool:
    digits = min(4, *(len(text.partition(".")[2]) for text in (one, other)))
    return "." in one and "." in other and abs(float(one) - float(other)) <= 1.01 * 10**-digits


def pages() -> list[Path]:
    """Every page."""
    return sorted({file for pattern in PAGES for file in ROOT.glob(pattern)})


def main() -> int:
    """Run the pages named on the command line, or all of them."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("pages", nargs="*", type=Path)
    parser.add_argument("--check", action="store_true")
    parser.add_argument(
        "--demo", type=Path, help="where the runs of the demo are kept for the next time"
    )
    given = parser.parse_args()
    wrong = 0
    with tempfile.TemporaryDirectory() as temporary:
        demo = Demo((given.demo or Path(temporary) / "demo").resolve())
        for number, page in enumerate([file.resolve() for file in given.pages] or pages()):
            text = page.read_text(encoding="utf-8")
            written = text
            try:
                printed_by = results(text, demo, Path(temporary) / str(number) / "page")
            except AssertionError as error:
                wrong += 1
                print(f"{page.relative_to(ROOT)}: {error}")
                continue
            for example, printed in reversed(printed_by):
                if example.output is not None and not example.shows(printed):
                    wrong += 1
                    print(f"{page.relative_to(ROOT)}: {example.block.body.strip()}\n{printed}")
                    written = (
                        written[: example.output.start] + printed + written[example.output.end :]
                    )
            if not given.check and written != text:
                page.write_text(written, encoding="utf-8")
    return int(given.check and wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
