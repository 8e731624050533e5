"""The fast way, from evaluate and score, against the slow and obvious way of choicewise.reference."""

import math
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers
from hypothesis import given
from hypothesis import strategies as st

from choicewise import evaluate, load_model, reference
from choicewise.bundled import BENCHMARK, MODELS
from choicewise.errors import ModelError
from choicewise.extensions.score.score_texts import score_texts
from choicewise.models.fake import HashModel
from choicewise.models.model import Model
from choicewise.protocols.catalogue import resolve
from choicewise.questions import Span
from tests.helpers.answers import ids
from tests.helpers.toy_tokenizers import ToyModel, ToyTokenizer
from tests.paths import SHARED

PROTOCOLS = ["mmlu/original", "mmlu/cloze", "options/cloze"]
REAL = [folder for folder in MODELS if folder.name in ("merrow-bpe-512", "merrow-unigram-1000")]
REAL += [SHARED / "models" / "stories260K", SHARED / "models" / "babyllama-tok105"]
SCORES = ["sum", "pmi", *reference.LENGTHS]


def plain(
    model: Model, next_token: Callable[[tuple[int, ...]], Sequence[float]]
) -> reference.Model:
    """``model`` as the reference wants it, with ``next_token`` in place of its own arithmetic."""
    tokenizer, remembered = model.tokenizer, cache(next_token)
    start = tokenizer.eos_id if tokenizer.bos_id is None else tokenizer.bos_id
    assert start is not None
    return reference.Model(
        next_token=lambda tokens: remembered(tuple(tokens)),
        encode=lambda text: tokenizer.encode([text], special=True)[0].tolist(),
        token_bytes=tokenizer.token_bytes,
        start=start,
    )


def plain_hash(model: HashModel) -> reference.Model:
    """The fake's distributions, one single-token question per entry of the vocabulary."""

    def next_token(tokens: tuple[int, ...]) -> list[float]:
        spans = [Span(ids(*tokens), ids(token)) for token in range(257)]
        return [float(answer.logprobs[0]) for _, answer in model.answer(spans)]

    return plain(model, next_token)


def plain_transformers(folder: Path, model: Model) -> reference.Model:
    """The softmax of transformers itself, all tokens so far computed anew for every next one."""
    module = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()

    def next_token(tokens: tuple[int, ...]) -> list[float]:
        with torch.inference_mode():
            logits = module(torch.tensor([tokens])).logits[0, -1].double()
        return torch.log_softmax(logits, dim=-1).tolist()

    return plain(model, next_token)


def split_after_space(
    model: reference.Model, null: str, continuation: str
) -> tuple[list[int], list[int]]:
    """The tokens of a null context and continuation, where it ends with the space that the continuation begins with.
    The space counts to the null context, and both have the tokens that they have by themselves. Some tokenizers put a
    space before every text, so the continuation is encoded after a line break."""
    line_break = model.encode("\n")
    return model.encode(null), model.encode("\n" + continuation.removeprefix(" "))[
        len(line_break) :
    ]


def score_after_null(model: reference.Model, null: str, continuation: str) -> reference.Choice:
    """After a null context that stands in place of one without a space at its end (Brown et al. 2020)."""
    if null.endswith(" ") and continuation.startswith(" "):
        return reference.read(model, continuation, *split_after_space(model, null, continuation))
    return reference.score(model, null, continuation)


def scores_of(
    model: reference.Model, name: str, null: str | None, choices: list[reference.Choice]
) -> list[float]:
    if name == "pmi":
        assert null is not None
        return [
            reference.pmi(choice, score_after_null(model, null, choice.text)) for choice in choices
        ]
    if name == "sum":
        return [reference.log_likelihood(choice) for choice in choices]
    return [reference.mean(name, model, choice) for choice in choices]


def compare(
    model: Model, slow: reference.Model, out: Path, tolerance: float, *subjects: str
) -> None:
    """Every score, prediction and accuracy of a run on one bundled question of each of ``subjects``."""
    covered = {
        name: recipe for name, recipe in resolve(*PROTOCOLS).items() if recipe.score in SCORES
    }
    run = evaluate(
        model=model, data=BENCHMARK, protocols=covered, out=out, subjects=[*subjects], limit=1
    )
    requests = {(row["prompt"], row["item"]): row for row in run.tables.requests.to_pylist()}
    table = run.scores().to_pylist()
    values = {row.identity.protocol: row.value for row in run.rows(by="micro")}
    for name, recipe in run.protocols.items():
        listed = 100 if recipe.outside == "top100=-100" else None
        asked = [
            request for (prompt, _), request in requests.items() if prompt == recipe.prompt_digest
        ]
        assert len(asked) == len(subjects)
        predictions = []
        for request in asked:
            rows = [
                row for row in table if (row["protocol"], row["item"]) == (name, request["item"])
            ]
            choices = [
                reference.score(slow, request["context"], text, listed)
                for text in request["continuations"]
            ]
            scores = scores_of(slow, recipe.score, recipe.null, choices)
            assert [row["score"] for row in rows] == pytest.approx(scores, abs=tolerance, rel=0), (
                name
            )
            assert {row["prediction"] for row in rows} == {reference.predict(scores)}, name
            predictions.append(reference.predict(scores))
        assert values[name] == reference.accuracy(
            predictions, [request["gold"][0] for request in asked]
        )


