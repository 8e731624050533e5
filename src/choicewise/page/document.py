"""Write the page of runs: the HTML document, the data of its script, and files of items beside it."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import time
from base64 import b64encode
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from choicewise import __version__
from choicewise.errors import UsageError
from choicewise.page import item_views, sections
from choicewise.page import study as study_data
from choicewise.page.charts import bump, lanes, strip
from choicewise.page.charts.chart import Record
from choicewise.page.embed import (
    SCROLLS,
    Drawing,
    Embedded,
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
from choicewise.page.item_details import Batch
from choicewise.page.item_views import FEW, details, index_data, study_warnings
from choicewise.page.metrics import MetricTable, metric_tables
from choicewise.page.overview import Overview, notes, overviews, title
from choicewise.page.reproduce import Recipe, recipe
from choicewise.page.sections import Order
from choicewise.page.study import MOST_RUNS, Study, downloads, file_address, read_study
from choicewise.page.tables import PageTable, page_table
from choicewise.ports import PageSections, all_of
from choicewise.protocols.between import split_changes
from choicewise.protocols.catalogue import plain_name
from choicewise.report.logged import log_line
from choicewise.report.tables import average_tables
from choicewise.results.ladder import Effect
from choicewise.results.run import Run
from choicewise.util.files import disk_errors, new_folder, write_text
from choicewise.util.jsonio import JsonDict, page_json
from choicewise.util.text import counted, quoted, shortened

ROOM = 1_500_000
"""Characters that items in full may take inside the page."""

_PART = re.compile(r"\d+-\d+\.json")
"""Name of a file of items beside a page."""

_COMMENT = re.compile(r"^\s*//.*\n", re.MULTILINE)

_SCRIPTS = tuple(
    "dom.js state.js charts.js overview.js strip.js ladder.js order.js pairs.js item.js items.js "
    "protocol.js".split()
)
"""Our modules, which share one scope, in the order in which they are joined."""

_SPECS: Mapping[str, Spec] = {
    "strip": strip.spec,
    "ladder": lanes.ladder_spec,
    "effects": lanes.effects_spec,
    "rank": partial(bump.spec, rank=True),
    "score": partial(bump.spec, rank=False),
    "pair": lanes.pair_spec,
}
"""The charts of a page."""

_CAPTIONS: Mapping[str, Callable[[Sequence[Record]], str]] = {
    "strip": strip.caption,
    "ladder": lanes.ladder_caption,
    "effects": lanes.effects_caption,
    "rank": bump.caption,
    "score": partial(bump.caption, rank=False),
    "pair": lanes.pair_caption,
}
"""Their captions."""


@dataclass(frozen=True, kw_only=True)
class Written:
    """The page, how many bytes it has, how many items are in it in full, and the folder with
    further ones.

    ``notes``: which metrics that were asked later which protocols can't have.
    """

    page: Path
    bytes: int
    inside: int
    folder: Path | None
    beside: int
    notes: tuple[str, ...]


def write_page(
    runs: str | Path | Run | Iterable[str | Path | Run],
    out: str | Path,
    items: int | None = None,
    metrics: Sequence[str] = (),
) -> Written:
    """Write the page of runs: an HTML file that opens from disk.

    - ``runs``: a run, its folder or a folder of runs, or several of these.
    - ``out``: the file, which ends in ``.html``.
    - ``items``: how many of the items that flip most are written in full, in the page as far as
      there is room and else beside it; None: as many as are made quickly.
    - ``metrics``: further numbers of the same observations.

    Raises UsageError for an ``out`` that can't be a page and StoreError for one that can't be
    written, before anything is computed, and UsageError for a metric that no protocol can have.
    """
    out = Path(out)
    if isinstance(runs, str | Path | Run):
        runs = [runs]
    folders = [run.folder if isinstance(run, Run) else run for run in runs]
    folder = out.with_suffix(".items")
    # What must fail fails before minutes of computing.
    check_libraries()
    _check_names(out, folder)
    _check_writable(out)
    content = Content(read_study(folders, metrics, needed=True))
    inside = inside_items(content, items)
    further = inside.rest(content, _most(content, items))
    parts: list[Part] = []
    if any(further):
        with new_folder(folder) as partial_folder:
            for part, data in _make_parts(content, further):
                (partial_folder / part.name).write_bytes(data)
                parts.append(part)
    elif folder.exists():
        # It is of an earlier page, as was checked.
        with disk_errors(folder):
            shutil.rmtree(folder)
    text = document(content, today(), inside, parts, folder.name if parts else "")
    write_text(out, text)
    return Written(
        page=out,
        bytes=len(text.encode()),
        inside=inside.count,
        folder=folder if parts else None,
        beside=sum(len(part.items) for part in parts),
        notes=content.study.notes,
    )


def today() -> str:
    """Return the day a page is made, ``21 Nov 2026``; ``SOURCE_DATE_EPOCH`` may set another one."""
    seconds = os.environ.get("SOURCE_DATE_EPOCH", "")
    # Builds that must be equal byte by byte fix the day.
    moment = int(seconds) if seconds.isdigit() else None
    return time.strftime("%-d %b %Y", time.gmtime(moment))


def document(
    content: Content,
    day: str,
    inside: FullItems,
    parts: Sequence[Part] = (),
    folder: str = "",
    board: str = "",
) -> str:
    """Return the page of that ``day``.

    ``inside``: the items that it holds in full; ``parts``: further ones in the ``folder`` beside
    it. ``board``: the address of the board that the page belongs to.
    """
    data = []
    for element in _script_data(content, inside, parts, folder):
        data.append(Embedded(element.name, element.type, _markup(element.text)))
    renderer = renderer_script()
    script = _page_script(content.added)
    style = static_text("page.css")
    template = environment().get_template("page.html.j2")
    return template.render(
        **_first_view(content),
        version=__version__,
        policy=_policy([renderer, script], style, bool(parts)),
        style=_markup(style),
        scripts=[_markup(renderer), _markup(script)],
        data=data,
        about=sections.about(content.study, day),
        board=board,
        inside=inside.count,
        beside=sum(len(part.items) for part in parts),
        parts=parts,
    )


@dataclass(frozen=True)
class FullItems:
    """``chunks``: for each dataset the names of the elements and the positions of the items in
    them.
    """

    chunks: list[list[tuple[str, list[int]]]]
    elements: list[Embedded]

    @property
    def count(self) -> int:
        """Count the items."""
        return sum(len(positions) for chunks in self.chunks for _, positions in chunks)

    def rest(self, content: Content, most: int) -> list[list[int]]:
        """Return for each dataset the items among the ``most`` that flip most which are not there."""
        further = []
        for chunks, items in zip(self.chunks, content.listed, strict=True):
            inside: set[int] = set()
            for _, positions in chunks:
                inside.update(positions)
            first = items.index.order[:most]
            further.append([position for position in first if position not in inside])
        return further


def inside_items(content: Content, most: int | None = None) -> FullItems:
    """Return the items that flip most, as many as there is room for and at most so many of each
    dataset.
    """
    chunks: list[list[tuple[str, list[int]]]] = []
    elements: list[Embedded] = []
    # Datasets share the room in their order.
    room = ROOM
    for items in content.listed:
        chunks.append([])
        chosen = item_views.inside(items)[:most]
        for positions, batch in details(content.study, items, chosen):
            ids = [items.index.ids[position] for position in positions]
            element, count = _fitting(f"full-{len(elements)}", batch, ids, room)
            if element is None:
                break
            chunks[-1].append((element.name, positions[:count]))
            elements.append(element)
            room -= len(element.text)
            if count < len(positions):
                break
    return FullItems(chunks, elements)


def _fitting(name: str, batch: Batch, ids: Sequence[str], room: int) -> tuple[Embedded | None, int]:
    """Return an element of as many items of the batch as have room, from its first one, and how
    many they are.
    """
    count = len(ids)
    while count:
        element = embedded(name, batch.data(ids[:count]), plain=True)
        if len(element.text) <= room:
            return element, count
        # Items differ in length: a tenth less than their share fits mostly.
        count = int(0.9 * count * room / len(element.text))
    return None, 0


@dataclass(frozen=True, kw_only=True)
class Part:
    """One file: its name in the folder beside the page, its digest, and the items (positions in the
    index) in it.
    """

    dataset: int
    name: str
    bytes: int
    sha256: str
    items: tuple[int, ...]

    def data(self) -> JsonDict:
        """Return what the page's script needs to fetch and check it."""
        return {"name": self.name, "sha256": self.sha256, "ids": self.items}


