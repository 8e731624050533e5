"""Tiny random masked models and encoder-decoders with tokenizers of their kinds, made the same on every machine."""

import hashlib
import json
from pathlib import Path
from typing import Any

import torch
import transformers
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

CHARACTERS = sorted({*"abcdefghijklmnopqrstuvwxyz", *"TQWADFBLO", *".:?!,'", "é"})
"""Single characters that every vocabulary has."""

WORDS = (
    *(
        "the",
        "her",
        "heron",
        "frog",
        "fish",
        "question",
        "what",
        "do",
        "catch",
        "answer",
        "three",
        "in",
        "water",
    ),
    *("a", "small", "new", "unbeliev", "dog"),
)
"""Words that they have whole."""

ENDS = ["s", "es", "t", "er", "ing", "ably", "un", "ch", "cat", "ed"]  # further pieces of words

SMALL = {
    **{
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
    },
    **{"max_position_embeddings": 128, "initializer_range": 0.4},
}
MASKED = {
    "bert": ("wordpiece", {}),
    "distilbert": ("wordpiece", {"dim": 32, "hidden_dim": 48, "n_layers": 2, "n_heads": 4}),
    "electra": ("wordpiece", {"embedding_size": 16}),
    "roberta": ("bytes", {"max_position_embeddings": 130}),
    "modernbert": ("bytes", {"local_attention": 8, "global_attn_every_n_layers": 2}),
    "albert": ("unigram", {"embedding_size": 16}),
}
T5 = {
    **{"d_model": 32, "d_ff": 48, "d_kv": 8, "num_layers": 2, "num_heads": 4, "n_positions": 64},
    "decoder_start_token_id": 0,
}
BART = {
    **{"d_model": 32, "init_std": 0.4, "decoder_start_token_id": 2, "forced_bos_token_id": None},
    **{"encoder_layers": 2, "encoder_attention_heads": 4, "encoder_ffn_dim": 48},
    **{"decoder_layers": 2, "decoder_attention_heads": 4, "decoder_ffn_dim": 48},
}
ENCODER_DECODERS = {"t5": ("unigram-end", T5), "bart": ("bytes", BART)}


def framed(tokenizer: Tokenizer, special: list[str], around: str, *ends: str) -> Tokenizer:
    """With ``special`` tokens, of which ``ends`` stand where ``around`` says."""
    tokenizer.add_special_tokens(special)
    ids = [(end, tokenizer.token_to_id(end)) for end in ends]
    tokenizer.post_processor = processors.TemplateProcessing(single=around, special_tokens=ids)
    return tokenizer


def wordpiece() -> Tokenizer:
    """As of BERT: lower case, every punctuation mark a word, [CLS] ... [SEP]."""
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    pieces = [*special, *CHARACTERS, *WORDS, *(f"##{piece}" for piece in [*CHARACTERS, *ENDS])]
    vocabulary = {piece: token for token, piece in enumerate(dict.fromkeys(pieces))}
    tokenizer = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    return framed(tokenizer, special, "[CLS] $A [SEP]", "[CLS]", "[SEP]")


def byte_level() -> Tokenizer:
    """As of RoBERTa and BART: bytes, a word with the space before it, <s> ... </s>."""
    special = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    starts = [*(f"Ġ{word}" for word in WORDS), *(word.capitalize() for word in WORDS), *ENDS]
    merges = dict.fromkeys(
        (piece[:end], piece[end]) for piece in starts for end in range(1, len(piece))
    )
    pieces = [
        *special,
        *sorted(pre_tokenizers.ByteLevel.alphabet()),
        *("".join(pair) for pair in merges),
    ]
    vocabulary = {piece: token for token, piece in enumerate(dict.fromkeys(pieces))}
    tokenizer = Tokenizer(models.BPE(vocabulary, list(merges)))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    return framed(tokenizer, special, "<s> $A </s>", "<s>", "</s>")


