"""Make a model folder's configuration and tokenizer of what a GGUF file states, and refuse what
would be lost.

transformers reads both from the file.  Some of what a file states has no effect there: each such
key is either made up for here, held against what transformers takes instead, or refused by name, as
the model would compute something else.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from choicewise.errors import ModelError, StoreError
from choicewise.extensions.gguf.gguf_file import SERVE_IT, GgufFile, write_head
from choicewise.models.local.files import quiet, remembered
from choicewise.util.cache import user_cache_folder
from choicewise.util.files import write_text
from choicewise.util.jsonio import JsonDict, exact_json

_COMPLETE = "config.json"  # written last: where it is, the folder is complete

# What llama.cpp splits texts by before it merges, by the name in ``tokenizer.ggml.pre``
# (src/llama-vocab.cpp at 00ad355e).  The names of transformers' own table are read from there.
_WORDS = (
    "gpt-2",
    "phi-2",
    "mpt",
    "olmo",
    "jais",
    "trillion",
    "granite-docling",
    "exaone4",
    "gigachat",
    "mellum",
)
_WORDS_AND_DIGITS = (
    *("starcoder", "refact", "command-r", "smollm", "codeshell", "exaone", "minerva-7b", "mellum2"),
)
_WHOLE_TOKENS_FIRST = (
    *(
        "llama3",
        "llama-v3",
        "llama-bpe",
        "falcon3",
        "falcon-h1",
        "pixtral",
        "midm-2.0",
        "lfm2",
        "jina-v5-nano",
    ),
    "tekken",
)
"""Kinds whose words that are tokens are not merged from parts (``ignore_merges``), and whose texts
begin with BOS.
"""

_BYTE_LEVEL = {
    "type": "ByteLevel",
    "add_prefix_space": False,
    "trim_offsets": True,
    "use_regex": True,
}
_SINGLE_DIGITS = {"type": "Digits", "individual_digits": True}

_WITHOUT_EFFECT = frozenset({"vocab_size", "tensor_data_layout", "attention.causal"})
"""Keys of an architecture that change no number: the vocabulary is counted, the layout is the only
one.
"""

_HELD_AGAINST = {
    "attention.key_length": "head_dim",
    "attention.value_length": "head_dim",
    "rope.dimension_count": "head_dim",
    "attention.sliding_window": "sliding_window",
    "attn_logit_softcapping": "attn_logit_softcapping",
    "final_logit_softcapping": "final_logit_softcapping",
    "expert_count": "num_local_experts",
    "expert_used_count": "num_experts_per_tok",
}
"""Keys that transformers does not read, and the field of its configuration that must have the same
value.
"""

_ROPE = "rope.scaling."
_SCALING = frozenset(
    _ROPE + name for name in ("type", "factor", "original_context_length", "finetuned")
)
_STATED = (
    *("block_count", "context_length", "embedding_length", "attention.head_count"),
    *("attention.layer_norm_rms_epsilon", "attention.layer_norm_epsilon"),
)
"""Keys that llama.cpp misses where its architecture has them, and transformers makes up."""
_NEEDED = {"gpt2": "merges", "llama": "scores"}
"""Kind of tokenizer that is read → the list that it can't do without."""
_THETA = 10_000.0  # llama.cpp's base of rotary embeddings where the file states none


def settings_folder(file: GgufFile, digest: str) -> Path:
    """Return a folder with ``config.json`` and the tokenizer of ``file``, whose sha256 is
    ``digest``.

    It is made once and kept in the user's cache.  Raises ModelError if transformers can't read the
    architecture or the tokenizer, or would leave out something that changes scores.
    """
    packages = [version(name) for name in ("choicewise", "transformers", "tokenizers", "gguf")]
    code = Path(__file__).read_bytes()
    key = hashlib.sha256(f"{digest} {packages}".encode() + code).hexdigest()
    folder = user_cache_folder("gguf", key)
    if (folder / _COMPLETE).is_file():
        return folder
    with quiet():
        config = _config(file)
        tokenizer = _tokenizer(file)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        write_text(folder / "tokenizer.json", exact_json(tokenizer))
        write_text(folder / "tokenizer_config.json", exact_json(_tokenizer_config(file)))
        write_text(folder / _COMPLETE, exact_json(config, indent=1, sort=True))
    except (OSError, StoreError) as error:
        raise ModelError(
            f"can't write the settings of {file.path.name} into {folder} ({error}); set "
            "XDG_CACHE_HOME to "
            "a writable folder"
        ) from error
    return folder


def file_digest(path: Path) -> str:
    """Return the sha256 (64 hex) of the file at ``path``, remembered while the file does not
    change.
    """

    def compute() -> str:
        with path.open("rb") as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest()

    return remembered([path], "sha256", compute)


