"""The page as one HTML document."""

import hashlib
import re
from base64 import b64encode
from collections.abc import Mapping, Sequence
from typing import Any

from choicewise import __version__
from choicewise.report.command_line import quoted
from choicewise.report.finding_text import sentences
from choicewise.results.finding import finding
from choicewise.web import number
from choicewise.web.charts import bump, strip
from choicewise.web.charts import ladder as ladder_chart
from choicewise.web.environment import environment, static_text
from choicewise.web.page import again, doubts, items, numbers, order, pairs, sheets, why
from choicewise.web.page.embedded import Embedded, embedded
from choicewise.web.page.figure import Drawing, Specifications, drawing, renderer_script
from choicewise.web.page.parts import Part
from choicewise.web.page.study import Study

SCRIPTS = (
    *("dom.js", "state.js", "charts.js", "strip.js", "ladder.js", "order.js", "pairs.js", "item.js", "items.js"),
    "start.js",
)
"""Our modules, which share one scope, in the order in which they are joined."""

DETAILED = 24
"""Runs whose ladders and answers to every item are on a page."""

INSIDE = 1_500_000
"""Characters that items in full may take inside the page."""

_STRIPPED = re.compile(r"^\s*//.*\n", re.MULTILINE)


def document(study: Study, made: str, parts: Sequence[Part] = (), folder: str = "") -> str:
    """The page of ``study``, made on the day ``made``.  ``parts``: items in full in the ``folder`` beside it."""
    compared = pairs.pairs(study)
    specs = Specifications()
    shown = orders = order.orders(study, compared)
    listed = items.study_items(study)
    steps = [why.steps(run) for run in study.runs[:DETAILED]]
    places = {name: place for place, name in enumerate(study.protocols)}
    effects = [why.effect_table(run) for run in study.runs[:DETAILED]]
    tables = [numbers.table(run) for run in study.runs]
    strips = [numbers.strip_values(run) for run in study.runs]
    data = [
        *(
            embedded(
                f"run-{place}",
                {"strip": specs.state(_strip, values), "numbers": table}
                | ({"effects": effects[place], **steps[place].data(places)} if place < DETAILED else {}),
            )
            for place, (values, table) in enumerate(zip(strips, tables, strict=True))
        ),
        embedded("pairs", pairs.all_data(study, compared)),
        *(embedded(f"order-{place}", _order_data(each, specs)) for place, each in enumerate(orders)),
        *(embedded(f"items-{place}", items.index_data(each, list(places))) for place, each in enumerate(listed)),
    ]
    chunks, full = _inside(study, listed)
    way = why.extremes(study.runs[0])
    climbed = steps[0].records(*way) if way and way in steps[0].ways else None
    ladder_spec = specs.state(ladder_chart.spec, climbed)["spec"] if climbed else None
    core = {
        "runs": [_run_data(study, place, places) for place in range(len(study.runs))],
        "protocols": list(places),
        "specs": specs.known,
        "ladder": ladder_spec,
        "way": way,
        "orders": [{"dataset": study.runs[study.datasets[each.dataset][0]].manifest.dataset.name} for each in orders],
        "folder": folder,
        "items": [
            {"runs": each.places, "chunks": own, "parts": [part.data() for part in parts if part.dataset == place]}
            for place, (each, own) in enumerate(zip(listed, chunks, strict=True))
        ],
    }
    data = [embedded("data", core), *data, *full]
    renderer, script, style = renderer_script(), page_script(), static_text("page.css")
    return environment().get_template("page.html.j2").render(
        version=__version__,
        policy=policy([renderer, script], style, bool(parts)),
        style=_markup(style),
        scripts=[_markup(renderer), _markup(script)],
        data=[Embedded(each.name, each.type, _markup(each.text)) for each in data],
        study=study,
        first=study.runs[0],
        about=about(study, made),
        sentences=sentences(finding(study.rows)),
        number_columns=numbers.COLUMNS,
        number_rows=tables[0],
        strip=drawing(_strip, strips[0]),
        strip_caption=strip.CAPTION if hasattr(strip, "CAPTION") else "",
        way=way,
        ladder=drawing(ladder_chart.spec, climbed) if climbed else None,
        ladder_caption=ladder_chart.CAPTION,
        step_columns=why.STEP_COLUMNS,
        step_rows=why.step_table(climbed) if climbed else [],
        effect_columns=why.EFFECT_COLUMNS,
        effect_rows=effects[0],
        orders=shown,
        bumps=[drawing(order.SPECS["rank"], each.values) for each in orders],
        bump_caption=bump.CAPTION,
        range_columns=order.RANGE_COLUMNS,
        compared=[(each, pairs.pair_data(study, each)) for each in compared[:1]],
        pair_columns=pairs.COLUMNS,
        most_pairs=pairs.MOST_RUNS,
        listed=listed,
        item_rows=[_item_rows(each) for each in listed],
        inside=sum(len(chunk["ids"]) for own in chunks for chunk in own),
        beside=sum(len(part.items) for part in parts),
        detailed=DETAILED,
        sheets=sheets.sheets(study),
        doubts=doubts.study_doubts(study),
        recipes=again.recipes(study),
        downloads=again.downloads(study),
        parts=parts,
    )


