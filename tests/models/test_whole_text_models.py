"""Masked models and encoder-decoders, against a few plain lines of transformers, minicons and the harness."""

import json
import math
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file

from choicewise import Run, evaluate, load_model, score
from choicewise.data.dataset import Dataset
from choicewise.data.items import Item
from choicewise.errors import ModelError, ProtocolError
from choicewise.extensions.run.plan import plan
from choicewise.models.fake import HashModel
from choicewise.models.local.files import CAUSAL, ENCODER_DECODER, MASKED, model_kind
from choicewise.models.local.folder_model import FolderModel
from choicewise.protocols.catalogue import resolve
from choicewise.questions import Blanks, Rendition, Span
from choicewise.running.job import Task
from choicewise.running.work import Work
from tests.helpers import whole_text_models
from tests.helpers.answers import assert_same_scores, ids, in_order
from tests.helpers.commands import choicewise
from tests.helpers.real_tokenizers import read_tokenizer
from tests.helpers.whole_text_models import digest
from tests.paths import GOLDENS

Saved = Callable[[str], Path]

GOLDEN: dict[str, Any] = json.loads((GOLDENS / "masked" / "numbers.json").read_text())
LINES = (GOLDENS / "masked" / "questions.jsonl").read_text(encoding="utf-8").splitlines()
ROWS = [json.loads(line) for line in LINES]
ITEMS = tuple(
    Item(row["id"], row["question"], tuple(row["choices"]), (row["answer"],)) for row in ROWS
)
QUIZ = Dataset("quiz", {"test": ITEMS})
MASKED_FAMILIES = sorted(whole_text_models.MASKED)
TWO_PART_FAMILIES = sorted(whole_text_models.ENCODER_DECODERS)
READINGS = ("pseudo-loglikelihood", "pseudo-loglikelihood-within-word")


def by_item(run: Run, protocol: str) -> list[list[float]]:
    rows = [row for row in run.scores().to_pylist() if row["protocol"] == protocol]
    return [[row["score"] for row in rows if row["item"] == item.id] for item in ITEMS]


def assert_near(ours: list[list[float]], theirs: list[list[float]], atol: float = 2e-4) -> None:
    """The same numbers, item by item."""
    for one, other in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(one, other, atol=atol)


@cache
def theirs(folder: Path) -> tuple[Any, Any]:
    """The tokenizer and the model as transformers loads them."""
    kind = model_kind(json.loads((folder / "config.json").read_text()))
    loader = (
        transformers.AutoModelForMaskedLM if kind == MASKED else transformers.AutoModelForSeq2SeqLM
    )
    return transformers.AutoTokenizer.from_pretrained(folder), loader.from_pretrained(folder).eval()


def masked_plainly(
    folder: Path, context: str, choice: str, within_word: bool = False
) -> list[float]:
    """log P of each token of ``choice``, one forward pass each, as the papers say it."""
    tokenizer, model = theirs(folder)
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


def decoded_plainly(
    folder: Path, context: str, continuation: str, special: bool = True
) -> list[float]:
    """log P of each token of ``continuation`` after the encoder has read ``context``."""
    tokenizer, model = theirs(folder)
    source = tokenizer(context, add_special_tokens=special)["input_ids"]
    target = tokenizer(continuation, add_special_tokens=False)["input_ids"]
    with torch.no_grad():
        logits = (
            model(input_ids=torch.tensor([source]), labels=torch.tensor([target]))
            .logits[0]
            .double()
        )
    return torch.log_softmax(logits, -1)[torch.arange(len(target)), target].tolist()


def summed(
    plainly: Callable[..., list[float]], folder: Path, space: str, *how: bool
) -> list[list[float]]:
    """What plain lines say of every choice of the quiz, as :func:`by_item` has it."""
    return [
        [
            sum(plainly(folder, f"Question: {item.question}\nAnswer:", f"{space}{choice}", *how))
            for choice in item.choices
        ]
        for item in ITEMS
    ]


