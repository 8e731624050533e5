"""Make tests/goldens/harness/ports.json: what lighteval and HELM make of the rows beside it.

    git -C lighteval show 8d9ecd66c2c2e235c06848b48fbca41655084fdc:src/lighteval/tasks/default_prompts.py > prompts.py
    git -C helm show cab5d89fadbff86190f29ddfa497301958eaf2ec:src/helm/benchmark/scenarios/commonsense_scenario.py \\
        > scenario.py
    git -C helm archive cab5d89fadbff86190f29ddfa497301958eaf2ec src/helm/benchmark/adaptation | tar -x -C old
    git -C helm show cab5d89fadbff86190f29ddfa497301958eaf2ec:src/helm/benchmark/scenarios/scenario.py > types.py
    git -C lighteval archive 7c1cd62716b0a198a630c26d781430c54726cd02 src/lighteval/tasks | tar -x -C today
    python tests/goldens/make_ports.py prompts.py scenario.py old types.py today

The first file is of lighteval 0.9.2, ``today`` of 0.13.0.  All files run as they are, with stand-ins for what
else they import of their own packages.  Shots are those of HELM, with listed options, and of lighteval 0.13.
"""

import importlib.util
import json
import random
import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

HERE = Path(__file__).parent / "harness"
LIGHTEVAL = {
    "arc-challenge": "arc",
    "hellaswag": "hellaswag_harness",
    "commonsenseqa": "commonsense_qa",
}
LIGHTEVAL |= {name: name for name in ("winogrande", "race", "sciq", "siqa")}
"""Benchmark → its prompt function."""

SHOTS_OF_LIGHTEVAL = {"mmlu": 5, "winogrande": 3, "arc-challenge": 3}
"""Benchmark → how many shots lighteval 0.13 shows; of the others none."""

FILES_OF_LIGHTEVAL = {"arc-challenge": "arc", "race": "race_high"}
"""Benchmark → the file of its task in lighteval 0.13, where that has another name."""

HELM = ("hellaswag", "piqa", "siqa")
"""Benchmarks whose rows HELM reads with the Hub's field names, but for labels as numbers."""


def rows(benchmark: str, splits: tuple[str, ...] = ("test", "validation")) -> list[dict[str, Any]]:
    """The rows of the first of ``splits`` that is there: the split that is tested."""
    folder = HERE / "rows" / benchmark
    file = next(folder / f"{name}.jsonl" for name in splits if (folder / f"{name}.jsonl").exists())
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]


def stand_in(name: str, **attributes: Any) -> None:
    """A module that is imported under this name, with all the packages above it."""
    parts = name.split(".")
    for count in range(1, len(parts) + 1):
        sys.modules.setdefault(".".join(parts[:count]), ModuleType(".".join(parts[:count])))
    sys.modules[name].__dict__.update(attributes)


