"""Weights that are not plain: adapters that PEFT trained, and quantised checkpoints. The same numbers as from PEFT and
transformers themselves, an identity of their own, and what is refused."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file

from choicewise import evaluate, load_model, open_run
from choicewise.errors import ModelError, StoreError, UsageError
from choicewise.models.local import files
from choicewise.models.local.files import CONFIG, WEIGHTS, read_adapter, read_quantisation
from choicewise.models.model import Model
from choicewise.questions import Span
from choicewise.records import ModelRecord
from choicewise.results.rows import run_id
from choicewise.running.job import job_of
from tests.helpers.answers import in_order
from tests.helpers.commands import choicewise
from tests.helpers.mmlu_data import write_mmlu
from tests.paths import ROOT

pytestmark = [
    pytest.mark.filterwarnings(f"ignore::{kind}Warning")
    for kind in ("Deprecation", "Future", "User")
]

BASE = ROOT / "src" / "choicewise" / "bundled" / "models" / "merrow-bpe-512"
TEXTS = np.random.default_rng(0).integers(3, 500, size=(4, 20), dtype=np.int32)
SPANS = [Span(text[:12], text[12:]) for text in TEXTS]


def numbers(model: Model) -> np.ndarray:
    """What a model says of ``SPANS``."""
    return np.stack([scores.logprobs for scores in in_order(model.answer(SPANS))])


def numbers_of_transformers(module: Any) -> np.ndarray:
    with torch.inference_mode():
        logits = module.eval()(torch.from_numpy(TEXTS).long()).logits.log_softmax(-1)[:, 11:-1]
    return logits.gather(2, torch.from_numpy(TEXTS[:, 12:]).long()[..., None])[..., 0].numpy()


@pytest.fixture(scope="module")
def lora(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random LoRA on every linear layer of the smallest bundled model."""
    peft = pytest.importorskip("peft")
    torch.manual_seed(0)
    folder = tmp_path_factory.mktemp("adapters") / "random-lora"
    config = peft.LoraConfig(
        r=4, lora_alpha=32, init_lora_weights=False, target_modules="all-linear"
    )
    peft.get_peft_model(
        transformers.AutoModelForCausalLM.from_pretrained(BASE), config
    ).save_pretrained(folder)
    return folder


def changed(lora: Path, folder: Path, **axes: Any) -> Path:
    """A copy of the adapter with other values in its configuration."""
    shutil.copytree(lora, folder)
    (folder / CONFIG).write_text(json.dumps(json.loads((folder / CONFIG).read_text()) | axes))
    return folder


@pytest.mark.costly("a network is loaded and computed with PEFT and without")
def test_the_numbers_are_those_of_peft(lora: Path) -> None:
    peft = pytest.importorskip("peft")
    reference = peft.PeftModel.from_pretrained(
        transformers.AutoModelForCausalLM.from_pretrained(BASE), lora
    )
    model, due = load_model(BASE, adapter=lora), numbers_of_transformers(reference)
    np.testing.assert_allclose(numbers(model), due, atol=1e-3)
    assert np.abs(numbers(load_model(BASE)) - due).max() > 0.1
    assert model.selfcheck is not None
    assert model.selfcheck.rung == "tree"


def test_a_run_says_which_adapter_it_is_of(lora: Path, tmp_path: Path) -> None:
    data, model = write_mmlu(tmp_path / "data"), load_model(BASE, adapter=lora)
    how: dict[str, Any] = {"data": data, "protocols": ["mmlu/original"], "limit": 1}
    with_adapter = evaluate(model=model, out=tmp_path / "run", **how)
    assert with_adapter.manifest.model.name == "merrow-bpe-512+random-lora"
    without = evaluate(model=BASE, out=tmp_path / "plain", **how)
    assert run_id(with_adapter.manifest) != run_id(without.manifest)
    assert {*with_adapter.manifest.versions} - {*without.manifest.versions} == {"peft"}
    with pytest.raises(StoreError, match="another model"):
        evaluate(model=BASE, out=tmp_path / "run", **how)
    other = load_model(BASE, adapter=changed(lora, tmp_path / "other", lora_alpha=16))
    assert len({model.digest, other.digest, load_model(BASE).digest}) == 3
    assert load_model(BASE, adapter=changed(lora, tmp_path / "copy")).digest == model.digest


