"""Make harness/{today,v1,digests}.json and exams/requests.json: what the harness sends for the rows beside them.

    pip install lm-eval==0.4.13 torch==2.13.0 transformers==5.23.0 accelerate
    git -C lm-evaluation-harness archive b281b0921b636bc36ad05c0b0b0763bd6dd43463 lm_eval/*.py lm_eval/tasks \\
        | tar -x -C old
    python tests/goldens/make_harness.py today
    python tests/goldens/make_harness.py digests FOLDER    # of rows with the Hub's field names, NAME.SPLIT*.jsonl
    python tests/goldens/make_harness.py v1 old
    python tests/goldens/make_harness.py exams

The rows are made up, in the field names of the Hub; ``datasets.load_dataset`` is replaced by one that reads them.  All
else is the harness's own: its task files, its samplers, its evaluator (of 2023, with a model that notes what it is
asked), and today its model class HFLM, in float32, on a bundled model.
"""

import ast
import hashlib
import json
import random
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

from golden_tools import (
    GOLDENS,
    MODEL,
    V1,
    Row,
    Sent,
    log_likelihood,
    read_lines,
    requests_of,
    serve,
    task_today,
    use_2023,
    versions,
    weights,
    write,
)

HERE = GOLDENS / "harness"
SHOTS = (0, 3)
TASKS = {
    "arc-easy": ("arc_easy", "arc.ARCEasy"),
    "arc-challenge": ("arc_challenge", "arc.ARCChallenge"),
    "hellaswag": ("hellaswag", "hellaswag.HellaSwag"),
    "openbookqa": ("openbookqa", "openbookqa.OpenBookQA"),
    "piqa": ("piqa", "piqa.PiQA"),
    "winogrande": ("winogrande", "winogrande.Winogrande"),
    "commonsenseqa": ("commonsense_qa", None),
    "siqa": ("social_iqa", None),
    "copa": ("copa", "superglue.Copa"),
    "boolq": ("boolq", "superglue.BoolQ"),
    "race": ("race", "race.RACE"),
    "sciq": ("sciq", "sciq.SciQ"),
}
"""Benchmark → its task today, and its class in 2023."""


def rows(benchmark: str) -> dict[str, list[Row]]:
    """The rows that were made up, by split."""
    return {file.stem: read_lines(file) for file in (HERE / "rows" / benchmark).glob("*.jsonl")}


def save(name: str, golden: dict[str, Any]) -> None:
    write(HERE / f"{name}.json", golden, sort_keys=True)


def scored(score: Callable[[str, str], float], sent: Sent) -> dict[str, Any]:
    """What is sent, and the log-likelihoods of it."""
    return {
        "sent": sent,
        "loglikelihoods": [[round(score(*pair), 5) for pair in pairs] for pairs in sent],
    }


def today() -> None:
    """Contexts, continuations, and their log-likelihoods."""
    score = log_likelihood(MODEL)
    golden: dict[str, Any] = {}
    for benchmark, (name, _) in TASKS.items():
        serve(rows(benchmark))
        for shots in SHOTS:
            if shots and benchmark == "race":  # its shots would be the rows that are tested
                continue
            golden.setdefault(benchmark, {})[str(shots)] = scored(
                score, requests_of(task_today(name, shots))
            )
    about = {
        "versions": versions("lm-eval", "torch", "transformers"),
        "model": MODEL.name,
        "weights": weights(),
    }
    save("today", {**about, "benchmarks": golden})


def digests(folder: Path) -> None:
    """sha256 over everything that is sent for whole files of published rows, without shots."""
    names = {
        "commonsenseqa": "commonsense_qa",
        "siqa": "social_i_qa",
        "boolq": "boolq",
        "copa": "copa",
    }
    golden = {}
    for benchmark, (name, _) in TASKS.items():
        stem = names.get(benchmark, benchmark.replace("-", "_"))
        for file in sorted(folder.glob(f"{stem}.validation*.jsonl")):
            own = read_lines(file)
            if "query" in own[0]:  # others have cleaned them, and the task can't read them
                continue
            for row in own:
                if isinstance(row.get("answer"), bool):  # the rows of SuperGLUE have numbers
                    row["label"] = int(row["answer"])
            serve({"train": own[:1], "validation": own, "test": own})
            sha = hashlib.sha256()
            for pairs in requests_of(task_today(name, 0)):
                for context, continuation in sorted(pairs, key=lambda pair: pair[1]):
                    sha.update(f"{context}\0{continuation}\0".encode())
            golden[benchmark] = {"file": file.name, "items": len(own), "sha256": sha.hexdigest()}
    save("digests", golden)


