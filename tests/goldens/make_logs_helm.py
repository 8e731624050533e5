"""Make tests/goldens/logs/helm: run folders as HELM itself adapts, judges and writes them, of rows made up here.

    pip install crfm-helm==0.5.16
    python tests/goldens/make_logs_helm.py

The adapters make the requests, the metrics judge the answers, and the runner's own lines spell the files; only the
model (a made-up one, of one token a word), its tokenizer and the scenario are replaced.
"""

import hashlib
import json
import random
import re
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

import nltk

nltk.download = lambda *_, **__: None
HERE = Path(__file__).parent / "logs" / "helm"
MODEL = "made-up/words"
ROWS = [
    ("Which river crosses the town of Merrow?", ["the Lune", "the Ash", "the Tarn", "the Wye"], 1),
    (
        "What is baked for the feast of lamps?",
        ["rye bread", "a plum tart", "nothing", "a seed cake"],
        3,
    ),
    ("Who keeps the key of the mill?", ["the miller", "the clerk", "the smith", "nobody"], 0),
    ("When does the ferry stop?", ["at noon", "at dusk", "in the frost", "in May"], 2),
    ("How many bells hang in the tower?", ["two", "three", "five", "three"], 1),
]


def chance(*texts: str) -> random.Random:
    return random.Random(hashlib.sha256("|".join(texts).encode()).digest())


def words(text: str) -> list[str]:
    return re.findall(r"\s*\S+|\s+$", text)


class Window:
    """What the adapters and metrics ask of a model's tokenizer."""

    def fits_within_context_window(
        self, text: str, expected_completion_token_length: int = 0
    ) -> bool:
        return True

    def truncate_from_right(self, text: str, expected_completion_token_length: int = 0) -> str:
        return text

    def tokenize(self, text: str) -> list[str]:
        return words(text)


def answer(request: Any, seed: str) -> Any:
    """The made-up model's answer: each word of the prompt with a log-probability, or a letter."""
    from helm.common.request import GeneratedOutput, RequestResult, Token

    draw = chance(seed, request.prompt)
    if request.echo_prompt:
        tokens = [
            Token(word, 0.0 if place == 0 else -draw.expovariate(0.5))
            for place, word in enumerate(words(request.prompt))
        ]
    else:
        tokens = [Token(draw.choice([" A", " B", " C", " D", " The"]), -draw.random())]
    text, total = "".join(token.text for token in tokens), sum(token.logprob for token in tokens)
    return RequestResult(
        True, [], [GeneratedOutput(text, total, tokens)], cached=False, request_time=0.1
    )


def instances(subject: str) -> list[Any]:
    """Two train instances and five test instances, one of them also in a perturbed form, one with two equal texts."""
    from helm.benchmark.augmentations.perturbation_description import PerturbationDescription
    from helm.benchmark.scenarios import scenario as of

    made = []
    for number, (question, options, gold) in enumerate([*ROWS[:2], *ROWS]):
        tags = [[of.CORRECT_TAG] if place == gold else [] for place in range(len(options))]
        references = [
            of.Reference(of.Output(text), own) for text, own in zip(options, tags, strict=True)
        ]
        split = of.TRAIN_SPLIT if number < 2 else of.TEST_SPLIT
        made.append(
            of.Instance(
                of.Input(f"{question} ({subject})"), references, split=split, id=f"id{number}"
            )
        )
    loud = PerturbationDescription("uppercase", robustness=True)
    return [*made, replace(made[3], input=of.Input(made[3].input.text.upper()), perturbation=loud)]


def run(name: str, spec: Any, given: list[Any], failed: int | None = None) -> None:
    """Adapt, answer, judge and write a run, as helm/benchmark/runner.py does; ``failed``: a request without answer."""
    from helm.benchmark.adaptation.adapters import adapter as adapters
    from helm.benchmark.adaptation.adapters.adapter_factory import AdapterFactory
    from helm.benchmark.adaptation.scenario_state import ScenarioState
    from helm.benchmark.metrics import basic_metrics
    from helm.benchmark.run_spec import RunSpec
    from helm.benchmark.runner import remove_per_instance_stats_nans, remove_stats_nans
    from helm.benchmark.scenarios.scenario import ScenarioSpec
    from helm.common.general import asdict_without_nones
    from helm.common.request import RequestResult

    for module in (adapters, basic_metrics):
        module.WindowServiceFactory.get_window_service = staticmethod(lambda *_, **__: Window())
    states = AdapterFactory.get_adapter(spec, None).adapt(given, 1)
    states = [replace(each, result=answer(each.request, name)) for each in states]
    if failed is not None:
        error = RequestResult(False, [], [], cached=False, error="the server was busy\n(429)")
        states[failed] = replace(states[failed], result=error)
    state = ScenarioState(spec, states)
    stats, judged = [], []
    if failed is None:
        joint = spec.method == "multiple_choice_joint"
        names = ["exact_match", "quasi_exact_match"]
        judge = (
            basic_metrics.BasicGenerationMetric(names)
            if joint
            else basic_metrics.BasicReferenceMetric()
        )
        judge.efficiency_metric.compute_efficiency_metrics = lambda *_, **__: []
        result = judge.evaluate(state, None, "", 1)
        stats, judged = result.aggregated_stats, result.per_instance_stats
    subject = name.partition("subject=")[2].partition(",")[0]
    files = {
        "run_spec.json": asdict_without_nones(
            RunSpec(name, ScenarioSpec("made.up.Scenario", {"subject": subject}), spec, [], [])
        ),
        "scenario_state.json": asdict_without_nones(state),
        "stats.json": [asdict_without_nones(stat) for stat in remove_stats_nans(stats)],
        "per_instance_stats.json": list(
            map(asdict_without_nones, remove_per_instance_stats_nans(judged))
        ),
    }
    folder = HERE / quote(name)  # a colon is in no file name of Windows
    folder.mkdir(parents=True, exist_ok=True)
    for file, content in files.items():
        if content:
            (folder / file).write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


def main() -> None:
    """A run for each adapter method, one more subject, and one with a request that failed."""
    from helm.benchmark.adaptation import common_adapter_specs as specs

    made_up = {"model": MODEL, "model_deployment": MODEL}
    instructions = "Answer with a letter."
    joint = specs.get_multiple_choice_joint_adapter_spec(
        instructions, "Question", "Answer", max_train_instances=2
    )
    joint = replace(joint, **made_up, num_train_trials=1, num_outputs=1)
    separate, calibrated = (
        replace(
            specs.get_multiple_choice_separate_adapter_spec(f"multiple_choice_separate_{kind}"),
            **made_up,
        )
        for kind in ("original", "calibrated")
    )
    for subject in ("rivers", "mills"):
        run(
            f"town:subject={subject},method=multiple_choice_joint,model=made-up_words",
            joint,
            instances(subject),
        )
    run(
        "town:method=multiple_choice_separate_original,model=made-up_words",
        separate,
        instances("all"),
    )
    run(
        "town:method=multiple_choice_separate_calibrated,model=made-up_words",
        calibrated,
        instances("all"),
    )
    failed = "town:method=multiple_choice_separate_original,model=made-up_words,failed=one"
    run(failed, separate, instances("few")[2:4], 5)


if __name__ == "__main__":
    main()
