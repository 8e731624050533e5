"""The boundary policies from question to number, on real models and tokenizers, against the model's own softmax."""

from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from choicewise import evaluate
from choicewise.errors import ModelError, ProtocolError
from choicewise.extensions.score.score_texts import score_texts
from choicewise.models.local.local_model import LocalModel
from choicewise.protocols.catalogue import resolve
from choicewise.protocols.protocol import BOUNDARIES, CORRECTED
from tests.helpers.mmlu_data import write_mmlu
from tests.helpers.observed import continuations, row
from tests.helpers.real_tokenizers import tokenizer_with_bos
from tests.helpers.tiny_models import load, real_model

QUESTION = ("Once upon a ti", ["me", "ger", "me there was"])


@cache
def random_model(name: str) -> LocalModel:
    """A random model for a real tokenizer; its short window makes the self-check short."""
    tokenizer = tokenizer_with_bos(f"tokenizers/{name}")
    torch.manual_seed(0)
    sizes = {
        "hidden_size": 16,
        "intermediate_size": 16,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
    }
    config = LlamaConfig(vocab_size=len(tokenizer.token_bytes), initializer_range=0.5, **sizes)
    model = LlamaForCausalLM(config).eval()
    return LocalModel(model, tokenizer, name=name, digest="0" * 64, window=24, rung="sequence")


@cache
def softmax_after(model: LocalModel, tokens: tuple[int, ...]) -> np.ndarray:
    with torch.inference_mode():
        logits = model.model(torch.tensor([tokens])).logits[0, -1].double()
    return torch.log_softmax(logits, dim=-1).numpy()


def softmax(model: LocalModel, tokens: Sequence[int]) -> np.ndarray:
    """Log-probabilities of the next token, float64."""
    return softmax_after(model, tuple(tokens))


def prefix_probability(model: LocalModel, tokens: Sequence[int], text: bytes) -> float:
    """P(text | tokens) by the definition of covering, one pass of the model per sequence."""
    if not text:
        return 1.0
    logprobs, (covering, inside) = softmax(model, tokens), beginnings(model, text)
    total = np.exp(logprobs[covering]).sum()
    for token in inside:
        left = text[len(model.tokenizer.token_bytes[token]) :]
        total += np.exp(logprobs[token]) * prefix_probability(model, [*tokens, token], left)
    return float(total)


@cache
def beginnings(model: LocalModel, text: bytes) -> tuple[list[int], list[int]]:
    """Tokens that spell ``text`` or more, and tokens that spell less of it."""
    table = [
        (token, spelled) for token, spelled in enumerate(model.tokenizer.token_bytes) if spelled
    ]
    covering = [token for token, spelled in table if spelled.startswith(text)]
    return covering, [
        token for token, spelled in table if text.startswith(spelled) and spelled != text
    ]


def encode(model: LocalModel, text: str) -> list[int]:
    return model.tokenizer.encode([text], special=True)[0].tolist()


def summed(model: LocalModel, context: str, choices: Sequence[str], boundary: str) -> list[float]:
    return score_texts(model, context, choices, boundary=boundary)["sum"].to_pylist()


def path(model: LocalModel, start: Sequence[int], tokens: Sequence[int]) -> float:
    return sum(
        softmax(model, [*start, *tokens[:place]])[token] for place, token in enumerate(tokens)
    )


@pytest.mark.costly("a pass of a network for every sequence of tokens that begins a text")
def test_a_merge_by_hand() -> None:
    """``ti`` + ``me``: the word is one token, so everything is scored from the tokens before it."""
    model = real_model()
    context, choices = QUESTION
    wholes = [encode(model, context + choice) for choice in choices]
    start = encode(model, "Once upon a")
    assert all(whole[: len(start)] == start for whole in wholes)
    plain = [path(model, start, whole[len(start) :]) for whole in wholes]
    assert summed(model, context, choices, "lcp") == pytest.approx(plain, abs=1e-4)
    exact = [
        np.log(prefix_probability(model, start, b" ti" + choice.encode()[:2])) for choice in choices
    ]
    rest = np.log(prefix_probability(model, start, b" ti"))
    found = summed(model, context, [choice[:2] for choice in choices], "bytes")
    assert found == pytest.approx([one - rest for one in exact], abs=1e-4)


