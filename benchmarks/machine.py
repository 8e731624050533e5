"""Where and with what figures were taken."""

from __future__ import annotations

import os
import platform
import subprocess
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

PACKAGES = ("choicewise", "torch", "transformers", "tokenizers", "numpy", "lm_eval", "minicons")


def machine(peers: Path | None = None, threads: int | None = None) -> dict[str, str]:
    """Processor, cores, memory, load, Python and the versions of packages, the peers' from their own environment."""
    found = {
        "processor": _processor(),
        "cores": str(os.cpu_count()),
        "threads": str(threads or os.cpu_count()),
        "memory": f"{os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES') / 2**30:.0f} GiB",
        "load": f"{os.getloadavg()[1]:.1f}",
        "python": platform.python_version(),
    }
    for package in PACKAGES:
        with suppress(PackageNotFoundError):
            found[package] = version(package)
        if peers is not None and package not in found:
            code = f"from importlib.metadata import version; print(version({package!r}))"
            told = subprocess.run(
                [str(peers), "-c", code], capture_output=True, text=True, check=False
            )
            if told.returncode == 0:
                found[package] = told.stdout.strip()
    return found


def _processor() -> str:
    with suppress(OSError):
        for entry in Path("/proc/cpuinfo").read_text().splitlines():
            if entry.startswith("model name"):
                return entry.partition(":")[2].strip()
    return platform.processor() or platform.machine()
