"""Make tests/goldens/masked/numbers.json: what other tools say about tiny random masked models and encoder-decoders.

    pip install lm-eval==0.4.13 minicons==0.3.39 torch==2.13.0 transformers==5.23.0
    PYTHONPATH=. python tests/goldens/make_masked.py

The models are those of tests/helpers/whole_text_models.py, which are the same wherever the same torch runs;
``digests`` says of which models the numbers are.  A null is a number that the tool did not give: it stopped, or said
NaN.  minicons calls ``batch_encode_plus``, which tokenizers of transformers 5 no longer have; the name is given back to
them here.
"""

from __future__ import annotations

import json
import math
import tempfile
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer, PreTrainedTokenizerBase

from tests.helpers.whole_text_models import ENCODER_DECODERS, MASKED, digest, save_model

HERE = Path(__file__).parent / "masked"
QUESTIONS = [json.loads(line) for line in (HERE / "questions.jsonl").read_text(encoding="utf-8").splitlines()]
Number = float | None
REDUCTIONS: dict[str, Callable[[Any], float]] = {"mean": lambda x: x.mean(0).item(), "sum": lambda x: x.sum(0).item()}


def table(score: Callable[[str, str], float]) -> list[list[Number]]:
    """What ``score`` says of every choice of every question, None where it stops or says NaN."""
    return [
        [_number(score, f"Question: {item['question']}\nAnswer:", choice) for choice in item["choices"]]
        for item in QUESTIONS
    ]


def _number(score: Callable[[str, str], float], context: str, choice: str) -> Number:
    try:
        value = score(context, choice)
    except (AssertionError, IndexError, RuntimeError, TypeError):
        return None
    return None if math.isnan(value) else round(value, 6)


def masked(folder: Path) -> dict[str, Any]:
    """conditional_score of minicons by both metrics, as mean and as sum."""
    from minicons.scorer import MaskedLMScorer

    scorer = MaskedLMScorer(str(folder), "cpu")

    def numbers(metric: str, reduction: Callable[[Any], float]) -> list[list[Number]]:
        def score(context: str, choice: str) -> float:
            given = {"PLL_metric": metric, "reduction": reduction}
            return float(scorer.conditional_score([context], [choice], **given)[0])

        return table(score)

    metrics = ("original", "within_word_l2r")
    return {f"{metric}-{name}": numbers(metric, way) for metric in metrics for name, way in REDUCTIONS.items()}


def minicons(folder: Path) -> dict[str, Any]:
    """conditional_score of the scorer given a loaded model; ``path-sum``: given the path, so that it may be resized."""
    from minicons.scorer import Seq2SeqScorer

    model = AutoModelForSeq2SeqLM.from_pretrained(folder).eval()
    given = Seq2SeqScorer(model, "cpu", AutoTokenizer.from_pretrained(folder))
    by_path = Seq2SeqScorer(str(folder), "cpu")

    def numbers(scorer: Any, way: Callable[[Any], float]) -> list[list[Number]]:
        return table(lambda context, choice: float(scorer.conditional_score([context], [choice], reduction=way)[0]))

    found = {name: numbers(given, way) for name, way in REDUCTIONS.items()}
    return {**found, "path-sum": numbers(by_path, REDUCTIONS["sum"])}


def lm_eval(folder: Path) -> dict[str, Any]:
    """Log-likelihoods, and those after the empty context, request by request."""
    from lm_eval.api.instance import Instance
    from lm_eval.models.huggingface import HFLM

    model = HFLM(pretrained=str(folder), device="cpu", dtype="float32", batch_size=1, backend="seq2seq")

    def score(context: str, choice: str) -> float:
        request = Instance(request_type="loglikelihood", doc={}, arguments=(context, f" {choice}"), idx=0)
        return float(model.loglikelihood([request], disable_tqdm=True)[0][0])

    return {"sum": table(score), "null": table(lambda context, choice: score("", choice))}


def main() -> None:
    """Ask every tool about every question on every model."""
    torch.set_num_threads(1)
    old: Any = PreTrainedTokenizerBase
    old.batch_encode_plus = lambda self, *texts, **given: self(*texts, **given)
    versions = {name: version(name) for name in ("lm-eval", "minicons", "tokenizers", "torch", "transformers")}
    digests: dict[str, str] = {}
    found: dict[str, dict[str, Any]] = {}
    with tempfile.TemporaryDirectory() as folder:
        for family in (*MASKED, *ENCODER_DECODERS):
            path = save_model(family, Path(folder) / family)
            digests[family] = digest(path)
            if family in MASKED:
                found[family] = {"minicons": masked(path)}
            else:
                found[family] = {"minicons": minicons(path), "lm-eval": lm_eval(path)}
    lines = [f"{json.dumps(family)}: {_rows(tools)}" for family, tools in found.items()]
    head = json.dumps({"versions": versions, "digests": digests}, indent=1)[:-2]
    text = head + ',\n "numbers": {\n  ' + ",\n  ".join(lines) + "\n }\n}\n"
    json.loads(text)
    (HERE / "numbers.json").write_text(text, encoding="utf-8")


def _rows(tools: dict[str, Any]) -> str:
    """JSON with one kind of number on a line."""
    inside = [
        f"{json.dumps(tool)}: {{\n    "
        + ",\n    ".join(f"{json.dumps(name)}: {json.dumps(each)}" for name, each in kinds.items())
        + "\n   }"
        for tool, kinds in tools.items()
    ]
    return "{\n   " + ",\n   ".join(inside) + "\n  }"


if __name__ == "__main__":
    main()
