"""``choicewise plot`` writes a chart, in full or not at all."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from choicewise import evaluate
from choicewise.cli.page import FORMATS
from choicewise.errors import ChoicewiseError, StoreError, UsageError
from choicewise.page.charts.chart import Chart
from tests.helpers.commands import CommandResult, choicewise
from tests.helpers.mmlu_data import write_mmlu


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs")
    data = write_mmlu(folder / "data")
    for model in ("hash", "oracle"):
        evaluate(model=f"fake:{model}", data=data, protocols=["mmlu/original", "mmlu/cloze"], out=folder / model)
    return folder


def plot(*arguments: str | Path) -> CommandResult:
    return choicewise("plot", *arguments)


@pytest.mark.parametrize(("suffix", "begin"), [*zip(FORMATS, (b"<svg", b"\x89PNG", b"%PDF", b"{"), strict=True)])
def test_every_format_is_written(folder: Path, tmp_path: Path, suffix: str, begin: bytes) -> None:
    out = tmp_path / "new" / f"chart{suffix}"
    result = plot(folder / "hash", "strip", "--out", out)
    assert (result.code, result.stdout) == (0, "")
    assert result.stderr == f"wrote {out}\n"
    assert out.read_bytes().startswith(begin)
    assert list(out.parent.iterdir()) == [out]


def test_json_is_the_specification(folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "chart.json"
    assert plot(folder / "hash", folder / "oracle", "bump", "--value", "--out", out).code == 0
    spec = json.loads(out.read_text(encoding="utf-8"))
    assert spec["$schema"].endswith("vega-lite/v6.json")
    places = [record for record in spec["data"]["values"] if record["kind"] == "place"]
    assert {record["model"] for record in places} == {"fake:hash", "fake:oracle"}


def test_options_choose(folder: Path, tmp_path: Path) -> None:
    runs = folder / "hash", folder / "oracle"
    ends = "--from", "mmlu/original", "--to", "mmlu/cloze:sum"
    for line in (
        ("ladder", "--model", "fake:oracle", *ends),
        ("strip", "--model", "fake:oracle", "--rank", "--protocol", "mmlu/original"),
        ("pair",),
        ("ranks", "--protocol", "mmlu/original"),
    ):
        out = tmp_path / f"{line[0]}.json"
        result = plot(*runs, line[0], *line[1:], "--out", out)
        assert result.code == 0, (line, result.stderr)
        assert out.exists()


@pytest.mark.parametrize(
    ("arguments", "message", "kind"),
    [
        (["RUN", "strp", "--out", "OUT/a.svg"], "no chart is called 'strp'", UsageError),
        (
            ["strip", "RUN", "--out", "OUT/a.svg"],
            "strip stands before the run folders; name",
            UsageError,
        ),
        (["strip", "--out", "OUT/a.svg"], "no run was named", UsageError),
        (["RUN", "strip", "--out", "OUT/a.gif"], "ends in none of .svg, .png, .pdf, .json", UsageError),
        (["RUN", "strip", "--out", "OUT"], "is a folder; name a file in it", UsageError),
        (["RUN", "strip", "--from", "x", "--out", "OUT/a.svg"], "strip has no use for --from", UsageError),
        (["RUN", "bump", "--out", "OUT/a.svg"], "these runs can be drawn as strip, ladder, effects", UsageError),
        (["OUT", "strip", "--out", "OUT/a.svg"], "is not a run folder", StoreError),
        (["RUN", "strip", "--out", "/proc/nowhere/a.svg"], "can't be written", StoreError),
    ],
)
def test_wrong_use_is_explained(
    folder: Path, tmp_path: Path, arguments: list[str], message: str, kind: type[ChoicewiseError]
) -> None:
    places = {"RUN": str(folder / "hash"), "OUT": str(tmp_path)}
    line = [word.replace("OUT", places["OUT"]) if "OUT" in word else places.get(word, word) for word in arguments]
    result = plot(*line)
    assert result.code == kind.exit_code
    assert message in result.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_failure_leaves_the_old_file(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "chart.svg"
    out.write_text("old", encoding="utf-8")

    def fail(chart: Chart) -> str:
        raise UsageError("no renderer")

    monkeypatch.setattr(Chart, "svg", fail)
    assert plot(folder / "hash", "strip", "--out", out).code != 0
    assert out.read_text(encoding="utf-8") == "old"
    assert list(tmp_path.iterdir()) == [out]
