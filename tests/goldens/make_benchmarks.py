"""Make tests/goldens/benchmarks/{today,v1}.json: what LM Evaluation Harness sends and scores for the rows beside them.

    pip install lm-eval==0.4.13 torch==2.13.0 transformers==5.23.0 accelerate
    git -C lm-evaluation-harness archive b281b0921b636bc36ad05c0b0b0763bd6dd43463 lm_eval/*.py lm_eval/tasks \\
        | tar -x -C old
    python tests/goldens/make_benchmarks.py today
    python tests/goldens/make_benchmarks.py v1 old

The rows (``rows.json``: benchmark → subject → split → rows) are made up, in the field names of the Hub;
``datasets.load_dataset`` is replaced by one that gives them.  All else is the harness's own: its task files, its
samplers, its metrics, and today its model class HFLM, in float32, on a bundled model.
"""

import json
import random
import sys
import tempfile
from importlib import import_module
from pathlib import Path
from typing import Any

import datasets
from golden_tools import (
    GOLDENS,
    MODEL,
    log_likelihood,
    task_manager,
    task_today,
    use_2023,
    versions,
    weights,
    write,
)

_load = datasets.load_dataset
HERE = GOLDENS / "benchmarks"
TODAY = {
    "truthfulqa": {"": ("truthfulqa_mc1", "truthfulqa_mc2")},
    "blimp": {"wh_island": ("blimp_wh_island",), "npi_present_1": ("blimp_npi_present_1",)},
    "lambada": {"": ("lambada_openai",)},
    "gsm8k": {"": ("gsm8k",)},
    "gpqa": {"main": ("leaderboard_gpqa_main", "gpqa_main_zeroshot")},
    "musr": {
        name: (f"leaderboard_musr_{name}",) for name in ("murder_mysteries", "object_placements")
    },
    "bbh": {
        name: (f"leaderboard_bbh_{name}",)
        for name in ("boolean_expressions", "date_understanding", "snarks")
    },
}
"""Benchmark → subject → the tasks on its rows."""

V1 = {
    "truthfulqa": {"": "truthfulqa.TruthfulQAMultipleChoice"},
    "blimp": {"wh_island": "blimp.BlimpWhIsland", "npi_present_1": "blimp.BlimpNpiPresent_1"},
    "lambada": {"": "lambada.LambadaOpenAI"},
    "gsm8k": {"": "gsm8k.GradeSchoolMath8K"},
}
ASIDE = {
    "blimp": {"test": "train"},
    "gpqa": {"test": "train"},
    "truthfulqa": {"test": "validation"},
}
"""Where the Hub calls a split otherwise."""

GENERATED = (
    *("She has 4 and 6.\n#### 10", "#### 1,024.\n\nQuestion: and now?", "The answer is $12.50."),
    *("nothing", "#### -3 and #### 4", "so 7 and then 22"),
)
"""Texts that a model could give, for the rules alone."""


def serve(benchmark: str, subject: str) -> None:
    """Let every dataset that is loaded from now on be these rows."""
    names = ASIDE.get(benchmark, {})
    if benchmark == "musr":
        names = {"test": subject}
    own = json.loads((HERE / "rows.json").read_text(encoding="utf-8"))[benchmark][subject]
    folder = Path(tempfile.mkdtemp())
    paths = {names.get(name, name): folder / f"{name}.jsonl" for name in own}
    for path, each in zip(paths.values(), own.values(), strict=True):
        path.write_text("".join(json.dumps(row) + "\n" for row in each), encoding="utf-8")
    # from files, as those of the Hub: what ``map`` makes of a row is then made once, and drawn once
    files = {name: str(path) for name, path in paths.items()}
    served = _load("json", data_files=files, cache_dir=str(folder / "cache"))
    datasets.load_dataset = lambda *_, **__: served


