"""Read what a checkpoint folder says before anything is loaded."""

from __future__ import annotations

import hashlib
import json
import re
import shlex
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

from choicewise.errors import ModelError, install_line
from choicewise.questions import CAUSAL_KINDS, Blanks, Rendition, SetSpan
from choicewise.tokens.chat_template import ChatTemplate
from choicewise.util.cache import read_user_cache, write_user_cache
from choicewise.util.files import Refused, open_file, read_text
from choicewise.util.jsonio import JsonDict, JsonMapping
from choicewise.util.jsonio import read_json as parse_json

CONFIG = "adapter_config.json"
WEIGHTS = "adapter_model.safetensors"
# Keys that make PEFT read other models, or import code by its name.
_REACHING = ("adapters", "shadow_model", "megatron_config", "tokenizer_name_or_path")
_HEADER = 100_000_000  # bytes of the header of a safetensors file, as its own library takes
LONGEST = 1 << 20  # bytes of a template; those that are published have less than a twentieth of it
CHUNK = 1 << 20  # bytes of a chunk of a large file
CHUNKS = 64  # of a large file that its digest is made of
SETTLED = 2.0  # seconds after which a change of a file shows in its times on every file system
_DTYPES = {"F32": "float32", "F16": "float16", "BF16": "bfloat16"}

# The special tokens that templates may name.
_SPECIAL = "bos_token eos_token unk_token sep_token pad_token cls_token mask_token".split()

# Names under which configurations state how many positions the model knows.
_WINDOWS = """
    max_position_embeddings n_positions max_sequence_length max_seq_len seq_length context_length
    n_ctx
    """.split()
# Names of how many layers there are, and of further ones, which only predict tokens after the next.
_LAYERS = ("num_hidden_layers", "n_layer", "n_layers", "num_layers")
_FURTHER = ("num_nextn_predict_layers", "num_mtp_layers", "mtp_num_hidden_layers")
# The end of a name under which a configuration says how many parts of a kind there are.
_COUNTED = re.compile("(?:layers?|blocks|experts|heads?)$")
# The name of a weight in a layer.
_LAYER = re.compile(
    r"(?:model\.language_model\.|language_model\.model\.|model\.decoder\.|model\.|transformer\.|gpt_neox\.|rwkv\.|backbone\.)?"
    r"(?:layers|h|blocks)\.(\d+)\."
)

SENTENCEPIECE = ("tokenizer.model", "spiece.model", "sentencepiece.bpe.model")
"""How files of sentencepiece are called."""

FILES = (
    *"config.json generation_config.json tokenizer.json tokenizer_config.json".split(),
    *"special_tokens_map.json added_tokens.json vocab.json vocab.txt merges.txt".split(),
    *"chat_template.jinja chat_template.json".split(),
    *SENTENCEPIECE,
)
"""Files of configuration and tokenizer that are taken if they are there.  No code and no pickles."""

PACKAGES: Mapping[str, Mapping[str, str]] = {
    "aqlm": {"aqlm": "aqlm", "accelerate": "accelerate"},
    "awq": {"gptqmodel": "gptqmodel", "accelerate": "accelerate"},
    "bitsandbytes": {"bitsandbytes": "bitsandbytes", "accelerate": "accelerate"},
    "compressed-tensors": {"compressed_tensors": "compressed-tensors"},
    "fp8": {"accelerate": "accelerate"},
    "gguf": {"gguf": "gguf", "accelerate": "accelerate"},
    "gptq": {"gptqmodel": "gptqmodel", "optimum": "optimum"},
    "hqq": {"hqq": "hqq"},
    "mxfp4": {"accelerate": "accelerate"},
    "quanto": {"optimum.quanto": "optimum-quanto", "accelerate": "accelerate"},
    "torchao": {"torchao": "torchao"},
}
"""For each method the modules that transformers 5.23 asks for, and their names for pip.

From ``validate_environment`` of the classes in transformers/quantizers; other methods say
themselves what they need.
"""

# Methods whose weights are one kind of number each.
_SELF_EVIDENT = {"fp8": "float8", "mxfp8": "mxfp8", "mxfp4": "mxfp4", "nvfp4": "nvfp4"}
_CAUSAL_NAMES = ("ForCausalLM", "LMHeadModel")
_MASKED_NAMES = ("ForMaskedLM", "ForPreTraining")
# Model types of masked models, for configurations that name no architecture.
_MASKED_TYPES = """
    albert bert camembert deberta deberta-v2 distilbert electra modernbert mpnet roberta xlm-roberta
    """.split()
