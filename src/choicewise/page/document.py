"""The HTML document and its parts."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import time
from base64 import b64encode
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from choicewise import __version__
from choicewise.errors import UsageError
from choicewise.page import item_views, sections
from choicewise.page import study as study_data
from choicewise.page.charts import bump, lanes, strip
from choicewise.page.embed import (
    Embedded,
    Record,
    Section,
    Spec,
    Specifications,
    check_libraries,
    drawing,
    embedded,
    environment,
    renderer_script,
    static_text,
)
from choicewise.page.item_views import FEW, details, index_data, study_warnings
from choicewise.page.metrics import MetricTable, metric_tables
from choicewise.page.reproduce import recipe
from choicewise.page.sections import Order
from choicewise.page.study import MOST_RUNS, Study, downloads, file_address, read_study
from choicewise.page.tables import PageTable, page_table
from choicewise.ports import PageSections, all_of
from choicewise.report.findings import sentences
from choicewise.report.tables import average_tables
from choicewise.results.finding import finding
from choicewise.results.ladder import Effect
from choicewise.util.files import disk_errors, new_folder, write_text
from choicewise.util.jsonio import page_json
from choicewise.util.text import counted, quoted, shortened


@dataclass(frozen=True, slots=True)
class Written:
    """The page, how many bytes it has, how many items stand in it in full, and the folder with further ones.

    ``notes``: which metrics that were asked later which protocols can't have.
    """

    page: Path
    bytes: int
    inside: int
    folder: Path | None
    beside: int
    notes: tuple[str, ...]


def write_page(
    runs: Iterable[str | Path], out: Path, items: int | None = None, metrics: Sequence[str] = ()
) -> Written:
    """Write the page of ``runs`` to the file ``out``, with the numbers of further ``metrics``.

    ``items``: so many of those that flip most are written in full, in the page as far as there is room and else beside
    it; None: as many as are made quickly.  Raises UsageError for an ``out`` that can't be a page and StoreError for one
    that can't be written, before anything is computed, and UsageError for a metric that no protocol can have.
    """
    beside = out.with_suffix(".items")
    check_libraries()
    _check(out, beside)
    content = Content(read_study(runs, metrics, needed=True))
    inside = inside_items(content, items)
    parts: list[Part] = []
    if rest := inside.rest(content, _most(content, items)):
        with new_folder(beside) as partial:
            for part, held in _make_parts(content, rest):
                (partial / part.name).write_bytes(held)
                parts.append(part)
    elif beside.exists():  # of an earlier page, as was checked
        with disk_errors(beside):
            shutil.rmtree(beside)
    text = document(content, today(), inside, parts, beside.name if parts else "")
    write_text(out, text)
    count, there = sum(len(each.items) for each in parts), beside if parts else None
    return Written(out, len(text.encode()), inside.count, there, count, content.study.notes)


def today() -> str:
    """The day a page is made, ``21 Nov 2026``; the environment may say another one (``SOURCE_DATE_EPOCH``)."""
    seconds = os.environ.get("SOURCE_DATE_EPOCH", "")
    return time.strftime("%-d %b %Y", time.gmtime(int(seconds) if seconds.isdigit() else None))


def document(
    content: Content,
    day: str,
    inside: FullItems,
    parts: Sequence[Part] = (),
    folder: str = "",
    board: str = "",
) -> str:
    """The page of that ``day``.

    ``inside``: the items that it holds in full; ``parts``: further ones in the ``folder`` beside it.  ``board``: the
    address of the board that the page belongs to.
    """
    data = _script_data(content, inside, parts, folder)
    renderer, script, style = (
        renderer_script(),
        _page_script(content.added),
        static_text("page.css"),
    )
    template = environment().get_template("page.html.j2")
    return template.render(
        **_shown(content),
        version=__version__,
        policy=_policy([renderer, script], style, bool(parts)),
        style=_markup(style),
        scripts=[_markup(renderer), _markup(script)],
        data=[Embedded(each.name, each.type, _markup(each.text)) for each in data],
        about=sections.about(content.study, day),
        board=board,
        inside=inside.count,
        beside=sum(len(part.items) for part in parts),
        parts=parts,
    )


ROOM = 1_500_000
"""Characters that items in full may take inside the page."""


@dataclass(frozen=True)
class FullItems:
    """``chunks``: for each dataset the names of the elements and the places of the items in them."""

    chunks: list[list[tuple[str, list[int]]]]
    elements: list[Embedded]

    @property
    def count(self) -> int:
        """How many items there are."""
        return sum(len(places) for own in self.chunks for _, places in own)

    def rest(self, content: Content, most: int) -> list[list[int]]:
        """For each dataset the items among the ``most`` that flip most which are not there; nothing where there are
        none."""
        lacking = []
        for own, each in zip(self.chunks, content.listed, strict=True):
            here = {place for _, places in own for place in places}
            lacking.append([place for place in each.index.order[:most] if place not in here])
        return lacking if any(lacking) else []


def inside_items(content: Content, most: int | None = None) -> FullItems:
    """The items that flip most, as many as there is room for and at most so many of each dataset."""
    chunks: list[list[tuple[str, list[int]]]] = [[] for _ in content.listed]
    elements, room = list[Embedded](), ROOM
    for own, each in zip(chunks, content.listed, strict=True):
        for places, batch in item_views.details(
            content.study, each, item_views.inside(each)[:most]
        ):
            fitting, element = _fitting(f"full-{len(elements)}", batch, places, room)
            if element is None:
                break
            own.append((element.name, fitting))
            elements.append(element)
            room -= len(element.text)
            if len(fitting) < len(places):
                break
    return FullItems(chunks, elements)


@dataclass(frozen=True, slots=True)
class Part:
    """One file: its name in the folder beside the page, its digest, and the items (places of the index) in it."""

    dataset: int
    name: str
    bytes: int
    sha256: str
    items: tuple[int, ...]

    def data(self) -> dict[str, Any]:
        """What the page's script needs to fetch and check it."""
        return {"name": self.name, "sha256": self.sha256, "ids": self.items}


