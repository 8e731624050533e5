"""The names of harness tasks, and what is said where their package is not installed."""

from importlib.util import find_spec

import pytest

from choicewise.errors import ProtocolError, UsageError
from choicewise.interchange.harness_tasks.files import TaskSelector, parse_task, split_tasks

NAMES = {
    "lm-eval:arc_easy": TaskSelector("arc_easy"),
    "lm-eval:arc_easy:acc_norm": TaskSelector("arc_easy", "acc_norm"),
    "lm-eval:arc_easy@shots=5": TaskSelector("arc_easy", None, 5),
    "lm-eval:arc_easy:acc@shots=5": TaskSelector("arc_easy", "acc", 5),
    "lm-eval:arc_easy@shots=0:acc": TaskSelector("arc_easy", "acc", 0),
    "lm-eval:arc_easy@score=sum,shots=5,ties=split": TaskSelector("arc_easy", None, 5, "score=sum,ties=split"),
    "lm-eval:towns::inner": TaskSelector("towns::inner"),
    "lm-eval:towns::inner:acc": TaskSelector("towns::inner", "acc"),
    "lm-eval:a/b@c/t.yaml": TaskSelector("a/b@c/t.yaml"),
    "lm-eval:./t.yml:acc@shots=2": TaskSelector("./t.yml", "acc", 2),
}


@pytest.mark.parametrize("spelled", NAMES)
def test_a_name_says_task_metric_and_changes(spelled: str) -> None:
    assert parse_task(spelled) == NAMES[spelled]


@pytest.mark.parametrize(
    "spelled", ["lm-eval:", "lm-eval::acc", "lm-eval:@shots=1", "lm-eval:a@", "lm-eval:a:acc@shots=1:acc"]
)
def test_names_that_say_nothing(spelled: str) -> None:
    with pytest.raises(ProtocolError, match="names no task; write lm-eval:TASK"):
        parse_task(spelled)


@pytest.mark.parametrize("shots", ["many", "-1", "", "1.5", "1,shots=2"])
def test_shots_are_one_whole_number(shots: str) -> None:
    with pytest.raises(ProtocolError, match="must be one whole number"):
        parse_task(f"lm-eval:a@shots={shots}")


def test_tasks_are_told_from_protocols() -> None:
    assert split_tasks(["mmlu", "lm-eval:a", "x.toml", "lm-eval:b"]) == (["lm-eval:a", "lm-eval:b"], ["mmlu", "x.toml"])


@pytest.mark.skipif(find_spec("lm_eval") is not None, reason="the package is installed")
def test_without_the_package_the_remedy_is_named() -> None:
    from choicewise import load_harness_tasks

    with pytest.raises(UsageError, match=r"pip install 'choicewise\[harness\]'"):
        load_harness_tasks("lm-eval:arc_easy")