def _make_parts(content: Content, chosen: Sequence[Sequence[int]]) -> Iterator[tuple[Part, bytes]]:
    """Yield the ``chosen`` items of each dataset, part by part with the content of its file."""
    for dataset, (items, positions) in enumerate(zip(content.listed, chosen, strict=True)):
        for number, (inside, batch) in enumerate(details(content.study, items, positions)):
            ids = [items.index.ids[position] for position in inside]
            data = page_json(batch.data(ids), plain=True).encode()
            part = Part(
                dataset=dataset,
                name=f"{dataset}-{number}.json",
                bytes=len(data),
                sha256=hashlib.sha256(data).hexdigest(),
                items=tuple(inside),
            )
            yield part, data


@dataclass(frozen=True)
class Content:
    """The contents of a page of ``study``, each made when it is first needed."""

    study: Study

    @property
    def detailed(self) -> tuple[study_data.ShownRun, ...]:
        """Return the first runs, of which a page holds ladders, effects and pairs."""
        return self.study.runs[:MOST_RUNS]

    @cached_property
    def numbers(self) -> dict[str, int]:
        """Return the position of every protocol among those of the study, by name."""
        return {name: number for number, name in enumerate(self.study.protocols)}

    @cached_property
    def overviews(self) -> list[Overview]:
        """Return the table on top for each dataset."""
        return overviews(self.study)

    @cached_property
    def strips(self) -> list[list[Record]]:
        """Return the values of the first chart for every run, with the protocols of the table on
        top pointed out.
        """
        chosen = {name for overview in self.overviews for name in overview.names}
        return [strip.values(run.rows, chosen) for run in self.study.runs]

    @cached_property
    def tables(self) -> list[PageTable]:
        """Return the table of numbers for every run."""
        return [sections.table(run) for run in self.study.runs]

    @cached_property
    def steps(self) -> list[sections.Steps]:
        """Return all ways between two numbers of the first runs."""
        return [sections.steps(run) for run in self.detailed]

    @cached_property
    def ways(self) -> list[tuple[str, str] | None]:
        """Return for every run the two numbers whose ladder is drawn first."""
        ways = []
        for run, steps in zip(self.detailed, self.steps, strict=True):
            ways.append(sections.telling(run, steps))
        for run in self.study.runs[MOST_RUNS:]:
            ways.append(sections.extremes(run))
        return ways

    @cached_property
    def climbed(self) -> list[Record]:
        """Return the values of the ladder that is drawn first; none if there is no ladder."""
        way = self.ways[0]
        if way is None or way not in self.steps[0].ways:
            return []
        return self.steps[0].records(*way)

    @cached_property
    def effects(self) -> list[list[Effect]]:
        """Return the main effects of the first runs."""
        return [sections.effects(run) for run in self.detailed]

    @cached_property
    def compared(self) -> list[study_data.Pair]:
        """Return every pair of the first runs."""
        return study_data.pairs(self.study)

    @cached_property
    def orders(self) -> list[sections.Order]:
        """Return an order for each dataset with several models."""
        return sections.orders(self.study, self.compared)

    @cached_property
    def metrics(self) -> list[MetricTable]:
        """Return the tables of numbers that are no shares of 1."""
        return metric_tables(self.study)

    @cached_property
    def added(self) -> list[Section]:
        """Return the sections of extensions."""
        added: list[Section] = []
        for port in all_of(PageSections):
            added += port.sections(self.study)
        return added

    @cached_property
    def sheets(self) -> list[sections.Sheet]:
        """Return what each protocol asks."""
        return sections.sheets(self.study)

    @cached_property
    def listed(self) -> list[item_views.Items]:
        """Return the items of every dataset."""
        return item_views.study_items(self.study)

    def pair_values(self, pair: study_data.Pair) -> list[Record]:
        """Return the chart's values of one pair."""
        runs = [self.study.runs[pair.left], self.study.runs[pair.right]]
        contests = list(pair.contests)
        # The differences of two models are a list of all protocols; further models leave room for
        # few.
        if len(self.study.runs) > 2:
            few = sections.few_protocols(runs)
            contests = [contest for contest in contests if contest.protocol in few]
        if not contests:
            return []
        return lanes.pair_values(runs[0].label, runs[1].label, contests)


