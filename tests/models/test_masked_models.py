"""Masked models: pseudo-log-likelihoods against a few plain lines of transformers, and against minicons."""

from __future__ import annotations

import json
import math
import shutil
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.helpers.commands import choicewise
from tests.paths import GOLDENS

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from choicewise import evaluate, load_model, score
from choicewise.data.dataset import Dataset
from choicewise.data.items import Item
from choicewise.errors import ModelError, ProtocolError
from choicewise.models.fake import HashModel
from choicewise.models.local.files import CAUSAL, ENCODER_DECODER, MASKED, model_kind
from choicewise.models.local.folder_model import FolderModel
from choicewise.models.local.tokenizer import HfTokenizer
from choicewise.protocols.catalogue import resolve
from choicewise.questions import Blanks, Span
from choicewise.running.plan import plan
from tests.helpers import whole_text_models
from tests.helpers.whole_text_models import digest, save_model
from tests.paths import SHARED

FOLDER = GOLDENS / "masked"
GOLDEN: dict[str, Any] = json.loads((FOLDER / "numbers.json").read_text())
QUESTIONS = [json.loads(line) for line in (FOLDER / "questions.jsonl").read_text(encoding="utf-8").splitlines()]
QUIZ = Dataset(
    "quiz",
    {"test": tuple(Item(row["id"], row["question"], tuple(row["choices"]), (row["answer"],)) for row in QUESTIONS)},
)
FAMILIES = sorted(whole_text_models.MASKED)
READINGS = ("pseudo-loglikelihood", "pseudo-loglikelihood-within-word")


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("masked")


@cache
def saved(folders: Path, family: str) -> Path:
    return save_model(family, folders / family)


def by_item(run: Any, protocol: str) -> list[list[float]]:
    rows = [row for row in run.scores().to_pylist() if row["protocol"] == protocol]
    return [[row["score"] for row in rows if row["item"] == item["id"]] for item in QUESTIONS]


