"""A model spread over several devices answers to the bit as on one, and nothing of one device meets what is on another.
There is no machine with several GPUs here: the devices are those of ``tests/helpers/pretend_devices.py``. What is left
to real ones are CUDA's own kernels, streams and copies."""

import copy
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")
pytest.importorskip("accelerate")

from choicewise.bundled import MODELS
from choicewise.errors import ModelError
from choicewise.extensions.check.paths import path_differences
from choicewise.models.load import load_model
from choicewise.models.local import attention, devices, flex, networks, plain
from choicewise.models.local.causal_lm import CausalLM
from choicewise.models.local.devices import device_name, device_of, devices_of
from choicewise.models.local.folder_model import FolderModel, footprint
from choicewise.models.local.local_model import LocalModel
from choicewise.models.local.networks import Spread, load_network
from choicewise.models.local.paths import LADDER
from choicewise.models.model import Recipe
from choicewise.questions import (
    Cosine,
    Generation,
    MaskedLoss,
    Mass,
    Prompt,
    Sampling,
    Span,
    TokenSet,
)
from choicewise.tokens.tokenizer import ByteTokenizer
from tests.helpers.pretend_devices import DifferentDevices, pretending
from tests.helpers.tiny_models import VOCABULARY, tiny
from tests.helpers.whole_text_models import save_model

