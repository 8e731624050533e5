"""Files of repositories on a Hub: questions about sums as Parquet or JSONL, and a bundled model."""

import json
from io import BytesIO
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from choicewise.bundled import MODELS

FOLDER = next(folder for folder in MODELS if folder.name == "merrow-byte")
MODEL = {file.name: file.read_bytes() for file in sorted(FOLDER.iterdir())}
WITHOUT_WEIGHTS = {name: content for name, content in MODEL.items() if name != "model.safetensors"}
OWN_CODE = json.dumps({"model_type": "merrowformer", "auto_map": {"AutoModelForCausalLM": "modeling.Merrow"}})
"""A configuration of a model that needs code of its own."""


def row(number: int) -> dict[str, Any]:
    return {"question": f"What is {number} + 1?", "choices": [f"{number + 1} it is", "none"], "answer": 0}


def parquet(*numbers: int) -> bytes:
    buffer = BytesIO()
    pq.write_table(pa.Table.from_pylist([row(number) for number in numbers]), buffer)
    return buffer.getvalue()


def jsonl(*numbers: int) -> str:
    return "".join(json.dumps(row(number)) + "\n" for number in numbers)
