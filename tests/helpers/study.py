"""Runs that many tests read: three fakes under three protocols on the same twelve questions, made once a session."""

import platform
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from shutil import copytree

import pytest

from choicewise import Run, evaluate, open_run
from tests.helpers.mmlu_data import write_mmlu

PROTOCOLS = ["mmlu/original", "mmlu/cloze", "mmlu/harness-v0"]


@dataclass(frozen=True)
class Study:
    """``data``, and the folders of the runs of ``fake:hash``, ``fake:oracle`` and ``fake:anti-oracle`` on it. Nobody
    changes them: who needs to takes a :meth:`copy`."""

    data: Path
    hash: Path
    oracle: Path
    anti: Path

    @property
    def folders(self) -> list[Path]:
        return [self.hash, self.oracle, self.anti]

    @cached_property
    def runs(self) -> list[Run]:
        return [open_run(folder) for folder in self.folders]

    def copy(self, to: Path, run: str = "hash") -> Path:
        """A copy of one of the runs, which a test may change."""
        return copytree(getattr(self, run), to)


def write_study(folder: Path) -> Study:
    data = write_mmlu(folder / "data")
    study = Study(data, folder / "hash", folder / "oracle", folder / "anti")
    with (
        pytest.MonkeyPatch.context() as patch
    ):  # any Python 3.11 gives the same ids of runs, which snapshots show
        patch.setattr(platform, "python_version", lambda: "3.11.7")
        for model, out in zip(("hash", "oracle", "anti-oracle"), study.folders, strict=True):
            evaluate(model=f"fake:{model}", data=data, protocols=PROTOCOLS, out=out)
    return study
