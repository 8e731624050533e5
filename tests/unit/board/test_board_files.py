"""The board as files: complete, safe, and with nothing to load from elsewhere."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote

import pytest

from choicewise.cli.commands import invoke
from choicewise.errors import StoreError, UsageError
from tests.helpers.board import change, rename, write_run

HOSTILE = "<script>alert(1)</script>\"'&\u202e\u2028\x1b]0;x\x07../../etc" + "w" * 300


class Links(HTMLParser):
    """Every address that a page names, and every attribute with a script or a style."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.addresses: list[str] = []
        self.inline: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.addresses += [value or "" for name, value in attrs if name in ("href", "src", "action")]
        self.inline += [name for name, _ in attrs if name.startswith("on") or name == "style"]


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The board of two complete runs, one with a hostile name, and of one that goes on."""
    folder = tmp_path_factory.mktemp("runs")
    write_run(folder / "hash")
    rename(write_run(folder / "oracle", model="fake:oracle"), HOSTILE)
    change(write_run(folder / "slow", model="fake:anti-oracle"), lambda manifest: replace(manifest, complete=False))
    out = tmp_path_factory.mktemp("out") / "board"
    assert invoke(["page", str(folder), "--out", str(out)]) == 0
    return out


def pages(out: Path) -> Iterator[Path]:
    yield from sorted(out.rglob("*.html"))


def test_there_is_a_page_for_everything(out: Path) -> None:
    told = json.loads((out / "board.json").read_text())
    assert {model["model"] for model in told["models"]} == {"fake:hash", HOSTILE, "fake:anti-oracle"}
    assert len(list((out / "run").iterdir())) == 3
    assert len(list((out / "model").glob("*.html"))) == 3
    assert len(list((out / "protocol").iterdir())) == 12
    assert len(list((out / "strip").iterdir())) == 2
    assert "incomplete" in (out / "index.html").read_text()


def test_every_link_leads_to_a_file_beside_it(out: Path) -> None:
    for page in pages(out):
        links = Links(page.read_text())
        assert links.inline == [], page
        for address in links.addresses:
            path = unquote(address.partition("#")[0])
            if page.parent.name == "run" and address.startswith(("https://", "data:")):
                continue  # a citation, or a download that the document holds itself
            if not path or address == "data:," or address.startswith("https://"):
                continue
            assert not path.startswith(("/", "http:", "javascript:")), (page, address)
            assert (page.parent / path).exists(), (page, address)


def test_nothing_of_a_hostile_name_is_markup(out: Path) -> None:
    for file in out.rglob("*"):
        assert re.fullmatch(r"[A-Za-z0-9._-]+", file.name)
        if file.suffix in (".html", ".json", ".csv"):
            text = file.read_bytes().decode()
            assert "<script>alert" not in text or file.suffix == ".csv"
            assert not {"\x1b", "\u202e", "\u2028", "\x07"} & set(text), file


def test_pages_say_what_they_may_load(out: Path) -> None:
    for page in pages(out):
        text = page.read_text()
        policy = re.search(r'Content-Security-Policy" content="([^"]*)"', text)
        assert policy is not None, page
        assert "default-src 'none'" in policy[1].replace("&#39;", "'")
        assert "unsafe" not in policy[1]


def test_artefacts_are_what_their_names_say(out: Path) -> None:
    files = list((out / "artefact").iterdir())
    assert {file.suffix for file in files} == {".csv", ".parquet"}
    assert all(hashlib.sha256(file.read_bytes()).hexdigest() == file.stem for file in files)


def test_places_that_are_no_board_are_refused(out: Path, tmp_path: Path) -> None:
    run = write_run(tmp_path / "run")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "file").touch()
    (tmp_path / "file").touch()
    for place, words in (("other", "holds other files"), ("file", "is a file")):
        with pytest.raises(UsageError, match=words):
            invoke(["page", str(run), "--out", str(tmp_path / place)])
    with pytest.raises(UsageError, match="--items"):
        invoke(["page", str(run), "--out", str(tmp_path / "new"), "--items", "3"])
    with pytest.raises(StoreError, match="no run lies in or below"):
        invoke(["page", str(tmp_path / "nowhere"), "--out", str(tmp_path / "new")])
    assert not (tmp_path / "new").exists()
