"""Observations on their way to disk: every minute, at the end, and whatever ends the block."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from choicewise.store import folder as block_writer
from choicewise.store.folder import BlockWriter, open_folder
from choicewise.store.tables import read_blocks
from tests.unit.store.test_store import OBSERVATION, PLACE, ROWS, manifest


def keys(folder: Path, blocks: tuple) -> list[str]:
    return read_blocks(folder, blocks, "observations")["key"].to_pylist()


def test_a_minute_is_the_most_that_a_kill_loses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = iter(range(0, 10_000, 25))
    monkeypatch.setattr(block_writer, "perf_counter", lambda: float(next(now)))
    model = SimpleNamespace(computed=None, requests=0)
    with open_folder(tmp_path, manifest(), ROWS) as folder, BlockWriter(folder, PLACE, model) as writer:
        for number, blocks in enumerate([0, 0, 1, 1, 1, 2]):
            writer.add(OBSERVATION._replace(key=str(number)))
            assert len(folder.manifest.blocks) == blocks
        writer.write(["ask"])
        assert keys(tmp_path, folder.manifest.blocks) == ["0", "1", "2", "3", "4", "5"]
        assert [block.asks for block in folder.manifest.blocks] == [(), (), ("ask",)]
        assert folder.manifest.engine.spent is None


def test_what_was_observed_before_an_error_is_kept_with_what_it_cost(tmp_path: Path) -> None:
    model = SimpleNamespace(computed=100, requests=0)
    with open_folder(tmp_path, manifest(), ROWS) as folder:
        with pytest.raises(KeyboardInterrupt), BlockWriter(folder, PLACE, model) as writer:
            writer.add(OBSERVATION)
            model.computed += 7
            raise KeyboardInterrupt
        assert keys(tmp_path, folder.manifest.blocks) == ["k"]
        assert folder.missing("test", "s", 1, ["ask"]) == [(0, 1, ["ask"])]
        with BlockWriter(folder, PLACE, model) as writer:
            model.computed += 3
            writer.write(["ask"], tokens_asked=50)
        spent = folder.manifest.engine.spent
        assert spent is not None
        assert (spent.tokens_asked, spent.tokens_computed) == (50, 10)
        assert folder.missing("test", "s", 1, ["ask"]) == []