@dataclass(frozen=True)
class Content:
    """The contents of a page of ``study``, each made when it is first asked for."""

    study: Study

    @cached_property
    def numbers(self) -> dict[str, int]:
        """Place of every protocol among those of the study, by name."""
        return {name: place for place, name in enumerate(self.study.protocols)}

    @cached_property
    def strips(self) -> list[list[Record]]:
        """A: the chart's values of every run."""
        return [strip.values(run.rows) for run in self.study.runs]

    @cached_property
    def tables(self) -> list[PageTable]:
        """A: the table of every run."""
        return [sections.table(run) for run in self.study.runs]

    @cached_property
    def steps(self) -> list[sections.Steps]:
        """B: all ways between two numbers, of the first runs."""
        return [sections.steps(run) for run in self.study.runs[:MOST_RUNS]]

    @cached_property
    def ways(self) -> list[tuple[str, str] | None]:
        """B: of every run the two numbers that stand there at first."""
        told = [
            sections.telling(run, steps)
            for run, steps in zip(self.study.runs, self.steps, strict=False)
        ]
        return [*told, *(sections.extremes(run) for run in self.study.runs[MOST_RUNS:])]

    @cached_property
    def climbed(self) -> list[Record]:
        """B: the way that stands there at first; nothing where there is none."""
        way = self.ways[0]
        return self.steps[0].records(*way) if way is not None and way in self.steps[0].ways else []

    @cached_property
    def effects(self) -> list[list[Effect]]:
        """B: the main effects of the first runs."""
        return [sections.effects(run) for run in self.study.runs[:MOST_RUNS]]

    @cached_property
    def compared(self) -> list[study_data.Pair]:
        """D: every pair of the first runs."""
        return study_data.pairs(self.study)

    @cached_property
    def orders(self) -> list[sections.Order]:
        """C: one per dataset with several models."""
        return sections.orders(self.study, self.compared)

    @cached_property
    def metrics(self) -> list[MetricTable]:
        """Numbers that are no shares of 1."""
        return metric_tables(self.study)

    @cached_property
    def added(self) -> list[Section]:
        """What extensions add."""
        return [section for port in all_of(PageSections) for section in port.sections(self.study)]

    @cached_property
    def sheets(self) -> list[sections.Sheet]:
        """F: what each protocol asks."""
        return sections.sheets(self.study)

    @cached_property
    def listed(self) -> list[item_views.Items]:
        """E: the items of every dataset."""
        return item_views.study_items(self.study)

    def pair_values(self, compared: study_data.Pair) -> list[Record]:
        """D: the chart's values of one pair."""
        names = self.study.runs[compared.left].label, self.study.runs[compared.right].label
        return lanes.pair_values(*names, compared.contests) if compared.contests else []


