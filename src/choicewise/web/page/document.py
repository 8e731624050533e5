"""The page as one HTML document."""

import hashlib
import re
from base64 import b64encode
from collections.abc import Sequence
from typing import Any

from choicewise import __version__
from choicewise.report.average_table import average_tables
from choicewise.report.finding_text import sentences
from choicewise.results.finding import finding
from choicewise.web import number, pairs
from choicewise.web.charts import strip
from choicewise.web.environment import environment, static_text
from choicewise.web.page import again, items, numbers, order, pair_text, why
from choicewise.web.page.content import CAPTIONS, SPECS, Content
from choicewise.web.page.embedded import Embedded
from choicewise.web.page.figure import drawing, renderer_script
from choicewise.web.page.full_items import FullItems
from choicewise.web.page.parts import Part
from choicewise.web.page.script_data import script_data
from choicewise.web.study import Study

SCRIPTS = (
    *("dom.js", "state.js", "charts.js", "strip.js", "ladder.js", "order.js", "pairs.js", "item.js", "items.js"),
    "start.js",
)
"""Our modules, which share one scope, in the order in which they are joined."""

_COMMENT = re.compile(r"^\s*//.*\n", re.MULTILINE)


def document(
    content: Content, made: str, inside: FullItems, parts: Sequence[Part] = (), folder: str = "", board: str = ""
) -> str:
    """The page, made on the day ``made``.

    ``inside``: the items that it holds in full; ``parts``: further ones in the ``folder`` beside it.  ``board``: the
    address of the board that the page belongs to.
    """
    data = script_data(content, inside, parts, folder)
    renderer, script, style = renderer_script(), page_script(), static_text("page.css")
    template = environment().get_template("page.html.j2")
    return template.render(
        **_shown(content),
        version=__version__,
        policy=policy([renderer, script], style, bool(parts)),
        style=_markup(style),
        scripts=[_markup(renderer), _markup(script)],
        data=[Embedded(each.name, each.type, _markup(each.text)) for each in data],
        about=about(content.study, made),
        board=board,
        inside=inside.count,
        beside=sum(len(part.items) for part in parts),
        parts=parts,
    )


def page_script() -> str:
    """Our script: the modules in one scope, without their comments."""
    return f'(() => {{\n"use strict";\n{_COMMENT.sub("", static_text(*SCRIPTS))}\n}})();'


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
    asked = [run.items for run in study.runs]
    several = len(study.runs) > 1
    models = dict.fromkeys(run.manifest.model.name for run in study.runs)
    words = [
        number.listed([number.shortened(name, 40) for name in datasets]),
        number.count(len(models) if len(datasets) > 1 else len(study.runs), "model")
        if several
        else number.shortened(study.labels[0]),
        (number.count(most, "number") if least == most else f"{least} to {most} numbers") + " each" * several,
        number.count(max(asked), "item") if min(asked) == max(asked) else f"{min(asked):,} to {max(asked):,} items",
        made,
    ]
    return " · ".join(words)


def _shown(content: Content) -> dict[str, Any]:
    """What stands on the page before its script does anything: of the first run, order and pair."""
    study = content.study
    effects = content.effects[0]
    return {
        "study": study,
        "first": study.runs[0],
        "averages": average_tables(study.averages),
        "sentences": sentences(finding(study.named_rows)),
        "captions": CAPTIONS | {"strip": strip.caption([record for each in content.strips for record in each])},
        "strip": drawing(SPECS["strip"], content.strips[0]),
        "number_columns": numbers.COLUMNS,
        "number_rows": content.tables[0],
        "way": content.ways[0],
        "ladder": drawing(SPECS["ladder"], content.climbed) if content.climbed else None,
        "step_columns": why.STEP_COLUMNS,
        "step_rows": why.step_table(content.climbed),
        "effects": drawing(SPECS["effects"], why.effect_values(effects)) if effects else None,
        "effect_columns": why.EFFECT_COLUMNS,
        "effect_rows": why.effect_table(effects),
        "orders": [
            (each, drawing(SPECS["rank"], each.values), drawing(SPECS["ranks"], each.rank_values))
            for each in content.orders
        ],
        "range_columns": order.RANGE_COLUMNS,
        "compared": [_compared(content, each) for each in content.compared[:1]],
        "pair_columns": pair_text.COLUMNS,
        "most_pairs": pairs.MOST_RUNS,
        "listed": content.listed,
        "item_rows": [items.first_rows(each) for each in content.listed],
        "sheets": content.sheets,
        "doubts": content.doubts,
        "recipes": content.recipes,
        "downloads": again.downloads(study),
    }


def _compared(content: Content, pair: pairs.Pair) -> tuple[dict[str, Any], Any]:
    """What is said of a pair, and its drawing where there is one."""
    values = content.pair_values(pair)
    return pair_text.pair_data(content.study, pair), drawing(SPECS["pair"], values) if values else None


def _hash(text: str) -> str:
    return f"sha256-{b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


def _markup(text: str) -> Any:
    from markupsafe import Markup

    return Markup(text)
