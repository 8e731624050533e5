"""The published table that this work started from: eight models, three implementations of MMLU, three orders."""

import json

from rich.console import Group

from choicewise.bundled import PUBLISHED_MMLU
from choicewise.report.table import rank_table
from choicewise.scoring.statistics.rank_interval import ranks


def published_table() -> Group:
    """The bundled table (Hugging Face blog, June 2023) with the rank of every model in every column."""
    content = json.loads(PUBLISHED_MMLU.read_text(encoding="utf-8"))
    names = {column: f"{column} = {about['protocol']}" for column, about in content["columns"].items()}
    cells: dict[str, dict[str, tuple[float, int]]] = {row["model"]: {} for row in content["rows"]}
    for column, name in names.items():
        values = [row[column] for row in content["rows"]]
        for model, value, rank in zip(cells, values, ranks(values).tolist(), strict=True):
            cells[model][name] = value, rank
    return rank_table(f"published {content['date']}: MMLU accuracy in % and rank, {content['url']}", cells)
