"""The board as files: complete, safe, and with nothing to load from elsewhere."""

import hashlib
import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote

import pytest

from choicewise.errors import ChoicewiseError, StoreError, UsageError
from tests.helpers.board import change, read_runs_here, rename, write_run
from tests.helpers.commands import choicewise

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
    with pytest.MonkeyPatch.context() as patch:
        read_runs_here(patch)
        choicewise("page", folder, "--out", out, code=0)
    return out


def test_there_is_a_page_for_everything_and_artefacts_are_what_their_names_say(out: Path) -> None:
    told = json.loads((out / "board.json").read_text())
    assert {model["model"] for model in told["models"]} == {"fake:hash", HOSTILE, "fake:anti-oracle"}
    counts = {"run/*": 3, "model/*.html": 3, "protocol/*": 12, "strip/*": 2}
    assert {pattern: len(list(out.glob(pattern))) for pattern in counts} == counts
    assert "incomplete" in (out / "index.html").read_text()
    files = list((out / "artefact").iterdir())
    assert {file.suffix for file in files} == {".csv", ".parquet"}
    assert all(hashlib.sha256(file.read_bytes()).hexdigest() == file.stem for file in files)


def test_every_link_leads_to_a_file_beside_it_and_pages_say_what_they_may_load(out: Path) -> None:
    for page in out.rglob("*.html"):
        links, in_run = Links(page.read_text()), page.parent.name == "run"
        assert links.inline == [], page
        policy = re.search(r'Content-Security-Policy" content="([^"]*)"', page.read_text())
        assert policy is not None, page
        assert "default-src 'none'" in policy[1].replace("&#39;", "'")
        assert "unsafe" not in policy[1]
        for address in links.addresses:
            path = unquote(address.partition("#")[0])
            # a citation, or a download that the document holds itself
            if not path or address == "data:," or address.startswith("https://") or (in_run and address[:5] == "data:"):
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


@pytest.mark.parametrize(
    ("run", "place", "more", "kind", "words"),
    [
        ("run", "other", (), UsageError, "holds other files"),
        ("run", "file", (), UsageError, "is a file"),
        ("run", "new", ("--items", "3"), UsageError, "--items"),
        ("nowhere", "new", (), StoreError, "no run lies in or below"),
    ],
)
def test_places_that_are_no_board_are_refused(
    tmp_path: Path, run: str, place: str, more: tuple[str, ...], kind: type[ChoicewiseError], words: str
) -> None:
    write_run(tmp_path / "run", protocols=["mmlu/original"])
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "file").touch()
    (tmp_path / "file").touch()
    assert words in choicewise("page", tmp_path / run, "--out", tmp_path / place, *more, code=kind.exit_code).stderr
    assert not (tmp_path / "new").exists()
