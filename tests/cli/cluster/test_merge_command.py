"""Shards as a user types them: what is refused names the command that goes on."""

import json
from pathlib import Path

import pytest

from tests.helpers.commands import choicewise

LINE = (
    "run",
    "--model",
    "fake:hash",
    "--data",
    "bundled:merrowick",
    "--protocol",
    "mmlu/cloze:sum",
    "--limit",
    "2",
)


@pytest.fixture(scope="module")
def parts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Shards 1 and 2 of 3."""
    folder = tmp_path_factory.mktemp("parts")
    for number in (1, 2):
        told = choicewise(*LINE, "--shard", f"{number}/3", "--out", folder / str(number), code=0)
        assert told.stdout == ""
        assert f"shard {number}/3" in told.stderr
        assert "`choicewise merge" in told.stderr
    return folder


@pytest.mark.parametrize(
    "words",
    [
        ("report", "1"),
        ("report", "."),
        ("page", "1", "--out", "page.html"),
        ("compare", "1", "2"),
        ("export", "1", "--format", "csv", "--out", "table"),
        ("explain", "1", "--item", "trades/test/0"),
        ("plot", "1", "strip", "--out", "strip.svg"),
    ],
)
def test_a_shard_alone_says_nothing(
    parts: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
) -> None:
    monkeypatch.chdir(parts)
    told = choicewise(*words, code=2)
    assert "is only shard 1 of 3; run `choicewise merge` on all parts" in told.stderr
    assert {path.name for path in parts.iterdir()} == {"1", "2"}


@pytest.mark.costly("a run, and a shard that was missing")
def test_a_merge_names_the_line_that_asks_what_lacks_and_prints_the_run(
    parts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("parts").symlink_to(parts)
    lacking = choicewise("merge", "parts", "--out", "run", code=2).stderr
    assert "shard 3 of 3" in lacking
    assert "--allow-missing" in lacking
    line = lacking.splitlines()[-1].strip()
    assert line == f"choicewise {' '.join(LINE)} --shard 3/3 --out parts/3"
    some = choicewise("merge", "parts", "--out", "some", "--allow-missing", "--json", code=0)
    assert any(row["missing"] for row in json.loads(some.stdout))
    assert "some has shards 1 and 2 of 3, merged; run `choicewise merge`" in some.stderr
    assert choicewise(*line.replace("parts/3", "3").split()[1:], code=0).stdout == ""
    merged = json.loads(choicewise("merge", "some", "3", "--out", "run", "--json", code=0).stdout)
    assert merged == json.loads(choicewise(*LINE, "--out", "whole", "--json", code=0).stdout)
    assert "already exists" in choicewise("merge", "some", "3", "--out", "run", code=2).stderr
    doctor = choicewise("doctor", "3", code=0).stdout
    assert doctor.startswith("3: shard 3 of 3, complete, ")


def test_a_plan_counts_a_shard() -> None:
    def unique(*words: str) -> int:
        told = choicewise(*LINE, *words, "--dry-run", "--json", code=0)
        tokens: int = json.loads(told.stdout)["tokens_unique"]
        return tokens

    parts = [unique("--shard", f"{number}/3") for number in (1, 2, 3)]
    assert sum(parts) == unique()
    assert max(parts) < unique()


def test_a_shard_is_computed_by_one_process(tmp_path: Path) -> None:
    assert (
        "must be I/N"
        in choicewise(*LINE, "--shard", "4/3", "--out", tmp_path / "run", code=2).stderr
    )
    line = (*LINE, "--shard", "1/3", "--workers", "2", "--out", tmp_path / "run")
    assert "use more shards" in choicewise(*line, code=2).stderr
    assert [*tmp_path.iterdir()] == []