def _most(content: Content, items: int | None) -> int:
    """Return how many items of a dataset are written in full."""
    if items is not None:
        return items
    # Explaining takes seconds for a thousand items.
    total = sum(len(items.index.ids) * len(items.runs) for items in content.listed)
    return total if total <= FEW else 0


def _check_names(out: Path, folder: Path) -> None:
    """Raise UsageError if ``out`` can't be a page, or ``folder`` holds anything but items of an
    earlier one.
    """
    if out.is_dir():
        raise UsageError(f"{out} is a folder; name a file in it, such as {out / 'page.html'}")
    if out.exists() and not out.is_file():
        raise UsageError(f"{out} is a device or a pipe, not a file; name a new file")
    if out.suffix.lower() not in (".html", ".htm"):
        raise UsageError(f"{out} does not end in .html; name the page such as {out.name}.html")
    if not folder.exists():
        return
    problem = ""
    if folder.is_dir():
        others = [file.name for file in folder.iterdir() if not _PART.fullmatch(file.name)]
        if others:
            problem = f"holds {counted(len(others), 'other file')}, such as {others[0]}"
    else:
        problem = "is a file"
    if problem:
        raise UsageError(
            f"{folder} is for the items of the page and {problem}; give the page another name"
        )


def _check_writable(out: Path) -> None:
    """Raise StoreError if ``out`` can't be written; nothing is left of the check."""
    with disk_errors(out):
        out.parent.mkdir(parents=True, exist_ok=True)
        if out.exists():
            out.open("ab").close()
        else:
            out.touch()
            out.unlink()