_PART = re.compile(r"\d+-\d+\.json")


def _most(content: Content, items: int | None) -> int:
    """How many items of a dataset are written in full."""
    if items is not None:
        return items
    every = sum(len(each.index.ids) * len(each.runs) for each in content.listed)
    return every if every <= FEW else 0


def _check(out: Path, beside: Path) -> None:
    if out.is_dir():
        raise UsageError(f"{out} is a folder; name a file in it, such as {out / 'page.html'}")
    if out.exists() and not out.is_file():
        raise UsageError(f"{out} is a device or a pipe, not a file; name a new file")
    if out.suffix.lower() not in (".html", ".htm"):
        raise UsageError(f"{out} does not end in .html; name the page such as {out.name}.html")
    if beside.exists():
        foreign = (
            []
            if not beside.is_dir()
            else [file.name for file in beside.iterdir() if not _PART.fullmatch(file.name)]
        )
        if foreign or not beside.is_dir():
            what = (
                f"holds {counted(len(foreign), 'other file')}, such as {foreign[0]}"
                if foreign
                else "is a file"
            )
            raise UsageError(
                f"{beside} is for the items of the page and {what}; give the page another name"
            )
    with disk_errors(out):
        out.parent.mkdir(parents=True, exist_ok=True)
        if out.exists():
            out.open("ab").close()
        else:
            out.touch()
            out.unlink()


_SCRIPTS = (
    *(
        "dom.js",
        "state.js",
        "charts.js",
        "strip.js",
        "ladder.js",
        "order.js",
        "pairs.js",
        "item.js",
        "items.js",
    ),
    "protocol.js",
)
"""Our modules, which share one scope, in the order in which they are joined."""

_COMMENT = re.compile(r"^\s*//.*\n", re.MULTILINE)


def _page_script(added: Sequence[Section]) -> str:
    """Our script: the modules and those of sections in one scope, without their comments."""
    of_sections = dict.fromkeys(section.script for section in added if section.script)
    modules = "\n".join([static_text(*_SCRIPTS), *of_sections, static_text("start.js")])
    return f'(() => {{\n"use strict";\n{_COMMENT.sub("", modules)}\n}})();'


def _policy(scripts: Sequence[str], style: str, parts: bool) -> str:
    """The content security policy: these scripts and this style and nothing else; ``parts``: and files beside it."""
    hashes = " ".join(f"'{_hash(script)}'" for script in scripts)
    fetched = "'self'" if parts else "'none'"
    return (
        f"default-src 'none'; script-src {hashes}; style-src '{_hash(style)}'; connect-src {fetched}; "
        "base-uri 'none'; form-action 'none'"
    )


def _shown(content: Content) -> dict[str, Any]:
    """What stands on the page before its script does anything: of the first run, order and pair."""
    study = content.study
    effects = lanes.effects_values(content.effects[0])
    first, *more = sentences(finding(study.named_rows))
    listed = [(id, title) for id, title, there in _contents(content) if there]
    return {
        "contents": {
            id: (chr(ord("A") + place), title) for place, (id, title) in enumerate(listed)
        },
        "study": study,
        "first": study.runs[0],
        "averages": [page_table(table) for table in average_tables(study.averages)],
        "finding": first,
        "more": more,
        "caption": _caption,
        "chance": any(record["kind"] == "chance" for record in content.strips[0]),
        "strip_values": content.strips[0],
        "strip": drawing(_SPECS["strip"], content.strips[0]),
        "numbers": content.tables[0],
        "way": content.ways[0],
        "ladder": drawing(_SPECS["ladder"], content.climbed) if content.climbed else None,
        "together": any(len(record.get("axes", ())) > 1 for record in content.climbed),
        "step_columns": sections.STEP_COLUMNS,
        "step_rows": sections.step_table(content.climbed),
        "effects": drawing(_SPECS["effects"], effects) if effects else None,
        "effect_values": effects,
        "effect_table": sections.effect_table(content.effects[0]),
        "orders": [
            (
                each,
                *(None if each.sides else drawing(_SPECS[name], values) for name, values in charts),
            )
            for each in content.orders
            for charts in [(("rank", each.values), ("ranks", each.rank_values))]
        ],
        "compared": [_compared(content, each) for each in content.compared[:1]],
        "pair_columns": sections.pair_table([]).columns,
        "most_pairs": MOST_RUNS,
        "metrics": content.metrics,
        "added": [(section.name, _markup(section.html)) for section in content.added],
        "listed": content.listed,
        "item_rows": [item_views.first_rows(each) for each in content.listed],
        "sheets": content.sheets,
        "warnings": study_warnings(study),
        "recipes": [
            (run, recipe(run.manifest, run.run_protocols, run.location)) for run in study.runs
        ],
        "file_address": file_address,
        "downloads": downloads(study),
    }


