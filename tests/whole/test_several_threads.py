"""Several models evaluated by threads of one process, each as if it were alone; and what a run leaves is collected."""

import gc
import subprocess
import sys
import weakref
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
from choicewise.extensions.run.sweep import SweepProgress
from choicewise.protocols.shots import drawn_items
from choicewise.results.summary import keep_summary
from choicewise.store.tables import read_blocks
from choicewise.tokens.tokenizer import ByteTokenizer, vocabulary
from choicewise.util.background import THRESHOLD, give_model_back, rare_collection
from tests.helpers.commands import choicewise
from tests.helpers.mmlu_data import write_mmlu

MODEL_NAMES = [
    "fake:hash",
    "fake:oracle",
    "fake:anti-oracle",
    *(str(folder) for folder in MODELS[:2]),
]
PROTOCOLS = ["mmlu/original", "mmlu/cloze:pmi-answer", "mmlu/helm", "arc-easy/harness"]


@pytest.fixture
def data() -> Dataset:
    return open_dataset(BENCHMARK)


@pytest.fixture
def many_turns() -> Iterator[None]:
    """Threads take turns a thousand times as often."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(5e-6)
    yield
    sys.setswitchinterval(before)


def test_every_process_of_the_tests_computes_in_one_thread() -> None:
    torch = pytest.importorskip("torch")
    line = [sys.executable, "-c", "import torch; print(torch.get_num_threads())"]
    assert (
        torch.get_num_threads(),
        subprocess.run(line, capture_output=True, text=True).stdout,
    ) == (1, "1\n")


@pytest.mark.usefixtures("many_turns")
def test_models_evaluated_at_once_give_what_each_gives_alone(data: Dataset, tmp_path: Path) -> None:
    def observed(name: str, folder: Path) -> tuple[object, object, object]:
        run = evaluate(model=load_model(name), data=data, protocols=PROTOCOLS, limit=1, out=folder)
        keep_summary(run)
        observations = read_blocks(run.folder, run.manifest.blocks, "observations")
        return observations, run.report(), run.manifest.engine.selfcheck

    def job(number: int) -> tuple[object, object, object]:
        together.wait(60)
        return observed(MODEL_NAMES[number], tmp_path / f"together-{number}")

    together, thresholds = Barrier(len(MODEL_NAMES)), gc.get_threshold()
    with ThreadPoolExecutor(len(MODEL_NAMES)) as threads:
        at_once = list(threads.map(job, range(len(MODEL_NAMES))))
    assert (gc.get_threshold(), gc.isenabled()) == (thresholds, True)
    for number, name in enumerate(MODEL_NAMES):
        assert at_once[number] == observed(name, tmp_path / f"alone-{number}"), name


@pytest.mark.usefixtures("many_turns")
def test_several_draws_at_once(data: Dataset) -> None:
    """Every draw forgets the one before it, which another thread may be about to read."""
    assert "test" in data.splits
    seeds = list(range(8))
    alone = {seed: drawn_items(data, "test", seed) for seed in seeds}

    def draw(number: int) -> list[bool]:
        return [
            drawn_items(data, "test", seed) == alone[seed]
            for seed in Random(number).choices(seeds, k=100)
        ]

    with ThreadPoolExecutor(8) as threads:
        assert all(all(right) for right in threads.map(draw, range(8)))


@pytest.mark.usefixtures("many_turns")
def test_many_tokenizers_each_keep_their_vocabulary_for_as_long_as_they_live() -> None:
    class Counted(ByteTokenizer):
        """Told from others by identity."""

        __hash__ = object.__hash__
        __eq__ = object.__eq__

    tokenizers, one = [Counted() for _ in range(20)], Counted()
    vocabularies = [vocabulary(tokenizer) for tokenizer in tokenizers]
    assert len({id(each) for each in vocabularies}) == 20
    assert all(
        vocabulary(tokenizer) is each
        for tokenizer, each in zip(tokenizers, vocabularies, strict=True)
    )
    with ThreadPoolExecutor(8) as threads:
        assert len(set(threads.map(lambda _: id(vocabulary(one)), range(64)))) == 1


@pytest.mark.usefixtures("many_turns")
def test_progress_of_several_threads_never_falls() -> None:
    told: list[int] = []
    shown = SweepProgress(lambda done, total: told.append(done), 8 * 200)

    def work(_: int) -> None:
        part = shown.run(200)
        for done in range(0, 2001, 10):
            part(done, 2000)
        part(1, 1)

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(work, range(8)))
    assert (told, told[-1]) == (sorted(told), 1600)


def test_garbage_is_collected_as_before_whatever_ends_a_run_and_when_the_last_of_several_ends() -> (
    None
):
    before, first, second = gc.get_threshold(), rare_collection(), rare_collection()
    with ExitStack() as ends:
        ends.callback(gc.set_threshold, *before)
        first.__enter__()
        second.__enter__()
        first.__exit__(None, None, None)  # in the order in which they began, as threads do
        assert gc.get_threshold()[0] == THRESHOLD
        second.__exit__(None, None, None)
        assert gc.get_threshold() == before
        for error in (ValueError, KeyboardInterrupt):
            with pytest.raises(error), rare_collection():
                assert gc.get_threshold()[0] >= THRESHOLD
                raise error
            assert gc.get_threshold() == before
        gc.set_threshold(0)
        with rare_collection():  # a collection that is switched off stays so
            assert gc.get_threshold()[0] == 0


def test_garbage_is_looked_for_once_a_model_not_in_every_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Cycle:
        """Only the collector finds that nobody refers to it."""

        def __init__(self) -> None:
            self.itself = self

    reference = weakref.ref(Cycle())
    give_model_back()
    assert reference() is None
    collections: list[int] = []
    monkeypatch.setattr(gc, "collect", lambda: collections.append(0))
    asked = ["--data", write_mmlu(tmp_path / "data"), "--protocol", "mmlu/original", "--limit", "1"]
    choicewise("run", "--model", "fake:hash", *asked, "--out", tmp_path / "run", code=0)
    assert collections == []
    models = [f"--model=fake:{name}" for name in ("hash", "oracle", "anti-oracle")]
    choicewise("sweep", *models, *asked, "--out", tmp_path / "sweep", code=0)
    assert len(collections) == 3


TWO_MODELS = """
import gc, weakref
from choicewise import load_model
class Cycle:
    def __init__(self): self.itself = self
gc.disable()
before = weakref.ref(Cycle())
gc.enable()
frozen = []
for _ in range(2):
    model = load_model("bundled:merrow-bpe-512")
    model.check(0)
    frozen.append(gc.get_freeze_count())
network = weakref.ref(model.local.model)
del model
gc.collect()
print(before(), network(), frozen[0] > 100_000, frozen[1] <= frozen[0])
"""


def test_only_what_torch_and_transformers_import_is_never_looked_at_again() -> None:
    """A second model may leave, and so may what was garbage before the first."""
    pytest.importorskip("torch")
    done = subprocess.run(
        [sys.executable, "-c", TWO_MODELS], capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["None", "None", "True", "True"]