def _page_script(added: Sequence[Section]) -> str:
    """Return our modules and those of sections in one scope, without their comments."""
    # In one scope modules need no exports, and nothing reaches the window.
    further = dict.fromkeys(section.script for section in added if section.script)
    modules = "\n".join([static_text(*_SCRIPTS), *further, static_text("start.js")])
    return f'(() => {{\n"use strict";\n{_COMMENT.sub("", modules)}\n}})();'


def _policy(scripts: Sequence[str], style: str, has_parts: bool) -> str:
    """Return the content security policy: these scripts, this style, and files beside the page if
    it has some.
    """
    # Hashes allow our own scripts; a text of the data can't add one.
    hashes = " ".join(f"'{_hash(script)}'" for script in scripts)
    # A page that is whole alone may not fetch anything.
    fetched = "'self'" if has_parts else "'none'"
    return (
        f"default-src 'none'; script-src {hashes}; style-src '{_hash(style)}'; connect-src "
        f"{fetched}; base-uri 'none'; form-action 'none'"
    )


def _hash(text: str) -> str:
    return f"sha256-{b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


def _markup(text: str) -> Any:
    from markupsafe import Markup

    return Markup(text)


def _logged(study: Study) -> list[str]:
    """Return the numbers in the logs of imported runs, beside those of their answers."""
    lines = []
    for run in study.runs:
        line = log_line(run.manifest.imported)
        if not line:
            continue
        if len(study.runs) > 1:
            line = f"{run.label}: {line}"
        lines.append(line)
    return lines


