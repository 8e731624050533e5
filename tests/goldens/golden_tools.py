"""What several make_*.py share: files, numbers, and LM Evaluation Harness as it is today and as it was in 2023."""

import hashlib
import json
import math
import re
import sys
from collections.abc import Callable, Mapping
from functools import cache
from importlib.metadata import version
from pathlib import Path
from types import ModuleType
from typing import Any

GOLDENS = Path(__file__).parent
MODELS = GOLDENS.parents[1] / "src" / "choicewise" / "bundled" / "models"
MODEL = MODELS / "merrow-bpe-512"
V1 = "b281b0921b636bc36ad05c0b0b0763bd6dd43463"
Row = dict[str, Any]
Numbers = list[list[float | None]]
Sent = list[list[list[Any]]]
STAND_INS: dict[str, dict[str, Any]] = {
    **{"lm_eval.models": {}, "omegaconf": {"OmegaConf": None}},
    **{"transformers.data.metrics": {}, "transformers.data.metrics.squad_metrics": {}},
}
"""Empty modules, with the attributes that are imported from them, in place of what the old tasks don't need."""


def read_lines(file: Path) -> list[Row]:
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]


def write(file: Path, golden: Any, **options: Any) -> None:
    file.write_text(
        json.dumps(golden, indent=1, **{"ensure_ascii": False, **options}) + "\n", encoding="utf-8"
    )


def write_short(file: Path, golden: Any, lists: str, separator: str) -> None:
    """JSON with the lists that ``lists`` matches on one line each."""
    text = json.dumps(golden, indent=1)
    short = re.sub(
        lists, lambda found: json.dumps(json.loads(found[0]), separators=(separator, ":")), text
    )
    file.write_text(short + "\n", encoding="utf-8")


def versions(*packages: str) -> dict[str, str]:
    return {package: version(package) for package in packages}


def weights(model: Path = MODEL) -> str:
    return hashlib.sha256((model / "model.safetensors").read_bytes()).hexdigest()


def table(score: Callable[[Row, str], float], questions: list[Row]) -> Numbers:
    """What ``score`` says of every choice of every question, None where it stops or says NaN."""
    return [[_number(score, item, choice) for choice in item["choices"]] for item in questions]


def _number(score: Callable[[Row, str], float], item: Row, choice: str) -> float | None:
    try:
        value = score(item, choice)
    except (AssertionError, IndexError, RuntimeError, TypeError, ZeroDivisionError):
        return None
    return None if math.isnan(value) else round(value, 6)


def serve(splits: Mapping[str, list[Row]]) -> None:
    """Let every dataset that is loaded from now on be these rows."""
    import datasets

    served = datasets.DatasetDict(
        {name: datasets.Dataset.from_list(rows) for name, rows in splits.items()}
    )
    datasets.load_dataset = lambda *_, **__: served


@cache
def task_manager() -> Any:
    from lm_eval.tasks import TaskManager

    return TaskManager()


def task_today(name: str, shots: int | None = None) -> Any:
    """A task of today with its requests built."""
    task = task_manager().load([name])["tasks"][name]
    if shots is not None:
        task.set_config("num_fewshot", shots)
    task.set_fewshot_seed(1234)
    task.build_all_requests(limit=None, rank=0, world_size=1)
    return task


def requests_of(task: Any) -> Sent:
    """[document][choice] → [context, continuation], or [context, how it is generated]."""
    sent: dict[int, list[list[Any]]] = {}
    for instance in task.instances:
        sent.setdefault(instance.doc_id, []).append(list(instance.args))
    return [sent[index] for index in sorted(sent)]


def log_likelihood(folder: Path, **options: Any) -> Callable[[str, str], float]:
    """What the model class of today says of a continuation, one request at a time."""
    from lm_eval.api.instance import Instance
    from lm_eval.models.huggingface import HFLM

    model = HFLM(pretrained=str(folder), device="cpu", dtype="float32", batch_size=1, **options)

    def score(context: str, continuation: str) -> float:
        request = Instance(
            request_type="loglikelihood", doc={}, arguments=(context, continuation), idx=0
        )
        return float(model.loglikelihood([request], disable_tqdm=True)[0][0])

    score.model = model  # type: ignore[attr-defined]
    return score


def use_2023(checkout: Path) -> None:
    """From now on ``lm_eval`` is that of ``checkout``, whose tasks are imported one by one."""
    sys.path.insert(0, str(checkout))
    for name, attributes in STAND_INS.items():
        sys.modules[name] = ModuleType(name)
        sys.modules[name].__dict__.update(attributes)
    tasks = sys.modules["lm_eval.tasks"] = ModuleType("lm_eval.tasks")
    tasks.__path__ = [str(checkout / "lm_eval" / "tasks")]
