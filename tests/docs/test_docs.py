"""The pages about the code name what exists."""

import os
import re
import subprocess
import tomllib
from dataclasses import fields
from functools import reduce
from importlib import import_module
from pathlib import Path

import pytest
import yaml

import choicewise
from choicewise.cli import app
from choicewise.data.dataset import Columns, read_mapping
from choicewise.data.items import Item
from choicewise.data.open import open_dataset
from tests.paths import ROOT


def steps(page: str) -> list[tuple[str, str]]:
    """The steps in the tables of a page about the code: a file without its ending, and what stands in it."""
    text = (ROOT / page).read_text(encoding="utf-8")
    return re.findall(r"^\|[^|]*\| `([^`]+)\.py` \| `([^`]+)` \|", text, flags=re.M)


STEPS = steps("docs/design/flow.md")
MEETINGS = steps("docs/design/other-tools.md")


@pytest.mark.parametrize(
    ("file", "name"), [*STEPS, *MEETINGS], ids=[f"{file}:{name}" for file, name in STEPS + MEETINGS]
)
def test_every_step_exists(file: str, name: str) -> None:
    if file.startswith("models/local"):
        pytest.importorskip("torch")
    if file == "integrations/lm_eval/model":
        pytest.importorskip("lm_eval")
    module = import_module(f"choicewise.{file.replace('/', '.').removesuffix('.__init__')}")
    assert reduce(getattr, name.split("."), module) is not None


def test_the_flow_counts_its_steps() -> None:
    page = (ROOT / "docs/design/flow.md").read_text(encoding="utf-8")
    assert f"That is {len(STEPS)} steps in {len({file for file, _ in STEPS})} files." in page


@pytest.mark.parametrize("page", sorted(path.relative_to(ROOT).as_posix() for path in ROOT.glob("docs/**/*.md")))
def test_every_file_that_a_page_names_exists(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    named = {word for word in re.findall(r"`([\w./-]+/[\w./-]+\.(?:py|md|toml|json))`", text) if word.islower()}
    places = (ROOT, ROOT / "src/choicewise", ROOT / "docs", ROOT / "tests")
    assert [word for word in sorted(named) if not any((place / word).is_file() for place in places)] == []


def test_the_readme_names_every_command() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    commands = {command.name or command.callback.__name__ for command in app.registered_commands if command.callback}
    commands |= {group.name or "" for group in app.registered_groups}
    assert [command for command in sorted(commands) if f"choicewise {command}" not in readme] == []


def test_the_page_about_data_has_every_key_of_a_mapping() -> None:
    page = (ROOT / "docs/data.md").read_text(encoding="utf-8")
    rows = "".join(line.split("|")[1] for line in page.splitlines() if line.startswith("| `"))
    keys = [spec.name for spec in fields(Columns) if spec.init]
    assert re.findall("`([a-z_]+)`", rows) == keys


def test_the_examples_of_mappings_run(tmp_path: Path) -> None:
    page = (ROOT / "docs/data.md").read_text(encoding="utf-8")
    (line, mapping), (pair, plain) = re.findall(r"```json\n(.*?)```.*?```toml\n(.*?)```", page, flags=re.S)
    items = []
    for row, text in ((line, mapping), (pair, plain)):
        (tmp_path / "quiz.jsonl").write_text(row, encoding="utf-8")
        (tmp_path / "mapping.toml").write_text(text, encoding="utf-8")
        columns = read_mapping(tmp_path / "mapping.toml")
        items += open_dataset(tmp_path / "quiz.jsonl", columns=columns).splits["test"]
    story = {"story": "Ada found a key.", "asks_for": "who"}
    assert items == [
        Item("7", "What was lost?", ("a key", "a coin"), (1,), "finds", story),
        Item("test/0", "", ("The keys are here.", "The keys is here."), (0,)),
    ]


def test_the_citation_file_says_what_the_package_says() -> None:
    cff = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert {"cff-version", "message", "title", "authors"} <= cff.keys()
    assert (cff["cff-version"], cff["type"], cff["license"]) == ("1.2.0", "software", project["license"])
    assert str(cff["version"]) == project["version"] == choicewise.__version__
    bibtex = (ROOT / "docs/questions/cite.md").read_text(encoding="utf-8")
    assert all(text in bibtex for text in (cff["title"], cff["authors"][0]["name"], f"{{{project['version']}}}"))


def test_bytecode_is_written_whatever_the_environment_says() -> None:
    """Else every process compiles all that it imports."""
    line = ["make", "--silent", "--eval", "shown: ; @echo [$$PYTHONDONTWRITEBYTECODE]", "shown"]
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
    assert subprocess.run(line, cwd=ROOT, env=environment, capture_output=True, text=True).stdout == "[]\n"


def test_the_public_ci_runs_what_we_run_and_may_change_nothing() -> None:
    workflow = yaml.safe_load((ROOT / ".github/workflows/ci.yml").read_text(encoding="utf-8"))
    assert workflow["permissions"] == {"contents": "read"}
    (job,) = workflow["jobs"].values()
    assert {"run": ".ci/run"} in job["steps"]
    actions = [step["uses"] for step in job["steps"] if "uses" in step]
    assert [action for action in actions if not re.fullmatch(r"[\w./-]+@(v\d+\.\d+\.\d+|[0-9a-f]{40})", action)] == []