def _contents(content: Content) -> list[tuple[str, str, bool]]:
    """The sections by id, each with its title and whether it has something to show."""
    return [
        ("numbers", "All numbers", bool(content.study.rows) or not content.metrics),
        (
            "metrics",
            "Other metrics" if content.study.rows else "All numbers",
            bool(content.metrics),
        ),
        ("why", "Why do they differ?", any(content.ways) or any(content.effects)),
        ("order", "Does the order hold?", bool(content.orders)),
        ("pair", "Two models", bool(content.compared)),
        *((section.name, section.title, True) for section in content.added),
        ("items", "Items", any(each.index.ids for each in content.listed)),
        ("protocols", "Protocols", bool(content.study.protocols)),
        ("warnings", "Warnings", True),
        ("again", "Get this again", True),
    ]


def _compared(content: Content, pair: study_data.Pair) -> tuple[dict[str, Any], Any, list[Record]]:
    """What is said of a pair, its drawing where there is one, and the values of that."""
    values = content.pair_values(pair)
    return (
        sections.pair_data(content.study, pair),
        drawing(_SPECS["pair"], values) if values else None,
        values,
    )


def _state(specs: Specifications, name: str, values: Sequence[Record]) -> dict[str, Any]:
    """What the page's script needs to draw these values, and to say how to read them."""
    return specs.state(_SPECS[name], values) | {"caption": _caption(name, values)}


def _caption(name: str, values: Sequence[Record]) -> str:
    return _CAPTIONS[name](values)


def _hash(text: str) -> str:
    return f"sha256-{b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


def _markup(text: str) -> Any:
    from markupsafe import Markup

    return Markup(text)


def _script_data(
    content: Content, inside: FullItems, parts: Sequence[Part], folder: str
) -> list[Embedded]:
    """The elements with data."""
    specs, study = Specifications(), content.study
    runs = [
        embedded(f"run-{place}", _run(content, place, specs)) for place in range(len(study.runs))
    ]
    compared = [embedded(f"pairs-{place}", each) for place, each in _pairs(content, specs).items()]
    orders = [
        embedded(f"order-{place}", _order(each, specs)) for place, each in enumerate(content.orders)
    ]
    names = list(content.numbers)
    added = [
        embedded(name, data)
        for section in content.added
        for name, data in section.data(specs).items()
    ]
    lists = [
        embedded(f"items-{place}", index_data(each, names))
        for place, each in enumerate(content.listed)
    ]
    core = {
        "runs": [_about(content, place) for place in range(len(study.runs))],
        "protocols": names,
        "ladder": specs.state(_SPECS["ladder"], content.climbed)["spec"]
        if content.climbed
        else None,
        "orders": [{"dataset": each.dataset} for each in content.orders],
        "folder": folder,
        "sheets": _sheet_places(content),
        "items": [
            {
                "runs": each.runs,
                "chunks": [{"name": name, "ids": places} for name, places in own],
                "parts": [part.data() for part in parts if part.dataset == place],
            }
            for place, (each, own) in enumerate(zip(content.listed, inside.chunks, strict=True))
        ],
        "specs": specs.known,
    }
    return [embedded("data", core), *runs, *compared, *orders, *added, *lists, *inside.elements]


