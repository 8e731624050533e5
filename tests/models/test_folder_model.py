"""What a folder says without torch: who its model is, how to load it once more, how much memory it needs."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

from choicewise import load_model
from choicewise.bundled import MODELS
from choicewise.errors import ModelError
from choicewise.models.fake import FAKES, HashModel
from choicewise.models.local import files as digest_cache
from choicewise.models.local import selfcheck
from choicewise.models.local.devices import (
    CONTEXT,
    HOST,
    NOTHING,
    PROBE,
    Footprint,
    pack_tokens,
    room_beside,
)
from choicewise.models.local.files import remembered
from choicewise.models.local.folder_model import footprint, footprint_of
from choicewise.models.model import Model, Recipe
from choicewise.questions import CAUSAL_KINDS, Span
from tests.helpers.answers import ids
from tests.helpers.hub_server import hub_of_this_process
from tests.helpers.misbehaving_server import Server

pytestmark = pytest.mark.filterwarnings(
    "ignore:.is_gradient_checkpointing. is deprecated:FutureWarning"
)

SMALLEST = next(folder for folder in MODELS if folder.name == "merrow-byte")
CONFIG: dict[str, Any] = json.loads((SMALLEST / "config.json").read_text())

SAID = """
import json, sys
from pathlib import Path
from choicewise import load_model
from choicewise.models.local.folder_model import footprint
model = load_model(sys.argv[1], **json.loads(sys.argv[2]))
print(model.name, model.digest, model.dtype, model.device, model.window, len(model.supports), model.computed)
model.tokenizer.encode(["text"], special=True)
footprint(Path(sys.argv[1]))
print(*sorted({"torch", "transformers"} & set(sys.modules)))
"""


@pytest.fixture(autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache of its own for every test."""
    home = tmp_path_factory.mktemp("cache")
    monkeypatch.setenv("XDG_CACHE_HOME", str(home))
    return home / "choicewise" / "digests"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A writable copy of a small model's folder, unchanged for a long time."""
    for file in SMALLEST.iterdir():
        shutil.copyfile(file, tmp_path / file.name)
        os.utime(tmp_path / file.name, (0, 0))
    return tmp_path