# Model types that count positions from the one after their padding token's id
# (create_position_ids_from_input_ids of transformers), so that so many of the positions they state
# are never used.
_AFTER_PADDING = """
    camembert data2vec-text ibert longformer luke mpnet roberta roberta-prelayernorm xlm-roberta
    xlm-roberta-xl xmod
    """.split()
# Model types that know distances alone: the positions that they state are no limit.
_RELATIVE = ("longt5", "mt5", "switch_transformers", "t5", "umt5")
# What the type, a layer's kind or a key of a configuration holds if layers read token after token.
_RECURRENT = re.compile(
    r"mamba|rwkv|recurrent|lstm|\blru_|\bssm_|\blinear_(attn|attention|num|conv)|conv_L_cache"
)


class ModelKind(NamedTuple):
    """A kind of model: its name in words, the class of transformers that loads it, and what it
    ``supports``.
    """

    name: str
    loader: str
    supports: frozenset[type]


CAUSAL = ModelKind("a causal language model", "AutoModelForCausalLM", CAUSAL_KINDS)
MASKED = ModelKind("a masked language model", "AutoModelForMaskedLM", frozenset({Blanks}))
ENCODER_DECODER = ModelKind("an encoder-decoder", "AutoModelForSeq2SeqLM", frozenset({Rendition}))


def supported(config: JsonMapping) -> frozenset[type]:
    """Return the kinds of question that the model with this ``config`` answers.

    Sets are not among them if a layer is recurrent.
    """
    text = {**config, **(config.get("text_config") or {})}
    layers = text.get("layer_types") or text.get("layers_block_type") or text.get("block_types")
    # The keys tell as well, but for models that have both kinds of layers, which name their kinds.
    parts = layers if isinstance(layers, list) else text
    words = " ".join(map(str, [text.get("model_type"), *parts]))
    kinds = model_kind(config).supports
    if _RECURRENT.search(words):
        return kinds - {SetSpan}
    return kinds


def model_kind(config: JsonMapping) -> ModelKind:
    """Return the kind of the model with this ``config``; causal if nothing says otherwise."""
    names = [name for name in config.get("architectures") or () if isinstance(name, str)]
    if config.get("is_encoder_decoder") is True:
        # Such a model has a causal part that can be loaded alone.
        if not any(name.endswith("ForCausalLM") for name in names):
            return ENCODER_DECODER
    if config.get("is_decoder") is True or any(name.endswith(_CAUSAL_NAMES) for name in names):
        return CAUSAL
    if any(name.endswith(_MASKED_NAMES) for name in names):
        return MASKED
    if not names and config.get("model_type") in _MASKED_TYPES:
        return MASKED
    return CAUSAL


def read_config(folder: Path) -> JsonDict:
    """Read ``config.json`` of a model folder.  Raises ModelError if it is missing or no object."""
    path = folder / "config.json"
    if not path.is_file():
        raise ModelError(
            f"{folder} holds no config.json, so it is no model folder; pass the folder that holds "
            "it"
        )
    config = read_json(path)
    if not isinstance(config, dict):
        raise ModelError(f"{path} is not a JSON object; fetch the file again")
    return config


