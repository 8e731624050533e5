"""Make tests/goldens/compat/numbers.json: what other tools say about the questions beside it, on bundled models.

    pip install lm-eval==0.4.13 minicons==0.3.39 surprisal==0.1.7 torch==2.13.0 transformers==5.23.0
    pip download --no-deps sglang==0.4.2 && unzip sglang-0.4.2-py3-none-any.whl -d sglang
    PYTHONPATH=sglang python tests/goldens/make_compat.py

Of SGLang the client alone runs (``RuntimeEndpoint.select`` and ``choices.py`` of 0.4.2); its server needs a GPU, and a
stand-in computes what the servers of 0.4.2 and 0.5.23 answer (``scheduler.py`` and ``logprob_result_processor.py``).
Questions called plain-* are asked as the catalogue's compat family asks, merge-* with the bare question before the bare
choice.  A null is a number that the tool did not give: it stopped, or answered NaN; ``empty`` counts the sums of 0 that
minicons gives to choices of which it scores nothing.
"""

import json
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import torch
import yaml
from golden_tools import (
    GOLDENS,
    MODELS,
    Numbers,
    log_likelihood,
    read_lines,
    versions,
    weights,
    write_short,
)
from golden_tools import table as table_of
from transformers import AutoModelForCausalLM, AutoTokenizer

HERE = GOLDENS / "compat"
NAMES = ("merrow-bpe-512", "merrow-byte", "merrow-unigram-1000")
METRICS = ("acc", "acc_norm", "acc_bytes", "acc_mutual_info", "exact_match")


def questions() -> list[dict[str, Any]]:
    """Each with its context and the choices as they follow it."""
    asked = read_lines(HERE / "questions.jsonl")
    for item in asked:
        plain = item["id"].startswith("plain")
        item["context"] = f"Question: {item['question']}\nAnswer:" if plain else item["question"]
        item["space"] = " " if plain else ""
    return asked


def table(score: Callable[[dict[str, Any], str], float]) -> Numbers:
    return table_of(score, questions())


def minicons(path: Path) -> dict[str, Any]:
    """conditional_score by its default, the mean, and by the sum."""
    from minicons.scorer import IncrementalLMScorer

    scorer = IncrementalLMScorer(str(path), "cpu")

    def scores(reduction: Callable[[Any], float]) -> Numbers:
        def score(item: dict[str, Any], choice: str) -> float:
            given = {"separator": item["space"], "reduction": reduction}
            return float(scorer.conditional_score([item["context"]], [choice], **given)[0])

        return table(score)

    means, sums = scores(lambda x: x.mean(0).item()), scores(lambda x: x.sum(0).item())
    empty = 0
    for mean, total in zip(means, sums, strict=True):
        for choice, value in enumerate(mean):
            if value is None and total[choice] == 0:  # nothing was scored, and nothing sums to 0
                total[choice], empty = None, empty + 1
    return {"mean": means, "sum": sums, "empty": empty}


def surprisal(path: Path) -> dict[str, Any]:
    """Minus extract_surprisal of the choice and the space before it."""
    from surprisal import AutoModel

    model = AutoModel.from_pretrained(str(path), model_class="causal")

    def score(item: dict[str, Any], choice: str) -> float:
        return -float(model.extract_surprisal(item["space"] + choice, prefix=item["context"])[0])

    return {"sum": table(score)}


def lm_eval(path: Path) -> dict[str, Any]:
    """Log-likelihoods request by request, and the metrics of the plain questions as a task has them."""
    from lm_eval import simple_evaluate
    from lm_eval.tasks import TaskManager

    score = log_likelihood(path)
    sums = table(lambda item, choice: score(item["context"], item["space"] + choice))
    with tempfile.TemporaryDirectory() as folder:
        plain = [item for item in questions() if item["space"]]
        (Path(folder) / "plain.json").write_text(
            "\n".join(json.dumps(item) for item in plain), encoding="utf-8"
        )
        files = {"data_files": {"test": str(Path(folder) / "plain.json")}}
        task = {
            "task": "plain",
            "dataset_path": "json",
            "dataset_kwargs": files,
            "test_split": "test",
        }
        task |= {"output_type": "multiple_choice", "doc_to_text": "Question: {{question}}\nAnswer:"}
        task |= {"doc_to_choice": "choices", "doc_to_target": "answer"}
        task |= {"metric_list": [{"metric": metric, "aggregation": "mean"} for metric in METRICS]}
        (Path(folder) / "plain.yaml").write_text(yaml.safe_dump(task), encoding="utf-8")
        options = {"log_samples": True, "bootstrap_iters": 0, "cache_requests": False}
        tasks = TaskManager(include_path=folder, include_defaults=False)
        results = simple_evaluate(model=score.model, tasks=["plain"], task_manager=tasks, **options)  # type: ignore[attr-defined]
    samples = sorted(results["samples"]["plain"], key=lambda sample: sample["doc_id"])
    credits = {metric: [float(sample[metric]) for sample in samples] for metric in METRICS}
    values = {metric: round(results["results"]["plain"][f"{metric},none"], 6) for metric in METRICS}
    return {"sum": sums, "credits": credits, "values": values}