def test_a_process_without_torch_says_what_a_model_needs(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """From the plain values of its recipe alone, in any directory."""
    (tmp_path / "model").symlink_to(SMALLEST)
    monkeypatch.chdir(tmp_path)
    model = load_model("model", device="cpu", trust_remote_code=True)
    assert model.recipe == Recipe(
        str(tmp_path / "model"), {"device": "cpu", "trust_remote_code": True}
    )
    words = [sys.executable, "-c", SAID, model.recipe.name, json.dumps(dict(model.recipe.options))]
    said, heavy = subprocess.run(
        words, cwd="/", capture_output=True, text=True, check=True
    ).stdout.splitlines()
    assert (said, heavy) == (
        f"merrow-byte {model.digest} float32 cpu 2048 {len(CAUSAL_KINDS)} 0",
        "",
    )


@pytest.mark.costly("a network is computed in two dtypes")
def test_the_model_that_answers_is_the_one_that_was_described() -> None:
    for dtype in ("bfloat16", "auto"):
        model = load_model(SMALLEST, device="cpu", dtype=dtype)
        said = model.name, model.digest, model.dtype, model.device, model.window, model.supports
        assert "_local" not in vars(model)
        assert len(list(model.answer([Span(ids(*range(2, 9)), ids(*range(2, 9)))]))) == 1
        local = model.local  # type: ignore[attr-defined]
        assert said == (
            local.name,
            local.digest,
            local.dtype,
            local.device,
            local.window,
            local.supports,
        )
        assert model.computed == model.planned == local.computed > 0


def test_a_dtype_that_the_files_leave_open_is_read_from_the_weights(folder: Path) -> None:
    (folder / "config.json").write_text(
        json.dumps({name: CONFIG[name] for name in CONFIG if name != "dtype"})
    )
    model = load_model(folder, device="cpu", dtype="auto")
    assert model.dtype == "float32"
    assert "_local" not in vars(model)


def test_more_layers_than_described_are_refused(folder: Path) -> None:
    held = CONFIG["num_hidden_layers"]
    fewer = CONFIG | {"num_hidden_layers": held - 1}
    (folder / "config.json").write_text(json.dumps(fewer))
    message = f"{held - 1} layers, .* {held}; .* to {held}"
    with pytest.raises(ModelError, match=message):
        load_model(folder, device="cpu")
    (folder / "config.json").write_text(json.dumps(fewer | {"num_nextn_predict_layers": 1}))
    assert load_model(folder, device="cpu").window == 2048


LIES = {
    "num_hidden_layers": (100_000, "has num_hidden_layers = 100,000"),
    "vocab_size": (10_000_000, "describes a model .* at most"),
    "intermediate_size": (
        10**9,
        "describes a model .* at most",
    ),
}


@pytest.mark.parametrize("name", LIES)
def test_a_configuration_that_lies_about_sizes_is_refused_before_anything_is_allocated(
    folder: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    number, said = LIES[name]
    (folder / "config.json").write_text(json.dumps(CONFIG | {name: number}))
    monkeypatch.setattr("transformers.LlamaForCausalLM.from_pretrained", None)
    with pytest.raises(ModelError, match=said):
        load_model(folder, device="cpu").local  # type: ignore[attr-defined]  # noqa: B018


@pytest.fixture
def shared_folder() -> Iterator[Path]:
    """A model folder that other users can reach."""
    with tempfile.TemporaryDirectory() as place:
        for file in SMALLEST.iterdir():
            shutil.copyfile(file, Path(place) / file.name)
        Path(place).chmod(0o755)
        yield Path(place)


@pytest.mark.parametrize(
    "name", ["config.json", "tokenizer.json", "tokenizer_config.json", "model.safetensors", "."]
)
def test_files_that_may_not_be_read_are_named(
    shared_folder: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    denied = shared_folder / name
    denied.chmod(0)
    if os.geteuid() == 0:  # whom nothing is denied
        monkeypatch.setattr(os, "geteuid", lambda: 65534)
        os.seteuid(65534)
    try:
        with pytest.raises(ModelError, match=r"Permission denied; chmod -R u\+rX") as caught:
            load_model(shared_folder, device="cpu")
        assert str(shared_folder) in str(caught.value)
    finally:
        if os.getuid() == 0:
            os.seteuid(0)
        denied.chmod(0o755)


def test_a_digest_is_computed_once_or_after_damage(
    folder: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(digest_cache, "SETTLED", -1.0)
    first = load_model(folder, device="cpu").digest
    (entry,) = cache.iterdir()
    intact = entry.read_bytes()
    for damage in (b"", b"\xff\xfe", b"0" * 64, b"a b", b"0" * 64 + b" " + b"0" * 64):
        entry.write_bytes(damage)
        assert load_model(folder, device="cpu").digest == first, damage
        assert entry.read_bytes() == intact
    monkeypatch.setattr(digest_cache, "digest", lambda *_: pytest.fail("hashed again"))
    second = load_model(folder, device="cpu")
    assert (second.digest, len(second.digest)) == (first, 64)
    assert "tokenizer" not in vars(second)


def test_any_change_of_a_file_has_another_digest(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Even one that keeps its size and sets its time of change back."""
    monkeypatch.setattr(digest_cache, "SETTLED", -1.0)
    digests = [load_model(folder, device="cpu").digest]
    weights = folder / "model.safetensors"
    before, data = weights.stat(), bytearray(weights.read_bytes())
    data[-1] ^= 1
    time.sleep(0.05)
    weights.write_bytes(data)
    os.utime(weights, ns=(before.st_atime_ns, before.st_mtime_ns))
    digests.append(load_model(folder, device="cpu").digest)
    (folder / "config.json").write_text(
        (folder / "config.json").read_text().replace("1e-06", "1e-05")
    )
    digests.append(load_model(folder, device="cpu").digest)
    assert len(set(digests)) == 3


def test_what_changed_just_now_is_not_remembered(
    folder: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "config.json").touch()
    assert load_model(folder, device="cpu").digest
    assert not cache.exists()
    monkeypatch.setattr(digest_cache, "SETTLED", -1.0)
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder / "config.json"))
    assert remembered([folder / "config.json"], "", lambda: "ab") == "ab"


def loaded(recipe: Recipe | None, **changed: Any) -> Model:
    assert recipe is not None
    return load_model(recipe.name, **{**recipe.options, **changed})


@pytest.mark.parametrize("name", FAKES)
def test_a_fake_is_its_name(name: str) -> None:
    recipe = load_model(name).recipe
    assert (recipe, loaded(recipe).digest) == (Recipe(name), load_model(name).digest)


def test_a_bundled_model_is_its_name_with_its_options_and_what_a_server_has_is_not_loaded_here(
    server: Server,
) -> None:
    assert load_model("bundled:merrow-byte").recipe == Recipe("bundled:merrow-byte")
    options = {"dtype": "auto", "device": "cpu", "window": 64, "rung": "plain", "batch_tokens": 100}
    recipe = load_model("bundled:merrow-byte", **options).recipe
    assert recipe == Recipe("bundled:merrow-byte", options)
    assert (loaded(recipe).window, loaded(recipe, window=32).window, HashModel(seed=3).recipe) == (
        64,
        32,
        None,
    )
    assert load_model(server.address, tokenizer="bytes").recipe is None


def test_a_name_on_the_hub_is_of_the_commit_that_was_loaded(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    files = {file.name: file.read_bytes() for file in sorted(SMALLEST.iterdir())}
    with hub_of_this_process(monkeypatch, tmp_path / "home") as hub:
        repository = hub.add("models", "merrow/byte", files)
        first = repository.refs["main"]
        model = load_model("merrow/byte", device="cpu")
        assert model.recipe == Recipe(f"merrow/byte@{first}", {"device": "cpu"})
        repository.commit(files | {"config.json": json.dumps(CONFIG | {"x": 1})})
        assert loaded(model.recipe).digest == model.digest != load_model("merrow/byte").digest
        assert loaded(model.recipe).name == model.name == "merrow/byte"


def write(folder: Path, tensors: dict[str, tuple[str, list[int], int]], **config: Any) -> Path:
    """A model folder with ``tensors``: kind, shape and bytes of each by its name."""
    header: dict[str, Any] = {}
    end = 0
    for name, (kind, shape, size) in tensors.items():
        header[name] = {"dtype": kind, "shape": shape, "data_offsets": [end, end + size]}
        end += size
    text = json.dumps(header).encode()
    (folder / "model.safetensors").write_bytes(len(text).to_bytes(8, "little") + text + bytes(end))
    (folder / "config.json").write_text(json.dumps({**CONFIG, **config}))
    return folder


TENSORS = {
    "model.embed_tokens.weight": ("BF16", [256, 8], 4096),
    "model.layers.0.mlp.weight": ("BF16", [8, 8], 128),
    "model.layers.1.mlp.weight": ("BF16", [8, 8], 128),
    "model.layers.1.mlp.steps": ("I64", [4], 32),
}


def test_weights_and_the_largest_layer_are_counted_in_the_dtype_that_is_asked_or_as_they_lie(
    tmp_path: Path,
) -> None:
    folder = write(tmp_path, TENSORS, dtype="bfloat16")
    sizes = {
        dtype: footprint(folder, dtype=dtype).weights for dtype in ("float32", "bfloat16", "auto")
    }
    assert sizes == {
        "float32": 2 * (4096 + 256) + 32,
        "bfloat16": 4096 + 256 + 32,
        "auto": 4096 + 256 + 32,
    }
    assert footprint(write(tmp_path, TENSORS, dtype="float32")).weights == 2 * (4096 + 256) + 32
    tensors = {
        **TENSORS,
        "model.layers.0.mlp.scale": ("F32", [8], 32),
        "model.layers.0.mlp.q": ("U8", [32], 32),
    }
    folder = write(tmp_path, tensors, quantization_config={"quant_method": "awq"})
    assert (
        footprint(folder, dtype="float32").weights
        == footprint(folder).weights
        == 4096 + 256 + 32 + 32 + 32
    )
    assert footprint(write(tmp_path, TENSORS), dtype="bfloat16").layer == 4096
    larger = {**TENSORS, "model.layers.1.self_attn.weight": ("BF16", [64, 64], 8192)}
    assert footprint(write(tmp_path, larger), dtype="bfloat16").layer == 8192 + 128 + 32


@pytest.mark.parametrize("folder", MODELS, ids=lambda folder: folder.name)
def test_the_weights_of_a_model_are_what_torch_holds(folder: Path) -> None:
    model = transformers.AutoModelForCausalLM.from_pretrained(folder)
    held = sum(parameter.numel() * 4 for parameter in model.parameters())
    assert footprint(folder, dtype="float32").weights == held


def test_a_gpu_has_a_context_and_leaves_main_memory_free_and_a_large_model_takes_several() -> None:
    on_gpu, on_cpu = footprint(SMALLEST, device="cuda"), footprint(SMALLEST, device="cpu")
    assert (on_gpu.context, on_cpu.context) == (CONTEXT["cuda"], 0)
    assert on_cpu.host == HOST["cpu"] + on_cpu.weights + on_cpu.workspace
    assert on_gpu.host == HOST["cuda"] + on_gpu.layer
    assert footprint(SMALLEST, device="xpu") == on_gpu  # another kind of device is taken for a GPU
    # 140 GB on devices of 80 GB: two hold the weights alone, three what computing takes too.
    giant = Footprint(
        weights=140 * 10**9, workspace=12 * 10**9, context=10**9, layer=2 * 10**9, host=0
    )
    assert giant.on_each(1) == giant.device == 153 * 10**9
    assert [giant.devices(size * 10**9, 8) for size in (80, 200, 16)] == [3, 1, None]


def test_a_loaded_model_says_what_it_needs_and_more_of_anything_needs_no_less() -> None:
    model = load_model(SMALLEST, device="cpu", window=100, batch_tokens=50)
    assert footprint_of(model) == footprint(SMALLEST, dtype="float32", window=100, batch_tokens=50)
    assert footprint_of(load_model("fake:hash")) == NOTHING
    options: dict[str, Any] = {"dtype": "bfloat16", "batch_tokens": 64, "window": 128}
    least = footprint(SMALLEST, **options)
    for more in ({"batch_tokens": 4096}, {"window": 2048}, {"generated": 64}, {"dtype": "float32"}):
        assert footprint(SMALLEST, **options | more).workspace > least.workspace, more
    assert footprint(SMALLEST, deepest=100).workspace < footprint(SMALLEST).workspace


def test_an_adapter_counts_in_float32_from_any_directory(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    peft = pytest.importorskip("peft")
    base = transformers.AutoModelForCausalLM.from_pretrained(SMALLEST)
    added = peft.get_peft_model(base, peft.LoraConfig(r=4, target_modules=["q_proj"]))
    added.save_pretrained(tmp_path / "added")
    monkeypatch.chdir(tmp_path)
    model = load_model(SMALLEST, device="cpu", adapter="added")
    monkeypatch.chdir("/")
    assert model.recipe == Recipe(
        str(SMALLEST), {"device": "cpu", "adapter": str(tmp_path / "added")}
    )
    assert loaded(model.recipe).digest == model.digest
    numbers = sum(weight.numel() for name, weight in added.named_parameters() if "lora" in name)
    both, alone = (footprint_of(each) for each in (model, load_model(SMALLEST, device="cpu")))
    assert (both.weights - alone.weights, both.host - alone.host) == (4 * numbers, 4 * numbers)


def test_damaged_files_have_no_footprint(tmp_path: Path) -> None:
    weights = write(tmp_path, TENSORS) / "model.safetensors"
    weights.write_bytes(weights.read_bytes() + b"more")
    with pytest.raises(ModelError, match=r"should have \d+ bytes"):
        footprint(tmp_path)


def test_a_self_check_is_no_deeper_than_is_counted() -> None:
    assert selfcheck.DEPTH <= PROBE


@pytest.mark.parametrize(
    ("kind", "room", "tokens"),
    [
        ("cuda", 33 * 10**9, 32_768),
        ("cuda", 32 * 10**9, 16_384),
        ("cuda", -1, 16_384),
        ("cpu", 10**12, 2048),
        ("mps", 10**12, 2048),
    ],
)
def test_a_pack_is_large_if_the_memory_beside_the_model_is(
    kind: str, room: int, tokens: int
) -> None:
    assert pack_tokens(kind, room) == tokens


def test_weights_leave_no_room_on_other_devices_than_gpus() -> None:
    assert room_beside(torch.nn.Linear(2, 2), torch.device("cpu")) == 0
