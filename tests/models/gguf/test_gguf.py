"""GGUF files as models: the numbers of the folder that transformers writes from them, and what is refused by name."""

import errno
import hashlib
import json
import re
import shutil
import struct
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

from choicewise import evaluate, load_model, ports, score
from choicewise.bundled import BENCHMARK, MODELS
from choicewise.errors import ModelError
from choicewise.extensions.gguf.gguf_file import read_gguf
from choicewise.extensions.gguf.gguf_model import GgufModel
from choicewise.extensions.gguf.gguf_settings import settings_folder
from choicewise.extensions.gguf.gguf_values import read_values
from choicewise.models.local.folder_model import FolderModel, footprint_of
from choicewise.ports import Extension, ModelFile
from tests.helpers.make_gguf import write
from tests.unit.test_ports import example

Edit = Callable[[gguf.GGUFWriter], None]
FOLDER = next(folder for folder in MODELS if folder.name == "merrow-bpe-512")
Q8_0 = gguf.GGMLQuantizationType.Q8_0
CHOICES = [" The fog", " a bell of bronze", " 1234"]


@pytest.fixture(scope="module")
def packed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the file of a bundled model with 8 bits a weight."""
    path = tmp_path_factory.mktemp("gguf") / "isle-q8.gguf"
    write(FOLDER, path, Q8_0)
    return path


def rewritten(folder: Path, edit: Edit) -> Path:
    """Return the file of the bundled model in ``folder`` after ``edit`` changed it."""
    path = folder / "changed.gguf"
    write(FOLDER, path, edit=edit)
    return path


def with_key(key: str, value: Any, kind: gguf.GGUFValueType) -> Edit:
    """Return an edit that sets a metadata key."""

    def edit(writer: gguf.GGUFWriter) -> None:
        writer.kv_data[0].pop(key, None)
        writer.add_key_value(key, value, kind)

    return edit


def text_key(key: str, value: str) -> Edit:
    return with_key(key, value, gguf.GGUFValueType.STRING)


def sums(model: Any) -> list[float]:
    column = score(model, "What warns the ships?\nAnswer:", CHOICES).column("sum").to_pylist()
    return [float(value) for value in column]


@pytest.mark.costly("two networks are loaded and checked")
def test_scores_are_those_of_the_folder_that_transformers_writes_to_the_bit(
    packed: Path, tmp_path: Path
) -> None:
    read = AutoModelForCausalLM.from_pretrained(
        packed.parent, gguf_file=packed.name, dtype=torch.float32
    )
    config = type(read.config).from_dict({**read.config.to_dict(), "quantization_config": None})
    del config.quantization_config
    plain = type(read)(config)
    plain.load_state_dict(read.state_dict())
    plain.save_pretrained(tmp_path)
    model = load_model(packed)
    assert isinstance(model, GgufModel)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (tmp_path / name).write_bytes((model.folder / name).read_bytes())
    assert sums(model) == sums(str(tmp_path))


def test_float32_files_score_as_the_model_that_they_were_made_of(tmp_path: Path) -> None:
    path = tmp_path / "isle.gguf"
    write(FOLDER, path)
    model = load_model(path)
    assert np.allclose(sums(model), sums(str(FOLDER)), atol=1e-4)
    assert model.dtype == "F32 (gguf), float32"


def test_values_are_read_in_the_layout_of_transformers(packed: Path) -> None:
    """The plain reference: one pass over the original weights, quantised and back."""
    values = read_values(read_gguf(packed), load_folder(packed))
    original = FolderModel(FOLDER).local.model.state_dict()
    for name, tensor in values.items():
        rounded = original[name].numpy()
        if (
            rounded.ndim > 1 and "q_proj" not in name and "k_proj" not in name
        ):  # their rows are permuted in the file
            rounded = gguf.dequantize(gguf.quantize(rounded, Q8_0), Q8_0)
        assert np.allclose(tensor.numpy(), rounded, atol=0.02), name


def load_folder(path: Path) -> Path:
    model = load_model(path)
    assert isinstance(model, GgufModel)
    return model.folder


def test_a_run_says_which_file_answered(packed: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    evaluate(model=str(packed), data=BENCHMARK, protocols=["mmlu/original"], limit=1, out=out)
    manifest = json.loads((out / "manifest.json").read_text())
    model = manifest["model"]
    assert model["name"] == "isle-q8"
    assert model["dtype"] == "Q8_0 (gguf), float32"
    assert (
        model["source"] == f"isle-q8.gguf@sha256:{hashlib.sha256(packed.read_bytes()).hexdigest()}"
    )
    assert {"gguf", "transformers", "torch"} <= manifest["versions"].keys()


def test_memory_is_stated_before_anything_is_loaded(packed: Path) -> None:
    assert footprint_of(load_model(packed)).weights == footprint_of(load_model(FOLDER)).weights


def test_a_folder_stands_for_its_only_file_and_several_are_listed(
    packed: Path, tmp_path: Path
) -> None:
    (tmp_path / "one.gguf").write_bytes(packed.read_bytes())
    (tmp_path / "one-00001-of-00002.gguf").write_bytes(b"a part that it was joined of")
    assert load_model(tmp_path).name == "one"
    (tmp_path / "two.gguf").write_bytes(packed.read_bytes())
    (tmp_path / "mmproj.gguf").write_bytes(b"smaller")
    with pytest.raises(ModelError, match=r"mmproj\.gguf, one\.gguf, two\.gguf.*: .*/one\.gguf"):
        load_model(tmp_path)
    assert load_model(tmp_path / "two.gguf").name == "two"


# What the file states counts


def special_ids(path: Path) -> list[int]:
    model = load_model(path)
    (ids,) = model.tokenizer.encode(["fog"], special=True)
    (bare,) = model.tokenizer.encode(["fog"], special=False)
    return [int(number) for number in ids if number not in bare]


@pytest.mark.parametrize(
    ("bos", "eos", "added"), [(True, False, [0]), (False, True, [1]), (True, True, [0, 1])]
)
def test_texts_begin_and_end_as_the_file_states(
    tmp_path: Path, bos: bool, eos: bool, added: list[int]
) -> None:
    def edit(writer: gguf.GGUFWriter) -> None:
        with_key("tokenizer.ggml.add_bos_token", bos, gguf.GGUFValueType.BOOL)(writer)
        with_key("tokenizer.ggml.add_eos_token", eos, gguf.GGUFValueType.BOOL)(writer)

    assert special_ids(rewritten(tmp_path, edit)) == added


def test_single_digits_are_words_where_the_file_splits_so(tmp_path: Path) -> None:
    path = rewritten(tmp_path, text_key("tokenizer.ggml.pre", "smollm"))
    tokenizer = load_model(path).tokenizer
    (numbers,) = tokenizer.words(["in 1234"])
    assert len(set(numbers.tolist())) == 6


def test_the_chat_template_of_the_file_is_applied(tmp_path: Path) -> None:
    template = "{{ messages[0]['content'] }}!"
    path = rewritten(tmp_path, text_key("tokenizer.chat_template", template))
    assert (
        json.loads((load_folder(path) / "tokenizer_config.json").read_text())["chat_template"]
        == template
    )
    assert load_model(path).tokenizer.chat is not None


@pytest.mark.parametrize("factor", [8.0, 32.0])
def test_the_rotation_of_llama_3_is_found_by_its_factors(tmp_path: Path, factor: float) -> None:
    """The factors as llama.cpp's converter computes them (convert_hf_to_gguf.py, generate_extra_tensors)."""
    width = 24
    factors = []
    for frequency in 1.0 / 10_000.0 ** (np.arange(0, width, 2) / width):
        wavelength = 2 * np.pi / frequency
        if wavelength < 8192 / 4.0:
            factors.append(1.0)
        elif wavelength > 8192 / 1.0:
            factors.append(factor)
        else:
            smooth = (8192 / wavelength - 1.0) / (4.0 - 1.0)
            factors.append(1 / ((1 - smooth) / factor + smooth))
    path = rewritten(
        tmp_path,
        lambda writer: writer.add_tensor(
            "rope_freqs.weight", np.asarray(factors, dtype=np.float32)
        ),
    )
    model = load_model(path)
    assert isinstance(model, GgufModel)
    assert model.config["rope_parameters"]["rope_type"] == "llama3"
    assert model.config["rope_parameters"]["factor"] == factor