def unigram(end: bool = False) -> Tokenizer:
    """As of ALBERT, or with ``end`` as of T5: pieces that begin with their space; [CLS] ... [SEP], or ... </s>."""
    special = ["<pad>", "</s>", "<unk>", "[CLS]", "[SEP]", "[MASK]"]
    known = [*(f"▁{word}" for word in WORDS), *(f"▁{word.capitalize()}" for word in WORDS), *ENDS]
    pieces = [(piece, 0.0) for piece in special]
    pieces += [(piece, -3.0 - place / 10) for place, piece in enumerate(known)]
    pieces += [(piece, -12.0) for piece in ["▁", *CHARACTERS] if piece not in known]
    tokenizer = Tokenizer(models.Unigram(pieces, unk_id=2, byte_fallback=False))
    spaces = pre_tokenizers.Metaspace(prepend_scheme="always")
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), spaces])
    tokenizer.decoder = decoders.Metaspace(prepend_scheme="always")
    return framed(
        tokenizer, special, "$A </s>" if end else "[CLS] $A [SEP]", "</s>", "[CLS]", "[SEP]"
    )


NAMES = {
    "wordpiece": {"cls": "[CLS]", "sep": "[SEP]", "mask": "[MASK]", "pad": "[PAD]", "unk": "[UNK]"},
    "bytes": {
        **{
            "cls": "<s>",
            "sep": "</s>",
            "bos": "<s>",
            "eos": "</s>",
            "mask": "<mask>",
            "pad": "<pad>",
            "unk": "<unk>",
        }
    },
    "unigram": {"cls": "[CLS]", "sep": "[SEP]", "mask": "[MASK]", "pad": "<pad>", "unk": "<unk>"},
    "unigram-end": {"eos": "</s>", "pad": "<pad>", "unk": "<unk>"},
}


def save_tokenizer(kind: str, folder: Path) -> int:
    """The tokenizer of that kind as a model folder has it; how many tokens it has."""
    make = {
        "wordpiece": wordpiece,
        "bytes": byte_level,
        "unigram": unigram,
        "unigram-end": lambda: unigram(end=True),
    }
    tokenizer = make[kind]()
    tokenizer.save(str(folder / "tokenizer.json"))
    names = {f"{role}_token": name for role, name in NAMES[kind].items()}
    config = {"tokenizer_class": "PreTrainedTokenizerFast", **names}
    (folder / "tokenizer_config.json").write_text(json.dumps(config), encoding="utf-8")
    return int(tokenizer.get_vocab_size())


def save_model(family: str, folder: Path, **changes: Any) -> Path:
    """A folder with a random model of ``family`` and its tokenizer; weights depend on nothing but the configuration."""
    folder.mkdir(parents=True, exist_ok=True)
    kind, own = {**MASKED, **ENCODER_DECODERS}[family]
    tokens = save_tokenizer(kind, folder)
    ids = transformers.PreTrainedTokenizerFast.from_pretrained(folder)
    named = {
        f"{role}_token_id": getattr(ids, f"{role}_token_id")
        for role in ("pad", "cls", "sep", "bos", "eos")
    }
    axes = {
        **SMALL,
        **{name: token for name, token in named.items() if token is not None},
        **own,
        **changes,
    }
    config = transformers.CONFIG_MAPPING[family](vocab_size=tokens, **axes)
    loader = (
        transformers.AutoModelForMaskedLM
        if family in MASKED
        else transformers.AutoModelForSeq2SeqLM
    )
    torch.manual_seed(0)
    model = loader.from_config(config).eval()
    with torch.no_grad():  # so that every family tells tokens and places well apart
        for name, weight in model.named_parameters():
            if family == "t5" and weight.dim() > 1:
                weight.normal_(std=0.4)
            if name.endswith("bias") and weight.shape == (tokens,):
                weight.normal_(std=0.5)
    model.save_pretrained(folder)
    return folder


def digest(folder: Path) -> str:
    """sha256 of the weights and the tokenizer: numbers of another model can't be compared."""
    files = (folder / name for name in ("model.safetensors", "tokenizer.json"))
    return hashlib.sha256(
        b"".join(hashlib.sha256(file.read_bytes()).digest() for file in files)
    ).hexdigest()