@pytest.mark.parametrize("family", MASKED_FAMILIES)
def test_a_masked_run_says_what_plain_lines_and_minicons_say(
    family: str, saved_model: Saved, tmp_path: Path
) -> None:
    folder = saved_model(family)
    run = evaluate(model=folder, data=QUIZ, protocols=["masked-lm"], out=tmp_path)
    for reading in READINGS:
        plain = summed(masked_plainly, folder, "", reading.endswith("word"))
        assert_near(by_item(run, f"masked-lm/{reading}:sum"), plain)
    if digest(folder) != GOLDEN["digests"][family]:
        pytest.skip(
            "this torch makes other weights of the same seed than the golden numbers are of"
        )
    for kind, numbers in GOLDEN["numbers"][family]["minicons"].items():
        assert_near(by_item(run, f"masked-lm/minicons:{kind}"), numbers)


@pytest.mark.parametrize("family", TWO_PART_FAMILIES)
def test_an_encoder_decoder_agrees_with_other_tools(
    family: str, saved_model: Saved, tmp_path: Path
) -> None:
    folder = saved_model(family)
    run = evaluate(model=folder, data=QUIZ, protocols=["encoder-decoder"], out=tmp_path)
    for name, special in (("lm-eval:acc", True), ("minicons:sum", False)):
        assert_near(
            by_item(run, f"encoder-decoder/{name}"), summed(decoded_plainly, folder, " ", special)
        )
    if digest(folder) != GOLDEN["digests"][family]:
        pytest.skip(
            "this torch makes other weights of the same seed than the golden numbers are of"
        )
    numbers = GOLDEN["numbers"][family]
    for kind in ("mean", "sum"):
        assert_near(by_item(run, f"encoder-decoder/minicons:{kind}"), numbers["minicons"][kind])
    sums, nulls = numbers["lm-eval"]["sum"], numbers["lm-eval"]["null"]
    assert_near(by_item(run, "encoder-decoder/lm-eval:acc"), sums)
    gains = [np.subtract(*pair).tolist() for pair in zip(sums, nulls, strict=True)]
    assert_near(by_item(run, "encoder-decoder/lm-eval:acc_mutual_info"), gains, 4e-4)


def test_minicons_resizes_a_model_whose_tokenizer_has_no_bos() -> None:
    """What the entry says that it does not reproduce: it departs for T5, not for BART."""
    found = {family: GOLDEN["numbers"][family]["minicons"] for family in TWO_PART_FAMILIES}
    differences = {
        family: max(
            np.abs(np.subtract(*pair)).max()
            for pair in zip(tools["sum"], tools["path-sum"], strict=True)
        )
        for family, tools in found.items()
    }
    assert differences["bart"] == 0
    assert differences["t5"] > 1e-3


def test_within_words_another_number_where_a_word_has_several_tokens(saved_model: Saved) -> None:
    one, several = set(), set()
    for reading in READINGS:
        table = score(
            saved_model("bert"),
            "What do herons catch?",
            [" small dog", " small fishes"],
            reading=reading,
        )
        first, second = table["sum"].to_pylist()
        one.add(first)
        several.add(round(second, 3))
    assert (len(one), len(several)) == (1, 2)