def v1(checkout: Path) -> None:
    """Contexts and continuations of the commit b281b09, in the order of the rows."""
    use_2023(checkout)
    evaluator, score = import_module("lm_eval.evaluator"), _old_score()
    golden: dict[str, Any] = {}
    for benchmark, (_, path) in TASKS.items():
        if path is None:
            continue
        module_name, _, class_name = path.partition(".")
        splits = rows(benchmark)
        for shots in SHOTS:
            if shots and benchmark == "race":
                continue
            serve(_by_question(splits) if benchmark == "race" else splits)
            task = getattr(import_module(f"lm_eval.tasks.{module_name}"), class_name)()
            model = _Notebook()
            evaluator.evaluate(
                lm=model, task_dict={benchmark: task}, num_fewshot=shots, bootstrap_iters=0
            )
            count = len(splits.get("test", splits.get("validation", [])))
            order = list(range(count))
            random.Random(42).shuffle(order)
            each = (
                len(model.noted) // count if benchmark not in ("arc-easy", "arc-challenge") else 0
            )
            sent: dict[int, list[list[str]]] = {}
            pairs = iter(model.noted)
            for index in order:
                number = each or len(splits["test"][index]["choices"]["text"])
                sent[index] = [list(next(pairs)) for _ in range(number)]
            golden.setdefault(benchmark, {})[str(shots)] = scored(
                score, [sent[index] for index in range(count)]
            )
    save("v1", {"commit": V1, "model": MODEL.name, "weights": weights(), "benchmarks": golden})


def _old_score() -> Callable[[str, str], float]:
    """The log-likelihood of a continuation as the old BaseLM computes it, encoding as its models/gpt2.py does."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer, network = (
        AutoTokenizer.from_pretrained(MODEL),
        AutoModelForCausalLM.from_pretrained(MODEL).eval(),
    )
    base: Any = import_module("lm_eval.base").BaseLM

    class Old(base):  # type: ignore[misc]
        """What BaseLM leaves open."""

        eot_token_id, max_length, max_gen_toks = (
            tokenizer.eos_token_id,
            network.config.max_position_embeddings,
            1,
        )
        batch_size, device = 1, "cpu"

        def tok_encode(self, string: str) -> list[int]:
            """Without special tokens."""
            ids: list[int] = tokenizer.encode(string, add_special_tokens=False)
            return ids

        def tok_decode(self, tokens: Any) -> str:
            """The text of tokens."""
            return str(tokenizer.decode(tokens))

        def _model_call(self, inps: Any) -> Any:
            with torch.no_grad():
                return network(inps).logits.float()

        def _model_generate(self, context: Any, max_length: int, eos_token_id: int) -> None:
            raise NotImplementedError

    model = Old()
    return lambda context, continuation: float(model.loglikelihood([(context, continuation)])[0][0])


def _by_question(splits: dict[str, list[Row]]) -> dict[str, list[Row]]:
    """RACE's rows as the dataset race has them, one for every question."""
    return {
        name: [
            {"article": row["article"], **each}
            for row in own
            for each in ast.literal_eval(row["problems"])
        ]
        for name, own in splits.items()
    }


class _Notebook:
    """A model that notes the requests, in their order."""

    def __init__(self) -> None:
        self.noted: list[tuple[str, str]] = []

    def loglikelihood(self, requests: list[tuple[str, str]]) -> list[tuple[float, bool]]:
        """As if all were equally likely."""
        self.noted += requests
        return [(-1.0, False)] * len(requests)


EXAMS = {
    "mmlu-pro/harness": ({"": "leaderboard_mmlu_pro"}, (5,)),
    "mmlu-redux/harness": ({"abstract_algebra": "mmlu_redux_abstract_algebra_generative"}, (0,)),
    "cmmlu/harness": (
        {"agronomy": "cmmlu_agronomy", "ancient_chinese": "cmmlu_ancient_chinese"},
        (0, 2),
    ),
    "ceval/harness": ({"accountant": "ceval-valid_accountant"}, (0, 2)),
    "swag/harness": ({"": "swag"}, (0, 2)),
}
"""Entry of the catalogue → the harness's task of each subject, and with how many shots it is asked."""


def exams() -> None:
    """The requests of every exam: by shots, by subject."""
    folder = GOLDENS / "exams"
    of_exam = json.loads((folder / "rows.json").read_text(encoding="utf-8"))
    golden: dict[str, dict[str, dict[str, Sent]]] = {}
    for name, (tasks, counts) in EXAMS.items():
        for shots in counts:
            for subject, task in tasks.items():
                serve(of_exam[name.partition("/")[0]][subject])
                by_subject = golden.setdefault(name, {}).setdefault(str(shots), {})
                by_subject[subject] = requests_of(task_today(task, shots))
    write(folder / "requests.json", {**versions("lm-eval"), "requests": golden})


if __name__ == "__main__":
    {"today": today, "digests": digests, "v1": v1, "exams": exams}[sys.argv[1]](
        *map(Path, sys.argv[2:])
    )