def _config(file: GgufFile) -> JsonDict:
    """Return the configuration as transformers reads it, with the rotary embedding that the file
    states.
    """
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

    layers = file.setting("block_count", 0)
    if not isinstance(layers, int) or layers > len(file.tensors):
        # Configurations and networks of so many layers would take hours and gigabytes.
        raise _damaged(file, f"{layers!r} layers and {len(file.tensors)} tensors")
    try:
        config = _converted_config(file)
        network = MODEL_FOR_CAUSAL_LM_MAPPING_NAMES[config.model_type]
    except Exception as error:
        # The reader fails in every way there is.
        raise ModelError(
            f"transformers can't read the architecture {file.architecture!r} of {file.path.name} "
            f"({error}); {SERVE_IT}"
        ) from error
    _refuse_lost_keys(file, config)
    _scale_rotation(file, config)
    fields = config.to_dict()
    fields["architectures"] = [network]
    fields.pop("_name_or_path", None)
    return fields


def _converted_config(file: GgufFile) -> Any:
    """Return the configuration that transformers makes of ``file``."""
    from transformers import AutoConfig
    from transformers.integrations.gguf import GGUF_CONFIG_ARCHS

    if file.architecture in GGUF_CONFIG_ARCHS:
        # These are read by another reader, which skips the vocabulary.
        return AutoConfig.from_pretrained(
            file.path.parent, gguf_file=file.path.name, local_files_only=True
        )
    with TemporaryDirectory() as folder:
        copy = Path(folder, "head.gguf")
        write_head(file, copy)
        config = AutoConfig.from_pretrained(folder, gguf_file=copy.name, local_files_only=True)
    tokens = file.metadata["tokenizer.ggml.tokens"]
    config.vocab_size = file.setting("vocab_size", len(tokens))
    return config


def _refuse_lost_keys(file: GgufFile, config: Any) -> None:
    """Raise ModelError if ``file`` states something about its architecture that ``config`` does not
    have.
    """
    from transformers.integrations import GGUF_CONFIG_MAPPING

    names = GGUF_CONFIG_MAPPING.get(config.model_type, GGUF_CONFIG_MAPPING.get(file.architecture))
    if names is None:
        # Transformers has a second reader, which keeps weights packed.
        raise ModelError(
            f"GGUF files of the architecture {file.architecture!r} are not read yet; {SERVE_IT}"
        )
    for name in _STATED:
        if name in names and not file.setting(name):
            raise _damaged(file, f"no {file.architecture}.{name}")
    prefix = f"{file.architecture}."
    for key, value in file.metadata.items():
        if not key.startswith(prefix):
            continue
        name = key.removeprefix(prefix)
        if names.get(name) is not None or name in _WITHOUT_EFFECT or name in _SCALING:
            continue
        if not value:
            # Zero experts, no bias: as without the key.
            continue
        field = _HELD_AGAINST.get(name)
        if field is None:
            raise _lost(file, f"{key} = {value!r}")
        taken = _field(config, field)
        if taken != value:
            raise _lost(file, f"{key} = {value!r}, where transformers takes {taken!r}")


def _field(config: Any, name: str) -> Any:
    """Return a field of ``config``; the width of a head follows from others where it is not stated."""
    value = getattr(config, name, None)
    if value is None and name == "head_dim":
        return config.hidden_size // config.num_attention_heads
    return value


def _scale_rotation(file: GgufFile, config: Any) -> None:
    """Give ``config`` the scaling of rotary positions that ``file`` states, which transformers
    leaves out.

    Raises ModelError if it is of a kind that can't be expressed exactly.
    """
    rotation = getattr(config, "rope_parameters", None)
    if rotation is None:
        return
    whole = rotation.get("full_attention", rotation)
    base = file.setting("rope.freq_base", _THETA)
    if whole.get("rope_theta") != base:
        raise _lost(
            file, f"rope.freq_base = {base}, where transformers takes {whole.get('rope_theta')}"
        )
    # llama.cpp scales linearly where a file states a factor alone.
    kind = file.setting(_ROPE + "type", "linear")
    factor = file.setting(_ROPE + "factor", 1.0)
    if not isinstance(factor, float):
        raise _damaged(file, f"{_ROPE}factor = {factor!r}")
    if kind == "linear" and factor not in (0.0, 1.0):
        whole.update(rope_type="linear", factor=factor)
    elif kind == "yarn":
        trained = file.setting("context_length")
        original = file.setting(_ROPE + "original_context_length", trained)
        whole.update(rope_type="yarn", factor=factor, original_max_position_embeddings=original)
    elif kind not in ("none", "linear"):
        raise _lost(file, f"{_ROPE}type = {kind!r}")
    for tensor in file.tensors:
        if tensor.name.startswith("rope_"):
            _scale_by_tensor(file, tensor.name, whole)


