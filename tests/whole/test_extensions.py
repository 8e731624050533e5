"""Extensions as a whole: nothing of them is loaded before it is used, and other packages plug in without an edit."""

import subprocess
import sys

from choicewise.ports import BUILT_IN


def test_declaring_loads_nothing_else() -> None:
    code = f"import sys; before = {{*sys.modules}}; import {', '.join(BUILT_IN)}; print(*({{*sys.modules}} - before))"
    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.split()
    modules = {module for module in loaded if module.startswith("choicewise.")}
    assert modules == {"choicewise.ports", "choicewise.errors", "choicewise.extensions", *BUILT_IN}


def test_import_and_help_load_no_extension() -> None:
    code = (
        "import sys, choicewise; from choicewise.cli import run_command\n"
        "run_command(['--help']); run_command(['report', '--help'])\n"
        "print(*sys.modules, file=sys.stderr)"
    )
    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stderr.split()
    assert "choicewise.cli.commands" in loaded
    modules = [module for module in loaded if module.startswith("choicewise.extensions.")]
    assert {*modules} <= {*BUILT_IN}
