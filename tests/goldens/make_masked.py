"""Make tests/goldens/masked/numbers.json: what other tools say about tiny random masked models and encoder-decoders.

    pip install lm-eval==0.4.13 minicons==0.3.39 torch==2.13.0 transformers==5.23.0
    PYTHONPATH=. python tests/goldens/make_masked.py

The models are those of tests/helpers/whole_text_models.py, which are the same wherever the same torch runs;
``digests`` says of which models the numbers are.  A null is a number that the tool did not give: it stopped, or said
NaN.  minicons calls ``batch_encode_plus``, which tokenizers of transformers 5 no longer have; the name is given back to
them here.
"""

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from golden_tools import GOLDENS, Numbers, log_likelihood, read_lines, table, versions, write_short
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer, PreTrainedTokenizerBase

from tests.helpers.whole_text_models import ENCODER_DECODERS, MASKED, digest, save_model

HERE = GOLDENS / "masked"
QUESTIONS = read_lines(HERE / "questions.jsonl")
REDUCTIONS: dict[str, Callable[[Any], float]] = {
    "mean": lambda x: x.mean(0).item(),
    "sum": lambda x: x.sum(0).item(),
}


def asked(score: Callable[[str, str], float]) -> Numbers:
    return table(
        lambda item, choice: score(f"Question: {item['question']}\nAnswer:", choice), QUESTIONS
    )


def masked(folder: Path) -> dict[str, Any]:
    """conditional_score of minicons by both metrics, as mean and as sum."""
    from minicons.scorer import MaskedLMScorer

    scorer = MaskedLMScorer(str(folder), "cpu")

    def numbers(metric: str, reduction: Callable[[Any], float]) -> Numbers:
        def score(context: str, choice: str) -> float:
            given = {"PLL_metric": metric, "reduction": reduction}
            return float(scorer.conditional_score([context], [choice], **given)[0])

        return asked(score)

    metrics = ("original", "within_word_l2r")
    return {
        f"{metric}-{name}": numbers(metric, way)
        for metric in metrics
        for name, way in REDUCTIONS.items()
    }


def minicons(folder: Path) -> dict[str, Any]:
    """conditional_score of the scorer given a loaded model; ``path-sum``: given the path, so that it may be resized."""
    from minicons.scorer import Seq2SeqScorer

    model = AutoModelForSeq2SeqLM.from_pretrained(folder).eval()
    given = Seq2SeqScorer(model, "cpu", AutoTokenizer.from_pretrained(folder))
    by_path = Seq2SeqScorer(str(folder), "cpu")

    def numbers(scorer: Any, way: Callable[[Any], float]) -> Numbers:
        return asked(
            lambda context, choice: float(
                scorer.conditional_score([context], [choice], reduction=way)[0]
            )
        )

    by_way = {name: numbers(given, way) for name, way in REDUCTIONS.items()}
    return {**by_way, "path-sum": numbers(by_path, REDUCTIONS["sum"])}


def lm_eval(folder: Path) -> dict[str, Any]:
    """Log-likelihoods, and those after the empty context, request by request."""
    score = log_likelihood(folder, backend="seq2seq")
    return {
        "sum": asked(lambda context, choice: score(context, f" {choice}")),
        "null": asked(lambda _, choice: score("", f" {choice}")),
    }


def main() -> None:
    """Ask every tool about every question on every model."""
    torch.set_num_threads(1)
    old: Any = PreTrainedTokenizerBase
    old.batch_encode_plus = lambda self, *texts, **given: self(*texts, **given)
    digests, by_family = dict[str, str](), dict[str, dict[str, Any]]()
    with tempfile.TemporaryDirectory() as folder:
        for family in (*MASKED, *ENCODER_DECODERS):
            path = save_model(family, Path(folder) / family)
            digests[family] = digest(path)
            tools = (
                {"minicons": masked}
                if family in MASKED
                else {"minicons": minicons, "lm-eval": lm_eval}
            )
            by_family[family] = {name: tool(path) for name, tool in tools.items()}
    about = versions("lm-eval", "minicons", "tokenizers", "torch", "transformers")
    golden = {"versions": about, "digests": digests, "numbers": by_family}
    write_short(HERE / "numbers.json", golden, r'\[[^{}"]*\]', ", ")


if __name__ == "__main__":
    main()
