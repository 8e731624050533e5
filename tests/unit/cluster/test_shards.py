"""Parts of a run in processes of their own, and put together again: the tables of one process, or a refusal."""

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from shutil import copytree
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from choicewise import Run, engine, evaluate, open_dataset, open_run
from choicewise.bundled import BENCHMARK
from choicewise.errors import ChoicewiseError, StoreError, UsageError
from choicewise.extensions.cluster.merge import MissingShards, merge, merge_all
from choicewise.extensions.cluster.slurm import part_of_array
from choicewise.extensions.doctor.examine import examine
from choicewise.extensions.run.sweep import sweep
from choicewise.models.fake import HashModel
from choicewise.questions import Prompt, TokenScores
from choicewise.records import (
    MANIFEST,
    OBSERVATIONS,
    EngineRecord,
    Manifest,
    SelfCheckRecord,
    ShardRecord,
    Spent,
)
from choicewise.running.job import job_of
from choicewise.running.shards import Assignment, Share, share_of
from choicewise.store import tables
from choicewise.store.folder import not_complete, read_manifest, read_sweep, write_manifest
from choicewise.store.tables import Keys, block_file, read_table, write_arrow
from tests.helpers.damage import block, flip, relist, truncate
from tests.helpers.messages import Gist

PROTOCOLS = ["mmlu/original", "mmlu/cloze:pmi-answer", "options/pride"]
"""Null contexts that subjects share, and a calibration over all items."""