@pytest.mark.parametrize("is_named", [True, False])
def test_linear_scaling_of_positions_is_taken_from_the_file(tmp_path: Path, is_named: bool) -> None:
    """A factor alone is linear: rope_scaling_type_train of llama.cpp, src/llama-model.cpp."""

    def edit(writer: gguf.GGUFWriter) -> None:
        if is_named:
            text_key("llama.rope.scaling.type", "linear")(writer)
        with_key("llama.rope.scaling.factor", 4.0, gguf.GGUFValueType.FLOAT32)(writer)

    model = load_model(rewritten(tmp_path, edit))
    assert isinstance(model, GgufModel)
    assert model.config["rope_parameters"]["rope_type"] == "linear"
    assert model.config["rope_parameters"]["factor"] == 4.0


# What is refused


def without_weights(writer: gguf.GGUFWriter) -> None:
    writer.tensors[0].clear()


def with_bias(writer: gguf.GGUFWriter) -> None:
    writer.add_tensor("blk.0.attn_q.bias", np.zeros(96, dtype=np.float32))


def without_layer(writer: gguf.GGUFWriter) -> None:
    del writer.tensors[0]["blk.1.ffn_up.weight"]


def without_key(key: str) -> Edit:
    def edit(writer: gguf.GGUFWriter) -> None:
        del writer.kv_data[0][key]

    return edit