pytestmark = [
    pytest.mark.filterwarnings(
        "ignore:The following device_map keys do not match any submodules:UserWarning"
    ),
    pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing`:FutureWarning"),
]

DEVICES = "cpu:1..3"
BUNDLED = next(folder for folder in MODELS if folder.name == "merrow-byte")
GB = 10**9


@pytest.fixture
def three(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Three devices; accelerate places on 1, 2 and 3, which are its numbers of GPUs, and those are ours."""
    import transformers.modeling_utils as module

    place = module._get_device_map

    def placed(*arguments: Any) -> Any:
        where = place(*arguments)
        return {
            part: torch.device("cpu", at) if isinstance(at, int) else at
            for part, at in where.items()
        }

    monkeypatch.setattr(module, "_get_device_map", placed)
    monkeypatch.setenv("HF_DEACTIVATE_ASYNC_LOAD", "1")  # other threads do not pretend
    monkeypatch.setattr(networks, "free_bytes", lambda device: 2 * GB)
    with pretending():
        yield


def saved(folder: Path, family: str, **changes: Any) -> Path:
    tiny(family, **changes).save_pretrained(folder)
    return folder


def spread(folder: Path, dtype: str = "float32", room: Callable[[int], int] | None = None) -> Any:
    """The model in ``folder`` on three devices; ``room``: of each in place of what is free, by the weights."""
    needed = footprint(folder, batch_tokens=64)
    where = Spread(folder, DEVICES, needed)
    if room is not None:
        where._room.update(dict.fromkeys(where._room, room(needed.weights)))
    return load_network(
        folder, json.loads((folder / "config.json").read_text()), dtype, DEVICES, False, where
    )


def on_one(folder: Path) -> Any:
    """A copy of it on the CPU has aligned weights, as those that are moved have: some kernels round by the address."""
    config = json.loads((folder / "config.json").read_text())
    return copy.deepcopy(load_network(folder, config, "float32", "cpu", False, None))


def answering(model: Any, rung: str = "auto") -> LocalModel:
    return LocalModel(
        model, ByteTokenizer(), "tiny", "0" * 64, window=512, rung=rung, batch_tokens=64
    )


def assert_the_same_to_the_bit(several: LocalModel, one: LocalModel) -> None:
    answers = [
        {
            index: (each.tokens.tolist(), each.logprobs.tolist(), each.ranks.tolist())
            for index, each in answered
        }
        for answered in (model.answer(questions()) for model in (one, several))
    ]
    assert (answers[0], several.selfcheck) == (answers[1], one.selfcheck)


def assert_alike(several: FolderModel, one: FolderModel, asked: list[Prompt]) -> None:
    assert len({parameter.device for parameter in several.local.model.parameters()}) > 1
    answers = [
        np.concatenate([each.logprobs for _, each in sorted(model.answer(asked))])
        for model in (one, several)
    ]
    np.testing.assert_allclose(answers[0], answers[1], atol=1e-5)


def questions() -> list[Prompt]:
    draw = np.random.default_rng(0)

    def text(tokens: int) -> Any:
        return draw.integers(3, VOCABULARY, tokens).astype(np.int32)

    shared = text(70)
    contexts = [np.concatenate([shared, text(20)]) for _ in range(5)]
    spans = [Span(context, text(1 + length)) for context in contexts for length in range(3)]
    return [
        *spans,
        *(
            Mass(context, TokenSet(np.asarray([5, 9, 30], dtype=np.int32)))
            for context in contexts[:2]
        ),
        *(Generation(context, 1 + length) for length, context in enumerate(contexts)),
        *(Generation(context, 4, (), Sampling(b"any")) for context in contexts[:2]),
        *(MaskedLoss(span) for span in spans[:4]),
        Cosine(contexts[0], contexts[1]),
    ]


def test_a_pretended_device_takes_no_tensor_of_another(three: None) -> None:
    """What the other tests rest on."""
    here, there = torch.ones(3, device="cpu:1"), torch.ones(3, device="cpu:2")
    mixed: list[Callable[[], Any]] = [
        lambda: here + there,
        lambda: here + torch.ones(3),
        lambda: here[torch.tensor([0], device="cpu:2")],
        lambda: torch.cat([here, there]),
        lambda: here.index_select(0, torch.tensor([0])),
        lambda: torch.nn.functional.linear(here[None], there[None]),
        here.numpy,
    ]
    for each in mixed:
        with pytest.raises(DifferentDevices):
            each()
    assert ((here + there.to("cpu:1")).device, (here + 1).cpu().tolist()) == (
        torch.device("cpu:1"),
        [2, 2, 2],
    )


LAYERS = {"gpt2": "n_layer", "bloom": "n_layer"}
FAMILIES = (
    "llama",
    "gemma2",
    "gpt2",
    "gpt_oss",
    "bloom",
    "deepseek_v3",
    "llama4_text",
    "cohere2",
    "opt",
)


@pytest.mark.parametrize("family", FAMILIES)
def test_every_answer_is_the_same_to_the_bit(family: str, three: None, tmp_path: Path) -> None:
    folder = saved(tmp_path, family, **{LAYERS.get(family, "num_hidden_layers"): 8})
    one, several = answering(on_one(folder)), answering(spread(folder))
    assert one.device == "cpu"
    assert several.device in ("cpu:1..2", DEVICES)  # the embedding of some is a third of all
    assert_the_same_to_the_bit(several, one)


def step_by_step(
    query: Any,
    key: Any,
    value: Any,
    score_mod: None,
    block_mask: Any,
    scale: float | None,
    enable_gqa: bool,
) -> Any:
    """What the kernel of ``flex`` computes, which can't be compiled here: by its rule of visibility, on its device."""
    rows, places = (torch.arange(each.shape[2], device=each.device) for each in (query, key))
    mask = block_mask.mask_mod(None, None, rows[:, None], places[None])
    attend = torch.nn.functional.scaled_dot_product_attention
    return attend(query, key, value, attn_mask=mask, scale=scale, enable_gqa=enable_gqa)


@pytest.mark.parametrize("rung", LADDER)
def test_so_it_is_on_every_rung(
    rung: str, three: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(flex, "_kernel", lambda device: step_by_step)
    folder = saved(tmp_path, "mistral", num_hidden_layers=6)
    assert_the_same_to_the_bit(answering(spread(folder), rung), answering(on_one(folder), rung))


def test_a_mask_of_another_device_would_be_seen(
    three: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One mask for all layers, as it was before models were spread: the rung is refused for that."""
    several = answering(spread(saved(tmp_path, "llama", num_hidden_layers=6)), "tree")
    views: list[Any] = []
    view = attention._view
    monkeypatch.setattr(attention, "_view", lambda *given: views.append(view(*given)) or views[0])
    with pytest.raises(ModelError, match="DifferentDevices"):
        next(iter(several.answer(questions())))


def test_a_float32_copy_stays_and_needs_room(
    three: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = spread(saved(tmp_path, "llama", num_hidden_layers=6), "bfloat16")
    other = plain.float32_copy(model)
    assert (device_name(other), other.dtype, model.dtype) == (
        DEVICES,
        torch.float32,
        torch.bfloat16,
    )
    path_differences(CausalLM(model, 128, VOCABULARY))
    assert {model.dtype, *(parameter.dtype for parameter in model.parameters())} == {torch.bfloat16}
    monkeypatch.setattr(plain, "free_bytes", lambda device: 1000 if device.index == 2 else GB)
    assert plain.float32_copy(model) is None


def spans() -> list[Prompt]:
    return [span for span in questions() if isinstance(span, Span)]


@pytest.mark.parametrize(
    "folder", [each for each in MODELS if each.name in ("merrow-byte", "merrow-bpe-512")], ids=str
)
def test_a_model_in_a_folder_is_spread_by_the_name_of_its_devices(
    folder: Path, three: None
) -> None:
    one, several = load_model(folder, device="cpu"), load_model(folder, device=DEVICES)
    assert isinstance(several, FolderModel)
    assert (several.device, several.digest, several.packages) == (
        DEVICES,
        one.digest,
        ("accelerate",),
    )
    assert several.recipe == Recipe(str(folder), {"device": DEVICES})
    answers = [
        {index: each.ranks.tolist() for index, each in model.answer(spans())}
        for model in (one, several)
    ]
    assert answers[0] == answers[1]
    assert len({parameter.device for parameter in several.local.model.parameters()}) > 1


DEEPER = {"bert": {"num_hidden_layers": 8}, "t5": {"num_layers": 6}}
DEEPER["bart"] = {"encoder_layers": 6, "decoder_layers": 6}


@pytest.mark.parametrize("family", DEEPER)
def test_models_of_whole_texts_are_spread_too(family: str, three: None, tmp_path: Path) -> None:
    save_model(family, tmp_path, **DEEPER[family])
    one, several = (load_model(tmp_path, device=device) for device in ("cpu", DEVICES))
    assert_alike(several, one, one.local.probe())


def gpus(monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    """As if torch had so many, each of which takes a tensor."""
    monkeypatch.setattr(devices, "_DRIVERS", ("/",))
    monkeypatch.setattr(torch.cuda, "is_available", lambda: count > 0)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: count)
    here = torch.zeros

    def zeros(*shape: int, device: Any) -> Any:
        place = torch.device(device)
        if place.type == "cuda" and (place.index or 0) >= count:
            raise RuntimeError("invalid device ordinal")
        tensor = here(*shape)
        name = f"cuda:{place.index or 0}" if place.type == "cuda" else str(place)
        return SimpleNamespace(device=name, item=tensor.item)

    monkeypatch.setattr(torch, "zeros", zeros)


def test_auto_is_all_gpus_where_there_are_several_and_else_the_default(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert device_of("auto") == device_of(None)
    with monkeypatch.context() as patched:
        gpus(patched, 8)
        assert (
            device_of("auto") == device_of(device_of("auto")) == "cuda:0..7"
        )  # as the line that continues a run says
        assert device_of("cuda:2..3") == "cuda:2..3"
        with pytest.raises(ModelError, match="finds only cpu, cuda:0, .*cuda:7"):
            device_of("cuda:6..8")
    monkeypatch.setattr(devices, "find_spec", lambda name: None)
    for count in (0, 1):
        with monkeypatch.context() as patched:
            gpus(patched, count)
            assert device_of("auto") == device_of(None) == ("cuda:0" if count else "cpu")


def test_without_accelerate_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    gpus(monkeypatch, 2)
    monkeypatch.setattr(devices, "find_spec", lambda name: None)
    with pytest.raises(ModelError, match=r"pip install .* '\.\[spread\]', .* cuda:0"):
        device_of("auto")
    assert device_of(None) == "cuda:0"


def test_several_devices_are_at_least_two_that_are_there() -> None:
    for name in ("cuda:3..3", "cuda:3..1"):
        with pytest.raises(ModelError, match="must be the larger"):
            devices_of(name)
    with pytest.raises(
        ModelError, match="cpu:1 is cpu"
    ):  # there are no pretended ones outside of tests
        device_of("cpu:1..3")


def test_what_does_not_fit_is_refused_with_the_bytes_unloaded(
    three: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    needed = footprint(BUNDLED, dtype="float32")
    room = needed.workspace + needed.weights // 4
    monkeypatch.setattr(networks, "free_bytes", lambda device: room)
    monkeypatch.setattr(networks.transformers.AutoModelForCausalLM, "from_pretrained", None)
    with pytest.raises(ModelError) as error:
        load_model(BUNDLED, device=DEVICES).check(8)
    said = (
        f"{BUNDLED} does not fit on {DEVICES}",
        f"{needed.weights:,} bytes of weights",
        f"Free are {3 * room:,}",
    )
    assert [words for words in said if words not in str(error.value)] == []


def test_what_fits_as_a_whole_but_not_in_whole_layers_is_refused(
    three: None, tmp_path: Path
) -> None:
    """accelerate would put a part of it into main memory or on disk."""
    with pytest.raises(ModelError, match="does not fit .* layers"):
        spread(saved(tmp_path, "llama", num_hidden_layers=3), room=lambda weights: weights // 3 + 1)


def test_an_adapter_is_put_into_a_spread_model(three: None, tmp_path: Path) -> None:
    peft = pytest.importorskip("peft")
    config = peft.LoraConfig(r=4, init_lora_weights=False, target_modules="all-linear")
    base = networks.transformers.AutoModelForCausalLM.from_pretrained(BUNDLED)
    peft.get_peft_model(base, config).save_pretrained(tmp_path)
    one = load_model(BUNDLED, device="cpu", products="torch", adapter=tmp_path)
    several = load_model(BUNDLED, device=DEVICES, adapter=tmp_path)
    assert_alike(several, one, spans())