def _scale_by_tensor(file: GgufFile, name: str, rotation: JsonDict) -> None:
    """Find the published scaling of Llama 3 that gives the factors in the tensor ``name`` of
    ``file``.
    """
    from gguf import GGUFReader

    if name != "rope_freqs.weight":
        raise _lost(file, name)
    reader = GGUFReader(str(file.path))
    (factors,) = [tensor.data for tensor in reader.tensors if tensor.name == name]
    for factor in (1.0, 8.0, 32.0):
        # Factors of no scaling, of Llama 3.1 and 3.3, and of Llama 3.2.
        scaling = {"factor": factor, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
        scaling["original_max_position_embeddings"] = 8192
        expected = _llama3_factors(rotation["rope_theta"], len(factors), scaling)
        if max(abs(factors - expected)) > 1e-3:
            continue
        if factor > 1:
            rotation.update(rope_type="llama3", **scaling)
        return
    raise _lost(file, f"{name}, not a published scaling of Llama 3")


def _llama3_factors(theta: float, count: int, scaling: Mapping[str, float]) -> Any:
    """Return how many times longer every wave becomes (Llama 3.1, ``rope_scaling`` of its
    config.json).
    """
    import numpy as np

    wavelengths = 2 * np.pi * theta ** (np.arange(count) / count)
    original = scaling["original_max_position_embeddings"]
    low = scaling["low_freq_factor"]
    high = scaling["high_freq_factor"]
    smooth = np.clip((original / wavelengths - low) / (high - low), 0, 1)
    return 1 / ((1 - smooth) / scaling["factor"] + smooth)


def _tokenizer(file: GgufFile) -> JsonDict:
    """Return the content of ``tokenizer.json``: as transformers converts it, with what the
    conversion loses.
    """
    from transformers.integrations.gguf import convert_gguf_tokenizer, get_gguf_tokenizer

    kind = file.metadata.get("tokenizer.ggml.model", "")
    _check_vocabulary(file, kind)
    _refuse_foreign_merges(file)
    try:
        # AutoTokenizer reads the configuration again, which takes seconds.
        architecture, vocabulary, _ = get_gguf_tokenizer(str(file.path))
        converted, _ = convert_gguf_tokenizer(architecture, vocabulary)
        content = json.loads(converted.to_str())
    except Exception as error:
        # Vocabularies are malformed in every way there is.
        raise ModelError(
            f"transformers can't read the tokenizer {kind!r} of {file.path.name} ({error}); "
            f"{SERVE_IT}"
        ) from error
    if kind == "gpt2":
        _split_words(file, content)
    else:
        _set_leading_space(file, content)
    content["post_processor"] = _special_ends(file)
    return content


_ROLES = {"bos": "bos", "eos": "eos", "unk": "unknown", "pad": "padding"}
"""What GGUF calls the roles of special tokens, by transformers' names."""


def _check_vocabulary(file: GgufFile, kind: str) -> None:
    """Raise ModelError if the tokenizer is of another ``kind`` than is read, or if its lists don't
    fit.
    """
    if kind not in _NEEDED:
        raise ModelError(
            f"the tokenizer of {file.path.name} has the kind {kind!r}, which can't be read; "
            f"{SERVE_IT}"
        )
    if not file.metadata.get(f"tokenizer.ggml.{_NEEDED[kind]}"):
        raise _damaged(file, f"a tokenizer without {_NEEDED[kind]}")
    tokens = file.metadata["tokenizer.ggml.tokens"]
    for name in ("scores", "token_type"):
        values = file.metadata.get(f"tokenizer.ggml.{name}", tokens)
        if len(values) != len(tokens):
            raise _damaged(
                file, f"{len(tokens):,} tokens and a tokenizer.ggml.{name} of another length"
            )
    for role in _ROLES.values():
        number = file.metadata.get(f"tokenizer.ggml.{role}_token_id", 0)
        if number >= len(tokens):
            raise _damaged(file, f"a {role} token {number:,} beyond its {len(tokens):,} tokens")
    # llama.cpp gives tokens without a text a text of their own.
    texts = [token for token in tokens if token]
    if len(set(texts)) < len(texts):
        ((token, _),) = Counter(texts).most_common(1)
        raise _damaged(file, f"the token {token[:80]!r} twice")
    for tensor in file.tensors:
        if tensor.name == "token_embd.weight" and tensor.shape[0] < len(tokens):
            raise _damaged(file, f"{len(tokens):,} tokens and weights for {tensor.shape[0]:,}")


def _refuse_foreign_merges(file: GgufFile) -> None:
    """Raise ModelError if ``file`` merges what are no tokens: the library of tokenizers would
    abort.
    """
    tokens = set(file.metadata["tokenizer.ggml.tokens"])
    for merge in file.metadata.get("tokenizer.ggml.merges", ()):
        left, _, right = merge.partition(" ")
        if left not in tokens or right not in tokens or left + right not in tokens:
            raise ModelError(
                f"{file.path.name} merges {merge[:80]!r}, which are not among its tokens; fetch it "
                "again"
            )


def _split_words(file: GgufFile, content: JsonDict) -> None:
    """Give the byte-level BPE ``content`` the words that the vocabulary's merges were learned on."""
    from transformers.integrations.gguf.gguf_tokenizer_mapping import GGUF_PRE_TOKENIZER_SPLITS

    words = file.metadata.get("tokenizer.ggml.pre", "default")
    if words in _WORDS:
        content["pre_tokenizer"] = _BYTE_LEVEL
    elif words in _WORDS_AND_DIGITS:
        content["pre_tokenizer"] = {
            "type": "Sequence",
            "pretokenizers": [_SINGLE_DIGITS, _BYTE_LEVEL],
        }
    elif words not in GGUF_PRE_TOKENIZER_SPLITS:
        raise ModelError(
            f"{file.path.name} splits words by {words!r} (tokenizer.ggml.pre), unknown to "
            "transformers; "
            f"{SERVE_IT}"
        )
    content["model"]["ignore_merges"] = words in _WHOLE_TOKENS_FIRST


def _set_leading_space(file: GgufFile, content: JsonDict) -> None:
    """Make the SentencePiece tokenizer ``content`` begin a text with a space if the file states so."""
    begins_with_space = file.metadata.get("tokenizer.ggml.add_space_prefix", True)
    words = content["pre_tokenizer"]
    if words is not None and words["type"] == "Metaspace":
        words["prepend_scheme"] = "first" if begins_with_space else "never"


def _special_ends(file: GgufFile) -> JsonDict:
    """Return the post-processor that begins and ends texts with BOS and EOS as the file states."""
    words = file.metadata.get("tokenizer.ggml.pre")
    is_sentencepiece = file.metadata.get("tokenizer.ggml.model") == "llama"
    begins = file.metadata.get(
        "tokenizer.ggml.add_bos_token", is_sentencepiece or words in _WHOLE_TOKENS_FIRST
    )
    ends = file.metadata.get("tokenizer.ggml.add_eos_token", False)
    specials: JsonDict = {}
    single: list[JsonDict] = [{"Sequence": {"id": "A", "type_id": 0}}]
    if begins:
        single.insert(0, _special_end(file, "bos", specials))
    if ends:
        single.append(_special_end(file, "eos", specials))
    pair = [*single, {"Sequence": {"id": "B", "type_id": 0}}]
    return {
        "type": "TemplateProcessing",
        "single": single,
        "pair": pair,
        "special_tokens": specials,
    }


def _special_end(file: GgufFile, role: str, specials: JsonDict) -> JsonDict:
    """Return the entry of a post-processor that adds the token in ``role``, which is entered into
    ``specials``.
    """
    token = _special_token(file, role)
    if token is None:
        raise ModelError(
            f"{file.path.name} adds {role.upper()} to texts without naming it; fetch it again"
        )
    number = file.metadata[f"tokenizer.ggml.{role}_token_id"]
    specials[token] = {"id": token, "ids": [number], "tokens": [token]}
    return {"SpecialToken": {"id": token, "type_id": 0}}


def _tokenizer_config(file: GgufFile) -> JsonDict:
    """Return the content of ``tokenizer_config.json``: special tokens by name, and the chat
    template.
    """
    config: JsonDict = {}
    for role, name in _ROLES.items():
        token = _special_token(file, name)
        if token is not None:
            config[f"{role}_token"] = token
    template = file.metadata.get("tokenizer.chat_template")
    if template is not None:
        config["chat_template"] = template
    return config


def _special_token(file: GgufFile, role: str) -> str | None:
    """Return the text of the special token in ``role``, such as ``bos``; None if the file names
    none.
    """
    number = file.metadata.get(f"tokenizer.ggml.{role}_token_id")
    tokens = file.metadata["tokenizer.ggml.tokens"]
    if number is None or not 0 <= number < len(tokens):
        return None
    return str(tokens[number])


def _damaged(file: GgufFile, what: str) -> ModelError:
    return ModelError(f"{file.path} is damaged: it has {what}; fetch it again")


def _lost(file: GgufFile, what: str) -> ModelError:
    return ModelError(
        f"{file.path.name} has {what}, so transformers would compute another model; {SERVE_IT}"
    )
