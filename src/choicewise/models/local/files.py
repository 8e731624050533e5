"""What a checkpoint folder says before anything is loaded: configuration, kind, weights, adapter, quantisation."""

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
from typing import Any, Final, NamedTuple

from choicewise.errors import ModelError, install_line
from choicewise.questions import CAUSAL_KINDS, Blanks, Rendition, SetSpan
from choicewise.tokens.chat_template import ChatTemplate
from choicewise.util.cache import read_user_cache, write_user_cache
from choicewise.util.files import Refused, open_file, read_text
from choicewise.util.jsonio import read_json as parse_json

CONFIG, WEIGHTS = "adapter_config.json", "adapter_model.safetensors"

# What makes PEFT read other models, or import code by its name.
_REACHING = ("adapters", "shadow_model", "megatron_config", "tokenizer_name_or_path")
_HEADER: Final = 100_000_000  # bytes of the header of a safetensors file, as its own library takes
LONGEST = 1 << 20  # bytes of a template; those that are published have less than a twentieth of it

_SPECIAL = (
    "bos_token",
    "eos_token",
    "unk_token",
    "sep_token",
    "pad_token",
    "cls_token",
    "mask_token",
)
"""The special tokens that templates may name."""

CHUNK, CHUNKS = 1 << 20, 64

_WINDOWS = (
    *("max_position_embeddings", "n_positions", "max_sequence_length", "max_seq_len"),
    *("seq_length", "context_length", "n_ctx"),
)
"""The names under which configurations state how many positions the model knows."""

_LAYERS = (
    "num_hidden_layers",
    "n_layer",
    "n_layers",
    "num_layers",
)  # how many layers, by several names

_FURTHER = ("num_nextn_predict_layers", "num_mtp_layers", "mtp_num_hidden_layers")
"""Names of how many further layers there are, which only predict tokens after the next one."""

_COUNTED = re.compile("(?:layers?|blocks|experts|heads?)$")
"""The end of a name under which a configuration says how many parts of a kind there are."""

_LAYER = re.compile(
    r"(?:model\.language_model\.|language_model\.model\.|model\.decoder\.|model\.|transformer\.|gpt_neox\.|rwkv\.|backbone\.)?"
    r"(?:layers|h|blocks)\.(\d+)\."
)
"""The name of a weight in a layer."""

_DTYPES = {"F32": "float32", "F16": "float16", "BF16": "bfloat16"}
SENTENCEPIECE: Final = (
    "tokenizer.model",
    "spiece.model",
    "sentencepiece.bpe.model",
)  # what its files are called

FILES: Final = (
    *(
        "config.json",
        "generation_config.json",
        "tokenizer.json",
        "tokenizer_config.json",
        "special_tokens_map.json",
    ),
    *(
        "added_tokens.json",
        "vocab.json",
        "vocab.txt",
        "merges.txt",
        "chat_template.jinja",
        "chat_template.json",
    ),
    *SENTENCEPIECE,
)
"""Configuration and tokenizer: what is taken of them where it is there.  No code and no pickles."""

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

