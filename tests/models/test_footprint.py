"""How much memory a model needs, from its files alone."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from choicewise.bundled import MODELS
from choicewise.errors import ModelError
from choicewise.models.load import load_model
from choicewise.models.local.devices import CONTEXT, HOST, NOTHING, PROBE, Footprint
from choicewise.models.local.folder_model import footprint, footprint_of

FOLDER = next(folder for folder in MODELS if folder.name == "merrow-byte")
CONFIG: dict[str, Any] = json.loads((FOLDER / "config.json").read_text())


def write(folder: Path, tensors: dict[str, tuple[str, list[int], int]], **config: Any) -> Path:
    """A model folder with ``tensors``: kind, shape and bytes of each by its name."""
    header: dict[str, Any] = {}
    end = 0
    for name, (kind, shape, size) in tensors.items():
        header[name] = {"dtype": kind, "shape": shape, "data_offsets": [end, end + size]}
        end += size
    text = json.dumps(header).encode()
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "model.safetensors").write_bytes(len(text).to_bytes(8, "little") + text + bytes(end))
    (folder / "config.json").write_text(json.dumps({**CONFIG, **config}))
    return folder


TENSORS = {
    "model.embed_tokens.weight": ("BF16", [256, 8], 4096),
    "model.layers.0.mlp.weight": ("BF16", [8, 8], 128),
    "model.layers.1.mlp.weight": ("BF16", [8, 8], 128),
    "model.layers.1.mlp.steps": ("I64", [4], 32),
}


def test_weights_are_counted_in_the_dtype_that_is_asked(tmp_path: Path) -> None:
    folder = write(tmp_path, TENSORS, dtype="bfloat16")
    sizes = {dtype: footprint(folder, dtype=dtype).weights for dtype in ("float32", "bfloat16", "auto")}
    assert sizes == {"float32": 2 * (4096 + 256) + 32, "bfloat16": 4096 + 256 + 32, "auto": 4096 + 256 + 32}
    assert footprint(write(tmp_path, TENSORS, dtype="float32")).weights == 2 * (4096 + 256) + 32


def test_quantised_weights_are_counted_as_they_lie(tmp_path: Path) -> None:
    tensors = {**TENSORS, "model.layers.0.mlp.scale": ("F32", [8], 32), "model.layers.0.mlp.q": ("U8", [32], 32)}
    folder = write(tmp_path, tensors, quantization_config={"quant_method": "awq"})
    assert footprint(folder, dtype="float32").weights == footprint(folder).weights == 4096 + 256 + 32 + 32 + 32


def test_what_no_device_shares_is_the_largest_layer_or_module(tmp_path: Path) -> None:
    assert footprint(write(tmp_path, TENSORS), dtype="bfloat16").layer == 4096
    larger = {**TENSORS, "model.layers.1.self_attn.weight": ("BF16", [64, 64], 8192)}
    assert footprint(write(tmp_path, larger), dtype="bfloat16").layer == 8192 + 128 + 32


pytestmark = pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing`:FutureWarning")


@pytest.mark.parametrize("folder", MODELS, ids=lambda folder: folder.name)
def test_the_weights_of_a_model_are_what_torch_holds(folder: Path) -> None:
    transformers = pytest.importorskip("transformers")
    model = transformers.AutoModelForCausalLM.from_pretrained(folder)
    held = sum(parameter.numel() * 4 for parameter in model.parameters())
    assert footprint(folder, dtype="float32").weights == held


def test_more_of_anything_needs_no_less() -> None:
    least = footprint(FOLDER, dtype="bfloat16", batch_tokens=64, window=128)
    for more in ({"batch_tokens": 4096}, {"window": 2048}, {"generated": 64}, {"dtype": "float32"}):
        options: dict[str, Any] = {"dtype": "bfloat16", "batch_tokens": 64, "window": 128, **more}
        assert footprint(FOLDER, **options).workspace > least.workspace, more
    assert footprint(FOLDER, deepest=100).workspace < footprint(FOLDER).workspace


def test_a_gpu_has_a_context_and_leaves_main_memory_free() -> None:
    on_gpu, on_cpu = footprint(FOLDER, device="cuda"), footprint(FOLDER, device="cpu")
    assert (on_gpu.context, on_cpu.context) == (CONTEXT["cuda"], 0)
    assert on_cpu.host == HOST["cpu"] + on_cpu.weights + on_cpu.workspace
    assert on_gpu.host == HOST["cuda"] + on_gpu.layer


def test_a_large_model_takes_as_many_devices_as_hold_it() -> None:
    """140 GB on devices of 80 GB: two hold the weights alone, three what computing takes too."""
    giant = Footprint(weights=140 * 10**9, workspace=12 * 10**9, context=10**9, layer=2 * 10**9, host=0)
    assert giant.on_each(1) == giant.device == 153 * 10**9
    assert giant.devices(80 * 10**9, 8) == 3
    assert giant.devices(200 * 10**9, 8) == 1
    assert giant.devices(16 * 10**9, 8) is None


def test_a_loaded_model_says_what_it_needs(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    model = load_model(FOLDER, device="cpu", window=100, batch_tokens=50)
    assert footprint_of(model) == footprint(FOLDER, dtype="float32", window=100, batch_tokens=50)
    assert footprint_of(load_model("fake:hash")) == NOTHING


def test_an_adapter_is_counted_in_float32(tmp_path: Path) -> None:
    peft = pytest.importorskip("peft")
    transformers = pytest.importorskip("transformers")
    base = transformers.AutoModelForCausalLM.from_pretrained(FOLDER)
    added = peft.get_peft_model(base, peft.LoraConfig(r=4, target_modules=["q_proj"]))
    added.save_pretrained(tmp_path)
    numbers = sum(weight.numel() for name, weight in added.named_parameters() if "lora" in name)
    both, alone = (footprint_of(load_model(FOLDER, device="cpu", adapter=adapter)) for adapter in (tmp_path, None))
    assert (both.weights - alone.weights, both.host - alone.host) == (4 * numbers, 4 * numbers)


def test_it_is_known_without_torch() -> None:
    code = (
        "import sys; from pathlib import Path; from choicewise.models.local.folder_model import footprint;"
        "footprint(Path(sys.argv[1])); print([name for name in ('torch', 'transformers') if name in sys.modules])"
    )
    words = [sys.executable, "-c", code, str(FOLDER)]
    assert subprocess.run(words, capture_output=True, text=True, check=True).stdout.strip() == "[]"


def test_damaged_files_are_an_error(tmp_path: Path) -> None:
    folder = write(tmp_path, TENSORS)
    with (folder / "model.safetensors").open("ab") as file:
        file.write(b"more")
    with pytest.raises(ModelError, match=r"should have \d+ bytes"):
        footprint(folder)


def test_a_self_check_is_no_deeper_than_is_counted() -> None:
    pytest.importorskip("torch")
    from choicewise.models.local import selfcheck as probe

    assert probe.DEPTH <= PROBE


def test_another_kind_of_device_is_taken_for_a_gpu() -> None:
    assert footprint(FOLDER, device="xpu") == footprint(FOLDER, device="cuda")
