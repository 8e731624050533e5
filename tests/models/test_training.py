"""How the bundled models are trained: the lessons point where they should, and their losses are what they say."""

from __future__ import annotations

import itertools
import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from choicewise.bundled import MODELS
from tests.paths import ROOT

torch = pytest.importorskip("torch")

TRAINING = ROOT / "training"
OWN = [path.stem for path in TRAINING.glob("*.py")]


@pytest.fixture
def training(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The training script, importable for one test."""
    monkeypatch.syspath_prepend(str(TRAINING))
    for name in OWN:
        monkeypatch.delitem(sys.modules, name, raising=False)
    import train  # type: ignore[import-not-found]

    return train


def recipes(training: ModuleType) -> list[Any]:
    return [recipe for lane in training.LANES for recipe in lane]


def tokenizer_of(training: ModuleType, recipe: Any) -> Any:
    folder = next(folder for folder in MODELS if folder.name == recipe.name)
    return training.Tokenizer.from_file(str(folder / "tokenizer.json"))


def test_every_bundled_model_has_a_recipe_that_its_files_keep_to(training: ModuleType) -> None:
    from transformers import AutoConfig

    assert {recipe.name for recipe in recipes(training)} == {folder.name for folder in MODELS}
    for recipe in recipes(training):
        config = AutoConfig.from_pretrained(next(folder for folder in MODELS if folder.name == recipe.name))
        shape = config.hidden_size, config.intermediate_size, config.num_hidden_layers, config.num_attention_heads
        assert shape == (recipe.width, recipe.inner, recipe.layers, recipe.heads)
        assert (config.max_position_embeddings, config.vocab_size) == (recipe.window, recipe.vocabulary)


@pytest.mark.costly("networks are computed")
def test_lessons_point_at_letters_and_choices(training: ModuleType) -> None:
    for recipe in recipes(training):
        tokenizer = tokenizer_of(training, recipe)
        words = training.Words(tokenizer)
        made = training.rows(training.stream(recipe, tokenizer), 4, 512, words)
        pieces = [[tokenizer.id_to_token(token) for token in row] for row in made.ids.tolist()]
        for (row, token), letter in made.labelled:
            assert pieces[row][letter].strip(" .▁Ġ") in tuple("ABCD"), recipe.name
            assert 0 < token - letter < 150
        assert made.matched
        for (row, asked), first, last in made.matched:
            answer = pieces[row][asked + 1].strip("▁Ġ")
            line = tokenizer.decode(made.ids[row, first - 4 : last + 1].tolist())
            assert f"{answer}." in line, recipe.name
        for (row, asked), named in made.recalled[:50]:
            letters = {place for place, *_ in made.matched}
            if (row, asked) not in letters:
                assert int(made.ids[row, asked + 1]) in named


@pytest.mark.costly("networks are computed")
def test_a_token_weighs_what_the_piece_of_its_last_character_weighs(training: ModuleType) -> None:
    from corpus import documents, text  # type: ignore[import-not-found]
    from rows import encoded  # type: ignore[import-not-found]

    for recipe in recipes(training):
        tokenizer = tokenizer_of(training, recipe)
        for document in itertools.islice(documents("test", recipe.reads), 60):
            encoding = tokenizer.encode(text(document), add_special_tokens=False)
            by_character = [piece.weight for piece in document for _ in piece.text]
            expected = [0.0, *(by_character[end - 1] for _, end in encoding.offsets)]
            assert encoded(document, encoding, 1).weights() == expected


def test_the_losses_of_the_lessons_are_mean_negative_log_likelihoods(training: ModuleType) -> None:
    """Against a plain reference that goes through places one by one, with transformers' own attention."""
    from lessons import losses  # type: ignore[import-not-found]
    from transformers import LlamaConfig, LlamaForCausalLM

    recipe = next(each for each in recipes(training) if each.lessons)
    tokenizer = tokenizer_of(training, recipe)
    made = training.rows(training.stream(recipe, tokenizer), 2, 200, training.Words(tokenizer))
    sizes = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 4, "num_attention_heads": 2}
    config = LlamaConfig(**sizes, vocab_size=recipe.vocabulary, tie_word_embeddings=True)
    torch.manual_seed(0)
    config._attn_implementation = "watched"
    model = training.made(config)
    plain = LlamaForCausalLM(LlamaConfig(**vars(config) | {"attn_implementation": "eager"}))
    plain.load_state_dict(model.state_dict())
    plain.set_attn_implementation("eager")
    with torch.no_grad():
        reached = losses(model, made, recipe.lessons)
        seen = plain(input_ids=made.ids, output_attentions=True, output_hidden_states=True)
    each = [
        (float(made.weights[row, token]), -float(seen.logits[row, token - 1].log_softmax(-1)[made.ids[row, token]]))
        for row in range(2)
        for token in range(1, 200)
    ]
    assert reached.tokens.item() == pytest.approx(sum(w * v for w, v in each) / sum(w for w, _ in each), rel=1e-4)
    label = [-seen.attentions[1][row, 0, token, letter].log().item() for (row, token), letter in made.labelled]
    assert reached.label.item() == pytest.approx(sum(label) / len(label), rel=1e-4)
    match = [
        -seen.attentions[3][row, 0, asked, first : last + 1].sum().log().item()
        for (row, asked), first, last in made.matched
    ]
    assert reached.match.item() == pytest.approx(sum(match) / len(match), rel=1e-4)
    recall = []
    for (row, asked), words in made.recalled:
        state = seen.hidden_states[3][row, asked]
        scores = plain.lm_head.weight @ (state / state.square().mean().sqrt())
        recall.append(-scores.log_softmax(-1)[words].mean().item())
    assert reached.recall.item() == pytest.approx(sum(recall) / len(recall), rel=1e-3)


def test_the_same_seed_gives_the_same_documents_and_every_kind_comes(training: ModuleType) -> None:
    from corpus import KINDS, documents, text

    for recipe in recipes(training):
        assert recipe.reads.keys() <= KINDS.keys()
        first, again = ([text(each) for each in itertools.islice(documents("a", recipe.reads), 50)] for _ in range(2))
        assert first == again
        assert first != [text(each) for each in itertools.islice(documents("b", recipe.reads), 50)]


@pytest.mark.costly("networks are computed")
def test_a_short_training_writes_a_model_that_loads(
    training: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from choicewise.models.load import load_model

    threads = torch.get_num_threads()
    try:
        recipe = next(each for each in recipes(training) if each.lessons)
        small = {"width": 32, "inner": 48, "heads": 2, "batch": 512, "short": 256, "long": 512, "steps": 10}
        training.train(replace(recipe, **small), tmp_path)
    finally:
        torch.set_num_threads(threads)
        torch.use_deterministic_algorithms(False)
    folder = tmp_path / recipe.name
    assert load_model(str(folder)).window == recipe.window
    told = (folder / "README.md").read_text(encoding="utf-8")
    assert "10 steps of 512 tokens" in told
    assert "watched" not in (folder / "config.json").read_text(encoding="utf-8")
    for lesson in ("names the words of the answer", "to its letter", "it stands for"):
        assert lesson in told
