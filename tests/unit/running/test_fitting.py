"""Protocols are fitted to data: their split, shots and number of choices become those of the data."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from choicewise.data.dataset import Dataset
from choicewise.data.items import Item
from choicewise.errors import DataError
from choicewise.protocols.catalogue import resolve
from choicewise.running.fitting import Fitting, fit, ways_on

TEXTS = ("red", "green", "blue", "white", "black", "grey")


def quiz(counts: Sequence[int], split: str = "test", shots: int = 0) -> Dataset:
    """Make a dataset with questions of so many choices, and ``shots`` examples with four."""
    items = [Item(str(i), f"Which, {i}?", TEXTS[:count], (0,)) for i, count in enumerate(counts)]
    splits = {split: items}
    if shots:
        splits["dev"] = [Item(f"d{i}", f"What, {i}?", TEXTS[:4], (1,)) for i in range(shots)]
    return Dataset("quiz", splits)


@pytest.mark.parametrize(
    ("data", "typed", "changes"),
    [
        (quiz([4, 4], shots=5), "mmlu/original", ""),
        (quiz([4, 4]), "mmlu/original", "shots=0"),
        (quiz([5, 5], shots=5), "mmlu/original", "choices=any,letters=ABCDE"),
        (quiz([3, 4, 6]), "mmlu/original", "shots=0,choices=any,letters=ABCDEF"),
        (quiz([3, 3]), "mmlu/original", "shots=0,choices=any"),
        (quiz([6]), "mmlu/cloze:sum", "choices=any"),
        (quiz([2], "train"), "mmlu/cloze:sum", "split=train,choices=any"),
        (quiz([4], "validation"), "hellaswag/harness:acc", ""),
        (quiz([4]), "hellaswag/harness:acc", "split=test"),
        (quiz([4], "dev"), "mmlu/original", "split=dev,shots=0"),
        (quiz([5]), "mmlu/original@choices=any", "shots=0,letters=ABCDE"),
    ],
)
def test_only_what_the_data_do_not_have_is_changed(data: Dataset, typed: str, changes: str) -> None:
    protocols = resolve(typed)
    ((name, protocol),) = protocols.items()
    fitted = fit(Fitting(data), protocols, [typed], protocols)
    ((changed_name, changed),) = fitted.protocols.items()
    assert Fitting(data).changes(protocol) == [change for change in changes.split(",") if change]
    assert changed_name == name + (("@", ",")["@" in name] + changes if changes else "")
    assert resolve(changed_name) == {changed_name: changed}
    assert fitted.typed == {changed_name: name}
    assert bool(fitted.notes) == bool(changes)
    # What was changed for the data needs no other change.
    assert Fitting(data).changes(changed) == []


def test_nothing_changes_if_the_user_wants_it_so() -> None:
    (protocol,) = resolve("mmlu/original").values()
    assert Fitting(quiz([5]), drops_shots=False, is_flexible=False).changes(protocol) == []
    assert Fitting(quiz([5]), is_flexible=False).changes(protocol) == ["shots=0"]


def test_a_protocol_that_cannot_is_left_out_and_not_its_family() -> None:
    protocols = resolve("options/permuted-full", "options/permuted-cyclic", "options/cloze:sum")
    fitted = fit(Fitting(quiz([5, 5])), protocols, list(protocols), protocols)
    (names,) = fitted.left_out.values()
    assert names == ["options/permuted-full"]
    assert set(fitted.typed.values()) == protocols.keys() - set(names)
    alone = resolve("options/permuted-full")
    with pytest.raises(DataError, match="no protocol") as error:
        fit(Fitting(quiz([5])), alone, list(alone), alone)
    assert "5 choices" in error.value.problems[0]


def test_a_note_counts_the_questions_and_names_what_can_be_typed() -> None:
    protocols = resolve("mmlu")
    fitted = fit(Fitting(quiz([4, 5, 3, 4])), protocols, ["mmlu"], protocols)
    notes = " ".join(fitted.notes)
    assert "2 of 4 questions have 3 and 5 choices" in notes
    assert "`mmlu@choices=any`" in notes
    assert "`mmlu@shots=0`" in notes
    assert resolve("mmlu@choices=any").keys().isdisjoint(resolve("mmlu"))


def test_both_ends_of_a_way_are_fitted() -> None:
    way = "mmlu/original..mmlu/harness-v1"
    (selector,) = ways_on(Fitting(quiz([5])), [way])
    changes = "@shots=0,choices=any,letters=ABCDE"
    assert selector == f"mmlu/original{changes}..mmlu/harness-v1{changes}"
    assert ways_on(Fitting(quiz([4], shots=5)), [way, "mmlu"]) == (way, "mmlu")


def test_what_no_item_has_refuses_a_protocol_and_what_one_has_does_not() -> None:
    names = ["boolq/harness@choices=any", "mmlu/cloze:sum"]
    protocols = resolve(*names)
    fitting = Fitting(quiz([4] * 12), leaves_out=True)
    fitted = fit(fitting, protocols, names, protocols)
    ((reason, left_out),) = fitted.left_out.items()
    assert left_out == names[:1]
    assert "column passage" in reason
    assert not any("boolq" in note for note in fitted.notes)
    *others, last = fitting.data.splits["test"]
    passage = replace(last, fields={"passage": "Once."})
    some = Dataset("quiz", {"test": [*others, passage]})
    assert not fit(Fitting(some, leaves_out=True), protocols, names, protocols).left_out