@dataclass(frozen=True)
class Adapter:
    """The adapter in ``folder``, with its ``config``; nothing of it is loaded yet."""

    folder: Path
    config: JsonMapping

    @property
    def name(self) -> str:
        """Return what is written behind the model's name."""
        return self.folder.resolve().name

    @property
    def files(self) -> list[Path]:
        """Return the files that are read."""
        return [self.folder / CONFIG, self.folder / WEIGHTS]

    @cached_property
    def digest(self) -> str:
        """Return the sha256 (64 hex) over configuration and weights."""
        identity = hashlib.sha256(json.dumps(self.config, sort_keys=True).encode())
        with open_file(self.folder / WEIGHTS) as file:
            identity.update(hashlib.file_digest(file, "sha256").digest())
        return identity.hexdigest()

    def made_for_another(self, model: str | Path) -> str | None:
        """Return the name of the model that it was trained beside, if ``model`` is another.

        None if ``model`` is a folder or repository of that name, or no name is stated.
        """
        base = self.config.get("base_model_name_or_path")
        if not isinstance(base, str) or not base:
            return None
        names = {Path(model).resolve().name, Path(model).name.partition("@")[0]}
        return None if Path(base).name in names else base

    def attach(self, model: Any) -> None:
        """Put its layers into the torch module ``model``, unmerged, as PEFT computes them.

        Raises ModelError if they do not fit the model, or are not all there.
        """
        try:
            with quiet():
                report = model.load_adapter(
                    str(self.folder), use_safetensors=True, ignore_mismatched_sizes=True
                )
        except Exception as error:
            # Configurations and weights fail in every way there is.
            raise ModelError(
                f"the adapter {self.folder} can't be put into the model: {error}"
            ) from error
        mismatched = []
        for name, shape, model_shape in report.mismatched_keys:
            mismatched.append(f"{name} has shape {list(shape)} instead of {list(model_shape)}")
        problems = {
            "other shapes than the model": mismatched,
            "missing": report.missing_keys,
            "no place in the model": report.unexpected_keys,
            "errors": report.error_msgs or (),
        }
        for kind, names in problems.items():
            if not names:
                continue
            first = ", ".join(sorted(map(str, names))[:3])
            raise ModelError(
                f"the adapter {self.folder} does not fit the model ({kind}: {first}; {len(names)} "
                "in all); it was trained for "
                f"{self.config.get('base_model_name_or_path') or 'another one'}"
            )


def read_adapter(folder: Path) -> Adapter:
    """Read the adapter in ``folder``, and check that its files are complete.

    Raises ModelError if the folder is none, if its weights are not safetensors (others can run code
    when they are opened), or if PEFT is not installed.
    """
    path = folder / CONFIG
    weights = folder / WEIGHTS
    if not path.is_file():
        raise ModelError(
            f"{folder} holds no {CONFIG}, so it is not an adapter; pass the folder that PEFT saved"
        )
    config = read_json(path)
    if not isinstance(config, dict) or not isinstance(config.get("peft_type"), str):
        raise ModelError(f"{path} has no peft_type, the kind of adapter; fetch the file again")
    for key in _REACHING:
        if config.get(key):
            raise ModelError(
                f"{path} refers to files elsewhere ({key}); put all files of the adapter into its "
                "folder"
            )
    if not weights.is_file():
        raise ModelError(
            f"{folder} holds no {WEIGHTS}, and opening .bin or .pt can run code. If you trust it, "
            "save it "
            "again: model.save_pretrained(folder, safe_serialization=True)"
        )
    read_header(weights)
    if find_spec("peft") is None:
        raise ModelError(
            f"an adapter needs peft, which is not installed; run: {install_line('adapters')}"
        )
    return Adapter(folder, config)


def refuse_adapter(folder: Path) -> None:
    """Raise ModelError if a model folder holds an adapter.

    Transformers would take it in unasked, or there is no model.
    """
    path = folder / CONFIG
    if not path.is_file():
        return
    base = read_object(path).get("base_model_name_or_path")
    raise ModelError(
        f"{folder} holds an adapter ({CONFIG}). Pass its model ({base or 'unknown'}) as the model, "
        "and "
        "the adapter, in a folder of its own, as the adapter"
    )


def read_chat_template(folder: Path) -> ChatTemplate | None:
    """Read the template that transformers would apply to a chat without tools, if there is one.

    It is ``chat_template.jinja`` before ``chat_template`` in ``tokenizer_config.json``, which is a
    text or a list of named ones, of which ``default`` is taken.  Raises ModelError if there are
    named ones and none of that name.
    """
    path = folder / "tokenizer_config.json"
    config = read_object(path)
    stated = config.get("chat_template")
    source = str(path)
    file = folder / "chat_template.jinja"
    if file.is_file():
        try:
            stated = read_text(file, LONGEST)
        except (Refused, ValueError) as error:
            raise ModelError(f"{file} is not a chat template: {error}; fetch it again") from error
        source = str(file)
    if stated is None:
        return None
    if isinstance(stated, list):
        templates = [template for template in stated if isinstance(template, dict)]
        stated = {
            template["name"]: template["template"]
            for template in templates
            if {"name", "template"} <= template.keys()
        }
    if isinstance(stated, dict):
        if "default" not in stated:
            raise ModelError(
                f"{source} has the chat templates {', '.join(map(repr, stated))} and none called "
                "'default'; save "
                f"one of them as {folder / 'chat_template.jinja'}"
            )
        stated = stated["default"]
    if not isinstance(stated, str) or len(stated) > LONGEST:
        raise ModelError(
            f"the chat template in {source} is not a text of at most {LONGEST} characters; fetch "
            "it again"
        )
    names = read_object(folder / "special_tokens_map.json") | config
    texts = {role: token_text(names.get(role)) for role in _SPECIAL}
    special = {role: text for role, text in texts.items() if text is not None}
    return ChatTemplate(stated, special)


