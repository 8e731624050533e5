"""The names of harness tasks, and what is said where their package is absent or makes no request."""

from importlib.metadata import PackageNotFoundError
from types import SimpleNamespace

import pytest

from choicewise.errors import DataError, ProtocolError, UsageError
from choicewise.interchange.harness_tasks import load
from choicewise.interchange.harness_tasks.as_protocols import load_harness_tasks
from choicewise.interchange.harness_tasks.files import TaskSelector, parse_task, split_tasks
from choicewise.interchange.harness_tasks.rows import asked_rows

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


UNNAMED = dict.fromkeys(["", ":acc", "@shots=1", "a@", "a:acc@shots=1:acc"], "names no task; write lm-eval:TASK")
UNNAMED |= dict.fromkeys([f"a@shots={n}" for n in ("many", "-1", "", "1.5", "1,shots=2")], "must be one whole number")


@pytest.mark.parametrize("spelled", UNNAMED)
def test_names_that_say_nothing(spelled: str) -> None:
    with pytest.raises(ProtocolError, match=UNNAMED[spelled]):
        parse_task(f"lm-eval:{spelled}")


def test_tasks_are_told_from_protocols() -> None:
    assert split_tasks(["mmlu", "lm-eval:a", "x.toml", "lm-eval:b"]) == (["lm-eval:a", "lm-eval:b"], ["mmlu", "x.toml"])


@pytest.mark.parametrize(
    ("release", "says"),
    [(None, r"pip install .* '\.\[harness\]'"), ("0.4.9", "lm_eval 0.4.9 is installed, and tasks need 0.4.12 or")],
)
def test_without_a_package_that_is_new_enough_the_remedy_is_named(
    release: str | None, says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def installed(name: str) -> str:
        if release is None:
            raise PackageNotFoundError(name)
        return release

    monkeypatch.setattr(load, "version", installed)
    with pytest.raises(UsageError, match=says):
        load_harness_tasks("lm-eval:arc_easy")
    with pytest.raises(UsageError, match="on_bad_item is 'drop'; it must be error or skip"):
        load_harness_tasks("lm-eval:arc_easy", on_bad_item="drop")


def test_a_row_of_which_the_harness_makes_no_request_is_named() -> None:
    def fails(doc: object, **about: object) -> str:
        raise KeyError("options")

    task = SimpleNamespace(set_fewshot_seed=print, eval_docs=[{}], doc_to_prefix=str, fewshot_context=fails)
    task.config = SimpleNamespace(task="roads")
    with pytest.raises(DataError, match=r"task roads, row 0: the harness makes no request of it \(KeyError: 'options'"):
        list(asked_rows(task, 0))
