"""A sample: every subject has its share, chance is of seed and ids alone, and a run with it is a run of its own."""

import json
import warnings
from collections.abc import Sequence
from hashlib import blake2b
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from choicewise import evaluate, open_run
from choicewise.data.dataset import Dataset, shares
from choicewise.data.items import Item, draw_hash
from choicewise.errors import StoreError, UsageError
from choicewise.extensions.board.queue import Asked
from choicewise.extensions.interop.export import run_identity
from choicewise.extensions.run.sweep import read_plan
from choicewise.models.fake import HashModel
from choicewise.page.reproduce import run_line
from choicewise.records import MANIFEST, Selection
from choicewise.requests.blocks import list_sections, settle_sample
from choicewise.results.rows import chosen_part
from choicewise.results.run import Run
from choicewise.running.job import job_of
from choicewise.store.folder import read_manifest
from tests.helpers.commands import choicewise
from tests.helpers.mmlu_data import write_mmlu
from tests.helpers.protocols import mmlu_protocol, requests

SIZES = {"tides": 12, "trees": 5, "tools": 3}


def items_of(sizes: dict[str, int], split: str = "test") -> list[Item]:
    return [
        Item(
            f"{split} {name} {place}",
            f"Which {name} is {place} of {split}?",
            tuple("abcd"),
            (place % 4,),
            name,
        )
        for name, size in sizes.items()
        for place in range(size)
    ]


def dataset(items: Sequence[Item]) -> Dataset:
    return Dataset("quiz", {"test": items, "dev": items_of(dict.fromkeys(SIZES, 7), "dev")})


QUIZ = dataset(items_of(SIZES))


def drawn_ids(
    data: Dataset, count: int, seed: int = 1, subjects: Sequence[str] | None = None
) -> list[str]:
    """Of the items in their order."""
    sections = list_sections(
        data, {"p": mmlu_protocol()}, Selection.of(subjects, sample=count, seed=seed)
    )
    return [item.id for section in sections for item in section.items]