def with_tokens(change: Callable[[list[str]], list[str]]) -> Edit:
    """Return an edit that changes the tokens, and states nothing else about them."""

    def edit(writer: gguf.GGUFWriter) -> None:
        tokens = writer.kv_data[0]["tokenizer.ggml.tokens"].value
        del writer.kv_data[0]["tokenizer.ggml.token_type"]
        with_key("tokenizer.ggml.tokens", change(list(tokens)), gguf.GGUFValueType.ARRAY)(writer)

    return edit


UNREADABLE = {
    "vocabulary": (without_weights, "vocabulary without weights"),
    "projector": (text_key("general.architecture", "clip"), "mmproj"),
    "matrix": (text_key("general.type", "imatrix"), "importance matrix"),
    "adapter": (text_key("general.type", "adapter"), "LoRA"),
    "tokenizer": (text_key("tokenizer.ggml.model", "bert"), "llama.cpp"),
    "merges": (
        with_key("tokenizer.ggml.merges", ["a nowhere"], gguf.GGUFValueType.ARRAY),
        "merges 'a nowhere'",
    ),
    "words": (text_key("tokenizer.ggml.pre", "viking"), "viking.*llama.cpp"),
    "rotation": (text_key("llama.rope.scaling.type", "longrope"), "longrope.*llama.cpp"),
    "key": (with_key("llama.logit_scale", 0.5, gguf.GGUFValueType.FLOAT32), "logit_scale"),
    "base": (
        with_key("llama.attention.key_length", 7, gguf.GGUFValueType.UINT32),
        "key_length = 7.*24",
    ),
    "attention": (
        with_key("llama.rope.scaling.attn_factor", 2.0, gguf.GGUFValueType.FLOAT32),
        "attn_factor",
    ),
    "factor": (text_key("llama.rope.scaling.factor", "x"), "factor = 'x'"),
    "no heads": (without_key("llama.attention.head_count"), "no llama.attention.head_count"),
    "no epsilon": (without_key("llama.attention.layer_norm_rms_epsilon"), "rms_epsilon"),
    "no merges": (without_key("tokenizer.ggml.merges"), "without merges"),
    "layers": (
        with_key("llama.block_count", 1 << 31, gguf.GGUFValueType.UINT32),
        "2147483648 layers.*38 tensors",
    ),
    "numbers for merges": (
        with_key("tokenizer.ggml.merges", [1, 2], gguf.GGUFValueType.ARRAY),
        "merges is no list of texts",
    ),
    "text for a truth": (text_key("tokenizer.ggml.add_bos_token", "false"), "add_bos_token"),
    "kinds of tokens": (
        with_key("tokenizer.ggml.token_type", [1, 2, 3], gguf.GGUFValueType.ARRAY),
        "token_type",
    ),
    "token twice": (with_tokens(lambda tokens: [*tokens[:-1], tokens[2]]), "twice"),
    "special token": (
        with_key("tokenizer.ggml.bos_token_id", 9999, gguf.GGUFValueType.UINT32),
        "bos token 9,999",
    ),
    "further tokens": (with_tokens(lambda tokens: [*tokens, "zz"]), "513 tokens.*512"),
    "count of parts": (text_key("split.count", "x"), "split.count is 'x'"),
    "part": (with_key("split.count", 3, gguf.GGUFValueType.UINT16), "3 parts.*--merge"),
}


