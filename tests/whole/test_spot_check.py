"""Spot checks: the noise of a run is measured on its own questions, and a path that is wrong on them is refused."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from choicewise.bundled import MODELS
from choicewise.engine import build
from choicewise.errors import ModelError
from choicewise.models.load import load_model
from choicewise.models.local import attention, plain
from choicewise.models.local.causal_lm import CausalLM
from choicewise.models.local.folder_model import FolderModel
from choicewise.models.local.local_model import LocalModel
from choicewise.models.local.paths import TreePath
from choicewise.models.local.plain import SIGMAS
from choicewise.models.local.selfcheck import ENOUGH, LEAST, SHARE, SpotCheck
from choicewise.questions import Generation, Mass, Sampling, Span, TokenSet
from choicewise.tokens.tokenizer import ByteTokenizer
from tests.helpers.tiny_models import VOCABULARY, tiny

NETWORK = tiny("llama")


def draw(random: np.random.Generator, tokens: int) -> np.ndarray:
    return random.integers(0, VOCABULARY, tokens, dtype=np.int32)


def local(network: Any = NETWORK, window: int = 512, rung: str = "auto") -> LocalModel:
    return LocalModel(network, ByteTokenizer(), name="tiny", digest="0" * 64, window=window, rung=rung)


def causal() -> CausalLM:
    return CausalLM(NETWORK, 512, VOCABULARY)


def prompts(seed: int, header: int, items: int, deep: int = 40) -> list[Span]:
    """Four letters after each of some questions with a common header."""
    random = np.random.default_rng(seed)
    before, letters = draw(random, header), draw(random, 4)
    contexts = [np.concatenate([before, draw(random, deep)]) for _ in range(items)]
    return [Span(context, letters[choice : choice + 1]) for context in contexts for choice in range(4)]


@settings(max_examples=5)
@given(seed=st.integers(0, 10**6), beyond=st.integers(0, 9))
def test_one_pass_gives_what_a_pass_for_each_span_gives(seed: int, beyond: int) -> None:
    random, lm = np.random.default_rng(seed), causal()
    context = draw(random, int(random.integers(1, 60)))
    own = [Span(context, draw(random, int(random.integers(1, 50)))) for _ in range(3)]
    others = [Mass(context, TokenSet(np.asarray([1, 2], np.int32))), Generation(context, 1)]
    for text in SpotCheck(lm).texts([*own, *others]):
        expected = [plain.score(NETWORK, VOCABULARY, span).logprobs.cumsum(dtype=np.float64) for span in text.spans]
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
    assert lm.computed - before == len(build(questions))
    assert len(both) == len(questions) + len(extra)
    for index, answer in alone.items():
        np.testing.assert_allclose(answer.logprobs, both[index].logprobs, atol=1e-5)


@pytest.mark.parametrize("shape", [(600, 100, 300), (0, 40, 700)], ids=["shots", "no shots"])
def test_a_run_of_100_000_tokens_spends_at_most_a_twentieth_on_checks(shape: tuple[int, int, int]) -> None:
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


def test_a_short_run_is_compared_in_part_at_least() -> None:
    model = local()
    assert len(list(model.answer(prompts(3, 400, 1)))) == 4
    assert model._spot_check._texts == 1
    assert model.selfcheck.noise > 0, "that of the probe: a single text is computed as the plain path does"


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

    def near(tree: Any, rows: np.ndarray, keys: np.ndarray, *rest: Any, **options: Any) -> np.ndarray:
        seen = visible(tree, rows, keys, *rest, **options)
        far = tree.depth[rows][:, None] - tree.depth[keys][None] > 150
        return seen & ~far

    monkeypatch.setattr(attention, "visible", near)


def test_a_path_that_is_wrong_on_the_runs_own_questions_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """The probe is not as deep as the questions, as nothing in the configuration looks that far."""
    questions, model = prompts(6, 300, 5), local()
    short_sighted(monkeypatch)
    with pytest.raises(ModelError, match=r"'tree' differs by .* nats .*Run the same command again.*path 'mask'"):
        list(model.answer(questions))
    assert model.selfcheck.trials[0].rung == "tree"
    for index, answer in model.answer(questions):
        expected = plain.score(NETWORK, VOCABULARY, questions[index]).logprobs
        np.testing.assert_allclose(answer.logprobs, expected, atol=1e-4)


def test_a_named_path_that_is_wrong_is_not_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    model = local(rung="tree")
    short_sighted(monkeypatch)
    for _ in range(2):
        with pytest.raises(ModelError, match="choose the rung auto"):
            list(model.answer(prompts(6, 300, 5)))


def test_sixteen_bits_are_held_to_their_float32_copy(monkeypatch: pytest.MonkeyPatch) -> None:
    model = local(tiny("llama").to(torch.bfloat16))
    assert len(list(model.answer(prompts(7, 300, 5)))) == 20
    assert model._spot_check.noise > 1e-3
    short_sighted(monkeypatch)
    with pytest.raises(ModelError, match="'tree' differs"):
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


def test_a_path_refused_by_a_run_is_not_taken_by_the_next_process(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    random = np.random.default_rng(0)
    questions = [Span(random.integers(0, 200, 400, dtype=np.int32), np.asarray([5], np.int32)) for _ in range(3)]
    short_sighted(monkeypatch)
    with pytest.raises(ModelError, match="Run the same command again"):
        list(loaded().answer(questions))
    later = loaded()
    assert len(list(later.answer(questions))) == 3
    assert later.check(0).rung == "mask"
