"""The pages about the code name what exists."""

import re
from functools import reduce
from importlib import import_module
from pathlib import Path

import pytest

from choicewise.cli import app

ROOT = Path(__file__).parent.parent
STEPS = re.findall(r"^\|[^|]*\| `([^`]+)\.py` \| `([^`]+)` \|", (ROOT / "docs/design/flow.md").read_text(), flags=re.M)


@pytest.mark.parametrize(("file", "name"), STEPS, ids=[f"{file}:{name}" for file, name in STEPS])
def test_every_step_of_the_flow_exists(file: str, name: str) -> None:
    if file.startswith("models/local"):
        pytest.importorskip("torch")
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