@pytest.mark.parametrize("name", UNREADABLE)
def test_other_files_are_refused_by_name(tmp_path: Path, name: str) -> None:
    edit, reason = UNREADABLE[name]
    path = rewritten(tmp_path, edit)
    with pytest.raises(ModelError, match=reason):
        load_model(path)


def test_an_architecture_that_transformers_does_not_know_needs_a_server(tmp_path: Path) -> None:
    def edit(writer: gguf.GGUFWriter) -> None:
        text_key("general.architecture", "rwkv9")(writer)

    with pytest.raises(ModelError, match=r"rwkv9.*server:http"):
        load_model(rewritten(tmp_path, edit))


def with_other_heads(writer: gguf.GGUFWriter) -> None:
    with_key("llama.attention.head_count_kv", 7, gguf.GGUFValueType.UINT32)(writer)


@pytest.mark.parametrize(
    ("edit", "reason"),
    [
        (with_bias, "values"),
        (without_layer, r"changed\.gguf.*missing_keys.*fetch the file"),
        (with_other_heads, r"attn_k\.weight"),
    ],
)
def test_values_without_a_place_and_places_without_values_are_refused(
    tmp_path: Path, edit: Edit, reason: str
) -> None:
    model = load_model(rewritten(tmp_path, edit))
    assert isinstance(model, GgufModel)
    with pytest.raises(ModelError, match=reason):
        model.check(0)


def test_parts_of_a_model_are_joined_by_the_command_in_the_error(
    packed: Path, tmp_path: Path
) -> None:
    first = tmp_path / "isle-00001-of-00002.gguf"
    first.write_bytes(packed.read_bytes())
    with pytest.raises(ModelError, match=r"isle-00002-of-00002\.gguf is missing"):
        load_model(first)
    (tmp_path / "isle-00002-of-00002.gguf").write_bytes(packed.read_bytes())
    command = f"llama-gguf-split --merge {first} {tmp_path / 'isle.gguf'}"
    for name in (first, tmp_path):
        with pytest.raises(ModelError, match=re.escape(command)):
            load_model(name)


def head(
    version: int = 3, tensors: int = 0, entries: bytes = b"", count: int = 0, order: str = "<"
) -> bytes:
    return b"GGUF" + struct.pack(f"{order}IQQ", version, tensors, count) + entries


def entry(key: str, kind: int, value: bytes) -> bytes:
    return struct.pack("<Q", len(key)) + key.encode() + struct.pack("<I", kind) + value


DAMAGED = {
    "empty": (b"", "too few"),
    "magic": (b"ggjt" + b"\0" * 60, "not a GGUF file"),
    "version": (head(version=1), "version 1"),
    "big-endian": (head(order=">"), "big-endian"),
    "no architecture": (head(), "general.architecture"),
    "text of 2 GB": (
        head(count=1, entries=entry("a", 8, struct.pack("<Q", 1 << 31))),
        "2,147,483,648",
    ),
    "list of lists": (head(count=1, entries=entry("a", 9, struct.pack("<IQ", 9, 1))), "type 9"),
    "endless list": (
        head(count=1, entries=entry("a", 9, struct.pack("<IQ", 4, 1 << 60))),
        "values",
    ),
    "no such type": (head(count=1, entries=entry("a", 77, b"")), "type 77"),
    "entries beyond the end": (head(count=1 << 16), "ends at byte"),
    "tensors beyond the end": (head(tensors=1 << 16), "ends at byte"),
    "endless entries": (head(count=1 << 60), "1,152,921,504,606,846,976 keys"),
    "endless tensors": (head(tensors=1 << 60), "1,152,921,504,606,846,976 tensors"),
    "key twice": (head(count=2, entries=2 * entry("a", 4, bytes(4))), "'a' twice"),
    "alignment": (
        head(count=1, entries=entry("general.alignment", 4, struct.pack("<I", 7))),
        "alignment is 7",
    ),
}