def page_script() -> str:
    """Our script: the modules in one scope, without their comments."""
    text = _STRIPPED.sub("", static_text(*SCRIPTS))
    return f'(() => {{\n"use strict";\n{text}\n}})();'


def policy(scripts: Sequence[str], style: str, parts: bool) -> str:
    """The content security policy: these scripts and this style and nothing else; ``parts``: and files beside it."""
    hashes = " ".join(f"'{_hash(script)}'" for script in scripts)
    fetched = "'self'" if parts else "'none'"
    return (
        f"default-src 'none'; script-src {hashes}; style-src '{_hash(style)}'; connect-src {fetched}; "
        "base-uri 'none'; form-action 'none'"
    )


def about(study: Study, made: str) -> str:
    """What was measured, in a line."""
    datasets = list(dict.fromkeys(run.manifest.dataset.name for run in study.runs))
    least, most = (extreme(len(run.rows) for run in study.runs) for extreme in (min, max))
    count = [run.items for run in study.runs]
    several = len(study.runs) > 1
    models = number.count(len(study.runs), "model") if several else number.shortened(study.labels[0])
    counted = number.count(most, "number") if least == most else f"{least} to {most} numbers"
    asked = number.count(max(count), "item") if min(count) == max(count) else f"{min(count):,} to {max(count):,} items"
    words = [number.listed([number.shortened(name, 40) for name in datasets]), models, f"{counted}{' each' * several}", asked, made]
    return " · ".join(words)


def _strip(values: Sequence[Mapping[str, Any]], width: int) -> dict[str, Any]:
    return strip.spec([dict(value) for value in values], width=width)


def _order_data(shown: order.Order, specs: Specifications) -> dict[str, Any]:
    return {name: specs.state(draw, shown.values) for name, draw in order.SPECS.items()}


def _run_data(study: Study, place: int, places: Mapping[str, int]) -> dict[str, Any]:
    run = study.runs[place]
    return {
        "label": run.label,
        "model": run.manifest.model.name,
        "dataset": run.manifest.dataset.name,
        "short": number.shortened(run.label, 24),
        "folder": run.folder.name,
        "command": quoted(run.folder.name),
        "detailed": place < DETAILED,
        "items": run.items,
        "protocols": [places[name] for name in run.protocols],
        "chosen": why.extremes(run),
    }


def _item_rows(listed: items.Items) -> list[list[str]]:
    """The items that flip most, as the page shows them without a script."""
    index = listed.index
    return [
        [
            index.ids[place],
            index.questions[place],
            index.subjects[place],
            *(f"{each.rights[place]} of {each.measures[place]}" for each in index.answered[:4]),
        ]
        for place in index.order[:12]
    ]


def _inside(study: Study, listed: Sequence[items.Items]) -> tuple[list[list[dict[str, Any]]], list[Embedded]]:
    """For each dataset which items stand in which element, and these elements."""
    chunks: list[list[dict[str, Any]]] = [[] for _ in listed]
    full, room = list[Embedded](), INSIDE
    for own, each in zip(chunks, listed, strict=True):
        for places, content in items.details(study, each, items.inside(each)):
            element = embedded(f"full-{len(full)}", content)
            while len(element.text) > room and content["items"]:
                kept = min(len(content["items"]) - 1, int(0.9 * len(content["items"]) * room / len(element.text)))
                content["items"], places = content["items"][:kept], places[:kept]
                element = embedded(f"full-{len(full)}", content)
            if not content["items"]:
                break
            own.append({"name": element.name, "ids": places})
            full.append(element)
            room -= len(element.text)
    return chunks, full


def _hash(text: str) -> str:
    return f"sha256-{b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


def _markup(text: str) -> Any:
    from markupsafe import Markup

    return Markup(text)
