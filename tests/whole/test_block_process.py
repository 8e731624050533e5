"""Blocks prepared in another process make the run that blocks prepared here make, to the byte."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from choicewise import Run, evaluate
from choicewise.data.dataset import Dataset
from choicewise.data.open import open_dataset
from choicewise.errors import DataError
from choicewise.models.fake import HashModel
from choicewise.models.local.tokenizer import named_tokenizer
from choicewise.protocols.catalogue import resolve
from choicewise.requests.blocks import Block
from choicewise.running import answer
from choicewise.running.evaluate import compute
from choicewise.running.job import Task
from choicewise.running.prepare import BlockProcess, ReadyBlock
from choicewise.running.work import Work
from tests.helpers.hash_models import Failing
from tests.helpers.mmlu_data import set_block_size, write_mmlu
from tests.helpers.processes import ended

LETTERS = ["mmlu/original", "mmlu/harness-v0.4", "mmlu/helm"]
# Spans, masses, generations, spans after these, and a null context.
TEXTS = ["mmlu/cloze", "mmlu/cloze:sum@boundary=word", "options/free-simple-evals"]


class Watched:
    """Force the process, and note what it prepares: ``pids`` of it, and the blocks it failed."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.pids: list[int] = []
        self.failed = 0
        # Kill the process as soon as it has prepared so many blocks.
        self.kill_after: int | None = None
        monkeypatch.setattr(answer, "shares_the_lock", lambda model: True)
        prepare = BlockProcess.prepare

        def watched(process: BlockProcess, block: Block) -> ReadyBlock | None:
            ready = prepare(process, block)
            if ready is None:
                self.failed += 1
                return None
            running = process._process
            assert running is not None
            self.pids.append(running.pid)
            if self.kill_after == len(self.pids):
                running.kill()
            return ready

        monkeypatch.setattr(BlockProcess, "prepare", watched)


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Dataset:
    """Two subjects of nine questions, in blocks of four."""
    set_block_size(monkeypatch, 4)
    return open_dataset(write_mmlu(tmp_path / "data", questions=9))


def with_tokens(model: HashModel) -> HashModel:
    model.tokenizer = named_tokenizer("bundled:merrow-bpe-2048")
    return model


def evaluated(
    data: Dataset, out: Path, protocols: Sequence[str], model: HashModel | None = None
) -> Run:
    model = with_tokens(model or HashModel())
    return evaluate(model=model, data=data, protocols=protocols, out=out)


def files(run: Run) -> dict[str, bytes]:
    """The tables of a run by name: all but the manifest, which has the time that the run took."""
    paths = sorted(run.folder.rglob("*.parquet"))
    return {str(path.relative_to(run.folder)): path.read_bytes() for path in paths}


@pytest.mark.parametrize("protocols", [LETTERS, TEXTS])
def test_the_tables_are_those_of_one_process(
    data: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, protocols: Sequence[str]
) -> None:
    here = evaluated(data, tmp_path / "here", protocols)
    watched = Watched(monkeypatch)
    there = evaluated(data, tmp_path / "there", protocols)
    assert files(there) == files(here)
    blocks = len(there.manifest.blocks)
    assert blocks > 4
    assert (len(watched.pids), len(set(watched.pids)), watched.failed) == (blocks - 1, 1, 0)
    assert ended(watched.pids[0])


def test_a_run_goes_on_here_if_the_process_dies(
    data: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = evaluated(data, tmp_path / "here", LETTERS)
    watched = Watched(monkeypatch)
    watched.kill_after = 2
    there = evaluated(data, tmp_path / "there", LETTERS)
    assert files(there) == files(here)
    assert len(watched.pids) == 2
    assert watched.failed == len(there.manifest.blocks) - 3


def test_an_interrupt_ends_the_process_and_the_run_can_go_on(
    data: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = evaluated(data, tmp_path / "here", LETTERS)
    watched = Watched(monkeypatch)
    with pytest.raises(KeyboardInterrupt):
        evaluated(data, tmp_path / "there", LETTERS, Failing(most=80))
    assert watched.pids
    assert ended(watched.pids[0])
    there = evaluated(data, tmp_path / "there", LETTERS)
    assert there.manifest.complete
    assert there.report() == here.report()


def test_an_error_of_the_process_is_the_error_here(
    data: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    *others, last = data.splits["test"]
    wrong = replace(last, choices=(*last.choices, "a fifth"))
    broken = Dataset(data.name, {**data.splits, "test": [*others, wrong]})
    model = with_tokens(HashModel())
    # Nothing has checked the items before.
    task = Task(model, Work.of(model, broken, resolve("mmlu/original")), checked=True)

    def message(out: Path) -> str:
        with pytest.raises(DataError) as error:
            compute(task, out, lambda *_: None, lambda *_: None)
        return str(error.value)

    here = message(tmp_path / "here")
    watched = Watched(monkeypatch)
    assert message(tmp_path / "there") == here
    assert wrong.id in here
    assert watched.failed == 1
    assert ended(watched.pids[0])


def test_a_tokenizer_that_the_process_can_not_read_stays_here(
    data: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    watched = Watched(monkeypatch)
    evaluate(model=HashModel(), data=data, protocols=LETTERS, out=tmp_path / "bytes")
    assert (watched.pids, watched.failed) == ([], 0)
    changed = with_tokens(HashModel())
    changed.tokenizer.eos_id = 7
    run = evaluate(model=changed, data=data, protocols=LETTERS, out=tmp_path / "changed")
    assert (watched.pids, watched.failed) == ([], len(run.manifest.blocks) - 1)
