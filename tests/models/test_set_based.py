"""Options as a set: the numbers of an explicit mask, in any order the same, and models that can't be asked so."""

import json
from dataclasses import replace
from itertools import permutations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import CONFIG_MAPPING

from choicewise import evaluate
from choicewise.data.dataset import Dataset
from choicewise.data.items import Item
from choicewise.errors import ModelError, ProtocolError
from choicewise.extensions.run.plan import unique_tokens
from choicewise.models.fake import HashModel
from choicewise.models.local.files import supported
from choicewise.models.local.folder_model import FolderModel
from choicewise.models.local.set_based import SetBasedPath
from choicewise.protocols.catalogue import one
from choicewise.questions import SetSpan
from choicewise.requests.prompters import add_prompts
from choicewise.requests.render import render, rendered_line, rendered_requests
from choicewise.requests.request import PreparedBlock
from tests.helpers.answers import ids, in_order
from tests.helpers.set_mask import set_logprobs
from tests.helpers.tiny_models import COMMON, FAMILIES, VOCABULARY, network, real_model

SIZES = st.tuples(
    st.integers(1, 60),
    st.lists(st.integers(0, 9), min_size=1, max_size=5),
    st.integers(1, 9),
    st.integers(1, 7),
)


def question(sizes: tuple[int, list[int], int, int], seed: int = 0) -> SetSpan:
    """Random tokens: so many before the options, in each of them, after them, and scored."""
    before, options, after, scored = sizes
    random = np.random.default_rng(seed)
    context, continuation = (
        random.integers(0, VOCABULARY, size, dtype=np.int32)
        for size in (before + sum(options) + after, scored)
    )
    return SetSpan(context, continuation, (before + np.cumsum([0, *options])).astype(np.int32))


@pytest.mark.costly("random questions on three networks")
@pytest.mark.parametrize(("family", "window"), [("llama", None), ("mistral", 32), ("gpt2", None)])
def test_scores_are_those_of_an_explicit_mask(family: str, window: int | None) -> None:
    lm = network(family)
    path = SetBasedPath(lm)

    @settings(max_examples=15, deadline=None)
    @given(SIZES, st.integers(0, 9))
    def compare(sizes: tuple[int, list[int], int, int], seed: int) -> None:
        asked = question(sizes, seed)
        other = replace(
            asked, continuation=ids(*range(6))
        )  # after the same context, and so in the same pass
        for found, each in zip(in_order(path.answer([asked, other])), (asked, other), strict=True):
            np.testing.assert_allclose(
                found.logprobs, set_logprobs(lm.model, each, window), atol=3e-5
            )
            assert found.tokens.tolist() == each.continuation.tolist()

    compare()


@pytest.mark.parametrize("family", ["llama", "mistral", "gpt2"])
def test_no_order_of_the_options_changes_a_sum(family: str) -> None:
    asked = question((40, [3, 1, 6, 2], 5, 6))
    orders = [asked.in_order(order) for order in permutations(range(4))]
    answers = in_order(SetBasedPath(network(family)).answer(orders))
    sums = [each.logprobs.sum(dtype=np.float64) for each in answers]
    assert len(sums) == 24
    assert np.ptp(sums) < 1e-5
    without = replace(asked, edges=ids(40, 52))  # one text: order matters
    turned = replace(asked.in_order((2, 0, 1, 3)), edges=ids(40, 52))
    one, other = (
        each.logprobs.sum()
        for each in in_order(SetBasedPath(network(family)).answer([without, turned]))
    )
    assert abs(one - other) > 1e-2


def test_models_with_recurrent_layers_are_refused_by_their_configuration() -> None:
    configs = {
        name: CONFIG_MAPPING[name.split()[0]](**{**COMMON, **own}).to_dict()
        for name, own in FAMILIES.items()
    }
    refused = {name for name, config in configs.items() if SetSpan not in supported(config)}
    recurrent = {
        "mamba",
        "mamba2",
        "rwkv",
        "jamba",
        "bamba",
        "falcon_h1",
        "qwen3_next",
        "recurrent_gemma",
    }
    assert refused == recurrent
    every = {"layer_types": ["attention"] * 4, "mamba_d_state": 8, "model_type": "granitemoe"}
    assert SetSpan in supported(every)


@pytest.mark.parametrize(
    ("family", "reason"),
    [
        ("mamba", "2 of its 2 layers"),
        ("jamba", "1 of its 2"),
        ("bloom", "layers take no mask"),
    ],
)
def test_what_a_model_can_not_read_is_missing_with_the_reason(family: str, reason: str) -> None:
    (answer,) = in_order(SetBasedPath(network(family)).answer([question((5, [2, 3], 2, 3))]))
    assert reason in (answer.missing or "")
    assert np.isnan(answer.logprobs).all()


def test_a_layer_that_looks_at_the_order_is_found_by_the_numbers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lm = network("llama")
    forward = lm.model.model.forward
    places = {"position_ids": None}  # positions are then places in the text
    monkeypatch.setattr(lm.model.model, "forward", lambda **inputs: forward(**{**inputs, **places}))
    assert "depend on the order" in (SetBasedPath(lm).objection or "")


ITEM = Item(
    "1", "What did Lily see?", ("a big red ball", "a dog", "your mom", "a dog and a cat"), (1,)
)


def sums(item: Item, out: Path, model: Any) -> dict[str, float]:
    run = evaluate(
        model=model, data=Dataset("d", {"test": (item,)}), protocols=["options/set-based"], out=out
    )
    return {item.choices[row["choice"]]: row["score"] for row in run.scores().to_pylist()}


