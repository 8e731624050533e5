"""The self-check takes the fastest rung that is right; spot checks measure the noise on a run's own questions. Both
refuse a path that is wrong, each fast path that is broken on purpose among them."""

from collections.abc import Iterable
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binom

from choicewise import load_model, open_dataset
from choicewise.bundled import BENCHMARK, MODELS
from choicewise.engine import build, next_pack, next_path
from choicewise.errors import ModelError
from choicewise.models.local import attention, causal_lm, paths, plain, selfcheck
from choicewise.models.local.attention import DecodePass
from choicewise.models.local.causal_lm import CausalLM
from choicewise.models.local.folder_model import FolderModel
from choicewise.models.local.local_model import LocalModel
from choicewise.models.local.paths import LADDER, PackedPath, TreePath, compute_path, rungs
from choicewise.models.local.plain import SIGMAS
from choicewise.models.local.selfcheck import BEYOND_REACH as BEYOND
from choicewise.models.local.selfcheck import (
    BRANCH,
    DEPTH,
    ENOUGH,
    EXACT,
    LEAST,
    SHARE,
    SpotCheck,
    probe,
    probe_depth,
)
from choicewise.models.model import SelfCheck, Trial
from choicewise.protocols.catalogue import resolve
from choicewise.questions import Generation, Mass, Sampling, Span, TokenScores, TokenSet
from choicewise.requests.prompters import add_prompts
from choicewise.requests.render import render
from choicewise.requests.request import PreparedBlock
from choicewise.tokens.tokenizer import ByteTokenizer
from tests.helpers.tiny_models import FAMILIES, VOCABULARY, load, tiny
from tests.paths import ROOT

TABLE = (ROOT / "docs" / "families.md").read_text()
RUNG_OF = dict(line.split(" | ")[:2] for line in TABLE.splitlines() if " | " in line)
STRETCHED = {"rope_type": "dynamic", "factor": 8.0, "rope_theta": 1e4}


def network(
    family: str, dtype: torch.dtype = torch.float32, window: int = 512, **changes: Any
) -> CausalLM:
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


def deaf(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, mask: torch.Tensor, options: Any
) -> torch.Tensor:
    """Attention that knows neither caps nor sinks."""
    return torch.nn.functional.scaled_dot_product_attention(
        query, key, value, attn_mask=mask, scale=options.scaling
    )


def forgetful(self: DecodePass, reach: Any) -> np.ndarray:
    """Generated tokens that see only themselves and the prompt."""
    before = attention.visible(
        self.tree, self.nodes, self.pack.nodes(), reach, ahead=self.tokens + 1
    )
    own = np.zeros((len(self.nodes), self.tokens + 1), dtype=bool)
    own[:, -1] = True
    return np.concatenate([before, own], axis=1)


def wrong_path(pack: Any) -> np.ndarray:
    """The last nodes of a pack instead of the ancestors of the next one."""
    return pack.nodes()[len(pack.nodes()) - len(pack.keep) :]


