"""The published table that this work started from: eight models, three implementations of MMLU, three orders."""

import json

from rich.console import Group

from choicewise.bundled import PUBLISHED_MMLU
from choicewise.report.table import rank_table
from choicewise.results.ranks import rank


def published_table() -> Group:
    """The bundled table (Hugging Face blog, June 2023) with the rank of every model in every column."""
    content = json.loads(PUBLISHED_MMLU.read_text(encoding="utf-8"))
    names = {column: f"{column} = {about['protocol']}" for column, about in content["columns"].items()}
    columns = {column: [row[column] for row in content["rows"]] for column in names}
    cells = {
        row["model"]: {name: (row[column], rank(row[column], columns[column])) for column, name in names.items()}
        for row in content["rows"]
    }
    return rank_table(f"published {content['date']}: MMLU accuracy in % and rank, {content['url']}", cells)