def test_heal_and_word_by_hand() -> None:
    model = real_model()
    context, choices = QUESTION
    start, table = encode(model, "Once upon a"), model.tokenizer.token_bytes
    rest, sequences = b" ti", set()
    for tail in (encode(model, context), *(encode(model, context + choice) for choice in choices)):
        spelled = b""
        for place, token in enumerate(tail[len(start) :]):
            left = rest[len(spelled) :]
            sequences |= {
                (*tail[len(start) : len(start) + place], other)
                for other, part in enumerate(table)
                if left and part.startswith(left)
            }
            spelled += table[token]
            if not rest.startswith(spelled):
                break
    mass = sum(np.exp(path(model, start, sequence)) for sequence in sequences)
    lcp, heal = summed(model, context, choices, "lcp"), summed(model, context, choices, "heal")
    assert heal == pytest.approx([one - np.log(mass) for one in lcp], abs=1e-4)
    assert np.exp(heal[:2]).sum() <= 1 + 1e-6
    eos = model.tokenizer.eos_id
    white = [token for token, spelled in enumerate(table) if spelled[:1].isspace()] + [eos]
    begins = np.logaddexp.reduce(softmax(model, start)[white])
    expected = []
    for choice in (" time", " times"):
        tail = encode(model, "Once upon a" + choice)[len(start) :]
        ends = np.logaddexp.reduce(softmax(model, [*start, *tail])[white])
        expected.append(path(model, start, tail) + ends - begins)
    assert summed(model, "Once upon a", [" time", " times"], "word") == pytest.approx(
        expected, abs=1e-4
    )


@pytest.mark.costly(
    "large vocabularies, and a pass for every sequence of tokens that begins a text"
)
@pytest.mark.parametrize("name", ["gpt2", "gpt-neox-20b", "mistral-7b-v0.2"])
@pytest.mark.parametrize(
    ("context", "choices"),
    [("The h", ["e", "is"]), ("正", ["确", "常"]), ("👩\u200d", ["👧"]), ("foo(", ['")', "x)"])],
    ids=["english", "chinese", "emoji", "code"],
)
def test_exact_bytes_on_real_tokenizers(name: str, context: str, choices: list[str]) -> None:
    """Where the scored text is short enough to look at every sequence of tokens there is."""
    model = random_model(name)
    found = score_texts(model, context, choices, boundary="bytes")
    assert (
        found["tokens"].to_pylist()
        == found["bytes"].to_pylist()
        == [len(choice.encode()) for choice in choices]
    )
    wholes = [encode(model, context + choice) for choice in choices]
    own = encode(model, context)
    shared = 0
    while len({whole[shared] if shared < len(whole) else None for whole in [own, *wholes]}) == 1:
        shared += 1
    start = own[:shared]
    text = b"".join(model.tokenizer.token_bytes[token] for token in wholes[0][shared:])
    rest = text[: len(text) - len(choices[0].encode())]
    if shared == 0 or len(text) > 5:  # too many sequences to look at one by one
        assert np.isfinite(found["sum"].to_pylist()).all()
        return
    for choice, nats in zip(choices, found["sum"].to_pylist(), strict=True):
        both = [prefix_probability(model, start, part) for part in (rest + choice.encode(), rest)]
        assert nats == pytest.approx(np.log(both[0] / both[1]), abs=1e-3)


def test_raw_bytes_have_one_spelling(shared_data: Path) -> None:
    model = load(shared_data / "models" / "tiny-rwkv-4v0-660K", device="cpu", rung="plain")
    context, choices = "北", ["京", " x"]
    plain = summed(model, context, choices, "lcp")
    for boundary in ("heal", "bytes"):
        assert summed(model, context, choices, boundary) == pytest.approx(plain, abs=1e-3)