def plainly(folder: Path, context: str, choice: str, within_word: bool) -> list[float]:
    """log P of each token of ``choice``, one forward pass each, as the papers say it, by transformers alone."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model = transformers.AutoModelForMaskedLM.from_pretrained(folder).eval()
    encoded = tokenizer(f"{context} {choice}")
    tokens, words = encoded["input_ids"], encoded.word_ids()
    found = []
    for place in range(len(tokenizer(context)["input_ids"]) - 1, len(tokens) - 1):
        row = list(tokens)
        row[place] = tokenizer.mask_token_id
        for later in range(place + 1, len(tokens) - 1):
            if within_word and words[later] == words[place]:
                row[later] = tokenizer.mask_token_id
        with torch.no_grad():
            logits = model(torch.tensor([row])).logits[0, place].double()
        found.append(float(torch.log_softmax(logits, -1)[tokens[place]]))
    return found


@pytest.mark.costly("networks are computed")
@pytest.mark.parametrize("family", FAMILIES)
def test_a_run_says_what_plain_lines_and_minicons_say(family: str, folders: Path, tmp_path: Path) -> None:
    folder = saved(folders, family)
    run = evaluate(model=folder, data=QUIZ, protocols=["masked-lm"], out=tmp_path)
    for reading in READINGS:
        within = reading.endswith("word")
        expected = [
            [
                sum(plainly(folder, f"Question: {item['question']}\nAnswer:", choice, within))
                for choice in item["choices"]
            ]
            for item in QUESTIONS
        ]
        for ours, plain in zip(by_item(run, f"masked-lm/{reading}:sum"), expected, strict=True):
            np.testing.assert_allclose(ours, plain, atol=2e-4)
    if digest(folder) != GOLDEN["digests"][family]:
        pytest.skip("this torch makes other weights of the same seed than the golden numbers are of")
    for kind, numbers in GOLDEN["numbers"][family]["minicons"].items():
        for ours, theirs in zip(by_item(run, f"masked-lm/minicons:{kind}"), numbers, strict=True):
            np.testing.assert_allclose(ours, theirs, atol=2e-4)


def test_within_words_another_number_where_a_word_has_several_tokens(folders: Path) -> None:
    folder = saved(folders, "bert")
    one, several = ({}, {})
    for reading in READINGS:
        rows = score(folder, "What do herons catch?", [" small dog", " small fishes"], reading=reading).to_pylist()
        one[reading], several[reading] = (row["sum"] for row in rows)
    assert len(set(one.values())) == 1
    assert len({round(value, 3) for value in several.values()}) == 2


def test_score_says_how_it_read_and_leaves_out_what_has_no_meaning(folders: Path) -> None:
    folder = saved(folders, "roberta")
    (row,) = score(folder, "What do herons catch?", [" small fishes"]).to_pylist()
    expected = plainly(folder, "What do herons catch?", "small fishes", within_word=False)
    assert row["reading"] == "pseudo-loglikelihood"
    assert row["sum"] == pytest.approx(sum(expected), abs=2e-4)
    assert row["token_mean"] == pytest.approx(sum(expected) / len(expected), abs=2e-4)
    assert row["char_mean"] == pytest.approx(sum(expected) / len(" small fishes"), abs=2e-4)
    assert row["first_token"] == pytest.approx(expected[0], abs=2e-4)
    assert row["tokens"] == len(expected)
    assert math.isfinite(row["pmi"])
    assert "constrained_greedy" not in row
    (causal,) = score(HashModel(), "What?", [" fish"]).to_pylist()
    assert causal["reading"] == "loglikelihood"
    with pytest.raises(ModelError, match="can't be asked with reading loglikelihood; it takes pseudo-loglikelihood"):
        score(folder, "What?", [" a"], reading="loglikelihood")
    with pytest.raises(ProtocolError, match="takes boundary lcp or count, not heal"):
        score(folder, "What?", [" a"], boundary="heal")
    with pytest.raises(ProtocolError, match="no reading of texts is called 'pll'"):
        score(folder, "What?", [" a"], reading="pll")


def test_the_command_line_scores_and_says_what_can_be_asked(folders: Path) -> None:
    folder = str(saved(folders, "bert"))
    said = choicewise("score", "--model", folder, "--context", "A heron", "--choice", " fish")
    assert said.code == 0
    assert "pseudo-loglikelihood" in said.stdout
    said = choicewise("check", "--model", folder, "--json")
    checked = json.loads(said.stdout)
    assert checked["readings"] == [*READINGS]
    assert checked["rung"] == "padded"
    assert 0 < checked["noise"] < 1e-3
    said = choicewise("check", "--model", folder)
    assert f"can be asked with: {', '.join(READINGS)}" in " ".join(said.stdout.split())


@pytest.mark.parametrize("family", FAMILIES)
def test_padding_changes_nothing_beyond_the_noise(family: str, folders: Path) -> None:
    model = FolderModel(saved(folders, family), device="cpu")
    questions = model.local.probe()  # type: ignore[union-attr]
    answers = dict(model.answer(questions))
    assert sorted(answers) == list(range(len(questions)))
    for index, question in enumerate(questions):
        alone = model.local.plain_scores(question)  # type: ignore[union-attr]
        np.testing.assert_allclose(answers[index].logprobs, alone.logprobs, atol=2e-4)
        np.testing.assert_array_equal(answers[index].tokens, question.continuation)
    assert model.selfcheck is not None
    assert model.selfcheck.rung == "padded"
    assert model.planned == model.computed


def test_a_small_batch_gives_the_same(folders: Path) -> None:
    folder = saved(folders, "bert")
    small = FolderModel(folder, device="cpu", batch_tokens=20)
    plain = FolderModel(folder, device="cpu", rung="plain")
    questions = small.local.probe()  # type: ignore[union-attr]
    left, right = dict(small.answer(questions)), dict(plain.answer(questions))
    for index in left:
        np.testing.assert_allclose(left[index].logprobs, right[index].logprobs, atol=2e-4)
    assert plain.selfcheck is None
    with pytest.raises(ModelError, match="rung is 'flex'; for MaskedLM it must be one of auto, padded, plain"):
        FolderModel(folder, device="cpu", rung="flex").local  # noqa: B018


def test_a_model_for_which_padding_is_wrong_is_asked_one_at_a_time(
    folders: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = FolderModel(saved(folders, "bert"), device="cpu")
    forward = model.local.model.forward
    monkeypatch.setattr(model.local.model, "forward", lambda input_ids, attention_mask=None: forward(input_ids))
    assert model.selfcheck is not None
    assert (model.selfcheck.rung, model.selfcheck.trials[0].rung) == ("plain", "padded")
    question = Blanks(np.arange(5, 9, dtype=np.int32), *np.asarray([[1, 2], [2, 3]], dtype=np.int32), 4)
    ((_, answer),) = model.answer([question])
    alone = model.local.plain_scores(question)  # type: ignore[union-attr]
    np.testing.assert_allclose(answer.logprobs, alone.logprobs, atol=1e-5)


def test_causal_protocols_and_masked_models_refuse_each_other_by_name(folders: Path, tmp_path: Path) -> None:
    masked = saved(folders, "bert")
    with pytest.raises(
        ModelError, match=r"Span, .*reading loglikelihood .* asked with reading pseudo-loglikelihood or"
    ):
        evaluate(model=masked, data=QUIZ, protocols=["options/cloze"], out=tmp_path / "one")
    causal = HashModel()
    causal.supports = frozenset({Span})  # type: ignore[misc]
    with pytest.raises(
        ModelError, match=r"fake:hash does not support Blanks, which reading pseudo-loglikelihood needs"
    ):
        evaluate(model=causal, data=QUIZ, protocols=["masked-lm"], out=tmp_path / "two")


def test_a_text_without_room_is_missing_with_its_reason(folders: Path, tmp_path: Path) -> None:
    long = Dataset("long", {"test": (*QUIZ.splits["test"][:1], Item("2", "frog " * 300, ("fish", "dog"), (0,)))})
    run = evaluate(model=saved(folders, "bert"), data=long, protocols=["masked-lm/minicons"], out=tmp_path)
    assert {row.missing for row in run.rows()} == {1}
    (reason,) = {reason.reason for row in run.rows() for reason in row.missing_reasons}
    assert "too long" in reason
    with pytest.raises(ModelError, match=r"tokens do not fit the window"):
        score(saved(folders, "bert"), "frog " * 300, [" fish"])


@pytest.mark.parametrize(("room", "missing"), [(0, 1), (1, 0)])
def test_the_last_token_and_those_that_end_the_text_need_room(
    room: int, missing: int, folders: Path, tmp_path: Path
) -> None:
    folder = saved(folders, "bert")
    context = "Question: heron frog\nAnswer:"
    tokens = len(FolderModel(folder).tokenizer.encode([f"{context} fishes"], special=True)[0])
    model = FolderModel(folder, device="cpu", window=tokens - 1 + room)
    data = Dataset("short", {"test": (Item("1", "heron frog", ("fishes", "fish"), (0,)),)})
    run = evaluate(model=model, data=data, protocols=["masked-lm/pseudo-loglikelihood:sum"], out=tmp_path)
    assert [row.missing for row in run.rows()] == [missing]


def test_a_tokenizer_without_a_mask_is_refused(folders: Path, tmp_path: Path) -> None:
    folder = tmp_path / "gpt-like"
    shutil.copytree(saved(folders, "roberta"), folder)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        text = (folder / name).read_text(encoding="utf-8").replace("mask", "musk")
        (folder / name).write_text(text.replace("musk_token", "other_token"), encoding="utf-8")
    with pytest.raises(ModelError, match=r"names no token that hides others.*mask_token"):
        score(folder, "What?", [" fish"])


def test_a_tokenizer_that_encloses_nothing_is_asked_so(folders: Path, tmp_path: Path) -> None:
    folder = tmp_path / "bare"
    shutil.copytree(saved(folders, "bert"), folder)
    content = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))
    content["post_processor"] = None
    (folder / "tokenizer.json").write_text(json.dumps(content), encoding="utf-8")
    data = Dataset("one", {"test": (Item("1", "A heron", ("fish",), (0,)),)})
    name = "masked-lm/pseudo-loglikelihood:sum"
    (row,) = evaluate(model=folder, data=data, protocols=[name], out=tmp_path / "run").scores().to_pylist()
    model = load_model(folder)
    (tokens,) = model.tokenizer.encode(["Question: A heron Answer: fish"], special=False)
    place = np.asarray([len(tokens) - 1], dtype=np.int32)
    ((_, answer),) = model.answer([Blanks(tokens, place, place + 1, 4)])
    assert row["score"] == pytest.approx(float(answer.logprobs[0]), abs=1e-4)
    with pytest.raises(ModelError, match="names neither a BOS nor an EOS"):
        score(folder, "", [" fish"])


def test_text_that_the_tokenizer_loses_is_flagged(folders: Path) -> None:
    rows = score(saved(folders, "bert"), "a heron", [" fish", " 猫", " Fish"]).to_pylist()
    assert [row["unknown"] for row in rows] == [0, 1, 0]
    assert [row["lossy"] for row in rows] == [False, True, True]


def test_a_tokenizer_or_weights_of_another_model_are_refused(folders: Path, tmp_path: Path) -> None:
    model = FolderModel(saved(folders, "bert"), device="cpu")
    one = np.asarray([0], dtype=np.int32)
    with pytest.raises(ModelError, match="uses token 5000, but the model knows only"):
        list(model.answer([Blanks(np.asarray([5000], dtype=np.int32), one, one + 1, 4)]))
    with pytest.raises(ModelError, match="200 tokens are too many"):
        list(model.answer([Blanks(np.zeros(200, dtype=np.int32), one, one + 1, 4)]))
    with pytest.raises(ModelError, match="is a masked model and can't answer Span"):
        list(model.answer([Span(one, one)]))
    folder = tmp_path / "discriminator"
    shutil.copytree(saved(folders, "electra"), folder)
    config = transformers.AutoConfig.from_pretrained(folder)
    transformers.ElectraForPreTraining(config).save_pretrained(folder)
    with pytest.raises(ModelError, match="would be random"):
        score(folder, "What?", [" fish"])


def test_heads_that_judge_whole_texts_are_not_missed(folders: Path, tmp_path: Path) -> None:
    folder = tmp_path / "whole"
    shutil.copytree(saved(folders, "bert"), folder)
    config = transformers.AutoConfig.from_pretrained(folder)
    model = transformers.BertForPreTraining(config)
    model.save_pretrained(folder)
    (row,) = score(folder, "What?", [" fish"]).to_pylist()
    assert math.isfinite(row["sum"])


PUBLISHED = {
    "bert": {
        **{"bert.pooler.dense.weight": (32, 32), "bert.pooler.dense.bias": (32,)},
        **{"cls.seq_relationship.weight": (2, 32), "cls.seq_relationship.bias": (2,)},
        "bert.embeddings.position_ids": (1, 128),
    },
    "roberta": {"roberta.embeddings.position_ids": (1, 130)},
    "albert": {"albert.pooler.weight": (32, 32), "sop_classifier.classifier.weight": (2, 32)},
    "t5": {"decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight": (32, 4)},
}
"""What published checkpoints hold besides the weights that scores need."""


@pytest.mark.parametrize("family", PUBLISHED)
def test_checkpoints_are_read_as_they_are_published(family: str, folders: Path, tmp_path: Path) -> None:
    safetensors = pytest.importorskip("safetensors.torch")
    folder = tmp_path / family
    shutil.copytree(saved(folders, family), folder)
    weights = safetensors.load_file(folder / "model.safetensors")
    if family == "bert":
        weights = {
            name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta"): weight
            for name, weight in weights.items()
        }
    weights |= {name: torch.zeros(shape) for name, shape in PUBLISHED[family].items()}
    safetensors.save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    ours, theirs = (score(path, "A heron", [" fish"])["sum"].to_pylist() for path in (folder, saved(folders, family)))
    assert ours == pytest.approx(theirs, abs=1e-4)


def test_positions_after_padding_are_not_used_up(folders: Path) -> None:
    assert FolderModel(saved(folders, "roberta")).window == 128
    assert FolderModel(saved(folders, "bert")).window == 128


@pytest.mark.parametrize(
    ("config", "kind"),
    [
        ({"architectures": ["BertForMaskedLM"], "model_type": "bert"}, MASKED),
        ({"architectures": ["BertForPreTraining"], "model_type": "bert"}, MASKED),
        ({"architectures": ["BertLMHeadModel"], "model_type": "bert", "is_decoder": True}, CAUSAL),
        ({"architectures": ["LlamaForCausalLM"], "model_type": "llama"}, CAUSAL),
        ({"architectures": ["GPT2LMHeadModel"], "model_type": "gpt2"}, CAUSAL),
        ({"architectures": ["T5ForConditionalGeneration"], "is_encoder_decoder": True}, ENCODER_DECODER),
        ({"architectures": ["BartForCausalLM"], "is_encoder_decoder": True}, CAUSAL),
        ({"architectures": ["LlavaForConditionalGeneration"], "model_type": "llava"}, CAUSAL),
        ({"model_type": "modernbert"}, MASKED),
        ({"architectures": None, "model_type": "llama"}, CAUSAL),
        ({}, CAUSAL),
    ],
)
def test_a_folder_says_which_kind_of_model_it_holds(config: dict[str, Any], kind: object) -> None:
    assert model_kind(config) == kind


@pytest.mark.costly("networks are computed")
@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("bert-base-uncased", ["un", "##bel", "##ie", "##va", "##bly", "|don", "|'", "|t", "|stop", "|!"]),
        ("gpt2", ["un", "bel", "iev", "ably", "| don", "|'t", "| stop", "|!"]),
        ("t5", ["▁", "un", "believ", "ably", "|▁don", "'", "t", "|▁stop", "!"]),
        ("mistral-7b-v0.2", ["▁un", "bel", "iev", "ably", "|▁don", "'", "t", "|▁stop", "!"]),
    ],
)
def test_words_are_what_the_tokenizer_splits_a_text_into(name: str, words: list[str], shared_data: Path) -> None:
    tokenizer = HfTokenizer(shared_data / "tokenizers" / name)
    text = "unbelievably don't stop!"
    (tokens,), (numbers,) = tokenizer.encode([text], special=False), tokenizer.words([text])
    assert len(tokens) == len(numbers) == len(words)
    starts = [word.startswith("|") for word in words]
    assert [bool(step) for step in np.diff(numbers)] == starts[1:]


def test_a_fake_is_read_as_a_masked_model(tmp_path: Path) -> None:
    run = evaluate(model=HashModel(), data=QUIZ, protocols=["masked-lm", "encoder-decoder"], out=tmp_path)
    assert all(
        np.isfinite([number for item in by_item(run, name) for number in item]).all() for name in resolve("masked-lm")
    )
    assert by_item(run, "masked-lm/minicons:original-sum") != by_item(run, "masked-lm/minicons:within_word_l2r-sum")


def test_a_plan_counts_every_pass(folders: Path, tmp_path: Path) -> None:
    model = FolderModel(saved(folders, "bert"), device="cpu")
    protocols = resolve("masked-lm/pseudo-loglikelihood:sum")
    planned = plan(model, QUIZ, protocols, probe=False)
    model.check(1)
    before = model.computed
    evaluate(model=model, data=QUIZ, protocols=protocols, out=tmp_path)
    assert planned.tokens_asked == planned.tokens_unique == model.computed - before


@pytest.mark.costly("networks are computed")
def test_the_real_tokenizer_of_bert_is_used_as_it_is(shared_data: Path) -> None:
    tokenizer = HfTokenizer(SHARED / "tokenizers" / "bert-base-uncased")
    assert tokenizer.mask_id == 103
    assert HfTokenizer(SHARED / "tokenizers" / "gpt2").mask_id is None
