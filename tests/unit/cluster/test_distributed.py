"""What a task takes of a Ray cluster, where a block is cut into shards, and what Ray leaves behind."""

from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from choicewise.engine import DEVICE_TOKENS, SHARD_TOKENS, SHARE, cut_shards, shard_tokens
from choicewise.errors import UsageError
from choicewise.extensions.cluster import ray
from choicewise.extensions.cluster.ray import Needs, in_words, needs_of
from choicewise.extensions.run.plan import unique_tokens
from choicewise.models.fake import HashModel
from choicewise.models.local.devices import Footprint
from choicewise.questions import Conclusion, Cosine, Generation, MaskedLoss, Mass, Span, TokenSet
from choicewise.requests.request import BlockPrompt
from choicewise.tokens.tokenizer import ByteTokenizer
from tests.helpers.answers import ids
from tests.helpers.messages import Gist


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("The task died unexpectedly.\n\tname: compute_part", "The task died unexpectedly."),
        (
            "The worker died.\n\tnode_ip: 10.0.0.7\nIt died because its node is gone.",
            "It died because",
        ),
        ("", ""),
    ],
)
def test_of_rays_errors_the_line_that_says_why_is_told(text: str, words: str) -> None:
    assert ray._short(RuntimeError(text)).startswith(f"RuntimeError: {words}")


# What a task takes of a cluster

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


def needs(
    device: str, *nodes: dict[str, float], footprint: Footprint = LARGE, **given: Any
) -> Needs:
    given = {"workers": None, "gpu_bytes": None, **given}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ray, "footprint_of", lambda model: footprint)
        return needs_of(Named(device), nodes, **given)  # type: ignore[arg-type]


def test_a_fake_takes_a_core() -> None:
    assert needs_of(HashModel(), [CPUS], None, None) == Needs(0, 1, 200_000_000)


def test_on_a_cpu_workers_divide_the_cores_and_each_has_its_memory() -> None:
    small = partial(needs, "cpu", CPUS, footprint=SMALL)
    assert (small(), small(workers=2).cpus) == (Needs(0, 1, SMALL.host), 4)
    assert small(CPUS, workers=3).cpus == 4  # two on one node
    assert (small(workers=9).cpus, small(memory=30 * GB)) == (1, Needs(0, 1, 30 * GB))


