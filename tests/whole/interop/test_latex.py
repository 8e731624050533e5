"""What is exported as LaTeX compiles, and fits between margins of an inch."""

import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

import choicewise
from choicewise.extensions.interop.export import export
from choicewise.extensions.interop.write.paper import Cell, Note, PaperTable, latex
from tests.helpers.latex import NASTY, faults
from tests.helpers.mmlu_data import write_mmlu
from tests.helpers.page_runs import renamed

pytestmark = pytest.mark.skipif(
    shutil.which("pdflatex") is None, reason="there is no pdflatex here"
)
BENCHMARKS = ("arc-challenge", "hellaswag", "commonsenseqa", "truthfulqa", "winogrande", "mmlu-pro")
MODELS = {
    "fake:hash": "meta-llama/Llama-3.1-8B",
    "fake:anti-oracle": "mistralai/Mixtral-8x7B-Instruct-v0.1",
}
PREAMBLE = (
    "\\documentclass{article}\\usepackage[margin=1in]{geometry}\\usepackage{booktabs,longtable}"
)


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Two models, and one called as nothing should be, on six benchmarks."""
    place, found = tmp_path_factory.mktemp("runs"), list[Path]()
    for questions, benchmark in enumerate(BENCHMARKS, 5):
        data = write_mmlu(place / "data" / benchmark, questions=questions)
        for number, (model, name) in enumerate({**MODELS, "fake:oracle": NASTY}.items()):
            out = place / f"{benchmark}-{number}"
            choicewise.evaluate(
                model=model, data=data, protocols=["mmlu/original", "mmlu/helm"], out=out
            )
            found.append(renamed(out, name))
    return found


def compiled(texts: Sequence[str], place: Path) -> str:
    """What pdflatex says of a document of these tables; it ends without an error."""
    body = "\n\\clearpage\n".join(texts)
    (place / "t.tex").write_text(
        f"{PREAMBLE}\\begin{{document}}\n{body}\n\\end{{document}}\n", encoding="utf-8"
    )
    line = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "t.tex"]
    told = subprocess.run(
        line, cwd=place, capture_output=True, text=True, errors="replace", check=False
    )
    assert told.returncode == 0, told.stdout[-3000:]
    return told.stdout


@pytest.mark.parametrize("table", ["models", "numbers"])
def test_whatever_the_names(folders: list[Path], tmp_path: Path, table: str) -> None:
    texts = [
        file.read_text()
        for file in export(folders, "latex", tmp_path / "all.tex", table=table).files
    ]
    assert [wrong for text in texts for wrong in faults(text)] == []
    assert "multiply defined" not in compiled(texts, tmp_path)


def test_six_benchmarks_fit_beside_mean_and_rank(folders: list[Path], tmp_path: Path) -> None:
    named = [folder for folder in folders if not folder.name.endswith("2")]
    texts = [
        file.read_text()
        for file in export(named, "latex", tmp_path / "few.tex", table="models").files
    ]
    assert "mean & rank" in texts[0]
    assert "Overfull" not in compiled(texts, tmp_path)


def test_tables_of_any_size_and_head(tmp_path: Path) -> None:
    cells = (Cell(NASTY, marks=(1,)), Cell("10.0 ± 1.0", bold=True), Cell("1.0", "[0.9, 1.1]"))
    one = PaperTable(
        name="one",
        caption=NASTY,
        heads=("[a]", NASTY, "commonsenseqa"),
        rows=(cells,),
        notes=(Note(NASTY, 1, code=NASTY),),
        feet=1,
    )
    long = replace(one, name="long", rows=(cells,) * 60)
    starred = replace(
        one, name="starred", heads=("*", "x" * 40, ""), rows=((Cell("*b"), *cells[1:]),) * 3
    )
    text = latex([one, long, starred])
    assert faults(text) == []
    compiled([text], tmp_path)