From ``validate_environment`` of the classes in transformers/quantizers; other methods say themselves what they need.
"""

_SELF_EVIDENT = {
    "fp8": "float8",
    "mxfp8": "mxfp8",
    "mxfp4": "mxfp4",
    "nvfp4": "nvfp4",
}  # one kind of number each
_CAUSAL_NAMES = ("ForCausalLM", "LMHeadModel")
_MASKED_NAMES = ("ForMaskedLM", "ForPreTraining")

_MASKED_TYPES = (
    *(
        "albert",
        "bert",
        "camembert",
        "deberta",
        "deberta-v2",
        "distilbert",
        "electra",
        "modernbert",
        "mpnet",
    ),
    *("roberta", "xlm-roberta"),
)
"""Model types of masked models, where a configuration names no architecture."""

_AFTER_PADDING = (
    *(
        "camembert",
        "data2vec-text",
        "ibert",
        "longformer",
        "luke",
        "mpnet",
        "roberta",
        "roberta-prelayernorm",
    ),
    *("xlm-roberta", "xlm-roberta-xl", "xmod"),
)
"""Model types that count positions from the one after their padding token's id (``create_position_ids_from_input_ids``
of transformers), so that so many of the positions they state are never used."""

_RELATIVE = (
    "longt5",
    "mt5",
    "switch_transformers",
    "t5",
    "umt5",
)  # they know distances: positions are no limit
SETTLED = 2.0  # seconds after which a change of a file shows in its times on every file system


class ModelKind(NamedTuple):
    """A kind of model: its name in words, the class of transformers that loads it, and what it ``supports``."""

    name: str
    loader: str
    supports: frozenset[type]


CAUSAL = ModelKind("a causal language model", "AutoModelForCausalLM", CAUSAL_KINDS)
MASKED = ModelKind("a masked language model", "AutoModelForMaskedLM", frozenset({Blanks}))
ENCODER_DECODER = ModelKind("an encoder-decoder", "AutoModelForSeq2SeqLM", frozenset({Rendition}))


_RECURRENT = re.compile(
    r"mamba|rwkv|recurrent|lstm|\blru_|\bssm_|\blinear_(attn|attention|num|conv)|conv_L_cache"
)
"""What configurations of models with layers that read token after token hold: in the type, a layer's kind, or a key."""


def supported(config: Mapping[str, Any]) -> frozenset[type]:
    """The kinds of question that the model with this ``config`` answers: of sets none where a layer is recurrent."""
    text = {**config, **(config.get("text_config") or {})}
    layers = text.get("layer_types") or text.get("layers_block_type") or text.get("block_types")
    said = [str(text.get("model_type")), *(map(str, layers) if isinstance(layers, list) else text)]
    return model_kind(config).supports - ({SetSpan} if _RECURRENT.search(" ".join(said)) else set())


def model_kind(config: Mapping[str, Any]) -> ModelKind:
    """The kind of the model with this ``config``; causal where nothing says otherwise."""
    names = [name for name in config.get("architectures") or () if isinstance(name, str)]
    if config.get("is_encoder_decoder") is True and not any(
        name.endswith("ForCausalLM") for name in names
    ):
        return ENCODER_DECODER
    if any(name.endswith(_CAUSAL_NAMES) for name in names) or config.get("is_decoder") is True:
        return CAUSAL
    of_type = config.get("model_type") in _MASKED_TYPES
    masked = any(name.endswith(_MASKED_NAMES) for name in names) if names else of_type
    return MASKED if masked else CAUSAL


def read_config(folder: Path) -> dict[str, Any]:
    """``config.json`` of a model folder; ModelError when it is missing or no JSON object."""
    path = folder / "config.json"
    if not path.is_file():
        raise ModelError(
            f"{folder} holds no config.json, so it is no model folder; pass the folder that holds it"
        )
    config = read_json(path)
    if not isinstance(config, dict):
        raise ModelError(f"{path} is not a JSON object; fetch the file again")
    return config


