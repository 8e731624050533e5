"""What the page about Slurm says to submit, submitted: the tables of one process."""

import os
import subprocess
import sys
from pathlib import Path
from textwrap import dedent

import examples
import pytest

from tests.paths import ROOT

BLOCKS = examples.blocks_of((ROOT / "docs" / "slurm.md").read_text(encoding="utf-8"))
(SCRIPT,) = (block.body for block in BLOCKS if block.title == "array.sh")
(SUBMIT,) = (block.body for block in BLOCKS if "sbatch --parsable array.sh" in block.body)


@pytest.fixture
def shell(tmp_path: Path) -> dict[str, str]:
    """Where ``choicewise`` and a ``sbatch`` are commands."""
    pytest.importorskip("torch")
    commands = tmp_path / "bin"
    commands.mkdir()
    for name, words in {
        "choicewise": "-m choicewise",
        "sbatch": str(ROOT / "tests" / "helpers" / "sbatch.py"),
    }.items():
        (commands / name).write_text(f'#!/bin/sh\nexec {sys.executable} {words} "$@"\n')
        (commands / name).chmod(0o755)
    (tmp_path / "array.sh").write_text(SCRIPT)
    return {
        **os.environ,
        "PATH": f"{commands}:{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT / "src"),
    }


def test_an_array_and_its_merge_are_the_run_of_one_process(
    tmp_path: Path, shell: dict[str, str]
) -> None:
    def bash(script: str, code: int = 0) -> str:
        ended = subprocess.run(
            ["bash", "-c", script],
            cwd=tmp_path,
            env=shell,
            capture_output=True,
            text=True,
            check=False,
        )
        logs = "".join(
            f"{path.name}: {path.read_text()}" for path in sorted(tmp_path.glob("*.log"))
        )
        assert ended.returncode == code, ended.stderr + logs
        return logs

    first = SCRIPT.replace("--array=1-3", "--array=2").replace("--shard slurm", "--shard 2/3")
    (tmp_path / "one.sh").write_text(first)
    bash("sbatch one.sh")
    refused = bash("sbatch --array=3 array.sh", code=1)  # of a whole that it does not know
    assert "--array from 3 to 3, 1 in all" in refused
    bash(SUBMIT)
    line = next(
        part
        for part in dedent(SCRIPT.replace("\\\n", "")).splitlines()
        if part.startswith("choicewise run")
    )
    bash(f"{line.partition('--shard')[0]} --out whole")
    tables = sorted(
        path.relative_to(tmp_path / "whole")
        for path in (tmp_path / "whole").glob("blocks/*/*.parquet")
    )
    assert len(tables) > 10
    for table in (Path("items.parquet"), *tables):
        assert (tmp_path / "run" / table).read_bytes() == (tmp_path / "whole" / table).read_bytes()
