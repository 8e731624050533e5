"""Samples and results as lm-evaluation-harness writes them, and tables of log-likelihoods, made up."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from tests.helpers.imported_runs import Rows, write_lines

DATE = "2024-06-17T15-44-37.867068"


def sums(item: int, choices: int = 4) -> list[float]:
    """Log-likelihoods that differ, some of them tied."""
    return [-1.0 - ((3 * item + 7 * place) % 5) / 4 for place in range(choices)]


def texts(item: int, choices: int = 4) -> list[str]:
    return [
        "stone" + " wall" * ((item + place) % 3) + "ß" * (place % 2) for place in range(choices)
    ]


def right(scores: list[float], *gold: int) -> float:
    """1 where the greatest score is that of a right choice, else 0."""
    return float(int(np.argmax(scores)) in gold)


def sample(item: int, **changes: Any) -> dict[str, Any]:
    """A sample line of the released harness: numbers are texts, requests an object; a change to None leaves it out."""
    own, options = sums(item), texts(item)
    context = f"Question: what is {item}?\nAnswer:"
    means = [value / len(option) for value, option in zip(own, options, strict=True)]
    answers = [[str(value), str(place == 0)] for place, value in enumerate(own)]
    arguments = {
        f"gen_args_{place}": {"arg_0": context, "arg_1": f" {option}"}
        for place, option in enumerate(options)
    }
    row = {
        "doc_id": item,
        "doc": {"question": f"what is {item}?", "options": options, "label": item % 4},
    }
    row |= {
        "target": str(item % 4),
        "arguments": arguments,
        "filter": "none",
        "metrics": ["acc", "acc_norm"],
    }
    row |= {
        "resps": [[answer] for answer in answers],
        "filtered_resps": answers,
        "doc_hash": "0" * 64,
    }
    row |= {"acc": right(own, item % 4), "acc_norm": right(means, item % 4), **changes}
    return {name: value for name, value in row.items() if value is not None}


def samples(count: int, **changes: Any) -> Rows:
    return [sample(item, **changes) for item in range(count)]


def mean(rows: Rows, metric: str = "acc") -> Any:
    return np.mean([float(row[metric]) for row in rows])


def results_of(rows: Rows, task: str = "stones", **changes: Any) -> dict[str, Any]:
    count = len(rows)
    totals = {f"{name},none": mean(rows, name) for name in ("acc", "acc_norm") if name in rows[0]}
    arguments = "pretrained=org/stone-7b,dtype=bfloat16,token=hf_secret"
    content = {
        "results": {task: {"alias": task, **totals}},
        "configs": {
            task: {
                "task": task,
                "output_type": "multiple_choice",
                "target_delimiter": " ",
                "num_fewshot": 0,
            }
        },
        "versions": {task: 1.0},
        "n-shot": {task: 0},
        "n-samples": {task: {"original": count, "effective": count}},
        "config": {
            "model": "hf",
            "model_args": arguments,
            "model_dtype": "torch.bfloat16",
            "model_sha": "abc",
        },
    }
    return {**content, **changes}


def write_harness(
    folder: Path, rows: Rows, task: str = "stones", results: dict[str, Any] | None = None
) -> Path:
    """Samples and results as the released harness leaves them; the file of samples."""
    path = write_lines(folder / f"samples_{task}_{DATE}.jsonl", rows)
    content = results_of(rows, task) if results is None else results
    (folder / f"results_{DATE}.json").write_text(json.dumps(content), encoding="utf-8")
    return path


def table_rows(items: int = 6, **more: Callable[[int, int], Any]) -> Rows:
    """A row for each choice of each item, with further cells of the two."""
    return [
        {"item": f"q{item}", "choice": choice, "loglikelihood": value, "gold": item % 4}
        | {name: cell(item, choice) for name, cell in more.items()}
        for item in range(items)
        for choice, value in enumerate(sums(item))
    ]