def _first_view(content: Content) -> JsonDict:
    """Return what the page shows before its script does anything: of the first run, order and pair."""
    study = content.study
    effects = lanes.effects_values(content.effects[0])
    view: JsonDict = {"content": content, "study": study, "first": study.runs[0]}
    view["contents"] = _contents(content)
    view["caption"] = _caption
    view["averages"] = [page_table(table) for table in average_tables(study.averages)]
    view["finding"] = title(study, content.overviews)
    view["overviews"] = [(overview, _markup(overview.html)) for overview in content.overviews]
    view["notes"] = notes(study)
    view["logged"] = _logged(study)
    view["strip"] = drawing(_SPECS["strip"], content.strips[0])
    view["ladder"] = _drawn("ladder", content.climbed)
    view["together"] = any(len(record.get("axes", ())) > 1 for record in content.climbed)
    view["step_columns"] = sections.STEP_COLUMNS
    view["step_rows"] = sections.step_table(content.climbed)
    view["effects"] = _drawn("effects", effects)
    view["effect_values"] = effects
    view["effect_table"] = sections.effect_table(content.effects[0])
    view["orders"] = [(order, _drawn("rank", order.values)) for order in content.orders]
    view["compared"] = [_drawn_pair(content, pair) for pair in content.compared[:1]]
    view["pair_columns"] = sections.pair_table([]).columns
    view["most_pairs"] = MOST_RUNS
    view["added"] = [(section.name, _markup(section.html)) for section in content.added]
    view["warnings"] = study_warnings(study)
    view["recipes"] = [_recipe(run) for run in study.runs]
    view["file_address"] = file_address
    view["downloads"] = downloads(study)
    return view


def _recipe(run: study_data.ShownRun) -> tuple[study_data.ShownRun, Recipe]:
    return run, recipe(run.manifest, run.run_protocols, run.location)


def _drawn(name: str, values: Sequence[Record]) -> Drawing | None:
    if not values:
        return None
    return drawing(_SPECS[name], values)


def _drawn_pair(
    content: Content, pair: study_data.Pair
) -> tuple[JsonDict, Drawing | None, list[Record]]:
    """Return the sentence and rows of a pair, its drawing if it has one, and the values of that."""
    values = content.pair_values(pair)
    return sections.pair_data(content.study, pair), _drawn("pair", values), values


def _contents(content: Content) -> dict[str, tuple[str, str]]:
    """Return the letter and title of each section that has something to show, by its id."""
    has_rows = bool(content.study.rows)
    titles = {}
    if has_rows or not content.metrics:
        titles["numbers"] = "All numbers"
    if content.metrics:
        titles["metrics"] = "Other metrics" if has_rows else "All numbers"
    if any(content.ways) or any(content.effects):
        titles["why"] = "Why do they differ?"
    if content.orders:
        titles["order"] = "Does the order hold?"
    if content.compared:
        titles["pair"] = "Two models"
    for section in content.added:
        titles[section.name] = section.title
    if any(items.index.ids for items in content.listed):
        titles["items"] = "Items"
    if content.study.protocols:
        titles["protocols"] = "Protocols"
    titles["warnings"] = "Warnings"
    titles["again"] = "Get this again"
    contents = {}
    for number, (name, section_title) in enumerate(titles.items()):
        contents[name] = (chr(ord("A") + number), section_title)
    return contents


def _state(specs: Specifications, name: str, values: Sequence[Record]) -> JsonDict:
    """Return what the page's script needs to draw these values, and to say how to read them."""
    return specs.state(_SPECS[name], values) | {"caption": _caption(name, values)}


def _caption(name: str, values: Sequence[Record]) -> str:
    return _CAPTIONS[name](values)


