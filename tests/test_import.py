"""Nothing heavy is loaded before it is needed."""

from __future__ import annotations

import subprocess
import sys

import pytest

import choicewise

HEAVY = {"torch", "transformers", "pandas", "scipy", "tokenizers", "pydantic"}

PROBE = "import sys; {}; print(*sorted({!r} & set(sys.modules)))"


@pytest.mark.parametrize(
    "use",
    [
        "import choicewise",
        "from choicewise.cli import app",
        "from choicewise import evaluate, open_run, open_dataset",
        "from choicewise.protocols.catalogue import resolve; resolve('mmlu')",
    ],
)
def test_light_uses_load_nothing_heavy(use: str) -> None:
    found = subprocess.run([sys.executable, "-c", PROBE.format(use, HEAVY)], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == ""


def test_help_loads_nothing_heavy() -> None:
    code = (
        "import sys, atexit\n"
        f"atexit.register(lambda: print(*sorted({HEAVY!r} & set(sys.modules)), file=sys.stderr))\n"
        "sys.argv = ['choicewise', '--help']\n"
        "from choicewise.cli import main; main()"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "demo" in found.stdout
    assert found.stderr.strip() == ""


def test_every_public_name_is_there() -> None:
    assert set(choicewise.__all__) <= set(dir(choicewise))
    for name in choicewise.__all__:
        assert getattr(choicewise, name).__doc__
    with pytest.raises(AttributeError, match="nonsense"):
        _ = choicewise.nonsense
