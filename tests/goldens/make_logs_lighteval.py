"""Make tests/goldens/logs/lighteval: details and results as lighteval judges and writes them, of rows made up here.

    pip install lighteval==0.9.2 && python tests/goldens/make_logs_lighteval.py     # until 0.9, and 0.4 to 0.7
    pip install lighteval==0.13.0 && python tests/goldens/make_logs_lighteval.py    # since 0.10

The answers are made up; the loggers, metrics and files are lighteval's. Releases 0.4 to 0.7 write what
0.9.2 writes with every cell as text (evaluation_tracker.py@v0.4.0:167), so their file is made of its details.
"""

import hashlib
import random
import shutil
from collections import defaultdict
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import quote, unquote

HERE = Path(__file__).parent / "logs" / "lighteval"
MODEL = "made-up/words"
ROWS = [
    (
        "Which river crosses the town?",
        ["the Lune", "the Ash, which is wide", "the Tarn", "the Wye"],
        1,
    ),
    ("What is baked for the feast?", ["rye bread", "a plum tart", "nothing", "a seed cake"], 3),
    ("Who keeps the key?", ["the miller", "the clerk", "the smith", "nobody at all"], 0),
]
SUBJECTS = ("bells", "ferries", "lamps", "mills", "rivers")


def likelihoods(*texts: str) -> list[tuple[float, bool]]:
    draw = random.Random(hashlib.sha256("|".join(texts).encode()).digest())
    return [(-draw.expovariate(0.2), draw.random() < 0.2) for _ in texts[1:]]


def tokens(text: str) -> list[int]:
    return [sum(map(ord, word)) for word in text.split()]


def quote_names(folder: Path) -> None:
    """Names that every file system can have: | and : become %7C and %3A."""
    for file in sorted(folder.rglob("*.parquet")):
        file.rename(file.with_name(quote(unquote(file.name))))


def tracker(name: str) -> Any:
    from lighteval.logging.evaluation_tracker import EvaluationTracker

    shutil.rmtree(HERE / name, ignore_errors=True)
    return EvaluationTracker(output_dir=str(HERE / name), save_details=True)


def finish(written: Any) -> None:
    for name, metrics in written.metrics_logger.metrics_values.items():
        written.metrics_logger.metric_aggregated[name] = {
            key: sum(all_) / len(all_) for key, all_ in metrics.items()
        }
        written.versions_logger.log(name, 0)
    written.details_logger.aggregate()
    written.save()


def until_0_9() -> None:
    """Three tasks of 0.9.2: sums and norms with a greedy flag, PMI, and letters from one request."""
    from datasets import Dataset
    from lighteval.metrics.metrics_sample import LoglikelihoodAcc
    from lighteval.metrics.normalizations import LogProbCharNorm, LogProbPMINorm
    from lighteval.metrics.utils.metric_utils import MetricCategory
    from lighteval.models.model_output import (
        LoglikelihoodResponse,
        LoglikelihoodSingleTokenResponse,
    )
    from lighteval.tasks.requests import Doc

    written = tracker("until-0.9")
    written.general_config_logger.log_args_info(1, None, "")
    info = SimpleNamespace(
        model_name=MODEL, model_sha="0" * 40, model_dtype="torch.float32", model_size="1"
    )
    written.general_config_logger.log_model_info({}, info)
    measures = {
        "acc": LoglikelihoodAcc().compute,
        "acc_norm": LoglikelihoodAcc(LogProbCharNorm()).compute,
    }
    pmi = {"acc_pmi": LoglikelihoodAcc(LogProbPMINorm()).compute}
    tasks = {
        f"leaderboard|town:{subject}|5|0": (MetricCategory.MULTICHOICE, measures)
        for subject in SUBJECTS
    }
    tasks["lighteval|town_pmi|0|0"] = (MetricCategory.MULTICHOICE_PMI, pmi)
    tasks["helm|town_letters|5|0"] = (
        MetricCategory.MULTICHOICE_ONE_TOKEN,
        {"acc": LoglikelihoodAcc().compute},
    )
    for name, (category, metrics) in tasks.items():
        kinds = defaultdict(bool, {category: True})
        for question, options, gold in ROWS:
            one = category is MetricCategory.MULTICHOICE_ONE_TOKEN
            choices = (
                [f" {letter}" for letter in "ABCD"] if one else [f" {option}" for option in options]
            )
            query = f"Question: {question}\nAnswer:"
            doc = Doc(
                query,
                choices,
                gold,
                ctx=f"Question: So?\nAnswer: So.\n\n{query}",
                unconditioned_query="Answer:",
            )
            doc.num_asked_few_shots = doc.num_effective_few_shots = 1
            twice = choices * 2 if category is MetricCategory.MULTICHOICE_PMI else choices
            answers = likelihoods(name + question, *twice)
            if one:
                letters = [[ord(choice[-1])] for choice in choices]
                responses = [
                    LoglikelihoodSingleTokenResponse(
                        [value for value, _ in answers], [1, 2], letters
                    )
                ]
            else:
                responses = [
                    LoglikelihoodResponse(
                        answer, [1, 2], tokens(choice), int(question.startswith("Who")), 3
                    )
                    for answer, choice in zip(answers, twice, strict=True)
                ]
            values = [value for value, _ in answers]
            given = {
                "gold_ixs": [gold],
                "choices_logprob": values[:4],
                "unconditioned_logprob": values[4:],
            }
            given |= {
                "choices_tokens": [tokens(choice) for choice in choices],
                "formatted_doc": doc,
            }
            judged = {key: measure(**given) for key, measure in metrics.items()}
            written.details_logger.log(
                name, SimpleNamespace(has_metric_category=kinds), doc, responses, judged
            )
            written.metrics_logger.log(name, judged)
    finish(written)
    for name, details in list(written.details_logger.details.items())[:1]:
        spelled = [{key: str(value) for key, value in asdict(each).items()} for each in details]
        folder = HERE / "from-0.4" / "details" / MODEL / "2024-08-01T10-00-00.000000"
        folder.mkdir(parents=True, exist_ok=True)
        Dataset.from_list(spelled).to_parquet(folder / f"details_{name}_{folder.name}.parquet")


