"""Questions that got no answer are asked once more by the same line, and nothing else is."""

from __future__ import annotations

import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from choicewise import evaluate
from choicewise.results.run import Run
from choicewise.store import folder as run_folder
from choicewise.store.folder import read_manifest
from choicewise.store.tables import read_blocks, unanswered_keys
from tests.helpers.failing import Failing, third
from tests.helpers.mmlu_data import set_block_size, write_mmlu

pytestmark = pytest.mark.costly("runs are evaluated and compared")

PROTOCOLS = ["mmlu/original", "mmlu/cloze:pmi-answer"]


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    set_block_size(monkeypatch, 5)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return write_mmlu(tmp_path / "data", questions=12)


def keys(folder: Path) -> list[str]:
    return read_blocks(folder, read_manifest(folder).blocks, "observations")["key"].to_pylist()


def run(model: Failing, data: Path, out: Path, *protocols: str, **more: Any) -> Run:
    return evaluate(model=model, data=data, protocols=protocols or PROTOCOLS, out=out, **more)


def line(asked: int, answered: int) -> str:
    counts = f"{answered} answered now, {asked - answered} still not"
    return f"{asked} questions that had no answer were asked again: {counts}"


def tables(run: Run) -> Any:
    return run.report().to_pylist(), run.observations().to_pylist()


def test_exactly_the_unanswered_are_asked_again_and_the_run_is_as_if_nothing_had_failed(
    data: Path, tmp_path: Path
) -> None:
    whole = run(Failing(), data, tmp_path / "whole")
    run(Failing(third), data, tmp_path / "run")
    failed = {key for key in keys(tmp_path / "run") if third(key)}
    manifest = read_manifest(tmp_path / "run")
    assert manifest.complete
    assert set(unanswered_keys(tmp_path / "run", manifest)) == failed
    model, said = Failing(), list[str]()
    again = run(model, data, tmp_path / "run", say=said.append)
    assert Counter(model.asked) == Counter(failed)
    assert said == [line(len(failed), len(failed))]
    assert keys(tmp_path / "run") == keys(tmp_path / "whole")
    assert tables(again) == tables(whole)
    blocks = [block.name for block in again.manifest.blocks]
    assert sorted(blocks) == sorted(path.name for path in (tmp_path / "run" / "blocks").iterdir())
    assert not set(blocks) & {block.name for block in manifest.blocks}


def test_a_finished_run_without_any_asks_nothing_and_stays_as_it_is(data: Path, tmp_path: Path) -> None:
    run(Failing(), data, tmp_path / "run")
    before = {path: (path.stat().st_mtime_ns, path.stat().st_ino) for path in (tmp_path / "run").rglob("*")}
    model, said = Failing(), list[str]()
    run(model, data, tmp_path / "run", say=said.append)
    assert (model.asked, said) == ([], [])
    assert {path: (path.stat().st_mtime_ns, path.stat().st_ino) for path in (tmp_path / "run").rglob("*")} == before


def test_those_that_fail_again_stay_and_the_block_without_new_answers_is_not_touched(
    data: Path, tmp_path: Path
) -> None:
    first = run(Failing(third), data, tmp_path / "run")
    failed = [key for key in keys(tmp_path / "run") if third(key)]
    said: list[str] = []
    second = run(Failing(third), data, tmp_path / "run", say=said.append)
    assert second.manifest == first.manifest
    one = failed[0]
    third_time = run(Failing(lambda key: third(key) and key != one), data, tmp_path / "run", say=said.append)
    assert said == [line(len(failed), 0), line(len(failed), 1)]
    changed = [block for block in third_time.manifest.blocks if block not in first.manifest.blocks]
    assert len(changed) == 1
    assert sorted(keys(tmp_path / "run")) == sorted(set(keys(tmp_path / "run")))


def test_only_the_protocols_of_the_line_are_asked_again(data: Path, tmp_path: Path) -> None:
    run(Failing(third), data, tmp_path / "run")
    failed = {key for key in keys(tmp_path / "run") if third(key)}
    model, said = Failing(), list[str]()
    run(model, data, tmp_path / "run", "mmlu/original", say=said.append)
    assert 0 < len(model.asked) < len(failed)
    assert said[0].endswith(f"; {len(failed) - len(model.asked)} more belong to protocols that this line does not name")
    run(model, data, tmp_path / "run")
    assert Counter(model.asked) == Counter(failed)


def test_what_follows_a_generation_without_an_answer_has_none_and_both_are_asked_again(
    data: Path, tmp_path: Path
) -> None:
    protocols = ["options/chain-of-thought"]
    whole = run(Failing(), data, tmp_path / "whole", *protocols, limit=4)
    model = Failing()
    run(model, data, tmp_path / "all", *protocols, limit=4)
    first = model.asked[0]
    broken = run(Failing(lambda key: key == first), data, tmp_path / "run", *protocols, limit=4)
    assert len(unanswered_keys(tmp_path / "run", broken.manifest)) > 1
    assert tables(run(Failing(), data, tmp_path / "run", *protocols, limit=4)) == tables(whole)


def test_an_interrupt_keeps_the_answers_that_came(data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = run(Failing(), data, tmp_path / "whole")
    run(Failing(third), data, tmp_path / "run")
    failed = [key for key in keys(tmp_path / "run") if third(key)]

    class Stopped(Failing):
        def answer(self, questions: Any) -> Any:
            for answer in super().answer(questions):
                if len(self.asked) == 10:
                    raise KeyboardInterrupt
                yield answer

    with pytest.raises(KeyboardInterrupt):
        run(Stopped(), data, tmp_path / "run")
    assert len(unanswered_keys(tmp_path / "run", read_manifest(tmp_path / "run"))) == len(failed) - 9
    shutil.copytree(tmp_path / "run", tmp_path / "every")
    assert tables(run(Failing(), data, tmp_path / "run")) == tables(whole)
    monkeypatch.setattr(run_folder, "FLUSH", -1.0)  # every answer is written when it comes
    assert tables(run(Failing(), data, tmp_path / "every")) == tables(whole)
    assert keys(tmp_path / "every") == keys(tmp_path / "whole")