@contextmanager
def readable(folder: Path) -> Iterator[None]:
    """Raise ModelError for an OSError: what can't be read, why, and what to do."""
    try:
        yield
    except OSError as error:
        advice = "fetch the folder again"
        if isinstance(error, PermissionError):
            advice = f"chmod -R u+rX {shlex.quote(str(folder))}, or ask its owner"
        path = error.filename or folder
        reason = error.strerror or error
        raise ModelError(f"{path} can't be read: {reason}; {advice}") from error


def read_json(path: Path) -> Any:
    """Read a JSON file.  Raises ModelError if it is not JSON."""
    try:
        return parse_json(read_text(path))
    except ValueError as error:
        raise ModelError(f"{path} is not JSON: {error}; fetch the file again") from error


def read_object(path: Path) -> JsonDict:
    """Read the object in a JSON file; empty if there is no file or another value."""
    if not path.is_file():
        return {}
    content = read_json(path)
    return content if isinstance(content, dict) else {}


def token_text(token: Any) -> str | None:
    """Return the text of a special token, which files spell as a text or an object with content."""
    if isinstance(token, dict):
        token = token.get("content")
    return token if isinstance(token, str) else None


def _numbers(config: JsonMapping, names: Sequence[str]) -> list[tuple[str, int]]:
    """Return those of ``names`` for which a configuration or its text part has a number, with it."""
    numbers = []
    for part in (config, config.get("text_config") or {}):
        for name in names:
            number = part.get(name)
            if isinstance(number, int):
                numbers.append((name, number))
    return numbers


def window_of(config: JsonMapping, folder: Path, window: int | None = None) -> int:
    """Return ``window`` input tokens, or as many as the configuration states if it is None.

    Raises ModelError if ``window`` is more than it states, or if both are missing.
    """
    stated = [(name, number) for name, number in _numbers(config, _WINDOWS) if number > 0]
    if not stated:
        if window is None:
            raise ModelError(
                f"{folder}/config.json has no context length; "
                "pass the one of training, for example window 2048"
            )
        return window
    name, positions = stated[0]
    kind = config.get("model_type")
    padding = config.get("pad_token_id", 1)
    if kind in _AFTER_PADDING and isinstance(padding, int):
        positions -= padding + 1
    if window is None:
        return positions
    if window > positions and kind not in _RELATIVE:
        raise ModelError(
            f"the model has {positions} positions ({name} in {folder}/config.json), not {window}; "
            f"leave the window out, or pass at most {positions}"
        )
    return window


def weight_files(folder: Path) -> list[Path]:
    """Return the safetensors files of the weights, as transformers chooses them, all complete.

    Raises ModelError if there are none (pickled weights are never opened), if a shard is missing,
    or if a file is cut short or no safetensors file.
    """
    index = folder / "model.safetensors.index.json"
    if (folder / "model.safetensors").is_file():
        files = [folder / "model.safetensors"]
    elif index.is_file():
        files = [folder / name for name in indexed_files(index)]
    else:
        raise ModelError(
            f"{folder} holds no model.safetensors, and opening .bin or .pt can run code. "
            'If you trust it, convert it: python -c "from transformers import AutoModelForCausalLM as M; '
            f"M.from_pretrained('{folder}').save_pretrained('{folder}')\""
        )
    for file in files:
        if not file.is_file():
            raise ModelError(
                f"{file} is missing though {index.name} lists it; fetch the model folder again"
            )
        read_header(file)
    return files


def indexed_files(index: Path) -> list[str]:
    """Return the names of the files that an index of weights lists.

    Raises ModelError if they are no safetensors files.
    """
    try:
        names = sorted(set(parse_json(read_text(index))["weight_map"].values()))
        for name in names:
            if not name.endswith(".safetensors"):
                # Others can run code when opened.
                raise ValueError(f"{name} is not one")
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ModelError(
            f"{index} is not an index of safetensors files; fetch the file again"
        ) from error
    return names


