"""What a wheel and a source distribution hold: all tracked files that belong there, nothing else, and no secret.

python tests/package/contents.py DIST DIRECT      DIST: the sdist and the wheel made from it; DIRECT: the tree's wheel
"""

import re
import subprocess
import sys
import tarfile
import zipfile
from email import message_from_bytes
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SECRET = re.compile(
    rb"\bhf_[A-Za-z0-9]{30,}|\bsk-[A-Za-z0-9_-]{30,}|\bgh[pousr]_[A-Za-z0-9]{30,}|\bAKIA[0-9A-Z]{16}\b"
    rb"|-----BEGIN [A-Z ]*PRIVATE KEY|(?:extra-)?index-url\s*=|--(?:extra-)?index-url"
)
METADATA = {"METADATA", "RECORD", "WHEEL", "entry_points.txt", "licenses/LICENSE"}
NEEDED = (
    "py.typed",
    ".toml",
    ".j2",
    ".js",
    ".css",
    ".csv",
    ".jsonl",
    ".safetensors",
    "tokenizer.json",
)
"""Endings of files without which an installed Choicewise lacks something; at least one of each is in a wheel."""


def main() -> None:
    """SystemExit with every fault."""
    dist, direct = map(Path, sys.argv[1:])
    (wheel,), (sdist,), (same,) = dist.glob("*.whl"), dist.glob("*.tar.gz"), direct.glob("*.whl")
    faults = [*of_wheel(wheel), *of_sdist(sdist)]
    if wheel.read_bytes() != same.read_bytes():
        faults.append(f"{sdist.name} builds another {wheel.name} than the repository")
    if faults:
        sys.exit("\n".join(faults))
    print(f"{wheel.name} and {sdist.name} hold what they should")


def of_wheel(path: Path) -> list[str]:
    """Faults of a wheel."""
    with zipfile.ZipFile(path) as archive:
        files = {name: archive.read(name) for name in archive.namelist()}
    (about,) = {name.split("/")[0] for name in files if ".dist-info/" in name}
    expected = {name.removeprefix("src/") for name in tracked("src/choicewise")}
    faults = unlike(path, set(files), expected | {f"{about}/{name}" for name in METADATA})
    ends = [end for end in NEEDED if not any(name.endswith(end) for name in files)]
    faults += [f"no file of the wheel ends in {end}" for end in ends]
    return [*faults, *secrets(path, files), *of_metadata(files[f"{about}/METADATA"])]


def of_sdist(path: Path) -> list[str]:
    """Faults of a source distribution."""
    with tarfile.open(path) as archive:
        members = [member for member in archive.getmembers() if not member.isdir()]
        strange = [
            f"{path.name}: {member.name} is no plain file"
            for member in members
            if not member.isfile()
        ]
        opened = {member.name.partition("/")[2]: archive.extractfile(member) for member in members}
        files = {name: file.read() for name, file in opened.items() if file}
    return [*strange, *unlike(path, set(files), {*tracked("."), "PKG-INFO"}), *secrets(path, files)]


def of_metadata(text: bytes) -> list[str]:
    """Faults of what a registry shows."""
    about = message_from_bytes(text)
    wanted = {"Name": "choicewise", "License-Expression": "Apache-2.0", "License-File": "LICENSE"}
    needed = ("Summary", "Keywords", "Classifier", "Requires-Python", "Description-Content-Type")
    faults = [
        f"METADATA: {name} is {about[name]!r}, not {wanted[name]!r}"
        for name in wanted
        if about[name] != wanted[name]
    ]
    faults += [f"METADATA: no {name}" for name in needed if not about[name]]
    direct = [line for line in about.get_all("Requires-Dist", []) if "@" in line]
    return [*faults, *(f"METADATA: {line} names an address" for line in direct)]


def tracked(folder: str) -> set[str]:
    """Files under ``folder`` that git tracks and that are there."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", folder], cwd=ROOT, check=True, capture_output=True, text=True
    )
    return {name for name in listed.stdout.split("\0") if (ROOT / name).is_file()}


def unlike(path: Path, names: set[str], expected: set[str]) -> list[str]:
    """Which files are too many and which too few."""
    more = [f"{path.name}: {name} does not belong there" for name in sorted(names - expected)]
    return more + [f"{path.name}: {name} is missing" for name in sorted(expected - names)]


def secrets(path: Path, files: dict[str, bytes]) -> list[str]:
    """Files with the likeness of a key or the address of a registry."""
    found = {name: likeness for name, text in files.items() if (likeness := SECRET.search(text))}
    return [
        f"{path.name}: {name} holds {likeness.group()[:12]!r}..."
        for name, likeness in found.items()
    ]


if __name__ == "__main__":
    main()