def _script_data(
    content: Content, inside: FullItems, parts: Sequence[Part], folder: str
) -> list[Embedded]:
    """Return the elements with data."""
    specs = Specifications()
    elements = []
    for run in range(len(content.study.runs)):
        elements.append(embedded(f"run-{run}", _run_data(content, run, specs)))
    for left, pairs in _pairs(content, specs).items():
        elements.append(embedded(f"pairs-{left}", pairs))
    for number, order in enumerate(content.orders):
        elements.append(embedded(f"order-{number}", _order_data(order, specs)))
    for section in content.added:
        for name, data in section.data(specs).items():
            elements.append(embedded(name, data))
    names = list(content.numbers)
    for number, items in enumerate(content.listed):
        elements.append(embedded(f"items-{number}", index_data(items, names)))
    # The chart of a ladder looks the same for every way, so its specification is there once.
    ladder = None
    if content.climbed:
        ladder = specs.state(_SPECS["ladder"], content.climbed)["spec"]
    core = {
        "runs": [_run_head(content, run) for run in range(len(content.study.runs))],
        "protocols": names,
        "plain": list(map(_without_changes, names)),
        "ladder": ladder,
        "orders": [{"dataset": order.dataset} for order in content.orders],
        "folder": folder,
        "sheets": _sheet_numbers(content),
        "items": _item_places(content, inside, parts),
        "specs": specs.known,
        "scrolls": SCROLLS,
    }
    return [embedded("data", core), *elements, *inside.elements]


def _without_changes(name: str) -> str:
    """Return the catalogue's name of a protocol that a run has with other axes or as a chat."""
    plain, _ = plain_name(name)
    entry, _ = split_changes(plain)
    return entry


def _item_places(content: Content, inside: FullItems, parts: Sequence[Part]) -> list[JsonDict]:
    """Return for each dataset where the page's script finds items in full."""
    places = []
    for dataset, (items, chunks) in enumerate(zip(content.listed, inside.chunks, strict=True)):
        places.append(
            {
                "runs": items.runs,
                "chunks": [{"name": name, "ids": positions} for name, positions in chunks],
                "parts": [part.data() for part in parts if part.dataset == dataset],
            }
        )
    return places


def _sheet_numbers(content: Content) -> list[int]:
    """Return for each protocol the position of its sheet."""
    numbers = {}
    for number, sheet in enumerate(content.sheets):
        for variant in sheet.variants:
            numbers[variant.name] = number
    return [numbers[name] for name in content.numbers]


def _order_data(order: Order, specs: Specifications) -> JsonDict:
    states: JsonDict = {}
    if not order.values:
        return states
    for which, values in (("few", order.values), ("all", order.all_values)):
        for by in ("rank", "score"):
            states[f"{by} {which}"] = _state(specs, by, values)
    return states


def _run_head(content: Content, number: int) -> JsonDict:
    run = content.study.runs[number]
    return {
        "label": run.label,
        "short": shortened(run.label, 24),
        "model": run.manifest.model.name,
        "dataset": run.manifest.dataset.name,
        "folder": run.location,
        "command": quoted(run.location),
        "protocols": [content.numbers[name] for name in run.protocols],
        "chosen": content.ways[number],
        "detailed": number < MOST_RUNS,
    }


def _run_data(content: Content, number: int, specs: Specifications) -> JsonDict:
    data: JsonDict = {
        "strip": _state(specs, "strip", content.strips[number]),
        "numbers": content.tables[number].rows,
    }
    if number >= MOST_RUNS:
        return data
    effects = content.effects[number]
    if effects:
        data["effects"] = _state(specs, "effects", lanes.effects_values(effects))
        data["effect_rows"] = sections.effect_table(effects).rows
    return data | content.steps[number].data(content.numbers)


def _pairs(content: Content, specs: Specifications) -> dict[int, dict[int, Any]]:
    """Return what the page shows of every pair, both ways round: ``pairs[A][B]``, by the positions
    of runs.
    """
    pairs: dict[int, dict[int, Any]] = {}
    # The reader may choose either model as A.
    for pair in (*content.compared, *map(study_data.turned, content.compared)):
        data = sections.pair_data(content.study, pair)
        values = content.pair_values(pair)
        if values:
            data["chart"] = _state(specs, "pair", values)
        pairs.setdefault(pair.left, {})[pair.right] = data
    return pairs