def test_score_says_how_it_read_and_leaves_out_what_has_no_meaning(saved_model: Saved) -> None:
    folder = saved_model("roberta")
    (row,) = score(folder, "What do herons catch?", [" small fishes"]).to_pylist()
    expected = masked_plainly(folder, "What do herons catch?", "small fishes")
    wanted = {
        "sum": sum(expected),
        "token_mean": sum(expected) / len(expected),
        "first_token": expected[0],
    }
    wanted["char_mean"] = sum(expected) / len(" small fishes")
    assert {name: row[name] for name in wanted} == pytest.approx(wanted, abs=2e-4)
    assert (row["reading"], row["tokens"]) == ("pseudo-loglikelihood", len(expected))
    assert math.isfinite(row["pmi"])
    assert "constrained_greedy" not in row
    (causal,) = score(HashModel(), "What?", [" fish"]).to_pylist()
    assert causal["reading"] == "loglikelihood"
    with pytest.raises(ProtocolError, match="boundary lcp or count, not heal"):
        score(folder, "What?", [" a"], boundary="heal")
    with pytest.raises(ProtocolError, match="reading of texts .* 'pll'"):
        score(folder, "What?", [" a"], reading="pll")
    folder = saved_model("t5")
    (row,) = score(folder, "What do herons catch?", [" small fishes"]).to_pylist()
    expected = decoded_plainly(folder, "What do herons catch?", " small fishes")
    assert (row["reading"], row["sum"]) == (
        "encoder-decoder",
        pytest.approx(sum(expected), abs=2e-4),
    )
    assert row["first_token"] == pytest.approx(expected[0], abs=2e-4)
    null = sum(decoded_plainly(folder, "</s>", " small fishes", False))
    assert row["pmi"] == pytest.approx(sum(expected) - null, abs=4e-4)
    with pytest.raises(ProtocolError, match="boundary separate, not lcp"):
        score(folder, "What?", [" a"], boundary="lcp")


@pytest.mark.parametrize(
    ("family", "reading"), [("roberta", "pseudo-loglikelihood"), ("t5", "encoder-decoder")]
)
def test_a_reading_that_the_model_does_not_take_is_refused(
    family: str, reading: str, saved_model: Saved
) -> None:
    with pytest.raises(ModelError, match=f"reading loglikelihood; it supports {reading}"):
        score(saved_model(family), "What?", [" a"], reading="loglikelihood")


def test_the_command_line_scores_and_says_what_can_be_asked(saved_model: Saved) -> None:
    folder = saved_model("bert")
    line = ("score", "--model", folder, "--context", "A heron", "--choice", " fish")
    assert "pseudo-loglikelihood" in choicewise(*line, code=0).stdout
    checked = json.loads(choicewise("check", "--model", folder, "--json").stdout)
    assert (checked["readings"], checked["rung"]) == ([*READINGS], "padded")
    assert 0 < checked["noise"] < 1e-3
    told = choicewise("check", "--model", folder).stdout
    assert f"readings of bert: {', '.join(READINGS)}" in " ".join(told.split())


@pytest.mark.parametrize("family", [*MASKED_FAMILIES, *TWO_PART_FAMILIES])
def test_padding_and_shared_sources_change_nothing_beyond_the_noise(
    family: str, saved_model: Saved
) -> None:
    model = FolderModel(saved_model(family), device="cpu")
    questions = model.local.probe()  # type: ignore[union-attr]
    for answer, question in zip(in_order(model.answer(questions)), questions, strict=True):
        alone = model.local.plain_scores(question)  # type: ignore[union-attr]
        np.testing.assert_allclose(answer.logprobs, alone.logprobs, atol=2e-4)
        np.testing.assert_array_equal(answer.tokens, question.continuation)
    assert model.selfcheck is not None
    assert (model.selfcheck.rung, model.planned) == ("padded", model.computed)


def test_a_small_batch_gives_the_same(saved_model: Saved) -> None:
    folder = saved_model("bert")
    small = FolderModel(folder, device="cpu", batch_tokens=20)
    plain = FolderModel(folder, device="cpu", rung="plain")
    questions = small.local.probe()  # type: ignore[union-attr]
    for left, right in zip(
        in_order(small.answer(questions)), in_order(plain.answer(questions)), strict=True
    ):
        np.testing.assert_allclose(left.logprobs, right.logprobs, atol=2e-4)
    assert plain.selfcheck is None
    with pytest.raises(ModelError, match="rung is 'flex'; .* auto, padded, plain"):
        FolderModel(folder, device="cpu", rung="flex").local  # noqa: B018


