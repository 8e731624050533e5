"""Several models evaluated by threads of one process: each as if it were alone."""

from __future__ import annotations

import gc
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from random import Random
from threading import Barrier

import pytest

from choicewise import evaluate, load_model
from choicewise.bundled import BENCHMARK, MODELS
from choicewise.data.dataset import Dataset
from choicewise.data.open import open_dataset
from choicewise.protocols.shots import drawn_items
from choicewise.results.summary import keep_summary
from choicewise.running.progress import SweepProgress
from choicewise.store.tables import read_blocks
from choicewise.tokens.tokenizer import ByteTokenizer, Tokenizer, vocabulary
from choicewise.util.background import THRESHOLD, rare_collection

pytestmark = pytest.mark.costly("networks are computed")

MODEL_NAMES = ["fake:hash", "fake:oracle", "fake:anti-oracle", *(str(folder) for folder in MODELS[:2])]
PROTOCOLS = ["mmlu/original", "mmlu/cloze:pmi-answer", "mmlu/helm", "arc-easy/harness"]


@pytest.fixture
def data() -> Dataset:
    return open_dataset(BENCHMARK)


@pytest.fixture(autouse=True)
def many_turns() -> Iterator[None]:
    """Threads take turns a thousand times as often."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(5e-6)
    yield
    sys.setswitchinterval(before)


def test_every_process_of_the_tests_computes_in_one_thread() -> None:
    torch = pytest.importorskip("torch")
    line = [sys.executable, "-c", "import torch; print(torch.get_num_threads())"]
    assert (torch.get_num_threads(), subprocess.run(line, capture_output=True, text=True).stdout) == (1, "1\n")


def test_models_evaluated_at_once_give_what_each_gives_alone(data: Dataset, tmp_path: Path) -> None:
    def observed(name: str, folder: Path) -> tuple[object, object, object]:
        run = evaluate(model=load_model(name), data=data, protocols=PROTOCOLS, limit=1, out=folder)
        keep_summary(run)
        engine = run.manifest.engine
        return read_blocks(run.folder, run.manifest.blocks, "observations"), run.report(), engine.selfcheck

    def job(number: int) -> tuple[object, object, object]:
        together.wait(60)
        return observed(MODEL_NAMES[number], tmp_path / f"together-{number}")

    together, thresholds = Barrier(len(MODEL_NAMES)), gc.get_threshold()
    with ThreadPoolExecutor(len(MODEL_NAMES)) as threads:
        at_once = list(threads.map(job, range(len(MODEL_NAMES))))
    assert gc.get_threshold() == thresholds
    assert gc.isenabled()
    for number, name in enumerate(MODEL_NAMES):
        assert at_once[number] == observed(name, tmp_path / f"alone-{number}"), name


def test_garbage_is_collected_as_before_when_the_last_one_ends() -> None:
    before = gc.get_threshold()
    first, second = rare_collection(), rare_collection()
    with ExitStack() as ends:
        ends.callback(gc.set_threshold, *before)
        first.__enter__()
        second.__enter__()
        first.__exit__(None, None, None)  # in the order in which they began, as threads do
        assert gc.get_threshold()[0] == THRESHOLD
        second.__exit__(None, None, None)
        assert gc.get_threshold() == before
        with pytest.raises(ValueError, match="no"), rare_collection():
            raise ValueError("no")
        assert gc.get_threshold() == before


def test_several_draws_at_once(data: Dataset) -> None:
    """Every draw forgets the one before it, which another thread may be about to read."""
    (split,) = {section for section in data.splits if section == "test"} or {next(iter(data.splits))}
    seeds = list(range(8))
    alone = {seed: drawn_items(data, split, seed) for seed in seeds}

    def draw(number: int) -> list[bool]:
        return [drawn_items(data, split, seed) == alone[seed] for seed in Random(number).choices(seeds, k=100)]

    with ThreadPoolExecutor(8) as threads:
        assert all(all(right) for right in threads.map(draw, range(8)))


def test_many_tokenizers_each_keep_their_vocabulary_for_as_long_as_they_live() -> None:
    class Counted(ByteTokenizer):
        """Told from others by identity."""

        __hash__ = object.__hash__
        __eq__ = object.__eq__

    tokenizers: list[Tokenizer] = [Counted() for _ in range(20)]
    made = [vocabulary(tokenizer) for tokenizer in tokenizers]
    assert len({id(each) for each in made}) == 20
    assert all(vocabulary(tokenizer) is each for tokenizer, each in zip(tokenizers, made, strict=True))
    with ThreadPoolExecutor(8) as threads:
        one = Counted()
        assert len(set(threads.map(lambda _: id(vocabulary(one)), range(64)))) == 1


def test_progress_of_several_threads_never_falls() -> None:
    told: list[int] = []
    shown = SweepProgress(lambda done, total: told.append(done), 8 * 200)

    def work(_: int) -> None:
        part = shown.run(200)
        for done in range(0, 2001, 10):
            part(done, 2000)
        part.finish()

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(work, range(8)))
    assert told == sorted(told)
    assert told[-1] == 1600