def _sheet_places(content: Content) -> list[int]:
    """For each protocol the place of its sheet."""
    places = {
        variant.name: place
        for place, sheet in enumerate(content.sheets)
        for variant in sheet.variants
    }
    return [places[name] for name in content.numbers]


def _order(shown: Order, specs: Specifications) -> dict[str, Any]:
    if shown.sides:
        return {}
    drawn = {name: _state(specs, name, shown.values) for name in ("rank", "score")}
    return drawn | {"ranks": _state(specs, "ranks", shown.rank_values)}


def _about(content: Content, place: int) -> dict[str, Any]:
    run = content.study.runs[place]
    return {
        "label": run.label,
        "short": shortened(run.label, 24),
        "model": run.manifest.model.name,
        "dataset": run.manifest.dataset.name,
        "folder": run.location,
        "command": quoted(run.location),
        "protocols": [content.numbers[name] for name in run.protocols],
        "chosen": content.ways[place],
        "detailed": place < MOST_RUNS,
    }


def _run(content: Content, place: int, specs: Specifications) -> dict[str, Any]:
    shown: dict[str, Any] = {
        "strip": _state(specs, "strip", content.strips[place]),
        "numbers": content.tables[place].rows,
    }
    if place >= MOST_RUNS:
        return shown
    effects = content.effects[place]
    if effects:
        shown["effects"] = _state(specs, "effects", lanes.effects_values(effects))
        shown["effect_rows"] = sections.effect_table(effects).rows
    return shown | content.steps[place].data(content.numbers)


def _pairs(content: Content, specs: Specifications) -> dict[int, dict[int, Any]]:
    """Place of A → place of B → what the page says and shows, both ways round."""
    shown: dict[int, dict[int, Any]] = {}
    for each in (*content.compared, *map(study_data.turned, content.compared)):
        values: list[Record] = content.pair_values(each)
        data = sections.pair_data(content.study, each)
        data |= {"chart": _state(specs, "pair", values)} if values else {}
        shown.setdefault(each.left, {})[each.right] = data
    return shown


def _fitting(
    name: str, batch: dict[str, Any], places: list[int], room: int
) -> tuple[list[int], Embedded | None]:
    """As many items of the batch as have room, from its first one."""
    full = batch["items"]
    while full:
        element = embedded(name, {**batch, "items": full}, plain=True)
        if len(element.text) <= room:
            return places[: len(full)], element
        full = full[: int(0.9 * len(full) * room / len(element.text))]
    return [], None


def _make_parts(content: Content, chosen: Sequence[Sequence[int]]) -> Iterator[tuple[Part, bytes]]:
    """The ``chosen`` items of each dataset, part by part with the content of its file."""
    for dataset, (listed, places) in enumerate(zip(content.listed, chosen, strict=True)):
        for number, (own, batch) in enumerate(details(content.study, listed, places)):
            text = page_json(batch, plain=True).encode()
            name = f"{dataset}-{number}.json"
            yield Part(dataset, name, len(text), hashlib.sha256(text).hexdigest(), tuple(own)), text


_SPECS: Mapping[str, Spec] = {
    "strip": lambda values, width: strip.spec(values, width=width),
    "ladder": lambda values, width: lanes.ladder_spec(values, width=width),
    "effects": lambda values, width: lanes.effects_spec(values, width=width),
    "rank": lambda values, width: bump.spec(values, rank=True, width=width),
    "score": lambda values, width: bump.spec(values, rank=False, width=width),
    "ranks": lambda values, width: lanes.ranks_spec(values, width=width),
    "pair": lambda values, width: lanes.pair_spec(values, width=width),
}
"""The charts of a page."""

_CAPTIONS: Mapping[str, Callable[[Sequence[Record]], str]] = {
    "strip": strip.caption,
    "ladder": lambda values: lanes.LADDER_CAPTION,
    "effects": lanes.effects_caption,
    "rank": bump.caption,
    "score": lambda values: bump.caption(values, rank=False),
    "ranks": lambda values: lanes.RANKS_CAPTION,
    "pair": lanes.pair_caption,
}
"""What stands below them."""