@dataclass(frozen=True)
class Adapter:
    """The adapter in ``folder``, with its ``config``; nothing of it is loaded yet."""

    folder: Path
    config: Mapping[str, Any]

    @property
    def name(self) -> str:
        """What stands behind the model's name."""
        return self.folder.resolve().name

    @property
    def files(self) -> list[Path]:
        """The files that are read."""
        return [self.folder / CONFIG, self.folder / WEIGHTS]

    @cached_property
    def digest(self) -> str:
        """sha256 (64 hex) over configuration and weights."""
        identity = hashlib.sha256(json.dumps(self.config, sort_keys=True).encode())
        with open_file(self.folder / WEIGHTS) as file:
            identity.update(hashlib.file_digest(file, "sha256").digest())
        return identity.hexdigest()

    def made_for_another(self, model: str | Path) -> str | None:
        """The name of the model that it was trained beside, where ``model`` is no folder or repository of that name."""
        base = self.config.get("base_model_name_or_path")
        names = {Path(model).resolve().name, Path(model).name.partition("@")[0]}
        return base if isinstance(base, str) and base and Path(base).name not in names else None

    def attach(self, model: Any) -> None:
        """Put its layers into the torch module ``model``, unmerged, as PEFT itself computes them.

        Raises ModelError when they do not fit the model, or are not all there.
        """
        try:
            with quiet():
                report = model.load_adapter(
                    str(self.folder), use_safetensors=True, ignore_mismatched_sizes=True
                )
        except Exception as error:  # configurations and weights fail in every way there is
            raise ModelError(
                f"the adapter {self.folder} can't be put into the model: {error}"
            ) from error
        mismatched = [
            f"{name} has shape {[*own]} instead of {[*due]}"
            for name, own, due in report.mismatched_keys
        ]
        wrong = {
            "other shapes than the model": mismatched,
            "missing": report.missing_keys,
            "no place in the model": report.unexpected_keys,
            "errors": report.error_msgs or (),
        }
        for kind, names in wrong.items():
            if shown := sorted(map(str, names)):
                raise ModelError(
                    f"the adapter {self.folder} does not fit the model ({kind}: {', '.join(shown[:3])}; {len(shown)} "
                    f"in all); it was trained beside {self.config.get('base_model_name_or_path') or 'another one'}"
                )


def read_adapter(folder: Path) -> Adapter:
    """The adapter in ``folder``, its files checked to be complete.

    Raises ModelError when the folder is none, when its weights are not safetensors (others can run code when they are
    opened), or when PEFT is not installed.
    """
    path, weights = folder / CONFIG, folder / WEIGHTS
    if not path.is_file():
        raise ModelError(
            f"{folder} holds no {CONFIG}, so it is no adapter; pass the folder that PEFT saved"
        )
    config = read_json(path)
    if not isinstance(config, dict) or not isinstance(config.get("peft_type"), str):
        raise ModelError(
            f"{path} does not say what kind of adapter it is (peft_type); fetch the file again"
        )
    if reaching := [key for key in _REACHING if config.get(key)]:
        raise ModelError(
            f"{path} names what lies elsewhere ({reaching[0]}), and only adapters that are all in their folder are read"
        )
    if not weights.is_file():
        raise ModelError(
            f"{folder} holds no {WEIGHTS}, and other formats (.bin, .pt) can run code when opened; save it again where "
            "you trust it: model.save_pretrained(folder, safe_serialization=True)"
        )
    read_header(weights)
    if find_spec("peft") is None:
        raise ModelError(
            f"an adapter needs peft, which is not installed; run: {install_line('adapters')}"
        )
    return Adapter(folder, config)


def refuse_adapter(folder: Path) -> None:
    """ModelError where a model folder holds an adapter: transformers would take it in unasked, or there is no model."""
    if (folder / CONFIG).is_file():
        config = read_json(folder / CONFIG)
        base = config.get("base_model_name_or_path") if isinstance(config, dict) else None
        raise ModelError(
            f"{folder} holds an adapter ({CONFIG}); pass the model that it belongs to ({base or 'not stated'}) as the "
            "model, and the adapter as such, in a folder without that model"
        )


def read_chat_template(folder: Path) -> ChatTemplate | None:
    """The template that transformers would apply to a chat without tools; None where the folder has none.

    That is ``chat_template.jinja`` before ``chat_template`` in ``tokenizer_config.json``, which is a text or a list of
    named ones, of which ``default`` is taken.  Raises ModelError when there are named ones and none of that name.
    """
    path = folder / "tokenizer_config.json"
    config = read_object(path)
    stated, source = config.get("chat_template"), str(path)
    file = folder / "chat_template.jinja"
    if file.is_file():
        try:
            stated = read_text(file, LONGEST)
        except (Refused, ValueError) as error:
            raise ModelError(f"{file} is no chat template: {error}; fetch it again") from error
        source = str(file)
    if stated is None:
        return None
    if isinstance(stated, list):
        named = (
            each
            for each in stated
            if isinstance(each, dict) and {"name", "template"} <= each.keys()
        )
        stated = {each["name"]: each["template"] for each in named}
    if isinstance(stated, dict):
        if "default" not in stated:
            raise ModelError(
                f"{source} has the chat templates {', '.join(map(repr, stated))} and none called 'default'; save the "
                f"one to be used as {folder / 'chat_template.jinja'}"
            )
        stated = stated["default"]
    if not isinstance(stated, str) or len(stated) > LONGEST:
        raise ModelError(
            f"the chat template in {source} is no text of at most {LONGEST} characters; fetch it again"
        )
    names = read_object(folder / "special_tokens_map.json") | config
    special = {role: text for role in _SPECIAL if (text := token_text(names.get(role))) is not None}
    return ChatTemplate(stated, special)


