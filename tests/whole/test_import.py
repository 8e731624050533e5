"""Nothing heavy is loaded before it is needed."""

import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

import choicewise
from choicewise.bundled import MODELS
from choicewise.cli.commands import application
from choicewise.cli.listing import help_lines
from choicewise.extensions.run.sweep import sweep
from choicewise.running.job import job_of
from tests.helpers.mmlu_data import write_mmlu
from tests.paths import ROOT

HEAVY = {"torch", "transformers", "pandas", "scipy", "tokenizers"}


def said(code: str, *words: str, folder: Path | None = None) -> str:
    """What a Python of its own says last on stderr."""
    line = [sys.executable, "-c", f"import sys; {code}", *words]
    return subprocess.run(
        line, capture_output=True, text=True, check=False, cwd=folder
    ).stderr.splitlines()[-1]


USE = [
    "import choicewise",
    "from choicewise.cli import app",
    "from choicewise import evaluate, open_run, open_dataset",
]


@pytest.mark.parametrize(
    "use", [*USE, "from choicewise.protocols.catalogue import resolve; resolve('mmlu')"]
)
def test_light_uses_load_nothing_heavy(use: str) -> None:
    assert (
        said(f"{use}; print('loaded', *({HEAVY!r} & set(sys.modules)), file=sys.stderr)")
        == "loaded"
    )


@pytest.mark.parametrize(
    ("line", "loaded"),
    [
        (["report", "--help"], "cli.report"),
        (["protocols"], "extensions.catalogue.commands"),
    ],
)
def test_no_command_is_imported_but_the_one_that_is_called(line: list[str], loaded: str) -> None:
    names = ("cli.report", "cli.page", "extensions.run.commands")
    names += ("extensions.catalogue.commands", "extensions.check.commands")
    files = {f"choicewise.{name}" for name in names}
    code = f"from choicewise.cli.commands import invoke; invoke({line}); "
    assert (
        said(f"{code} print(*{files!r} & set(sys.modules), file=sys.stderr)")
        == f"choicewise.{loaded}"
    )


def test_the_list_of_commands_is_the_one_that_typer_prints() -> None:
    listed = (
        CliRunner()
        .invoke(application(), ["--help"], prog_name="choicewise", terminal_width=80)
        .output
    )
    assert [line.strip() for line in listed.splitlines()] == [line.strip() for line in help_lines()]


