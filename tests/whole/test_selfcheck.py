"""The self-check takes the fastest rung that is right, and refuses every fast path that is broken on purpose."""

from collections.abc import Iterable
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom

from choicewise.bundled import BENCHMARK, MODELS
from choicewise.data.open import open_dataset
from choicewise.engine import build, next_pack, next_path
from choicewise.errors import ModelError
from choicewise.models.load import load_model
from choicewise.models.local import attention, paths, plain, selfcheck
from choicewise.models.local.attention import DecodePass
from choicewise.models.local.causal_lm import CausalLM
from choicewise.models.local.local_model import LocalModel
from choicewise.models.local.paths import LADDER, PackedPath, TreePath, compute_path, rungs
from choicewise.models.local.selfcheck import BEYOND_REACH as BEYOND
from choicewise.models.local.selfcheck import BRANCH, DEPTH, EXACT, probe, probe_depth
from choicewise.models.model import SelfCheck, Trial
from choicewise.protocols.catalogue import resolve
from choicewise.questions import Span, TokenScores
from choicewise.requests.ask import add_requests
from choicewise.requests.render import render
from choicewise.requests.request import PreparedBlock
from choicewise.tokens.tokenizer import ByteTokenizer
from tests.helpers.tiny_models import FAMILIES, VOCABULARY, load, tiny
from tests.paths import ROOT

TABLE = (ROOT / "docs" / "families.md").read_text()
RUNG_OF = dict(line.split(" | ")[:2] for line in TABLE.splitlines() if " | " in line)
STRETCHED = {"rope_type": "dynamic", "factor": 8.0, "rope_theta": 1e4}


def network(family: str, dtype: torch.dtype = torch.float32, window: int = 512, **changes: Any) -> CausalLM:
    return CausalLM(tiny(family, **changes).to(dtype), window=window, vocabulary=VOCABULARY)


def check(lm: CausalLM, ladder: Any = None, deepest: int | None = None) -> SelfCheck:
    return selfcheck.check(lm, rungs(lm.device.type) if ladder is None else ladder, deepest)


@pytest.mark.parametrize("family", FAMILIES)
def test_family_lands_on_the_rung_of_the_table(family: str) -> None:
    result = check(network(family))
    assert result.rung == RUNG_OF[f"| {family}"]
    assert result.difference <= result.tolerance < 1e-3
    assert [trial.rung for trial in result.trials] == [*rungs("cpu")][: len(result.trials)]
    assert all(trial.refused for trial in result.trials[:-1])


def blind(tree: Any, rows: np.ndarray, keys: np.ndarray, *_: Any, **__: Any) -> np.ndarray:
    """A mask that forgets where subtrees end."""
    return keys <= rows[:, None]


def in_order(self: PackedPath, tree: Any, pack: Any) -> dict[str, torch.Tensor]:
    """Positions that count rows instead of depths."""
    tokens = self.lm.tensor(tree.tokens[pack.start : pack.stop])[None]
    return {"input_ids": tokens, "position_ids": torch.arange(pack.start, pack.stop)[None]}


def deaf(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, mask: torch.Tensor, options: Any) -> torch.Tensor:
    """Attention that knows neither caps nor sinks."""
    return torch.nn.functional.scaled_dot_product_attention(query, key, value, attn_mask=mask, scale=options.scaling)


def forgetful(self: DecodePass, reach: Any) -> np.ndarray:
    """Generated tokens that see only themselves and the prompt."""
    before = attention.visible(self.tree, self.nodes, self.pack.nodes(), reach, ahead=self.tokens + 1)
    own = np.zeros((len(self.nodes), self.tokens + 1), dtype=bool)
    own[:, -1] = True
    return np.concatenate([before, own], axis=1)


def wrong_path(pack: Any) -> np.ndarray:
    """The last nodes of a pack instead of the ancestors of the next one."""
    return pack.nodes()[len(pack.nodes()) - len(pack.keep) :]


