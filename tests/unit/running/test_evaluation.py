"""The job of a run is kept in its manifest, and the command that resumes it is printed from it."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from choicewise.cli.options import resuming_command
from choicewise.records import Manifest
from choicewise.running.job import job_of
from choicewise.store.folder import read_manifest
from tests.helpers.commands import choicewise
from tests.helpers.mmlu_data import write_mmlu


def test_every_option_that_changes_what_is_asked_is_in_the_command(tmp_path: Path) -> None:
    data, out = write_mmlu(tmp_path / "-d"), tmp_path / "run"
    (tmp_path / "map.toml").write_text('question = "q"\n', encoding="utf-8")
    assert choicewise(*line(data, out, "mmlu/original")).code == 0
    given = {"dtype": "float32", "device": "cpu", "window": 512, "batch_tokens": 4096}
    table = {"models": [{"name": "models/m", **given}], "data": [{"path": "-d", "mapping": "map.toml"}]}
    part = {"subjects": ["tides", "trees"], "limit": 3, "on_bad_item": "skip", "protocols": ["mmlu"]}
    words = resumed(read_manifest(out), job_of({**table, **part}).model_dump(mode="json", exclude_defaults=True))
    pairs = dict(zip(words[2::2], words[3::2], strict=True))
    assert pairs == {
        **{"--model": "models/m", "--data": "./-d", "--limit": "3", "--mapping": "map.toml", "--dtype": "float32"},
        **{"--device": "cpu", "--window": "512", "--on-bad-item": "skip", "--subject": "trees"},
        **{"--protocol": "mmlu/original", "--out": "run"},
    }
    assert words.count("--subject") == 2


def resumed(manifest: Manifest, job: dict[str, object]) -> list[str]:
    from dataclasses import replace

    return shlex.split(resuming_command(replace(manifest, job=job), Path("run"), ["mmlu/original"]))


def line(data: Path, out: Path, protocol: str) -> list[str]:
    return ["run", "--model", "fake:hash", "--data", str(data), "--protocol", protocol, "--out", str(out)]


@pytest.mark.costly("runs are evaluated")
def test_a_run_keeps_the_job_that_began_it_until_others_go_on(tmp_path: Path) -> None:
    data, out = write_mmlu(tmp_path / "data"), tmp_path / "run"

    def asked(protocol: str, data: Path) -> object:
        assert choicewise(*line(data, out, protocol)).code == 0
        return read_manifest(out).job["data"]

    first = asked("mmlu/original", data)
    assert first == [{"path": str(data)}]
    (tmp_path / "moved").symlink_to(data)
    assert asked("mmlu/original", tmp_path / "moved") == first  # nothing to do
    assert asked("mmlu/helm", tmp_path / "moved") == [{"path": str(tmp_path / "moved")}]
