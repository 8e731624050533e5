"""The options of a command that evaluates become the words of a line that goes on with its run."""

from __future__ import annotations

from pathlib import Path

from typer.testing import CliRunner

from choicewise.cli import app
from choicewise.cli.options import Dtype, Evaluation, OnBadItem
from choicewise.store.manifest import read_manifest

from .worlds import write_mmlu


def test_every_option_that_changes_what_is_asked_is_kept() -> None:
    asked = Evaluation(
        *("models/m", Path("-d"), ["tides", "trees"], 3, OnBadItem.skip, Path("map.toml")),
        *(Dtype.float32, "cpu", 512, 4096),
    )
    words = list(asked.command)
    pairs = list(zip(words[::2], words[1::2], strict=True))
    assert pairs == [
        *(("--model", "models/m"), ("--data", "./-d"), ("--limit", "3"), ("--mapping", "map.toml")),
        *(("--dtype", "float32"), ("--device", "cpu"), ("--window", "512"), ("--on-bad-item", "skip")),
        *(("--subject", "tides"), ("--subject", "trees")),
    ]
    plain = Evaluation("fake:hash", Path("d"), None, None, OnBadItem.error, None, None, None, None, None)
    assert plain.command == ("--model", "fake:hash", "--data", "d")


def test_a_run_keeps_the_words_that_began_it_until_others_go_on(tmp_path: Path) -> None:
    data, out = write_mmlu(tmp_path / "data"), tmp_path / "run"

    def asked(protocol: str, data: Path) -> tuple[str, ...]:
        words = ["run", "--model", "fake:hash", "--data", str(data), "--protocol", protocol, "--out", str(out)]
        assert CliRunner().invoke(app, words).exit_code == 0
        return read_manifest(out).command

    first = asked("mmlu/original", data)
    assert first == ("--model", "fake:hash", "--data", str(data))
    (tmp_path / "moved").symlink_to(data)
    assert asked("mmlu/original", tmp_path / "moved") == first  # nothing to do
    assert asked("mmlu/helm", tmp_path / "moved")[-1] == str(tmp_path / "moved")