@pytest.mark.costly("a command, and four networks are loaded")
def test_another_base_model_is_told_and_other_shapes_are_an_error(
    lora: Path, tmp_path: Path
) -> None:
    other = changed(lora, tmp_path / "other", base_model_name_or_path="somebody/another-model")
    assert read_adapter(other).made_for_another(BASE) == "somebody/another-model"
    assert read_adapter(lora).made_for_another(BASE) is None
    line = ("score", "--model", str(BASE), "--context", "a", "--choice", "b", "--json", "--adapter")
    assert "was trained for somebody/another-model, not" in choicewise(*line, other, code=0).stderr
    for axes, reason in (
        ({"r": 8}, "fit the model \\(.* has shape"),
        ({"target_modules": ["nowhere"]}, "put into the model: .*nowhere"),
        ({"target_modules": ["q_proj"]}, "fit the model \\(no place"),
    ):
        with pytest.raises(ModelError, match=reason):
            load_model(BASE, adapter=changed(lora, tmp_path / reason[-9:], **axes)).check(0)


def test_an_adapter_that_is_not_all_there_is_an_error(lora: Path, tmp_path: Path) -> None:
    folder = changed(lora, tmp_path / "partly")
    tensors = load_file(folder / WEIGHTS)
    del tensors[min(tensors)]
    save_file(tensors, folder / WEIGHTS)
    with pytest.raises(ModelError, match="fit the model \\(missing: .*; 1 in all"):
        load_model(BASE, adapter=folder).check(0)
    (folder / WEIGHTS).write_bytes((lora / WEIGHTS).read_bytes()[:-10])
    with pytest.raises(ModelError, match="should have .* bytes"):
        load_model(BASE, adapter=folder)


EMPTY = (2).to_bytes(8, "little") + b"{}"
STATED = b'{"peft_type": "LORA"}'
ELSEWHERE = ("adapters", "shadow_model", "megatron_config")


def naming(key: str) -> bytes:
    return json.dumps({"peft_type": "LORA", key: {"other": "somebody/other"}}).encode()


@pytest.mark.parametrize(
    ("contents", "reason"),
    [
        ({}, "holds no adapter_config.json"),
        ({CONFIG: b"[]"}, "no peft_type"),
        ({CONFIG: b"{"}, "is not JSON"),
        *(
            ({CONFIG: naming(key), WEIGHTS: EMPTY}, rf"files elsewhere \({key}\)")
            for key in ELSEWHERE
        ),
        ({CONFIG: STATED, "adapter_model.bin": b"pickle"}, "opening .* can run code"),
    ],
)
def test_no_adapter_or_an_unsafe_one_is_refused(
    contents: dict[str, bytes], reason: str, tmp_path: Path
) -> None:
    for name, content in contents.items():
        (tmp_path / name).write_bytes(content)
    with pytest.raises(ModelError, match=reason):
        load_model(BASE, adapter=tmp_path)


def test_without_peft_the_message_says_how_to_install_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / CONFIG).write_bytes(STATED)
    (tmp_path / WEIGHTS).write_bytes(EMPTY)
    monkeypatch.setattr(files, "find_spec", lambda name: None)
    with pytest.raises(
        ModelError, match=r"pip install --constraint constraints\.txt '\.\[adapters\]'"
    ):
        load_model(BASE, adapter=tmp_path)


def test_a_model_folder_with_an_adapter_in_it_is_refused(tmp_path: Path) -> None:
    """Transformers would take the adapter in unasked, and a folder with an adapter alone is no model."""
    (tmp_path / "alone").mkdir()
    for folder in (tmp_path / "alone", shutil.copytree(BASE, tmp_path / "both")):
        (folder / CONFIG).write_text(
            '{"peft_type": "LORA", "base_model_name_or_path": "some/base"}'
        )
        with pytest.raises(ModelError, match="its model \\(some/base\\)"):
            load_model(folder)