def check_layers(config: JsonMapping, folder: Path) -> None:
    """Check that the configuration describes as many layers as the weights hold.

    Raises ModelError if the weights hold more, as not all would be used; layers that predict
    further tokens, which no score needs, don't count.  Raises ModelError also if the configuration
    describes more layers or experts than there are weights: to build as many would take hours and
    gigabytes.
    """
    weights = list(tensors(weight_files(folder)))
    _check_counts(config, folder, weights)
    stated = _numbers(config, _LAYERS)
    if not stated:
        return
    _, layers = stated[0]
    further = max((number for _, number in _numbers(config, _FURTHER)), default=0)
    held = 0
    for name, _ in weights:
        layer = _LAYER.match(name)
        if layer is not None:
            held = max(held, int(layer[1]) + 1)
    if held > layers + max(further, 0):
        raise ModelError(
            f"{folder}/config.json describes {layers} layers, but the weights hold {held}; "
            f"set its number of layers to {held}, or fetch the folder again"
        )


def _check_counts(
    config: JsonMapping, folder: Path, weights: Sequence[tuple[str, JsonDict]]
) -> None:
    """Check that the weights can have as many layers, experts and heads as are described."""
    most = len(weights)
    for _, entry in weights:
        most = max([most, *entry["shape"]])
    for part in (config, config.get("text_config") or {}):
        for name, count in part.items():
            if isinstance(count, int) and count > most and _COUNTED.search(name):
                raise ModelError(
                    f"{folder}/config.json has {name} = {count:,}, impossible with "
                    f"{len(weights):,} "
                    "weights; fetch the folder again"
                )


def dtype_of(config: JsonMapping, folder: Path) -> str | None:
    """Return the dtype that the configuration states, or that all weights have.

    None if only loading tells.
    """
    stated = config.get("dtype", config.get("torch_dtype"))
    if "quantization_config" in config:
        return None
    if isinstance(stated, str):
        return stated.removeprefix("torch.")
    if stated is not None or "text_config" in config:
        return None
    kinds = {entry["dtype"] for _, entry in tensors(weight_files(folder))}
    if len(kinds) != 1:
        return None
    return _DTYPES.get(kinds.pop())