@given(st.lists(st.integers(1, 16), min_size=1, max_size=5), st.integers(1, 20))
def test_no_more_cores_could_be_had_by_each_worker(cores: list[int], workers: int) -> None:
    each = needs_of(
        HashModel(), [{"CPU": count, "memory": GB} for count in cores], workers, None
    ).cpus
    assert each == 1 or sum(count // each for count in cores) >= workers
    assert sum(count // (each + 1) for count in cores) < workers or each == max(cores)


def test_a_model_has_as_many_gpus_as_hold_it_or_the_memory_that_is_said() -> None:
    assert needs("cuda", GPUS, gpu_bytes=80 * GB) == Needs(2, 2, LARGE.host)
    assert (
        needs("cuda", GPUS, gpu_bytes=40 * GB).gpus,
        needs("cuda", GPUS, gpu_bytes=150 * GB).gpus,
    ) == (5, 1)
    assert needs("auto", GPUS, gpu_bytes=80 * GB).gpus == 2
    assert needs("cuda:0..3", GPUS, gpu_bytes=80 * GB).gpus == 4  # as its name says
    assert needs("cuda", GPUS).gpus == 1  # of unknown memory
    assert needs("auto", GPUS, {**GPUS, "GPU": 4.0}).gpus == 8
    assert needs("cuda", GPUS, gpu_bytes=80 * GB, memory=60 * GB) == Needs(1, 1, LARGE.host)
    assert needs("cuda", GPUS, gpu_bytes=80 * GB, memory=80 * GB).gpus == 1
    assert needs("cuda", GPUS, gpu_bytes=80 * GB, memory=80 * GB + 1).gpus == 2
    assert needs("auto", GPUS, gpu_bytes=80 * GB, memory=250 * GB).gpus == 4


@pytest.mark.parametrize(
    ("device", "nodes", "given", "words"),
    [
        (
            "cuda",
            [CPUS],
            {},
            "m: it needs 1 GPU (0 on the largest)",
        ),
        ("auto", [CPUS], {}, "it needs 1 GPU (0 on the largest)"),
        (
            "cuda:0..3",
            [{**GPUS, "GPU": 2.0}],
            {"gpu_bytes": 80 * GB},
            "it needs 4 GPUs (2 on the largest)",
        ),
        (
            "cuda",
            [{**GPUS, "GPU": 2.0}],
            {"gpu_bytes": 40 * GB},
            "m needs 145.0 GB ... 2 GPUs ... (80.0 GB); ... dtype",
        ),
        (
            "cuda",
            [{**GPUS, "GPU": 1.0}],
            {"gpu_bytes": 40 * GB},
            "GPU of a node ... (40.0 GB)",
        ),
        (
            "cuda",
            [GPUS],
            {"gpu_bytes": 40 * GB, "memory": 400 * GB},
            "m needs 400.0 GB of memory, more than the 8",
        ),
        ("cpu", [CPUS], {"memory": 65 * GB}, "it needs 65.0 GB of memory (64.0 GB on the largest)"),
        (
            "cuda",
            [{"GPU": 1.0, "CPU": 0.0}],
            {},
            "1 CPU (0 on the largest) and 7.0 GB of memory (0.0 GB on the",
        ),
        ("cpu", [], {}, "it needs 1 CPU (0 on the largest)"),
    ],
)
def test_no_room_is_said(
    device: str, nodes: list[dict[str, float]], given: dict[str, Any], words: str
) -> None:
    with pytest.raises(UsageError) as caught:
        needs(device, *nodes, **given)
    assert str(caught.value) == Gist(words)


def test_a_cluster_and_what_it_lacks_in_words() -> None:
    short = "2 GPUs (1 free) and 12.0 GB of memory (3.5 GB free)"
    assert Needs(2, 1, 12 * GB).lacking({"CPU": 4, "GPU": 1, "memory": 3.5 * GB}) == short
    assert Needs(0, 1, 0).lacking({"CPU": 1}) == ""
    assert in_words([CPUS, CPUS, GPUS]) == "3 nodes, 8 GPUs, 48 CPUs and 640.0 GB of memory"
    assert in_words([{"CPU": 1.0}]) == "1 node and 1 CPU"


LETTERS = TokenSet([1, 2])


tokens = st.lists(st.integers(0, 2), min_size=1, max_size=6).map(lambda drawn: ids(*drawn))
spans = st.builds(Span, tokens, tokens)
generations = st.builds(Generation, tokens, st.integers(1, 4))
drawn_questions = st.one_of(
    spans,
    st.builds(Mass, tokens, st.just(LETTERS)),
    generations,
    st.builds(Conclusion, generations, spans),
    st.builds(MaskedLoss, spans),
    st.builds(Cosine, tokens, tokens),
)


def by_key(asked: list[BlockPrompt]) -> dict[str, BlockPrompt]:
    return {question.key: question for question in asked}


@given(st.lists(drawn_questions, max_size=30), st.integers(1, 60))
def test_every_question_is_in_exactly_one_shard(asked: list[BlockPrompt], size: int) -> None:
    wanted = by_key(asked)
    shards = list(cut_shards(wanted, size))
    assert sorted([key for shard in shards for key in shard]) == sorted(wanted)
    assert all(
        shard and all(wanted[key] is question for key, question in shard.items())
        for shard in shards
    )


@given(
    st.lists(drawn_questions, max_size=30), st.integers(1, 60), st.randoms(use_true_random=False)
)
def test_shards_do_not_depend_on_the_order(
    asked: list[BlockPrompt], size: int, random: object
) -> None:
    wanted = by_key(asked)
    shuffled = list(wanted.items())
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    one, other = (list(cut_shards(each, size)) for each in (wanted, dict(shuffled)))
    assert [set(shard) for shard in one] == [set(shard) for shard in other]


@given(
    st.lists(generations, min_size=1, max_size=12), st.lists(spans, max_size=12), st.integers(1, 20)
)
def test_what_follows_a_generation_is_in_its_shard(
    generated: list[Generation], spans: list[Span], size: int
) -> None:
    after = [
        Conclusion(generated[place % len(generated)], span) for place, span in enumerate(spans)
    ]
    shards = list(cut_shards(by_key([*generated, *after]), size))
    place = {key: number for number, shard in enumerate(shards) for key in shard}
    assert all(place[question.key] == place[question.generation.key] for question in after)


@settings(max_examples=80)
@given(
    st.lists(st.integers(1, 300), min_size=1, max_size=60),
    st.integers(1, 200),
    st.integers(50, 400),
)
def test_a_cut_computes_hardly_anything_twice(texts: list[int], header: int, size: int) -> None:
    """Questions after a common header: what is computed over all shards, against the tree of all of them."""
    shared = np.zeros(header, dtype=np.int32)
    asked = [
        Span(np.concatenate([shared, np.full(length, place, dtype=np.int32)]), ids(7, 8))
        for place, length in enumerate(texts, 1)
    ]
    shards = [list(shard.values()) for shard in cut_shards(by_key(asked), size)]  # type: ignore[arg-type]
    computed = [unique_tokens(shard, ByteTokenizer()) for shard in shards]
    assert sum(computed) <= unique_tokens(asked, ByteTokenizer()) * (1 + 1 / SHARE) + 1
    for before, _ in pairwise(computed):
        assert before >= size, "only the last shard is short"


def test_long_work_is_cut_and_neither_short_work_nor_a_long_common_context_for_a_few_questions() -> (
    None
):
    asked = by_key([Span(np.full(50, place, dtype=np.int32), ids(1)) for place in range(100)])
    sizes = [len(shard) for shard in cut_shards(asked, 1000)]
    assert (sizes, len(list(cut_shards(asked, 5000)))) == ([20, 20, 20, 20, 20], 1)
    assert (len(list(cut_shards(asked, None))), list(cut_shards({}, 10))) == (1, [])
    header = np.zeros(1000, dtype=np.int32)
    asked = by_key(
        [Span(np.concatenate([header, ids(place, place, place)]), ids(1)) for place in range(100)]
    )
    assert len(list(cut_shards(asked, 200))) == 1


@pytest.mark.parametrize(
    ("device", "size"),
    [("cpu", SHARD_TOKENS["cpu"]), ("cuda:1", DEVICE_TOKENS), ("cuda", DEVICE_TOKENS)],
)
def test_a_shard_is_as_long_as_suits_the_device(
    device: str, size: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()
    assert shard_tokens(device) == size


def test_of_a_cluster_that_ends_its_own_folder_goes_and_no_other(tmp_path: Path) -> None:
    own, other = tmp_path / "session_1", tmp_path / "session_2"
    for session in (own, other):
        (session / "logs").mkdir(parents=True)
        (session / "logs" / "raylet.out").write_text("started")
    (tmp_path / "session_latest").symlink_to(own)
    ended: list[str] = []
    ray._end(SimpleNamespace(shutdown=lambda: ended.append("shutdown")), own)
    assert (ended, [*tmp_path.iterdir()]) == (["shutdown"], [other])