@pytest.mark.costly("a self-check on a real model, and two runs")
def test_a_run_gives_every_option_the_same_sum_in_any_order(tmp_path: Path) -> None:
    turned = replace(ITEM, choices=ITEM.choices[::-1], gold=(2,))
    found, other = (
        sums(each, tmp_path / str(number), real_model())
        for number, each in enumerate((ITEM, turned))
    )
    assert found == pytest.approx(other, abs=1e-5)
    tokenizer, protocol = real_model().tokenizer, one("options/set-based").protocol
    lines = [tokenizer.encode([f'"{choice}" '], special=False)[0] for choice in ITEM.choices]
    (before,), (after,) = (
        tokenizer.encode([ITEM.question], special=True),
        tokenizer.encode(["Answer:"], special=False),
    )
    edges = len(before) + np.cumsum([0, *map(len, lines)])
    context = np.concatenate([before, *lines, after])
    for choice in ITEM.choices:
        scored = tokenizer.encode([f' "{choice}"'], special=False)[0]
        (answer,) = in_order(
            real_model().answer([SetSpan(context, scored, edges.astype(np.int32))])
        )
        assert found[choice] == pytest.approx(float(answer.logprobs.sum()), abs=1e-5)
    asking = PreparedBlock()
    add_prompts(asking, protocol, [render(protocol, ITEM, ())], real_model())
    computed, asked = real_model().computed, list(asking.wanted.values())
    assert len(in_order(real_model().answer(asked))) == 4  # type: ignore[arg-type]
    assert real_model().computed - computed == unique_tokens(asked, tokenizer) < asking.inputs


def test_a_fake_that_reads_text_sees_no_order(tmp_path: Path) -> None:
    turned = replace(ITEM, choices=ITEM.choices[::-1], gold=(2,))
    assert sums(ITEM, tmp_path / "1", HashModel()) == sums(turned, tmp_path / "2", HashModel())


@pytest.mark.costly("writes a model with a published tokenizer")
def test_a_folder_with_recurrent_layers_is_refused_before_it_is_loaded(
    saved_model: Any, tmp_path: Path
) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    for file in saved_model("gpt-neox-20b").iterdir():
        (folder / file.name).write_bytes(file.read_bytes())
    config = json.loads((folder / "config.json").read_text())
    kinds = ["linear_attention", "full_attention"]
    (folder / "config.json").write_text(json.dumps({**config, "layer_types": kinds}))
    with pytest.raises(ModelError, match="does not support SetSpan, which reading set-based needs"):
        sums(ITEM, tmp_path / "run", FolderModel(folder))


@pytest.mark.parametrize(
    ("axes", "message"),
    [
        ({"option": '{letter}. "{choice}" '}, "axis option has {letter}"),
        ({"continuation": " {letter}"}, "axis continuation has {letter}"),
        (
            {"question": "{question}"},
            "{options} exactly once",
        ),
        (
            {"question": "{question} {options}"},
            "{options} exactly once",
        ),
        ({"chat": "message"}, "axis chat is 'message'"),
        ({"proposal": " It is"}, "axis proposal is ' It is'"),
        ({"boundary": "joint"}, "reading set-based takes boundary separate, not joint"),
        ({"fit": "cut-start"}, "reading set-based takes fit drop-last-shot or refuse"),
    ],
)
def test_what_would_tell_an_order_is_refused(axes: dict[str, str], message: str) -> None:
    with pytest.raises(ProtocolError) as refused:
        replace(one("options/set-based").protocol, **axes)  # type: ignore[arg-type]
    assert message in str(refused.value)


@pytest.mark.parametrize("text", ["Why?", "{options}\x00\x01", "%s", '"a dog" "a dog" Answer:'])
def test_the_request_says_where_the_options_stand(text: str) -> None:
    protocol = replace(
        one("options/set-based").protocol, question="{{options}} {options}{question} 100 %", shots=0
    )
    request = render(protocol, replace(ITEM, question=text), ())
    assert request.listed == ('"a big red ball" ', '"a dog" ', '"your mom" ', '"a dog and a cat" ')
    assert request.after == f"{text} 100 %"
    line = rendered_line(request, "set-based")
    assert line["context"] == "{options} " + "".join(line["set"]["options"]) + line["set"]["after"]
    with pytest.raises(Exception, match="options as a set"):
        rendered_requests("them", [line])


SOURCE = (
    "Find the degree for the given field extension Q(sqrt(2), sqrt(3), sqrt(18)) over Q."
    '<|start_2d|>"0" <|split_2d|>"4" <|split_2d|>"2" <|split_2d|>"6" <|end_2d|>Answer: '
)
"""reidmcy/set-based-prompting@ea5b13c, data/mmlu_quoted/abstract_algebra_test.json, the first prompt."""


def test_the_prompt_has_the_parts_of_the_source() -> None:
    before, rest = SOURCE.split("<|start_2d|>")
    options, after = rest.split("<|end_2d|>")
    request = render(
        one("options/set-based").protocol, Item("1", before, ("0", "4", "2", "6"), (1,)), ()
    )
    assert request.context() == before + options.replace("<|split_2d|>", "") + after.rstrip()
    assert (list(request.listed), request.after) == (options.split("<|split_2d|>"), after.rstrip())
    assert request.continuations[1] == ' "4"'


def test_a_context_that_does_not_fit_is_missing() -> None:
    protocol, model = one("options/set-based").protocol, HashModel()
    for window, missing in ((200, 0), (74, 4)):
        model.window = window
        asking = PreparedBlock()
        add_prompts(asking, protocol, [render(protocol, ITEM, ())], model)
        refused = [row for row in (*asking.requests, *asking.spans) if row.missing is not None]
        assert bool(refused) == bool(missing)