def plain(items: Sequence[Item], count: int, seed: int) -> list[str]:
    """The ids of the sample, slowly: shares by fractions, then every subject's smallest hashes."""
    sizes = {
        name: sum(item.subject == name for item in items)
        for name in {item.subject for item in items}
    }
    taken = {name: count * size // len(items) for name, size in sizes.items()}

    def order(name: str) -> tuple[float, bytes]:
        return -(count * sizes[name] % len(items)), blake2b(
            f"{seed}|{name}".encode(), digest_size=8
        ).digest()

    for name in sorted(sizes, key=order)[: count - sum(taken.values())]:
        taken[name] += 1
    ids: set[str] = set()
    for name in sizes:
        hashes = {
            blake2b(f"{seed}|{name}|{item.id}".encode(), digest_size=8).digest(): item.id
            for item in items
            if item.subject == name
        }
        ids |= {hashes[each] for each in sorted(hashes)[: taken[name]]}
    return [item.id for item in items if item.id in ids]


@given(
    sizes=st.dictionaries(st.sampled_from("abcdef"), st.integers(1, 30), min_size=1),
    part=st.floats(0, 1),
    seed=st.integers(0, 99),
)
def test_a_sample_is_that_of_the_plain_way(sizes: dict[str, int], part: float, seed: int) -> None:
    items = items_of(sizes)
    count = max(1, round(part * (len(items) - 1)))
    drawn = drawn_ids(dataset(items), count, seed)
    assert drawn == plain(items, count, seed)
    assert len(drawn) == min(count, len(items))


@given(
    st.dictionaries(st.text(max_size=2), st.integers(1, 200), min_size=1),
    st.integers(1, 900),
    st.integers(0, 9),
)
def test_shares_are_proportions_to_within_one_item(
    sizes: dict[str, int], count: int, seed: int
) -> None:
    own, total = shares(sizes, count, seed), sum(sizes.values())
    assert sum(own.values()) == min(count, total)
    for name, size in sizes.items():
        assert abs(own[name] - min(count, total) * size / total) < 1
        assert own[name] <= size


@given(st.integers(1, 20), st.integers(1, 20), st.integers(0, 9))
def test_of_a_subject_the_smaller_share_is_part_of_the_greater_one(
    one: int, other: int, seed: int
) -> None:
    """All of the sample only where no subject's share shrinks, as largest remainders sometimes let it."""
    small, large = (QUIZ.sample("test", count, seed) for count in sorted((one, other)))
    for name in SIZES:
        assert {*small[name]} <= {*large[name]} or len(small[name]) > len(large[name])
    if all(len(small[name]) <= len(large[name]) for name in SIZES):
        assert {*drawn_ids(QUIZ, min(one, other), seed)} <= {
            *drawn_ids(QUIZ, max(one, other), seed)
        }


@given(st.permutations(items_of(SIZES)), st.integers(1, 20))
def test_the_order_of_the_rows_changes_no_sample(items: list[Item], count: int) -> None:
    assert {*drawn_ids(dataset(items), count)} == {*drawn_ids(QUIZ, count)}


def test_chance_is_the_same_everywhere_and_for_ever() -> None:
    assert draw_hash(1, "tides", "test tides 0").hex() == "e7787b82c8d97d10"
    assert drawn_ids(QUIZ, 4) == ["test tides 1", "test tides 9", "test trees 4", "test tools 2"]
    assert drawn_ids(QUIZ, 4, seed=2) == [
        "test tides 2",
        "test tides 8",
        "test trees 2",
        "test tools 1",
    ]
    every = sum(
        name in drawn_ids(QUIZ, 10, seed) for seed in range(400) for name in ["test tides 3"]
    )
    assert 160 < every < 240, "half of the items are drawn, each as often as the others"


def test_named_subjects_have_the_sample_among_them() -> None:
    drawn = drawn_ids(QUIZ, 4, subjects=["trees", "tools"])
    assert [name.split()[1] for name in drawn] == ["trees"] * 3 + ["tools"], (
        "2.5 and 1.5: a hash decides"
    )


def scored(out: Path, data: Dataset | Path = QUIZ, **asked: Any) -> Run:
    given = {"model": HashModel(), "protocols": ["mmlu/original"], **asked}
    return evaluate(data=data, out=out, **given)


def test_a_run_of_a_sample_says_so_and_is_continued_with_the_same_alone(tmp_path: Path) -> None:
    run = scored(tmp_path, sample=6, seed=3)
    assert run.manifest.selection == Selection(None, None, 6, 3, {"test": SIZES})
    assert {row.identity.selection for row in run.rows()} == {"sample of 6, seed 3"}
    assert {row.counts.n for row in run.rows()} == {6}
    assert open_run(tmp_path).manifest.selection.drawn_from == {"test": SIZES}
    table = run.report()
    assert scored(
        tmp_path, sample=6, seed=3, protocols=["mmlu/original", "mmlu/cloze:sum"]
    ).manifest.complete
    assert scored(tmp_path, sample=6, seed=3).report().num_rows > table.num_rows
    for other, told in {"sample": 7, "seed": 4}.items():
        with pytest.raises(
            StoreError,
            match=f"selection {other} is {6 if other == 'sample' else 3} there and {told}",
        ):
            scored(tmp_path, **{"sample": 6, "seed": 3, other: told})
    with pytest.raises(StoreError, match="6 there and None here"):
        scored(tmp_path)


def test_items_of_a_sample_are_asked_as_among_all(tmp_path: Path) -> None:
    """Samplers that draw other shots for every item draw them by its place in the subject: that must be its own."""
    protocols = {"p": mmlu_protocol(sampler="harness", seed=0, shots=3)}
    every, some = (scored(tmp_path / str(n), protocols=protocols, sample=n) for n in (None, 7))
    assert (every.manifest.selection, some.manifest.selection.sample) == (Selection(), 7)
    texts = [
        {
            row["item"]: row["context"]
            for row in run.tables.requests.select(["item", "context"]).to_pylist()
        }
        for run in (every, some)
    ]
    assert len(texts[1]) == 7
    assert texts[1].items() <= texts[0].items()
    plain_texts = {
        each.item.id: each.text() for name in SIZES for each in requests(protocols["p"], QUIZ, name)
    }
    assert texts[0] == plain_texts


def test_paired_runs_have_the_same_items_and_a_lost_table_is_written_again(tmp_path: Path) -> None:
    folder = write_mmlu(tmp_path / "data", questions=9)
    one = scored(tmp_path / "one", folder, model="fake:hash", sample=5)
    other = scored(tmp_path / "other", folder, model="fake:oracle", sample=5, seed=1)
    ids = [run.tables.items["item"].to_pylist() for run in (one, other)]
    assert ids[0] == ids[1]
    assert len(ids[0]) == 5
    (tmp_path / "one" / "items.parquet").unlink()
    scored(tmp_path / "one", folder, model="fake:hash", sample=5)
    assert open_run(tmp_path / "one").tables.items["item"].to_pylist() == ids[0]
    line = run_line(one.manifest, ["mmlu/original"], tmp_path / "one")
    assert "--sample 5" in line
    assert "--seed" not in line
    assert "--sample 5 --seed 1" in run_line(other.manifest, ["mmlu/original"], tmp_path / "other")


def test_what_is_no_sample_is_left_out_of_files_and_ids(tmp_path: Path) -> None:
    run = scored(tmp_path / "a", limit=2, subjects=["trees", "tides"])
    written = json.loads((tmp_path / "a" / MANIFEST).read_text())
    assert written["selection"] == {"subjects": ["tides", "trees"], "limit": 2}
    assert run.manifest.stored()["selection"] == {"subjects": ("tides", "trees"), "limit": 2}
    assert repr(Selection(("a",), 2)) == "Selection(subjects=('a',), limit=2)"
    drawn = [scored(tmp_path / f"{n}", sample=4, seed=n) for n in (1, 2)]
    assert len({run_identity(each) for each in (run, *drawn)}) == 3
    assert read_manifest(tmp_path / "1").stored() == drawn[0].manifest.stored()


@pytest.mark.parametrize("count", [20, 21, 1000])
def test_a_sample_of_all_is_all_and_said(tmp_path: Path, count: int) -> None:
    with pytest.warns(UserWarning, match=f"sample of {count:,} of quiz:"):
        run = scored(tmp_path, sample=count, seed=5)
    assert run.manifest.selection == Selection()
    assert {row.identity.selection for row in run.rows()} == {""}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert scored(tmp_path).manifest.complete, "it is the run of all"


def test_a_subject_without_a_question_is_said(tmp_path: Path) -> None:
    with pytest.warns(UserWarning, match="question of 1 of the 3"):
        run = scored(tmp_path, sample=2)
    assert run.tables.items.num_rows == 2
    assert settle_sample(QUIZ, {"p": mmlu_protocol()}, Selection.of(sample=9))[1] == ""


def test_words_that_do_not_go_together_are_refused(tmp_path: Path) -> None:
    for asked, told in {
        (
            ("limit", 3),
            ("sample", 4),
        ): "limit 3 .*, and sample 4",
        (("seed", 4),): "seed is 4 .* no sample",
        (("sample", 0),): "sample is 0",
        (("sample", 2), ("seed", -1)): "seed is -1",
    }.items():
        with pytest.raises(UsageError, match=told):
            scored(tmp_path / "run", **dict(asked))
        with pytest.raises(UsageError, match=told.partition(";")[0]):
            job_of({"models": ["fake:hash"], "protocols": ["mmlu"], **dict(asked)})
    assert not (tmp_path / "run").exists()


def test_a_plan_file_and_a_board_carry_it(tmp_path: Path) -> None:
    file = tmp_path / "plan.toml"
    file.write_text(
        'models = ["fake:hash"]\nprotocols = ["mmlu/original"]\nsample = 30\nseed = 0\n'
    )
    assert read_plan(file).selection == Selection(sample=30, seed=0)
    asked = Asked(("mmlu",), ("data",), sample=30, seed=0)
    assert asked.plan() == {"protocols": ["mmlu"], "data": ["data"], "sample": 30, "seed": 0}
    assert job_of({"models": ["fake:hash"], **asked.plan()}).selection == read_plan(file).selection
    assert asked.part == chosen_part(Selection(sample=30, seed=0)) == "sample of 30, seed 0"
    assert chosen_part(Selection(("a", "b"), sample=5, seed=1)) == "a, b, sample of 5, seed 1"


@pytest.mark.costly("prompts, a dry run, and a sweep of two models")
def test_prompts_dry_runs_and_sweeps_take_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write_mmlu(tmp_path / "data", questions=9)
    asked = ("--data", "data", "--protocol", "mmlu/original", "--sample", "5", "--seed", "2")
    shown = choicewise("prompts", *asked, code=0)
    ids = [json.loads(line)["item"] for line in shown.stdout.splitlines()]
    assert len(ids) == 5
    planned = json.loads(
        choicewise("run", "--model", "fake:hash", *asked, "--dry-run", "--json", code=0).stdout
    )
    assert planned["requests"] == 5
    choicewise(
        "sweep", "--model", "fake:hash", "--model", "fake:oracle", *asked, "--out", "runs", code=0
    )
    runs = [open_run(path.parent) for path in sorted((tmp_path / "runs").rglob(MANIFEST))]
    assert [run.tables.items["item"].to_pylist() for run in runs] == [ids, ids]
    refused = choicewise(
        "run", "--model", "fake:hash", *asked, "--limit", "2", "--out", "run", code=2
    )
    assert "each subject, and sample 5" in refused.stderr
    assert "50 of data: all 18 questions" in (
        choicewise("prompts", *asked[:4], "--sample", "50", code=0).stderr
    )
