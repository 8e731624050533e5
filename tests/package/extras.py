"""pip resolves every extra that a page or a message of ours names, with the versions of the file named there.

python tests/package/extras.py
"""

import re
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

from choicewise.errors import install_line

ROOT = Path(__file__).resolve().parents[2]
LINE = re.compile(r"pip install --constraint (\S+) '\.\[([a-z,]+)\]'")
"""What installs extras, as pages and messages say it."""
MESSAGE = re.compile(r"""install_line\(['"]([a-z]+)['"]\)""")


def main() -> None:
    """Resolve the extras of each file of versions together: what is pinned for all of them fits any of them."""
    for constraints, extras in named_extras().items():
        wanted = f".[{','.join(sorted(extras))}]"
        resolve = [
            sys.executable,
            "-m",
            "pip",
            "install",
            "--dry-run",
            "--ignore-installed",
            "--quiet",
        ]
        resolve += ["--disable-pip-version-check", "--constraint", constraints, wanted]
        done = subprocess.run(resolve, cwd=ROOT, capture_output=True, text=True, check=False)
        if done.returncode:
            sys.exit(f"{constraints} does not allow {wanted}:\n{done.stderr[-4000:]}")
        print(f"{constraints} allows {wanted}")


def named_extras() -> dict[str, set[str]]:
    """Return the names of extras by the file whose versions they are installed with."""
    texts = [
        file.read_text(encoding="utf-8")
        for file in (ROOT / "README.md", *ROOT.glob("docs/**/*.md"))
    ]
    messages = []
    for file in ROOT.glob("src/**/*.py"):
        messages += map(install_line, MESSAGE.findall(file.read_text(encoding="utf-8")))
    extras: dict[str, set[str]] = defaultdict(set)
    for text in (*texts, *messages):
        for constraints, names in LINE.findall(text):
            extras[constraints].update(names.split(","))
    return extras


if __name__ == "__main__":
    main()
