"""Which expensive tiers of tests have to run: those whose files differ from those that they last passed with.

python tests/tiers.py all          # the names of all of them, a line each
python tests/tiers.py changed      # of those whose files changed
python tests/tiers.py record NAME  # that the tier passed with the files as they are
"""

import hashlib
import subprocess
import sys
import tomllib
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
TIERS, PASSED = ROOT / "tests" / "tiers.toml", ROOT / "tests" / "passed.toml"


def digest(paths: list[str]) -> str:
    """SHA-256 over names and contents of the files below ``paths`` that git knows or would add."""
    line = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--", *paths]
    names = subprocess.run(line, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split(
        "\0"
    )
    found = hashlib.sha256()
    for name in sorted({each for each in names if each and (ROOT / each).is_file()}):
        found.update(f"{name}\0{hashlib.sha256((ROOT / name).read_bytes()).hexdigest()}\n".encode())
    return found.hexdigest()


def tiers() -> dict[str, str]:
    """The digest of each tier's files."""
    return {
        name: digest(tier["paths"])
        for name, tier in tomllib.loads(TIERS.read_text(encoding="utf-8")).items()
    }


def passed() -> Mapping[str, str]:
    """The digests with which the tiers last passed; a tier that never did is missing."""
    return tomllib.loads(PASSED.read_text(encoding="utf-8")) if PASSED.exists() else {}


def main(*words: str) -> None:
    match words:
        case ["all"]:
            print(*tiers(), sep="\n")
        case ["changed"]:
            before = passed()
            print(*(name for name, now in tiers().items() if before.get(name) != now), sep="\n")
        case ["record", name] if name in (now := tiers()):
            rows = {**passed(), name: now[name]}
            text = "".join(f'{each} = "{rows[each]}"\n' for each in now if each in rows)
            head = "# Written by `make test-all`: the files that each tier last passed with.\n"
            PASSED.write_text(head + text, encoding="utf-8")
        case _:
            sys.exit(__doc__)


if __name__ == "__main__":
    main(*sys.argv[1:])