@contextmanager
def readable(folder: Path) -> Iterator[None]:
    """ModelError in place of an OSError: what can't be read, why, and what to do."""
    try:
        yield
    except OSError as error:
        advice = "fetch the folder again"
        if isinstance(error, PermissionError):
            advice = f"chmod -R u+rX {shlex.quote(str(folder))}, or ask its owner"
        path, reason = error.filename or folder, error.strerror or error
        raise ModelError(f"{path} can't be read: {reason}; {advice}") from error


def read_json(path: Path) -> Any:
    """The content of a JSON file; ModelError when it is not JSON."""
    try:
        return parse_json(read_text(path))
    except ValueError as error:
        raise ModelError(f"{path} is not JSON: {error}; fetch the file again") from error


def read_object(path: Path) -> dict[str, Any]:
    """The object in a JSON file; empty where there is no file or another value."""
    content = read_json(path) if path.is_file() else {}
    return content if isinstance(content, dict) else {}


def token_text(token: Any) -> str | None:
    """The text of a special token, which the files name by it or as an object with ``content``."""
    text = token.get("content") if isinstance(token, dict) else token
    return text if isinstance(text, str) else None


def window_of(config: Mapping[str, Any], folder: Path, window: int | None = None) -> int:
    """``window`` input tokens, or as many as the configuration states.

    ModelError when ``window`` is more than it states, or when both are missing.
    """
    places = [
        (name, place.get(name))
        for place in (config, config.get("text_config") or {})
        for name in _WINDOWS
    ]
    stated = [(name, tokens) for name, tokens in places if isinstance(tokens, int) and tokens > 0]
    if not stated:
        if window is None:
            raise ModelError(
                f"{folder}/config.json does not say how many tokens fit the model; "
                "pass how many it was trained on as the window, for example 2048"
            )
        return window
    name, known = stated[0]
    kind, padding = config.get("model_type"), config.get("pad_token_id", 1)
    known -= padding + 1 if kind in _AFTER_PADDING and isinstance(padding, int) else 0
    if window is not None and window > known and kind not in _RELATIVE:
        raise ModelError(
            f"the model knows {known} positions ({name} in {folder}/config.json), not {window}; "
            f"leave the window out or pass at most {known}"
        )
    return known if window is None else window


