"""Small runs, and pages of them, for tests."""

import json
from collections.abc import Sequence
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import choicewise
from choicewise.store.folder import read_manifest, write_manifest
from tests.helpers.mmlu_data import write_mmlu

PROTOCOLS = (
    "mmlu/original",
    "mmlu/harness-v0",
    "mmlu/cloze",
    "mmlu/helm",
)  # twenty-two numbers of four families

HOSTILE = (
    "<script>window.harm = 1</script>",
    "</script><img src=x onerror='window.harm = 1'>",
    "javascript:window.harm=1",
    "a\u2028b\u2029c \u202ereversed\u202c",
    "\x1b[31mred\x1b]8;;https://example.org\x07link\x1b]8;;\x07",
    "![image](https://example.org/x.png) {{ 7 * 7 }} {% raw %}",
    "long " * 2000,
)
"""Texts that could do harm in a browser or a terminal."""


def write_run(
    out: Path, model: str = "fake:hash", protocols: Sequence[str] = PROTOCOLS, **about: Any
) -> Path:
    """A run of a model called as its folder on twelve questions; ``about`` goes to ``write_mmlu``."""
    data = write_mmlu(out.parent / "data", **about)
    choicewise.evaluate(model=model, data=data, protocols=list(protocols), out=out)
    return renamed(out, out.name)


def write_hostile_run(out: Path) -> Path:
    """A run on questions, options and subjects that could do harm, of a model whose name could, too."""
    rows = [
        {
            "question": text,
            "choices": [text, "no", f"{text}?", "yes"],
            "answer": number % 4,
            "subject": text[:60],
        }
        for number, text in enumerate(HOSTILE)
    ]
    data = out.parent / "hostile.jsonl"
    data.write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")
    protocols = ["options/cloze", "options/quoted-sum-forward"]
    choicewise.evaluate(model="fake:hash", data=data, protocols=protocols, out=out)
    return renamed(out, "</script><script>window.harm = 1</script>\u202e\x1b[31m")


def renamed(run: Path, model: str) -> Path:
    """The same run of a model of another name."""
    manifest = read_manifest(run)
    digest = f"{abs(hash(model)):064x}"[-64:]
    write_manifest(run, replace(manifest, model=replace(manifest.model, name=model, digest=digest)))
    return run


class Page(HTMLParser):
    """A page taken apart as a browser would: its elements, its tables, its scripts, its texts."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[tuple[dict[str, str | None], str]] = []
        self.styles: list[str] = []
        self.tables: dict[str, list[list[str]]] = {}
        self.words: list[str] = []
        self._inside: list[str] = []
        self._label = ""
        self.feed(text)

    @property
    def text(self) -> str:
        """What a reader sees, and the texts of charts."""
        return " ".join(" ".join(self.words).split())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        about = dict(attrs)
        self.elements.append((tag, about))
        self._inside.append(tag)
        if about.get("role") == "region":
            self._label = about.get("aria-label") or ""
            self.tables.setdefault(self._label, [])
        if tag == "tr":
            self.tables.setdefault(self._label, []).append([])
        elif tag in ("td", "th") and self.tables.get(self._label):
            self.tables[self._label][-1].append("")
        elif tag == "script":
            self.scripts.append((about, ""))
        elif tag == "style":
            self.styles.append("")

    def handle_endtag(self, tag: str) -> None:
        while self._inside and self._inside.pop() != tag:
            pass

    def handle_data(self, data: str) -> None:
        tag = self._inside[-1] if self._inside else ""
        if tag == "script":
            about, text = self.scripts[-1]
            self.scripts[-1] = about, text + data
        elif tag == "style":
            self.styles[-1] += data
        else:
            self.words.append(data)
            if (
                {"td", "th"} & {*self._inside}
                and self.tables.get(self._label)
                and self.tables[self._label][-1]
            ):
                self.tables[self._label][-1][-1] += data