def digest(folder: Path, tokenizer: str) -> str:
    """Return the sha256 (64 hex) over configuration, digest of the ``tokenizer``, and weights.

    Of every weight file it covers name, size, header, and all bytes up to 64 MiB; of larger ones 64
    evenly spaced chunks of 1 MiB, so that the identity of a large model takes seconds.
    """
    identity = hashlib.sha256()
    identity.update(json.dumps(read_config(folder), sort_keys=True).encode())
    identity.update(tokenizer.encode())
    for file in weight_files(folder):
        identity.update(f"\n{file.name} {file.stat().st_size}\n".encode())
        identity.update(read_header(file))
        size = file.stat().st_size
        with open_file(file) as stream:
            if size <= CHUNK * CHUNKS:
                identity.update(stream.read())
                continue
            for number in range(CHUNKS):
                stream.seek((size - CHUNK) * number // (CHUNKS - 1))
                identity.update(stream.read(CHUNK))
    return identity.hexdigest()


def tensors(files: Sequence[Path]) -> Iterator[tuple[str, JsonDict]]:
    """Yield the name of every tensor in safetensors files, and its dtype, shape and offsets."""
    for file in files:
        for name, entry in json.loads(read_header(file)).items():
            if name != "__metadata__":
                yield name, entry


def read_header(file: Path) -> bytes:
    """Read the JSON header of a safetensors file.

    Raises ModelError for another file, or if the offsets do not end where the file does.
    """
    size = file.stat().st_size
    header = b""
    with open_file(file) as stream:
        length = int.from_bytes(stream.read(8), "little")
        if length <= min(size, _HEADER):
            header = stream.read(length)
    end = 0
    try:
        for name, entry in parse_json(header).items():
            if name == "__metadata__":
                continue
            end = max(end, entry["data_offsets"][1])
            for width in entry["shape"]:
                if not isinstance(width, int) or width < 0:
                    raise ValueError("a shape is not a list of lengths")
    except (ValueError, AttributeError, KeyError, TypeError, IndexError) as error:
        advice = "fetch it again (git lfs pull, if it is a pointer)"
        raise ModelError(f"{file} is not a safetensors file; {advice}") from error
    if 8 + length + end != size:
        raise ModelError(
            f"{file} should have {8 + length + end} bytes but has {size}; fetch it again"
        )
    return header


class Quantisation(NamedTuple):
    """How the weights of a checkpoint were quantised.

    ``method``: transformers' name; ``weights``: the kind of number, as ``int8``.
    """

    method: str
    weights: str


def read_quantisation(config: JsonMapping, folder: Path) -> Quantisation | None:
    """Read ``quantization_config`` in the configuration of a model, if there is one.

    Raises ModelError for a method that this transformers does not know, as it would load such
    weights as if they were plain ones, and if a package is missing.
    """
    stated = config.get("quantization_config")
    if stated is None:
        return None
    method = None
    if isinstance(stated, dict):
        method = stated.get("quant_method")
        if method is None and (stated.get("load_in_8bit") or stated.get("load_in_4bit")):
            method = "bitsandbytes"
    if not isinstance(method, str):
        raise ModelError(
            f"quantization_config in {folder / 'config.json'} names no quant_method, so its "
            "weights can't "
            "be read; fetch the file again"
        )
    from transformers.utils.quantization_config import QuantizationMethod

    methods = {method_of_package.value for method_of_package in QuantizationMethod}
    if method not in methods:
        raise ModelError(
            f"the weights in {folder} are quantised with {method!r}. This transformers only reads "
            f"{', '.join(sorted(methods))}; use a newer one, or a checkpoint without quantisation"
        )
    needed = PACKAGES.get(method, {})
    missing = [package for module, package in needed.items() if not is_installed(module)]
    if missing:
        raise ModelError(
            f"the weights in {folder} are quantised with {method}, which needs "
            f"{' and '.join(missing)}; run: "
            f"pip install {' '.join(missing)}"
        )
    return Quantisation(method, next(_weights(stated, method), "quantised"))


def is_installed(module: str) -> bool:
    """Check that a module can be imported."""
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:
        # The package that it is a part of.
        return False


def remembered(files: Sequence[Path], how: str, compute: Callable[[], str]) -> str:
    """Return the digest (64 hex) that ``compute`` makes of ``files``, from the user's cache if it
    can.

    An entry of the cache is named after path, size, inode and times of every file: one that changed
    in any way has another entry.  ``how`` names the way to compute it, as another has other
    entries.  If ``compute`` raises, nothing is remembered.
    """
    parts = []
    changed = 0.0
    for file in files:
        stat = file.stat()
        times = [stat.st_mtime_ns, stat.st_ctime_ns]
        parts.append([str(file.resolve()), stat.st_size, *times, stat.st_ino, stat.st_dev])
        changed = max(changed, stat.st_mtime, stat.st_ctime)
    key = json.dumps([how, parts])
    digest = read_user_cache("digests", key)
    if digest is not None:
        return digest
    digest = compute()
    # A file may change once more within the precision of its times.
    if time.time() - changed > SETTLED:
        write_user_cache("digests", key, digest)
    return digest


@contextmanager
def quiet() -> Iterator[None]:
    """Silence transformers: no progress bar, and only errors in its log."""
    from transformers.utils import logging

    had_bars = logging.is_progress_bar_enabled()
    verbosity = logging.get_verbosity()
    logging.disable_progress_bar()
    logging.set_verbosity_error()
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)
        if had_bars:
            logging.enable_progress_bar()


def _weights(stated: JsonMapping, method: str) -> Iterator[str]:
    """Yield the kind of number that weights are, as one method or another says it."""
    if stated.get("load_in_8bit"):
        yield "int8"
    if stated.get("load_in_4bit"):
        yield str(stated.get("bnb_4bit_quant_type", "fp4"))
    for bits in ("bits", "nbits", "w_bit"):
        if isinstance(stated.get(bits), int):
            yield f"int{stated[bits]}"
    for group in (stated.get("config_groups") or {}).values():
        weights = group.get("weights") or {}
        yield f"{weights.get('type', 'int')}{weights.get('num_bits', '')}"
    name = stated.get("quant_type")
    if isinstance(name, dict) and isinstance(name.get("default"), dict):
        name = name["default"].get("_type")
    if isinstance(name, str):
        # As in Int8WeightOnlyConfig.
        yield name.removesuffix("Config").removesuffix("WeightOnly").lower()
    if isinstance(stated.get("weights"), str):
        yield stated["weights"]
    if method in _SELF_EVIDENT:
        yield _SELF_EVIDENT[method]