BROKEN: dict[str, tuple[str, str, Any, str, Any]] = {
    "subtree ends": ("llama", "tree", attention, "visible", blind),
    "windows": (
        "mistral",
        "tree",
        attention.Reach,
        "lowest",
        lambda self, depth: np.zeros_like(depth),
    ),
    "chunks": (
        "llama4_text",
        "tree",
        attention.Reach,
        "lowest",
        lambda self, depth: np.zeros_like(depth),
    ),
    "caps": ("gemma2", "tree", attention, "_step_by_step", deaf),
    "sinks": ("gpt_oss", "tree", attention, "_step_by_step", deaf),
    "positions": ("qwen2", "tree", PackedPath, "inputs", in_order),
    "path": ("llama", "tree", paths, "next_path", wrong_path),
    "generation": ("llama", "tree", DecodePass, "_visible", forgetful),
    "calls": ("llama", "tree", CausalLM, "layers", 3),
    "mask": ("falcon", "mask", paths, "visible", blind),
    "additive mask": ("gptj", "additive mask", paths, "visible", blind),
    "copied state": ("mamba2", "prefix", paths.copy, "deepcopy", lambda state: state),
    "needed state": ("bloom", "prefix", causal_lm, "STATES", ()),
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


def test_head_that_forgets_its_scale_is_refused_on_every_rung(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lm = network("granite")
    monkeypatch.setattr(
        CausalLM, "logits", lambda self, hidden: self.model.lm_head(hidden)[:, : self.vocabulary]
    )
    result = check(lm)
    assert (result.rung, result.difference) == ("plain", 0)
    with pytest.raises(ModelError, match="other numbers"):
        check(lm, {"sequence": LADDER["sequence"]})


@pytest.mark.parametrize(
    ("dtype", "advice"),
    [(torch.float32, "; download"), (torch.float16, " or too large for float16; try float32")],
)
def test_weights_that_are_not_numbers(dtype: torch.dtype, advice: str) -> None:
    lm = network("llama", dtype)
    with torch.no_grad():
        lm.model.model.layers[0].mlp.up_proj.weight[0, 0] = float("nan")
    with pytest.raises(ModelError, match=f"NaN or infinity: .*{advice}"):
        check(lm)


def test_probe_is_deeper_than_what_layers_see() -> None:
    assert probe_depth(network("llama")) == DEPTH
    assert probe_depth(network("mistral", sliding_window=300)) > 300
    assert probe_depth(network("llama4_text", attention_chunk_size=300)) > 300
    assert probe_depth(network("gpt_neo", window_size=300)) > 300
    longrope = {**STRETCHED, "factor": 2.0}
    assert (
        probe_depth(network("llama", rope_parameters=longrope, max_position_embeddings=400)) > 400
    )
    assert probe_depth(network("mistral", window=60)) == 60


@pytest.mark.parametrize("depth", [1, 2, 9, 40, DEPTH, 1000, 4096 + BEYOND, 8192 + BEYOND])
def test_probe_is_as_deep_as_it_says(depth: int) -> None:
    spans = probe(depth, VOCABULARY)
    assert all(len(span.context) and len(span.continuation) for span in spans)
    deepest = max(span.inputs for span in spans)
    assert deepest == depth if depth > 9 else deepest <= depth


@given(depth=st.integers(40, 400), vocabulary=st.integers(100, 50_000))
def test_some_pack_of_the_probe_begins_after_a_branch_that_is_not_its_past(
    depth: int, vocabulary: int
) -> None:
    tree = build(probe(depth, vocabulary))
    start, path, jumps = 0, np.empty(0, dtype=np.int32), 0
    while start < len(tree):
        pack = next_pack(tree, start, path, depth // BRANCH)
        start, path = pack.stop, next_path(pack)
        jumps += len(path) > 0 and not np.array_equal(path, wrong_path(pack))
    assert jumps


def test_rotary_positions_that_depend_on_the_length_are_noticed() -> None:
    """Such angles depend on the whole sequence, so that not even a sequence may stand for its own beginning."""
    assert (
        check(network("llama", rope_parameters=STRETCHED, max_position_embeddings=100)).rung
        == "plain"
    )


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
    assert (check(lm).rung, len(list(compute_path("tree", lm, 64).score(spans)))) == (
        "tree",
        len(spans),
    )
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


WRONG = [
    (second, "not the likeliest one"),
    (ranked_lower, "generation has rank"),
]


@pytest.mark.parametrize(("wrong", "reason"), [*WRONG, (top, "not the drawn one")])
def test_a_wrong_choice_is_refused_whatever_its_score(
    wrong: Any, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The scores of generated tokens are those of other tokens than the likeliest."""
    monkeypatch.setattr(CausalLM, "choose", wrong)
    (refused,) = (trial.refused for trial in check(network("llama")).trials if trial.rung == "tree")
    assert reason in str(refused)


def test_a_probe_goes_no_deeper_than_the_questions() -> None:
    far = network("mistral", sliding_window=400)
    assert [probe_depth(far, deepest) for deepest in (1, 128, 129, 300, 510)] == [
        128,
        128,
        256,
        448,
        448,
    ]
    wide = network("llama", window=100_000)
    assert [probe_depth(wide, deepest) for deepest in (5, 600, 90_000)] == [128, 128, 128]
    switching = network("llama", rope_parameters=STRETCHED, max_position_embeddings=200)
    assert [probe_depth(switching, deepest) for deepest in (100, 150, 200, 201)] == [
        128,
        200,
        200,
        248,
    ]
    assert check(switching, deepest=200).rung == "tree"
    assert check(switching, deepest=201).rung not in ("tree", "mask", "prefix")


def test_deeper_questions_are_checked_when_they_are_asked() -> None:
    network = tiny("llama", rope_parameters=STRETCHED, max_position_embeddings=200)
    model = LocalModel(network, ByteTokenizer(), name="tiny", digest="0" * 64, window=400)
    assert model.check(0) is None
    random, exact = np.random.default_rng(0), ("sequence", "plain")
    for depth, rungs_taken in ((40, ("tree",)), (190, ("tree",)), (300, exact), (60, exact)):
        span = Span(
            random.integers(0, VOCABULARY, depth, dtype=np.int32),
            np.asarray([3, 4], dtype=np.int32),
        )
        ((_, seen),) = model.answer([span])
        np.testing.assert_allclose(
            seen.logprobs, plain.score(network, VOCABULARY, span).logprobs, atol=1e-4
        )
        assert model.selfcheck.rung in rungs_taken
    assert model.selfcheck.depth == 248


@pytest.mark.parametrize("folder", MODELS, ids=lambda folder: folder.name)
@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
def test_the_noise_holds_for_real_options(folder: Path, dtype: str) -> None:
    """Of options, 99 % differ by less: the path taken from one sequence at a time, and both from float32. Of 300
    options at least as many differ by less as where 99 % truly do in 1,999 of 2,000 draws."""

    def summed(scores: Iterable[TokenScores]) -> Any:
        return np.asarray([each.logprobs.sum(dtype=np.float64) for each in scores])

    protocol, asked, reader = (
        resolve("mmlu/cloze")["mmlu/cloze:sum"],
        PreparedBlock(),
        load_model(folder, device="cpu"),
    )
    for _, items in sorted(open_dataset(BENCHMARK).splits["test"].by_subject().items()):
        add_prompts(asked, protocol, [render(protocol, item, ()) for item in items[:12]], reader)
    spans = [question for question in asked.wanted.values() if isinstance(question, Span)][:300]
    assert len(spans) == 300
    model, exact = (load(folder, dtype=each, device="cpu") for each in (dtype, "float32"))
    ways = [
        summed(scores for _, scores in sorted(model.answer(spans), key=lambda answer: answer[0]))
    ]
    ways += [
        summed(plain.score(way.model, way.vocabulary, span) for span in spans)
        for way in (model, exact)
    ]
    bound = model.selfcheck.noise * np.sqrt([len(span.continuation) for span in spans])
    for one, other in combinations(ways, 2):
        assert (np.abs(one - other) <= bound).sum() >= binom.ppf(1 / 2000, len(spans), 0.99)
    assert np.abs(ways[0] - ways[2]).max() > bound.min() / 20, "a bound that says nothing"


NETWORK = tiny("llama")


def draw(random: np.random.Generator, tokens: int) -> np.ndarray:
    return random.integers(0, VOCABULARY, tokens, dtype=np.int32)


def local(network: Any = NETWORK, window: int = 512, rung: str = "auto") -> LocalModel:
    return LocalModel(
        network, ByteTokenizer(), name="tiny", digest="0" * 64, window=window, rung=rung
    )


def causal() -> CausalLM:
    return CausalLM(NETWORK, 512, VOCABULARY)


def prompts(seed: int, header: int, items: int, deep: int = 40) -> list[Span]:
    """Four letters after each of some questions with a common header."""
    random = np.random.default_rng(seed)
    before, letters = draw(random, header), draw(random, 4)
    contexts = [np.concatenate([before, draw(random, deep)]) for _ in range(items)]
    return [
        Span(context, letters[choice : choice + 1]) for context in contexts for choice in range(4)
    ]


@settings(max_examples=5)
@given(seed=st.integers(0, 10**6), beyond=st.integers(0, 9))
def test_one_pass_gives_what_a_pass_for_each_span_gives(seed: int, beyond: int) -> None:
    random, lm = np.random.default_rng(seed), causal()
    context = draw(random, int(random.integers(1, 60)))
    own = [Span(context, draw(random, int(random.integers(1, 50)))) for _ in range(3)]
    others = [Mass(context, TokenSet(np.asarray([1, 2], np.int32))), Generation(context, 1)]
    for text in SpotCheck(lm).texts([*own, *others]):
        expected = [
            plain.score(NETWORK, VOCABULARY, span).logprobs.cumsum(dtype=np.float64)
            for span in text.spans
        ]
        for one, other in zip(text.plain_sums(lm, beyond), expected, strict=True):
            np.testing.assert_allclose(one, other, atol=1e-4)


def test_letters_of_a_question_are_compared_together() -> None:
    texts = SpotCheck(causal()).texts(prompts(1, 20, 3))
    assert {(len(text.options), len(text.inputs)) for text in texts} == {(4, 60)}


def test_what_is_read_costs_no_token() -> None:
    questions, lm = prompts(2, 30, 6), causal()
    extra = [span for text in SpotCheck(lm).texts(questions) for span in text.spans]
    before, alone = lm.computed, dict(TreePath(lm, 64).score(questions))
    assert lm.computed - before == len(build(questions))
    before, both = lm.computed, dict(TreePath(lm, 64).score([*questions, *extra]))
    assert (lm.computed - before, len(both)) == (len(build(questions)), len(questions) + len(extra))
    for index, answer in alone.items():
        np.testing.assert_allclose(answer.logprobs, both[index].logprobs, atol=1e-5)


@pytest.mark.parametrize("shape", [(600, 100, 300), (0, 40, 700)], ids=["shots", "no shots"])
def test_a_run_of_100_000_tokens_spends_at_most_a_twentieth_on_checks(
    shape: tuple[int, int, int],
) -> None:
    (header, deep, items), asked, seed = shape, 0, 0
    model = local(tiny("llama", num_hidden_layers=1), window=1024)
    while asked < 100_000:
        questions = prompts(seed, header, items, deep)
        asked, seed = asked + len(build(questions)), seed + 1
        assert len(list(model.answer(questions))) == len(questions)
    assert model.computed - asked + model._spot_check.tokens <= 0.05 * asked
    assert model._spot_check.tokens <= max(SHARE * model.computed, LEAST, ENOUGH * (header + deep))
    assert model.selfcheck is not None
    assert model._spot_check._texts >= 2


def test_a_gpu_spends_as_much_time_on_checks_and_copies_the_weights_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """In float32 a token takes it fifteen times as long as in bfloat16: at most 0.2 % of the tokens."""
    copies = []
    made = selfcheck._float32_copy

    def counted(lm: CausalLM) -> CausalLM | None:
        copies.append(lm)
        return made(lm)

    monkeypatch.setattr(selfcheck, "_float32_copy", counted)
    model = local(tiny("llama", num_hidden_layers=1).to(torch.bfloat16), window=1024)
    check = model._spot_check
    for seed in range(4):
        questions = prompts(seed, 300, 200, 60)
        assert len(list(model.answer(questions))) == len(questions)
    assert copies.count(model.lm) == 2, "one of the self-check, one of the run"
    many = 10**7
    assert check._affords(int(SHARE * many), ENOUGH, many)
    assert not check._affords(int(SHARE * many) + 1, ENOUGH, many)
    monkeypatch.setattr(model.lm, "device", torch.device("cuda"))
    assert check._affords(int(0.001 * many), ENOUGH, many)
    assert not check._affords(int(0.002 * many), ENOUGH, many)


def test_a_short_run_is_compared_in_part_at_least() -> None:
    model = local()
    assert (len(list(model.answer(prompts(3, 400, 1)))), model._spot_check._texts) == (4, 1)
    assert model.selfcheck.noise > 0, (
        "that of the probe: a single text is computed as the plain path does"
    )


def test_noise_is_six_standard_deviations_of_the_errors(monkeypatch: pytest.MonkeyPatch) -> None:
    """Errors of a known size are put into every answer."""
    random, score = np.random.default_rng(0), TreePath.score

    def noisy(self: TreePath, questions: Any) -> Any:
        for index, answer in score(self, questions):
            error = random.normal(0, 1e-5, len(answer.logprobs)).astype(np.float32)
            yield index, type(answer)(answer.tokens, answer.logprobs + error, answer.ranks)

    model = local()
    assert len(list(model.answer(prompts(4, 20, 1)))) == 4
    exact = model._spot_check.noise
    monkeypatch.setattr(TreePath, "score", noisy)
    assert len(list(model.answer(prompts(4, 20, 60)))) == 240
    assert model._spot_check.noise == pytest.approx(np.hypot(exact, SIGMAS * 1e-5), rel=0.3)


@pytest.mark.parametrize("sampling", [None, Sampling(b"x")])
def test_generations_alone_are_compared_by_their_contexts(sampling: Sampling | None) -> None:
    random, model = np.random.default_rng(5), local()
    questions = [Generation(draw(random, 50), 4, (), sampling) for _ in range(5)]
    assert sorted(index for index, _ in model.answer(questions)) == [0, 1, 2, 3, 4]
    assert model._spot_check._texts == ENOUGH
    assert list(local().answer([Generation(draw(random, 50), 0)]))


def short_sighted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Attention that forgets, from depth 200 on, what no configuration says is forgotten."""
    visible = attention.visible

    def near(
        tree: Any, rows: np.ndarray, keys: np.ndarray, *rest: Any, **options: Any
    ) -> np.ndarray:
        seen = visible(tree, rows, keys, *rest, **options)
        return seen & ~(tree.depth[rows][:, None] - tree.depth[keys][None] > 150)

    monkeypatch.setattr(attention, "visible", near)


def test_a_path_that_is_wrong_on_the_runs_own_questions_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The probe is not as deep as the questions, as nothing in the configuration looks that far."""
    questions, model = prompts(6, 300, 5), local()
    short_sighted(monkeypatch)
    with pytest.raises(ModelError, match=r"path 'tree' is .* nats off .*path 'mask'"):
        list(model.answer(questions))
    assert model.selfcheck.trials[0].rung == "tree"
    for index, answer in model.answer(questions):
        expected = plain.score(NETWORK, VOCABULARY, questions[index]).logprobs
        np.testing.assert_allclose(answer.logprobs, expected, atol=1e-4)


def test_a_named_path_that_is_wrong_is_not_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    model = local(rung="tree")
    short_sighted(monkeypatch)
    for _ in range(2):
        with pytest.raises(ModelError, match="use rung auto"):
            list(model.answer(prompts(6, 300, 5)))


def test_sixteen_bits_are_held_to_their_float32_copy(monkeypatch: pytest.MonkeyPatch) -> None:
    model = local(tiny("llama").to(torch.bfloat16))
    assert len(list(model.answer(prompts(7, 300, 5)))) == 20
    assert model._spot_check.noise > 1e-3
    short_sighted(monkeypatch)
    with pytest.raises(ModelError, match=r"path 'tree' is .* nats off"):
        list(local(tiny("llama").to(torch.bfloat16)).answer(prompts(7, 300, 5)))


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "choicewise" / "paths"


def loaded(**options: Any) -> FolderModel:
    return load_model(MODELS[0], device="cpu", **options)


def test_a_path_is_chosen_once_for_all_processes(cache: Path) -> None:
    first, second = loaded(), loaded()
    chosen = first.check(40)
    assert first.computed > 0
    assert second.check(40) == chosen is not None
    assert second.computed == 0
    (entry,) = cache.iterdir()
    before, third = entry.stat().st_mtime_ns, loaded()
    assert third.selfcheck is not None  # this one measures again, and replaces what is remembered
    assert (third.computed > 0, entry.stat().st_mtime_ns > before) == (True, True)
    assert loaded(dtype="bfloat16").check(40) != chosen
    assert len([*cache.iterdir()]) == 2
    assert loaded(window=100).check(40) != chosen


def test_a_damaged_entry_is_measured_anew(cache: Path) -> None:
    chosen = loaded().check(40)
    (entry,) = cache.iterdir()
    for damage in (b"", b"x\ny", b'{"rung": "tree"}', b"\xff\n"):
        entry.write_bytes(damage)
        model = loaded()
        assert model.check(40) == chosen
        assert model.computed > 0


def test_what_is_not_a_choice_is_not_remembered(cache: Path) -> None:
    assert loaded(rung="prefix").check(40) is not None
    loaded(trust_remote_code=True).check(40)
    assert not cache.exists()


def test_a_path_refused_by_a_run_is_not_taken_by_the_next_process(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    random = np.random.default_rng(0)
    questions = [
        Span(random.integers(0, 200, 400, dtype=np.int32), np.asarray([5], np.int32))
        for _ in range(3)
    ]
    short_sighted(monkeypatch)
    with pytest.raises(ModelError, match="Run the same command"):
        list(loaded().answer(questions))
    later = loaded()
    assert (len(list(later.answer(questions))), later.check(0).rung) == (3, "mask")