def since_0_10() -> None:
    """A task of 0.13.0 with all its normalisations, and one in which text is generated."""
    from lighteval.metrics.metrics_sample import LoglikelihoodAcc
    from lighteval.metrics.normalizations import LogProbCharNorm, LogProbPMINorm, LogProbTokenNorm
    from lighteval.models.dummy.dummy_model import DummyModelConfig
    from lighteval.models.model_output import ModelResponse
    from lighteval.tasks.requests import Doc, SamplingMethod

    written = tracker("since-0.10")
    written.general_config_logger.log_args_info(1, None, "")
    written.general_config_logger.log_model_info(DummyModelConfig(model_name=MODEL, seed=1))
    norms = (
        LogProbCharNorm(),
        LogProbCharNorm(ignore_first_space=True),
        LogProbTokenNorm(),
        LogProbPMINorm(),
    )
    for number, (question, options, gold) in enumerate(ROWS):
        choices = [f" {option}" for option in options]
        doc = Doc(
            f"Question: {question}\nAnswer:",
            choices,
            gold,
            unconditioned_query="Answer:",
            id=str(number),
        )
        doc.task_name, doc.sampling_methods = "town|0", [SamplingMethod.LOGPROBS]
        answers = likelihoods(question, *choices, *choices)
        longest = max(len(tokens(choice)) for choice in choices)
        padded = [tokens(choice) + [-1] * (longest - len(tokens(choice))) for choice in choices]
        values, flags = ([answer[place] for answer in answers] for place in (0, 1))
        as_told = {"logprobs": values, "argmax_logits_eq_gold": flags}
        response = ModelResponse(input_tokens=[1, 2, 3], output_tokens=padded, **as_told)
        judged = {"acc": LoglikelihoodAcc().compute(doc, response)}
        short = ModelResponse(
            output_tokens=[tokens(choice) for choice in choices], logprobs=response.logprobs
        )
        for norm in norms:
            judged[f"acc:logprob_normalization={norm}"] = LoglikelihoodAcc(norm).compute(doc, short)
        written.details_logger.log("town|0", doc, response, judged)
        written.metrics_logger.log("town|0", judged)
        text = Doc(question, ["the Ash"], 0, id=str(number))
        said = ModelResponse(input=question, text=["the Ash"], output_tokens=[[1, 2]])
        written.details_logger.log("town_text|0", text, said, {"em": 1})
        written.metrics_logger.log("town_text|0", {"em": 1})
    finish(written)


if __name__ == "__main__":
    if tuple(map(int, version("lighteval").split(".")[:2])) < (0, 10):
        until_0_9()
    else:
        since_0_10()
    quote_names(HERE)
