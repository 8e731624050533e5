"""The site of docs/: its generated pages say what the code says, and it builds without a warning and a dead link."""

import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from html.parser import HTMLParser
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest

from choicewise.cli import app
from choicewise.protocols.catalogue import entries
from choicewise.protocols.protocol import signature
from tests.paths import ROOT

DOCS = ROOT / "docs"


def test_the_generated_pages_say_what_the_code_says() -> None:
    """`python docs/generate.py` writes them again."""
    ended = subprocess.run([sys.executable, DOCS / "generate.py", "--check"], capture_output=True, text=True)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "", "")


def test_the_page_of_commands_has_every_command_and_option() -> None:
    page = (DOCS / "reference/commands.md").read_text(encoding="utf-8")
    names = [command.name or command.callback.__name__ for command in app.registered_commands if command.callback]
    assert [name for name in names if f"## `choicewise {name}`" not in page] == []
    shown = {"`--protocol <str>`", "`--limit <int>`", "`--include-path <path>`", "`--without-missing`", "`130`"}
    assert shown <= {*re.findall(r"`[^`\n]+`", page)}


def test_the_page_of_python_says_how_functions_are_called() -> None:
    """Types as they are written, and defaults that are texts as texts."""
    page = (DOCS / "reference/python.md").read_text(encoding="utf-8")
    assert {'    url: str = "",', "    out: str | Path,", ") -> Run"} <= {*page.splitlines()}
    assert re.findall(r"<class .*|collections\.abc.*|= ,", page) == []


def test_the_catalogue_has_every_signature() -> None:
    pages = "".join(page.read_text(encoding="utf-8") for page in (DOCS / "catalogue").glob("*.md"))
    lines = {*pages.splitlines()}
    missing = [name for each in entries() for name, one in each.protocols.items() if f"  {signature(one)}" not in lines]
    assert missing == []


def test_every_page_is_in_the_navigation() -> None:
    site = tomllib.loads((ROOT / "zensical.toml").read_text(encoding="utf-8"))["project"]

    def listed(entry: Any) -> Iterator[str]:
        if isinstance(entry, str):
            yield entry
        for part in entry if isinstance(entry, list) else entry.values() if isinstance(entry, dict) else []:
            yield from listed(part)

    assert sorted(listed(site["nav"])) == sorted(str(page.relative_to(DOCS)) for page in DOCS.rglob("*.md"))


class Page(HTMLParser):
    """What a page links to, what it loads, and the places in it that can be linked to."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.loads: list[str] = []
        self.places: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self.places |= {given[name] for name in ("id", "name") if name in given}
        self.links += [given["href"]] if tag == "a" and "href" in given else []
        self.loads += [given["src"]] if "src" in given else []
        self.loads += [given["href"]] if tag == "link" and given.get("rel") not in ("canonical", "next", "prev") else []
        self.loads += [part.split()[0] for part in given.get("srcset", "").split(",") if part.strip()]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The built site.  Any warning of the build is an error."""
    if find_spec("zensical") is None:
        pytest.skip("building the site needs zensical; pip install '.[docs]'")
    place = tmp_path_factory.mktemp("site")
    shutil.copytree(DOCS, place / "docs", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "zensical.toml", place)
    ended = subprocess.run(
        [sys.executable, "-m", "zensical", "build", "--strict"], cwd=place, capture_output=True, text=True
    )
    said = ended.stdout + ended.stderr
    assert ended.returncode == 0, said
    assert "No issues found" in said
    return place / "site"


def pages_of(site: Path) -> dict[Path, Page]:
    """Every page but the one for addresses that don't exist, which stands anywhere."""
    files = [file for file in site.rglob("*.html") if file.name != "404.html"]
    return {file: Page(file.read_text(encoding="utf-8")) for file in files}


def test_every_link_and_place_of_the_site_exists(site: Path) -> None:
    pages = pages_of(site)
    assert len(pages) == len([*DOCS.rglob("*.md")])
    dead = []
    for file, page in pages.items():
        for address in (*page.links, *page.loads):
            parts = urlsplit(address)
            if parts.scheme or parts.netloc:
                continue
            target = (file.parent / unquote(parts.path)).resolve() if parts.path else file
            target = target / "index.html" if target.is_dir() else target
            known = pages[target].places if target in pages else {""}
            if not target.is_file() or (parts.fragment and unquote(parts.fragment) not in known):
                dead.append(f"{file.relative_to(site)}: {address}")
    assert dead == []


def test_the_site_loads_nothing_from_elsewhere(site: Path) -> None:
    for file, page in pages_of(site).items():
        assert [each for each in page.loads if urlsplit(each).scheme not in ("", "data")] == [], file
        assert [each for each in page.loads if urlsplit(each).netloc] == [], file
    styles = "".join(style.read_text(encoding="utf-8") for style in site.rglob("*.css"))
    assert re.findall(r"url\([\"']?https?:", styles) == []


def test_the_site_has_no_programs_of_ours(site: Path) -> None:
    assert [*site.rglob("*.py")] == []


def test_the_notebook_shows_what_it_computes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`python docs/notebook.py` runs it again, and `python docs/generate.py` makes its page."""
    for package in ("torch", "nbclient", "ipykernel", "vl_convert"):
        pytest.importorskip(package)
    monkeypatch.syspath_prepend(str(DOCS))
    import examples
    import notebook

    shown = notebook.texts(notebook.nbformat.read(notebook.PLACE, as_version=4))
    again = notebook.texts(notebook.executed(tmp_path))
    assert len(shown) > 5
    assert [pair for pair in zip(shown, again, strict=True) if not examples.alike(*pair)] == []
