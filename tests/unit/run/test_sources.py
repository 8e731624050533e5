"""What is wrong with the data of several benchmarks becomes one error."""

import pytest

from choicewise.errors import DataError, MissingData
from choicewise.extensions.run.sources import refuse

LACKING = {
    "a": MissingData("a is nowhere", ["look here"], ["a"]),
    "b": MissingData("b is nowhere", ["look here"], ["b"]),
}
WRONG = {"c": DataError("c has no answers", ["line 2"]), "d": DataError("d is empty")}


def test_data_that_are_missing_are_named_together() -> None:
    with pytest.raises(MissingData) as caught:
        refuse(LACKING)
    assert list(caught.value.benchmarks) == ["a", "b"]
    assert list(caught.value.problems) == ["a is nowhere", "look here", "b is nowhere"]
    with pytest.raises(MissingData) as alone:
        refuse({"a": LACKING["a"]})
    assert alone.value is LACKING["a"]
    refuse(LACKING, without_missing=True)
    refuse({})


def test_data_that_are_wrong_come_before_those_that_are_missing() -> None:
    with pytest.raises(DataError) as caught:
        refuse({**LACKING, **WRONG}, without_missing=True)
    assert list(caught.value.problems) == ["c has no answers", "  line 2", "d is empty"]
    with pytest.raises(DataError) as alone:
        refuse({**LACKING, "d": WRONG["d"]})
    assert alone.value is WRONG["d"]
