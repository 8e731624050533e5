"""Addresses of the pages of a board: on a server, or in a folder of files."""

from dataclasses import dataclass
from typing import Protocol
from urllib.parse import quote, urlencode

from choicewise.web.board.slug import slug
from choicewise.web.board.view import View


class Links(Protocol):
    """Where a page finds the others."""

    @property
    def served(self) -> bool:
        """Whether every state of the board has an answer of its own."""

    @property
    def submissions(self) -> str:
        """The page where models are submitted; empty where the board takes none."""

    def board(self, view: View) -> str:
        """The board in that state."""

    def table(self, view: View, ending: str) -> str:
        """The board in that state as a file: ``json`` or ``csv``."""

    def model(self, name: str) -> str:
        """The page of a model."""

    def run(self, name: str) -> str:
        """The page of a run, by its id."""

    def strip(self, name: str) -> str:
        """The strip of all numbers of a run, an image."""

    def protocol(self, p: str) -> str:
        """The spec sheet of a protocol, by its short id (``#P``)."""

    def item(self, part: str, item: str, run: str = "") -> str:
        """The page of an item of a part of the data, with what ``run`` (an id) was sent; nothing without one."""

    def item_json(self, part: str, item: str, run: str) -> str:
        """The same as JSON."""

    def artefact(self, name: str) -> str:
        """A file, by its content and ending."""

    def look(self, name: str) -> str:
        """A style sheet."""


@dataclass(frozen=True, slots=True)
class Served:
    """Addresses on a server."""

    looks: dict[str, str]
    served: bool = True
    submissions: str = ""

    def board(self, view: View) -> str:
        """See :class:`Links`, as of the others."""
        return f"/?{query}" if (query := view.query()) else "/"

    def table(self, view: View, ending: str) -> str:
        """With the query of the board."""
        return f"/board.{ending}?{query}" if (query := view.query()) else f"/board.{ending}"

    def model(self, name: str) -> str:
        """By its slug, as names hold anything."""
        return f"/model/{slug(name)}"

    def run(self, name: str) -> str:
        """By its id."""
        return f"/run/{name}"

    def strip(self, name: str) -> str:
        """By the id of the run."""
        return f"/strip/{name}.svg"

    def protocol(self, p: str) -> str:
        """Without the number sign."""
        return f"/protocol/{p.removeprefix('#')}"

    def item(self, part: str, item: str, run: str = "") -> str:
        """With the item in the query, as ids hold anything, dots and slashes too."""
        pairs = {"id": item, "run": run} if run else {"id": item}
        return f"/item/{part}?{urlencode(pairs, errors='surrogatepass')}"

    def item_json(self, part: str, item: str, run: str) -> str:
        """With the same query."""
        return self.item(part, item, run).replace("?", ".json?", 1)

    def artefact(self, name: str) -> str:
        """By content."""
        return f"/artefact/{name}"

    def look(self, name: str) -> str:
        """With the digest of its content, so that it is kept until it changes."""
        return f"/look/{self.looks[name]}"


@dataclass(frozen=True, slots=True)
class Filed:
    """Addresses in a folder of files, relative to a page that lies ``depth`` folders deep."""

    depth: int = 0
    served: bool = False
    submissions: str = ""

    def board(self, view: View) -> str:
        """A file for each choice of columns; what else a view says is for the script of the page."""
        further = urlencode([(name, value) for name, value in (("sort", view.sort), ("order", view.order)) if value])
        return self._up(board_file(view)) + (f"#{further}" if further else "")

    def table(self, view: View, ending: str) -> str:
        """All of the board."""
        return self._up(f"board.{ending}")

    def model(self, name: str) -> str:
        """By its slug."""
        return self._up(f"model/{slug(name)}.html")

    def run(self, name: str) -> str:
        """By its id."""
        return self._up(f"run/{quote(name)}.html")

    def strip(self, name: str) -> str:
        """By the id of the run."""
        return self._up(f"strip/{quote(name)}.svg")

    def protocol(self, p: str) -> str:
        """Without the number sign."""
        return self._up(f"protocol/{p.removeprefix('#')}.html")

    def item(self, part: str, item: str, run: str = "") -> str:
        """The pages of runs hold their items."""
        return ""

    def item_json(self, part: str, item: str, run: str) -> str:
        """None either."""
        return ""

    def artefact(self, name: str) -> str:
        """By content."""
        return self._up(f"artefact/{name}")

    def look(self, name: str) -> str:
        """In the page itself."""
        return ""

    def _up(self, path: str) -> str:
        return "../" * self.depth + path


def board_file(view: View) -> str:
    """The file that holds the columns of ``view``: a handful, all, or those of one family."""
    if view.family:
        return f"family-{slug(view.family[0])}.html"
    return "all.html" if view.columns == "all" else "index.html"
