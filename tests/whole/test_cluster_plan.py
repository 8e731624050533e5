"""The simulated scheduler loses and doubles nothing, and the pages say what was measured."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.places import ROOT, SHARED

BENCHMARKS = ROOT / "benchmarks"


@pytest.fixture(autouse=True)
def on_path(monkeypatch: pytest.MonkeyPatch) -> None:
    """The benchmarks import each other as scripts do; their short names must not stay behind."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    before = set(sys.modules)
    yield
    for name in set(sys.modules) - before:
        if str(getattr(sys.modules[name], "__file__", "") or "").startswith(str(BENCHMARKS)):
            del sys.modules[name]


BLOCKS = st.lists(st.lists(st.integers(1, 500), min_size=1, max_size=6), min_size=1, max_size=6)


@settings(deadline=None, max_examples=60)
@given(
    blocks=BLOCKS,
    replicas=st.integers(1, 5),
    jobs=st.integers(1, 3),
    gpus=st.integers(1, 4),
    failures=st.sampled_from([0.0, 40.0]),
    seed=st.integers(0, 3),
)
def test_every_shard_is_computed_once_whatever_dies(
    blocks: list[list[int]], replicas: int, jobs: int, gpus: int, failures: float, seed: int
) -> None:
    from scheduler import Cluster, Job, Node, Shard, simulate

    cut = [[Shard(tokens, tokens // 10) for tokens in block] for block in blocks]
    asked = [Job(str(number), cut, replicas, 10.0, 500.0, start=3.0, gpus=1) for number in range(jobs)]
    cluster = Cluster([Node(gpus)], sent=0.0, failures=failures, restart=1.0)
    outcome = simulate(asked, cluster, seed)
    assert outcome == simulate(asked, cluster, seed)
    tokens = jobs * sum(map(sum, blocks))
    assert set(outcome.finished) == {job.name for job in asked}
    assert outcome.busy == pytest.approx(tokens / 10.0)
    assert outcome.unique + outcome.shared == tokens
    assert outcome.driver == pytest.approx(outcome.unique / 500.0)
    assert outcome.busy <= outcome.held <= gpus * outcome.makespan + 1e-6
    assert outcome.makespan >= 3.0 + max(map(max, blocks)) / 10.0
    assert (outcome.lost > 0) <= (outcome.deaths > 0) <= (failures > 0)


def test_a_makespan_that_is_worked_out_by_hand() -> None:
    from scheduler import Cluster, Job, Node, Shard, simulate

    job = Job("one", [[Shard(100)] * 3, [Shard(100)] * 2], 2, 10.0, 1000.0, start=5.0)
    found = simulate([job], Cluster([Node()], begin=1.0, sent=0.0, writes=0.5))
    # loaded at 6, prepared meanwhile; five shards of 10 s on two replicas, then the last block is written in 0.1 s
    assert found.makespan == pytest.approx(36.1)
    assert found.utilisation == pytest.approx(50 / (2 * 35.1))
    slow = simulate([Job("one", [[Shard(100)]] * 4, 2, 10.0, 5.0)], Cluster([Node()], sent=0.0, writes=0.5))
    assert slow.driver_share == pytest.approx(80 / slow.makespan)
    assert slow.makespan == pytest.approx(90.0, abs=20.0)


def test_jobs_run_at_once_where_they_fit() -> None:
    from scheduler import Cluster, Job, Node, Shard, simulate

    def makespan(node: Node) -> float:
        jobs = [Job(name, [[Shard(100)]], 1, 10.0, 1e6, gpus=1, memory=60.0) for name in "ab"]
        return simulate(jobs, Cluster([node], sent=0.0)).makespan

    assert makespan(Node(2, 120.0)) == pytest.approx(10.0, abs=0.1)
    assert makespan(Node(2, 100.0)) == pytest.approx(20.0, abs=0.1)
    assert makespan(Node(1, 120.0)) == pytest.approx(20.0, abs=0.1)
    with pytest.raises(ValueError, match="a needs 1 GPUs and 60 GB, which no node has"):
        makespan(Node(0, 120.0))


def test_the_simulation_reads_the_shards_of_the_executor(tmp_path: Path) -> None:
    if not SHARED.is_dir():
        pytest.skip("no ../shared/data: there is nothing real to count")
    pytest.importorskip("tokenizers")
    from counts import TOKENIZER, cut, shards
    from workload import PROTOCOLS

    from choicewise.models.local.tokenizer import HfTokenizer

    tokenizer = HfTokenizer(SHARED / "tokenizers" / TOKENIZER)
    tokenizer.eos_id = 0
    found = cut(SHARED / "mmlu", str(PROTOCOLS / "mmlu-text.toml"), tokenizer, 2)
    assert found.items == 2 * 57
    assert len(found.blocks["cpu"]) == len(found.blocks["cuda"]) == 57
    blocks = shards(found.blocks["cpu"], 3)
    assert len(blocks) == 3 * 57
    assert all(shard.tokens > shard.shared >= 0 for block in blocks for shard in block)


def results(name: str) -> Any:
    file = BENCHMARKS / "results" / f"{name}.json"
    if not file.is_file():
        pytest.skip(f"not measured yet: python benchmarks/{name}.py")
    return json.loads(file.read_text())


def test_the_pages_say_what_was_counted_and_simulated() -> None:
    from page import cluster, in_plan

    found = results("cluster")
    docs = BENCHMARKS.parent / "docs"
    assert cluster(found) in (docs / "benchmarks.md").read_text()
    page = (docs / "cluster.md").read_text()
    assert in_plan(page, found) == page
    with pytest.raises(ValueError, match="no place"):
        in_plan("no marks", found)


def test_the_plans_follow_from_the_counts() -> None:
    from cluster import plans

    found = results("cluster")
    assert plans(found["counts"])[0] == pytest.approx(found["plans"][0])


def test_the_page_says_what_two_workers_did() -> None:
    from page import parallel

    assert parallel(results("parallel")) in (BENCHMARKS.parent / "docs" / "benchmarks.md").read_text()