def test_score_tells_counts_and_flags() -> None:
    found = score_texts(real_model(), *QUESTION).to_pylist()
    assert [one["merged"] for one in found] == [True] * 3
    flags = [(one["bos"], one["unknown"], one["noncanonical"], one["lossy"]) for one in found]
    assert (flags, [one["words"] for one in found]) == ([(1, 0, False, False)] * 3, [1, 1, 3])
    with pytest.raises(ProtocolError, match="one of joint"):
        score_texts(real_model(), *QUESTION, boundary="healed")
    with pytest.raises(ModelError, match="begins inside a word"):
        score_texts(real_model(), "Once upon (", ["a"], boundary="word")


@pytest.mark.costly("half a second where the first of its file pays for imports")
def test_permuted_choices_have_permuted_scores() -> None:
    context, choices = QUESTION
    for boundary in BOUNDARIES:
        if boundary in ("joint", "moved-space", "count", "bytes"):
            continue  # the merge leaves nothing of a choice, or too long for bytes
        forward, backward = (
            summed(real_model(), context, order, boundary) for order in (choices, choices[::-1])
        )
        assert forward == pytest.approx(backward[::-1], abs=1e-5)


@pytest.mark.parametrize("boundary", CORRECTED)
def test_a_run_stores_what_its_scores_need(boundary: str, tmp_path: Path) -> None:
    """The scores of a run, from the stored observations alone, are those of the same question asked on the spot."""
    recipe = resolve("mmlu/cloze:sum")["mmlu/cloze:sum"]
    recipe = replace(
        recipe, boundary=boundary, shots=0, shot_split=None, limit=400, sampler="none", header=""
    )
    recipe = replace(recipe, question="Once upon a ti", continuation="me {letter}")
    if boundary == "word":
        recipe = replace(recipe, question="Once upon a", continuation=" {letter}")
    if boundary == "bytes":
        recipe = replace(recipe, continuation="m{letter}")
    data = write_mmlu(tmp_path / "data", subjects=("tides",), questions=1)
    run = evaluate(model=real_model(), data=data, protocols={"mine": recipe}, out=tmp_path / "run")
    found = [one["score"] for one in run.scores().to_pylist()]
    (request,) = run.tables.requests.to_pylist()
    assert found == pytest.approx(
        summed(real_model(), request["context"], request["continuations"], boundary), 1e-4
    )
    spans = run.tables.spans.to_pylist()
    assert all((span["before"] is None) == (boundary == "bytes") for span in spans)
    assert all((span["after"] is None) == (boundary != "word") for span in spans)
    shared = {"lcp": replace(recipe, boundary="lcp")}
    lcp = evaluate(model=real_model(), data=data, protocols=shared, out=tmp_path / "other")
    assert [one["score"] for one in lcp.scores().to_pylist()] != pytest.approx(found, abs=1e-6)


@pytest.mark.parametrize("boundary", CORRECTED)
@pytest.mark.parametrize(("model", "value"), [("fake:oracle", 1.0), ("fake:anti-oracle", 0.0)])
def test_oracles_stay_right_under_every_boundary(
    boundary: str, model: str, value: float, tmp_path: Path
) -> None:
    data = write_mmlu(tmp_path / "data")
    recipes = {
        name: replace(recipe, boundary=boundary)
        for name, recipe in resolve("mmlu/cloze").items()
        if recipe.null is None and not (boundary == "word" and recipe.score == "greedy")
    }
    short = {name: replace(recipe, continuation=" {letter}") for name, recipe in recipes.items()}
    run = evaluate(model=model, data=data, protocols=short, out=tmp_path / "run")
    assert {found.value for found in run.rows()} == {value}


def test_a_correction_goes_to_the_first_and_the_last_token() -> None:
    seen = continuations([[row(" ab", -1.0, -2.0, -3.0), row(" c", -4.0)], [row(" d")]])
    found = seen.corrected(np.asarray([0.5, 0.25, 9.0]), np.asarray([-1.0, -2.0, 9.0]))
    assert (found.logprobs.tolist(), found.counts.tolist()) == (
        [-0.5, -2.0, -4.0, -5.75],
        seen.counts.tolist(),
    )
    assert seen.corrected(np.zeros(3), np.zeros(3)) is seen
    assert np.isnan(seen.corrected(np.asarray([np.nan, 0, 0]), np.zeros(3)).sums[0])
