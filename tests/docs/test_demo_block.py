"""The README's first block, on a machine that has the file of the published model."""

import os
from pathlib import Path

import examples
import pytest

from choicewise.extensions.demo.published_model import published_model
from tests.paths import ROOT


@pytest.mark.costly("the demo with a model of 135 million parameters")
def test_the_demo_prints_what_the_readme_shows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(Path("~/.cache").expanduser()))
    file = published_model()
    if file is None:
        pytest.skip("the published model is not there; make demo fetches it")
    cache = tmp_path / "cache" / "choicewise" / "models" / "published"
    cache.mkdir(parents=True)
    os.symlink(file, cache / file.name)
    blocks = examples.blocks_of((ROOT / "README.md").read_text(encoding="utf-8"))
    command = next(block for block in blocks if block.body.strip() == examples.DEMO)
    output = blocks[blocks.index(command) + 1]
    (tmp_path / "page").mkdir()
    printed = examples.shell(command.body, tmp_path / "page")
    assert examples.alike(output.body, printed)
