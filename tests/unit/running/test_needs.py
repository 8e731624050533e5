"""What a replica takes of a cluster."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from choicewise.errors import UsageError
from choicewise.models.fake import HashModel
from choicewise.models.local.devices import Footprint
from choicewise.running import ray as module
from choicewise.running.ray import Needs, in_words, needs_of, slots_of

GB = 10**9
CPUS = {"CPU": 8.0, "memory": 64.0 * GB}
GPUS = {"CPU": 32.0, "GPU": 8.0, "memory": 512.0 * GB}
LARGE = Footprint(weights=140 * GB, workspace=4 * GB, context=GB, layer=4 * GB, host=7 * GB)
SMALL = Footprint(weights=14 * GB, workspace=4 * GB, context=GB, layer=GB, host=4 * GB)


@dataclass
class Named:
    """A model of which only this is known."""

    device: str
    name: str = "m"


@pytest.fixture
def large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "footprint_of", lambda model: LARGE)


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "footprint_of", lambda model: SMALL)


def needs(device: str, *nodes: dict[str, float], **given: Any) -> Needs:
    given = {"workers": None, "gpu_bytes": None, **given}
    return needs_of(Named(device), nodes, **given)  # type: ignore[arg-type]


def test_a_fake_takes_a_core() -> None:
    assert needs_of(HashModel(), [CPUS], None, None) == Needs(0, 1, 200_000_000)


@pytest.mark.usefixtures("small")
def test_on_a_cpu_workers_divide_the_cores_and_each_has_its_memory() -> None:
    assert needs("cpu", CPUS) == Needs(0, 1, SMALL.host)
    assert needs("cpu", CPUS, workers=2).cpus == 4
    assert needs("cpu", CPUS, CPUS, workers=3).cpus == 4  # two on one node
    assert needs("cpu", CPUS, workers=9).cpus == 1
    assert needs("cpu", CPUS, memory=30 * GB) == Needs(0, 1, 30 * GB)


@given(st.lists(st.integers(1, 16), min_size=1, max_size=5), st.integers(1, 20))
def test_no_more_cores_could_be_had_by_each_worker(cores: list[int], workers: int) -> None:
    each = needs_of(HashModel(), [{"CPU": count, "memory": GB} for count in cores], workers, None).cpus
    assert each == 1 or sum(count // each for count in cores) >= workers
    assert sum(count // (each + 1) for count in cores) < workers or each == max(cores)


@pytest.mark.usefixtures("large")
def test_a_model_has_as_many_gpus_as_hold_it() -> None:
    assert needs("cuda", GPUS, gpu_bytes=80 * GB) == Needs(2, 2, LARGE.host)
    assert needs("cuda", GPUS, gpu_bytes=40 * GB).gpus == 5
    assert needs("cuda", GPUS, gpu_bytes=150 * GB).gpus == 1
    assert needs("auto", GPUS, gpu_bytes=80 * GB).gpus == 2
    assert needs("cuda:0..3", GPUS, gpu_bytes=80 * GB).gpus == 4  # as its name says


@pytest.mark.usefixtures("large")
def test_without_the_memory_of_a_gpu_a_model_has_one_or_with_auto_a_node() -> None:
    assert needs("cuda", GPUS).gpus == 1
    assert needs("auto", GPUS, {**GPUS, "GPU": 4.0}).gpus == 8


@pytest.mark.usefixtures("large")
def test_said_memory_counts_instead_of_the_measured() -> None:
    assert needs("cuda", GPUS, gpu_bytes=80 * GB, memory=60 * GB) == Needs(1, 1, LARGE.host)
    assert needs("cuda", GPUS, gpu_bytes=80 * GB, memory=80 * GB).gpus == 1
    assert needs("cuda", GPUS, gpu_bytes=80 * GB, memory=80 * GB + 1).gpus == 2
    assert needs("auto", GPUS, gpu_bytes=80 * GB, memory=250 * GB).gpus == 4


@pytest.mark.parametrize(
    ("device", "nodes", "given", "words"),
    [
        ("cuda", [CPUS], {}, "no node of the cluster has room for m: it needs 1 GPU (0 on the largest)"),
        ("auto", [CPUS], {}, "it needs 1 GPU (0 on the largest)"),
        ("cuda:0..3", [{**GPUS, "GPU": 2.0}], {"gpu_bytes": 80 * GB}, "it needs 4 GPUs (2 on the largest)"),
        (
            "cuda",
            [{**GPUS, "GPU": 2.0}],
            {"gpu_bytes": 40 * GB},
            "m needs 145.0 GB of memory, more than the 2 GPUs of a node have together (80.0 GB); take a narrower dtype",
        ),
        ("cuda", [{**GPUS, "GPU": 1.0}], {"gpu_bytes": 40 * GB}, "more than the GPU of a node has (40.0 GB)"),
        ("cuda", [GPUS], {"gpu_bytes": 40 * GB, "memory": 400 * GB}, "m needs 400.0 GB of memory, more than the 8"),
        ("cpu", [CPUS], {"memory": 65 * GB}, "it needs 65.0 GB of memory (64.0 GB on the largest)"),
        ("cuda", [{"GPU": 1.0, "CPU": 0.0}], {}, "1 CPU (0 on the largest) and 7.0 GB of memory (0.0 GB on the"),
        ("cpu", [], {}, "it needs 1 CPU (0 on the largest)"),
    ],
)
@pytest.mark.usefixtures("large")
def test_what_has_no_room_is_said_with_what_is_lacking(
    device: str, nodes: list[dict[str, float]], given: dict[str, Any], words: str
) -> None:
    with pytest.raises(UsageError) as caught:
        needs(device, *nodes, **given)
    assert words in str(caught.value)


def test_what_is_lacking_at_the_moment() -> None:
    assert Needs(2, 1, 12 * GB).lacking({"CPU": 4, "GPU": 1, "memory": 3.5 * GB}) == (
        "2 GPUs (1 free) and 12.0 GB of memory (3.5 GB free)"
    )
    assert Needs(0, 1, 0).lacking({"CPU": 1}) == ""


def test_a_cluster_in_words() -> None:
    assert in_words([CPUS, CPUS, GPUS]) == "3 nodes, 8 GPUs, 48 CPUs and 640.0 GB of memory"
    assert in_words([{"CPU": 1.0}]) == "1 node and 1 CPU"
    assert slots_of([CPUS, GPUS]) == 8
    assert slots_of([CPUS, CPUS]) == 16
    assert slots_of([]) == 1
