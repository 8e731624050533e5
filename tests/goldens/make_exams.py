"""Make tests/goldens/exams/requests.json: what LM Evaluation Harness sends for the rows beside it.

    pip install lm-eval==0.4.13
    python tests/goldens/make_exams.py

The rows are made up, in the field names of the Hub; ``datasets.load_dataset`` is replaced by one that gives them.
All else is the harness's own.
"""

import json
from typing import Any

from golden_tools import GOLDENS, requests_of, serve, task_today, versions, write

HERE = GOLDENS / "exams"
TASKS = {
    "mmlu-pro/harness": ({"": "leaderboard_mmlu_pro"}, (5,)),
    "mmlu-redux/harness": ({"abstract_algebra": "mmlu_redux_abstract_algebra_generative"}, (0,)),
    "cmmlu/harness": ({"agronomy": "cmmlu_agronomy", "ancient_chinese": "cmmlu_ancient_chinese"}, (0, 2)),
    "ceval/harness": ({"accountant": "ceval-valid_accountant"}, (0, 2)),
    "swag/harness": ({"": "swag"}, (0, 2)),
}
"""Entry of the catalogue → the harness's task of each subject, and with how many shots it is asked."""


def sent(task_name: str, splits: dict[str, list[dict[str, Any]]], shots: int) -> list[list[list[Any]]]:
    serve(splits)
    return requests_of(task_today(task_name, shots))


def main() -> None:
    """Write the requests of every entry: by shots, by subject."""
    rows = json.loads((HERE / "rows.json").read_text(encoding="utf-8"))
    golden = {
        name: {
            str(count): {
                subject: sent(task, rows[name.partition("/")[0]][subject], count) for subject, task in tasks.items()
            }
            for count in shots
        }
        for name, (tasks, shots) in TASKS.items()
    }
    write(HERE / "requests.json", {**versions("lm-eval"), "requests": golden})


if __name__ == "__main__":
    main()
