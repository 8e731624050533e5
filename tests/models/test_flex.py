"""The tree's attention by a rule: the same numbers as by masks, on every kind of reach."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from choicewise.engine import build, next_pack
from choicewise.models.local.attention import Reach, visible
from choicewise.models.local.causal_lm import CausalLM
from choicewise.models.local.paths import LADDER, FlexPath, block_mask, rungs
from choicewise.models.local.selfcheck import check
from choicewise.questions import Span
from tests.helpers.tiny_models import VOCABULARY, tiny

pytestmark = pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")


@pytest.mark.costly("networks are computed")
@pytest.mark.parametrize("family", ["llama", "mistral", "gemma2", "olmo3", "deepseek_v3"])
def test_the_rule_passes_the_self_check(family: str) -> None:
    lm = CausalLM(tiny(family), 512, VOCABULARY)
    found = check(lm, {"flex": LADDER["flex"]})
    assert found.rung == "flex"
    assert found.difference <= found.tolerance


def test_sinks_are_refused_and_the_next_rung_is_taken() -> None:
    lm = CausalLM(tiny("gpt_oss"), 512, VOCABULARY)
    found = check(lm, {name: LADDER[name] for name in ("flex", "tree")})
    assert [trial.rung for trial in found.trials] == ["flex", "tree"]
    assert "sinks" in str(found.trials[0].refused)


@pytest.mark.parametrize("reach", [Reach(), Reach(window=5), Reach(chunk=4)])
def test_the_rule_says_what_the_masks_say(reach: Reach) -> None:
    draw = np.random.default_rng(1)
    spans = [Span(draw.integers(0, 2, 12).astype(np.int32), draw.integers(0, 2, 4).astype(np.int32)) for _ in range(9)]
    tree = build(spans)
    first = next_pack(tree, 0, np.empty(0, dtype=np.int32), len(tree) // 2)
    pack = next_pack(tree, first.stop, first.nodes()[first.keep], len(tree))
    rule = block_mask(tree, pack, reach, torch.device("cpu")).mask_mod
    rows, places = np.arange(len(pack)), np.arange(len(pack.nodes()))
    none = torch.tensor(0)
    said = rule(none, none, torch.from_numpy(rows)[:, None], torch.from_numpy(places)[None, :]).numpy()
    assert np.array_equal(said, visible(tree, rows.astype(np.int32) + pack.start, pack.nodes(), reach))


def test_only_a_device_that_gains_from_it_tries_it() -> None:
    assert "flex" not in rungs("cpu")
    assert next(iter(rungs("cuda"))) == FlexPath.name