def load(file: str, name: str) -> ModuleType:
    """The module in a file."""
    spec = importlib.util.spec_from_file_location(name, file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def lighteval(file: str) -> dict[str, Any]:
    """Query and choices of every row."""
    stand_in("pycountry")
    stand_in("lighteval.tasks.requests", Doc=SimpleNamespace)
    stand_in("lighteval.utils.utils", as_list=list)
    prompts = load(file, "prompts")
    docs = {
        name: [getattr(prompts, function)(row) for row in rows(name)]
        for name, function in LIGHTEVAL.items()
    }
    return {name: [[doc.query, doc.choices] for doc in each] for name, each in docs.items()}


class Anything(ModuleType):
    """A module in which every name stands for a value with which nothing is done."""

    def __getattr__(self, name: str) -> Any:
        return Anything(name)

    def __call__(self, *_: Any, **__: Any) -> Any:
        return self


def lighteval_today(folder: str) -> dict[str, Any]:
    """Prompt and choices of every row as lighteval 0.13 asks."""
    tasks = Path(folder) / "src" / "lighteval" / "tasks"
    stand_in(
        "lighteval.utils.utils", as_list=lambda value: value if isinstance(value, list) else [value]
    )
    load(str(tasks / "requests.py"), "lighteval.tasks.requests")
    manager = load(str(tasks / "prompt_manager.py"), "prompt_manager")
    for name in ("inspect_ai", "inspect_ai.dataset", "inspect_ai.scorer", "inspect_ai.solver"):
        sys.modules[name] = Anything(name)
    for name in ("lighteval.metrics", "lighteval.metrics.metrics"):
        sys.modules[name] = Anything(name)
    stand_in("lighteval.tasks.lighteval_task", LightevalTaskConfig=SimpleNamespace)

    golden = {}
    for name in ("mmlu", *LIGHTEVAL):
        file = FILES_OF_LIGHTEVAL.get(name, name)
        task = load(str(tasks / "tasks" / f"{file}.py"), f"task_{file}").TASKS_TABLE[0]
        golden[name] = lighteval_prompts(manager, task, name)
    return golden


def lighteval_prompts(manager: Any, task: Any, name: str) -> list[list[Any]]:
    """Prompt and choices of every row of a benchmark, in the order of the rows."""
    tested = [task.prompt_function(row) for row in rows(name)]
    count = SHOTS_OF_LIGHTEVAL.get(name, 0)
    pool = [task.prompt_function(row) for row in rows(name, ("dev", "train"))] if count else []
    known = SimpleNamespace(
        fewshot_docs=lambda: list(pool),
        fewshot_selection=task.few_shots_select,
        fewshot_split=task.few_shots_split,
    )
    # As LightevalTask.get_docs does, which needs the data sets of the Hub.
    sampler, drawn = manager.FewShotSampler(known), random.Random()
    drawn.seed(42)
    shuffled = list(tested)
    drawn.shuffle(shuffled)
    for doc in shuffled:
        doc.fewshot_samples = sampler.sample_fewshot_examples(
            count, 0, formatted_doc=doc, sampler=drawn
        )
    return [[manager.PromptManager().prepare_prompt(doc), doc.choices] for doc in tested]


def helm_scenario(file: str) -> Any:
    """HELM's class CommonSenseScenario."""
    stand_in("helm.common.general", ensure_file_downloaded=None, ensure_directory_exists=None)
    stand_in("helm.common.hierarchical_logger", hlog=None)
    names = ("Scenario", "Instance", "Reference", "Input", "Output")
    splits = {f"{name}_SPLIT": name for name in ("TRAIN", "VALID", "TEST")}
    stand_in(
        "helm.scenarios.scenario", **dict.fromkeys(names, object), **splits, CORRECT_TAG="correct"
    )
    return load(file, "helm.scenarios.commonsense_scenario").CommonSenseScenario


def helm(scenario: Any, name: str, row: dict[str, Any]) -> list[Any]:
    """Question and answers of one row."""
    return list(getattr(scenario, f"process_{name}_item")({**row, "label": int(row["label"])})[:2])


def helm_joint(old: str, types: str, scenario: Any) -> dict[str, Any]:
    """The prompts of the adapter multiple_choice_joint, as get_commonsense_spec sets it up: five shots from train."""
    adaptation = Path(old) / "src" / "helm" / "benchmark" / "adaptation"
    stand_in(
        "helm.common.general",
        **dict.fromkeys(("parallel_map", "format_text", "format_split", "format_tags")),
    )
    stand_in("helm.common.general", indent_lines=None)
    stand_in(
        "helm.common.hierarchical_logger",
        htrack=lambda *_: lambda function: function,
        htrack_block=None,
    )
    stand_in("helm.common.request", Request=object)
    stand_in("helm.common.object_spec", ObjectSpec=object, create_object=None)
    stand_in(
        "helm.benchmark.augmentations.perturbation_description", PerturbationDescription=object
    )
    stand_in("helm.benchmark.window_services.tokenizer_service", TokenizerService=object)
    stand_in("helm.benchmark.window_services.window_service", WindowService=object)
    stand_in("helm.benchmark.window_services.window_service_factory", WindowServiceFactory=object)
    stand_in("helm.benchmark.adaptation.adapters")
    for name, place in (
        ("adaptation", adaptation),
        ("adaptation.adapters", adaptation / "adapters"),
    ):
        sys.modules[f"helm.benchmark.{name}"].__path__ = [str(place)]
    stand_in("helm.benchmark.adaptation.request_state", RequestState=object)
    stand_in("helm.benchmark.adaptation.scenario_state", ScenarioState=object)
    stand_in("helm.benchmark.scenarios")
    values = load(types, "helm.benchmark.scenarios.scenario")
    adapters = import_module("helm.benchmark.adaptation.adapters.multiple_choice_joint_adapter")
    spec = import_module("helm.benchmark.adaptation.adapter_spec").AdapterSpec(
        method="multiple_choice_joint",
        instructions="The following are multiple choice questions (with answers) about common sense.\n",
        **{
            "input_prefix": "Question: ",
            "input_suffix": "\n",
            "output_prefix": "Answer: ",
            "output_suffix": "\n",
        },
        **{
            "max_train_instances": 5,
            "num_outputs": 5,
            "max_tokens": 1,
            "temperature": 0.0,
            "stop_sequences": ["\n"],
        },
    )
    adapter = object.__new__(adapters.MultipleChoiceJointAdapter)
    adapter.adapter_spec = spec
    adapter.window_service = SimpleNamespace(fits_within_context_window=lambda **_: True)

    def instance(name: str, row: dict[str, Any], split: str) -> Any:
        question, answers = helm(scenario, name, row)
        right = answers[int(row["label"]) - ("answerA" in row)]
        tags = {answer: [values.CORRECT_TAG] if answer == right else [] for answer in answers}
        references = [
            values.Reference(values.Output(text=answer), tags=tags[answer]) for answer in answers
        ]
        return values.Instance(
            input=values.Input(text=question), references=references, split=split
        )

    golden = {}
    for name in HELM:
        shots = adapter.sample_examples(
            [instance(name, row, "train") for row in rows(name, ("train",))], seed=0
        )
        tested = [instance(name, row, "valid") for row in rows(name)]
        how = {"include_output": False, "reference_index": None}
        golden[name] = [adapter.construct_prompt(shots, each, **how).text for each in tested]
    return golden


def main(prompts: str, scenario: str, old: str, types: str, today: str) -> None:
    """Write all."""
    read = helm_scenario(scenario)
    golden = {
        "lighteval": lighteval(prompts),
        "lighteval-v0.13": lighteval_today(today),
        "helm": {name: [helm(read, name, row) for row in rows(name)] for name in HELM},
        "helm-joint": helm_joint(old, types, read),
    }
    text = json.dumps(golden, indent=1, ensure_ascii=False, sort_keys=True)
    (HERE / "ports.json").write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