@pytest.mark.parametrize("name", DAMAGED)
def test_damaged_files_are_errors_in_bounded_memory(tmp_path: Path, name: str) -> None:
    content, reason = DAMAGED[name]
    path = tmp_path / "damaged.gguf"
    path.write_bytes(content)
    with pytest.raises(ModelError, match=reason):
        load_model(path)


def test_a_file_that_is_cut_short_is_refused(packed: Path, tmp_path: Path) -> None:
    path = tmp_path / "short.gguf"
    path.write_bytes(packed.read_bytes()[:-1000])
    with pytest.raises(ModelError, match="cut short"):
        load_model(path)


def test_tensors_that_share_bytes_are_refused(packed: Path, tmp_path: Path) -> None:
    content = bytearray(packed.read_bytes())
    name = b"blk.0.ffn_up.weight"
    # Behind the name: the number of dimensions, two dimensions and the type.
    offset = content.index(name) + len(name) + struct.calcsize("<IQQI")
    struct.pack_into("<Q", content, offset, 0)
    path = tmp_path / "shared.gguf"
    path.write_bytes(content)
    with pytest.raises(ModelError, match=name.decode()):
        load_model(path)


def test_a_file_without_permission_is_refused_with_the_command(
    packed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def closed(path: Path, *_: Any, **__: Any) -> None:
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    monkeypatch.setattr(Path, "open", closed)
    with pytest.raises(ModelError, match=r"isle-q8\.gguf.*chmod"):
        read_gguf(packed)


@settings(
    max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None
)
@given(at=st.integers(0, 3000), byte=st.integers(0, 255))
def test_no_changed_byte_of_the_head_ends_in_anything_but_an_error(
    packed: Path, tmp_path: Path, at: int, byte: int
) -> None:
    content = bytearray(packed.read_bytes())
    content[at] = byte
    path = tmp_path / "changed.gguf"
    path.write_bytes(content)
    with suppress(ModelError):
        read_gguf(path)


def test_settings_are_made_once(packed: Path) -> None:
    file = read_gguf(packed)
    first = settings_folder(file, "a" * 64)
    stamp = (first / "tokenizer.json").stat().st_mtime_ns
    assert settings_folder(file, "a" * 64) == first
    assert (first / "tokenizer.json").stat().st_mtime_ns == stamp


@pytest.mark.parametrize("absent", ["general.url", "llama.vocab_size"])
def test_settings_are_those_that_transformers_reads_from_the_whole_file(
    tmp_path: Path, absent: str
) -> None:
    def edit(writer: gguf.GGUFWriter) -> None:
        writer.kv_data[0].pop(absent, None)

    path = rewritten(tmp_path, edit)
    folder = load_folder(path)
    config = AutoConfig.from_pretrained(tmp_path, gguf_file=path.name)
    tokenizer = AutoTokenizer.from_pretrained(tmp_path, gguf_file=path.name)
    expected = json.loads(json.dumps(config.to_dict()))
    stored = json.loads((folder / "config.json").read_text())
    assert stored.pop("architectures") == ["LlamaForCausalLM"]
    del expected["architectures"]
    expected.pop("_name_or_path", None)
    assert stored == expected
    converted = json.loads(tokenizer.backend_tokenizer.to_str())
    content = json.loads((folder / "tokenizer.json").read_text())
    for part in ("added_tokens", "normalizer", "decoder"):
        assert content[part] == converted[part]
    for part in ("vocab", "merges"):
        assert content["model"][part] == converted["model"][part]


def test_a_format_of_another_package_opens_a_file_and_the_folder_that_holds_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    added = Extension("stranger", [example(ModelFile)])
    monkeypatch.setattr(ports, "other_extensions", lambda: (added,))
    file = Path(shutil.make_archive(str(tmp_path / "isle"), "zip", FOLDER))
    assert load_model(file).digest == load_model(tmp_path).digest == load_model(FOLDER).digest
    shutil.copy(file, tmp_path / "other.zip")
    with pytest.raises(ModelError, match=r"several ZIP files \(isle\.zip, other\.zip\)"):
        load_model(tmp_path)
