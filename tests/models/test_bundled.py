"""What is bundled: the benchmark is what its generator declares, and the training text does not contain it. How the
models are trained: the lessons point where they should, and their losses are what they say."""

import csv
import itertools
import json
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from transformers import AutoConfig, LlamaConfig, LlamaForCausalLM

from choicewise import load_model, open_dataset
from choicewise.bundled import BENCHMARK, MODELS, PUBLISHED_MMLU
from choicewise.errors import DataError, ModelError
from tests.paths import ROOT

TRAINING = ROOT / "training"
MEBIBYTE = 2**20


def rows(split: str) -> dict[str, list[list[str]]]:
    """The questions of a split, by subject."""
    found = {}
    for path in sorted((BENCHMARK / split).glob("*.csv")):
        with path.open(newline="", encoding="utf-8") as file:
            found[path.stem.removesuffix(f"_{split}")] = list(csv.reader(file))
    return found


EVERY = [
    row
    for split in ("dev", "val", "test")
    for questions in rows(split).values()
    for row in questions
]


@pytest.fixture
def training(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The training script, importable for one test with what lies beside it."""
    monkeypatch.syspath_prepend(str(TRAINING))
    for path in TRAINING.glob("*.py"):
        monkeypatch.delitem(sys.modules, path.stem, raising=False)
    import train  # type: ignore[import-not-found]

    return train


def test_the_benchmark_has_enough_short_questions_none_twice_with_even_gold_letters() -> None:
    dev, val, test = rows("dev"), rows("val"), rows("test")
    assert dev.keys() == val.keys() == test.keys()
    assert len(test) >= 6
    assert {len(questions) for questions in dev.values()} == {5}
    assert min(len(questions) for questions in val.values()) >= 10
    assert sum(len(questions) for questions in test.values()) >= 300
    assert ({len(row) for row in EVERY}, len({row[0] for row in EVERY})) == ({6}, len(EVERY))
    assert all(len(set(row[1:5])) == 4 for row in EVERY)
    for subject, questions in test.items():
        counts = Counter(row[5] for row in questions)
        assert counts.keys() == set("ABCD"), subject
        assert max(counts.values()) - min(counts.values()) <= 1, subject
    assert max(len(row[0]) for row in EVERY) <= 120
    assert max(len(choice) for row in EVERY for choice in row[1:5]) <= 60


@pytest.mark.usefixtures("training")
def test_generator_writes_the_questions_again_byte_for_byte() -> None:
    from questions import files  # type: ignore[import-not-found]

    on_disk = {
        str(path.relative_to(BENCHMARK)): path.read_bytes() for path in BENCHMARK.glob("*/*.csv")
    }
    assert on_disk == {name: text.encode() for name, text in files().items()}


@pytest.mark.usefixtures("training")
def test_no_benchmark_question_is_in_the_training_text() -> None:
    from corpus import KINDS, documents, text  # type: ignore[import-not-found]
    from facts import fill, world  # type: ignore[import-not-found]

    every_kind = dict.fromkeys(KINDS, 1.0)
    sample = "".join(
        text(document) for document in itertools.islice(documents("train-1", every_kind), 2000)
    )
    every_training_sentence = "\n".join(
        fill(wording, *pair)
        for subject in world()
        for relation in subject.relations
        for wording in (*relation.prose, *relation.train)
        for pair in relation.pairs
    )
    assert not [row[0] for row in EVERY if row[0] in sample or row[0] in every_training_sentence]


def test_models_are_small_and_hold_no_pickle() -> None:
    files = [path for folder in MODELS for path in folder.iterdir()]
    assert len(MODELS) >= 4
    assert sum(path.stat().st_size for path in files) < 12 * MEBIBYTE
    assert {path.suffix for path in files} <= {".json", ".safetensors", ".md"}
    for folder in MODELS:
        assert {"config.json", "model.safetensors", "tokenizer.json", "README.md"} <= {
            p.name for p in folder.iterdir()
        }


def test_published_table_names_a_protocol_for_every_column() -> None:
    table = json.loads(PUBLISHED_MMLU.read_text(encoding="utf-8"))
    assert len(table["rows"]) == 8
    assert all(set(row) == {"model", *table["columns"]} for row in table["rows"])
    assert all(0 < row[column] < 1 for row in table["rows"] for column in table["columns"])


def test_what_is_bundled_has_names() -> None:
    assert open_dataset("bundled:merrowick").digest == open_dataset(BENCHMARK).digest
    with pytest.raises(DataError, match="bundled:x.*bundled:merrowick"):
        open_dataset("bundled:x")
    with pytest.raises(ModelError, match="bundled:x .* bundled:merrow-bpe-2048, "):
        load_model("bundled:x")
    for folder in MODELS:
        assert load_model(f"bundled:{folder.name}").digest == load_model(folder).digest


FOLDERS = {folder.name: folder for folder in MODELS}


def recipes(training: ModuleType) -> list[Any]:
    return [recipe for lane in training.LANES for recipe in lane]


def tokenizer_of(training: ModuleType, recipe: Any) -> Any:
    return training.Tokenizer.from_file(str(FOLDERS[recipe.name] / "tokenizer.json"))


def test_every_bundled_model_has_a_recipe_with_its_shape_and_its_documents(
    training: ModuleType,
) -> None:
    from corpus import KINDS, documents, text

    assert {recipe.name for recipe in recipes(training)} == FOLDERS.keys()
    for recipe in recipes(training):
        config = AutoConfig.from_pretrained(FOLDERS[recipe.name])
        shape = (
            config.hidden_size,
            config.intermediate_size,
            config.num_hidden_layers,
            config.num_attention_heads,
        )
        assert shape == (recipe.width, recipe.inner, recipe.layers, recipe.heads)
        assert (config.max_position_embeddings, config.vocab_size) == (
            recipe.window,
            recipe.vocabulary,
        )
        assert recipe.reads.keys() <= KINDS.keys()
        first, again = (
            [text(each) for each in itertools.islice(documents("a", recipe.reads), 50)]
            for _ in range(2)
        )
        assert first == again
        assert first != [text(each) for each in itertools.islice(documents("b", recipe.reads), 50)]


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
            assert f"{answer}." in tokenizer.decode(made.ids[row, first - 4 : last + 1].tolist()), (
                recipe.name
            )
        for (row, asked), named in made.recalled[:50]:
            if (row, asked) not in {place for place, *_ in made.matched}:
                assert int(made.ids[row, asked + 1]) in named


def test_a_token_weighs_what_the_piece_of_its_last_character_weighs(training: ModuleType) -> None:
    from corpus import documents, text  # type: ignore[import-not-found]
    from rows import encoded  # type: ignore[import-not-found]

    for recipe in recipes(training):
        tokenizer = tokenizer_of(training, recipe)
        for document in itertools.islice(documents("test", recipe.reads), 25):
            encoding = tokenizer.encode(text(document), add_special_tokens=False)
            by_character = [piece.weight for piece in document for _ in piece.text]
            expected = [0.0, *(by_character[end - 1] for _, end in encoding.offsets)]
            assert encoded(document, encoding, 1).weights() == expected


def test_the_losses_of_the_lessons_are_mean_negative_log_likelihoods(training: ModuleType) -> None:
    """Against a plain reference that goes through places one by one, with transformers' own attention."""
    from lessons import losses  # type: ignore[import-not-found]

    recipe = next(each for each in recipes(training) if each.lessons)
    tokenizer = tokenizer_of(training, recipe)
    made = training.rows(training.stream(recipe, tokenizer), 2, 200, training.Words(tokenizer))
    sizes = {
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": 4,
        "num_attention_heads": 2,
    }
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
        (
            float(made.weights[row, token]),
            -float(seen.logits[row, token - 1].log_softmax(-1)[made.ids[row, token]]),
        )
        for row in range(2)
        for token in range(1, 200)
    ]
    assert reached.tokens.item() == pytest.approx(
        sum(w * v for w, v in each) / sum(w for w, _ in each), rel=1e-4
    )
    label = [
        -seen.attentions[1][row, 0, token, letter].log().item()
        for (row, token), letter in made.labelled
    ]
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


@pytest.mark.costly("a network is trained, if for four steps")
def test_a_short_training_makes_a_model(
    training: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads = torch.get_num_threads()
    try:
        recipe = next(each for each in recipes(training) if each.lessons)
        small = {
            "width": 32,
            "inner": 48,
            "heads": 2,
            "batch": 512,
            "short": 256,
            "long": 512,
            "steps": 4,
        }
        training.train(replace(recipe, **small), tmp_path)
    finally:
        torch.set_num_threads(threads)
        torch.use_deterministic_algorithms(False)
    folder = tmp_path / recipe.name
    assert load_model(str(folder)).window == recipe.window
    told = (folder / "README.md").read_text(encoding="utf-8")
    assert "4 steps of 512 tokens" in told
    assert "watched" not in (folder / "config.json").read_text(encoding="utf-8")
    for lesson in ("names the words of the answer", "to its letter", "it stands for"):
        assert lesson in told
