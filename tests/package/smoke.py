"""An installed Choicewise does its work, in a folder far from the repository: what a new user would type.

PYTHON tests/package/smoke.py base|full    PYTHON: of an environment that has the wheel (full: with [hf,serve,server])
"""

import json
import os
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BIN = Path(sys.executable).parent
NOWHERE = "server:http://127.0.0.1:9/v1#none"
"""Where no server is."""
ASKED = ("--protocol", "mmlu/original", "--limit", "2")
SMALL_DEMO = """
import shutil, sys
from pathlib import Path
from choicewise import bundled
small = Path(shutil.copytree(bundled.BENCHMARK, "questions"))
for file in small.glob("test/*.csv"):
    file.write_text("".join(file.read_text().splitlines(keepends=True)[:3]))
bundled.BENCHMARK, bundled.MODELS = small, bundled.MODELS[:2]
sys.argv = ["choicewise", "demo", "--out", "demo"]
from choicewise.cli import main
main()
"""
"""``choicewise demo`` with two of its models and 3 questions of each subject; the tests run the whole one."""
CACHES = """
import sys, warnings
from choicewise import load_model, score
warnings.simplefilter("error", FutureWarning)
for rung in ("tree", "mask", "prefix", "sequence"):
    model = load_model(sys.argv[1], rung=rung, device="cpu")
    table = score(model, "The old bell of the harbour", [" rang at noon", " rang", " sang"])
    print(*(round(value, 3) for value in table["sum"].to_pylist()))
"""
"""One context on every rung: caches have other names in other versions of transformers, which then warn."""


def main() -> None:
    """SystemExit at the first thing that does not work."""
    with tempfile.TemporaryDirectory() as home:
        shell = Shell(Path(home))
        {"base": base, "full": full}[sys.argv[1]](shell)
    print(f"{sys.argv[1]}: works with {BIN.parent}")


class Shell:
    """Commands in an empty home folder, with nothing of the caller's environment."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.environment = {
            "PATH": f"{BIN}{os.pathsep}{os.defpath}",
            "HOME": str(home),
            "LC_ALL": "C.UTF-8",
        }
        self.environment |= {
            "HF_HUB_OFFLINE": "1",
            "OMP_NUM_THREADS": "1",
            "PYTHONWARNINGS": "default",
        }

    def run(self, *command: object, code: int = 0) -> str:
        """What a command prints; SystemExit unless it ends with ``code``, or warns from our code."""
        words = [str(word) for word in command]
        done = subprocess.run(
            words, cwd=self.home, env=self.environment, capture_output=True, text=True, check=False
        )
        warned = any(
            "Warning:" in line and "choicewise/" in line for line in done.stderr.splitlines()
        )
        if done.returncode != code or "Traceback" in done.stderr or warned:
            sys.exit(
                f"{' '.join(words)} ended with {done.returncode}:\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}"
            )
        return done.stdout + done.stderr if code else done.stdout


def base(shell: Shell) -> None:
    """Without extras: a model that needs no library, a report, and advice where a library is missing."""
    version = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"][
        "version"
    ]
    _expect(
        shell.run("choicewise", "--version").strip().endswith(version),
        "--version names another version",
    )
    _expect("demo" in shell.run("choicewise", "--help"), "--help names no command")
    place = shell.run("python", "-c", "import choicewise; print(choicewise.__file__)").strip()
    _expect(Path(place).is_relative_to(BIN.parent), f"choicewise was imported from {place}")
    data = shell.run(
        "python", "-c", "from choicewise.bundled import BENCHMARK; print(BENCHMARK)"
    ).strip()
    shell.run("choicewise", "run", "--model", "fake:hash", "--data", data, *ASKED, "--out", "fake")
    rows = json.loads(shell.run("choicewise", "report", "fake", "--json"))
    _expect(rows and all(row["n"] > 0 for row in rows), "a report of a run has no rows")
    shell.run("choicewise", "export", "fake", "--format", "items-csv", "--out", "items.csv")
    shell.run("choicewise", "export", "fake", "--format", "scores-csv", "--out", "scores.csv")
    head = (shell.home / "items.csv").read_text(encoding="utf-8").partition("\n")[0]
    _expect(head.startswith('"model","task","item"'), "an export has no head")
    told = shell.run("choicewise", "page", "fake", "--out", "page.html", code=2)
    _expect("'.[page]'" in told, "no advice where the libraries of pages are missing")
    shell.run("choicewise", "protocols")
    _expect(
        "'.[hf]'" in shell.run("choicewise", "demo", code=5), "no advice where torch is missing"
    )
    told = shell.run("choicewise", "check", "--model", NOWHERE, code=5)
    _expect("'.[server]'" in told, "no advice where the client of servers is missing")


def full(shell: Shell) -> None:
    """With a model: a demo of few questions, its page, and a run of a bundled model."""
    printed = shell.run("python", "-c", SMALL_DEMO)
    page = shell.home / "demo" / "page.html"
    _expect(
        "page.html" in printed and "</html>" in page.read_text(encoding="utf-8"),
        "the demo wrote no page",
    )
    code = "import choicewise.bundled as b; print(b.MODELS[0], b.BENCHMARK)"
    model, data = shell.run("python", "-c", code).split()
    asked = ("--model", model, "--data", data, *ASKED, "--protocol", "options/cloze")
    shell.run("choicewise", "run", *asked, "--out", "run")
    shell.run("choicewise", "page", "run", "--out", "page.html")
    shell.run("choicewise", "plot", "run", "strip", "--out", "strip.svg")
    _expect("<svg" in (shell.home / "strip.svg").read_text(encoding="utf-8"), "no chart was drawn")
    sums = shell.run("python", "-c", CACHES, model).splitlines()
    _expect(len(sums) == 4 and len(set(sums)) == 1, f"rungs have other sums: {sums}")
    shell.run("choicewise", "check", "--model", model)
    told = shell.run("choicewise", "check", "--model", NOWHERE, code=5)
    _expect("can't be reached" in told, "a server that is not there is not named")


def _expect(true: object, otherwise: str) -> None:
    if not true:
        sys.exit(otherwise)


if __name__ == "__main__":
    main()
