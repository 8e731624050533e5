"""Formats whose library is not installed say which line installs it, before anything is written."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

import choicewise
from choicewise.errors import UsageError
from choicewise.interchange import export as write
from choicewise.interchange.export import export
from tests.helpers.mmlu_data import write_mmlu


@pytest.mark.parametrize(("form", "extra"), [("inspect", "inspect"), ("wandb", "wandb"), ("mlflow", "mlflow")])
def test_a_library_that_is_absent_is_named_with_its_extra(
    form: str, extra: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(write, "find_spec", lambda name: None)
    run = choicewise.evaluate(
        model="fake:hash", data=write_mmlu(tmp_path / "d"), protocols=["mmlu/original"], out=tmp_path / "run"
    )
    with pytest.raises(UsageError, match=rf"pip install 'choicewise\[{extra}\]'"):
        export(run, form, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_no_format_loads_its_library_before_it_writes() -> None:
    assert importlib.util.find_spec("choicewise") is not None
    for name in write.WRITERS:
        assert write.writer(name).about