def weight_files(folder: Path) -> list[Path]:
    """The safetensors files that hold the weights, as transformers chooses them, each checked to be complete.

    Raises ModelError when there are none (pickled weights are never opened), when a shard is missing, or when a file
    is cut short or no safetensors file.
    """
    index = folder / "model.safetensors.index.json"
    if (folder / "model.safetensors").is_file():
        files = [folder / "model.safetensors"]
    elif index.is_file():
        files = [folder / name for name in indexed_files(index)]
    else:
        raise ModelError(
            f"{folder} holds no model.safetensors, and other formats (.bin, .pt) can run code when opened; "
            'convert it where you trust it: python -c "from transformers import AutoModelForCausalLM as M; '
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
    """The names of the files that an index of weights lists; ModelError where they are no safetensors files."""
    try:
        names = sorted(set(parse_json(read_text(index))["weight_map"].values()))
        if wrong := [name for name in names if not name.endswith(".safetensors")]:
            raise ValueError(f"{wrong[0]} is not one")  # others can run code when opened
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ModelError(
            f"{index} is no index of safetensors files; fetch the file again"
        ) from error
    return names


def check_layers(config: Mapping[str, Any], folder: Path) -> None:
    """ModelError when the weights hold more layers than the configuration describes: they would not all be used.

    Layers that predict further tokens, which no score needs, don't count.  ModelError also when it describes more
    layers or experts than there are weights: to build as many would take hours and gigabytes.
    """
    held_weights = list(tensors(weight_files(folder)))
    most = max(
        [len(held_weights), *(length for _, entry in held_weights for length in entry["shape"])]
    )
    for place in (config, config.get("text_config") or {}):
        for name, count in place.items():
            if isinstance(count, int) and count > most and _COUNTED.search(name):
                raise ModelError(
                    f"{folder}/config.json says {name} = {count:,}, which no model of these {len(held_weights):,}"
                    " weights has; fetch the folder again"
                )
    text = config.get("text_config") or {}
    stated = [
        tokens
        for place in (config, text)
        for name in _LAYERS
        if isinstance(tokens := place.get(name), int)
    ]
    further = max(
        number
        for place in (config, text, {})
        for name in _FURTHER
        if isinstance(number := place.get(name, 0), int)
    )
    held = max(
        (int(at[1]) + 1 for name, _ in held_weights if (at := _LAYER.match(name))), default=0
    )
    if stated and held > stated[0] + further:
        raise ModelError(
            f"{folder}/config.json describes {stated[0]} layers, but the weights hold {held}, not all of which would "
            f"be used: set its number of layers to {held}, or fetch the folder again"
        )


def dtype_of(config: Mapping[str, Any], folder: Path) -> str | None:
    """The dtype that the configuration states, or that all weights have; None where only loading tells."""
    stated = config.get("dtype", config.get("torch_dtype"))
    if isinstance(stated, str) and "quantization_config" not in config:
        return stated.removeprefix("torch.")
    if stated is not None or "quantization_config" in config or "text_config" in config:
        return None
    kinds = {entry["dtype"] for _, entry in tensors(weight_files(folder))}
    return _DTYPES.get(kinds.pop()) if len(kinds) == 1 else None


def digest(folder: Path, tokenizer: str) -> str:
    """sha256 (64 hex) over the configuration, the digest of the ``tokenizer`` and the weights.

    Of every weight file: name, size, header, and all bytes up to 64 MiB; of larger ones 64 evenly spaced chunks of
    1 MiB, so that the identity of a large model takes seconds.
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


def tensors(files: Sequence[Path]) -> Iterator[tuple[str, dict[str, Any]]]:
    """(name, ``dtype``, ``shape`` and ``data_offsets``) of every tensor in safetensors ``files``."""
    for file in files:
        yield from (
            each for each in json.loads(read_header(file)).items() if each[0] != "__metadata__"
        )


def read_header(file: Path) -> bytes:
    """The JSON header of a safetensors file, whose offsets must end where the file does; ModelError for any other."""
    size = file.stat().st_size
    with open_file(file) as stream:
        length = int.from_bytes(stream.read(8), "little")
        header = stream.read(length) if length <= min(size, _HEADER) else b""
    try:
        entries = [entry for name, entry in parse_json(header).items() if name != "__metadata__"]
        end = max((entry["data_offsets"][1] for entry in entries), default=0)
        lengths = [length for entry in entries for length in entry["shape"]]
        if not all(isinstance(length, int) and length >= 0 for length in lengths):
            raise ValueError("a shape is no list of lengths")
    except (ValueError, AttributeError, KeyError, TypeError, IndexError) as error:
        advice = "fetch it again (git lfs pull, if it is a pointer)"
        raise ModelError(f"{file} is not a safetensors file; {advice}") from error
    if 8 + length + end != size:
        raise ModelError(
            f"{file} should have {8 + length + end} bytes but has {size}; fetch it again"
        )
    return header


class Quantisation(NamedTuple):
    """How the weights of a checkpoint were quantised.  ``weights``: as in ``int8``; ``method``: transformers' name."""

    method: str
    weights: str


def read_quantisation(config: Mapping[str, Any], folder: Path) -> Quantisation | None:
    """What ``quantization_config`` in the configuration of a model says; None where there is none.

    Raises ModelError for a method that this transformers does not know, as it would load such weights as if they were
    plain ones, and where a package is missing.
    """
    stated = config.get("quantization_config")
    if stated is None:
        return None
    method = stated.get("quant_method") if isinstance(stated, dict) else None
    if (
        method is None
        and isinstance(stated, dict)
        and (stated.get("load_in_8bit") or stated.get("load_in_4bit"))
    ):
        method = "bitsandbytes"
    if not isinstance(method, str):
        raise ModelError(
            f"quantization_config in {folder / 'config.json'} names no quant_method, so nobody knows what its weights "
            "mean; fetch the file again"
        )
    from transformers.utils.quantization_config import QuantizationMethod

    known = {each.value for each in QuantizationMethod}
    if method not in known:
        raise ModelError(
            f"the weights in {folder} are quantised with {method!r}, which this transformers does not know (it knows "
            f"{', '.join(sorted(known))}); use a newer one, or a checkpoint without quantisation"
        )
    needed = PACKAGES.get(method, {})
    if missing := [package for module, package in needed.items() if not is_installed(module)]:
        raise ModelError(
            f"the weights in {folder} are quantised with {method}, which needs {' and '.join(missing)}; run: "
            f"pip install {' '.join(missing)}"
        )
    return Quantisation(method, next(_weights(stated, method), "quantised"))


def is_installed(module: str) -> bool:
    """Whether it can be imported."""
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # what it is a part of
        return False


def remembered(files: Sequence[Path], how: str, compute: Callable[[], str]) -> str:
    """The digest (64 hex) that ``compute`` makes of ``files``; ``how`` names the way, as another has other entries.

    An entry of the user's cache is named after path, size, inode and times of every file: one that changed in any way
    has another entry.  What ``compute`` raises is raised, and nothing is remembered.
    """
    stats = [(str(file.resolve()), file.stat()) for file in files]
    seen = [
        [path, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns, stat.st_ino, stat.st_dev]
        for path, stat in stats
    ]
    key = json.dumps([how, seen])
    if (digest := read_user_cache("digests", key)) is not None:
        return digest
    digest = compute()
    changed = max((max(stat.st_mtime, stat.st_ctime) for _, stat in stats), default=0.0)
    if time.time() - changed > SETTLED:
        write_user_cache("digests", key, digest)
    return digest


@contextmanager
def quiet() -> Iterator[None]:
    """Meanwhile no progress bar, and errors alone in its log."""
    from transformers.utils import logging

    bars, verbosity = logging.is_progress_bar_enabled(), logging.get_verbosity()
    logging.disable_progress_bar()
    logging.set_verbosity_error()
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)
        if bars:
            logging.enable_progress_bar()


def _weights(stated: Mapping[str, Any], method: str) -> Iterator[str]:
    """The kind of number that weights are, as each method says it."""
    if stated.get("load_in_8bit"):
        yield "int8"
    if stated.get("load_in_4bit"):
        yield str(stated.get("bnb_4bit_quant_type", "fp4"))
    for bits in ("bits", "nbits", "w_bit"):
        if isinstance(stated.get(bits), int):
            yield f"int{stated[bits]}"
    for group in (stated.get("config_groups") or {}).values():
        own = group.get("weights") or {}
        yield f"{own.get('type', 'int')}{own.get('num_bits', '')}"
    kind = stated.get("quant_type")
    default = kind.get("default") if isinstance(kind, dict) else None
    name = default.get("_type") if isinstance(default, dict) else kind
    if isinstance(name, str):  # as in Int8WeightOnlyConfig
        yield name.removesuffix("Config").removesuffix("WeightOnly").lower()
    if isinstance(stated.get("weights"), str):
        yield stated["weights"]
    if method in _SELF_EVIDENT:
        yield _SELF_EVIDENT[method]