def test_wrong_padding_means_one_at_a_time(
    saved_model: Saved, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = FolderModel(saved_model("bert"), device="cpu")
    forward = model.local.model.forward
    monkeypatch.setattr(
        model.local.model, "forward", lambda input_ids, attention_mask=None: forward(input_ids)
    )
    assert model.selfcheck is not None
    assert (model.selfcheck.rung, model.selfcheck.trials[0].rung) == ("plain", "padded")
    question = Blanks(ids(5, 6, 7, 8), ids(1, 2), ids(2, 3), 4)
    alone = model.local.plain_scores(question)  # type: ignore[union-attr]
    assert_same_scores(in_order(model.answer([question])), [alone], atol=1e-5)


@pytest.mark.parametrize(
    ("family", "protocol", "reason"),
    [
        (
            "bert",
            "options/cloze",
            "reading loglikelihood .* with reading pseudo-loglikelihood or",
        ),
        ("bart", "options/cloze:sum", "with reading encoder-decoder"),
        (
            "",
            "masked-lm",
            "support Blanks, .* pseudo-loglikelihood",
        ),
    ],
)
def test_others_refuse_each_other(
    family: str, protocol: str, reason: str, saved_model: Saved, tmp_path: Path
) -> None:
    causal = HashModel()
    causal.supports = frozenset({Span})  # type: ignore[misc]
    with pytest.raises(ModelError, match=reason):
        evaluate(
            model=saved_model(family) if family else causal,
            data=QUIZ,
            protocols=[protocol],
            out=tmp_path,
        )


@pytest.mark.parametrize(
    ("family", "question", "reason"),
    [
        ("bert", Blanks(ids(5000), ids(0), ids(1), 4), "uses token 5000, .* only"),
        ("bert", Blanks(ids(*[0] * 200), ids(0), ids(1), 4), "200 tokens exceed the window"),
        ("bert", Span(ids(0), ids(0)), "masked model .* Span"),
        ("bart", Span(ids(5), ids(5)), "encoder-decoder .* Span"),
        ("bart", Rendition(ids(5), ids(5000)), "uses token 5000"),
        ("bart", Rendition(ids(*[0] * 129), ids(5)), "129 tokens exceed the window"),
    ],
)
def test_questions_of_another_kind_are_refused(
    family: str, question: Any, reason: str, saved_model: Saved
) -> None:
    with pytest.raises(ModelError, match=reason):
        list(FolderModel(saved_model(family), device="cpu").answer([question]))


def test_a_text_or_continuation_without_room_is_missing_with_its_reason(
    saved_model: Saved, tmp_path: Path
) -> None:
    long = Dataset("long", {"test": (*ITEMS[:1], Item("2", "frog " * 300, ("fish", "dog"), (0,)))})
    run = evaluate(
        model=saved_model("bert"),
        data=long,
        protocols=["masked-lm/minicons"],
        out=tmp_path / "text",
    )
    assert {row.counts.missing for row in run.rows()} == {1}
    (reason,) = {reason.reason for row in run.rows() for reason in row.missing_reasons}
    assert "too long" in reason
    with pytest.raises(ModelError, match="fit the window"):
        score(saved_model("bert"), "frog " * 300, [" fish"])
    data = Dataset("long", {"test": (Item("1", "heron", ("fish " * 200, "dog"), (0,)),)})
    run = evaluate(
        model=saved_model("t5"),
        data=data,
        protocols=["encoder-decoder/minicons"],
        out=tmp_path / "end",
    )
    assert {(row.counts.n, row.counts.missing) for row in run.rows()} == {(0, 1)}
    assert "fit the window" in str([row.missing_reasons for row in run.rows()])


@pytest.mark.parametrize(("room", "missing"), [(0, 1), (1, 0)])
def test_the_last_token_and_the_end_need_room(
    room: int, missing: int, saved_model: Saved, tmp_path: Path
) -> None:
    folder = saved_model("bert")
    (tokens,) = FolderModel(folder).tokenizer.encode(
        ["Question: heron frog\nAnswer: fishes"], special=True
    )
    model = FolderModel(folder, device="cpu", window=len(tokens) - 1 + room)
    data = Dataset("short", {"test": (Item("1", "heron frog", ("fishes", "fish"), (0,)),)})
    run = evaluate(
        model=model, data=data, protocols=["masked-lm/pseudo-loglikelihood:sum"], out=tmp_path
    )
    assert [row.counts.missing for row in run.rows()] == [missing]


def test_a_long_source_is_cut_at_its_start_or_missing(saved_model: Saved, tmp_path: Path) -> None:
    folder = saved_model("t5")
    data = Dataset("long", {"test": (Item("1", "heron frog fish water", ("fish", "dog"), (0,)),)})
    cut = replace(resolve("encoder-decoder/lm-eval:acc")["encoder-decoder/lm-eval:acc"], limit=6)
    protocols = {"cut": cut, "refused": replace(cut, fit="refuse")}
    run = evaluate(model=folder, data=data, protocols=protocols, out=tmp_path)
    assert {row.identity.protocol: row.counts.missing for row in run.rows()} == {
        "cut": 0,
        "refused": 1,
    }
    tokenizer = FolderModel(folder).tokenizer
    (source,) = tokenizer.encode(["Question: heron frog fish water\nAnswer:"], special=True)
    (target,) = tokenizer.encode([" fish"], special=False)
    ((_, answer),) = FolderModel(folder, device="cpu").answer([Rendition(source[-6:], target)])
    (first, _) = [row["score"] for row in run.scores().to_pylist() if row["protocol"] == "cut"]
    assert first == pytest.approx(float(answer.logprobs.sum()), abs=1e-4)
    assert {row["tokens_dropped"] for row in run.observations().to_pylist() if row["key"]} >= {
        len(source) - 6
    }


@pytest.fixture
def copied(saved_model: Saved, tmp_path: Path) -> Iterator[Callable[[str], Path]]:
    """A copy of a model's folder, which a test may change."""
    return lambda family: shutil.copytree(saved_model(family), tmp_path / family)


def rewrite(file: Path, **changes: Any) -> None:
    """Other values in a file of JSON."""
    file.write_text(
        json.dumps({**json.loads(file.read_text(encoding="utf-8")), **changes}), encoding="utf-8"
    )


def test_a_model_without_a_start_and_a_tokenizer_without_a_mask_are_refused(copied: Saved) -> None:
    folder = copied("t5")
    rewrite(folder / "config.json", decoder_start_token_id=None)
    (folder / "generation_config.json").unlink(missing_ok=True)
    with pytest.raises(ModelError, match="has no decoder_start_token_id"):
        score(folder, "What?", [" fish"])
    folder = copied("roberta")
    for name in ("tokenizer.json", "tokenizer_config.json"):
        text = (folder / name).read_text(encoding="utf-8").replace("mask", "musk")
        (folder / name).write_text(text.replace("musk_token", "other_token"), encoding="utf-8")
    with pytest.raises(ModelError, match="no mask token.*mask_token"):
        score(folder, "What?", [" fish"])


def test_a_tokenizer_that_encloses_nothing_is_asked_so(copied: Saved, tmp_path: Path) -> None:
    folder = copied("bert")
    rewrite(folder / "tokenizer.json", post_processor=None)
    data = Dataset("one", {"test": (Item("1", "A heron", ("fish",), (0,)),)})
    name = "masked-lm/pseudo-loglikelihood:sum"
    (row,) = (
        evaluate(model=folder, data=data, protocols=[name], out=tmp_path / "run")
        .scores()
        .to_pylist()
    )
    model = load_model(folder)
    (tokens,) = model.tokenizer.encode(["Question: A heron Answer: fish"], special=False)
    place = ids(len(tokens) - 1)
    ((_, answer),) = model.answer([Blanks(tokens, place, place + 1, 4)])
    assert row["score"] == pytest.approx(float(answer.logprobs[0]), abs=1e-4)
    with pytest.raises(ModelError, match="BOS nor an EOS"):
        score(folder, "", [" fish"])


def test_text_that_the_tokenizer_loses_is_flagged(saved_model: Saved) -> None:
    rows = score(saved_model("bert"), "a heron", [" fish", " 猫", " Fish"]).to_pylist()
    assert ([row["unknown"] for row in rows], [row["lossy"] for row in rows]) == (
        [0, 1, 0],
        [False, True, True],
    )


def test_weights_of_another_head_are_refused_and_further_heads_are_not_missed(
    copied: Saved,
) -> None:
    folder = copied("electra")
    transformers.ElectraForPreTraining(
        transformers.AutoConfig.from_pretrained(folder)
    ).save_pretrained(folder)
    with pytest.raises(ModelError, match="would be random"):
        score(folder, "What?", [" fish"])
    folder = copied("bert")  # one head for tokens, and one that judges whole texts
    transformers.BertForPreTraining(
        transformers.AutoConfig.from_pretrained(folder)
    ).save_pretrained(folder)
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
def test_checkpoints_are_read_as_they_are_published(
    family: str, saved_model: Saved, copied: Saved
) -> None:
    folder = copied(family)
    weights = load_file(folder / "model.safetensors")
    if family == "bert":
        for new, old in {
            "LayerNorm.weight": "LayerNorm.gamma",
            "LayerNorm.bias": "LayerNorm.beta",
        }.items():
            weights = {name.replace(new, old): weight for name, weight in weights.items()}
    weights |= {name: torch.zeros(shape) for name, shape in PUBLISHED[family].items()}
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    ours, unchanged = (
        score(path, "A heron", [" fish"])["sum"].to_pylist()
        for path in (folder, saved_model(family))
    )
    assert ours == pytest.approx(unchanged, abs=1e-4)


def test_windows_are_the_positions_that_are_left_and_distances_are_no_limit(
    saved_model: Saved,
) -> None:
    assert [FolderModel(saved_model(family)).window for family in ("roberta", "bert", "t5")] == [
        128
    ] * 3
    assert FolderModel(saved_model("t5"), window=2048).window == 2048
    with pytest.raises(ModelError, match="has 128 positions"):
        FolderModel(saved_model("bart"), window=2048)


BERTS = "BertForMaskedLM", "BertForPreTraining"
OTHERS = {
    "llama": "LlamaForCausalLM",
    "gpt2": "GPT2LMHeadModel",
    "llava": "LlavaForConditionalGeneration",
}


@pytest.mark.parametrize(
    ("config", "kind"),
    [
        *(({"architectures": [name], "model_type": "bert"}, MASKED) for name in BERTS),
        ({"architectures": ["BertLMHeadModel"], "model_type": "bert", "is_decoder": True}, CAUSAL),
        *(({"architectures": [name], "model_type": kind}, CAUSAL) for kind, name in OTHERS.items()),
        (
            {"architectures": ["T5ForConditionalGeneration"], "is_encoder_decoder": True},
            ENCODER_DECODER,
        ),
        ({"architectures": ["BartForCausalLM"], "is_encoder_decoder": True}, CAUSAL),
        ({"model_type": "modernbert"}, MASKED),
        ({"architectures": None, "model_type": "llama"}, CAUSAL),
        ({}, CAUSAL),
    ],
)
def test_a_folder_says_which_kind_of_model_it_holds(config: dict[str, Any], kind: object) -> None:
    assert model_kind(config) == kind


@pytest.mark.parametrize(
    ("name", "words"),
    [
        (
            "bert-base-uncased",
            ["un", "##bel", "##ie", "##va", "##bly", "|don", "|'", "|t", "|stop", "|!"],
        ),
        ("gpt2", ["un", "bel", "iev", "ably", "| don", "|'t", "| stop", "|!"]),
        ("t5", ["▁", "un", "believ", "ably", "|▁don", "'", "t", "|▁stop", "!"]),
        ("mistral-7b-v0.2", ["▁un", "bel", "iev", "ably", "|▁don", "'", "t", "|▁stop", "!"]),
    ],
)
def test_words_are_what_the_tokenizer_splits_a_text_into(name: str, words: list[str]) -> None:
    tokenizer, text = read_tokenizer(f"tokenizers/{name}"), "unbelievably don't stop!"
    (tokens,), (numbers,) = tokenizer.encode([text], special=False), tokenizer.words([text])
    assert len(tokens) == len(numbers) == len(words)
    starts = [word.startswith("|") for word in words]
    assert [bool(step) for step in np.diff(numbers)] == starts[1:]


def test_the_mask_of_a_real_tokenizer_is_known() -> None:
    masks = [read_tokenizer(f"tokenizers/{name}").mask_id for name in ("bert-base-uncased", "gpt2")]
    assert masks == [103, None]


def test_a_fake_is_read_as_a_masked_model(tmp_path: Path) -> None:
    run = evaluate(
        model=HashModel(), data=QUIZ, protocols=["masked-lm", "encoder-decoder"], out=tmp_path
    )
    assert all(
        np.isfinite(np.concatenate(by_item(run, name))).all() for name in resolve("masked-lm")
    )
    assert by_item(run, "masked-lm/minicons:original-sum") != by_item(
        run, "masked-lm/minicons:within_word_l2r-sum"
    )


def test_flan_reads_the_first_step_of_the_decoder(saved_model: Saved, tmp_path: Path) -> None:
    """The published script in a few lines: the logits of tokenizer("A").input_ids[0] and so on at the first step."""
    folder, choices = saved_model("t5"), ("a fish", "the frog", "a dog", "her heron")
    questions = ("What do herons catch?", "Who?")
    items = tuple(
        Item(str(number), text, choices, (number,), "newts")
        for number, text in enumerate(questions)
    )
    shown = tuple(Item(f"dev {number}", "Frogs?", choices, (0,), "newts") for number in range(5))
    data = Dataset("mmlu", {"test": items, "dev": shown})
    model = FolderModel(folder, device="cpu", window=600)
    run = evaluate(model=model, data=data, protocols=["mmlu-flan/original"], out=tmp_path)
    tokenizer, network = theirs(folder)
    body = "{}\nA. a fish\nB. the frog\nC. a dog\nD. her heron\nAnswer:"
    shot = body.format("Frogs?") + " A\n\n"
    head = "The following are multiple choice questions (with answers) about  newts.\n\n" + shot * 5
    for item in items:
        source = tokenizer(head + body.format(item.question), return_tensors="pt").input_ids
        with torch.no_grad():
            logits = network(
                input_ids=source, decoder_input_ids=torch.tensor([[0]])
            ).logits.flatten()
        expected = torch.log_softmax(logits, -1)[
            [tokenizer(letter).input_ids[0] for letter in "ABCD"]
        ].tolist()
        ours = [row["score"] for row in run.scores().to_pylist() if row["item"] == item.id]
        np.testing.assert_allclose(ours, expected, atol=2e-4)


@pytest.mark.parametrize(
    ("family", "name"),
    [("bert", "masked-lm/pseudo-loglikelihood:sum"), ("t5", "encoder-decoder/minicons:sum")],
)
def test_a_plan_counts_every_pass(
    family: str, name: str, saved_model: Saved, tmp_path: Path
) -> None:
    model, protocols = FolderModel(saved_model(family), device="cpu"), resolve(name)
    planned = plan(Task(model, Work.of(model, QUIZ, protocols)), probe=False)
    model.check(1)
    before = model.computed
    evaluate(model=model, data=QUIZ, protocols=protocols, out=tmp_path)
    assert planned.tokens_asked == planned.tokens_unique == model.computed - before