ALL = HEAVY | {"pydantic", "numpy", "pyarrow", "rich", "safetensors"}
CHECKED = {"pydantic"}  # what typer loads to check the values of options
CATALOGUE = CHECKED | {"numpy"}
STORE = CATALOGUE | {"pyarrow"}
REPORT = STORE | {"rich", "scipy"}
LINES = {
    "--help": set(),
    "--version": set(),
    "nonsense": CHECKED,
    "report --help": CHECKED,
    "run --modle x": CHECKED,
    "run --model m --data d --protocol mmlu --out o --limit 0": CHECKED,
    "run --model fake:hash --data d --protocol mmlu --out o --dtype float32": CHECKED,
    "report d multiverse --by macro": CHECKED,
    "run --model MODEL --data d --protocol nonsense --out o": STORE,
    "protocols": CATALOGUE,
    "protocols show nonsense": CATALOGUE,
    "protocols show mmlu/original": STORE,  # it renders a prompt, which takes a dataset
    "check --model nowhere": CATALOGUE,
    "data nowhere": STORE,
    "data DATA": REPORT,
    "prompts --data nowhere --protocol mmlu": STORE,
    "prompts --data DATA --protocol mmlu/original --limit 1": STORE,
    "run --model MODEL --data nowhere --protocol mmlu --out o": STORE,
    "run --model MODEL --data nowhere --protocol mmlu --out DATA": STORE,
    "run --model nowhere --data DATA --protocol mmlu/original --out o": STORE,
    "run --model fake:hash --data DATA --protocol mmlu/original --out RUN": REPORT,
    "protocols show leaderboard/2023-06": CATALOGUE,
    "run --model m --protocol leaderboard/nonsense --out o": STORE,
    "sweep --model m --out o": STORE,
    "sweep nowhere.toml --out o": STORE,
    "report SWEEP": REPORT,
    "report nowhere": STORE,
    "report RUN": REPORT,
    "report RUN effects": REPORT,
    "ladder mmlu/original mmlu/original:x RUN": STORE,
    "ladder mmlu/original mmlu/helm": CHECKED,
    "ladder mmlu/original mmlu/helm RUN": STORE | {"rich"},
    "ladder mmlu/cloze:sum mmlu/cloze:token_mean RUN": STORE | {"rich"},
    "ladder --json mmlu/original mmlu/cloze:sum RUN": STORE | {"rich"},
    "ladder mmlu/original mmlu/hlem --model m --data d --out o": STORE,
    "report --json RUN": REPORT,
    "explain RUN --item tides/test/0": STORE | {"rich"},
    "explain RUN --item nowhere": STORE | {"rich"},
    "serve nowhere": CHECKED,
    "serve RUN --host 0.0.0.0": CHECKED,
}
"""Line → the most that it may load.  What it takes in seconds follows from that, and is not for a test to say."""


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What stands for the words in capitals."""
    folder = tmp_path_factory.mktemp("lines")
    data = write_mmlu(folder / "DATA")
    choicewise.evaluate(
        model="fake:hash", data=data, protocols=["mmlu/original", "mmlu/cloze"], out=folder / "RUN"
    )
    sweep(
        job_of({"models": ["fake:hash"], "protocols": ["mmlu/original"], "data": [str(data)]}),
        folder / "SWEEP",
    )
    named = {"DATA": str(data), "RUN": str(folder / "RUN"), "MODEL": str(min(MODELS))}
    return named | {"SWEEP": str(folder / "SWEEP")}


TOLD = f"""import os
end = os._exit
told = lambda: print('loaded', *({ALL!r} & set(sys.modules)), file=sys.__stderr__, flush=True)
os._exit = lambda code: end(told() or code)
from choicewise.cli import main; main()
"""


@pytest.mark.parametrize("line", LINES)
def test_a_line_loads_no_more_than_it_needs(
    line: str, places: dict[str, str], tmp_path: Path
) -> None:
    first, *loaded = said(
        TOLD, *(places.get(word, word) for word in line.split(" ")), folder=tmp_path
    ).split(" ")
    assert first == "loaded"
    assert set(loaded) <= LINES[line]


def test_every_public_name_is_there() -> None:
    assert set(choicewise.__all__) <= set(dir(choicewise))
    for name in choicewise.__all__:
        assert getattr(choicewise, name).__doc__
    with pytest.raises(AttributeError, match="nonsense"):
        _ = choicewise.nonsense


SCRIPT = """
from pathlib import Path

import choicewise
from choicewise import InLoop, Run, export, import_answers, import_log, load_harness_tasks, open_bundle, write_bundle

runs: list[Run] = import_log("log.csv", Path("out"))
files: tuple[Path, ...] = export(runs, "csv", "rows.csv").files
digest: str = open_bundle("bundle").record.digest
version: str = choicewise.__version__
print(InLoop, import_answers, load_harness_tasks, write_bundle)
"""


def test_a_type_checker_knows_the_names_of_extensions(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(SCRIPT)
    line = [
        sys.executable,
        "-m",
        "mypy",
        "--strict",
        "--cache-dir",
        str(ROOT / ".mypy_cache"),
        "script.py",
    ]
    checked = subprocess.run(line, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stdout


def test_a_star_imports_every_name(tmp_path: Path) -> None:
    told = said(
        "from choicewise import *; import sys; print(export, InLoop, score, file=sys.stderr)",
        folder=tmp_path,
    )
    assert "score_texts" in told