@pytest.mark.costly("the reference asks for every token of the vocabulary by itself")
def test_the_fake_agrees_exactly(tmp_path: Path) -> None:
    compare(HashModel(), plain_hash(HashModel()), tmp_path / "run", 1e-9, "food")


@pytest.mark.costly("the reference computes all tokens so far for every next one")
@pytest.mark.parametrize("folder", REAL, ids=lambda folder: folder.name)
def test_real_models_agree(folder: Path, tmp_path: Path) -> None:
    if not folder.is_dir():
        pytest.skip(f"no shared data at {SHARED}")
    model = load_model(str(folder), device="cpu")
    subjects = ("food", "trades") if folder == REAL[0] else ("trades",)
    compare(model, plain_transformers(folder, model), tmp_path / "run", 1e-4, *subjects)


@given(
    context=st.text("ab ", max_size=4),
    choices=st.lists(st.text("ab ", min_size=1, max_size=4), min_size=1),
)
def test_random_texts_agree(context: str, choices: list[str]) -> None:
    """With tokens that merge across the boundary."""
    model = ToyModel(ToyTokenizer((b" ", b"a", b"b", b"ab", b" a", b"ba", b"aab", b"")))
    slow = plain(model, lambda tokens: np.log(model.row(tokens)).tolist())
    expected = [reference.score(slow, context, choice) for choice in choices]
    if any(not choice.tokens for choice in expected):
        with pytest.raises(ModelError, match="leaves nothing to score"):
            score_texts(model, context, choices, boundary="joint")
        return
    table = score_texts(model, context, choices, boundary="joint")
    assert table["tokens"].to_pylist() == [len(choice.tokens) for choice in expected]
    for name in SCORES:
        if name.endswith("_bare") and any(choice == " " for choice in choices):
            continue  # nothing is left to divide by
        wanted = scores_of(slow, name, "", expected)
        if name == "pmi":  # after a merge the two sides may score other text
            sides = zip(
                expected, [reference.score(slow, "", choice) for choice in choices], strict=True
            )
            same = [alike(slow, *pair) for pair in sides]
            wanted = [pmi if equal else math.nan for pmi, equal in zip(wanted, same, strict=True)]
        assert table[name].to_pylist() == pytest.approx(wanted, abs=1e-5, nan_ok=True), name


def alike(model: reference.Model, one: reference.Choice, other: reference.Choice) -> bool:
    left, right = (
        b"".join(model.token_bytes[token] for token in side.tokens) for side in (one, other)
    )
    return left == right


def test_numbers_by_hand() -> None:
    """Two tokens of probability 1/2 and 1/4: every reduction in the head."""
    half, quarter = math.log(0.5), math.log(0.25)
    model = reference.Model(
        lambda _: [half, quarter, quarter], lambda text: [ord(c) % 3 for c in text], [b"xy"], 0
    )
    choice = reference.Choice(" é", [0, 1], [half, quarter])
    assert reference.log_likelihood(choice) == pytest.approx(3 * half)
    assert reference.mean("token_mean", model, choice) == pytest.approx(1.5 * half)
    assert reference.mean("byte_mean_bare", model, choice) == pytest.approx(1.5 * half)
    assert reference.mean("char_mean", model, choice) == pytest.approx(1.5 * half)
    assert reference.mean("char_mean_bare", model, choice) == pytest.approx(3 * half)
    assert reference.mean("byte_mean", model, choice._replace(tokens=[0])) == pytest.approx(
        1.5 * half
    )
    assert reference.pmi(choice, choice._replace(logprobs=[quarter])) == pytest.approx(half)
    assert (reference.split(model, "", "ab"), reference.split(model, "a ", "b")) == (
        ([0], [1, 2]),
        ([1, 2], [2]),
    )
    assert split_after_space(model, "a ", " b") == ([1, 2], [2])
    assert reference.score(model, "a", "c", listed=1).logprobs == [half]
    assert reference.score(model, "a", "b", listed=1).logprobs == [-100.0]
    assert (reference.predict([0.0, 2.0, 2.0]), reference.accuracy([0, 1, 2, 3], [0, 1, 3, 2])) == (
        1,
        0.5,
    )