def today() -> None:
    """Contexts, continuations, log-likelihoods and metrics."""
    from lm_eval.api.metrics import perplexity

    task_manager()
    model = log_likelihood(MODEL).model  # type: ignore[attr-defined]
    golden: dict[str, Any] = {}
    for benchmark, subjects in TODAY.items():
        for subject, names in subjects.items():
            for name in names:
                serve(benchmark, subject)
                random.seed(0)  # as the evaluator does before it loads the tasks
                task = task_today(name)
                golden.setdefault(benchmark, {}).setdefault(subject, {})[name] = _scored(
                    task, model, perplexity
                )
    about = {
        "versions": versions("lm-eval", "torch", "transformers"),
        "model": MODEL.name,
        "weights": weights(),
    }
    write(HERE / "today.json", {**about, "benchmarks": golden})


def _scored(task: Any, model: Any, perplexity: Any) -> dict[str, Any]:
    sent: dict[int, list[Any]] = {}
    for instance in task.instances:
        sent.setdefault(instance.doc_id, []).append(instance)
    if task.OUTPUT_TYPE == "generate_until":
        return _generated(task, sent)
    texts, numbers, metrics = [], [], []
    for number, doc in enumerate(task.eval_docs):
        answers = model.loglikelihood(sent[number], disable_tqdm=True)
        texts.append([list(each.args) for each in sent[number]])
        numbers.append([round(float(answer[0]), 5) for answer in answers])
        results = task.process_results(doc, answers)
        metrics.append({key: round(float(value), 7) for key, value in results.items()})
    means = {key: sum(each[key] for each in metrics) / len(metrics) for key in metrics[0]}
    if "perplexity" in means:
        means["perplexity"] = perplexity([each["perplexity"] for each in metrics])
    return {"sent": texts, "loglikelihoods": numbers, "metrics": metrics, "means": means}


def _generated(task: Any, sent: dict[int, list[Any]]) -> dict[str, Any]:
    """The contexts, and what each filter and the metric make of the texts above."""
    texts = [each[0].args[0] for _, each in sorted(sent.items())]
    verdicts: dict[str, Any] = {}
    for filter_ in task._filters:
        for text in GENERATED:
            for doc in task.eval_docs:
                (extracted,) = filter_.filters[0]().apply([[text]], [doc])
                result = task.process_results(doc, [extracted[0]])
                verdicts.setdefault(filter_.name, {}).setdefault(text, []).append(
                    int(result["exact_match"])
                )
    return {"sent": texts, "until": sent[0][0].args[1]["until"], "verdicts": verdicts}


def v1(checkout: Path) -> None:
    """Contexts, continuations and verdicts about texts of the commit b281b09."""
    use_2023(checkout)
    golden: dict[str, Any] = {}
    for benchmark, subjects in V1.items():
        for subject, path in subjects.items():
            serve(benchmark, subject)
            module_name, _, class_name = path.partition(".")
            task = getattr(import_module(f"lm_eval.tasks.{module_name}"), class_name)()
            golden.setdefault(benchmark, {})[subject] = _asked(
                task, 5 if benchmark == "gsm8k" else 0
            )
    write(HERE / "v1.json", {"benchmarks": golden})


def _asked(task: Any, shots: int) -> dict[str, Any]:
    docs = list(task.test_docs() if task.has_test_docs() else task.validation_docs())
    rnd, order = random.Random(42), list(range(len(docs)))
    rnd.shuffle(
        order
    )  # as lm_eval/evaluator.py does with the documents, which it asks in that order
    sent: list[Any] = [None] * len(docs)
    for place in order:
        context = task.fewshot_context(doc=docs[place], num_fewshot=shots, rnd=rnd, description="")
        asked = task.construct_requests(docs[place], context)
        asked = [asked] if not isinstance(asked, list | tuple) else asked
        sent[place] = [list(each.args) for each in asked]
    verdicts = {
        text: [int(task.process_results(doc, [text])["acc"]) for doc in docs]
        for text in GENERATED * bool(shots)
    }
    return {"sent": sent, "verdicts": verdicts or None}


if __name__ == "__main__":
    v1(Path(sys.argv[2])) if sys.argv[1] == "v1" else today()