def test_a_model_of_a_sweep_has_its_adapter_and_a_fake_has_no_use_for_one(tmp_path: Path) -> None:
    models = [{"name": str(BASE), "adapter": "mine"}, str(BASE)]
    data = [str(write_mmlu(tmp_path / "data"))]
    first, second = job_of({"models": models, "data": data, "protocols": ["mmlu/original"]}).choices
    assert (first.options, second.options) == ({"adapter": "mine"}, {})
    assert first.label != second.label
    line = ("score", "--model", "fake:hash", "--context", "a", "--choice", "b", "--adapter", "x")
    assert "--adapter does not apply" in choicewise(*line, code=UsageError.exit_code).stderr


@pytest.mark.costly("three commands, and a network is loaded")
def test_a_ladder_takes_an_adapter(lora: Path, tmp_path: Path) -> None:
    data, out = write_mmlu(tmp_path / "data", subjects=("tides",)), tmp_path / "run"
    line = (
        "ladder",
        "mmlu/original",
        "mmlu/harness-v0",
        "--model",
        BASE,
        "--data",
        data,
        "--limit",
        "1",
    )
    choicewise(*line, "--adapter", lora, "--out", out, code=0)
    assert open_run(out).manifest.model.name.endswith("+random-lora")
    refused = choicewise(
        "ladder", "mmlu/original", "mmlu/cloze", out, "--adapter", lora, code=UsageError.exit_code
    )
    assert "--adapter" in refused.stderr


BLOCK = 32
GROUPS = {"group_0": {"weights": {"num_bits": 8, "type": "float"}}}


@pytest.mark.parametrize(
    ("stated", "weights", "method"),
    [
        ({"quant_method": "gptq", "bits": 4}, "int4", "gptq"),
        ({"quant_method": "awq", "bits": 4}, "int4", "awq"),
        ({"quant_method": "bitsandbytes", "load_in_8bit": True}, "int8", "bitsandbytes"),
        ({"load_in_4bit": True, "bnb_4bit_quant_type": "nf4"}, "nf4", "bitsandbytes"),
        (
            {"quant_method": "compressed-tensors", "config_groups": GROUPS},
            "float8",
            "compressed-tensors",
        ),
        (
            {
                "quant_method": "torchao",
                "quant_type": {"default": {"_type": "Int8WeightOnlyConfig"}},
            },
            "int8",
            "torchao",
        ),
        ({"quant_method": "fp8"}, "float8", "fp8"),
        ({"quant_method": "mxfp4"}, "mxfp4", "mxfp4"),
        ({"quant_method": "vptq"}, "quantised", "vptq"),
    ],
)
def test_types_of_weights(
    stated: dict[str, Any], weights: str, method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "find_spec", lambda name: True)
    own = read_quantisation({"quantization_config": stated}, Path("model"))
    assert own is not None
    assert (own.weights, own.method) == (weights, method)
    assert ModelRecord("m", "d", f"{weights} ({method}), float32", "cpu", 1).arithmetic == "float32"


@pytest.mark.parametrize(
    ("stated", "reason"),
    [
        ({"bits": 4}, "names no quant_method"),
        ("int8", "names no quant_method"),
        ({"quant_method": "tomorrow"}, "'tomorrow'.* use a newer one"),
        (
            {"quant_method": "awq", "bits": 4},
            "needs gptqmodel and accelerate; .*pip install gptqmodel acc",
        ),
    ],
)
def test_what_can_not_be_computed_is_refused(
    stated: Any, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "find_spec", lambda name: None)
    with pytest.raises(ModelError, match=reason):
        read_quantisation({"quantization_config": stated}, Path("model"))


def test_a_plain_checkpoint_is_not_quantised() -> None:
    assert read_quantisation({}, Path("model")) is None
    assert ModelRecord("m", "d", "bfloat16", "cpu", 1).arithmetic == "bfloat16"