def sglang(path: Path) -> dict[str, Any]:
    """What select compares, choice by choice, and which choice greedy_token_selection takes."""
    display = ModuleType("IPython.display")
    display.HTML = display.display = None  # type: ignore[attr-defined]  # for notebooks only
    sys.modules.update({"IPython": ModuleType("IPython"), "IPython.display": display})
    from sglang.lang import choices as methods
    from sglang.lang.backend.runtime_endpoint import RuntimeEndpoint

    tokenizer, model = (
        AutoTokenizer.from_pretrained(path),
        AutoModelForCausalLM.from_pretrained(path).eval(),
    )

    class StandIn(RuntimeEndpoint):  # type: ignore[misc]
        """Answers what the server of ``era`` answers, computed by transformers."""

        def __init__(self, era: str) -> None:
            self._era = era

        def _generate_http_request(self, s: Any, data: dict[str, Any]) -> Any:
            if isinstance(data.get("text"), str):
                return {"meta_info": {"prompt_tokens": len(tokenizer(data["text"]).input_ids)}}
            if "input_ids" in data:  # as if all log-probabilities had been asked for
                return [self._answer(ids, 0) for ids in data["input_ids"]]
            return [
                self._answer(tokenizer(text).input_ids, data["logprob_start_len"])
                for text in data["text"]
            ]

        def _answer(self, ids: list[int], start: int) -> dict[str, Any]:
            with torch.inference_mode():
                logprobs = torch.log_softmax(model(torch.tensor([ids])).logits[0].float(), dim=-1)
            seen = [
                (logprobs[at - 1, ids[at]].item(), ids[at]) for at in range(start + 1, len(ids))
            ]
            first = [(None, ids[start])] if start == 0 or self._era == "0.5.23" else []
            entries = [(value, token, tokenizer.decode([token])) for value, token in first + seen]
            return {"meta_info": {"input_token_logprobs": entries, "output_token_logprobs": []}}

    def select(era: str, method: Any, item: dict[str, Any], choices: list[str]) -> Any:
        prompt = SimpleNamespace(text_=item["context"])
        return StandIn(era).select(
            prompt, [item["space"] + choice for choice in choices], 0.0, method
        )

    def means(era: str, method: Any, key: str) -> Numbers:
        return table(lambda item, choice: select(era, method, item, [choice]).meta_info[key][0])

    greedy: list[int | None] = []
    for item in questions():
        texts = [item["space"] + choice for choice in item["choices"]]
        try:
            greedy.append(
                texts.index(
                    select("0.4.2", methods.greedy_token_selection, item, item["choices"]).decision
                )
            )
        except (IndexError, TypeError, ZeroDivisionError):
            greedy.append(None)
    normalized, unconditional = (
        methods.token_length_normalized,
        methods.unconditional_likelihood_normalized,
    )
    return {
        "token_length_normalized": means("0.4.2", normalized, "normalized_prompt_logprobs"),
        "token_length_normalized_with_prompt": means(
            "0.5.23", normalized, "normalized_prompt_logprobs"
        ),
        "unconditional_likelihood_normalized": means(
            "0.4.2", unconditional, "normalized_unconditional_prompt_logprobs"
        ),
        "greedy_token_selection": greedy,
    }


def main() -> None:
    """Ask every tool about every question on every model."""
    torch.set_num_threads(2)
    tools = {
        "minicons": minicons,
        "surprisal": surprisal,
        "lm-eval": lm_eval,
        "sglang-select": sglang,
    }
    golden = {
        "versions": {
            **versions("lm-eval", "minicons", "surprisal", "torch", "transformers"),
            "sglang": "0.4.2",
        },
        "weights": {name: weights(MODELS / name) for name in NAMES},
        "numbers": {
            name: {tool: ask(MODELS / name) for tool, ask in tools.items()} for name in NAMES
        },
    }
    write_short(HERE / "numbers.json", golden, r"\[[^][{}]*\]", ",")


if __name__ == "__main__":
    main()