@pytest.fixture(autouse=True)
def short_shards(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(engine.SHARD_TOKENS, "cpu", 1000)


def run(out: Path, shard: str | None = None, **chosen: Any) -> Run:
    asked: dict[str, Any] = {
        "model": HashModel(),
        "data": open_dataset(BENCHMARK),
        "protocols": PROTOCOLS,
        "limit": 3,
    }
    return evaluate(**{**asked, **chosen}, out=out, shard=shard)


def files(run: Path) -> dict[str, bytes]:
    """Every table of a run but what follows from the others."""
    found = [run / "items.parquet", *sorted(run.glob("blocks/*/*.parquet"))]
    return {path.relative_to(run).as_posix(): path.read_bytes() for path in found}


def line_of(folder: Path, manifest: Manifest) -> str:
    assert manifest.shard is not None
    return f"ask {manifest.shard.numbers[0]}/{manifest.shard.of} in {folder.name}"


def together(out: Path, *shards: Path, **how: Any) -> Path:
    merge(shards, out, line_of, **how)
    return out


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of one process in ``whole``, and its shards in ``I-of-N``."""
    folder = tmp_path_factory.mktemp("runs")
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(engine.SHARD_TOKENS, "cpu", 1000)
        run(folder / "whole")
        for number in (1, 2, 3):
            run(folder / f"{number}-of-3", f"{number}/3")
    return folder


def three(runs: Path) -> list[Path]:
    return [runs / f"{number}-of-3" for number in (1, 2, 3)]


@given(
    st.lists(st.lists(st.sets(st.integers(0, 40), max_size=6), max_size=5), max_size=6),
    st.integers(1, 5),
)
def test_every_question_is_asked_by_one_process_in_the_shard_of_a_single_one(
    blocks: list[list[set[int]]], of: int
) -> None:
    def cut(block: list[set[int]]) -> list[dict[str, Any]]:
        """A question lies in one shard of a block."""
        return [
            {f"{key:032x}": SimpleNamespace() for key in shard - set[int]().union(*block[:place])}
            for place, shard in enumerate(block)
        ]

    def asked(assignment: Assignment) -> list[list[set[str]]]:
        about = SimpleNamespace(extent=("test", "s", 0, 1), specs=())
        return [
            [set(shard) for shard in assignment.take(about, cut(block)).shards] for block in blocks
        ]  # type: ignore[arg-type]

    whole = asked(Assignment(Keys()))
    deals = [Assignment(Keys(), Share(number, of)) for number in range(1, of + 1)]
    parts = [asked(assignment) for assignment in deals]
    for place, shards in enumerate(whole):
        assert sorted(map(sorted, shards)) == sorted(
            sorted(shard) for part in parts for shard in part[place]
        )
    records = [assignment.record for assignment in deals]
    assert {(record.plan, record.counts) for record in records if record} == {
        (records[0].plan, records[0].counts)
    }  # type: ignore[union-attr]
    held = Keys(key for shards in parts[0] for shard in shards for key in shard)
    assert asked(Assignment(held, Share(1, of))) == [[] for _ in blocks]


@pytest.mark.costly("ten shards")
@pytest.mark.parametrize("of", [1, 2, 7])
def test_any_number_of_shards_gives_the_tables_of_one_process(
    runs: Path, tmp_path: Path, of: int
) -> None:
    parts = [run(tmp_path / str(number), f"{number}/{of}").folder for number in range(1, of + 1)]
    random.Random(of).shuffle(parts)
    whole = together(tmp_path / "run", *parts)
    assert files(whole) == files(runs / "whole")
    assert open_run(whole).report().to_pylist() == open_run(runs / "whole").report().to_pylist()
    assert [*examine(whole).faults] == []


@pytest.mark.costly("texts are generated")
@pytest.mark.parametrize(
    "asked",
    [["options/chain-of-thought", "options/contextual-calibrated", "options/batch-calibrated"]],
)
def test_what_follows_generated_texts_and_what_all_items_decide_is_the_same(
    tmp_path: Path, asked: list[str]
) -> None:
    chosen: dict[str, Any] = {"protocols": asked, "limit": 2}
    parts = [run(tmp_path / str(number), f"{number}/2", **chosen).folder for number in (1, 2)]
    one, other = run(tmp_path / "whole", **chosen), open_run(together(tmp_path / "run", *parts))
    assert files(other.folder) == files(one.folder)
    assert other.report().to_pylist() == one.report().to_pylist()


def test_a_merged_run_is_a_run_and_names_its_parts(runs: Path, tmp_path: Path) -> None:
    shards = [copytree(each, tmp_path / each.name) for each in three(runs)]
    for number, each in enumerate(shards):
        check = SelfCheckRecord(
            rung="tree", cost="", difference=1e-6, floor=1e-6, noise=number * 1e-5, depth=128
        )
        spent = Spent(tokens_asked=900, tokens_computed=100, seconds=2.0, requests=3)
        write_manifest(each, replace(read_manifest(each), engine=EngineRecord(check, spent)))
    whole = read_manifest(together(tmp_path / "run", *shards))
    assert whole.shard is not None
    assert (whole.shard.numbers, whole.complete, whole.command) == ((1, 2, 3), True, ())
    assert [each.selfcheck and each.selfcheck.noise for each in whole.shard.engines] == [
        0.0,
        1e-5,
        2e-5,
    ]
    assert whole.engine.selfcheck is not None
    assert whole.engine.selfcheck.noise == 2e-5
    assert whole.engine.spent == Spent(
        tokens_asked=900, tokens_computed=300, seconds=6.0, requests=9
    )
    more = run(tmp_path / "run", protocols=[*PROTOCOLS, "mmlu/cloze:sum"])
    assert len(more.protocols) > len(whole.protocols)


class Killed(HashModel):
    """Answers so many shards, and then somebody types Ctrl-C in the middle of one."""

    def __init__(self, shards: int) -> None:
        super().__init__()
        self.left = shards

    def answer(self, questions: Sequence[Prompt]) -> Any:
        self.left -= 1
        for place, each in enumerate(super().answer(questions)):
            if self.left < 0 and place == len(questions) // 2:
                raise KeyboardInterrupt
            yield each


@pytest.mark.costly("a shard that is begun three times")
def test_a_shard_that_is_killed_half_way_continues(
    runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "choicewise.store.folder.FLUSH", -1.0
    )  # what was answered is written at once
    for shards in (0, 1):
        with pytest.raises(KeyboardInterrupt):
            run(tmp_path / "2", "2/3", model=Killed(shards))
        with pytest.raises(UsageError, match=r"shard 2 of 3\) is incomplete\n  ask 2/3 in 2"):
            together(tmp_path / "run", runs / "1-of-3", tmp_path / "2", runs / "3-of-3")
    with pytest.raises(UsageError, match="2 is only shard 2 of 3"):
        open_run(tmp_path / "2").report()
    run(tmp_path / "2", "2/3")
    assert files(
        together(tmp_path / "run", runs / "1-of-3", tmp_path / "2", runs / "3-of-3")
    ) == files(runs / "whole")
    again = run(tmp_path / "2", "2/3", model=Killed(0))  # nothing is left to ask
    assert again.manifest.complete


class Failing(HashModel):
    """Gives no answer to every second question, as a server may."""

    asked = 0

    def answer(self, questions: Sequence[Prompt]) -> Any:
        for place, each in super().answer(questions):
            self.asked += 1
            yield place, TokenScores.unanswered("busy", [0]) if self.asked % 2 else each


@pytest.mark.costly("two shards and the run of both")
def test_questions_of_a_shard_that_got_no_answer_are_asked_again_and_no_others(
    runs: Path, tmp_path: Path
) -> None:
    chosen: dict[str, Any] = {"protocols": PROTOCOLS[1:2], "limit": 1}
    failing, counting, said = Failing(), Killed(1000), list[str]()
    run(tmp_path / "2", "2/3", model=failing, **chosen)
    run(tmp_path / "2", "2/3", model=counting, say=said.append, **chosen)
    again = (failing.asked + 1) // 2
    assert said == [Gist(f"{again} questions ... : {again} answered now, 0 still missing")]
    parts = [run(tmp_path / str(number), f"{number}/3", **chosen).folder for number in (1, 3)]
    whole = run(tmp_path / "whole", **chosen)
    assert files(together(tmp_path / "run", tmp_path / "2", *parts)) == files(whole.folder)


@pytest.mark.costly("two models on two datasets, whole and in two shards")
def test_shards_of_several_runs_are_merged_one_by_one(tmp_path: Path) -> None:
    asked = {
        "models": ["fake:hash", "fake:oracle"],
        "data": ["bundled:merrowick"],
        "protocols": PROTOCOLS[:1],
        "limit": 2,
    }
    for shard, out in ((None, "whole"), ("1/2", "one"), ("2/2", "two")):
        sweep(job_of({**asked, "shard": shard}), tmp_path / out)
    with pytest.raises(
        MissingShards,
        match="shard 2 of 2 is missing\n  the command that wrote .*one, for shard 2",
    ):
        merge_all([tmp_path / "one"], tmp_path / "run", line_of)
    merge_all([tmp_path / "two", tmp_path / "one"], tmp_path / "run", line_of)
    merged, cells = read_sweep(tmp_path / "run"), read_sweep(tmp_path / "whole").cells
    assert ([cell.model for cell in merged.cells], merged.missing) == (
        [cell.model for cell in cells],
        (),
    )
    for cell in cells:
        assert files(tmp_path / "run" / cell.folder) == files(tmp_path / "whole" / cell.folder)
    with pytest.raises(StoreError, match="has shard 1 of 2, not shard 2 of 2"):
        sweep(job_of({**asked, "shard": "2/2"}), tmp_path / "one", go_on=False)


@pytest.mark.costly("merged in three ways")
def test_what_lacks_a_shard_says_so_counts_it_as_missing_and_can_be_merged_later(
    runs: Path, tmp_path: Path
) -> None:
    one, two, last = three(runs)
    with pytest.raises(UsageError, match=r"shard 2 of 3 is missing.*\n  ask 2/3 in 2-of-3"):
        together(tmp_path / "run", one, last)
    assert not (tmp_path / "run").exists()
    some = together(tmp_path / "some", one, last, allow_missing=True)
    rows, every = open_run(some).report().to_pylist(), open_run(runs / "whole").report().to_pylist()
    sizes = [[row["n"] + row["missing"] for row in both] for both in (rows, every)]
    assert sizes[0] == sizes[1]
    assert any(0 < row["n"] < its["n"] for row, its in zip(rows, every, strict=True))
    assert {row["selection"].rpartition(", ")[2] for row in rows} == {"incomplete"}
    assert [*examine(some).faults] == []
    assert not_complete(some, read_manifest(some)).startswith(
        f"{some} has shards 1 and 3 of 3, merged; run `choicewise merge`"
    )
    with pytest.raises(StoreError, match="shards 1 and 3 of 3, merged"):
        run(some)
    assert files(together(tmp_path / "run", two, some)) == files(runs / "whole")
    assert files(
        together(tmp_path / "twice", together(tmp_path / "two", two, one, allow_missing=True), some)
    ) == files(runs / "whole")


def edit(run: Path, change: Callable[[pa.Table], pa.Table]) -> None:
    """Change the answers of the first block with some, as somebody might who forges them well."""
    for own in read_manifest(run).blocks:
        path = block_file(run, own, "observations")
        if len(answers := read_table(path, OBSERVATIONS, own.files[path.name])):
            write_arrow(path, change(answers))
            return relist(run, path)
    raise AssertionError("nothing was answered")


def other_key(table: pa.Table) -> pa.Table:
    return table.set_column(
        0, "key", pa.array(["00" * tables.KEY_BYTES, *table["key"].to_pylist()[1:]])
    )


def other_answer(table: pa.Table) -> pa.Table:
    values = [[-1.0] * len(each) for each in table["logprobs"].to_pylist()]
    return table.set_column(3, "logprobs", pa.array(values, OBSERVATIONS.field("logprobs").type))


def manifest_with(**changes: Any) -> Callable[[Path], None]:
    return lambda shard: write_manifest(shard, replace(read_manifest(shard), **changes))


def typed_into(shard: Path) -> None:
    text = (shard / MANIFEST).read_text()
    (shard / MANIFEST).write_text(text.replace('"fake:hash"', '"fake:mash"', 1))


ANOTHER: Mapping[str, tuple[Callable[[Path], object], str]] = {
    "edited file": (
        lambda shard: flip(block(shard) / "observations.parquet"),
        "was changed",
    ),
    "cut file": (
        lambda shard: truncate(block(shard) / "spans.parquet"),
        "bytes instead of",
    ),
    "lost items": (
        lambda shard: (shard / "items.parquet").unlink(),
        "items.parquet is damaged",
    ),
    "edited manifest": (typed_into, "was changed"),
    "another question": (
        lambda shard: edit(shard, other_key),
        "other questions than",
    ),
    "a lost answer": (
        lambda shard: edit(shard, lambda table: table.slice(1)),
        "has .* answers on .* instead of",
    ),
    "another plan": (
        lambda shard: manifest_with(shard=replace(read_manifest(shard).shard, plan="f" * 64))(
            shard
        ),  # type: ignore[type-var]
        "other tokens",
    ),
    "another Choicewise": (
        manifest_with(versions={"choicewise": "0.0"}),
        "Choicewise 0.0 instead of",
    ),
    "a whole run": (manifest_with(shard=None), "not a shard"),
}


@pytest.mark.parametrize("name", ANOTHER)
def test_a_shard_that_is_not_as_it_was_written_is_refused(
    runs: Path, tmp_path: Path, name: str
) -> None:
    spoil, said = ANOTHER[name]
    shard = copytree(runs / "2-of-3", tmp_path / "2-of-3")
    spoil(shard)
    with pytest.raises(ChoicewiseError, match=said):
        together(tmp_path / "run", runs / "1-of-3", shard, runs / "3-of-3")
    assert [path.name for path in tmp_path.iterdir()] == ["2-of-3"]


FOREIGN: Mapping[str, tuple[dict[str, Any], str]] = {
    "limit": ({"limit": 2}, "another selection .*limit is 3 there and 2 here"),
    "protocols": ({"protocols": PROTOCOLS[:1]}, "other protocols"),
    "data": ({"data": "other"}, "another dataset"),
    "model": ({"model": "other"}, "another model .*digest"),
    "number": ({"shard": "2/4"}, "4 shards instead of 3"),
}


@pytest.mark.parametrize("name", FOREIGN)
def test_a_shard_of_another_run_is_refused(runs: Path, tmp_path: Path, name: str) -> None:
    chosen, said = FOREIGN[name]
    if "model" in chosen:
        chosen = {"model": HashModel()}
        chosen["model"].digest = "f" * 64
    if "data" in chosen:
        data = open_dataset(BENCHMARK)
        chosen = {"data": replace(data, splits={**data.splits, "test": data.splits["test"][:-1]})}
    run(tmp_path / "2", **{"shard": "2/3", "protocols": PROTOCOLS[:2], **chosen})
    with pytest.raises(StoreError, match=said):
        together(tmp_path / "run", runs / "1-of-3", tmp_path / "2", runs / "3-of-3")


def test_a_shard_that_is_there_twice_counts_once_where_it_is_the_same(
    runs: Path, tmp_path: Path
) -> None:
    double, said = copytree(runs / "2-of-3", tmp_path / "2"), list[str]()
    assert files(together(tmp_path / "run", double, *three(runs), say=said.append)) == files(
        runs / "whole"
    )
    assert [line for line in said if "same shard 2" in line and "counts once" in line] == said
    edit(double, other_answer)
    with pytest.raises(StoreError, match="different answers"):
        together(tmp_path / "other", double, *three(runs))
    with pytest.raises(UsageError, match="already exists"):
        together(tmp_path / "run", *three(runs))


def test_a_folder_goes_on_with_its_own_part_alone(runs: Path, tmp_path: Path) -> None:
    shard = copytree(runs / "2-of-3", tmp_path / "2")
    others: Sequence[tuple[dict[str, Any], str]] = (
        ({"shard": "1/3"}, "has shard 2 of 3, not shard 1 of 3"),
        ({}, "has shard 2 of 3, not the whole run"),
        ({"shard": "2/3", "protocols": PROTOCOLS[:1]}, "under other protocols"),
    )
    for chosen, said in others:
        with pytest.raises(StoreError, match=said):
            run(shard, **chosen)
    with pytest.raises(StoreError, match="whole run, not shard 1 of 3"):
        run(copytree(runs / "whole", tmp_path / "whole"), "1/3")
    truncate(block(shard) / "observations.parquet")
    run(shard, "2/3")
    assert files(together(tmp_path / "run", runs / "1-of-3", shard, runs / "3-of-3")) == files(
        runs / "whole"
    )


def array(task: int, count: int, least: int = 1, **more: int) -> dict[str, str]:
    own = {"ID": task, "COUNT": count, "MIN": least, **more}
    return {f"SLURM_ARRAY_TASK_{name}": str(value) for name, value in own.items()}


SHARES: Mapping[str, tuple[str, Mapping[str, str], Share | str]] = {
    "part": ("2/4", {}, Share(2, 4)),
    "all": ("1/1", {}, Share(1, 1)),
    "zero": ("0/4", {}, "9999.*: 1/4 to 4/4"),
    "beyond": ("5/4", {}, "9999.*: 1/4 to 4/4"),
    "none": ("0/0", {}, "part I of N"),
    "letters": ("a/b", {}, "2/4; or slurm"),
    "negative": ("-1/4", {}, "2/4; or slurm"),
    "digits of another script": ("٢/٤", {}, "2/4; or slurm"),
    "from 0": ("slurm", array(3, 4, 0), Share(4, 4)),
    "from 1": ("slurm", array(3, 4), Share(3, 4)),
    "from 10 in steps": ("slurm", array(14, 3, 10, MAX=14, STEP=2), Share(3, 3)),
    "no array": ("slurm", {}, "SLURM_ARRAY_TASK_ID is not set"),
    "a task that is asked again": ("slurm", array(3, 1, 3), "part of another"),
    "two that are asked again": ("slurm", array(4, 2, 2, MAX=4), "part of another"),
    "outside": ("slurm", array(9, 4), "SLURM_ARRAY_TASK_ID is 9.* 1 to 4"),
}


@pytest.mark.parametrize("name", SHARES)
def test_which_part_a_text_or_a_task_of_an_array_names(name: str) -> None:
    text, environment, expected = SHARES[name]
    if isinstance(expected, Share):
        assert share_of(text, environment) == expected
    else:
        with pytest.raises(ValueError, match=expected):
            share_of(text, environment)


def test_a_task_has_a_number_and_a_count() -> None:
    assert part_of_array(array(2, 4)) == (2, 4)


def test_a_manifest_without_shards_is_written_as_ever(runs: Path) -> None:
    manifest = read_manifest(runs / "whole")
    assert "shard" not in manifest.stored()
    assert read_manifest(runs / "1-of-3").stored()["shard"]["numbers"] == (1,)
    assert not ShardRecord(3, (1,)).whole
