"""What an extra installs, and which versions constraints.txt names."""

from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from packaging.markers import default_environment
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.paths import ROOT

CONSTRAINTS = ROOT / "constraints.txt"


def pins(path: Path = CONSTRAINTS) -> dict[str, str]:
    """Versions by normalised name."""
    lines = [
        line
        for line in path.read_text(encoding="utf-8").splitlines()
        if line and not line.startswith("#")
    ]
    return {
        canonicalize_name(name): version
        for name, _, version in (line.partition("==") for line in lines)
    }


def installed(extra: str) -> dict[str, str]:
    """The installed version, or "" without one, of all that ``choicewise[extra]`` asks for, at any depth."""
    versions: dict[str, str] = {}
    seen, waiting = set(), [("choicewise", frozenset({extra}))]
    while waiting:
        name, extras = waiting.pop()
        if (name, extras) in seen:
            continue
        seen.add((name, extras))
        try:
            package = distribution(name)
        except PackageNotFoundError:
            versions[name] = ""
            continue
        versions[name] = package.version.partition("+")[0]
        for line in package.requires or ():
            wanted = Requirement(line)
            marked = [{**default_environment(), "extra": one} for one in extras or {""}]
            if wanted.marker is None or any(wanted.marker.evaluate(one) for one in marked):
                waiting.append((canonicalize_name(wanted.name), frozenset(wanted.extras)))
    del versions["choicewise"]
    return versions


def unlike(extra: str) -> dict[str, tuple[str, str | None]]:
    """Installed and pinned version of every package where they differ."""
    pinned = pins()
    both = {name: (version, pinned.get(name)) for name, version in installed(extra).items()}
    return {name: versions for name, versions in both.items() if versions[0] != versions[1]}