def fp8(folder: Path) -> Path:
    """The smallest bundled model with its projections in float8, a scale for every block, as DeepSeek's are."""
    pytest.importorskip("accelerate")
    shutil.copytree(BASE, folder)
    tensors = {}
    for name, weight in load_file(BASE / "model.safetensors").items():
        tensors[name] = weight
        if "proj" in name:
            rows, columns = (length // BLOCK for length in weight.shape)
            blocks = weight.reshape(rows, BLOCK, columns, BLOCK)
            scales = blocks.abs().amax(dim=(1, 3), keepdim=True) / 448
            tensors[name] = (blocks / scales).reshape(weight.shape).to(torch.float8_e4m3fn)
            tensors[f"{name}_scale_inv"] = scales[:, 0, :, 0].contiguous()
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    stated = {
        "quant_method": "fp8",
        "activation_scheme": "dynamic",
        "weight_block_size": [BLOCK, BLOCK],
    }
    own = {"quantization_config": {**stated, "modules_to_not_convert": ["lm_head"]}}
    (folder / "config.json").write_text(
        json.dumps(json.loads((folder / "config.json").read_text()) | own)
    )
    return folder


def torchao(folder: Path) -> Path:
    """The same with torchao's int8 weights."""
    configs = pytest.importorskip("torchao.quantization")
    how = transformers.TorchAoConfig(configs.Int8WeightOnlyConfig(version=2))
    model = transformers.AutoModelForCausalLM.from_pretrained(
        BASE, dtype="float32", quantization_config=how
    )
    model.save_pretrained(folder)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(BASE / name, folder / name)
    return folder


def quanto(folder: Path) -> Path:
    """The same as quanto has it: plain weights that are quantised while they are loaded."""
    pytest.importorskip("optimum.quanto")
    shutil.copytree(BASE, folder)
    own = {
        "quantization_config": {
            "quant_method": "quanto",
            "weights": "int8",
            "modules_to_not_convert": ["lm_head"],
        }
    }
    (folder / "config.json").write_text(
        json.dumps(json.loads((folder / "config.json").read_text()) | own)
    )
    return folder


def packed(folder: Path) -> Path:
    """The same in int4 with a scale for each 32 weights of a row, eight to a number (compressed-tensors)."""
    compressors = pytest.importorskip("compressed_tensors.compressors")
    shutil.copytree(BASE, folder)
    tensors = {}
    for name, weight in load_file(BASE / "model.safetensors").items():
        if "proj" not in name:
            tensors[name] = weight
            continue
        groups = weight.reshape(len(weight), -1, BLOCK)
        scales = groups.abs().amax(dim=2, keepdim=True) / 7
        whole = (groups / scales).round().clamp(-8, 7).to(torch.int8).reshape(weight.shape)
        tensors[f"{name}_packed"], tensors[f"{name}_scale"] = (
            compressors.pack_to_int32(whole, 4),
            scales[..., 0],
        )
        tensors[f"{name}_shape"] = torch.tensor(weight.shape)
    save_file(
        {name: each.contiguous() for name, each in tensors.items()},
        folder / "model.safetensors",
        {"format": "pt"},
    )
    how = {
        "num_bits": 4,
        "type": "int",
        "strategy": "group",
        "group_size": BLOCK,
        "symmetric": True,
        "dynamic": False,
    }
    stated = {
        "quant_method": "compressed-tensors",
        "format": "pack-quantized",
        "quantization_status": "compressed",
    }
    own = {
        **stated,
        "ignore": ["lm_head"],
        "config_groups": {"group_0": {"targets": ["Linear"], "weights": how}},
    }
    config = json.loads((folder / "config.json").read_text()) | {"quantization_config": own}
    (folder / "config.json").write_text(json.dumps(config))
    return folder


MADE = {
    "float8 (fp8), float32": fp8,
    "int8 (torchao), float32": torchao,
    "int8 (quanto), float32": quanto,
    "int4 (compressed-tensors), float32": packed,
}


@pytest.mark.costly("a quantised network is made, loaded and computed, by transformers too")
@pytest.mark.parametrize(("dtype", "make"), MADE.items())
def test_a_quantised_model_answers_as_transformers_does(
    make: Any, dtype: str, tmp_path: Path
) -> None:
    folder = make(tmp_path / "model")
    due = numbers_of_transformers(
        transformers.AutoModelForCausalLM.from_pretrained(folder, dtype="float32")
    )
    model, data = load_model(folder), write_mmlu(tmp_path / "data")
    np.testing.assert_allclose(numbers(model), due, atol=1e-3)
    assert np.abs(numbers(load_model(BASE)) - due).max() > 1e-3
    run = evaluate(
        model=model, data=data, protocols=["mmlu/original"], out=tmp_path / "run", limit=1
    )
    assert model.dtype == run.manifest.model.dtype == dtype
    assert run.manifest.engine.selfcheck is not None