BROKEN: dict[str, tuple[str, str, Any, str, Any]] = {
    "subtree ends": ("llama", "tree", attention, "visible", blind),
    "windows": ("mistral", "tree", attention.Reach, "lowest", lambda self, depth: np.zeros_like(depth)),
    "chunks": ("llama4_text", "tree", attention.Reach, "lowest", lambda self, depth: np.zeros_like(depth)),
    "caps": ("gemma2", "tree", attention, "_step_by_step", deaf),
    "sinks": ("gpt_oss", "tree", attention, "_step_by_step", deaf),
    "positions": ("qwen2", "tree", PackedPath, "inputs", in_order),
    "path": ("llama", "tree", paths, "next_path", wrong_path),
    "generation": ("llama", "tree", DecodePass, "_visible", forgetful),
    "calls": ("llama", "tree", CausalLM, "layers", 3),
    "mask": ("falcon", "mask", paths, "visible", blind),
    "additive mask": ("gptj", "additive mask", paths, "visible", blind),
    "copied state": ("mamba2", "prefix", paths.copy, "deepcopy", lambda state: state),
    "needed state": ("bloom", "prefix", paths, "STATES", ()),
}


@pytest.mark.parametrize("what", BROKEN)
def test_broken_fast_path_is_refused(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    family, rung, place, name, broken = BROKEN[what]
    lm = network(family)
    assert check(lm).rung == rung
    monkeypatch.setattr(place, name, broken)
    result = check(lm)
    assert result.rung != rung
    assert next(trial.refused for trial in result.trials if trial.rung == rung)


def test_ignored_attention_is_refused_though_the_numbers_agree() -> None:
    class Silent(TreePath):
        def objection(self) -> str | None:
            return "never called"

    result = check(network("llama"), {"tree": Silent, "sequence": LADDER["sequence"]})
    assert (result.rung, result.trials[0].refused) == ("sequence", "never called")
    assert result.trials[0].difference is not None


def test_head_that_forgets_its_scale_is_refused_on_every_rung(monkeypatch: pytest.MonkeyPatch) -> None:
    lm = network("granite")
    monkeypatch.setattr(CausalLM, "logits", lambda self, hidden: self.model.lm_head(hidden)[:, : self.vocabulary])
    result = check(lm)
    assert (result.rung, result.difference) == ("plain", 0)
    with pytest.raises(ModelError, match="other numbers"):
        check(lm, {"sequence": LADDER["sequence"]})


@pytest.mark.parametrize(
    ("dtype", "advice"), [(torch.float32, "; download"), (torch.float16, " or too large for float16; try float32")]
)
def test_weights_that_are_not_numbers(dtype: torch.dtype, advice: str) -> None:
    lm = network("llama", dtype)
    with torch.no_grad():
        lm.model.model.layers[0].mlp.up_proj.weight[0, 0] = float("nan")
    with pytest.raises(ModelError, match=f"NaN or infinity: its weights are damaged{advice}"):
        check(lm)


def test_probe_is_deeper_than_what_layers_see() -> None:
    assert probe_depth(network("llama")) == DEPTH
    assert probe_depth(network("mistral", sliding_window=300)) > 300
    assert probe_depth(network("llama4_text", attention_chunk_size=300)) > 300
    assert probe_depth(network("gpt_neo", window_size=300)) > 300
    longrope = {**STRETCHED, "factor": 2.0}
    assert probe_depth(network("llama", rope_parameters=longrope, max_position_embeddings=400)) > 400
    assert probe_depth(network("mistral", window=60)) == 60


@pytest.mark.parametrize("depth", [1, 2, 9, 40, DEPTH, 1000, 4096 + BEYOND, 8192 + BEYOND])
def test_probe_is_as_deep_as_it_says(depth: int) -> None:
    spans = probe(depth, VOCABULARY)
    assert all(len(span.context) and len(span.continuation) for span in spans)
    deepest = max(span.inputs for span in spans)
    assert deepest == depth if depth > 9 else deepest <= depth


@given(depth=st.integers(40, 400), vocabulary=st.integers(100, 50_000))
def test_some_pack_of_the_probe_begins_after_a_branch_that_is_not_its_past(depth: int, vocabulary: int) -> None:
    tree = build(probe(depth, vocabulary))
    start, path, jumps = 0, np.empty(0, dtype=np.int32), 0
    while start < len(tree):
        pack = next_pack(tree, start, path, depth // BRANCH)
        start, path = pack.stop, next_path(pack)
        jumps += len(path) > 0 and not np.array_equal(path, wrong_path(pack))
    assert jumps


def test_rotary_positions_that_depend_on_the_length_are_noticed() -> None:
    """Such angles depend on the whole sequence, so that not even a sequence may stand for its own beginning."""
    assert check(network("llama", rope_parameters=STRETCHED, max_position_embeddings=100)).rung == "plain"


@pytest.mark.parametrize("switch", [256, 4096])
def test_rotary_positions_that_switch_far_out_are_noticed(switch: int) -> None:
    rope = {"rope_type": "longrope", "rope_theta": 1e4, "original_max_position_embeddings": switch}
    rope |= {"short_factor": [1.0] * 4, "long_factor": [4.0, 8.0, 16.0, 32.0]}
    changes = {"max_position_embeddings": 4 * switch, "original_max_position_embeddings": switch}
    model = tiny("phi3", rope_parameters=rope, **changes)
    result = check(CausalLM(model, window=4 * switch, vocabulary=VOCABULARY))
    assert result.rung == "plain"
    assert result.floor < EXACT, "padding a sequence beyond the switch is no noise"
    assert f"a window of {switch} " in result.cost
    assert check(CausalLM(model, window=switch, vocabulary=VOCABULARY)).rung == "tree"


def test_attention_that_warms_up_with_depth_is_noticed() -> None:
    lm = network("llama4_text", attn_temperature_tuning=True, floor_scale=256, attn_scale=0.5)
    assert probe_depth(lm) > 256
    assert check(lm).rung not in ("tree", "mask")


def test_chosen_path_answers_and_can_be_named() -> None:
    lm, spans = network("llama"), probe(50, VOCABULARY)
    assert check(lm).rung == "tree"
    assert len(list(compute_path("tree", lm, 64).score(spans))) == len(spans)
    assert check(lm, {"prefix": LADDER["prefix"]}).rung == "prefix"
    with pytest.raises(ModelError, match="tree"):
        check(network("bloom"), {"tree": LADDER["tree"]})


def test_bfloat16_is_held_to_its_own_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    lm = network("gemma2", torch.bfloat16)
    result = check(lm)
    assert (result.rung, result.trials) == ("tree", (Trial("tree", result.difference, None),))
    assert 1e-3 < result.floor < 1
    monkeypatch.setattr(selfcheck, "_float32_copy", lambda lm: None)
    assert check(lm).tolerance == selfcheck.NARROW
    monkeypatch.setattr(attention, "visible", blind)
    assert check(lm).rung != "tree"


def test_sixteen_bits_hide_nothing_that_the_copy_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    lm, logits = network("llama", torch.bfloat16), CausalLM.logits
    monkeypatch.setattr(CausalLM, "logits", lambda self, hidden: logits(self, hidden) * 1.0005)
    assert "differs" in str(check(lm).trials[0].refused)
    monkeypatch.setattr(selfcheck, "_float32_copy", lambda lm: None)
    assert check(lm).rung == "tree"


choose = CausalLM.choose


def second(self: CausalLM, hidden: torch.Tensor, shares: np.ndarray, known: int) -> Any:
    tokens = self.logits(hidden).topk(2).indices[:, 1].numpy().astype(np.int32)
    return self.read(hidden, np.arange(len(hidden), dtype=np.int32), tokens)


def top(self: CausalLM, hidden: torch.Tensor, shares: np.ndarray, known: int) -> Any:
    return choose(self, hidden, np.full_like(shares, np.nan), known)


def ranked_lower(self: CausalLM, *arguments: Any) -> Any:
    tokens, logprobs, ranks = choose(self, *arguments)
    return tokens, logprobs, ranks + 1


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        (second, "of a greedy generation is not the likeliest one"),
        (top, "of a sample is not the one to be drawn"),
        (ranked_lower, "of a generation has rank"),
    ],
)
def test_a_wrong_choice_is_refused_though_its_score_is_right(
    wrong: Any, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The scores of generated tokens are those of other tokens than the likeliest."""
    monkeypatch.setattr(CausalLM, "choose", wrong)
    (refused,) = (trial.refused for trial in check(network("llama")).trials if trial.rung == "tree")
    assert reason in str(refused)


def test_a_probe_goes_no_deeper_than_the_questions() -> None:
    far = network("mistral", sliding_window=400)
    assert [probe_depth(far, deepest) for deepest in (1, 128, 129, 300, 510)] == [128, 128, 256, 448, 448]
    wide = network("llama", window=100_000)
    assert [probe_depth(wide, deepest) for deepest in (5, 600, 90_000)] == [128, 128, 128]
    switching = network("llama", rope_parameters=STRETCHED, max_position_embeddings=200)
    assert [probe_depth(switching, deepest) for deepest in (100, 150, 200, 201)] == [128, 200, 200, 248]
    assert check(switching, deepest=200).rung == "tree"
    assert check(switching, deepest=201).rung not in ("tree", "mask", "prefix")


def test_deeper_questions_are_checked_when_they_are_asked() -> None:
    network = tiny("llama", rope_parameters=STRETCHED, max_position_embeddings=200)
    model = LocalModel(network, ByteTokenizer(), name="tiny", digest="0" * 64, window=400)
    assert model.check(0) is None
    random, exact = np.random.default_rng(0), ("sequence", "plain")
    for depth, rungs_taken in ((40, ("tree",)), (190, ("tree",)), (300, exact), (60, exact)):
        span = Span(random.integers(0, VOCABULARY, depth, dtype=np.int32), np.asarray([3, 4], dtype=np.int32))
        ((_, seen),) = model.answer([span])
        np.testing.assert_allclose(seen.logprobs, plain.score(network, VOCABULARY, span).logprobs, atol=1e-4)
        assert model.selfcheck.rung in rungs_taken
    assert model.selfcheck.depth == 248


def real_spans(folder: Path, limit: int) -> list[Span]:
    """What the options of some bundled questions ask of a model, each as a continuation of the question."""
    model, items = load_model(folder, device="cpu"), open_dataset(BENCHMARK).splits["test"]
    protocol, asked = resolve("mmlu/cloze")["mmlu/cloze:sum"], PreparedBlock()
    for subject in sorted({item.subject for item in items}):
        some = [item for item in items if item.subject == subject][:limit]
        add_requests(asked, protocol, [render(protocol, item, ()) for item in some], model)
    return [question for question in asked.wanted.values() if isinstance(question, Span)]


@pytest.mark.parametrize("folder", MODELS, ids=lambda folder: folder.name)
@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
def test_the_noise_holds_for_real_options(folder: Path, dtype: str) -> None:
    """Of options, 99 % differ by less: the path taken from one sequence at a time, and both from float32.

    Of 300 options at least as many differ by less as where 99 % truly do in 1,999 of 2,000 draws.
    """

    def summed(scores: Iterable[TokenScores]) -> Any:
        return np.asarray([each.logprobs.sum(dtype=np.float64) for each in scores])

    spans = real_spans(folder, 12)[:300]
    assert len(spans) == 300
    model, exact = (load(folder, dtype=each, device="cpu") for each in (dtype, "float32"))
    ways = [summed(scores for _, scores in sorted(model.answer(spans), key=lambda answer: answer[0]))]
    ways += [summed(plain.score(way.model, way.vocabulary, span) for span in spans) for way in (model, exact)]
    bound = model.selfcheck.noise * np.sqrt([len(span.continuation) for span in spans])
    for one, other in combinations(ways, 2):
        assert (np.abs(one - other) <= bound).sum() >= binom.ppf(1 / 2000, len(spans), 0.99)
    assert np.abs(ways[0] - ways[2]).max() > bound.min() / 20, "a bound that says nothing"
